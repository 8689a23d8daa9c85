//! One call of a tool: who asked, how long ago, and whether anybody still waits.

use crate::Shared;
use crate::approve::Retry;
use motu_core::{Error, Service};
use rmcp::model::InputRequiredResult;
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

/// What a tool may use while it runs. Dropped with its future when the caller gives up.
pub struct Call {
    pub shared: Arc<Shared>,
    pub(crate) context: RequestContext<RoleServer>,
    pub(crate) retry: Retry,
}

impl Call {
    pub fn service(&self) -> &dyn Service {
        &*self.shared.service
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
        if !asks || crate::approve::is_stateless(&self.context) {
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
