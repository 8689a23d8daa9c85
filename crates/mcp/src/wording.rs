//! Hints in the words of a model's tools.

use crate::profile::Profile;
use crate::tool::Tool;
use motu_core::hint::{Field, Verb, Wording, given, named};
use serde_json::{Map, Value};

/// The tools of a profile, as hints name them: `` `service_stop {"workspace_id":"ws"}` ``.
///
/// What no tool of the profile does is named as the API has it, and a model is told that it is not
/// for it to do.
#[derive(Clone, Copy, Debug)]
pub struct Tools(pub Profile);

impl Tools {
    fn tool(self, verb: &str) -> Option<&'static Tool> {
        let tools = self.0.tools();
        tools.into_iter().find(|tool| tool.verb == verb)
    }

    /// Whether a tool that does this verb, or any if none is named, takes this field.
    fn takes(self, field: &Field) -> bool {
        let mut tools = self.0.tools().into_iter();
        let meant = |tool: &Tool| field.verb.as_deref().is_none_or(|verb| tool.verb == verb);
        tools.any(|tool| {
            let mut fields = self.0.fields(tool).into_iter();
            meant(tool) && fields.any(|known| known.name == field.field)
        })
    }
}

/// The arguments of a verb by the names that its tool has for them: fields mostly have the same, and
/// parts of the address are the tool's first fields.
fn arguments(tool: &Tool, verb: &Verb) -> Map<String, Value> {
    let parts: Vec<&str> = motu_core::verb::all()
        .find(|known| known.name == verb.verb)
        .map(|known| known.parts().collect())
        .unwrap_or_default();
    let named = |name: &str| {
        let same = tool.fields.iter().find(|field| field.name == name);
        let place = parts.iter().position(|part| *part == name);
        same.or_else(|| tool.fields.get(place?))
            .map(|field| field.name)
    };
    let known = verb.arguments.iter();
    known
        .filter_map(|(name, value)| Some((named(name)?.to_string(), value.clone())))
        .collect()
}

impl Wording for Tools {
    fn verb(&self, verb: &Verb) -> String {
        let Some(tool) = self.tool(&verb.verb) else {
            return format!(
                "`{}`{} (for the operator; no tool here does it)",
                verb.verb,
                given(&verb.arguments)
            );
        };
        match arguments(tool, verb) {
            none if none.is_empty() => format!("`{}`", tool.name),
            some => format!("`{} {}`", tool.name, Value::Object(some)),
        }
    }

    fn field(&self, field: &Field) -> String {
        let tool = field.verb.as_deref().and_then(|verb| self.tool(verb));
        let said = named(&Field {
            verb: tool.map(|tool| tool.name.to_string()),
            ..field.clone()
        });
        match self.takes(field) {
            true => said,
            false => format!("{said} (no tool here takes it)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::hint::{field, host, setting, verb};
    use motu_core::{Error, hint};

    #[test]
    fn every_tool_does_a_verb() {
        for tool in Profile::All.tools() {
            let known = motu_core::verb::all().any(|verb| verb.name == tool.verb);
            assert!(known, "{}: there is no verb {}", tool.name, tool.verb);
        }
    }

    #[test]
    fn a_verb_is_a_tool_with_its_own_names() {
        let stop = verb("stop_service").with("id", "ws").with("name", "web");
        assert_eq!(
            Tools(Profile::All).verb(&stop),
            r#"`service_stop {"service_name":"web","workspace_id":"ws"}`"#
        );
        assert_eq!(
            Tools(Profile::All).verb(&verb("list_workspaces")),
            "`workspace_list`"
        );
    }

    #[test]
    fn what_a_profile_has_no_tool_for_is_not_offered() {
        assert_eq!(
            Tools(Profile::VmRun).verb(&verb("list_workspaces")),
            "`list_workspaces` (for the operator; no tool here does it)"
        );
        let seed = verb("create_workspace").with("seed_path", "/project");
        assert_eq!(
            Tools(Profile::Terminal).verb(&seed),
            "`create_workspace` with seed_path: \"/project\" (for the operator; no tool here does it)"
        );
        let keep = field("keep").is(true).of("create_sandbox");
        assert_eq!(
            Tools(Profile::All).field(&keep),
            "`keep: true` of `vm_create` (no tool here takes it)"
        );
        let policy = field("network_policy").of("create_workspace");
        assert_eq!(
            Tools(Profile::WorkspaceFull).field(&policy),
            "`network_policy` of `workspace_create`"
        );
        // This profile hides the field.
        assert!(
            Tools(Profile::WorkspaceCore)
                .field(&policy)
                .contains("no tool here takes it")
        );
    }

    #[test]
    fn what_is_the_hosts_is_said_to_be() {
        let error = Error::invalid("no").hint(hint![
            field("runtime").is("qemu"),
            ", ",
            host("ulimit -n 1"),
            " or ",
            setting("max_sandboxes"),
        ]);
        let error = error.worded(&Tools(Profile::All));
        assert_eq!(
            error.hint.as_deref(),
            Some(
                "`runtime: \"qemu\"`, `ulimit -n 1` (for the operator, on the host) or max_sandboxes \
                 in the operator's config.toml"
            )
        );
    }
}
