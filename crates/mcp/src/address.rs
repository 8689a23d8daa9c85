//! Addresses of resources: `motu://…`.

use crate::Profile;
use motu_core::terminal::{ScreenFormat, TerminalId};
use motu_core::{Error, Result, SandboxId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A name in a path: everything but the plainest characters is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// What a URI names.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    Output(String),
    Logs(SandboxId),
    Diff(SandboxId),
    ServiceLogs(SandboxId, String),
    Screen(TerminalId, ScreenFormat),
    Transcript(TerminalId),
    Recording(TerminalId),
    Decisions(SandboxId),
}

impl Named {
    /// Whether a profile has it: what its tools can tell, and nothing else.
    pub fn is_of(&self, profile: Profile) -> bool {
        match self {
            // Output of this server's own tools, kept by the server.
            Named::Output(_) => true,
            Named::Logs(_) | Named::Diff(_) => profile.has_workspaces(),
            // Only profiles that can give a workspace a network may read its decisions.
            Named::ServiceLogs(..) | Named::Decisions(_) => profile.has_services(),
            Named::Screen(..) | Named::Transcript(_) | Named::Recording(_) => {
                profile.has_terminals()
            }
        }
    }
}

/// The address of a part of a session.
pub fn terminal(id: &TerminalId, part: &str) -> String {
    let name = utf8_percent_encode(id.as_str(), ESCAPED);
    format!("motu://terminals/{name}/{part}")
}

fn unknown(uri: &str) -> Error {
    let shown: String = uri.chars().take(200).collect();
    Error::not_found(format!("there is no resource {shown}"))
        .hint("resources/templates/list shows what there can be")
}

/// The name and the offset in a URI.
pub fn parse(uri: &str) -> Result<(Named, u64)> {
    let rest = uri.strip_prefix("motu://").ok_or_else(|| unknown(uri))?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut offset = 0;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("offset", number)) => {
                offset = number
                    .parse()
                    .map_err(|_| Error::invalid("offset is not a number"))?;
            }
            _ => return Err(Error::invalid("only offset can be given after the ?")),
        }
    }
    let parts: Vec<String> = path
        .split('/')
        .map(|part| {
            percent_decode_str(part)
                .decode_utf8()
                .map(|text| text.into_owned())
        })
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| unknown(uri))?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let named = match parts[..] {
        ["outputs", handle] => Named::Output(handle.to_string()),
        ["workspaces", id, "logs"] => Named::Logs(SandboxId::parse(id)?),
        ["workspaces", id, "diff"] => Named::Diff(SandboxId::parse(id)?),
        ["workspaces", id, "services", name, "logs"] => {
            Named::ServiceLogs(SandboxId::parse(id)?, name.to_string())
        }
        ["terminals", id, "screen"] => Named::Screen(TerminalId::parse(id)?, ScreenFormat::Text),
        ["terminals", id, "screen.png"] => Named::Screen(TerminalId::parse(id)?, ScreenFormat::Png),
        ["terminals", id, "transcript"] => Named::Transcript(TerminalId::parse(id)?),
        ["terminals", id, "recording"] => Named::Recording(TerminalId::parse(id)?),
        ["sandboxes", id, "decisions"] => Named::Decisions(SandboxId::parse(id)?),
        _ => return Err(unknown(uri)),
    };
    Ok((named, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let id = TerminalId::parse("db shell/1").unwrap();
        let uri = terminal(&id, "screen.png");
        assert_eq!(uri, "motu://terminals/db%20shell%2F1/screen.png");
        assert_eq!(
            parse(&uri).unwrap(),
            (Named::Screen(id, ScreenFormat::Png), 0)
        );
        let (named, offset) = parse("motu://workspaces/ws-1/logs?offset=7").unwrap();
        assert_eq!(named, Named::Logs(SandboxId::parse("ws-1").unwrap()));
        assert_eq!(offset, 7);
        let (named, offset) = parse("motu://sandboxes/sb-1/decisions?offset=9").unwrap();
        assert_eq!(named, Named::Decisions(SandboxId::parse("sb-1").unwrap()));
        assert_eq!(offset, 9);
        for wrong in [
            "file:///etc/passwd",
            "motu://",
            "motu://workspaces/../logs",
            "motu://workspaces/ws-1/logs?offset=x",
            "motu://workspaces/ws-1/logs?other=1",
            "motu://terminals//screen",
            "motu://outputs/a/b",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
