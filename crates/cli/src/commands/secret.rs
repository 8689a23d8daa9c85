//! `motu secret`: secrets by name.

use super::page::{PageArgs, more};
use crate::context::Context;
use crate::show;
use crate::show::answer;
use jiff::Timestamp;
use motu_core::secret::{SecretSummary, SetSecret};
use motu_core::{Error, Result, Service, limits};
use std::io::{IsTerminal, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Keep secrets that sandboxes, workspaces and typed calls refer to by name
///
/// One that is bound to hosts (--host) is never inside of a sandbox: a variable there holds a
/// placeholder, and the gateway puts the value in its place in requests to these hosts. Any other
/// is handed over to workspaces and to calls whose policy names it (`secrets` in `[call]`). Values
/// are sealed on the disk, or fetched when they are needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  printf %s \"$KEY\" | motu secret set openai-api-key
  motu secret set db-password --command pass --command show --command db
  printf %s \"$KEY\" | motu secret set github --host api.github.com,github.com
  motu run debian:12 --network --secret-ref GITHUB_TOKEN=github -- ./agent
  motu secret set deploy --ssh --file ./deploy_key --host git.example.com --known-hosts ~/.ssh/known_hosts
  motu run debian:12 --network --secret-ref SSH_AUTH_SOCK=deploy -- git clone git@git.example.com:repo
  motu secret list")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct From {
    /// The name by which it is referred to
    name: String,
    /// Take the value from a file [default: from standard input]
    #[arg(long, value_name = "PATH", group = "from")]
    file: Option<PathBuf>,
    /// Take it from a variable of the daemon, whenever it is needed
    #[arg(long, value_name = "NAME", group = "from")]
    variable: Option<String>,
    /// Take it from what a program prints, whenever it is needed; once for each word
    #[arg(long, value_name = "WORD", group = "from", allow_hyphen_values = true)]
    command: Vec<String>,
    /// Print what may be said of it as JSON
    #[arg(long)]
    json: bool,
}

/// The hosts it is bound to.
#[derive(Debug, Default, clap::Args)]
struct Bind {
    /// Put it into requests to this host, and keep it out of sandboxes; a name or *.name
    #[arg(
        long = "host",
        value_name = "HOST",
        value_delimiter = ',',
        help_heading = "Hosts"
    )]
    hosts: Vec<String>,
    /// Put it into bodies of requests too; these hosts are then spoken to in HTTP/1.1
    #[arg(long, requires = "hosts", help_heading = "Hosts")]
    body: bool,
    /// It is a secret access key of AWS: sign requests again that were signed with the placeholder
    #[arg(
        long,
        requires = "hosts",
        conflicts_with = "body",
        help_heading = "Hosts"
    )]
    aws: bool,
    /// It is a private key of SSH without a passphrase: an agent outside signs logins at these hosts
    #[arg(
        long,
        requires_all = ["hosts", "known_hosts"],
        conflicts_with_all = ["body", "aws"],
        help_heading = "Hosts"
    )]
    ssh: bool,
    /// A file with the host keys of these hosts, as ~/.ssh/known_hosts has them
    #[arg(long, value_name = "FILE", requires = "ssh", help_heading = "Hosts")]
    known_hosts: Option<PathBuf>,
}

impl Bind {
    /// The lines of the file of known hosts.
    fn lines(&self) -> Result<Option<String>> {
        let Some(path) = &self.known_hosts else {
            return Ok(None);
        };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| {
                let most = limits::KNOWN_HOSTS_BYTES.max + 1;
                file.take(most).read_to_string(&mut text)
            })
            .map_err(|error| Error::with_file(path.display().to_string(), &error))?;
        Ok(Some(text))
    }
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Keep a secret, or replace it
    Set {
        #[command(flatten)]
        from: From,
        #[command(flatten)]
        bind: Bind,
    },
    /// Replace the value of a secret that is there; gateways have it at once
    Rotate(From),
    /// List secrets, without their values
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Print everything that may be said of them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a secret
    Rm {
        /// Its name
        name: String,
        /// Print what may be said of it as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Set { from, .. } | Command::Rotate(from) => from.json,
            Command::List { json, .. } | Command::Rm { json, .. } => *json,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::Set { from, bind } => {
                let ask = SetSecret {
                    known_hosts: bind.lines()?,
                    ssh: bind.ssh,
                    hosts: bind.hosts,
                    body: bind.body,
                    aws: bind.aws,
                    ..from.read(false)?
                };
                let kept = client.set_secret(&from.name, ask).await?;
                answer(from.json, &kept, |kept| format!("{} is kept\n", kept.name));
            }
            Command::Rotate(from) => {
                let kept = client.set_secret(&from.name, from.read(true)?).await?;
                answer(from.json, &kept, |kept| {
                    format!("{} has a new value\n", kept.name)
                });
            }
            Command::List { page, json } => {
                let all = client.list_secrets(page.into()).await?;
                answer(json, &all, |all| list(all));
                more(json, all.next_cursor.as_deref());
            }
            Command::Rm { name, json } => {
                let gone = client.remove_secret(&name).await?;
                answer(json, &gone, |gone| format!("{} is forgotten\n", gone.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl From {
    fn read(&self, rotate: bool) -> Result<SetSecret> {
        let command = (!self.command.is_empty()).then(|| self.command.clone());
        let elsewhere = self.variable.is_some() || command.is_some();
        Ok(SetSecret {
            value: match elsewhere {
                true => None,
                false => Some(self.value()?),
            },
            variable: self.variable.clone(),
            command,
            rotate,
            ..SetSecret::default()
        })
    }

    /// From a file or from standard input; never from an argument, which others can see.
    fn value(&self) -> Result<String> {
        let most = limits::SECRET_BYTES.max + 1;
        let mut value = String::new();
        let read = match &self.file {
            Some(path) => std::fs::File::open(path)
                .and_then(|file| file.take(most).read_to_string(&mut value))
                .map_err(|error| Error::with_file(path.display().to_string(), &error)),
            None => {
                if std::io::stdin().is_terminal() {
                    show::note("the value, then Ctrl-D:\n");
                }
                std::io::stdin()
                    .take(most)
                    .read_to_string(&mut value)
                    .map_err(|error| Error::io("standard input", &error))
            }
        };
        read?;
        // A trailing newline, from a person or `echo`, is not part of the secret.
        if value.ends_with('\n') {
            value.pop();
        }
        Ok(value)
    }
}

fn list(secrets: &[SecretSummary]) -> String {
    let row = |secret: &SecretSummary| {
        vec![
            secret.name.clone(),
            secret.source_kind.clone(),
            match &secret.key_type {
                Some(key) => key.clone(),
                None if secret.aws => "aws".to_string(),
                None => "value".to_string(),
            },
            match secret.hosts.is_empty() {
                true => "-".to_string(),
                false => secret.hosts.join(","),
            },
            secret.fingerprint.clone().unwrap_or("-".to_string()),
            show::ago(secret.updated_at, Timestamp::now()),
        ]
    };
    let rows: Vec<Vec<String>> = secrets.iter().map(row).collect();
    show::table(
        &["NAME", "FROM", "KIND", "HOSTS", "FINGERPRINT", "CHANGED"],
        &rows,
    )
}
