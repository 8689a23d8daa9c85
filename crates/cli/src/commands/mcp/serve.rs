//! `motu mcp serve`.

use crate::commands::listening::{address, asked_to_leave, read_token};
use crate::commands::mcp::names::Word;
use crate::commands::shape::word;
use crate::context::Context;
use crate::show;
use motu_core::{Error, Leave, Result, SandboxId};
use motu_mcp::{Approvals, Http, Options, Origin, Place as SessionPlace, Profile, Server, Text};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Serve tools to a model, on standard input and output or over HTTP
///
/// The daemon is found, or started, by the first tool that needs it. Everything a
/// client makes has an id and outlives the connection.
#[derive(Debug, clap::Args)]
#[command(after_help = "Profiles:
  vm-run          One tool: a command in a machine of its own
  workspace-core  Workspaces: commands, files, patches, diffs; the place to begin
  workspace-full  Also snapshots, services, shells, machines and disks
  terminal        Terminal sessions: run, expect, screens, keys
  agent-tool      One tool: one typed call, bounded by --policy
  all             Workspaces and terminal sessions: every tool

Examples:
  motu mcp serve --profile workspace-core
  motu mcp serve --profile terminal --sandbox ws-3f9k2m7qx0ab
  motu mcp serve --http 127.0.0.1:7333 --token-file ~/.motu-mcp-token
  motu mcp config claude-code --install")]
pub struct Args {
    /// Which tools it has: vm-run, workspace-core, workspace-full, terminal, agent-tool or all
    #[arg(long, value_name = "PROFILE", default_value = "workspace-full", value_parser = word::<Profile>)]
    profile: Profile,

    /// When a person is asked before something is deleted, reset or given a network: always
    /// (refused if the client cannot ask), auto (approved in advance if it cannot) or never
    /// (approved in advance)
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = word::<Approvals>)]
    approvals: Approvals,

    /// The policy of typed calls [default: none]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// Let a model ask for machines without isolation, which run on this host as the daemon's user;
    /// a person is asked the first time
    #[arg(long, help_heading = "The host")]
    allow_host_compat: bool,

    /// Let a model name paths at and below this directory of the host; may be given several times
    /// [default: the directory it is started in, unless your home or motu's own is in that]
    #[arg(long = "host-dir", value_name = "DIR", help_heading = "The host")]
    host_dirs: Vec<PathBuf>,

    /// What the text of a result is: plain (a few words for a model), json (the same object as the
    /// structured part, for programs that read the text alone) or auto (json for clients whose
    /// revision of the protocol, before 2025-06-18, has text alone)
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = word::<Text>)]
    text: Text,

    /// Open sessions in this sandbox or workspace [default: the workspace `terminals`, made on
    /// first use]
    #[arg(long, value_name = "ID", value_parser = SandboxId::parse, help_heading = "Terminals")]
    sandbox: Option<SandboxId>,

    /// Open sessions on this host, with no isolation; the daemon must allow it too
    #[arg(long, conflicts_with = "sandbox", help_heading = "Terminals")]
    host: bool,

    /// Open sessions by create_session alone, not by the first use of a name
    #[arg(long, help_heading = "Terminals")]
    explicit_sessions: bool,

    /// Share the names of terminal sessions with every other client, instead of having names of one's own
    #[arg(long, help_heading = "Terminals")]
    share_sessions: bool,

    /// Serve Streamable HTTP at http://ADDRESS/mcp instead of standard input and output.
    /// Clients need a token; without --token and --token-file one is made and shown once
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address, help_heading = "HTTP")]
    http: Option<SocketAddr>,

    /// What clients must show as a bearer token. Others on this host see it in the list of
    /// processes: prefer --token-file
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MOTU_MCP_TOKEN",
        hide_env_values = true,
        requires = "http",
        help_heading = "HTTP"
    )]
    token: Option<String>,

    /// Read the token from a file
    #[arg(
        long,
        value_name = "FILE",
        requires = "http",
        conflicts_with = "token",
        help_heading = "HTTP"
    )]
    token_file: Option<PathBuf>,

    /// A name clients reach it by; may be given several times
    #[arg(
        long = "allowed-host",
        value_name = "NAME",
        requires = "http",
        help_heading = "HTTP"
    )]
    allowed_hosts: Vec<String>,

    /// Let web pages of this origin be clients, such as http://localhost:6274, or http://localhost:*
    /// for any port; may be given several times
    #[arg(
        long = "allowed-origin",
        value_name = "ORIGIN",
        requires = "http",
        value_parser = word::<Origin>,
        help_heading = "HTTP"
    )]
    allowed_origins: Vec<Origin>,
}

/// The directory this was started in, if that is a project: clients that are started from a desktop
/// start their servers in `/` or in the home, where keys and settings are.
fn project(context: &Context) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?.canonicalize().ok()?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let kept = [home, Some(context.place.path().to_path_buf())];
    let mut kept = kept.into_iter().flatten();
    let holds = |kept: PathBuf| kept.canonicalize().unwrap_or(kept).starts_with(&here);
    let is_top = here.parent().is_none();
    (!is_top && !kept.any(holds)).then_some(here)
}

impl Args {
    fn options(&self, context: &Context) -> Result<Options> {
        let about_terminals =
            self.sandbox.is_some() || self.host || self.explicit_sessions || self.share_sessions;
        if about_terminals && !self.profile.has_terminals() {
            return Err(Error::invalid(
                "--sandbox, --host, --explicit-sessions and --share-sessions are about terminal sessions",
            )
            .hint("add --profile terminal or --profile all"));
        }
        let socket = context.place.socket();
        Ok(Options {
            profile: self.profile,
            approvals: self.approvals,
            place: match (&self.sandbox, self.host) {
                (Some(id), _) => SessionPlace::In(id.clone()),
                (None, true) => SessionPlace::Host,
                (None, false) => SessionPlace::Usual,
            },
            text: self.text,
            policy: self.policy.clone(),
            explicit_sessions: self.explicit_sessions,
            leave: self.leave(context)?,
            scope: None,
            awake: Arc::new(move || UnixStream::connect(&socket).is_ok()),
        })
    }

    /// The word in the names of its sessions; none if they are everybody's. The clients of one HTTP
    /// server cannot be distinguished; they share its session names.
    fn word(&self, context: &Context, place: &SessionPlace) -> Option<Word> {
        if self.share_sessions {
            return None;
        }
        if !self.profile.has_terminals() {
            return Some(Word::alone());
        }
        let address = self.http.map(|address| address.to_string());
        let here = || std::env::current_dir().map(|here| here.display().to_string());
        let from = address.map_or_else(here, Ok).unwrap_or_default();
        // A session that was opened on the host is never taken for one in a machine.
        let word = Word::of(&context.place, &format!("{place:?} {from}"));
        Some(word.unwrap_or_else(|error| {
            show::note(&format!(
                "a later server will not find the sessions of this one by their names: {error}\n"
            ));
            Word::alone()
        }))
    }

    /// What its arguments allow a model, and nothing that a model says adds to it.
    fn leave(&self, context: &Context) -> Result<Leave> {
        let named = match self.host_dirs.is_empty() {
            true => project(context).into_iter().collect(),
            false => self.host_dirs.clone(),
        };
        let whole = |path: PathBuf| {
            let shown = path.display().to_string();
            let found = path
                .canonicalize()
                .map_err(|error| Error::with_file(format!("--host-dir {shown}"), &error))?;
            found
                .into_os_string()
                .into_string()
                .map_err(|_| Error::invalid(format!("--host-dir {shown} is not UTF-8")))
        };
        Ok(Leave {
            // Who has a shell on the host has it without isolation anyway.
            unwalled: self.allow_host_compat || self.host,
            directories: named.into_iter().map(whole).collect::<Result<_>>()?,
            for_others: false,
        })
    }

    /// The token that was given, if one was.
    fn token(&self) -> Result<Option<String>> {
        match &self.token_file {
            Some(path) => read_token(path).map(Some),
            None => Ok(self.token.clone()),
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        crate::ending::bound(crate::ending::LEAVE);
        let mut options = self.options(context)?;
        // Held until this server ends.
        let word = self.word(context, &options.place);
        options.scope = word.as_ref().map(|word| word.text.clone());
        let client = context.client().held_to(&options.leave)?;
        let server = Server::new(Arc::new(client), options);
        match self.http {
            None => server.serve_stdio().await?,
            Some(address) => {
                let given = self.token()?;
                let made = given.is_none();
                let token = given.unwrap_or_else(Http::made_token);
                let http = Http {
                    address,
                    token: token.clone(),
                    hosts: self.allowed_hosts,
                    origins: self.allowed_origins,
                };
                let listening = |address| {
                    show::note(&format!("serving MCP at http://{address}/mcp\n"));
                    if made {
                        show::note(&format!(
                            "clients must send this token, which is not shown again\n\
                             Authorization: Bearer {token}\n"
                        ));
                    }
                };
                server.serve_http(http, asked_to_leave(), listening).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
