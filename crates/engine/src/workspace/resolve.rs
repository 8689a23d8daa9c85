//! Resolves abbreviated ids.
//!
//! A full id always means itself. If there is none, a prefix of a generated id (`sb-3f9`) or the
//! name of a workspace is resolved, if it is unique. Ids chosen by callers are never completed: a
//! repeated `rm build` must not match `build-2`.

use super::Workspaces;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::{Error, Project, Result, SandboxId};

/// Length of a generated id: its kind, a dash and twelve characters.
const GENERATED: usize = 15;
/// Shortest prefix that is completed.
const SHORTEST: usize = 6;

impl Workspaces {
    pub(crate) fn resolve(&self, word: SandboxId) -> Result<SandboxId> {
        if self.sandboxes.table.has(&word) {
            return Ok(word);
        }
        let mut fitting = self.sandboxes.table.beginning(word.as_str(), None);
        fitting.retain(|id| begins(id, &word));
        if fitting.is_empty() {
            fitting = self.rooms.named(word.as_str());
        }
        one(word, fitting)
    }
}

impl Workspaces {
    /// The same for a caller who sees one project only: what is another's is not there, whether it
    /// lives or is only remembered.
    pub(crate) async fn resolve_within(
        &self,
        word: SandboxId,
        project: &Project,
    ) -> Result<SandboxId> {
        let sandboxes = &self.sandboxes;
        let owner = project.owner();
        let completed = SandboxId::parse(&project.complete(word.as_str())).ok();
        let meant: Vec<SandboxId> = std::iter::once(word.clone()).chain(completed).collect();
        let ours = |id: &SandboxId| sandboxes.table.owner(id).as_ref() == Some(&owner);
        if let Some(id) = meant.iter().find(|id| ours(id)) {
            return Ok(id.clone());
        }
        let mut fitting = sandboxes.table.beginning(word.as_str(), Some(&owner));
        fitting.retain(|id| begins(id, &word));
        if fitting.is_empty() {
            fitting = self.rooms.named(word.as_str());
            fitting.retain(ours);
        }
        if !fitting.is_empty() {
            return one(word, fitting);
        }
        for id in meant {
            let remembered = sandboxes.shared.store.get(&id).await?;
            if remembered.is_some_and(|row| row.sandbox.owner == owner) {
                return Ok(id);
            }
        }
        Err(Error::not_found(format!("there is no sandbox {word}"))
            .hint(hint![verb("list_sandboxes"), " lists them"]))
    }
}

/// Whether `word` is the beginning of a generated id.
fn begins(id: &SandboxId, word: &SandboxId) -> bool {
    let (id, word) = (id.as_str(), word.as_str());
    let generated = id.len() == GENERATED && (id.starts_with("sb-") || id.starts_with("ws-"));
    generated && word.len() >= SHORTEST && id.starts_with(word)
}

/// The only match; the word itself if there is none, so that the verb reports it.
fn one(word: SandboxId, mut fitting: Vec<SandboxId>) -> Result<SandboxId> {
    match fitting.len() {
        0 => Ok(word),
        1 => Ok(fitting.remove(0)),
        many => {
            fitting.sort();
            let shown: Vec<&str> = fitting.iter().take(5).map(SandboxId::as_str).collect();
            Err(Error::invalid(format!("{many} are meant by {word}"))
                .hint(format!("write more of it: {}", shown.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SandboxId {
        SandboxId::parse(text).unwrap()
    }

    #[test]
    fn only_generated_ids_are_completed() {
        assert!(begins(&id("sb-3f9k2m7qx0ab"), &id("sb-3f9")));
        assert!(begins(&id("ws-3f9k2m7qx0ab"), &id("ws-3f9k2m7")));
        assert!(!begins(&id("sb-3f9k2m7qx0ab"), &id("sb-3f")));
        assert!(!begins(&id("sb-3f9k2m7qx0ab"), &id("ws-3f9")));
        assert!(!begins(&id("build-number-22"), &id("build-number-2")));
        assert!(!begins(&id("sb-build"), &id("sb-bui")));
    }

    #[test]
    fn what_fits_twice_is_refused_with_a_list() {
        assert_eq!(one(id("x"), vec![]), Ok(id("x")));
        assert_eq!(one(id("x"), vec![id("y")]), Ok(id("y")));
        let error = one(id("x"), vec![id("b"), id("a")]).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("write more of it: a, b"));
    }
}
