//! Fills a request from a template. Fields that the request sets itself are kept.

use motu_core::sandbox::CreateSandbox;
use motu_core::template::{Template, TemplateDefinition};
use motu_core::workspace::{CreateWorkspace, NetworkPolicy};
use std::collections::BTreeMap;

/// Applies a template to a request.
pub fn from_template(template: &Template, ask: &mut CreateSandbox) {
    sandbox(&template.definition, ask);
    ask.environment = template.start().to_string();
    ask.made_from = Some(template.reference());
    if let Some(saved) = template.asleep() {
        ask.keep = saved.keep;
        // Also where the request leaves the choice to us: nothing else can go on with it.
        ask.runtime.clone_from(&template.definition.runtime);
    }
}

pub fn sandbox(template: &TemplateDefinition, ask: &mut CreateSandbox) {
    ask.size = ask.size.or(template.size);
    ask.ttl_seconds = ask.ttl_seconds.or(template.ttl_seconds);
    word(&mut ask.runtime, template.runtime.as_deref());
    ask.isolation = ask.isolation.or(template.isolation);
    if !ask.network && ask.policy.is_none() {
        ask.policy = template.network().map(String::from);
        ask.allowed_hosts.clone_from(&template.allowed_hosts);
    }
    add(&mut ask.env, &template.env);
    add(&mut ask.secret_refs, &template.secret_refs);
    add(&mut ask.labels, &template.labels);
}

pub fn workspace(template: &TemplateDefinition, ask: &mut CreateWorkspace) {
    ask.size = ask.size.or(template.size);
    ask.ttl_seconds = ask.ttl_seconds.or(template.ttl_seconds);
    word(&mut ask.runtime, template.runtime.as_deref());
    ask.isolation = ask.isolation.or(template.isolation);
    if ask.network_policy == NetworkPolicy::Off && ask.policy.is_none() {
        ask.policy = template.network().map(String::from);
        ask.allowed_hosts.clone_from(&template.allowed_hosts);
        if template.has_network() {
            ask.network_policy = NetworkPolicy::Egress;
        }
    }
    add(&mut ask.env, &template.env);
    add(&mut ask.secret_refs, &template.secret_refs);
    add(&mut ask.labels, &template.labels);
}

fn word(asked: &mut Option<String>, usual: Option<&str>) {
    if asked.is_none() {
        *asked = usual.map(String::from);
    }
}

/// Adds entries whose key is missing.
fn add<T: Clone>(to: &mut BTreeMap<String, T>, from: &BTreeMap<String, T>) {
    for (key, value) in from {
        to.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::{Isolation, Size};

    fn template() -> TemplateDefinition {
        TemplateDefinition {
            environment: "debian:12".to_string(),
            env: [("A", "template"), ("B", "template")]
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .into(),
            labels: [("team".to_string(), "web".to_string())].into(),
            allowed_hosts: vec!["example.com".to_string()],
            size: Size {
                vcpu_count: Some(2),
                mem_mib: Some(256),
                ..Size::default()
            },
            ttl_seconds: Some(60),
            runtime: Some("gvisor".to_string()),
            isolation: Some(Isolation::Gvisor),
            ..TemplateDefinition::default()
        }
    }

    #[test]
    fn what_a_caller_says_wins() {
        let mut ask = CreateSandbox {
            size: Size {
                mem_mib: Some(512),
                ..Size::default()
            },
            env: [("A".to_string(), "caller".to_string())].into(),
            runtime: Some("qemu".to_string()),
            ..CreateSandbox::default()
        };
        sandbox(&template(), &mut ask);
        assert_eq!(
            (ask.size.vcpu_count, ask.size.mem_mib),
            (Some(2), Some(512))
        );
        assert_eq!((&*ask.env["A"], &*ask.env["B"]), ("caller", "template"));
        assert_eq!(ask.policy.as_deref(), Some("public"));
        assert_eq!(ask.allowed_hosts, ["example.com"]);
        assert_eq!(ask.runtime.as_deref(), Some("qemu"));
        assert_eq!(ask.isolation, Some(Isolation::Gvisor));
        assert_eq!(ask.ttl_seconds, Some(60));
    }

    #[test]
    fn a_caller_who_names_a_network_has_that_and_nothing_of_the_template() {
        for (network, policy) in [(true, None), (false, Some("none"))] {
            let mut ask = CreateSandbox {
                network,
                policy: policy.map(String::from),
                ..CreateSandbox::default()
            };
            sandbox(&template(), &mut ask);
            assert_eq!(ask.policy.as_deref(), policy);
            assert!(ask.allowed_hosts.is_empty());
        }
    }

    #[test]
    fn a_workspace_has_the_labels_too() {
        let mut ask = CreateWorkspace {
            labels: [("of".to_string(), "caller".to_string())].into(),
            ..CreateWorkspace::default()
        };
        workspace(&template(), &mut ask);
        assert_eq!(
            (&*ask.labels["team"], &*ask.labels["of"]),
            ("web", "caller")
        );
        assert_eq!(ask.env["A"], "template");
        assert_eq!(ask.allowed_hosts, ["example.com"]);
        assert_eq!((ask.size.mem_mib, ask.ttl_seconds), (Some(256), Some(60)));
    }
}
