//! Finds out what is at a path, for services with vague errors.
//!
//! The protocol does not define the error for a missing file; many services return 500. So after a
//! failure the parent directories are listed, which every service supports.

use super::Guest;
use motu_peer::PeerError;
use motu_peer::answer::Failed;

/// Deepest path that is examined.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    File,
    Directory,
    Missing,
    /// The service does not answer.
    Unknown,
}

impl Guest {
    /// Interprets a failed call about a path.
    pub(super) async fn file_failed(&self, error: PeerError, path: &str) -> Failed {
        let vague = match &error {
            PeerError::Refused { refusal, .. } => {
                matches!(refusal.status, 400 | 404 | 409 | 422 | 500)
            }
            _ => false,
        };
        if !vague || self.offer.has("errors") {
            return self.failed(error).await;
        }
        match self.failed(error).await {
            gone if gone.kind == motu_link::message::Failure::Cancelled => gone,
            failed => match self.look(path).await {
                Found::Missing => Failed::missing(path),
                _ => failed,
            },
        }
    }

    pub(super) async fn look(&self, path: &str) -> Found {
        let path = path.trim_end_matches('/');
        let mut child = path;
        for _ in 0..MAX_DEPTH {
            let Some((parent, name)) = child.rsplit_once('/') else {
                return match child == path {
                    true => Found::Directory,
                    false => Found::Unknown,
                };
            };
            let above = if parent.is_empty() { "/" } else { parent };
            if let Ok(listed) = self.peer.list(&self.id, above).await {
                let entry = listed.iter().find(|entry| entry.name() == name);
                return match entry.map(|entry| entry.is_dir) {
                    None => Found::Missing,
                    Some(true) if child == path => Found::Directory,
                    Some(false) if child == path => Found::File,
                    // A file in place of a parent directory.
                    Some(false) => Found::Missing,
                    Some(true) => Found::Unknown,
                };
            }
            child = parent;
        }
        Found::Unknown
    }
}
