//! What may come next on a line: words that are known here, and names the daemon knows.
//!
//! The arguments themselves say what is wanted: `ID` below `terminal` is a session, `ENVIRONMENT`
//! an environment. A daemon that does not run is not started for it, and one that does not answer
//! is not waited for.

use crate::home::Place;
use clap::{Arg, Command};
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_core::workspace::{NetworkPolicy, Restart, Workspaces};
use motu_core::{Accel, Isolation, Result, Service, Terminals};
use std::time::Duration;

/// How long a person who pressed a key waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is wanted at the end of a line.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    Sandbox,
    Workspace,
    Session,
    Environment,
    Template,
    Runtime,
    /// Of this workspace.
    Snapshot(String),
    Service(String),
    Shell(String),
}

/// The words that may end a line.
pub async fn line(root: &Command, line: &str, place: &Place) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if line.ends_with(char::is_whitespace) || words.is_empty() {
        words.push("");
    }
    let begun = words.last().copied().unwrap_or_default();
    let known = match wanted(root, &words[1.min(words.len() - 1)..]) {
        Wanted::Words(words) => words,
        other => {
            let client = Client::new(SocketAt(place.socket()));
            let asked = tokio::time::timeout(PATIENCE, names(&client, other)).await;
            // Errors are ignored: completion must never print anything else.
            asked.ok().and_then(Result::ok).unwrap_or_default()
        }
    };
    let fitting = known.into_iter().filter(|word| word.starts_with(begun));
    let mut fitting: Vec<String> = fitting
        .filter(|word| !word.contains(|c: char| c.is_control() || c.is_whitespace()))
        .collect();
    fitting.sort();
    fitting.dedup();
    fitting
}

async fn names(client: &Client, wanted: Wanted) -> Result<Vec<String>> {
    Ok(match wanted {
        Wanted::Words(words) => words,
        Wanted::Sandbox => {
            let sandboxes = client.list_sandboxes(Default::default()).await?;
            let ids = sandboxes.into_iter().map(|one| one.sandbox_id.to_string());
            ids.chain(workspaces(client).await?).collect()
        }
        Wanted::Workspace => workspaces(client).await?,
        Wanted::Session => {
            let sessions = client.list_terminals(Default::default()).await?;
            sessions.into_iter().map(|one| one.session_id).collect()
        }
        Wanted::Environment => {
            let all = client.list_environments(Default::default()).await?;
            all.into_iter().map(|one| one.name).collect()
        }
        Wanted::Template => {
            let all = client.list_templates(Default::default()).await?;
            all.into_iter().map(|one| one.name).collect()
        }
        Wanted::Runtime => {
            let all = client.doctor(Default::default()).await?.runtimes;
            let names = all.into_iter().map(|one| one.name);
            names.chain(["auto".to_string()]).collect()
        }
        Wanted::Snapshot(id) => {
            let id = motu_core::SandboxId::parse(&id)?;
            let all = client
                .list_snapshots(&id, Default::default())
                .await?
                .snapshots;
            all.into_iter().map(|one| one.snapshot_name).collect()
        }
        Wanted::Service(id) => {
            let id = motu_core::SandboxId::parse(&id)?;
            let all = client.list_services(&id).await?;
            all.into_iter().map(|one| one.service_name).collect()
        }
        Wanted::Shell(id) => {
            let id = motu_core::SandboxId::parse(&id)?;
            let all = client.list_shells(&id).await?;
            all.into_iter().map(|one| one.shell_id).collect()
        }
    })
}

/// Ids of workspaces, and their names.
async fn workspaces(client: &Client) -> Result<Vec<String>> {
    let all = client
        .list_workspaces(Default::default())
        .await?
        .into_iter();
    Ok(all
        .flat_map(|one| std::iter::once(one.workspace_id.to_string()).chain(one.name))
        .collect())
}

/// What the last word of a line may be; the words before it are as they are.
fn wanted(root: &Command, words: &[&str]) -> Wanted {
    let Some((begun, before)) = words.split_last() else {
        return Wanted::Words(Vec::new());
    };
    let mut at = Walk {
        command: root,
        path: Vec::new(),
        given: Vec::new(),
        option: None,
    };
    for word in before {
        if *word == "--" {
            return Wanted::Words(Vec::new());
        }
        at.pass(word);
    }
    if let Some(option) = at.option {
        return at.value(option);
    }
    if begun.starts_with('-') {
        let shown = at.command.get_arguments().filter(|arg| !arg.is_hide_set());
        let flags = shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
        return Wanted::Words(flags.collect());
    }
    let inner = at.command.get_subcommands();
    let inner: Vec<String> = inner
        .filter(|inner| !inner.is_hide_set())
        .map(|inner| inner.get_name().to_string())
        .collect();
    if !inner.is_empty() {
        return Wanted::Words(inner);
    }
    let mut positionals = at.command.get_positionals();
    match positionals.nth(at.given.len()) {
        Some(arg) if !arg.is_last_set() => at.value(arg),
        Some(_) => Wanted::Words(vec!["--".to_string()]),
        // The last positional may take several values.
        None => match at.command.get_positionals().last() {
            Some(arg) if takes_several(arg) => at.value(arg),
            _ => Wanted::Words(Vec::new()),
        },
    }
}

fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::Append) && !arg.is_last_set()
}

/// Where on a line we are.
struct Walk<'a> {
    command: &'a Command,
    path: Vec<&'a str>,
    /// The positional arguments so far.
    given: Vec<String>,
    /// The option whose value comes next.
    option: Option<&'a Arg>,
}

impl<'a> Walk<'a> {
    fn pass(&mut self, word: &str) {
        if self.option.take().is_some() {
            return;
        }
        if let Some(name) = word.strip_prefix("--") {
            let mut all = self.command.get_arguments();
            let found = all.find(|arg| arg.get_long() == Some(name));
            self.option = found.filter(|arg| arg.get_action().takes_values());
            return;
        }
        if let Some(letters) = word.strip_prefix('-') {
            let mut all = self.command.get_arguments();
            let found = all.find(|arg| arg.get_short() == letters.chars().last());
            self.option = found.filter(|arg| arg.get_action().takes_values());
            return;
        }
        match self.command.find_subcommand(word) {
            Some(inner) if self.given.is_empty() => {
                self.command = inner;
                self.path.push(inner.get_name());
            }
            _ => self.given.push(word.to_string()),
        }
    }

    /// What a value of an argument is.
    fn value(&self, arg: &Arg) -> Wanted {
        let possible = arg.get_possible_values();
        if !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            return Wanted::Words(shown.map(|value| value.get_name().to_string()).collect());
        }
        let words = |words: &[&str]| Wanted::Words(words.iter().map(ToString::to_string).collect());
        let value = arg.get_value_names().and_then(|names| names.first());
        let value = value.map(|name| name.as_str()).unwrap_or_default();
        let of = || self.given.first().cloned().unwrap_or_default();
        match (self.path.first().copied(), arg.get_long(), value) {
            (_, Some("runtime"), _) => Wanted::Runtime,
            (_, Some("isolation"), _) => words(&Isolation::ALL.map(Isolation::as_str)),
            (_, Some("accel"), _) => words(&Accel::NAMES),
            (_, Some("network-policy"), _) => words(&NetworkPolicy::NAMES),
            (_, Some("restart"), _) => words(&Restart::NAMES),
            (_, Some("snapshot"), _) => Wanted::Snapshot(of()),
            (_, Some("template"), _) | (Some("template"), None, "NAME") => Wanted::Template,
            // A new id cannot be completed.
            (_, Some("id"), _) => words(&[]),
            (Some("terminal"), None, "ID" | "FILE|ID") => Wanted::Session,
            (Some("workspace"), None, "ID") => Wanted::Workspace,
            (Some("workspace"), None, "SERVICE") => Wanted::Service(of()),
            (Some("workspace"), None, "SHELL") => Wanted::Shell(of()),
            (Some("workspace"), None, "NAME" | "FROM" | "TO")
                if self.path.get(1) == Some(&"snapshot") =>
            {
                Wanted::Snapshot(of())
            }
            (_, _, "ID") => Wanted::Sandbox,
            (_, _, "ENVIRONMENT") => Wanted::Environment,
            (Some("env"), None, "NAME") => Wanted::Environment,
            _ => words(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &'static str) -> Command {
        Command::new(name)
    }

    /// A command with arguments of every kind.
    fn root() -> Command {
        let id = || Arg::new("id").value_name("ID");
        let mut root = named("motu")
            .subcommand(
                named("exec").arg(id()).arg(
                    Arg::new("command")
                        .value_name("COMMAND")
                        .num_args(1..)
                        .last(true),
                ),
            )
            .subcommand(named("rm").arg(id().num_args(1..).action(clap::ArgAction::Append)))
            .subcommand(
                named("run")
                    .arg(Arg::new("environment").value_name("ENVIRONMENT"))
                    .arg(Arg::new("mem").long("mem-mib").value_name("MIB"))
                    .arg(Arg::new("runtime").long("runtime").value_name("NAME")),
            )
            .subcommand(
                named("workspace")
                    .subcommand(
                        named("reset")
                            .arg(id())
                            .arg(Arg::new("snapshot").long("snapshot").value_name("NAME")),
                    )
                    .subcommand(named("hidden").hide(true)),
            )
            .subcommand(named("terminal").subcommand(named("attach").arg(id())));
        root.build();
        root
    }

    fn at(line: &str) -> Wanted {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if line.ends_with(' ') {
            words.push("");
        }
        wanted(&root(), &words)
    }

    #[test]
    fn the_arguments_say_what_is_wanted() {
        assert_eq!(at("exec "), Wanted::Sandbox);
        assert_eq!(at("rm a b "), Wanted::Sandbox);
        assert_eq!(at("run "), Wanted::Environment);
        assert_eq!(at("run --mem-mib 64 deb"), Wanted::Environment);
        assert_eq!(at("run debian:12 --runtime "), Wanted::Runtime);
        assert_eq!(at("workspace reset "), Wanted::Workspace);
        let of = Wanted::Snapshot("ws-a".to_string());
        assert_eq!(at("workspace reset ws-a --snapshot "), of);
        assert_eq!(at("terminal attach "), Wanted::Session);
        assert_eq!(at("exec a -- "), Wanted::Words(vec![]));
        assert_eq!(at("exec a "), Wanted::Words(vec!["--".to_string()]));
        let words = |words: &[&str]| Wanted::Words(words.iter().map(ToString::to_string).collect());
        assert_eq!(at("run --m"), words(&["--mem-mib", "--runtime", "--help"]));
        assert_eq!(at("workspace "), words(&["reset", "help"]));
    }
}
