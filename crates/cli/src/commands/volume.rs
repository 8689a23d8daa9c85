//! `motu run --volume`: a directory of this host, copied in, and what became of it copied out. One
//! that is read-only is bound where the sandbox can show it.

mod bound;

use super::cp;
use crate::failure::Reader;
use crate::show;
use crate::waiting::{self, Moved};
use motu_api::Client;
use motu_core::files::{GuestPath, MakeDirectory};
use motu_core::{Error, Result, SandboxId, Service, limits};
use motu_workspaces::output::{Sent, bring_back};
use std::path::PathBuf;

/// A directory here and its place in the sandbox.
#[derive(Clone, Debug)]
pub struct Volume {
    here: PathBuf,
    there: GuestPath,
    read_only: bool,
}

impl std::str::FromStr for Volume {
    type Err = Error;

    /// `HOST:GUEST` or `HOST:GUEST:ro`.
    fn from_str(text: &str) -> Result<Volume> {
        let (text, read_only) = match text.strip_suffix(":ro") {
            Some(text) => (text, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        let (here, there) = match text.rsplit_once(':') {
            Some((here, there)) if !here.is_empty() && there.starts_with('/') => (here, there),
            _ => {
                return Err(Error::invalid(format!("{text:?} is not a volume"))
                    .hint("write HOST_DIR:/GUEST_DIR or HOST_DIR:/GUEST_DIR:ro"));
            }
        };
        let there = there.trim_end_matches('/');
        if there.is_empty() {
            return Err(Error::invalid("a volume cannot be all of the sandbox")
                .hint("name a directory below /"));
        }
        Ok(Volume {
            here: PathBuf::from(here),
            there: GuestPath::new(there.as_bytes().to_vec())?,
            read_only,
        })
    }
}

/// A volume that is in a sandbox.
#[derive(Debug)]
pub struct Mounted {
    volume: Volume,
    sent: Sent,
}

/// Copies volumes into a sandbox, or has it show those that are read-only. One that can only be
/// copied is, and its user is told.
pub async fn send(
    client: &Client,
    id: &SandboxId,
    volumes: &[Volume],
    reader: Reader,
) -> Result<Vec<Mounted>> {
    let mut mounted = Vec::new();
    for volume in volumes {
        if volume.read_only {
            match bound::bind(client, id, volume, volumes).await? {
                bound::Shown::Bound => continue,
                bound::Shown::Not(reason) => {
                    let here = volume.here.display();
                    show::note(&format!("motu: {here} is copied, not bound: {reason}\n"));
                }
            }
        }
        let what = format!("copying {} in", volume.here.display());
        let moved = Moved::default();
        let work = volume.send(client, id, &moved);
        mounted.push(waiting::moving(&what, reader, &moved, work).await?);
    }
    Ok(mounted)
}

/// Copies back what was changed in the volumes that are not read-only.
pub async fn fetch(
    client: &Client,
    id: &SandboxId,
    mounted: Vec<Mounted>,
    reader: Reader,
) -> Result<()> {
    for one in mounted.into_iter().filter(|one| !one.volume.read_only) {
        let here = one.volume.here.display().to_string();
        let what = format!("copying {here} out");
        let moved = Moved::default();
        let work = one.fetch(client, id, &moved);
        waiting::moving(&what, reader, &moved, work)
            .await
            .map_err(|error| {
                let message = format!(
                    "what was changed in {here} was not copied back: {}",
                    error.message
                );
                Error { message, ..error }.hint(format!(
                "the sandbox {id} is still there until its time is over: `motu cp {id}:PATH HERE`"
            ))
            })?;
    }
    Ok(())
}

impl Volume {
    /// Refuses what is no directory, before anything is made.
    pub fn check(&self) -> Result<()> {
        let wrong = |error| Error::with_file(format!("read {}", self.here.display()), &error);
        match std::fs::metadata(&self.here).map_err(wrong)?.is_dir() {
            true => Ok(()),
            false => Err(
                Error::invalid(format!("{} is no directory", self.here.display()))
                    .hint("`motu create` and `motu cp` take single files"),
            ),
        }
    }

    async fn send(&self, client: &Client, id: &SandboxId, moved: &Moved) -> Result<Mounted> {
        let sent = match self.read_only {
            true => Sent::default(),
            false => Sent::of(&self.here)?,
        };
        let path = self.there.clone();
        client
            .mkdir(
                id,
                MakeDirectory {
                    path,
                    mode: None,
                    user: None,
                },
            )
            .await?;
        let bytes = cp::send_tree(client, self.here.clone(), id, &self.there, moved).await?;
        tracing::debug!(bytes, "a volume was sent");
        Ok(Mounted {
            volume: self.clone(),
            sent,
        })
    }
}

impl Mounted {
    async fn fetch(self, client: &Client, id: &SandboxId, moved: &Moved) -> Result<()> {
        let Mounted { volume, sent } = self;
        let most = limits::EXPORT_BYTES.default;
        let archive = moved.counting(client.read_tree(id, volume.there.into()).await?);
        let brought = cp::receive(archive, move |source| {
            // A symbolic link to a directory means the directory.
            let here = std::fs::canonicalize(&volume.here)
                .map_err(|error| Error::with_file("find the volume", &error))?;
            bring_back(source, &here, &sent, most)
        });
        let count = brought.await?;
        tracing::debug!(count, "a volume was brought back");
        Ok(())
    }
}

/// Throws the sandbox of a run away; what is left of it ends with its time.
pub async fn drop_sandbox(client: &Client, id: &SandboxId) {
    if let Err(error) = client.destroy_sandbox(id).await {
        show::note(&format!("motu: {id} is left behind: {error}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read_from_the_right() {
        let volume: Volume = "./a:b:/work/:ro".parse().unwrap();
        assert_eq!(volume.here, PathBuf::from("./a:b"));
        assert_eq!(&volume.there.as_bytes()[..], b"/work");
        assert!(volume.read_only);
        assert!(!"x:/y:rw".parse::<Volume>().unwrap().read_only);
        for text in ["x", "x:y", ":/y", "x:/", "x:/y:no"] {
            assert!(text.parse::<Volume>().is_err(), "{text}");
        }
    }
}
