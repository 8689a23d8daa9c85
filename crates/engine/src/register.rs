//! Registers: small things of which each has a file of its own.
//!
//! ```text
//!   MOTU_HOME/keys/ID.json          a key of a caller: what may be said of it, and its hash
//!   MOTU_HOME/templates/NAME.json   a template
//! ```
//!
//! A file is on the disk before its change is answered, and nothing else says what it says. A
//! database goes back to an earlier state when its log is lost; a file that was replaced does not.
//! So a key that was revoked stays revoked whatever happens to the store.
//!
//! The store remembers that a register was begun: one that is gone later is said, not begun anew.

use crate::blocking::blocking;
use crate::home::Home;
use crate::lost;
use crate::store::Store;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::id::random_name;
use motu_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const ENDING: &str = ".json";
const VERSION: u32 = 1;

/// A record as its file has it.
#[derive(Debug, Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    record: T,
}

/// The records of one kind.
#[derive(Clone, Debug)]
pub struct Register {
    home: PathBuf,
    name: &'static str,
}

impl Register {
    pub fn keys(home: &Home) -> Register {
        Register::at(home.path(), "keys")
    }

    pub fn templates(home: &Home) -> Register {
        Register::at(home.path(), "templates")
    }

    fn at(home: &Path, name: &'static str) -> Register {
        Register {
            home: home.to_path_buf(),
            name,
        }
    }

    pub fn dir(&self) -> PathBuf {
        self.home.join(self.name)
    }

    /// Makes the register if this state directory never had one, of what earlier versions had in
    /// the store. Blocks on nothing but small files.
    pub async fn begin<T: Serialize + Send + 'static>(
        &self,
        store: &Store,
        former: Vec<(String, T)>,
    ) -> Result<()> {
        let begun = self.begun_key();
        if !self.dir().is_dir() {
            if store.meta(begun).await?.is_some() {
                return Err(self.gone());
            }
            let own = self.clone();
            blocking(move || own.make(&former)).await?;
        }
        if store.meta(begun).await?.is_none() {
            store.set_meta(begun, "begun".to_string()).await?;
            store.forget_former(self.name).await?;
        }
        Ok(())
    }

    fn begun_key(&self) -> &'static str {
        match self.name {
            "keys" => "register_keys",
            _ => "register_templates",
        }
    }

    fn gone(&self) -> Error {
        let (name, dir) = (self.name, self.dir());
        Error::unavailable(format!("{} is gone: it has the {name}", dir.display())).hint(hint![
            "bring it back from a backup; or begin without any: ",
            host(format!("mkdir {}", dir.display())),
        ])
    }

    /// All or nothing: a directory that is there has every record.
    fn make<T: Serialize>(&self, records: &[(String, T)]) -> Result<()> {
        let staged = self
            .home
            .join(format!("{}.new-{}", self.name, random_name(8)));
        let made = (|| {
            make_private(&staged)?;
            for (name, record) in records {
                write(&staged, name, record)?;
            }
            let failed = |error| Error::io(format_args!("begin {}", self.name), &error);
            std::fs::rename(&staged, self.dir()).map_err(failed)?;
            sync(&self.home).map_err(failed)
        })();
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&staged);
        }
        made
    }

    /// Writes a record; it is on the disk when this returns. Blocks.
    pub fn put(&self, name: &str, record: &impl Serialize) -> Result<()> {
        write(&self.dir(), name, record)
    }

    /// Removes a record, if it is there. Blocks.
    pub fn remove(&self, name: &str) -> Result<()> {
        let failed = |error| Error::io(format_args!("forget one of the {}", self.name), &error);
        match std::fs::remove_file(self.dir().join(format!("{name}{ENDING}"))) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        }
        sync(&self.dir()).map_err(failed)
    }

    /// Every record by its name, and the names of those that cannot be read, which are logged and
    /// stay where they are. Blocks.
    pub fn all<T: DeserializeOwned>(&self) -> Result<Records<T>> {
        let mut all = Records::default();
        for name in self.names()? {
            match read(&self.dir().join(format!("{name}{ENDING}"))) {
                Ok(record) => all.read.push((name, record)),
                Err(why) => {
                    tracing::error!(
                        of = self.name,
                        name,
                        why,
                        "a record cannot be read; going on without it"
                    );
                    all.unreadable.push((name, why));
                }
            }
        }
        Ok(all)
    }

    /// The names of all records, in their order. Blocks.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.dir()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| Error::io(self.name, &error))?,
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                // What a crash left of a write begins with a dot.
                let name = name
                    .strip_suffix(ENDING)
                    .filter(|name| !name.starts_with('.'));
                name.map(str::to_string)
            })
            .collect();
        names.sort();
        Ok(names)
    }
}

/// What is in a register.
#[derive(Debug)]
pub struct Records<T> {
    pub read: Vec<(String, T)>,
    /// With the reasons.
    pub unreadable: Vec<(String, String)>,
}

impl<T> Default for Records<T> {
    fn default() -> Records<T> {
        Records {
            read: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

fn write(dir: &Path, name: &str, record: &impl Serialize) -> Result<()> {
    let version = VERSION;
    let text = serde_json::to_vec_pretty(&Versioned { version, record })
        .map_err(|error| Error::internal(format!("{name}: {error}")))?;
    lost::write(dir, &format!("{name}{ENDING}"), &text)
        .map_err(|error| Error::io(format_args!("write {name} down"), &error))
}

fn read<T: DeserializeOwned>(path: &Path) -> std::result::Result<T, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let found: Versioned<T> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    match found.version {
        VERSION => Ok(found.record),
        other => Err(format!("it has version {other}")),
    }
}

fn make_private(dir: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::io(format_args!("make {}", dir.display()), &error))
}

fn sync(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn what_is_gone_is_said_and_what_cannot_be_read_costs_itself() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let store = Store::open(&home.database()).unwrap();
        let register = Register::keys(&home);
        let former = || vec![("one".to_string(), json!({"a": 1}))];
        register.begin(&store, former()).await.unwrap();
        register.put("two", &json!({"a": 2})).unwrap();
        std::fs::write(register.dir().join("three.json"), "{").unwrap();
        std::fs::write(register.dir().join(".four.json.x"), "{").unwrap();
        let all = register.all::<Value>().unwrap();
        let read: Vec<_> = all.read.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(read, ["one", "two"]);
        assert_eq!(all.unreadable[0].0, "three");
        // What is removed stays removed, also when the store still had it.
        register.remove("one").unwrap();
        register.remove("one").unwrap();
        register.begin(&store, former()).await.unwrap();
        assert_eq!(register.names().unwrap(), ["three", "two"]);

        std::fs::remove_dir_all(register.dir()).unwrap();
        let error = register.begin(&store, former()).await.unwrap_err();
        assert_eq!(error.kind, motu_core::ErrorKind::Unavailable);
        assert!(error.message.contains("keys is gone"), "{error}");
        std::fs::create_dir(register.dir()).unwrap();
        register.begin(&store, former()).await.unwrap();
        assert!(register.names().unwrap().is_empty());
    }
}
