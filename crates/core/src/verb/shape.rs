//! How calls of each shape travel, and a walk over all of them.

use super::Verb;
use crate::Result;
use crate::exec::ExecSession;
use crate::files::{ByteStream, FileChange, FileEntry, ReadFile};
use crate::report::ProgressSink;
use crate::runtime::Connection;
use futures_util::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An answer that is one JSON value.
pub trait Value: Serialize + DeserializeOwned + utoipa::ToSchema + Send + 'static {}

impl<T: Serialize + DeserializeOwned + utoipa::ToSchema + Send + 'static> Value for T {}

/// Changes as they happen.
pub type Changes = BoxStream<'static, Result<FileChange>>;

type Plain = ();

/// Takes calls somewhere else. Whoever does is a [`crate::Service`].
pub trait Carry: Send + Sync + 'static {
    fn value<V: Verb<Extra = Plain, Answer: Value>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<V::Answer>> + Send;

    fn text<V: Verb<Extra = Plain, Answer = String>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<String>> + Send;

    fn open<V: Verb<Extra = Plain, Answer = ExecSession>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<ExecSession>> + Send;

    fn attach<V: Verb<Extra = Plain, Answer = ExecSession>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<ExecSession>> + Send;

    fn bytes<V: Verb<Extra = Plain, Answer = ByteStream>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<ByteStream>> + Send;

    fn file<V: Verb<Extra = Plain, Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<(FileEntry, ByteStream)>> + Send;

    fn lines<V: Verb<Extra = Plain, Answer = Changes>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<Changes>> + Send;

    fn dial<V: Verb<Extra = Plain, Answer = Connection>>(
        &self,
        call: V,
    ) -> impl Future<Output = Result<Connection>> + Send;

    fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(
        &self,
        call: V,
        content: ByteStream,
    ) -> impl Future<Output = Result<V::Answer>> + Send;

    fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(
        &self,
        call: V,
        progress: ProgressSink,
    ) -> impl Future<Output = Result<V::Answer>> + Send;
}

/// A carrier that does the same with every call, whatever its shape.
pub trait Pass: Send + Sync + 'static {
    fn pass<V: Verb>(
        &self,
        call: V,
        extra: V::Extra,
    ) -> impl Future<Output = Result<V::Answer>> + Send;
}

impl<P: Pass> Carry for P {
    async fn value<V: Verb<Extra = Plain, Answer: Value>>(&self, call: V) -> Result<V::Answer> {
        self.pass(call, ()).await
    }

    async fn text<V: Verb<Extra = Plain, Answer = String>>(&self, call: V) -> Result<String> {
        self.pass(call, ()).await
    }

    async fn open<V: Verb<Extra = Plain, Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.pass(call, ()).await
    }

    async fn attach<V: Verb<Extra = Plain, Answer = ExecSession>>(
        &self,
        call: V,
    ) -> Result<ExecSession> {
        self.pass(call, ()).await
    }

    async fn bytes<V: Verb<Extra = Plain, Answer = ByteStream>>(
        &self,
        call: V,
    ) -> Result<ByteStream> {
        self.pass(call, ()).await
    }

    async fn file<V: Verb<Extra = Plain, Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(
        &self,
        call: V,
    ) -> Result<(FileEntry, ByteStream)> {
        self.pass(call, ()).await
    }

    async fn lines<V: Verb<Extra = Plain, Answer = Changes>>(&self, call: V) -> Result<Changes> {
        self.pass(call, ()).await
    }

    async fn dial<V: Verb<Extra = Plain, Answer = Connection>>(
        &self,
        call: V,
    ) -> Result<Connection> {
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

/// Looks at every verb in turn, by its shape.
pub trait Visit {
    fn value<V: Verb<Extra = Plain, Answer: Value>>(&mut self);
    fn text<V: Verb<Extra = Plain, Answer = String>>(&mut self);
    fn open<V: Verb<Extra = Plain, Answer = ExecSession>>(&mut self);
    fn attach<V: Verb<Extra = Plain, Answer = ExecSession>>(&mut self);
    fn bytes<V: Verb<Extra = Plain, Answer = ByteStream>>(&mut self);
    fn file<V: Verb<Extra = Plain, Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(&mut self);
    fn lines<V: Verb<Extra = Plain, Answer = Changes>>(&mut self);
    fn dial<V: Verb<Extra = Plain, Answer = Connection>>(&mut self);
    fn upload<V: Verb<Extra = ByteStream, Answer: Value>>(&mut self);
    fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(&mut self);
}
