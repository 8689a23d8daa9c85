//! Validates a template before anything is made of it.

use crate::labels;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::limits::{self, Limit};
use motu_core::template::TemplateDefinition;
use motu_core::{Error, Result};
use sha2::{Digest, Sha256};

/// Checks a template's name, which becomes part of an environment's name.
pub(super) fn name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let starts = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let most = limits::TEMPLATE_NAME_CHARS.max;
    let fits = name.len() as u64 <= most && name.as_bytes().first().is_some_and(starts);
    match fits && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{:?} is no name of a template",
            name.chars().take(70).collect::<String>()
        ))
        .hint(format!(
            "a-z and 0-9, then also '.', '_' and '-', at most {most} (template_name_chars)"
        ))),
    }
}

/// All checks that need nothing but the definition.
pub(super) fn definition(ask: &TemplateDefinition) -> Result<()> {
    if ask.environment.is_empty() {
        return Err(
            Error::invalid("a template needs an environment to begin with")
                .hint(hint![verb("list_environments"), " shows them"]),
        );
    }
    crate::admission::check_env(&ask.env)?;
    at_most(limits::TEMPLATE_SETUP_COMMANDS, ask.setup.len(), "setup")?;
    for command in &ask.setup {
        at_most(
            limits::TEMPLATE_SETUP_BYTES,
            command.len(),
            "a setup command",
        )?;
        if command.trim().is_empty() || command.contains('\0') {
            return Err(Error::invalid(
                "a setup command is empty, or has a NUL byte in it",
            ));
        }
    }
    if ask.setup_policy.is_some() && ask.setup.is_empty() {
        return Err(Error::invalid("setup_policy is given, and no setup"));
    }
    at_most(
        limits::TEMPLATE_ALLOWED_HOSTS,
        ask.allowed_hosts.len(),
        "allowed_hosts",
    )?;
    let variables = ask
        .env
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2);
    at_most(limits::ENV_BYTES, variables.sum(), "env")?;
    at_most(limits::SECRETS, ask.secret_refs.len(), "secret_refs")?;
    labels::labels(&ask.labels)?;
    limits::TEMPLATE_POOL_SIZE.resolve(Some(ask.pool_size))?;
    if ask.pool_size > 0 && ask.has_network() {
        return Err(Error::unsupported(
            "machines with a network cannot wait ready: pool_size is for templates without one",
        )
        .hint("leave pool_size out, or give the network to the setup alone, with setup_policy"));
    }
    Ok(())
}

fn at_most(limit: Limit, size: usize, what: &str) -> Result<()> {
    if size as u64 <= limit.max {
        return Ok(());
    }
    Err(Error::limit(format!(
        "{what} is {size} {}; {} allows {}",
        limit.unit, limit.name, limit.max
    ))
    .details(serde_json::json!({"limit": limit.name, "value": size, "max": limit.max})))
}

/// The digest of the parts of a definition that machines are made from.
pub(super) fn digest(ask: &TemplateDefinition) -> Result<String> {
    let hash = Sha256::digest(ask.essence()?.as_bytes());
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::ErrorKind;

    fn plain() -> TemplateDefinition {
        TemplateDefinition {
            environment: "debian:12".to_string(),
            ..TemplateDefinition::default()
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["py", "0", "py-3.12_x", &"a".repeat(63)] {
            assert_eq!(name(good), Ok(()));
        }
        for bad in [
            "",
            "-a",
            ".a",
            "A",
            "a b",
            "a/b",
            "a:b",
            "ä",
            &"a".repeat(64),
        ] {
            assert_eq!(name(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn every_limit_is_one() {
        let wrong = [
            TemplateDefinition::default(),
            TemplateDefinition {
                setup: vec![" ".to_string()],
                ..plain()
            },
            TemplateDefinition {
                pool_size: 65,
                ..plain()
            },
            TemplateDefinition {
                setup_policy: Some("public".to_string()),
                ..plain()
            },
        ];
        for ask in wrong {
            assert_eq!(
                definition(&ask).unwrap_err().kind,
                ErrorKind::Invalid,
                "{ask:?}"
            );
        }
        let over = [
            TemplateDefinition {
                setup: vec!["true".to_string(); 65],
                ..plain()
            },
            TemplateDefinition {
                setup: vec!["x".repeat(65_537)],
                ..plain()
            },
            TemplateDefinition {
                allowed_hosts: vec!["example.com".to_string(); 65],
                ..plain()
            },
            TemplateDefinition {
                env: [("A".to_string(), "x".repeat(131_072))].into(),
                ..plain()
            },
        ];
        for ask in over {
            let error = definition(&ask).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Limit);
            assert!(error.details["limit"].is_string(), "{error}");
        }
        assert_eq!(definition(&plain()), Ok(()));
    }

    #[test]
    fn a_machine_with_a_network_cannot_wait() {
        let ask = TemplateDefinition {
            pool_size: 1,
            allowed_hosts: vec!["example.com".to_string()],
            ..plain()
        };
        let error = definition(&ask).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
    }
}
