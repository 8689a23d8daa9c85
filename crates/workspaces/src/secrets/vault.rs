//! Values at rest: XChaCha20-Poly1305 with a key of this host.
//!
//! The key is a file with mode 0600, made at first use. Each value is sealed with a random nonce
//! and bound to its workspace and name, so that it cannot be used for another one.
//!
//! ```text
//!   secrets.key       32 bytes
//!   secrets.key.id    which key that is; says that there was one when it is gone
//! ```
//!
//! A key is made once. One that is gone, or is another one than before, is said: values sealed with
//! a second key would be lost when the first one is brought back.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use rustix::fs::RenameFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{MAX_TOTAL_BYTES, Secret, SecretError, SecretInfo, Source, check};

const KEY_FILE: &str = "secrets.key";
const ID_FILE: &str = "secrets.key.id";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// First byte of a sealed value.
const SEALED_VERSION: u8 = 1;
/// First bytes of a file of sealed values.
const MAGIC: &[u8; 8] = b"MOTUSEC\x01";
/// Largest such file: all values, and room for names.
const MAX_FILE_BYTES: u64 = 2 * MAX_TOTAL_BYTES as u64;

/// Seals and opens values.
pub struct Vault {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

/// One record of the file.
#[derive(Serialize, Deserialize)]
struct Sealed {
    name: String,
    source: Source,
    value: Vec<u8>,
}

impl Vault {
    /// The vault of a state directory; makes its key if there never was one.
    pub fn open(state: &Path) -> Result<Vault, SecretError> {
        let (path, id) = (state.join(KEY_FILE), state.join(ID_FILE));
        let mut key = read_key(&path)?;
        if key.is_none() && was_used(state, &id) {
            // Another process may have made it since: the key is there before what says so.
            key = read_key(&path)?;
            if key.is_none() {
                return Err(SecretError::Gone {
                    file: path.display().to_string(),
                });
            }
        }
        let key = match key {
            Some(key) => key,
            None => {
                make_key(&path).map_err(failed("creating", &path))?;
                // Another process may have made the key first; use the one on disk.
                read_key(&path)?.ok_or_else(|| SecretError::Key {
                    file: path.display().to_string(),
                    reason: "it is gone again",
                })?
            }
        };
        identify(&key, &path, &id)?;
        Ok(Vault {
            cipher: XChaCha20Poly1305::new(key.as_slice().into()),
        })
    }

    /// Whether the key that values were sealed with is there. Makes none.
    pub fn check(state: &Path) -> Result<(), SecretError> {
        let (path, id) = (state.join(KEY_FILE), state.join(ID_FILE));
        match read_key(&path)? {
            Some(key) => identify(&key, &path, &id),
            None if was_used(state, &id) => Err(SecretError::Gone {
                file: path.display().to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Seals a value for one workspace and name.
    pub fn seal(&self, workspace: &str, name: &str, value: &str) -> Result<Vec<u8>, SecretError> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce).map_err(|source| SecretError::Io {
            context: "getting randomness".to_owned(),
            source,
        })?;
        let payload = Payload {
            msg: value.as_bytes(),
            aad: &bound_to(workspace, name),
        };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.map_err(|_| SecretError::Sealed {
            what: format!("secret {name}"),
        })?;
        Ok([&[SEALED_VERSION], nonce.as_slice(), &sealed].concat())
    }

    /// Opens what [`Vault::seal`] made for the same workspace and name.
    pub fn unseal(
        &self,
        workspace: &str,
        name: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<String>, SecretError> {
        let wrong = || SecretError::Sealed {
            what: format!("secret {name}"),
        };
        let (version, rest) = sealed.split_first().ok_or_else(wrong)?;
        if *version != SEALED_VERSION || rest.len() < NONCE_BYTES + TAG_BYTES {
            return Err(wrong());
        }
        let (nonce, contents) = rest.split_at(NONCE_BYTES);
        let payload = Payload {
            msg: contents,
            aad: &bound_to(workspace, name),
        };
        let value = self.cipher.decrypt(XNonce::from_slice(nonce), payload);
        let value = Zeroizing::new(value.map_err(|_| wrong())?);
        let text = std::str::from_utf8(&value).map_err(|_| wrong())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// Writes all secrets of a workspace to `file`, sealed; replaces what was there.
    pub fn store(
        &self,
        file: &Path,
        workspace: &str,
        secrets: &[Secret],
    ) -> Result<(), SecretError> {
        check(secrets)?;
        let sealed: Result<Vec<Sealed>, SecretError> = secrets
            .iter()
            .map(|secret| {
                Ok(Sealed {
                    name: secret.name.clone(),
                    source: secret.source,
                    value: self.seal(workspace, &secret.name, &secret.value)?,
                })
            })
            .collect();
        let body = postcard::to_stdvec(&sealed?)
            .map_err(|error| failed("writing", file)(io::Error::other(error.to_string())))?;
        let staged = staged_name(file);
        let write = || {
            let mut out = create_private(&staged)?;
            out.write_all(MAGIC)?;
            out.write_all(&body)?;
            out.sync_all()?;
            fs::rename(&staged, file)?;
            sync_parent(file)
        };
        write().map_err(failed("writing", file))
    }

    /// The secrets of a workspace; none if there is no file.
    pub fn load(&self, file: &Path, workspace: &str) -> Result<Vec<Secret>, SecretError> {
        let secret = |sealed: Sealed| {
            Ok(Secret {
                value: self.unseal(workspace, &sealed.name, &sealed.value)?,
                name: sealed.name,
                source: sealed.source,
            })
        };
        read_sealed(file)?.into_iter().map(secret).collect()
    }

    /// The public facts about them, without opening any.
    pub fn list(file: &Path) -> Result<Vec<SecretInfo>, SecretError> {
        let info = |sealed: Sealed| SecretInfo {
            name: sealed.name,
            source: sealed.source,
        };
        Ok(read_sealed(file)?.into_iter().map(info).collect())
    }
}

/// Whether something was sealed here: with a key that has an id, or by an earlier version.
fn was_used(state: &Path, id: &Path) -> bool {
    let entries = |dir: &str| {
        fs::read_dir(state.join(dir))
            .into_iter()
            .flatten()
            .flatten()
    };
    let has_sealed = |file: PathBuf| {
        let text = fs::read(file).unwrap_or_default();
        text.windows(8).any(|part| part == b"\"sealed\"")
    };
    id.exists()
        || entries("secrets").any(|entry| has_sealed(entry.path()))
        || entries("kept").any(|entry| has_sealed(entry.path().join("workspace.json")))
}

/// Compares the key with its id, or notes the id of a key that has none yet.
fn identify(key: &[u8], path: &Path, id: &Path) -> Result<(), SecretError> {
    let own = hex(&Sha256::new_with_prefix(b"motu secrets key\0")
        .chain_update(key)
        .finalize());
    match fs::read_to_string(id) {
        Ok(known) if known.trim() == own => return Ok(()),
        // A crash may leave it empty.
        Ok(known) if !known.trim().is_empty() => {
            return Err(SecretError::Another {
                file: path.display().to_string(),
            });
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("reading", id)(error));
        }
        _ => {}
    }
    let staged = staged_name(id);
    let write = || {
        let mut out = create_private(&staged)?;
        out.write_all(own.as_bytes())?;
        out.sync_all()?;
        fs::rename(&staged, id)?;
        sync_parent(id)
    };
    write().map_err(failed("writing", id))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The associated data of a value; the length separates workspace and name.
fn bound_to(workspace: &str, name: &str) -> Vec<u8> {
    format!("motu secret\0{}\0{workspace}\0{name}", workspace.len()).into_bytes()
}

fn read_sealed(file: &Path) -> Result<Vec<Sealed>, SecretError> {
    let bytes = match File::open(file) {
        Ok(open) => {
            let mut bytes = Vec::new();
            open.take(MAX_FILE_BYTES)
                .read_to_end(&mut bytes)
                .map_err(failed("reading", file))?;
            bytes
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("opening", file)(error)),
    };
    let body = bytes.strip_prefix(MAGIC);
    match body.map(postcard::take_from_bytes::<Vec<Sealed>>) {
        Some(Ok((sealed, []))) => Ok(sealed),
        _ => Err(SecretError::Sealed {
            what: file.display().to_string(),
        }),
    }
}

fn read_key(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, SecretError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("opening", path)(error)),
    };
    let unusable = |reason| SecretError::Key {
        file: path.display().to_string(),
        reason,
    };
    let meta = file.metadata().map_err(failed("reading", path))?;
    if meta.mode() & 0o077 != 0 {
        return Err(unusable("others can read it; its mode must be 600"));
    }
    let mut key = Zeroizing::new(Vec::with_capacity(KEY_BYTES + 1));
    file.take(KEY_BYTES as u64 + 1)
        .read_to_end(&mut key)
        .map_err(failed("reading", path))?;
    if key.len() != KEY_BYTES {
        return Err(unusable("it must have 32 bytes"));
    }
    Ok(Some(key))
}

/// Makes a key atomically, and never in place of an existing one.
fn make_key(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    random(key.as_mut_slice())?;
    let staged = staged_name(path);
    let mut out = create_private(&staged)?;
    out.write_all(key.as_slice())?;
    out.sync_all()?;
    let cwd = rustix::fs::CWD;
    match rustix::fs::renameat_with(cwd, &staged, cwd, path, RenameFlags::NOREPLACE) {
        Ok(()) => sync_parent(path),
        Err(error) => {
            fs::remove_file(&staged)?;
            match error {
                rustix::io::Errno::EXIST => Ok(()),
                error => Err(error.into()),
            }
        }
    }
}

/// A unique temporary name beside `path`, also among threads.
fn staged_name(path: &Path) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{count}.new", std::process::id()));
    path.with_file_name(name)
}

fn create_private(path: &Path) -> io::Result<File> {
    // Left by a dead process with the same pid.
    let _ = fs::remove_file(path);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(())
}

fn failed(context: &str, path: &Path) -> impl FnOnce(io::Error) -> SecretError {
    let context = format!("{context} {}", path.display());
    move |source| SecretError::Io { context, source }
}
