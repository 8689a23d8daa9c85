//! Parses logical lines into stages and steps.

use crate::{
    Command, Copy, Heredoc, Instruction, ParseError, Run, Stage, Step, StepNetwork, flags,
    lines::{self, Logical, Mark},
    words,
};

/// Limits of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub file_bytes: usize,
    /// Of one instruction with its continuations, or of one here-document.
    pub line_bytes: usize,
    pub instructions: usize,
}

/// A parsed Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The escape character.
    pub escape: char,
    /// `ARG` before the first `FROM`.
    pub global: Vec<Step>,
    pub stages: Vec<Stage>,
}

/// The maximum length of a step's text in messages.
const SHOWN: usize = 200;

/// Parses a Dockerfile.
pub fn parse(text: &str, bounds: &Bounds) -> Result<Dockerfile, ParseError> {
    let split = lines::split(text, bounds)?;
    let mut file = Dockerfile {
        escape: split.escape,
        global: Vec::new(),
        stages: Vec::new(),
    };
    for logical in split.lines {
        let (keyword, rest) = keyword(&logical.text);
        if keyword == "FROM" {
            let stage = from(&logical, rest)?;
            if let Some(name) = &stage.name
                && file
                    .stages
                    .iter()
                    .any(|other| other.name.as_ref() == Some(name))
            {
                let message = format!("there are two stages called {name}");
                return Err(ParseError::new(logical.line, message));
            }
            file.stages.push(stage);
            continue;
        }
        let step = step(&logical, split.escape)?;
        match (file.stages.last_mut(), &step.instruction) {
            (Some(stage), _) => stage.steps.push(step),
            (None, Instruction::Arg(_)) => file.global.push(step),
            (None, _) => {
                let message = format!("{keyword} comes before FROM");
                return Err(ParseError::new(logical.line, message)
                    .hint("a Dockerfile begins with FROM; only ARG may come before"));
            }
        }
    }
    match file.stages.is_empty() {
        true => Err(ParseError::new(0, "there is no FROM")),
        false => Ok(file),
    }
}

/// Parses an `ONBUILD` instruction of a base image.
pub fn parse_trigger(text: &str, line: usize, bounds: &Bounds) -> Result<Step, ParseError> {
    let mut split = lines::split(text, bounds)?;
    let (Some(logical), true) = (split.lines.pop(), split.lines.is_empty()) else {
        return Err(ParseError::new(line, "ONBUILD is not one instruction"));
    };
    let mut step = step(&Logical { line, ..logical }, split.escape)?;
    step.text = format!("ONBUILD {}", step.text);
    match step.instruction {
        Instruction::Onbuild(_) => Err(ParseError::new(line, "ONBUILD cannot be nested")),
        _ => Ok(step),
    }
}

fn keyword(text: &str) -> (String, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (keyword, rest) = text.split_at(end);
    (keyword.to_ascii_uppercase(), rest.trim())
}

fn from(logical: &Logical, rest: &str) -> Result<Stage, ParseError> {
    let line = logical.line;
    let mut platform = None;
    let (flags, rest) = flags::split(rest);
    for (key, value) in flags {
        match key.as_str() {
            "platform" => platform = Some(value),
            other => return Err(flags::refused(line, "FROM", other)),
        }
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (image, name) = match words.as_slice() {
        [image] => (image, None),
        [image, word, name] if word.eq_ignore_ascii_case("as") => {
            (image, Some(name.to_ascii_lowercase()))
        }
        _ => {
            return Err(
                ParseError::new(line, "FROM is not understood").hint("FROM environment [AS name]")
            );
        }
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(name) = &name
        && !(name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain))
    {
        return Err(ParseError::new(
            line,
            format!("{name:?} cannot be the name of a stage"),
        ));
    }
    Ok(Stage {
        line,
        from: (*image).to_owned(),
        platform,
        name,
        steps: Vec::new(),
    })
}

fn step(logical: &Logical, escape: char) -> Result<Step, ParseError> {
    let line = logical.line;
    let (keyword, rest) = keyword(&logical.text);
    if rest.is_empty() {
        return Err(ParseError::new(line, format!("{keyword} says nothing")));
    }
    let shown: String = logical
        .text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    Ok(Step {
        line,
        text: shown.chars().take(SHOWN).collect(),
        instruction: instruction(logical, &keyword, rest, escape)?,
    })
}

fn instruction(
    logical: &Logical,
    keyword: &str,
    rest: &str,
    escape: char,
) -> Result<Instruction, ParseError> {
    let line = logical.line;
    Ok(match keyword {
        "ARG" => Instruction::Arg(arguments(line, rest, escape)?),
        "ENV" => Instruction::Env(words::pairs(line, keyword, rest, escape)?),
        "LABEL" => Instruction::Label(words::pairs(line, keyword, rest, escape)?),
        "RUN" => Instruction::Run(run(line, rest, &logical.heredocs)?),
        "COPY" | "ADD" => Instruction::Copy(copy(line, keyword, rest, escape, &logical.heredocs)?),
        "WORKDIR" => Instruction::Workdir(rest.to_owned()),
        "USER" => Instruction::User(rest.to_owned()),
        "ENTRYPOINT" => Instruction::Entrypoint(command(rest)),
        "CMD" => Instruction::Cmd(command(rest)),
        "SHELL" => match words::json(rest) {
            Some(words) if !words.is_empty() => Instruction::Shell(words),
            _ => {
                return Err(ParseError::new(line, "SHELL is a JSON array")
                    .hint("SHELL [\"/bin/bash\", \"-c\"]"));
            }
        },
        "EXPOSE" => Instruction::Expose(words::raw(rest, escape)),
        "STOPSIGNAL" => Instruction::StopSignal(rest.to_owned()),
        "VOLUME" => Instruction::Volume(words::json(rest).unwrap_or(words::raw(rest, escape))),
        "HEALTHCHECK" => Instruction::Healthcheck(healthcheck(line, rest)?),
        "ONBUILD" => Instruction::Onbuild(onbuild(line, rest)?),
        "MAINTAINER" => Instruction::Maintainer(rest.to_owned()),
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(ParseError::new(
                line,
                format!("{shown} is not an instruction"),
            ));
        }
    })
}

fn command(text: &str) -> Command {
    match words::json(text) {
        Some(words) => Command::Exec(words),
        None => Command::Shell(text.to_owned()),
    }
}

fn arguments(
    line: usize,
    text: &str,
    escape: char,
) -> Result<Vec<(String, Option<String>)>, ParseError> {
    let mut all = Vec::new();
    for word in words::raw(text, escape) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(ParseError::new(
                line,
                format!("{name:?} cannot be an argument"),
            ));
        }
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

fn run(line: usize, rest: &str, heredocs: &[Heredoc]) -> Result<Run, ParseError> {
    let mut mounts = Vec::new();
    let mut network = StepNetwork::Policy;
    let (flags, rest) = flags::split(rest);
    for (key, value) in flags {
        match key.as_str() {
            "mount" => mounts.push(flags::mount(line, &value)?),
            "network" => network = flags::network(line, &value)?,
            other => return Err(flags::refused(line, "RUN", other)),
        }
    }
    let command = command(rest);
    let is_empty = match &command {
        Command::Shell(text) => text.is_empty(),
        Command::Exec(words) => words.is_empty(),
    };
    if is_empty {
        return Err(ParseError::new(line, "RUN says nothing"));
    }
    Ok(Run {
        command,
        mounts,
        network,
        heredocs: heredocs.to_vec(),
    })
}

fn copy(
    line: usize,
    keyword: &str,
    rest: &str,
    escape: char,
    heredocs: &[Heredoc],
) -> Result<Copy, ParseError> {
    let (mut from, mut chown, mut chmod) = (None, None, None);
    let (flags, rest) = flags::split(rest);
    for (key, value) in flags {
        match (key.as_str(), keyword) {
            ("from", "COPY") => from = Some(value),
            ("chown", _) => chown = Some(value),
            ("chmod", _) => chmod = Some(value),
            // `--link` needs nothing here: layers are independent of each other anyway.
            ("link", _) => {}
            (other, _) => return Err(flags::refused(line, keyword, other)),
        }
    }
    let mut sources = words::json(rest).unwrap_or_else(|| words::raw(rest, escape));
    let destination = match sources.len() {
        0 | 1 => {
            return Err(ParseError::new(
                line,
                format!("{keyword} needs a source and a destination"),
            ));
        }
        _ => sources.pop().unwrap_or_default(),
    };
    sources.retain(|source| Mark::parse(source).is_none());
    if let Some(remote) = sources.iter().find(|source| is_remote(source)) {
        return Err(
            ParseError::new(line, format!("{keyword} does not fetch {remote}"))
                .hint("fetch it in a RUN step, under a policy that allows the host"),
        );
    }
    Ok(Copy {
        add: keyword == "ADD",
        from,
        chown,
        chmod,
        sources,
        destination,
        heredocs: heredocs.to_vec(),
    })
}

fn is_remote(source: &str) -> bool {
    let source = source.trim_matches(['"', '\'']).to_ascii_lowercase();
    ["http://", "https://", "ftp://", "git://", "ssh://", "git@"]
        .iter()
        .any(|prefix| source.starts_with(prefix))
}

fn onbuild(line: usize, rest: &str) -> Result<String, ParseError> {
    let (keyword, _) = keyword(rest);
    match keyword.as_str() {
        "ONBUILD" | "FROM" | "MAINTAINER" => Err(ParseError::new(
            line,
            format!("ONBUILD {keyword} is not allowed"),
        )),
        _ => Ok(rest.to_owned()),
    }
}

fn healthcheck(line: usize, rest: &str) -> Result<serde_json::Value, ParseError> {
    let (flags, rest) = flags::split(rest);
    let mut check = serde_json::Map::new();
    for (key, value) in flags {
        let (name, value) = match key.as_str() {
            "interval" => ("Interval", nanoseconds(line, &value)?),
            "timeout" => ("Timeout", nanoseconds(line, &value)?),
            "start-period" => ("StartPeriod", nanoseconds(line, &value)?),
            "start-interval" => ("StartInterval", nanoseconds(line, &value)?),
            "retries" => match value.parse::<u32>() {
                Ok(count) => ("Retries", u64::from(count)),
                Err(_) => return Err(ParseError::new(line, "retries is a number")),
            },
            other => return Err(flags::refused(line, "HEALTHCHECK", other)),
        };
        check.insert(name.to_owned(), value.into());
    }
    let (keyword, rest) = keyword(rest);
    let test: Vec<String> = match (keyword.as_str(), command(rest)) {
        ("NONE", _) if rest.is_empty() => vec!["NONE".to_owned()],
        ("CMD", Command::Exec(words)) => {
            let mut test = vec!["CMD".to_owned()];
            test.extend(words);
            test
        }
        ("CMD", Command::Shell(text)) if !text.is_empty() => vec!["CMD-SHELL".to_owned(), text],
        _ => {
            return Err(ParseError::new(line, "HEALTHCHECK is not understood")
                .hint("HEALTHCHECK CMD command, or HEALTHCHECK NONE"));
        }
    };
    check.insert("Test".to_owned(), test.into());
    Ok(check.into())
}

/// Parses a duration such as `1m30s`.
fn nanoseconds(line: usize, text: &str) -> Result<u64, ParseError> {
    let wrong = || {
        ParseError::new(line, format!("{text:?} is not a duration")).hint("such as 30s or 1m30s")
    };
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let end = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(factor).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    match text {
        "" => Err(wrong()),
        _ => Ok(total),
    }
}
