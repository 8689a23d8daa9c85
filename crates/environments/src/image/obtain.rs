//! Fetches the layers of an image, several at once.
//!
//! Owns the threads that fetch, verify and index layers, and stops all of them when one fails.

use std::{
    fs::File,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Import, LayerInfo};
use crate::{
    error::{EnvironmentError, IoContext as _},
    layer::{Budget, LayerIndex, index, index::Section},
    oci::{
        cache::{Cache, Download, short},
        manifest::Descriptor,
        registry::Registry,
    },
};

/// Layers processed concurrently.
const AT_ONCE: usize = 3;
const POLL: Duration = Duration::from_millis(50);

/// A local, verified and indexed layer.
pub(super) struct Layer {
    pub section: Section,
    pub index: LayerIndex,
    pub info: LayerInfo,
}

/// Where layers come from.
pub(super) enum Supply<'a> {
    Registry(&'a Registry, &'a [Descriptor]),
    /// Parts of local files, with their digests if known.
    Local(Vec<(Section, Option<String>)>),
}

impl Supply<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Registry(_, layers) => layers.len(),
            Self::Local(layers) => layers.len(),
        }
    }
}

/// What the threads share.
struct Work<'a> {
    import: &'a Import,
    supply: &'a Supply<'a>,
    diff_ids: Option<&'a [String]>,
    cache: Option<Cache>,
    budget: Budget,
    next: AtomicUsize,
    stop: AtomicBool,
    done: Mutex<Vec<(usize, Layer)>>,
    failure: Mutex<Option<EnvironmentError>>,
}

impl Import {
    /// Fetches and indexes all layers. With `diff_ids`, each layer must match its own.
    pub(super) fn obtain(
        &self,
        supply: &Supply<'_>,
        diff_ids: Option<&[String]>,
    ) -> Result<Vec<Layer>, EnvironmentError> {
        let cache = match supply {
            Supply::Registry(..) => Some(Cache::open(self.store.layer_cache(), &self.account)?),
            Supply::Local(_) => None,
        };
        let work = Work {
            import: self,
            supply,
            diff_ids,
            cache,
            budget: Budget::default(),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            done: Mutex::default(),
            failure: Mutex::default(),
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(supply.len()) {
                scope.spawn(|| work.run());
            }
        });
        if let Some(cache) = &work.cache {
            cache.trim();
        }
        let failure = work.failure.into_inner();
        if let Some(error) = failure.unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let mut done = work
            .done
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if done.len() < supply.len() {
            let lost = io::Error::other("a thread ended early");
            return Err(EnvironmentError::io("reading layers", lost));
        }
        done.sort_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, layer)| layer).collect())
    }
}

impl Work<'_> {
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.supply.len() {
                return;
            }
            match self.layer(number) {
                Ok(layer) => self
                    .done
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((number, layer)),
                Err(error) => {
                    let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    // The first failure is the cause of the others.
                    failure.get_or_insert(error);
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn layer(&self, number: usize) -> Result<Layer, EnvironmentError> {
        let (section, digest) = match self.supply {
            Supply::Registry(registry, layers) => {
                let layer = &layers[number];
                let file = self.fetch(registry, layer)?;
                let section =
                    Section::whole(file).at("reading", &self.import.store.layer_cache())?;
                (section, Some(layer.digest.clone()))
            }
            Supply::Local(layers) => layers[number].clone(),
        };
        let listed = self.list(number, &section, digest.as_deref());
        if let (Err(_), Some(cache), Some(digest)) = (&listed, &self.cache, &digest) {
            // Whatever is wrong with it, remove it from the cache.
            cache.forget(digest);
        }
        let index = listed?;
        let info = LayerInfo {
            digest: digest.unwrap_or_else(|| index.diff_id.clone()),
            diff_id: index.diff_id.clone(),
            size_bytes: section.length,
        };
        Ok(Layer {
            section,
            index,
            info,
        })
    }

    fn list(
        &self,
        number: usize,
        section: &Section,
        digest: Option<&str>,
    ) -> Result<LayerIndex, EnvironmentError> {
        let name = match digest {
            Some(digest) => format!("layer {}", short(digest)),
            None => format!("layer {}", number + 1),
        };
        let index = index(section.clone(), &name, &self.budget, &self.import.cancel)?;
        if let Some(expected) = self.diff_ids.map(|ids| &ids[number])
            && *expected != index.diff_id
        {
            return Err(EnvironmentError::DigestMismatch {
                what: format!("{name}, unpacked,"),
                expected: expected.clone(),
                found: index.diff_id,
            });
        }
        if index.skipped > 0 {
            tracing::debug!(name, index.skipped, "entries of a layer were skipped");
        }
        Ok(index)
    }

    fn fetch(&self, registry: &Registry, layer: &Descriptor) -> Result<File, EnvironmentError> {
        let Some(cache) = &self.cache else {
            return Err(EnvironmentError::io(
                "opening the cache of layers",
                io::Error::from(io::ErrorKind::NotFound),
            ));
        };
        let import = self.import;
        let download = Download {
            registry,
            progress: &import.progress,
            cancel: &import.cancel,
        };
        import.wait(
            || self.stop.load(Ordering::Relaxed),
            cache.fetch(layer, &download),
        )
    }
}

impl Import {
    /// Runs a future to completion on this thread, unless the import is cancelled or `stop` returns
    /// true.
    pub(super) fn wait<T>(
        &self,
        stop: impl Fn() -> bool,
        work: impl Future<Output = Result<T, EnvironmentError>>,
    ) -> Result<T, EnvironmentError> {
        let stopped = async {
            while !self.cancel.is_cancelled() && !stop() {
                tokio::time::sleep(POLL).await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                result = work => result,
                () = stopped => Err(EnvironmentError::Cancelled {
                    name: self.name.clone(),
                }),
            }
        })
    }
}
