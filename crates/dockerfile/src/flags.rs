//! Flags of instructions, such as `--from=build`.

use crate::{CacheMount, Mount, ParseError, SecretMount, Sharing, StepNetwork};

/// The default directory of secrets.
const SECRETS: &str = "/run/secrets";

/// Splits the flags from the beginning of an instruction.
pub(crate) fn split(text: &str) -> (Vec<(String, String)>, &str) {
    let mut flags = Vec::new();
    let mut rest = text.trim_start();
    while let Some(flag) = rest.strip_prefix("--") {
        let end = flag.find(char::is_whitespace).unwrap_or(flag.len());
        let (word, after) = flag.split_at(end);
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        flags.push((key.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    (flags, rest)
}

/// The error for an unsupported flag.
pub(crate) fn refused(line: usize, keyword: &str, flag: &str) -> ParseError {
    ParseError::new(line, format!("{keyword} --{flag} is not supported"))
}

pub(crate) fn network(line: usize, value: &str) -> Result<StepNetwork, ParseError> {
    match value {
        "default" => Ok(StepNetwork::Policy),
        "none" => Ok(StepNetwork::None),
        other => Err(
            ParseError::new(line, format!("RUN --network={other} is not supported"))
                .hint("a build has the network of its policy, or none"),
        ),
    }
}

/// Parses `type=secret,id=…` and `type=cache,target=…`.
pub(crate) fn mount(line: usize, value: &str) -> Result<Mount, ParseError> {
    let mut options: Vec<(&str, &str)> = Vec::new();
    for option in value.split(',').filter(|option| !option.is_empty()) {
        options.push(option.split_once('=').unwrap_or((option, "")));
    }
    let take = |names: &[&str]| {
        let found = options.iter().find(|(key, _)| names.contains(key));
        found.map(|(_, value)| (*value).to_owned())
    };
    let known: &[&str] = match take(&["type"]).as_deref().unwrap_or("bind") {
        "secret" => &[
            "type",
            "id",
            "target",
            "dst",
            "destination",
            "required",
            "env",
            "mode",
            "uid",
            "gid",
        ],
        "cache" => &[
            "type",
            "id",
            "target",
            "dst",
            "destination",
            "sharing",
            "mode",
            "uid",
            "gid",
        ],
        other => {
            let message = format!("RUN --mount=type={other} is not supported");
            return Err(ParseError::new(line, message)
                .hint("mounts are type=secret and type=cache; COPY brings files"));
        }
    };
    if let Some((key, _)) = options.iter().find(|(key, _)| !known.contains(key)) {
        let message = format!("RUN --mount has no option {key:?} here");
        return Err(ParseError::new(line, message));
    }
    let target = take(&["target", "dst", "destination"]).filter(|target| !target.is_empty());
    let id = take(&["id"]).filter(|id| !id.is_empty());
    if take(&["type"]).as_deref() == Some("cache") {
        let target = target.ok_or_else(|| {
            ParseError::new(line, "RUN --mount=type=cache needs a target").hint("target=/path")
        })?;
        return Ok(Mount::Cache(CacheMount {
            id: id.unwrap_or_else(|| target.clone()),
            target,
            sharing: sharing(line, take(&["sharing"]).as_deref())?,
            mode: permissions(line, take(&["mode"]), 0o755)?,
            uid: number(line, take(&["uid"]), 10, 0)?,
            gid: number(line, take(&["gid"]), 10, 0)?,
        }));
    }
    let env = take(&["env"]).filter(|env| !env.is_empty());
    let id = match (id, &target) {
        (Some(id), _) => id,
        (None, Some(target)) => target.rsplit('/').next().unwrap_or_default().to_owned(),
        (None, None) => return Err(ParseError::new(line, "RUN --mount=type=secret needs an id")),
    };
    if id.is_empty() || id.contains('/') {
        return Err(ParseError::new(
            line,
            format!("{id:?} cannot be the id of a secret"),
        ));
    }
    Ok(Mount::Secret(SecretMount {
        target: match (&target, &env) {
            (Some(target), _) => Some(target.clone()),
            (None, Some(_)) => None,
            (None, None) => Some(format!("{SECRETS}/{id}")),
        },
        id,
        env,
        required: matches!(take(&["required"]).as_deref(), Some("" | "true" | "1")),
        mode: permissions(line, take(&["mode"]), 0o400)?,
        uid: number(line, take(&["uid"]), 10, 0)?,
        gid: number(line, take(&["gid"]), 10, 0)?,
    }))
}

fn sharing(line: usize, word: Option<&str>) -> Result<Sharing, ParseError> {
    match word {
        None | Some("shared") => Ok(Sharing::Shared),
        Some("locked") => Ok(Sharing::Locked),
        Some("private") => Ok(Sharing::Private),
        Some(other) => {
            let message = format!("RUN --mount=type=cache,sharing={other} is not known");
            Err(ParseError::new(line, message).hint("shared, locked or private"))
        }
    }
}

fn permissions(line: usize, text: Option<String>, otherwise: u32) -> Result<u32, ParseError> {
    let mode = number(line, text, 8, otherwise)?;
    match mode <= 0o7777 {
        true => Ok(mode),
        false => Err(ParseError::new(line, format!("{mode:o} is not a mode")).hint("such as 0755")),
    }
}

fn number(
    line: usize,
    text: Option<String>,
    radix: u32,
    otherwise: u32,
) -> Result<u32, ParseError> {
    match text {
        None => Ok(otherwise),
        Some(text) => u32::from_str_radix(&text, radix)
            .map_err(|_| ParseError::new(line, format!("{text:?} is not a number"))),
    }
}
