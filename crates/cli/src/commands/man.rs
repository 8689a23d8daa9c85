//! `motu man`: manual pages, made from the arguments themselves.

use crate::context::Context;
use crate::show;
use clap::{Arg, Command};
use motu_core::{Error, Result};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the manual page of motu or of one of its commands, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu man workspace exec | man -l -
  motu man --dir /usr/local/share/man/man1")]
pub struct Args {
    /// The command, such as `workspace exec`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let mut root = (context.grammar)().term_width(100);
        root.build();
        if let Some(dir) = &self.dir {
            for (name, page) in all(&root, "motu") {
                let path = dir.join(format!("{name}.1"));
                std::fs::write(&path, page).map_err(|error| {
                    Error::with_file(format!("write {}", path.display()), &error)
                })?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let (mut command, mut name) = (&root, "motu".to_string());
        for word in &self.command {
            command = command.find_subcommand(word).ok_or_else(|| {
                Error::not_found(format!("{name} has no command {word:?}"))
                    .hint(format!("`{name} --help` lists them"))
            })?;
            name = format!("{name} {}", command.get_name());
        }
        show::exact(&page(command, &name));
        Ok(ExitCode::SUCCESS)
    }
}

/// Every page below a command, by its file's name.
fn all(command: &Command, name: &str) -> Vec<(String, String)> {
    let mut pages = vec![(name.replace(' ', "-"), page(command, name))];
    for inner in visible(command) {
        pages.extend(all(inner, &format!("{name} {}", inner.get_name())));
    }
    pages
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let inner = command.get_subcommands();
    inner.filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn page(command: &Command, name: &str) -> String {
    let title = name.replace(' ', "-");
    let about = command.get_about().map(ToString::to_string);
    let mut text = format!(
        ".TH {} 1 \"\" \"motu {}\"\n.SH NAME\n{} \\- {}\n",
        escaped(&title.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escaped(&title),
        escaped(&about.clone().unwrap_or_default()),
    );
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let _ = write!(text, ".SH SYNOPSIS\n.nf\n{}\n.fi\n", lines(usage));
    let long = command.get_long_about().map(ToString::to_string);
    if let Some(long) = long.filter(|long| Some(long) != about.as_ref()) {
        let _ = write!(text, ".SH DESCRIPTION\n{}\n", paragraphs(&long));
    }
    section(&mut text, "ARGUMENTS", command.get_positionals());
    section(&mut text, "OPTIONS", command.get_opts_and_flags());
    let mut inner = visible(command).peekable();
    if inner.peek().is_some() {
        text.push_str(".SH COMMANDS\n");
    }
    for inner in inner {
        let about = inner.get_about().map(ToString::to_string);
        let page = format!("{title}-{}", inner.get_name());
        let about = escaped(&about.unwrap_or_default());
        let _ = write!(text, ".TP\n.BR {} (1)\n{about}\n", escaped(&page));
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(
            text,
            ".SH EXAMPLES AND NOTES\n.nf\n{}\n.fi\n",
            lines(&after.to_string())
        );
    }
    text
}

trait Listed {
    fn get_opts_and_flags(&self) -> Vec<&Arg>;
}

impl Listed for Command {
    fn get_opts_and_flags(&self) -> Vec<&Arg> {
        let all = self.get_arguments();
        all.filter(|arg| !arg.is_positional()).collect()
    }
}

fn section<'a>(text: &mut String, heading: &str, args: impl IntoIterator<Item = &'a Arg>) {
    let mut args = args.into_iter().filter(|arg| !arg.is_hide_set()).peekable();
    if args.peek().is_some() {
        let _ = writeln!(text, ".SH {heading}");
    }
    for arg in args {
        let help = arg.get_long_help().or(arg.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            text,
            ".TP\n\\fB{}\\fR\n{}\n",
            escaped(&spelled(arg)),
            paragraphs(&help)
        );
    }
}

/// An argument as it is written: `-n, --count <N>`, `<ID>`.
fn spelled(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let values = match arg.get_action().takes_values() {
        true => arg.get_value_names().unwrap_or_default(),
        false => &[],
    };
    let values: Vec<String> = values.iter().map(|name| format!("<{name}>")).collect();
    [names.join(", "), values.join(" ")]
        .join(" ")
        .trim()
        .to_string()
}

/// Paragraphs of running text.
fn paragraphs(text: &str) -> String {
    let parts: Vec<String> = text.trim().split("\n\n").map(lines).collect();
    parts.join("\n.PP\n")
}

fn lines(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().lines().map(escaped).collect();
    lines.join("\n")
}

/// A line that is text, whatever it begins with.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn text_is_never_taken_for_a_request() {
        assert_eq!(escaped(".TH x-y"), "\\&.TH x\\-y");
        assert_eq!(escaped("a\\b"), "a\\eb");
    }

    #[test]
    fn every_command_has_a_page_that_names_its_arguments() {
        let mut root = crate::cli::Cli::command();
        root.build();
        let pages = all(&root, "motu");
        let (_, exec) = pages
            .iter()
            .find(|(name, _)| name == "motu-workspace-exec")
            .expect("a page");
        assert!(exec.contains("\\-\\-timeout\\-seconds <SECONDS>"), "{exec}");
        assert!(exec.contains(".SH SYNOPSIS"), "{exec}");
        assert!(pages.iter().all(|(_, page)| page.starts_with(".TH ")));
        assert!(!pages.iter().any(|(name, _)| name.contains("__")));
    }
}
