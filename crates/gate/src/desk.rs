//! The gate as a service: one caller, every verb.

use crate::{Caller, Gate};
use motu_core::Result;
use motu_core::exec::ExecSession;
use motu_core::files::{ByteStream, FileEntry, ReadFile};
use motu_core::runtime::Connection;
use motu_core::service::ProgressSink;
use motu_core::verb::{Carry, Changes, Value, Verb};

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

    async fn pass<V: Verb>(&self, call: V, extra: V::Extra) -> Result<V::Answer> {
        self.gate.call(&self.caller.again(), call, extra).await
    }
}

impl Carry for Desk {
    async fn value<V: Verb<Extra = (), Answer: Value>>(&self, call: V) -> Result<V::Answer> {
        self.pass(call, ()).await
    }

    async fn text<V: Verb<Extra = (), Answer = String>>(&self, call: V) -> Result<String> {
        self.pass(call, ()).await
    }

    async fn open<V: Verb<Extra = (), Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.pass(call, ()).await
    }

    async fn attach<V: Verb<Extra = (), Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.pass(call, ()).await
    }

    async fn bytes<V: Verb<Extra = (), Answer = ByteStream>>(&self, call: V) -> Result<ByteStream> {
        self.pass(call, ()).await
    }

    async fn file<V: Verb<Extra = (), Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(
        &self,
        call: V,
    ) -> Result<(FileEntry, ByteStream)> {
        self.pass(call, ()).await
    }

    async fn lines<V: Verb<Extra = (), Answer = Changes>>(&self, call: V) -> Result<Changes> {
        self.pass(call, ()).await
    }

    async fn dial<V: Verb<Extra = (), Answer = Connection>>(&self, call: V) -> Result<Connection> {
        self.pass(call, ()).await
    }

    async fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(
        &self,
        call: V,
        content: ByteStream,
    ) -> Result<V::Answer> {
        self.pass(call, content).await
    }

    async fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(
        &self,
        call: V,
        progress: ProgressSink,
    ) -> Result<V::Answer> {
        self.pass(call, progress).await
    }
}
