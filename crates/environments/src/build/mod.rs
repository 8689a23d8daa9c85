//! Builds one environment, from recipe to stored blob.
//!
//! ```text
//! builder (debian | busybox) ──entries──► TreeWriter ──tar──► unpacker ──► staging ──► blob + name
//!                                         rules, digest       right ids
//! ```
//!
//! Owns the order of these steps. It runs on one blocking thread; ending early means cancelling,
//! after which this thread waits for its programs and removes its staging directory before it
//! returns.

mod busybox;
mod debian;

use std::{
    fs::File,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

use crate::{
    catalog::{CatalogEntry, Variant},
    error::EnvironmentError,
    held::Hold,
    process::Cancel,
    progress::{Progress, ProgressEvent},
    store::{BlobRecord, NameRecord, Package, Staging, Store},
    tree::Summary,
    unpack::{Failure, unpack},
};

/// One build and what it may use.
pub(crate) struct Build {
    pub store: Arc<Store>,
    pub entry: CatalogEntry,
    pub progress: Progress,
    pub cancel: Cancel,
}

/// A builder's description of its result.
struct Built {
    os: String,
    packages: Vec<Package>,
}

/// Remembers the stage for error messages while it reports progress.
#[derive(Clone)]
struct Reporter {
    progress: Progress,
    stage: Arc<Mutex<String>>,
}

impl Reporter {
    fn new(progress: Progress) -> Self {
        Self {
            progress,
            stage: Arc::new(Mutex::new("resolve".to_owned())),
        }
    }

    fn say(&self, stage: &str, message: impl Into<String>) {
        self.send(ProgressEvent {
            stage: stage.to_owned(),
            message: message.into(),
            done: None,
            total: None,
        });
    }

    fn send(&self, event: ProgressEvent) {
        self.stage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&event.stage);
        self.progress.send(event);
    }

    fn stage(&self) -> String {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        stage.clone()
    }
}

impl Build {
    /// Builds and stores the environment, unless another process just did. It is held until the
    /// caller has looked at it.
    pub fn run(&self) -> Result<Hold, EnvironmentError> {
        let result = self.run_unless_cancelled();
        if result.is_err() && self.cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled {
                name: self.entry.name.clone(),
            });
        }
        result
    }

    fn run_unless_cancelled(&self) -> Result<Hold, EnvironmentError> {
        let _alone = self.wait_for_turn()?;
        let packages = self.store.package_cache();
        let (_packages_stay, ()) = self.store.holds().take_cache(&packages, || ());
        if is_current(&self.store, &self.entry)?
            && let Some(record) = self.store.name(&self.entry.name)?
            && let Ok((hold, _)) = self.store.hold_there(&record.digest)
        {
            return Ok(hold);
        }
        let reporter = Reporter::new(self.progress.clone());
        reporter.say("resolve", format!("preparing {}", self.entry.name));
        self.store.privilege().check()?;
        let staging = self.store.stage()?;
        let (summary, built) = self.fill(&staging, &reporter)?;
        reporter.say("seal", format!("storing {} files", summary.entries));
        self.commit(&staging, summary, built)
    }

    fn wait_for_turn(&self) -> Result<File, EnvironmentError> {
        self.store.lock_pull(&self.entry.name, &self.cancel, || {
            self.progress
                .say("wait", "another process pulls this environment");
        })
    }

    /// Runs the builder with the unpacker behind it.
    fn fill(
        &self,
        staging: &Staging,
        reporter: &Reporter,
    ) -> Result<(Summary, Built), EnvironmentError> {
        let step = Step {
            build: self,
            staging,
            reporter,
        };
        unpack(&self.store, staging, &self.cancel, |tree| {
            match self.entry.variant {
                Variant::Busybox => busybox::fill(&step, tree),
                Variant::Minbase => debian::fill(&step, tree),
            }
        })
        .map_err(|failure| match failure {
            Failure::Unpacker(tail) => self.failed(reporter, tail),
            Failure::Other(error) => error,
        })
    }

    fn commit(
        &self,
        staging: &Staging,
        summary: Summary,
        built: Built,
    ) -> Result<Hold, EnvironmentError> {
        let now = Timestamp::now().to_string();
        let blob = BlobRecord {
            format_version: BlobRecord::VERSION,
            digest: summary.digest.clone(),
            size_bytes: summary.bytes,
            entries: summary.entries,
            created_at: now.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
            os: built.os,
            packages: built.packages,
            recipe: Some(self.entry.clone()),
        };
        let hold = self.store.hold(&summary.digest);
        let name = NameRecord {
            format_version: NameRecord::VERSION,
            name: self.entry.name.clone(),
            digest: summary.digest,
            pulled_at: now,
            recipe_hash: self.entry.recipe_hash(),
            image: None,
            owner: Some(String::new()),
            made_for: None,
        };
        if self.cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled { name: name.name });
        }
        self.store.commit(staging, &blob, &name)?;
        Ok(hold)
    }

    /// The error for a failed program, with the end of its output.
    fn failed(&self, reporter: &Reporter, tail: String) -> EnvironmentError {
        let stage = reporter.stage();
        if tail.contains("No space left on device") {
            return EnvironmentError::NoSpace {
                context: format!("building environment {:?}", self.entry.name),
            };
        }
        EnvironmentError::BuildFailed {
            name: self.entry.name.clone(),
            stage,
            tail_of_log: tail,
        }
    }
}

/// The context of a builder.
struct Step<'a> {
    build: &'a Build,
    staging: &'a Staging,
    reporter: &'a Reporter,
}

impl Step<'_> {
    fn entry(&self) -> &CatalogEntry {
        &self.build.entry
    }

    fn failed(&self, tail: String) -> EnvironmentError {
        self.build.failed(self.reporter, tail)
    }
}

/// Whether the name is installed, complete, and made from the current recipe.
pub(crate) fn is_current(store: &Store, entry: &CatalogEntry) -> Result<bool, EnvironmentError> {
    let record = match store.name(&entry.name) {
        Ok(Some(record)) => record,
        // An unreadable record is replaced by building again.
        Ok(None) | Err(EnvironmentError::Corrupt { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(record.recipe_hash == entry.recipe_hash() && store.blob_record(&record.digest).is_ok())
}
