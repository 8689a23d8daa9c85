//! The gate as a service: one caller, every verb.

use crate::{Caller, Gate};
use motu_core::Result;
use motu_core::verb::{Pass, Verb};

/// A gate with one caller before it.
#[derive(Clone, Debug)]
pub struct Desk {
    gate: Gate,
    caller: Caller,
}

impl Desk {
    pub(crate) fn new(gate: Gate, caller: Caller) -> Desk {
        Desk { gate, caller }
    }
}

impl Pass for Desk {
    async fn pass<V: Verb>(&self, call: V, extra: V::Extra) -> Result<V::Answer> {
        self.gate.call(&self.caller.again(), call, extra).await
    }
}
