//! What a call is made of: the parts of its address, and what the caller says.

use crate::bounds::Bounds;
use crate::leave::HostPath;
use crate::page::Page;
use crate::project::Project;
use crate::{Error, Result, SandboxId, form};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request of a verb. Most need nothing more than to be one.
pub trait Ask:
    Serialize + DeserializeOwned + utoipa::ToSchema + std::fmt::Debug + Send + Sync + 'static
{
    /// Fields that are paths inside a machine: text, or base64 in a field of the same name with
    /// `_base64` when they are not UTF-8.
    const GUEST_PATHS: &'static [&'static str] = &[];
    /// Whether it carries whole texts, which JSON may make several times as long.
    const LONG: bool = false;

    /// The fields of this request that name paths of the host.
    fn host_paths(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The paths of the host among those fields, for a caller who may name only some: one of those
    /// fields that is not here is refused to it.
    fn places(&mut self) -> Vec<HostPath<'_>> {
        Vec::new()
    }

    /// Says whose the things are that this request makes.
    fn belongs_to(&mut self, _owner: &str) {}

    /// Says what the machines may be that this request makes or changes.
    fn bounded(&mut self, _bounds: &Bounds) {}

    /// Completes the names in this request that are those of a project, for a caller who sees only
    /// that one.
    fn within(&mut self, _project: &Project) -> Result<()> {
        Ok(())
    }

    /// The sandboxes that this request names beside its address.
    fn sandboxes(&mut self) -> Vec<&mut SandboxId> {
        Vec::new()
    }

    /// The terminal session that this request names beside its address.
    fn terminal(&self) -> Option<&str> {
        None
    }

    /// The environments that machines of this request start from.
    fn environments(&mut self) -> Vec<&mut String> {
        Vec::new()
    }

    /// Which part of a list it asks for.
    fn page(&self) -> Page {
        Page::default()
    }

    /// Whether it asks for the host itself.
    fn wants_host(&self) -> bool {
        false
    }

    /// A request that fails with this error, which says why a face could not read what it was
    /// given. Only for verbs whose failures are all recorded.
    fn misread(_: &Error) -> Option<Self> {
        None
    }

    /// Completes the error of a call that failed with what its verb promises of errors.
    fn failed(error: Error) -> Error {
        error
    }
}

/// The request of a verb that needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl Ask for Nothing {}

impl Ask for Page {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn page(&self) -> Page {
        self.clone()
    }
}

/// One part of an address, such as an id.
pub trait Part: ToOwned {
    /// The form of its text, for documents.
    const FORM: &'static str = form::NAME;

    fn text(part: &Self::Owned) -> String;
    fn read(text: &str) -> Result<Self::Owned>;
    /// Completes a name of a project, for a caller who sees only that one. The family of the verb
    /// says what it is the name of.
    fn within(_: &mut Self::Owned, _family: &str, _: &Project) -> Result<()> {
        Ok(())
    }

    /// The part, if it is a name.
    fn name(_: &mut Self::Owned) -> Option<&mut String> {
        None
    }

    /// The part, if it is a sandbox.
    fn sandbox(_: &mut Self::Owned) -> Option<&mut SandboxId> {
        None
    }
}

impl Part for SandboxId {
    const FORM: &'static str = form::SANDBOX_ID;

    fn text(part: &SandboxId) -> String {
        part.to_string()
    }

    fn read(text: &str) -> Result<SandboxId> {
        SandboxId::parse(text)
    }

    fn sandbox(part: &mut SandboxId) -> Option<&mut SandboxId> {
        Some(part)
    }
}

/// A name: of an environment, a snapshot, a service, a shell.
impl Part for str {
    fn text(part: &String) -> String {
        part.clone()
    }

    fn read(text: &str) -> Result<String> {
        match text {
            "" => Err(Error::invalid("the name is empty")),
            name => Ok(name.to_string()),
        }
    }

    fn name(part: &mut String) -> Option<&mut String> {
        Some(part)
    }

    fn within(part: &mut String, family: &str, project: &Project) -> Result<()> {
        if ["templates", "secrets"].contains(&family) {
            project.complete_name(part);
        }
        Ok(())
    }
}

/// A TCP port.
impl Part for u16 {
    const FORM: &'static str = form::PORT;

    fn text(part: &u16) -> String {
        part.to_string()
    }

    fn read(text: &str) -> Result<u16> {
        match text.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(Error::invalid("a port is a number from 1 to 65535")),
        }
    }
}
