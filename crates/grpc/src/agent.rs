//! The service on behalf of one caller, through the gate.

use crate::naps::Naps;
use motu_core::Result;
use motu_core::config::GrpcConfig;
use motu_core::verb::{Pass, Verb};
use motu_gate::{Caller, Gate, Who};
use std::sync::Arc;

/// Answers the calls of one request. It implements all verbs by passing calls to the gate.
#[derive(Clone, Debug)]
pub struct Agent {
    gate: Gate,
    caller: Caller,
    pub config: Arc<GrpcConfig>,
    pub naps: Arc<Naps>,
}

impl Agent {
    pub fn new(gate: Gate, caller: Caller, config: Arc<GrpcConfig>, naps: Arc<Naps>) -> Agent {
        Agent {
            gate,
            caller,
            config,
            naps,
        }
    }

    /// The caller's name, with which sandboxes are marked.
    pub fn owner(&self) -> String {
        self.caller.who.owner()
    }
}

impl Agent {
    /// Whether the caller is the operator: a user of the socket, or a control plane with a
    /// certificate that the operator's authority signed.
    pub fn speaks_for_the_host(&self) -> bool {
        matches!(self.caller.who, Who::Local { .. } | Who::Remote)
    }
}

impl Pass for Agent {
    async fn pass<V: Verb>(&self, call: V, extra: V::Extra) -> Result<V::Answer> {
        let ticket = self.caller.ticket.clone();
        let caller = self.caller.again().with_ticket(ticket);
        self.gate.call(&caller, call, extra).await
    }
}
