//! A service for tests: it writes down what it is asked, and answers as it was told to.

use super::{Nothing, Pass, Verb};
use crate::{Error, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One call as it came: its verb, the parts of its address and its request.
pub type Written = (&'static str, Vec<String>, Value);

type Told<V> =
    dyn Fn(V, <V as Verb>::Extra) -> BoxFuture<'static, Result<<V as Verb>::Answer>> + Send + Sync;

/// Knows no verb until it is told one.
#[derive(Clone, Default)]
pub struct Recorder {
    told: Arc<Mutex<HashMap<&'static str, Arc<dyn Any + Send + Sync>>>>,
    written: Arc<Mutex<Vec<Written>>>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Answers a verb like this from now on.
    pub fn on<V: Verb>(&self, answer: impl Fn(V) -> Result<V::Answer> + Send + Sync + 'static) {
        self.on_with::<V, _>(move |call, _| std::future::ready(answer(call)));
    }

    /// Answers a verb with this value from now on.
    pub fn always<V: Verb<Answer: Clone + Sync>>(&self, answer: V::Answer) {
        self.on::<V>(move |_| Ok(answer.clone()));
    }

    /// Answers a verb by a future, which also gets what cannot be written down (sinks, streams).
    pub fn on_with<V: Verb, F>(&self, answer: impl Fn(V, V::Extra) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<V::Answer>> + Send + 'static,
    {
        let told: Box<Told<V>> = Box::new(move |call, extra| answer(call, extra).boxed());
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(V::INFO.name, Arc::new(told));
    }

    /// Everything that was asked, oldest first.
    pub fn written(&self) -> Vec<Written> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.clone()
    }

    /// What was asked since the last time, oldest first; it is forgotten.
    pub fn take(&self) -> Vec<Written> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut written)
    }

    /// The requests of one verb, oldest first.
    pub fn asked<V: Verb>(&self) -> Vec<Value> {
        let all = self.written().into_iter();
        all.filter(|(name, _, _)| *name == V::INFO.name)
            .map(|(_, _, ask)| ask)
            .collect()
    }

    fn write<V: Verb>(&self, call: &V) {
        let nothing = std::any::TypeId::of::<V::Ask>() == std::any::TypeId::of::<Nothing>();
        let ask = match nothing {
            true => Value::Null,
            false => serde_json::to_value(call.ask()).unwrap_or(Value::Null),
        };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.push((V::INFO.name, call.parts(), ask));
    }

    fn told<V: Verb>(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(V::INFO.name).cloned()
    }
}

impl Pass for Recorder {
    async fn pass<V: Verb>(&self, call: V, extra: V::Extra) -> Result<V::Answer> {
        self.write(&call);
        let told = self.told::<V>();
        match told
            .as_ref()
            .and_then(|it| it.downcast_ref::<Box<Told<V>>>())
        {
            Some(answer) => answer(call, extra).await,
            None => Err(Error::unsupported(format!(
                "nobody has told this service what to answer to {}",
                V::INFO.name
            ))),
        }
    }
}
