//! Events: what happened to sandboxes, workspaces, calls, environments, keys and the host, in one
//! order.
//!
//! An event says that something changed and to what, never what anybody said, typed or keeps
//! secret. Readers who come back with the number of the last event they have seen miss nothing that
//! is still kept, and are told by [`EventKind::Gone`] where something is not.

use crate::ask::Ask;
use crate::audit::AuditId;
use crate::{Error, Project, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal;)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($(#[doc = $doc])+ $kind,)*
        }

        impl EventKind {
    /// The form of a list of kinds, for documents: kinds, or families of them, with commas between.
    pub fn form() -> String {
        let kinds = EventKind::ALL.iter().map(|kind| kind.as_str());
        let families = kinds.clone().filter_map(|kind| kind.split('.').next());
        let mut all: Vec<&str> = kinds.chain(families).collect();
        all.sort_unstable();
        all.dedup();
        let one = format!("({})", all.join("|").replace('.', r"\."));
        format!("^{one}(,{one})*$")
    }

            pub const ALL: &[EventKind] = &[$(EventKind::$kind),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(EventKind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// A sandbox runs for the first time.
    SandboxCreated = "sandbox.created";
    /// Its clock was stopped: by a caller, because it was idle, or for lack of disk space.
    SandboxPaused = "sandbox.paused";
    /// It goes on after a pause.
    SandboxResumed = "sandbox.resumed";
    /// Its machine ended and its disks are kept; with a reason where nobody asked for it.
    SandboxStopped = "sandbox.stopped";
    /// It has a machine again.
    SandboxStarted = "sandbox.started";
    /// Live copies of it were made.
    SandboxForked = "sandbox.forked";
    /// Its machine ended without being asked to, and nothing is kept.
    SandboxEnded = "sandbox.ended";
    /// Its time was over, or nobody used it: it is destroyed next.
    SandboxExpired = "sandbox.expired";
    /// It is gone.
    SandboxDestroyed = "sandbox.destroyed";
    /// A workspace is there; its sandbox has the same id.
    WorkspaceCreated = "workspace.created";
    /// It was set back to its baseline or to a snapshot.
    WorkspaceReset = "workspace.reset";
    /// Copies of it were made.
    WorkspaceForked = "workspace.forked";
    /// It is gone, with everything in it.
    WorkspaceDeleted = "workspace.deleted";
    /// A snapshot of a workspace was taken.
    SnapshotCreated = "snapshot.created";
    /// A snapshot of a workspace was removed.
    SnapshotDeleted = "snapshot.deleted";
    /// A typed call or a one-shot command came to its end, however it went.
    CallFinished = "call.finished";
    /// An environment was pulled, built, imported, committed or named.
    EnvironmentInstalled = "environment.installed";
    /// An environment was removed.
    EnvironmentRemoved = "environment.removed";
    /// A key was made.
    KeyCreated = "key.created";
    /// A key is good for nothing any more.
    KeyRevoked = "key.revoked";
    /// A daemon serves.
    HostStarted = "host.started";
    /// The daemon leaves in order; machines stay.
    HostStopped = "host.stopped";
    /// Events that this reader asked for are not kept any more; the next one is the oldest that is.
    Gone = "events.gone";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of an event besides what it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct EventFacts {
    /// Why it happened, where nobody asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who paused it: `caller`, `idle` or `shortage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Of an environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Of a snapshot, or the name of a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The copies that a fork made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// The verb of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// How a call went: `ok`, the kind of its error, or `abandoned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Limits that a call has reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Of a daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Of `events.gone`: the number that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
}

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Happened {
    /// When it was written down: RFC 3339 in UTC.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// Such as `sandbox.created`; docs/events.md has all of them.
    pub kind: String,
    /// What it happened to: a sandbox, a workspace, an environment, a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Whose it is: a project, or `local` for what is nobody's or of a user of the host.
    pub project: String,
    /// The call that asked for it, in the audit log; missing where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_id: Option<AuditId>,
    pub facts: EventFacts,
}

impl Happened {
    /// Now, by the call that is being made.
    pub fn now(kind: EventKind, owner: &str) -> Happened {
        let project = Project::of_owner(owner);
        let project = project.as_ref().map_or(Project::LOCAL, Project::as_str);
        Happened {
            time: Timestamp::now(),
            kind: kind.as_str().to_string(),
            id: None,
            project: project.to_string(),
            audit_id: crate::audit::current(),
            facts: EventFacts::default(),
        }
    }

    #[must_use]
    pub fn about(mut self, id: impl fmt::Display) -> Happened {
        self.id = Some(id.to_string());
        self
    }

    #[must_use]
    pub fn facts(mut self, facts: EventFacts) -> Happened {
        self.facts = facts;
        self
    }
}

/// One thing that happened on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = HostEvent)]
pub struct Event {
    /// Grows from event to event, over restarts too. There may be gaps.
    pub sequence: u64,
    #[serde(flatten)]
    pub happened: Happened,
}

/// Which events are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadEvents {
    /// Whose events; the gate says, not the caller. Everybody's for whoever is no project.
    #[serde(skip)]
    pub owner: String,
    /// Only those after this number; all that are kept when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Without `after`: only so many of the newest, and with `follow` those to come. 0: only those
    /// to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Only of these kinds, with commas between: `sandbox.created`, or `sandbox` for all that begin
    /// so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only of this sandbox, workspace, environment or key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Go on with those to come.
    pub follow: bool,
}

impl Ask for ReadEvents {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }
}

/// What one reader wants of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    project: Option<Project>,
    kinds: Vec<String>,
    id: Option<String>,
}

impl Wanted {
    /// Checks the filters of a request.
    pub fn new(ask: &ReadEvents) -> Result<Wanted> {
        let kinds = ask.kind.iter().flat_map(|kinds| kinds.split(','));
        Ok(Wanted {
            project: Project::of_owner(&ask.owner),
            kinds: check_kinds(kinds)?,
            id: ask.id.clone(),
        })
    }

    /// Everything of these kinds on this host.
    pub fn of_kinds(kinds: &[String]) -> Result<Wanted> {
        Ok(Wanted {
            kinds: check_kinds(kinds.iter().map(String::as_str))?,
            ..Wanted::default()
        })
    }

    /// The one project whose events are wanted; everybody's when none is.
    pub fn project(&self) -> Option<&Project> {
        self.project.as_ref()
    }

    pub fn takes(&self, event: &Happened) -> bool {
        let theirs = |project: &Project| project.as_str() == event.project;
        let within = |kind: &String| {
            let rest = event.kind.strip_prefix(kind.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let named = |id: &String| match (&event.id, &self.project) {
            (Some(found), _) if found == id => true,
            // Ids that a caller of a project chose have the project before them.
            (Some(found), Some(project)) => *found == project.complete(id),
            _ => false,
        };
        self.project.as_ref().is_none_or(theirs)
            && (self.kinds.is_empty() || self.kinds.iter().any(within))
            && self.id.as_ref().is_none_or(named)
    }
}

fn check_kinds<'a>(kinds: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let known = |kind: &str| {
        EventKind::ALL.iter().any(|known| {
            let rest = known.as_str().strip_prefix(kind);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    kinds
        .map(|kind| match known(kind.trim()) {
            true => Ok(kind.trim().to_string()),
            false => {
                let shown: String = kind.chars().take(60).collect();
                Err(
                    Error::invalid(format!("{shown:?} is no kind of event")).hint(
                        "such as sandbox, sandbox.created or call.finished; docs/events.md has all of them",
                    ),
                )
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(owner: &str, kind: Option<&str>, id: Option<&str>) -> Wanted {
        let ask = ReadEvents {
            owner: owner.to_string(),
            kind: kind.map(str::to_string),
            id: id.map(str::to_string),
            ..ReadEvents::default()
        };
        Wanted::new(&ask).unwrap()
    }

    #[test]
    fn a_project_is_told_its_own_and_the_host_everything() {
        let theirs = Happened::now(EventKind::SandboxCreated, "project:acme").about("acme--a");
        let ours = Happened::now(EventKind::SandboxCreated, "uid:0").about("sb-1");
        assert_eq!(theirs.project, "acme");
        assert_eq!(ours.project, "local");
        let acme = wanted("project:acme", None, None);
        assert!(acme.takes(&theirs) && !acme.takes(&ours));
        let all = wanted("uid:0", None, None);
        assert!(all.takes(&theirs) && all.takes(&ours));
        assert!(wanted("project:acme", None, Some("a")).takes(&theirs));
        assert!(!wanted("uid:0", None, Some("a")).takes(&theirs));
    }

    #[test]
    fn kinds_are_whole_words() {
        let event = Happened::now(EventKind::SandboxCreated, "");
        for fits in ["sandbox", "sandbox.created", "call,sandbox"] {
            assert!(wanted("", Some(fits), None).takes(&event), "{fits}");
        }
        for other in ["sandbox.destroyed", "call.finished"] {
            assert!(!wanted("", Some(other), None).takes(&event), "{other}");
        }
        for wrong in ["sand", "sandbox.", "sandbox.create", "", "SANDBOX"] {
            let ask = ReadEvents {
                kind: Some(wrong.to_string()),
                ..ReadEvents::default()
            };
            assert!(Wanted::new(&ask).is_err(), "{wrong:?}");
        }
    }
}
