//! A program to run, however it is asked for.

use crate::files::decode_base64;
use crate::{Error, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How `command` is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecMode {
    /// The program and its literal arguments; no shell is involved.
    #[default]
    Argv,
    /// The first element is a script for `/bin/sh -c`; the others are quoted and appended to it.
    Shell,
}

/// A program to run: what, where, as whom, with which variables, and how it is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Program {
    pub command: Vec<String>,
    pub mode: ExecMode,
    /// The directory it starts in; default: `/workspace` in a workspace, elsewhere that of the
    /// sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    /// Name or number of the user it runs as; default: that of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Keep standard input open for the caller; otherwise it is empty.
    pub stdin: bool,
    /// What its standard input holds, as text; it ends after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The same as bytes, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_base64: Option<String>,
    /// The whole process tree is killed after this; default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Bytes returned per channel, where the output is collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

impl Program {
    /// What its standard input holds.
    pub fn input(&self) -> Result<Bytes> {
        let input = match (&self.input, &self.input_base64) {
            (None, None) => return Ok(Bytes::new()),
            (Some(text), None) => Bytes::from(text.clone()),
            (None, Some(text)) => decode_base64(text)?,
            (Some(_), Some(_)) => {
                return Err(Error::invalid("input is given twice")
                    .hint("give it as text, or as bytes in base64"));
            }
        };
        match self.stdin {
            false => Ok(input),
            true => Err(Error::invalid(
                "standard input is given with the request and also stays open for the caller",
            )
            .hint("give all of it with the request, or none")),
        }
    }

    /// A program and its literal arguments.
    pub fn argv<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Program {
        Program {
            command: words.into_iter().map(Into::into).collect(),
            ..Program::default()
        }
    }

    /// A script for `/bin/sh -c`.
    pub fn shell(script: impl Into<String>) -> Program {
        Program {
            mode: ExecMode::Shell,
            ..Program::argv([script])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ExecRequest;
    use crate::workspace::WorkspaceExec;
    use serde::de::DeserializeOwned;

    fn check<T: DeserializeOwned + Serialize + From<Program>>(program: impl Fn(T) -> Program) {
        let asked = Program {
            workdir: Some("/src".to_string()),
            env: [("A".to_string(), "b".to_string())].into(),
            timeout_seconds: Some(5),
            ..Program::shell("make")
        };
        let written = serde_json::to_value(T::from(asked.clone())).unwrap();
        assert_eq!(written["command"], serde_json::json!(["make"]));
        assert_eq!(
            (&written["mode"], &written["timeout_seconds"]),
            (&"shell".into(), &5.into())
        );
        assert_eq!(written.get("program"), None);
        assert_eq!(program(serde_json::from_value(written).unwrap()), asked);
        assert_eq!(
            program(serde_json::from_str("{}").unwrap()),
            Program::default()
        );
        for (text, refusal) in [
            (
                r#"{"command": ["a"], "colour": 1}"#,
                "unknown field `colour`",
            ),
            (
                r#"{"program": {"command": ["a"]}}"#,
                "unknown field `program`",
            ),
            (r#"{"command": "a"}"#, "invalid type"),
            (r#"{"mode": "perl"}"#, "unknown variant `perl`"),
        ] {
            let error = serde_json::from_str::<T>(text).err().unwrap().to_string();
            assert!(error.contains(refusal), "{text}: {error}");
        }
    }

    #[test]
    fn requests_have_it_among_their_own_fields() {
        check::<ExecRequest>(|ask| ask.program);
        check::<WorkspaceExec>(|ask| ask.program);
    }
}
