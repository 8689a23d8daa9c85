//! What the network of a step has refused, for the error of a step that failed.
//!
//! A program that cannot reach a host seldom says why: `apt-get` does not find the package. The
//! gateway of the step's machine has written down what it refused.

use super::Builder;
use crate::blocking::blocking;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::{Error, SandboxId};
use motu_dockerfile::StepNetwork;
use serde_json::Value;
use std::io::Read as _;

/// Hosts that an error names.
const NAMED: usize = 10;
/// Bytes of decisions that are read.
const READ: u64 = 4 << 20;
/// Refusals that a step does not fail by: programs ask for these first and then go on without.
const HARMLESS: [&str; 5] = [
    "record_type_not_allowed",
    "ipv6_not_allowed",
    "local_name",
    "invalid_name",
    "malformed",
];

/// What a step's network was.
pub(super) enum Reach {
    /// The step has none, and nobody asked for that: the build names no policy.
    Unnamed,
    /// The step is to have none.
    Closed,
    /// By a policy, which refused these hosts.
    Policy { name: String, refused: Vec<String> },
}

impl Builder<'_> {
    /// What the network of a machine that was a step's has refused.
    pub(super) async fn reach(&self, id: &SandboxId, network: StepNetwork) -> Reach {
        let name = match (&self.ask.policy, network) {
            (_, StepNetwork::None) => return Reach::Closed,
            (None, StepNetwork::Policy) => return Reach::Unnamed,
            (Some(name), StepNetwork::Policy) => name.clone(),
        };
        let path = self.sandboxes.shared.gateways.decisions(id);
        let read = blocking(move || {
            let mut text = String::new();
            if let Some(path) = path {
                let failed = |error| Error::io("the decisions of a step", &error);
                let file = std::fs::File::open(path).map_err(failed)?;
                file.take(READ).read_to_string(&mut text).map_err(failed)?;
            }
            Ok(text)
        });
        // The step's own failure is what is told; this only explains it.
        let text = read.await.unwrap_or_default();
        let refused = hosts(&text);
        Reach::Policy { name, refused }
    }
}

impl Reach {
    /// Adds to the error of a failed step what its network may have to do with it.
    pub(super) fn explain(self, error: Error) -> Error {
        match self {
            Reach::Closed => error,
            Reach::Unnamed => error.hint(hint![
                "its steps have no network; one that needs the network gets it by ",
                field("policy")
            ]),
            Reach::Policy { refused, .. } if refused.is_empty() => error,
            Reach::Policy { name, refused } => {
                let mut details = error.details.clone();
                details["policy"] = name.clone().into();
                details["refused"] = refused.clone().into();
                let hosts = refused.join(", ");
                Error {
                    message: format!("{}; the policy {name} refused it {hosts}", error.message),
                    ..error
                }
                .details(details)
                .hint(hint![
                    "name another ",
                    field("policy"),
                    ", or have these hosts allowed: ",
                    verb("get_policy").with("name", name.as_str()),
                    " says what it allows"
                ])
            }
        }
    }
}

/// The hosts that these decisions refuse, each once, in their order.
fn hosts(text: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let says = |field: &str| line[field].as_str().unwrap_or_default();
        let counts = line["allowed"] == Value::Bool(false) && says("event") != "end";
        if !counts || HARMLESS.contains(&says("reason")) {
            continue;
        }
        let host = match (says("name"), says("address")) {
            ("", address) => address,
            (name, _) => name.trim_end_matches('.'),
        };
        let host = match line["port"].as_u64() {
            Some(port) if says("reason") == "port_not_allowed" => format!("{host}:{port}"),
            _ => host.to_string(),
        };
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
        if hosts.len() == NAMED {
            break;
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_were_refused_are_named_once() {
        let text = concat!(
            r#"{"event":"dns","allowed":true,"reason":"allowed","name":"good.example"}"#,
            "\n",
            r#"{"event":"dns","allowed":false,"reason":"host_not_allowed","name":"deb.example"}"#,
            "\n",
            r#"{"event":"dns","allowed":false,"reason":"host_not_allowed","name":"deb.example"}"#,
            "\n",
            r#"{"event":"dns","allowed":false,"reason":"record_type_not_allowed","name":"x.example"}"#,
            "\n",
            r#"{"event":"connect","allowed":false,"reason":"port_not_allowed","name":"good.example","port":22}"#,
            "\n",
            r#"{"event":"connect","allowed":false,"reason":"metadata_address","address":"169.254.169.254","port":80}"#,
            "\n{half a line",
        );
        let refused = ["deb.example", "good.example:22", "169.254.169.254"];
        assert_eq!(hosts(text), refused);
        let error = Error::invalid("the command ended with exit code 100");
        let error = error.details(serde_json::json!({"exit_code": 100}));
        let told = Reach::Policy {
            name: "ci".into(),
            refused: hosts(text),
        };
        let told = told.explain(error);
        assert!(
            told.message
                .contains("the policy ci refused it deb.example,")
        );
        assert_eq!(told.details["refused"][1], "good.example:22");
        assert_eq!(told.details["exit_code"], 100);
    }
}
