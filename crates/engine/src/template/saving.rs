//! Templates that are sandboxes as they once were.
//!
//! ```text
//!   with memory   the machine ──► saved/ENTRY.new ──► saved/ENTRY ──► stored
//!   files alone   the machine stops ──► an environment, snapshot-NAME:1 ──► stored
//! ```
//!
//! A stored template has what it needs: a daemon that is killed while it saves leaves a directory
//! that ends in `.new`, which the next one removes, or an environment that nobody refers to.

use super::{Templates, checks, own_name};
use crate::blocking::blocking;
use crate::driver::Handle;
use jiff::Timestamp;
use motu_core::commit::{AfterCommit, CommitSandbox};
use motu_core::hint;
use motu_core::hint::field;
use motu_core::runtime::Capabilities;
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::size::Size;
use motu_core::template::{
    SaveTemplate, SavedTemplate, Template, TemplateDefinition, TemplatePool,
};
use motu_core::{Error, ErrorKind, Result};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How the name of a directory ends that is not whole yet.
const UNFINISHED: &str = ".new";

impl Templates {
    /// Makes a template of a sandbox.
    pub(crate) async fn save(&self, handle: &Handle, ask: SaveTemplate) -> Result<Template> {
        checks::name(&ask.name)?;
        let _turn = self.sandboxes.templates.turn(&ask.name).await;
        self.sandboxes.templates.check_room(&ask.name)?;
        if self.sandboxes.templates.get(&ask.name).is_ok() {
            return Err(
                Error::conflict(format!("the template {} exists already", ask.name))
                    .hint("choose another name, or remove that one first"),
            );
        }
        let sandbox = handle.sandbox();
        // Before anything is made: afterwards it would be saved, and the answer an error.
        if ask.then == AfterCommit::Stop && !sandbox.keep {
            return Err(Error::conflict(format!(
                "{} cannot be stopped: its disks go with its machine",
                sandbox.sandbox_id
            ))
            .hint(hint![
                "let it go on or destroy it: ",
                field("then").is("destroy"),
                "; or create it with ",
                field("keep").is(true).of("create_sandbox")
            ]));
        }
        let live = matches!(handle.state(), State::Running | State::Paused);
        let found = self.sandboxes.runtimes.named(&sandbox.runtime);
        let can = found.map_or(Capabilities::default(), |runtime| runtime.capabilities());
        let template = match ask.memory.unwrap_or(live && can.memory_snapshot) {
            true if !can.memory_snapshot => return Err(no_memory(&sandbox.runtime)),
            true => self.save_memory(handle, &sandbox, &ask.name).await?,
            false => self.save_files(handle, &sandbox, (&ask.name, live)).await?,
        };
        match ask.then {
            AfterCommit::Destroy => drop(handle.destroy().await?),
            AfterCommit::Stop => drop(handle.stop().await?),
            AfterCommit::Start if live && handle.state() == State::Stopped => {
                drop(handle.start().await?);
            }
            AfterCommit::Start => {}
        }
        Ok(template)
    }

    async fn save_memory(
        &self,
        handle: &Handle,
        sandbox: &Sandbox,
        name: &str,
    ) -> Result<Template> {
        self.check_network(handle, sandbox).await?;
        self.sandboxes.gate().check_disk()?;
        let home = &self.sandboxes.shared.home;
        let saved = SavedTemplate {
            memory: true,
            keep: sandbox.keep,
            size_bytes: 0,
            saved_at: Timestamp::now(),
        };
        let dir = home.saved_machine(name, &saved);
        let staged = PathBuf::from(format!("{}{UNFINISHED}", dir.display()));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&staged)
            .map_err(|error| Error::io("cannot make a place for the template", &error))?;
        let written = async {
            handle.save(staged.clone()).await?;
            let (from, to) = (staged.clone(), dir.clone());
            blocking(move || publish(&from, &to)).await
        };
        let size_bytes = match written.await {
            Ok(size) => size,
            Err(error) => {
                self.discard_saved(&staged);
                return Err(error);
            }
        };
        let definition = TemplateDefinition {
            runtime: Some(sandbox.runtime.clone()),
            policy: sandbox.policy.as_ref().map(|policy| policy.name.clone()),
            ..definition(sandbox, sandbox.environment.clone())
        };
        let saved = SavedTemplate {
            size_bytes,
            ..saved
        };
        let kept = self.enter_saved(name, sandbox, definition, saved).await;
        if kept.is_err() {
            self.discard_saved(&dir);
        }
        kept
    }

    /// A template names a policy; the sandbox may have been given less than it allows.
    async fn check_network(&self, handle: &Handle, sandbox: &Sandbox) -> Result<()> {
        let (Some(policy), Some(network)) = (&sandbox.policy, handle.launch().await?.network)
        else {
            return Ok(());
        };
        let known = self.sandboxes.policy(&policy.name).await?;
        match known.rules == network.rules {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "the network of {} is not what the policy {} says now, and a template names a policy",
                sandbox.sandbox_id, policy.name
            ))
            .hint(hint![
                "give it a policy that says what its machines may reach, or save without ",
                field("memory")
            ])),
        }
    }

    async fn save_files(
        &self,
        handle: &Handle,
        sandbox: &Sandbox,
        (name, live): (&str, bool),
    ) -> Result<Template> {
        let commit = CommitSandbox {
            name: environment_of(name, &sandbox.owner),
            then: AfterCommit::Stop,
        };
        let environments_stay = self.sandboxes.environments_in_use.read().await;
        let made = self.environments.commit(handle, &commit).await;
        drop(environments_stay);
        let made = match made {
            Ok(made) => made,
            Err(error) => return Err(self.go_on(handle, live, error).await),
        };
        let saved = SavedTemplate {
            memory: false,
            keep: false,
            size_bytes: made.size_bytes.unwrap_or(0),
            saved_at: Timestamp::now(),
        };
        let definition = definition(sandbox, made.name.clone());
        match self.enter_saved(name, sandbox, definition, saved).await {
            Ok(template) => Ok(template),
            // Half of a template is none: what was made for it goes, and the sandbox goes on.
            Err(error) => {
                self.environments.remove(&made.name).await?;
                Err(self.go_on(handle, live, error).await)
            }
        }
    }

    /// Starts a sandbox again that was stopped for nothing.
    async fn go_on(&self, handle: &Handle, live: bool, error: Error) -> Error {
        if live
            && handle.state() == State::Stopped
            && let Err(second) = handle.start().await
        {
            tracing::warn!(%second, "could not start a sandbox again that was not saved");
        }
        error
    }

    async fn enter_saved(
        &self,
        name: &str,
        sandbox: &Sandbox,
        definition: TemplateDefinition,
        saved: SavedTemplate,
    ) -> Result<Template> {
        let template = Template {
            name: name.to_string(),
            owner: sandbox.owner.clone(),
            version: 1,
            digest: checks::digest(&definition)?,
            definition,
            built: None,
            created_at: saved.saved_at,
            updated_at: saved.saved_at,
            saved: Some(saved),
            pool: TemplatePool::default(),
        };
        self.keep(&template, None).await?;
        Ok(template)
    }

    /// Removes what was saved for a template that is gone or is another one by now.
    pub(super) async fn forget_saved(&self, gone: &Template) {
        if let Some(saved) = gone.asleep() {
            let home = &self.sandboxes.shared.home;
            self.discard_saved(&home.saved_machine(&gone.name, saved));
        }
        let environment = &gone.definition.environment;
        // Nobody else's: one of that name may have been made by hand.
        if gone.saved.is_none() || *environment != environment_of(&gone.name, &gone.owner) {
            return;
        }
        match self.environments.remove(environment).await {
            Err(error) if ![ErrorKind::Conflict, ErrorKind::NotFound].contains(&error.kind) => {
                tracing::warn!(%environment, %error, "could not remove what was saved for a template");
            }
            _ => {}
        }
    }

    fn discard_saved(&self, dir: &Path) {
        if let Err(error) = self.sandboxes.shared.trash.discard(dir) {
            tracing::warn!(%error, "could not remove what was saved for a template");
        }
    }

    /// Removes what a daemon that died had begun to save, and names what no template has.
    pub(super) fn sweep_saved(&self) {
        let home = &self.sandboxes.shared.home;
        let known: Vec<PathBuf> = self
            .sandboxes
            .templates
            .list()
            .iter()
            .filter_map(|one| Some(home.saved_machine(&one.name, one.asleep()?)))
            .collect();
        for entry in fs::read_dir(home.saved()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.to_string_lossy().ends_with(UNFINISHED) {
                self.discard_saved(&path);
            } else if !known.contains(&path) {
                tracing::warn!(path = %path.display(), "no template has this saved machine; it may be removed by hand");
            }
        }
    }
}

/// Gives a directory its name when everything in it is on the disk; says what it takes.
fn publish(from: &Path, to: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| Error::io("cannot keep the saved machine", &error);
    let bytes = allocated(from).map_err(failed)?;
    fs::rename(from, to).map_err(failed)?;
    let parent = to.parent().unwrap_or(Path::new("/"));
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(failed)?;
    Ok(bytes)
}

fn allocated(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => allocated(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// The definition of a template whose machines are like the sandbox.
fn definition(sandbox: &Sandbox, environment: String) -> TemplateDefinition {
    let disk = sandbox.limits.iter().find(|one| one.name == "disk_mib");
    TemplateDefinition {
        environment,
        size: Size {
            vcpu_count: Some(sandbox.vcpu_count),
            mem_mib: Some(sandbox.mem_mib),
            disk_mib: disk.map(|disk| disk.value),
        },
        ..TemplateDefinition::default()
    }
}

/// The name of the environment that has the files of a saved sandbox: of the sandbox's project, or of
/// that which the template is put into.
fn environment_of(template: &str, owner: &str) -> String {
    let called = own_name(template, |own| format!("snapshot-{own}:1"));
    crate::titles::title(owner, &called).name
}

/// Refuses what a machine that was saved with its memory cannot become.
pub(super) fn fits(template: &Template, ask: &CreateSandbox) -> Result<()> {
    let Some(saved) = template.asleep() else {
        return Ok(());
    };
    if ask.keep && !saved.keep {
        return Err(Error::unsupported(format!(
            "{} was saved from a sandbox whose disks were not kept",
            template.name
        ))
        .hint(hint![
            "leave ",
            field("keep"),
            " out, or save one that was made with it"
        ]));
    }
    let own = template.definition.runtime.as_deref();
    let other = |asked: &&str| *asked != "auto" && Some(*asked) != own;
    match ask.runtime.as_deref().filter(other) {
        None => Ok(()),
        Some(asked) => Err(Error::unsupported(format!(
            "{} was saved with its memory in a machine of {}; {asked} cannot go on with it",
            template.name,
            own.unwrap_or("another runtime")
        ))
        .hint(hint!["leave ", field("runtime"), " out"])),
    }
}

fn no_memory(runtime: &str) -> Error {
    Error::unsupported(format!(
        "the {runtime} runtime cannot save a machine with its memory"
    ))
    .hint(hint![
        "leave ",
        field("memory"),
        " out to save its files; virtual machines can do both: ",
        field("runtime").is("qemu").of("create_sandbox")
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_template_are_an_environment_of_its_project() {
        for (template, owner, environment) in [
            ("kept", "uid:0", "snapshot-kept:1"),
            ("acme--kept", "project:acme", "acme--snapshot-kept:1"),
            ("acme--acme", "project:acme", "acme--snapshot-acme:1"),
            ("a--b--c", "project:a", "a--snapshot-b--c:1"),
            ("acme--kept", "uid:0", "acme--snapshot-kept:1"),
            // A user of the host has saved what is the project's.
            ("kept", "project:acme", "acme--snapshot-kept:1"),
        ] {
            assert_eq!(environment_of(template, owner), environment);
        }
    }

    #[test]
    fn what_is_kept_is_counted_by_what_the_disk_gives() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("in/some"), vec![1; 8192]).unwrap();
        let hole = File::create(dir.path().join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let counted = allocated(dir.path()).unwrap();
        assert!((8192..1 << 20).contains(&counted), "{counted}");
    }
}
