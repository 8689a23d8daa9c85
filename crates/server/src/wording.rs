//! Hints in the words of HTTP.

use motu_api::address::segment;
use motu_core::Error;
use motu_core::hint::{Field, Verb, Wording, given, named};
use motu_core::verb::Info;
use serde_json::Value;

/// Addresses, with the name of their operation: `` `GET /v1/sandboxes` (list_sandboxes) ``.
#[derive(Clone, Copy, Debug)]
pub struct Routes;

/// An error as it leaves the server.
pub(crate) fn worded(error: Error) -> Error {
    error.worded(&Routes)
}

/// The address of a verb, with those of its parts that are known.
fn address(info: &Info, verb: &Verb) -> String {
    let mut address = info.path.to_string();
    for part in info.parts() {
        if let Some(Value::String(value)) = verb.arguments.get(part) {
            address = address.replace(&format!("{{{part}}}"), &segment(value));
        }
    }
    address
}

impl Wording for Routes {
    fn verb(&self, verb: &Verb) -> String {
        let Some(info) = motu_core::verb::all().find(|info| info.name == verb.verb) else {
            return format!("`{}`", verb.verb);
        };
        let (method, address) = (info.method.as_str(), address(info, verb));
        let fields = verb.arguments.iter();
        let fields = fields.filter(|(name, _)| info.parts().all(|part| part != *name));
        format!("`{method} {address}` ({}){}", verb.verb, given(fields))
    }

    fn field(&self, field: &Field) -> String {
        named(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::hint::verb;

    #[test]
    fn a_verb_is_its_address() {
        let said = |verb: Verb| Routes.verb(&verb);
        assert_eq!(
            said(verb("list_sandboxes")),
            "`GET /v1/sandboxes` (list_sandboxes)"
        );
        let pull = verb("pull_environment").with("name", "docker.io/library/python:3");
        assert_eq!(
            said(pull),
            "`POST /v1/environments/docker.io%2Flibrary%2Fpython%3A3/pull` (pull_environment)"
        );
        let stop = verb("stop_service").with("id", "ws");
        assert_eq!(
            said(stop),
            "`POST /v1/workspaces/ws/services/{name}/stop` (stop_service)"
        );
        let bind = verb("set_secret").with("name", "key");
        assert_eq!(
            said(bind.with("hosts", vec!["api.example.com"])),
            "`PUT /v1/secrets/key` (set_secret) with hosts: [\"api.example.com\"]"
        );
    }
}
