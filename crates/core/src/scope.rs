//! What keys may do, and who knows them.

use crate::bounds::Bounds;
use crate::key::{CreateKey, Key, KeyId, Scope};
use crate::outcome::Cut;
use crate::project::Project;
use crate::verb::{Effect, Info};
use crate::{Error, Result, limits};
use jiff::Timestamp;

/// The scope that lets a key read the measurements of the whole host.
const METRICS: &str = "metrics";

impl Scope {
    const ALL: &'static str = "*";
    const READ: &'static str = "read";

    pub fn all() -> Scope {
        Scope(Scope::ALL.to_string())
    }

    /// Accepts `*`, `read`, `metrics`, `sandboxes:*` and `sandboxes:fork_sandbox`.
    pub fn parse(text: &str) -> Result<Scope> {
        let known = |info: &Info| {
            let (family, _) = split(&info.permission());
            text == info.permission() || text == format!("{family}:*")
        };
        let word = [Scope::ALL, Scope::READ, METRICS].contains(&text);
        if word || crate::verb::all().any(known) {
            return Ok(Scope(text.to_string()));
        }
        let shown: String = text.chars().take(80).collect();
        let mut families: Vec<String> = crate::verb::all()
            .map(|info| format!("{}:*", split(&info.permission()).0))
            .collect();
        families.sort();
        families.dedup();
        Err(
            Error::invalid(format!("{shown:?} is no scope")).hint(format!(
                "`*`, `read`, `metrics`, one verb such as `sandboxes:create_sandbox`, or a family: {}",
                families.join(", ")
            )),
        )
    }

    fn grants(&self, info: &Info) -> bool {
        let permission = info.permission();
        let family = split(&permission).0;
        match self.0.as_str() {
            Scope::ALL => true,
            Scope::READ => info.effect == Effect::Reads,
            text => text == permission || text.strip_suffix(":*") == Some(&family),
        }
    }
}

fn split(permission: &str) -> (String, String) {
    let (family, verb) = permission.split_once(':').unwrap_or((permission, ""));
    (family.to_string(), verb.to_string())
}

impl Key {
    /// A key as it is asked for, with an id of its own.
    pub fn new(ask: CreateKey, now: Timestamp) -> Result<Key> {
        let scopes: Vec<Scope> = match ask.scopes.is_empty() {
            true => vec![Scope::all()],
            false => ask
                .scopes
                .iter()
                .map(|scope| Scope::parse(scope))
                .collect::<Result<_>>()?,
        };
        if scopes.len() as u64 > limits::KEY_SCOPES.max {
            let limit = limits::KEY_SCOPES;
            return Err(Error::limit(format!(
                "a key has at most {} scopes ({})",
                limit.max, limit.name
            ))
            .hint("name families, such as `sandboxes:*`"));
        }
        if let Some(name) = &ask.name {
            let limit = limits::NAME_CHARS;
            if name.chars().count() as u64 > limit.max || name.chars().any(char::is_control) {
                return Err(Error::invalid("that is no name of a key")
                    .hint(format!("at most {} printable characters", limit.max)));
            }
        }
        ask.bounds.check()?;
        let expires = match ask.expires_seconds {
            None => None,
            Some(_) => Some(limits::KEY_EXPIRES_SECONDS.resolve(ask.expires_seconds)?),
        };
        let expires_at = expires.map(|seconds| {
            now.checked_add(jiff::SignedDuration::from_secs(seconds as i64))
                .map_err(|_| Error::invalid("the key would expire beyond the end of time"))
        });
        Ok(Key {
            key_id: KeyId::generate(),
            project: Project::parse(ask.project.as_deref().unwrap_or(Project::DEFAULT))?,
            name: ask.name,
            scopes,
            calls_per_minute: limits::KEY_CALLS_PER_MINUTE.resolve(ask.calls_per_minute)?,
            bounds: ask.bounds,
            created_at: now,
            expires_at: expires_at.transpose()?,
            revoked_at: None,
            last_used_at: None,
        })
    }
}

/// Who a good key makes its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub key_id: KeyId,
    pub project: Project,
    pub scopes: Vec<Scope>,
    /// 0 is any number.
    pub calls_per_minute: u64,
    pub bounds: Bounds,
}

impl Granted {
    pub fn may(&self, info: &Info) -> bool {
        self.scopes.iter().any(|scope| scope.grants(info))
    }

    /// Whether it may read the measurements of the host. Being allowed every verb is not enough.
    pub fn may_measure(&self) -> bool {
        self.scopes.iter().any(|scope| scope.as_str() == METRICS)
    }
}

/// Who knows keys.
pub trait Keyring: Send + Sync + 'static {
    /// Who sends this key. One that is unknown, revoked or wrong fails in the same words.
    fn admit(&self, key: &str) -> Result<Granted>;

    /// Waits until a key that was admitted is good no more: what its sender is told then.
    fn ends(&self, key: &KeyId) -> Cut;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::{self, Verb};

    #[test]
    fn scopes_grant_what_they_say() {
        let granted = |scopes: &[&str], info: &Info| {
            let scopes = scopes.iter().map(|one| Scope::parse(one).unwrap());
            Granted {
                key_id: KeyId::generate(),
                project: Project::parse("acme").unwrap(),
                scopes: scopes.collect(),
                calls_per_minute: 0,
                bounds: Bounds::default(),
            }
            .may(info)
        };
        let (fork, list) = (&verb::ForkSandbox::INFO, &verb::ListSandboxes::INFO);
        assert!(granted(&["*"], fork));
        assert!(granted(&["read"], list) && !granted(&["read"], fork));
        assert!(granted(&["sandboxes:*"], fork) && !granted(&["files:*"], fork));
        assert!(granted(&["sandboxes:fork_sandbox"], fork));
        assert!(!granted(&["sandboxes:fork_sandbox"], list));
        assert!(!granted(&["metrics"], list));
        assert!(granted(
            &["workspace_content:*"],
            &verb::EditWorkspace::INFO
        ));
    }

    #[test]
    fn a_scope_that_grants_nothing_is_refused() {
        for wrong in ["", "sandbox:*", "sandboxes:fly", "sandboxes", "write", "**"] {
            let error = Scope::parse(wrong).unwrap_err();
            assert!(error.hint.unwrap().contains("sandboxes:*"), "{wrong}");
        }
    }

    #[test]
    fn a_new_key_is_bounded() {
        let now = Timestamp::UNIX_EPOCH;
        let key = Key::new(CreateKey::default(), now).unwrap();
        assert_eq!(key.project.as_str(), "default");
        assert_eq!(key.scopes, [Scope::all()]);
        assert_eq!(key.expires_at, None);
        for wrong in [
            CreateKey {
                expires_seconds: Some(0),
                ..CreateKey::default()
            },
            CreateKey {
                project: Some("local".to_string()),
                ..CreateKey::default()
            },
            CreateKey {
                scopes: vec!["read".to_string(); 65],
                ..CreateKey::default()
            },
            CreateKey {
                name: Some("a\nb".to_string()),
                ..CreateKey::default()
            },
        ] {
            assert!(Key::new(wrong.clone(), now).is_err(), "{wrong:?}");
        }
    }
}
