//! The arguments, and which command they mean.

use crate::commands;
use crate::context::Context;
use crate::failure::{Reader, exit_code, tell};
use crate::home::Place;
use crate::{remote, show};
use clap::error::{ContextKind, ContextValue, ErrorKind as Usage};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use motu_core::{Error, ErrorKind, Result};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

/// An isolated machine for every AI agent
///
/// A sandbox is made in milliseconds from a named environment, has limits on
/// everything it uses, no network and nothing of yours, and is thrown away when
/// its command ends, or kept until you are done with it.
#[derive(Debug, Parser)]
#[command(
    name = "motu",
    version,
    max_term_width = 100,
    after_help = "Examples:
  motu demo                                 See what it does
  motu run debian:12 -- python3 -c 'print(1 + 1)'
                                            One command in a machine of its own
  motu create debian:12                     A machine that stays
  motu exec sb-3f9k2m7qx0ab -- make test    A command in it
  motu workspace create debian:12 --seed-path .
                                            One that is kept, with your files in it
  motu terminal attach build --watch        See what an agent does in its terminal

Exit codes of commands are passed on; those of motu itself begin at 100 (docs/exit-codes.md)."
)]
pub struct Cli {
    #[command(flatten)]
    everywhere: Everywhere,

    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
struct Everywhere {
    /// The state directory [default: /var/lib/motu as root, else ~/.local/state/motu]
    #[arg(
        long,
        global = true,
        env = "MOTU_HOME",
        hide_env_values = true,
        value_name = "DIR"
    )]
    home: Option<PathBuf>,

    /// The daemon of another host, such as https://sandboxes.example.org:7750; its key is in MOTU_KEY
    #[arg(
        long,
        global = true,
        env = "MOTU_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(commands::run::Args),
    Create(commands::create::Args),
    Exec(commands::exec::Args),
    Logs(commands::process::LogsArgs),
    Attach(commands::process::AttachArgs),
    Wait(commands::process::WaitArgs),
    Kill(commands::process::KillArgs),
    Top(commands::process::TopArgs),
    Stats(commands::stats::Args),
    Ps(commands::ps::Args),
    Rm(commands::rm::Args),
    Pause(commands::pause::Args),
    Resume(commands::pause::ResumeArgs),
    Stop(commands::stop::Args),
    Start(commands::stop::StartArgs),
    Fork(commands::fork::Args),
    Commit(commands::commit::Args),
    Cp(commands::cp::Args),
    Call(commands::call::Args),
    Policy(commands::policy::Args),
    Secret(commands::secret::Args),
    Key(commands::key::Args),
    Workspace(commands::workspace::Args),
    Terminal(commands::terminal::Args),
    Mcp(commands::mcp::Args),
    Env(commands::env::Args),
    Template(commands::template::Args),
    Audit(commands::audit::Args),
    Events(commands::events::Args),
    Doctor(commands::doctor::Args),
    Backup(commands::backup::Args),
    Restore(commands::backup::RestoreArgs),
    Recover(commands::recover::Args),
    Demo(commands::demo::Args),
    Serve(commands::serve::Args),
    Completions(commands::completions::Args),
    #[command(name = "__complete")]
    Complete(commands::completions::CompleteArgs),
    Man(commands::man::Args),
    Version(commands::version::Args),
}

/// Says where the command goes to whoever has left the dashes out: `motu run debian:12 uname`.
fn with_tip(mut mistake: clap::Error) -> clap::Error {
    let word = mistake.get(ContextKind::InvalidArg);
    let usage = mistake.get(ContextKind::Usage).map(ToString::to_string);
    let command = matches!(word, Some(ContextValue::String(word)) if !word.starts_with('-'));
    if mistake.kind() == Usage::UnknownArgument
        && command
        && usage.is_some_and(|usage| usage.contains("-- <COMMAND>"))
    {
        let tip = "put `--` before the command and its arguments".into();
        mistake.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    mistake
}

/// A mistake in the arguments, whole: clap writes it for people, over several lines.
fn misused(text: &str) -> Error {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let said = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let (tips, said): (Vec<&str>, Vec<&str>) = said
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .partition(|line| line.starts_with("tip: "));
    let tip = tips.first().and_then(|tip| tip.strip_prefix("tip: "));
    let error = Error::invalid(said.join(" "));
    match tip {
        Some(tip) => error.hint(tip),
        None => error,
    }
}

/// Gives a command its arguments.
type Grammar = fn(clap::Command) -> clap::Command;

/// Commands that are called often, with what builds their grammar. The grammar of all commands takes
/// longer to build than most of these take to run.
const OFTEN: [(&str, Grammar); 14] = [
    ("run", commands::run::Args::augment_args),
    ("exec", commands::exec::Args::augment_args),
    ("create", commands::create::Args::augment_args),
    ("ps", commands::ps::Args::augment_args),
    ("rm", commands::rm::Args::augment_args),
    ("cp", commands::cp::Args::augment_args),
    ("fork", commands::fork::Args::augment_args),
    ("pause", commands::pause::Args::augment_args),
    ("resume", commands::pause::ResumeArgs::augment_args),
    ("logs", commands::process::LogsArgs::augment_args),
    ("wait", commands::process::WaitArgs::augment_args),
    ("workspace", commands::workspace::Args::augment_args),
    ("terminal", commands::terminal::Args::augment_args),
    ("serve", commands::serve::Args::augment_args),
];

/// The grammar of one command alone, if it is called often.
fn alone(word: &OsStr) -> Option<clap::Command> {
    let (name, of) = OFTEN.into_iter().find(|(name, _)| word == *name)?;
    let all = Everywhere::augment_args(clap::Command::new("motu"));
    Some(
        all.subcommand_required(true)
            .subcommand(of(clap::Command::new(name))),
    )
}

/// What the arguments mean, if they begin with a command that is called often and have no mistake.
fn quickly(words: &[OsString]) -> Option<Cli> {
    let matches = alone(words.get(1)?)?.try_get_matches_from(words).ok()?;
    Cli::from_arg_matches(&matches).ok()
}

/// Reads the arguments of this process. Help and mistakes are answered here.
pub fn parse() -> std::result::Result<Cli, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(cli) = quickly(&words) {
        return Ok(cli);
    }
    Cli::try_parse_from(words).map_err(|mistake| {
        let mistake = with_tip(mistake);
        match mistake.kind() {
            Usage::DisplayHelp | Usage::DisplayVersion => {
                show::print(&mistake.render().ansi().to_string());
                ExitCode::SUCCESS
            }
            _ if asked_for_json() => {
                let text = unquoted(&mistake, mistake.render().to_string());
                tell(misused(&text), Reader::Program)
            }
            _ => {
                show::note(&unquoted(&mistake, mistake.render().ansi().to_string()));
                exit_code(ErrorKind::Invalid)
            }
        }
    })
}

/// What is said of a mistake, without credentials. The values of secrets are no arguments; one that
/// was given all the same is said to be too much, and not what it is.
fn unquoted(mistake: &clap::Error, text: String) -> String {
    let about_secrets = std::env::args_os().skip(1).any(|word| word == "secret");
    // Colours stand around what is quoted, so it is looked at by itself.
    let text = mistake.context().fold(text, |text, (kind, value)| {
        let ContextValue::String(quoted) = value else {
            return text;
        };
        let given = matches!(kind, ContextKind::InvalidArg | ContextKind::InvalidValue);
        let shown = match about_secrets && given && !quoted.starts_with(['-', '<']) {
            true => "…".to_string(),
            false => motu_core::shown::text(quoted),
        };
        match quoted.is_empty() {
            true => text,
            false => text.replace(quoted.as_str(), &shown),
        }
    });
    motu_core::shown::text(&text)
}

/// Whether `--json` is among our arguments, when they could not be read.
fn asked_for_json() -> bool {
    let mut ours = std::env::args_os().take_while(|argument| argument != "--");
    ours.any(|argument| argument == "--json")
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let reader = Reader::of(self.command.json());
        let outcome = Place::find(self.everywhere.home.as_deref()).and_then(|place| {
            let url = self.everywhere.url.as_deref().filter(|url| !url.is_empty());
            self.command.run(&Context {
                place,
                grammar: Cli::command,
                remote: url.map(remote::client).transpose()?,
            })
        });
        outcome.unwrap_or_else(|error| tell(error, reader))
    }
}

impl Command {
    fn json(&self) -> bool {
        match self {
            Command::Run(args) => args.json,
            Command::Create(args) => args.json,
            Command::Exec(args) => args.json,
            Command::Logs(args) => args.json,
            Command::Wait(args) => args.json,
            Command::Kill(args) => args.json,
            Command::Top(args) => args.json,
            Command::Stats(args) => args.json,
            Command::Ps(args) => args.json,
            Command::Rm(args) => args.json,
            Command::Pause(args) => args.json,
            Command::Resume(args) => args.json,
            Command::Stop(args) => args.json,
            Command::Start(args) => args.json,
            Command::Fork(args) => args.json,
            Command::Commit(args) => args.json,
            Command::Cp(args) => args.json,
            Command::Call(args) => args.json(),
            Command::Policy(args) => args.json(),
            Command::Secret(args) => args.json(),
            Command::Key(args) => args.json(),
            Command::Workspace(args) => args.json,
            Command::Terminal(args) => args.json,
            Command::Env(args) => args.json(),
            Command::Template(args) => args.json(),
            Command::Audit(args) => args.json(),
            Command::Events(args) => args.json(),
            Command::Doctor(args) => args.json,
            Command::Backup(args) => args.json,
            Command::Restore(args) => args.json,
            Command::Recover(args) => args.json,
            Command::Version(args) => args.json,
            Command::Attach(_)
            | Command::Demo(_)
            | Command::Mcp(_)
            | Command::Serve(_)
            | Command::Completions(_)
            | Command::Complete(_)
            | Command::Man(_) => false,
        }
    }

    fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            Command::Serve(args) if args.is_provider() => wait(args.provide(context)),
            Command::Serve(args) => args.run(context),
            Command::Completions(args) => Ok(args.run(context)),
            Command::Complete(args) => wait(args.run(context)),
            Command::Man(args) => args.run(context),
            Command::Run(args) => wait(args.run(context)),
            Command::Create(args) => wait(args.run(context)),
            Command::Exec(args) => wait(args.run(context)),
            Command::Logs(args) => wait(args.run(context)),
            Command::Attach(args) => wait(args.run(context)),
            Command::Wait(args) => wait(args.run(context)),
            Command::Kill(args) => wait(args.run(context)),
            Command::Top(args) => wait(args.run(context)),
            Command::Stats(args) => wait(args.run(context)),
            Command::Ps(args) => wait(args.run(context)),
            Command::Rm(args) => wait(args.run(context)),
            Command::Pause(args) => wait(args.run(context)),
            Command::Resume(args) => wait(args.run(context)),
            Command::Stop(args) => wait(args.run(context)),
            Command::Start(args) => wait(args.run(context)),
            Command::Fork(args) => wait(args.run(context)),
            Command::Commit(args) => wait(args.run(context)),
            Command::Cp(args) => wait(args.run(context)),
            Command::Call(args) => wait(args.run(context)),
            Command::Policy(args) => wait(args.run(context)),
            Command::Secret(args) => wait(args.run(context)),
            Command::Key(args) => wait(args.run(context)),
            Command::Workspace(args) => wait(args.run(context)),
            Command::Terminal(args) => wait(args.run(context)),
            Command::Mcp(args) => wait(args.run(context)),
            Command::Env(args) => wait(args.run(context)),
            Command::Template(args) => wait(args.run(context)),
            Command::Audit(args) => wait(args.run(context)),
            Command::Events(args) => wait(args.run(context)),
            Command::Doctor(args) => wait(args.run(context)),
            Command::Backup(args) => wait(args.run(context)),
            Command::Restore(args) => wait(args.run(context)),
            Command::Recover(args) => wait(args.run(context)),
            Command::Demo(args) => wait(args.run(context)),
            Command::Version(args) => wait(args.run(context)),
        }
    }
}

/// Runs a client's work on this thread: it has one connection and little to do.
fn wait(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("start", &error))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help of a command and of those below it, and every argument, hidden ones too.
    fn grammar(command: &clap::Command) -> Vec<String> {
        let help = command.clone().render_long_help().to_string();
        let arguments = command.get_arguments().map(ToString::to_string);
        let below = command.get_subcommands().flat_map(grammar);
        [help].into_iter().chain(arguments).chain(below).collect()
    }

    #[test]
    fn a_command_alone_means_what_it_means_among_all() {
        let mut all = Cli::command();
        all.build();
        for (name, _) in OFTEN {
            let mut alone = alone(OsStr::new(name)).unwrap();
            alone.build();
            let here = alone.find_subcommand(name).unwrap();
            let there = all.find_subcommand(name).unwrap();
            assert_eq!(grammar(here), grammar(there));
        }
    }

    #[test]
    fn what_is_called_often_is_read_quickly_and_mistakes_are_left_to_the_whole_grammar() {
        let read = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            quickly(&words)
        };
        let cli = read("motu exec --home /h live --json -- true").unwrap();
        assert_eq!(cli.everywhere.home, Some(PathBuf::from("/h")));
        assert!(matches!(&cli.command, Command::Exec(args) if args.json));
        for line in [
            "motu",
            "motu exec",
            "motu ps --jsn",
            "motu run --help",
            "motu nothing",
            "motu man",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_mistake_is_told_whole_to_a_program() {
        let text = "error: the following required arguments were not provided:\n  --path <PATH>\n  <ID>\n\n\
                    Usage: motu x\n\nFor more information, try '--help'.\n";
        let error = misused(text);
        assert_eq!(
            error.message,
            "the following required arguments were not provided: --path <PATH> <ID>"
        );
        let text = "error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\nUsage: motu ps\n";
        let error = misused(text);
        assert_eq!(error.message, "unexpected argument '--jsn' found");
        assert_eq!(
            error.hint.as_deref(),
            Some("a similar argument exists: '--json'")
        );
    }
}
