//! `motu mcp config`: a client's settings, printed or installed.

use super::clients::{Client, Entry, Shape, toml_table};
use super::edit;
use crate::commands::shape::word;
use crate::context::Context;
use crate::home::Place;
use crate::show;
use motu_core::{Error, Result, SandboxId};
use motu_mcp::{Approvals, Profile};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The flag of `motu mcp serve`.
const APPROVALS: &str = "--approvals";
/// Settings of another program are not larger than this.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Print what a client needs to use motu, or install it
///
/// Clients: claude-code, claude-desktop, cursor, codex, vscode, zed, windsurf, gemini-cli,
/// opencode, lm-studio. With --install the entry is put into the client's own settings;
/// everything else in them stays as it is.
///
/// On a terminal it asks which calls you want to approve, unless the client's settings say so
/// already.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu mcp config claude-code
  motu mcp config cursor --install
  motu mcp config codex --profile terminal --name motu-terminal --install")]
pub struct Args {
    /// The client
    #[arg(value_name = "CLIENT", value_parser = word::<Client>)]
    client: Client,

    /// Which tools it gets: vm-run, workspace-core, workspace-full, terminal or all
    #[arg(long, value_name = "PROFILE", default_value = "workspace-core", value_parser = word::<Profile>)]
    profile: Profile,

    /// When you are asked before something is deleted, reset or given a network: always (refused
    /// if the client cannot ask), auto (approved in advance if it cannot) or never (approved in
    /// advance) [default: what the settings say already; else asked on a terminal, and always]
    #[arg(long, value_name = "WHEN", value_parser = word::<Approvals>)]
    approvals: Option<Approvals>,

    /// Put it into the client's settings
    #[arg(long)]
    install: bool,

    /// What the client calls the server
    #[arg(long, value_name = "NAME", default_value = "motu", value_parser = name)]
    name: String,

    /// Open terminal sessions in this sandbox or workspace
    #[arg(long, value_name = "ID", value_parser = SandboxId::parse)]
    sandbox: Option<SandboxId>,
}

fn name(text: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(text.to_string()),
        false => Err(Error::invalid("that is no name for a server")
            .hint("1 to 64 characters of a-z, A-Z, 0-9, '-' and '_'")),
    }
}

impl Args {
    /// The approvals that were asked for, are in the settings or are chosen now; `None` says nothing
    /// of them.
    fn approvals(&self, settings: &str) -> Result<Option<Approvals>> {
        if self.approvals.is_some() {
            return Ok(self.approvals);
        }
        let arguments = self.client.arguments(settings, &self.name);
        let mut after = arguments.iter().skip_while(|word| *word != APPROVALS);
        if let Some(known) = after.nth(1).and_then(|word| word.parse().ok()) {
            return Ok(Some(known));
        }
        match std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            true => choose(self.client.name).map(Some),
            false => Ok(None),
        }
    }

    fn entry(&self, context: &Context, approvals: Option<Approvals>) -> Result<Entry> {
        if self.sandbox.is_some() && !self.profile.has_terminals() {
            return Err(Error::invalid("--sandbox is about terminal sessions")
                .hint("add --profile terminal or --profile all"));
        }
        // Clients do not start programs through a shell: use the absolute path.
        let command = std::env::current_exe().map_err(|error| Error::io("find motu", &error))?;
        let mut args = vec!["mcp", "serve", "--profile", self.profile.as_str()];
        if let Some(approvals) = approvals {
            args.extend([APPROVALS, approvals.as_str()]);
        }
        if let Some(sandbox) = &self.sandbox {
            args.extend(["--sandbox", sandbox.as_str()]);
        }
        let place = context.place.path();
        let usual = Place::find(None).is_ok_and(|usual| usual.path() == place);
        let env = match usual {
            true => Vec::new(),
            false => vec![(
                "MOTU_HOME".to_string(),
                place.to_string_lossy().into_owned(),
            )],
        };
        Ok(Entry {
            name: self.name.clone(),
            command: command.to_string_lossy().into_owned(),
            args: args.into_iter().map(String::from).collect(),
            env,
        })
    }

    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let path = settings(&self.client)?;
        // What is only printed needs no settings that can be read.
        let old = match (read(&path), self.install) {
            (Ok(old), _) => old,
            (Err(error), true) => return Err(error),
            (Err(_), false) => String::new(),
        };
        let entry = self.entry(context, self.approvals(&old)?)?;
        let shown = path.display();
        if !self.install {
            show::print(&self.client.text(&entry));
            show::note(&format!("put this into {shown}, or add --install\n"));
            return Ok(ExitCode::SUCCESS);
        }
        let in_it = |error: Error| Error {
            message: format!("{shown}: {}", error.message),
            ..error
        };
        let new = match self.client.shape {
            Shape::Json(key) | Shape::TypedJson(key) | Shape::ListJson(key) => {
                edit::json(&old, key, &entry.name, &self.client.value(&entry)).map_err(in_it)?
            }
            Shape::Toml(table) => {
                let lines = toml_table(table, &entry);
                edit::toml(&old, table, &entry.name, &lines).map_err(in_it)?
            }
        };
        match old == new {
            true => show::print(&format!("{} is in {shown} already\n", entry.name)),
            false => {
                replace(&path, &new)?;
                let after = self.client.after;
                show::print(&format!("put {} into {shown}; {after}\n", entry.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks which approvals the user of a client wants.
fn choose(client: &str) -> Result<Approvals> {
    show::note(&format!(
        "Some tools need your approval: what deletes or resets something, gives a machine a network, or\n\
         makes one without isolation. Not every client can ask you. What shall hold for {client}?\n  \
         always  you are asked; what the client cannot ask is refused\n  \
         auto    you are asked if the client can; else its own rules hold\n  \
         never   you are not asked\n"
    ));
    let mut input = std::io::stdin().lock();
    loop {
        show::note("always, auto or never [always]: ");
        let mut line = String::new();
        let read = input.read_line(&mut line);
        read.map_err(|error| Error::io("read the answer", &error))?;
        match line.trim() {
            "" => return Ok(Approvals::Always),
            word => match word.parse() {
                Ok(approvals) => return Ok(approvals),
                Err(_) => continue,
            },
        }
    }
}

/// Where this user's settings of a client are.
fn settings(client: &Client) -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = set("HOME").ok_or_else(|| Error::invalid("HOME is not set"))?;
    Ok(client.path(&home, set("XDG_CONFIG_HOME").as_deref()))
}

fn read(path: &Path) -> Result<String> {
    let cannot =
        |error: &std::io::Error| Error::with_file(format_args!("read {}", path.display()), error);
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(cannot(&error)),
        Ok(found) if !found.is_file() => {
            return Err(
                Error::conflict(format!("{} is no plain file", path.display()))
                    .hint("only a file of settings is ever replaced"),
            );
        }
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(Error::limit(format!("{} is too large", path.display())));
        }
        Ok(_) => {}
    }
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(Error::invalid(format!("{} is not text", path.display())))
        }
        outcome => outcome.map_err(|error| cannot(&error)),
    }
}

/// Replaces a file in one step: whoever reads it sees the old settings or the new ones.
fn replace(path: &Path, text: &str) -> Result<()> {
    // Follow a symbolic link: people keep their settings elsewhere.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let cannot =
        |error: std::io::Error| Error::with_file(format_args!("write {}", path.display()), &error);
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    if std::fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(
            Error::conflict(format!("{} is no plain file", path.display()))
                .hint("only a file of settings is ever replaced"),
        );
    }
    let mode = std::fs::metadata(&path).map_or(0o600, |old| old.permissions().mode() & 0o7777);
    let mut draft = path.clone().into_os_string();
    draft.push(format!(".motu-{}", motu_core::id::random_name(8)));
    let draft = PathBuf::from(draft);
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        cannot(error)
    })
}
