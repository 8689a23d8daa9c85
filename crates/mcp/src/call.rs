//! One call of a tool: who asked, how long ago, and whether anybody still waits.

use crate::Shared;
use crate::arguments::Arguments;
use motu_core::call::CallRequest;
use motu_core::verb::{self, Ask as _, Verb as _};
use motu_core::{Error, Result, TerminalId, Verbs};
use rmcp::model::{InputRequiredResult, InputResponses, ProtocolVersion};
use rmcp::service::{RequestContext, RoleServer};
use std::sync::Arc;

/// Why a call has no answer of its own.
pub enum Stop {
    Failed(Error),
    /// The client must bring a person's answer first.
    Ask(Box<InputRequiredResult>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What came back with a call that was made again.
#[derive(Debug, Default)]
pub struct Retry {
    pub state: Option<String>,
    pub responses: Option<InputResponses>,
    /// What the note is bound to.
    pub binding: Vec<u8>,
}

/// Whether the server may not send requests of its own.
pub fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// What a tool may use while it runs. Dropped with its future when the caller gives up.
pub struct Call {
    pub shared: Arc<Shared>,
    pub(crate) context: RequestContext<RoleServer>,
    pub(crate) retry: Retry,
}

impl Call {
    pub fn service(&self) -> &dyn Verbs {
        &*self.shared.service
    }

    /// The error of a request that cannot be read. A typed call is made all the same: it fails with
    /// what is wrong, is recorded, and its error says where.
    pub async fn unread(&self, verb: &str, error: Error) -> Error {
        let misread = CallRequest::misread(&error);
        let Some(request) = misread.filter(|_| verb == verb::Call::INFO.name) else {
            return error;
        };
        let request = CallRequest {
            policy: self.shared.options.policy.clone(),
            ..request
        };
        self.service().call(request).await.err().unwrap_or(error)
    }

    /// The session that a name means here: this server's own, unless it was asked to share it.
    pub fn session(&self, arguments: &Arguments) -> Result<TerminalId> {
        let name = arguments.terminal()?;
        match &self.shared.options.scope {
            Some(scope) if !self.shared.names.is_shared(name.as_str()) => {
                TerminalId::parse(&format!("{name}@{scope}"))
            }
            _ => Ok(name),
        }
    }

    /// From now on a name means the session that everybody calls so.
    pub fn share(&self, arguments: &Arguments) {
        if self.shared.options.scope.is_some() {
            let name = arguments.text_or("session_id", "");
            self.shared.names.share(name);
        }
    }

    /// What a session is called here.
    pub fn name_of(&self, id: &str) -> String {
        self.shared.own_name(id).unwrap_or(id).to_string()
    }

    /// Whether a session is this server's, or was asked for by its name.
    pub fn is_own(&self, id: &str) -> bool {
        self.shared.options.scope.is_none()
            || self.shared.own_name(id).is_some()
            || self.shared.names.is_shared(id)
    }

    /// Whether a session has one of this server's own names, which no other server has meanwhile.
    pub fn has_own_name(&self, id: &TerminalId) -> bool {
        self.shared.own_name(id.as_str()).is_some()
    }

    /// Whether this server may end a session without a person's approval: whoever opened it can end
    /// it by what they type, too.
    pub fn may_end(&self, id: &TerminalId) -> bool {
        self.has_own_name(id) || self.shared.names.has_opened(id)
    }

    /// Work that is done even when nobody waits for this call any more.
    pub fn chore(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.shared.chores.spawn(work);
    }

    /// The client's first root that is a path of this host, if it tells its roots. Only
    /// revisions before 2026-07-28 can be asked.
    #[expect(
        deprecated,
        reason = "older clients tell their directory in no other way"
    )]
    pub async fn root(&self) -> Option<String> {
        let asks = self.context.client_capabilities()?.roots.is_some();
        if !asks || is_stateless(&self.context) {
            return None;
        }
        #[expect(
            deprecated,
            reason = "older clients tell their directory in no other way"
        )]
        let roots = self.context.peer.list_roots().await.ok()?.roots;
        roots.iter().find_map(|root| {
            let path = root.uri.strip_prefix("file://")?;
            let path = &path[path.find('/')?..];
            let path = percent_encoding::percent_decode_str(path).decode_utf8();
            path.ok().map(|path| path.into_owned())
        })
    }
}
