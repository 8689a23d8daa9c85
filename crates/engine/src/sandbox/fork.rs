//! Forks of a running sandbox.
//!
//! Every copy is entered into the table and stored before its machine is made. A crash at any point
//! leaves only rows in `creating`, which are undone together with their directories.

use super::Sandboxes;
use crate::admission::Admitted;
use crate::driver::{Keep, Launch, Origin, expiry};
use jiff::Timestamp;
use motu_core::event::{EventFacts, EventKind, Happened};
use motu_core::runtime::{Kept, Machine, MachineSpec};
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result, Runtime, SandboxId, limits};
use motu_egress::border::Border;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A copy that waits for its machine.
struct Waiting {
    spec: MachineSpec,
    written: oneshot::Receiver<()>,
    hand_over: oneshot::Sender<Machine>,
    answered: oneshot::Receiver<Result<Sandbox>>,
}

impl Sandboxes {
    pub(crate) async fn fork(&self, id: &SandboxId, count: u64) -> Result<Vec<Sandbox>> {
        let count = limits::FORK_COUNT.resolve(Some(count))?;
        let ids = (0..count).map(|_| SandboxId::generate()).collect();
        self.fork_as(id, ids).await
    }

    /// Makes copies with these ids, all or none.
    pub(crate) async fn fork_as(
        &self,
        id: &SandboxId,
        ids: Vec<SandboxId>,
    ) -> Result<Vec<Sandbox>> {
        let source = self.handle(id).await?;
        let (sandbox, launch) = (source.sandbox(), source.launch().await?);
        let runtime = self
            .runtimes
            .named(&sandbox.runtime)
            .cloned()
            .ok_or_else(|| Error::internal("its runtime is not in this build"))?;
        let border = crate::border::values(&self.shared.home, launch.border.as_ref()).await?;
        let mut waiting = Vec::new();
        for id in ids {
            let copy = self.await_copy(id, &sandbox, (&launch, border.clone()), &runtime);
            match copy.await {
                Ok(copy) => waiting.push(copy),
                Err(error) => return Err(give_up(waiting, error).await),
            }
        }
        for at in 0..waiting.len() {
            if (&mut waiting[at].written).await.is_err() {
                let cause = match waiting.swap_remove(at).answered.await {
                    Ok(Err(error)) => error,
                    _ => Error::internal("a copy was never written down"),
                };
                return Err(give_up(waiting, cause).await);
            }
        }
        let specs = waiting.iter().map(|copy| copy.spec.clone()).collect();
        match source.fork(specs).await {
            Ok(machines) if machines.len() == waiting.len() => {
                let copies = finish(waiting, machines).await?;
                self.tell_of_fork(&sandbox, &copies).await;
                Ok(copies)
            }
            Ok(_) => Err(give_up(waiting, Error::internal("a copy is missing")).await),
            Err(error) => Err(give_up(waiting, error).await),
        }
    }

    async fn tell_of_fork(&self, source: &Sandbox, copies: &[Sandbox]) {
        let ids = copies.iter().map(|copy| copy.sandbox_id.to_string());
        let event = Happened::now(EventKind::SandboxForked, &source.owner);
        let event = event.about(&source.sandbox_id).facts(EventFacts {
            copies: ids.collect(),
            ..EventFacts::default()
        });
        self.shared.store.tell(event).await;
    }

    async fn await_copy(
        &self,
        id: SandboxId,
        source: &Sandbox,
        (launch, border): (&Launch, Option<Border>),
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Waiting> {
        let now = Timestamp::now();
        let sandbox = Sandbox {
            sandbox_id: id.clone(),
            state: State::Creating,
            reason: None,
            paused: None,
            created_at: now,
            last_activity_at: now,
            expires_at: expiry(source.ttl_seconds),
            ..source.clone()
        };
        let mut launch = launch.clone();
        if let Some(kept) = &mut launch.kept {
            *kept = Kept {
                dir: self.shared.home.make_disks(&id)?,
                baseline: kept.baseline.clone(),
            };
        }
        let dir = self.shared.make_machine(runtime.name(), &id)?;
        let spec = launch.spec(id, dir, &self.shared.gateways, border.clone());
        let (tell, written) = oneshot::channel();
        let (hand_over, machine) = oneshot::channel();
        let admitted = Admitted {
            runtime: runtime.clone(),
            sandbox,
            launch,
            named: true,
        };
        let origin = Origin::Copy {
            written: tell,
            machine,
        };
        let (handle, answered) = self.enter(admitted, Keep::Stored, origin).await?;
        if let Some(border) = &border {
            handle.beyond().learn(border);
        }
        Ok(Waiting {
            spec,
            written,
            hand_over,
            answered,
        })
    }
}

async fn finish(waiting: Vec<Waiting>, machines: Vec<Machine>) -> Result<Vec<Sandbox>> {
    let mut answers = Vec::new();
    for (copy, machine) in waiting.into_iter().zip(machines) {
        let _ = copy.hand_over.send(machine);
        answers.push(copy.answered);
    }
    let mut sandboxes = Vec::new();
    for answer in answers {
        let answered = answer.await;
        sandboxes.push(answered.map_err(|_| Error::internal("a copy's driver stopped"))??);
    }
    Ok(sandboxes)
}

/// Makes every copy undo itself, and waits for that.
async fn give_up(waiting: Vec<Waiting>, error: Error) -> Error {
    for copy in waiting {
        drop(copy.hand_over);
        let _ = copy.answered.await;
    }
    error
}
