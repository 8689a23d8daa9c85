//! Keys of callers of other hosts: made, checked, revoked.
//!
//! All of them are in memory, so that checking one costs a hash and a comparison. Each has a record
//! of its own ([`crate::register`]), which no loss of the store takes back: a key that was revoked
//! is never good again. When each was used last is noted in memory, and written down once a minute.

use crate::blocking::blocking;
use crate::home::Home;
use crate::register::Register;
use crate::store::Store;
use jiff::Timestamp;
use motu_core::event::{EventKind, Happened};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::key::{self, CreateKey, Key, KeyCreated, KeyId};
use motu_core::lists::KeyList;
use motu_core::outcome::Cut;
use motu_core::scope::{Granted, Keyring};
use motu_core::{Error, Result, limits};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// The SHA-256 of a whole key.
pub type KeyHash = [u8; 32];

/// How often it is written down when keys were used.
const NOTED: Duration = Duration::from_secs(60);
/// The file beside the records that says when each was used last.
const USED: &str = "used";

/// A key as its record has it.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Of the whole key; the key itself is nowhere.
    hash: KeyHash,
    key: Key,
}

/// All keys.
#[derive(Debug)]
pub struct Keys {
    store: Store,
    register: Register,
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
    /// Reads the records of keys, and begins to note when they are used.
    pub async fn open(home: &Home, store: Store) -> Result<Arc<Keys>> {
        let register = Register::keys(home);
        let former = store.former_keys().await?.into_iter();
        let former = former.map(|(key, hash)| (key.key_id.to_string(), Kept { hash, key }));
        register.begin(&store, former.collect()).await?;
        let place = register.clone();
        let (records, used) =
            blocking(move || Ok((place.all::<Kept>()?, read_used(&place)))).await?;
        let entries = records.read.into_iter().map(|(_, Kept { hash, mut key })| {
            let noted = true;
            key.last_used_at = key.last_used_at.max(used.get(key.key_id.as_str()).copied());
            (key.key_id.clone(), Entry { key, hash, noted })
        });
        let keys = Arc::new(Keys {
            all: Mutex::new(entries.collect()),
            store,
            register,
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
        about.project.check_new()?;
        self.make_room(about.created_at).await?;
        let whole = key::generate(&about.key_id);
        let hash = digest(&whole);
        self.write(&about, hash).await?;
        self.tell(EventKind::KeyCreated, &about).await;
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
        let (register, name) = (self.register.clone(), id.to_string());
        blocking(move || register.remove(&name)).await?;
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
        let (key, hash, before) = {
            let mut all = self.all();
            let entry = all.get_mut(id).ok_or_else(|| {
                Error::not_found(format!("there is no key {id}"))
                    .hint(hint![verb("list_keys"), " shows them"])
            })?;
            let before = entry.key.revoked_at;
            entry.key.revoked_at.get_or_insert_with(Timestamp::now);
            (entry.key.clone(), entry.hash, before)
        };
        self.revoked.send_modify(|all| {
            all.insert(id.clone());
        });
        self.write(&key, hash).await?;
        if before.is_none() {
            self.tell(EventKind::KeyRevoked, &key).await;
        }
        Ok(key)
    }

    /// Writes a key's record; it is on the disk when this is answered.
    async fn write(&self, key: &Key, hash: KeyHash) -> Result<()> {
        let (register, key) = (self.register.clone(), key.clone());
        blocking(move || register.put(key.key_id.clone().as_str(), &Kept { hash, key })).await
    }

    async fn tell(&self, kind: EventKind, key: &Key) {
        let event = Happened::now(kind, &key.project.owner());
        self.store.tell(event.about(&key.key_id)).await;
    }

    /// Writes down when keys were used, if any was since the last time.
    pub async fn note(&self) {
        let used: BTreeMap<String, Timestamp> = {
            let mut all = self.all();
            if all.values().all(|entry| entry.noted) {
                return;
            }
            let used = all.values_mut().filter_map(|entry| {
                entry.noted = true;
                Some((entry.key.key_id.to_string(), entry.key.last_used_at?))
            });
            used.collect()
        };
        let dir = self.register.dir();
        let written = blocking(move || {
            let text =
                serde_json::to_vec(&used).map_err(|error| Error::internal(error.to_string()))?;
            crate::lost::write(&dir, USED, &text)
                .map_err(|error| Error::io("note when keys were used", &error))
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, "when keys were used is not written down");
        }
    }
}

/// When keys were used; a file that cannot be read costs nothing else.
fn read_used(register: &Register) -> BTreeMap<String, Timestamp> {
    let text = std::fs::read(register.dir().join(USED)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::ErrorKind;

    async fn keys(dir: &std::path::Path) -> Arc<Keys> {
        let home = Home::open(dir).unwrap();
        let store = Store::open(&home.database()).unwrap();
        Keys::open(&home, store).await.unwrap()
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
        let beside = |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().flatten();
        let files = beside(dir.path()).chain(beside(&dir.path().join("keys")));
        for entry in files.filter(|entry| entry.path().is_file()) {
            let bytes = std::fs::read(entry.path()).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!text.contains(secret));
        }
    }

    /// As a write-ahead log that is lost does it: the store goes back, the records do not.
    #[tokio::test]
    async fn a_revoked_key_stays_revoked_when_the_store_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("motu.db");
        let first = keys(dir.path()).await;
        let made = first.create(asked(None)).await.unwrap();
        first.store.checkpoint().await.unwrap();
        let earlier = std::fs::read(&database).unwrap();
        first.revoke(&made.about.key_id).await.unwrap();
        let other = first.create(asked(None)).await.unwrap();
        first.store.clone().close().await;
        drop(first);
        std::fs::write(&database, earlier).unwrap();
        let next = keys(dir.path()).await;
        assert_eq!(next.admit(&made.key).unwrap_err(), key::unknown());
        assert!(next.admit(&other.key).is_ok());
        assert!(next.store.loss().is_some(), "and the loss is known");
    }

    #[tokio::test]
    async fn keys_of_an_earlier_version_get_records_and_leave_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("motu.db");
        let made = keys(dir.path()).await.create(asked(None)).await.unwrap();
        std::fs::remove_dir_all(dir.path().join("keys")).unwrap();
        let connection = rusqlite::Connection::open(&database).unwrap();
        let json = serde_json::to_string(&made.about).unwrap();
        let id = made.about.key_id.as_str();
        let hash = digest(&made.key);
        let row = rusqlite::params![id, hash.as_slice(), json];
        connection
            .execute("INSERT INTO keys VALUES (?1, ?2, ?3)", row)
            .unwrap();
        connection
            .execute("DELETE FROM meta WHERE key = 'register_keys'", [])
            .unwrap();
        let next = keys(dir.path()).await;
        assert!(next.admit(&made.key).is_ok());
        let left = "SELECT count(*) FROM keys";
        let left: i64 = connection.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
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
