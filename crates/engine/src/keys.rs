//! Keys of callers of other hosts: made, checked, revoked.
//!
//! All of them are in memory, so that checking one costs a hash and a comparison. When each was
//! used last is noted there and written to the store once a minute.

use crate::store::{KeyHash, Store};
use jiff::Timestamp;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::key::{self, CreateKey, Key, KeyCreated, KeyId};
use motu_core::lists::KeyList;
use motu_core::outcome::Cut;
use motu_core::scope::{Granted, Keyring};
use motu_core::{Error, Project, Result, limits};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// How often it is written down when keys were used.
const NOTED: Duration = Duration::from_secs(60);

/// All keys.
#[derive(Debug)]
pub struct Keys {
    store: Store,
    all: Mutex<HashMap<KeyId, Entry>>,
    /// Held by whoever makes or revokes one.
    turn: tokio::sync::Mutex<()>,
    /// Those that were revoked since this daemon began, for whoever has one in use.
    revoked: watch::Sender<HashSet<KeyId>>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    hash: KeyHash,
    /// It was used since that was written down.
    noted: bool,
}

impl Keys {
    /// Reads the keys of the store, and begins to note there when they are used.
    pub async fn open(store: Store) -> Result<Arc<Keys>> {
        let entries = store.keys().await?.into_iter().map(|(key, hash)| {
            let noted = true;
            (key.key_id.clone(), Entry { key, hash, noted })
        });
        let keys = Arc::new(Keys {
            all: Mutex::new(entries.collect()),
            store,
            turn: tokio::sync::Mutex::default(),
            revoked: watch::Sender::default(),
        });
        let weak = Arc::downgrade(&keys);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(NOTED).await;
                let Some(keys) = weak.upgrade() else { return };
                keys.note().await;
            }
        });
        Ok(keys)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<KeyId, Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn create(&self, ask: CreateKey) -> Result<KeyCreated> {
        let _turn = self.turn.lock().await;
        let about = Key::new(ask, Timestamp::now())?;
        known_by_its_names(&about.project)?;
        self.make_room(about.created_at).await?;
        let whole = key::generate(&about.key_id);
        let hash = digest(&whole);
        self.store.insert_key(&about, hash).await?;
        let entry = Entry {
            key: about.clone(),
            hash,
            noted: true,
        };
        self.all().insert(about.key_id.clone(), entry);
        Ok(KeyCreated { about, key: whole })
    }

    /// Forgets the key that ended first when there are too many; those that are good stay.
    async fn make_room(&self, now: Timestamp) -> Result<()> {
        let limit = limits::KEYS;
        let first = {
            let all = self.all();
            if (all.len() as u64) < limit.max {
                return Ok(());
            }
            let ended = all.values().filter_map(|entry| {
                let over = entry.key.expires_at.filter(|at| *at <= now);
                let ended = entry.key.revoked_at.or(over)?;
                Some((ended, entry.key.key_id.clone()))
            });
            ended.min()
        };
        let Some((_, id)) = first else {
            return Err(Error::limit(format!(
                "there are {} keys, which is {}",
                limit.max, limit.name
            ))
            .hint(hint!["revoke some with ", verb("revoke_key")])
            .details(serde_json::json!({"limit": limit.name, "max": limit.max})));
        };
        self.store.delete_key(&id).await?;
        self.all().remove(&id);
        Ok(())
    }

    pub fn list(&self) -> KeyList {
        let mut list: Vec<Key> = self.all().values().map(|entry| entry.key.clone()).collect();
        list.sort_by(|a, b| (a.created_at, &a.key_id).cmp(&(b.created_at, &b.key_id)));
        KeyList::new(list)
    }

    /// Makes a key good for nothing. It is refused before that is on the disk, and stays so.
    pub async fn revoke(&self, id: &KeyId) -> Result<Key> {
        let _turn = self.turn.lock().await;
        let key = {
            let mut all = self.all();
            let entry = all.get_mut(id).ok_or_else(|| {
                Error::not_found(format!("there is no key {id}"))
                    .hint(hint![verb("list_keys"), " shows them"])
            })?;
            entry.key.revoked_at.get_or_insert_with(Timestamp::now);
            entry.key.clone()
        };
        self.revoked.send_modify(|all| {
            all.insert(id.clone());
        });
        self.store.update_keys(vec![key.clone()]).await?;
        Ok(key)
    }

    /// Writes down when keys were used that were since the last time.
    pub async fn note(&self) {
        let used: Vec<Key> = {
            let mut all = self.all();
            let fresh = all.values_mut().filter(|entry| !entry.noted);
            fresh
                .map(|entry| {
                    entry.noted = true;
                    entry.key.clone()
                })
                .collect()
        };
        if used.is_empty() {
            return;
        }
        // A key that is revoked meanwhile must not be written as it was before.
        let _turn = self.turn.lock().await;
        let current = {
            let all = self.all();
            let current = used.iter().filter_map(|key| all.get(&key.key_id));
            current.map(|entry| entry.key.clone()).collect()
        };
        if let Err(error) = self.store.update_keys(current).await {
            tracing::warn!(%error, "when keys were used is not written down");
        }
    }
}

impl Keyring for Keys {
    fn admit(&self, presented: &str) -> Result<Granted> {
        let presented_hash = digest(presented);
        let id = key::id_of(presented).ok_or_else(key::unknown)?;
        let mut all = self.all();
        let entry = all.get_mut(&id).ok_or_else(key::unknown)?;
        if !bool::from(presented_hash.ct_eq(&entry.hash)) || entry.key.revoked_at.is_some() {
            return Err(key::unknown());
        }
        let now = Timestamp::now();
        if let Some(at) = entry.key.expires_at.filter(|at| *at <= now) {
            return Err(key::expired(at));
        }
        entry.key.last_used_at = Some(now);
        entry.noted = false;
        Ok(Granted {
            key_id: id,
            project: entry.key.project.clone(),
            scopes: entry.key.scopes.clone(),
            calls_per_minute: entry.key.calls_per_minute,
            bounds: entry.key.bounds.clone(),
        })
    }

    fn ends(&self, id: &KeyId) -> Cut {
        let mut revoked = self.revoked.subscribe();
        let expires_at = self.all().get(id).and_then(|entry| entry.key.expires_at);
        let id = id.clone();
        Box::pin(async move {
            let over = async {
                let Some(at) = expires_at else {
                    return std::future::pending().await;
                };
                // In steps, so that a clock that is set does not keep a key good.
                while let Ok(left) = Duration::try_from(at.duration_since(Timestamp::now()))
                    && !left.is_zero()
                {
                    tokio::time::sleep(left.min(NOTED)).await;
                }
                key::expired(at)
            };
            tokio::select! {
                biased;
                // Whoever could revoke it may be gone: then only time ends it.
                Ok(_) = revoked.wait_for(|all| all.contains(&id)) => key::unknown(),
                error = over => error,
            }
        })
    }
}

fn digest(whole: &str) -> KeyHash {
    Sha256::digest(whole.as_bytes()).into()
}

/// Refuses a project whose environments would be taken for another's: those that templates made
/// have a word before the project.
fn known_by_its_names(project: &Project) -> Result<()> {
    if project.sees_environment(&project.complete("any")) {
        return Ok(());
    }
    let refused = format!("{project} reads as a template of another project");
    Err(Error::invalid(refused).hint("choose a name that does not begin with `template-`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::ErrorKind;

    async fn keys(dir: &std::path::Path) -> Arc<Keys> {
        let store = Store::open(&dir.join("motu.db")).unwrap();
        Keys::open(store).await.unwrap()
    }

    fn asked(expires_seconds: Option<u64>) -> CreateKey {
        CreateKey {
            project: Some("acme".to_string()),
            expires_seconds,
            ..CreateKey::default()
        }
    }

    #[tokio::test]
    async fn no_project_is_taken_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path()).await;
        let of = |project: &str| CreateKey {
            project: Some(project.to_string()),
            ..CreateKey::default()
        };
        let refused = keys.create(of("template-acme")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert_eq!(keys.list().len(), 0);
        for fine in ["acme", "template", "templates-acme"] {
            keys.create(of(fine)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_key_is_good_until_it_is_revoked_also_for_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let first = keys(dir.path()).await;
        let made = first.create(asked(None)).await.unwrap();
        assert_eq!(first.admit(&made.key).unwrap().project.as_str(), "acme");
        first.note().await;
        let next = keys(dir.path()).await;
        let granted = next.admit(&made.key).unwrap();
        assert_eq!(granted.key_id, made.about.key_id);
        assert!(next.list()[0].last_used_at.is_some());
        next.revoke(&granted.key_id).await.unwrap();
        let refused = next.admit(&made.key).unwrap_err();
        next.note().await;
        let last = keys(dir.path()).await;
        assert_eq!(last.admit(&made.key).unwrap_err(), refused);
        // Nothing on the disk tells the key.
        let secret = made.key.rsplit('_').next().unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!text.contains(secret));
        }
    }

    #[tokio::test]
    async fn unknown_wrong_and_revoked_keys_are_refused_in_the_same_words() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path()).await;
        let made = keys.create(asked(None)).await.unwrap();
        let other = keys.create(asked(None)).await.unwrap();
        keys.revoke(&other.about.key_id).await.unwrap();
        let mut wrong = made.key.clone();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        let nobody = key::generate(&KeyId::generate());
        for bad in ["", "x", &made.key[..30], &wrong, &nobody, &other.key] {
            let error = keys.admit(bad).unwrap_err();
            assert_eq!(error, key::unknown(), "{bad}");
            assert_eq!(error.kind, ErrorKind::Unauthenticated);
        }
        assert!(keys.admit(&made.key).is_ok());
    }

    #[tokio::test]
    async fn only_who_has_the_secret_is_told_that_it_expired() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path()).await;
        let made = keys.create(asked(Some(1))).await.unwrap();
        {
            let mut all = keys.all();
            let entry = all.get_mut(&made.about.key_id).unwrap();
            entry.key.expires_at = Some(Timestamp::UNIX_EPOCH);
        }
        let error = keys.admit(&made.key).unwrap_err();
        assert!(error.message.contains("expired"), "{error}");
        let mut wrong = made.key.clone();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        assert_eq!(keys.admit(&wrong).unwrap_err(), key::unknown());
    }

    #[tokio::test]
    async fn keys_that_ended_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys(dir.path()).await;
        let made = keys.create(asked(None)).await.unwrap();
        let entry = |number: u64| {
            let mut key = made.about.clone();
            key.key_id = KeyId::parse(&format!("{number:012}")).unwrap();
            Entry {
                key,
                hash: [0; 32],
                noted: true,
            }
        };
        for number in 1..limits::KEYS.max {
            let entry = entry(number);
            keys.all().insert(entry.key.key_id.clone(), entry);
        }
        let error = keys.create(asked(None)).await.unwrap_err();
        assert_eq!(error.details["limit"], "keys");
        keys.revoke(&made.about.key_id).await.unwrap();
        assert!(keys.create(asked(None)).await.is_ok());
        assert!(keys.revoke(&made.about.key_id).await.is_err());
    }
}
