//! What callers send for builds: bounded for each owner, and by the space that must stay free.

use super::Environments;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::pipe;
use motu_core::account::{Account, current};
use motu_core::build::BuildContext;
use motu_core::files::ByteStream;
use motu_core::limits::{self, Limit};
use motu_core::{Error, Project, Result};
use motu_environments::BuildCache;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

/// Age after which unfinished uploads of contexts and layers are removed.
pub(super) const STALE: Duration = Duration::from_secs(3600);
/// Bytes between two looks at the space that is left.
const BETWEEN: u64 = 4 << 20;

/// A source that is read for as long as a guard allows it, which is asked every few megabytes.
pub(super) struct Guarded<R, G> {
    source: R,
    guard: G,
    unguarded: u64,
    refusal: Option<Error>,
}

impl<R: Read, G: FnMut() -> Result<()>> Guarded<R, G> {
    pub(super) fn new(source: R, guard: G) -> Self {
        Guarded {
            source,
            guard,
            unguarded: 0,
            refusal: None,
        }
    }

    /// Why the guard ended it, if it did.
    pub(super) fn refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }
}

impl<R: Read, G: FnMut() -> Result<()>> Read for Guarded<R, G> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unguarded >= BETWEEN {
            self.unguarded = 0;
            if let Err(error) = (self.guard)() {
                self.refusal = Some(error);
                return Err(io::Error::other("the guard"));
            }
        }
        let count = self.source.read(buffer)?;
        self.unguarded += count as u64;
        Ok(count)
    }
}

/// A context on its way in; it is gone with this unless it is kept.
struct Arriving(Option<PathBuf>);

impl Arriving {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Environments {
    /// The cache of an owner's builds: each project has its own, users of the host have one.
    pub(super) fn build_cache(&self, owner: &str) -> Result<BuildCache> {
        let project = Project::of_owner(owner).map(|project| project.owner());
        let cache = self.store().build_cache(project.as_deref());
        cache.map_err(environment_error)
    }

    /// Stores an uploaded context for a build of the same owner.
    pub(crate) async fn keep_context(&self, content: ByteStream) -> Result<BuildContext> {
        let owner = match current() {
            Account::Operator => String::new(),
            Account::Other(owner) => owner,
        };
        self.sandboxes.gate().check_disk()?;
        let cache = self.build_cache(&owner)?;
        let path = {
            let _counting = self.contexts.lock().await;
            check(&cache)?;
            let path = cache.new_context();
            let made = std::fs::File::create_new(&path);
            made.map_err(|error| Error::io("cannot keep the context", &error))?;
            path
        };
        let arriving = Arriving(Some(path.clone()));
        let sandboxes = self.sandboxes.clone();
        let mut source = Guarded::new(pipe::reader(content), move || {
            sandboxes.gate().check_disk()?;
            check_bytes(&cache)
        });
        let bytes = blocking(move || {
            let most = limits::BUILD_CONTEXT_BYTES.max;
            let file = std::fs::File::options().write(true).open(&path);
            let mut file = file.map_err(|error| Error::io("cannot keep the context", &error))?;
            let taken = io::copy(&mut (&mut source).take(most + 1), &mut file);
            match taken {
                // Even an archive of nothing has bytes: what was to be sent was not.
                Ok(0) => Err(Error::invalid("the request has no body")
                    .hint("send the files of the context as a tar archive")),
                Ok(bytes) if bytes <= most => {
                    arriving.keep();
                    Ok(bytes)
                }
                Ok(_) => Err(
                    too_much(&limits::BUILD_CONTEXT_BYTES, "the context is larger")
                        .hint("leave files out with .dockerignore"),
                ),
                Err(error) => Err(source
                    .refusal()
                    .unwrap_or_else(|| Error::io("cannot keep the context", &error))),
            }
            .map(|bytes| (bytes, path))
        });
        let (bytes, path) = bytes.await?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(BuildContext {
            context_id: name.into_owned(),
            bytes,
        })
    }
}

/// Whether one more context may begin to wait.
fn check(cache: &BuildCache) -> Result<()> {
    let waiting = cache.waiting(STALE);
    match waiting.contexts < limits::BUILD_CONTEXTS.max {
        true => check_bytes(cache),
        false => Err(
            too_much(&limits::BUILD_CONTEXTS, "more contexts wait for builds")
                .hint("build with those that were sent, or wait an hour until they are gone"),
        ),
    }
}

/// Whether those that wait may grow.
fn check_bytes(cache: &BuildCache) -> Result<()> {
    let waiting = cache.waiting(STALE);
    match waiting.bytes <= limits::BUILD_CONTEXTS_BYTES.max {
        true => Ok(()),
        false => Err(too_much(
            &limits::BUILD_CONTEXTS_BYTES,
            "the contexts that wait for builds are larger",
        )
        .hint("build with those that were sent, or wait an hour until they are gone")),
    }
}

fn too_much(limit: &Limit, what: &str) -> Error {
    let (name, most) = (limit.name, limit.max);
    Error::limit(format!("{what} than {name}, {most}"))
        .details(serde_json::json!({ "limit": name, "max": most }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_asked_every_few_megabytes_and_says_why() {
        let mut asked = 0;
        let source = io::repeat(0).take(64 << 20);
        let mut guarded = Guarded::new(source, || {
            asked += 1;
            match asked < 3 {
                true => Ok(()),
                false => Err(Error::limit("full")),
            }
        });
        let copied = io::copy(&mut guarded, &mut io::sink());
        assert!(copied.is_err());
        assert_eq!(guarded.refusal(), Some(Error::limit("full")));
        assert_eq!(asked, 3);
    }
}
