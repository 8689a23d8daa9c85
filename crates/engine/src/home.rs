//! The state directory: where everything the daemon keeps is.
//!
//! ```text
//!   MOTU_HOME/
//!     config.toml      the operator's settings (optional)
//!     motu.db          the store
//!     daemon.sock      the API, 0600
//!     environments/    immutable roots, by digest
//!     machines/RUNTIME/ID/   one directory per machine
//!     kept/ID/         what outlives a machine: disks-N/, snapshots/, sandbox.json, workspace.json
//!     baselines/NAME/  what a `/workspace` was at first; nothing changes it
//!     aside/           files on their way from a workspace to its copies
//!     keys/ID.json     keys of callers; templates/NAME.json  templates
//!     saved/ENTRY/     sandboxes that became templates, with their memory
//!     lost/ENTRY/      data that neither store nor record describes, set aside
//!     terminals/ID/    transcript, recording and log of a terminal session
//!     audit/ audit.key every call, and the key that signs them
//! ```

use crate::directory::OwnDirectory;
use crate::paths::Base;
use motu_core::config::Config;
use motu_core::template::SavedTemplate;
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result, Runtime, SandboxId};
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What the directory is called of a machine that was saved for a template.
pub(crate) fn saved_entry(name: &str, saved: &SavedTemplate) -> String {
    format!("{name}@{}", saved.saved_at.as_nanosecond())
}

/// Longest directory name of a session that is not shortened.
const LONG_NAME: usize = 180;

/// An opened state directory.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// Creates the directory (0700) if needed and checks that it is ours.
    pub fn open(path: &Path) -> Result<Home> {
        Ok(Home {
            path: OwnDirectory::open(path)?.path().to_path_buf(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The base of relative paths in records.
    pub fn base(&self) -> Base {
        Base::new(&self.path)
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("motu.db")
    }

    /// Directory of all machines of one runtime.
    pub fn machines(&self, runtime: &str) -> PathBuf {
        self.path.join("machines").join(runtime)
    }

    /// Directory of one machine.
    pub fn machine(&self, runtime: &str, id: &SandboxId) -> PathBuf {
        self.machines(runtime).join(id.as_str())
    }

    /// Makes the empty, private directory of a new machine.
    pub fn make_machine(&self, runtime: &str, id: &SandboxId) -> Result<PathBuf> {
        let dir = self.machine(runtime, id);
        let make = |recursive: bool, dir: &Path| {
            std::fs::DirBuilder::new()
                .recursive(recursive)
                .mode(0o700)
                .create(dir)
        };
        match make(false, &dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make(true, &self.machines(runtime)).and_then(|()| make(false, &dir))
            }
            other => other,
        }
        .map_err(|error| Error::io("cannot make the machine's directory", &error))?;
        Ok(dir)
    }

    /// Directory of the data of a kept sandbox that outlives its machine.
    pub fn kept(&self, id: &SandboxId) -> PathBuf {
        self.path.join("kept").join(id.as_str())
    }

    /// Directory of machines that were saved with their memory.
    pub fn saved(&self) -> PathBuf {
        self.path.join("saved")
    }

    /// Where the machine of a template lies that was saved with its memory. A template that is
    /// saved again under its name is another one.
    pub fn saved_machine(&self, name: &str, saved: &SavedTemplate) -> PathBuf {
        self.saved().join(saved_entry(name, saved))
    }

    /// The operator's policies.
    pub fn policies(&self) -> motu_policy::Shelf {
        motu_policy::Shelf::new(self.path.join("policies"))
    }

    pub fn baselines(&self) -> PathBuf {
        self.path.join("baselines")
    }

    /// Directory of a terminal session's files.
    pub fn terminal(&self, id: &TerminalId) -> PathBuf {
        let mut name = motu_terminal::record::directory_name(id.as_str());
        if name.len() > LONG_NAME {
            // File names have at most 255 bytes. `%%` occurs in no unshortened name, so the two
            // cannot clash.
            let digest = Sha256::digest(id.as_str());
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            name.truncate(LONG_NAME / 2);
            name = format!("{name}%%{digest}");
        }
        self.terminals().join(name)
    }

    pub fn terminals(&self) -> PathBuf {
        self.path.join("terminals")
    }

    /// Makes a session's directory, if it does not exist.
    pub fn make_terminal(&self, id: &TerminalId) -> Result<PathBuf> {
        let dir = self.terminal(id);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| Error::io("cannot make the session's directory", &error))?;
        Ok(dir)
    }

    /// Makes a fresh, empty directory for the disks of a kept sandbox.
    pub fn make_disks(&self, id: &SandboxId) -> Result<PathBuf> {
        let kept = self.kept(id);
        let failed = |error| Error::io("cannot make a directory for disks", &error);
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        builder.recursive(true).create(&kept).map_err(failed)?;
        for number in 1.. {
            let disks = kept.join(format!("disks-{number}"));
            match builder.recursive(false).create(&disks) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| disks).map_err(failed),
            }
        }
        Err(Error::internal("there are no numbers left for disks"))
    }

    /// Moves the kept directory of a sandbox to the trash, after its runtime has made the disks
    /// removable.
    pub async fn discard_kept(
        &self,
        trash: &crate::trash::Trash,
        runtime: &dyn Runtime,
        id: &SandboxId,
    ) -> Result<()> {
        let kept = self.kept(id);
        if kept.exists() {
            tracing::info!(%id, "removing a kept directory");
        }
        for entry in std::fs::read_dir(&kept).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"disks-") {
                runtime.discard(&entry.path()).await?;
            }
        }
        trash.discard(&kept)
    }

    /// Reads `config.toml`, or the defaults when there is none.
    pub fn config(&self) -> Result<Config> {
        match std::fs::read_to_string(self.path.join("config.toml")) {
            Ok(text) => Config::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(Error::io("cannot read config.toml", &error)),
        }
    }

    /// Bytes an unprivileged writer could still write here.
    pub fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|error| Error::io("cannot look at the disk", &error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}
