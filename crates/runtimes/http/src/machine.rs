//! One machine: created, found, removed.
//!
//! A record is written before the service is asked for anything. If callers choose ids, a crash at
//! any moment leaves enough to destroy the machine; otherwise a crash between request and answer
//! leaves a machine at the service that only its operator can find, by `metadata`.

use crate::guest::{self, Guest};
use crate::limit;
use crate::record::Record;
use crate::wire::{Offer, Peer, Spawn, Spawned, Standing};
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::runtime::{Connection, Ended, Machine, MachineSpec};
use motu_core::{Error, ErrorKind, Isolation, SandboxId};
use motu_peer::{Fates, PeerError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Characters of an id that we choose, after the prefix.
const ID_CHARS: usize = 16;
/// How often a machine's status is polled.
const LOOK: Duration = Duration::from_secs(5);
/// Bytes in flight in each direction of a link.
const PIPE: usize = 256 * 1024;
/// How long the first command of a new machine may take.
const FIRST: Duration = Duration::from_secs(60);

/// Creates machines.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) peer: Arc<Peer>,
    pub(crate) fates: Arc<Fates>,
    /// What the service reported last.
    offer: Mutex<Arc<Offer>>,
}

impl Maker {
    pub(crate) fn new(peer: Peer) -> Maker {
        Maker {
            peer: Arc::new(peer),
            fates: Arc::default(),
            offer: Mutex::default(),
        }
    }

    pub(crate) fn offer(&self) -> Arc<Offer> {
        let offer = self.offer.lock();
        offer
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// Asks the service for its features and remembers them.
    pub(crate) async fn ask(&self) -> Result<Arc<Offer>, PeerError> {
        let found = Arc::new(self.peer.health().await?);
        let mut offer = self
            .offer
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        *offer = found.clone();
        Ok(found)
    }

    fn url(&self) -> String {
        self.peer.connections.address.to_string()
    }

    pub(crate) fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        limit::check(&spec.limits)?;
        Ok(format!(
            "ask the service at {} for a machine from the image {:?}\n\
             send it commands and files through that service\n",
            self.url(),
            spec.environment
        ))
    }

    pub(crate) async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        limit::check(&spec.limits)?;
        if spec.network.is_some() || spec.kept.is_some() {
            return Err(Error::unsupported(
                "the http runtime has neither networks nor disks of its own",
            ));
        }
        let promised = self.offer().isolation;
        let offer = self.ask().await?;
        let prefix = offer.id_prefix.as_deref().filter(|_| offer.has("spawn_id"));
        let chosen = prefix.map(|prefix| {
            let name = motu_core::id::random_name(ID_CHARS);
            format!("{prefix}{name}")
        });
        let record = Record::new(self.url(), chosen.clone());
        record.store(&spec.dir)?;
        let mut spawn = Spawn {
            image: spec.environment.clone(),
            metadata: BTreeMap::from([("motu_sandbox".to_string(), spec.id.to_string())]),
            id: chosen.clone(),
            ..Spawn::default()
        };
        limit::ask(&spec.limits, &offer, &mut spawn);
        let made = match self.peer.spawn(&spawn).await {
            Ok(made) => made,
            Err(error) => return Err(self.unmade(error, chosen, spec).await),
        };
        let id = made.id.clone();
        match self.settle(spec, record, made, promised).await {
            Ok(machine) => Ok(machine),
            Err(error) => {
                if let Err(left) = self.peer.destroy(&id).await {
                    tracing::warn!(id, error = %left, "removing an unusable machine at the service failed");
                }
                Err(error)
            }
        }
    }

    /// Handles a failed create: the service may have made a machine all the same.
    async fn unmade(&self, error: PeerError, chosen: Option<String>, spec: &MachineSpec) -> Error {
        match chosen {
            Some(id) if error.is_unknown() => {
                if let Err(left) = self.peer.destroy(&id).await {
                    tracing::warn!(id, error = %left, "the service may have made a machine");
                }
            }
            None if error.is_unknown() => {
                tracing::warn!(id = %spec.id, "the service may have made a machine whose id is unknown");
            }
            _ => {
                let _ = Record::remove(&spec.dir);
            }
        }
        let missing = matches!(&error, PeerError::Refused { refusal, .. }
            if refusal.status == 404 || refusal.code == "IMAGE_NOT_FOUND");
        let error = Error::from(error);
        match missing {
            true => Error {
                kind: ErrorKind::NotFound,
                ..error
            }
            .hint(hint![
                field("environment"),
                " names an image of the service"
            ]),
            false => error,
        }
    }

    /// Checks that the new machine is what was requested, and that it answers.
    async fn settle(
        &self,
        spec: &MachineSpec,
        mut record: Record,
        made: Spawned,
        promised: Option<Isolation>,
    ) -> Result<Machine, Error> {
        record.id = Some(made.id.clone());
        record.store(&spec.dir)?;
        let offer = self.offer();
        let said = made.isolation.or(offer.isolation);
        // The caller was promised what the service had reported before.
        if said.unwrap_or(Isolation::None) < promised.unwrap_or(Isolation::None) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "the service made a machine with {} isolation; it had said {}",
                    said.unwrap_or(Isolation::None),
                    promised.unwrap_or(Isolation::None)
                ),
            )
            .hint(hint![verb("doctor"), " asks it again"]));
        }
        let directory = guest::probe(&self.peer, &made.id, "pwd", FIRST).await;
        let directory = directory.map_err(|reason| {
            Error::unavailable(format!("the new machine runs no command: {reason}"))
        })?;
        record.workdir = workdir(&directory.stdout);
        record.store(&spec.dir)?;
        let remembered = serde_json::to_value(&record);
        Ok(Machine {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits: limit::report(&spec.limits, &made.limits),
            accelerator: None,
            record: remembered.map_err(|error| Error::internal(error.to_string()))?,
        })
    }

    pub(crate) async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        let Some((record, id)) = self.known(machine)? else {
            return Err(Error::transport(format!("{} has no machine", machine.id)));
        };
        // The service may have been updated since.
        let offer = self.ask().await?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let around = (self.peer.clone(), offer, self.fates.clone());
        let guest = Guest::new(around, id, machine.dir.clone(), record);
        tokio::spawn(guest.serve(theirs));
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    }

    /// The record of a machine and its id at the service.
    fn known(&self, machine: &Machine) -> Result<Option<(Record, String)>, Error> {
        let written = Record::load(&machine.dir)?;
        let record = match written {
            Some(record) => record,
            // The record from its creation.
            None => match serde_json::from_value(machine.record.clone()) {
                Ok(record) => record,
                Err(_) => return Ok(None),
            },
        };
        self.same_service(&record)?;
        Ok(record.id.clone().map(|id| (record, id)))
    }

    /// Another service does not know this machine, or has another one with its id.
    fn same_service(&self, record: &Record) -> Result<(), Error> {
        match record.url == self.url() {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "its machine is at {}; [http] url in config.toml is {} now",
                record.url,
                self.url()
            ))
            .hint("set the url back to reach it, or to be able to remove it")),
        }
    }

    /// Waits for a machine's end. An unreachable service does not count as one.
    pub(crate) async fn ended(&self, machine: &Machine) -> Ended {
        let id = match self.known(machine) {
            Ok(Some((_, id))) => id,
            Ok(None) => {
                let reason = "nothing is known of its machine".to_string();
                return Ended { reason };
            }
            Err(error) => {
                tracing::warn!(id = %machine.id, %error, "watching a machine failed");
                return std::future::pending().await;
            }
        };
        let mut fate = self.fates.watch(&id);
        loop {
            let told = async {
                let told = fate.wait_for(Option::is_some).await;
                told.ok().and_then(|why| why.clone())
            };
            if let Ok(reason) = tokio::time::timeout(LOOK, told).await {
                let reason = reason.unwrap_or_else(|| "it was destroyed".to_string());
                return Ended { reason };
            }
            if let Ok(Standing::Gone(reason)) = self.peer.status(&id).await {
                self.fates.end(&id, &reason);
            }
        }
    }

    /// Whether a machine exists. Only an explicit answer means that it does not: an unreachable
    /// service may still have it.
    pub(crate) async fn alive(&self, machine: &Machine) -> bool {
        match self.known(machine) {
            Ok(Some((_, id))) => match self.peer.status(&id).await {
                Ok(standing) => standing == Standing::There,
                Err(error) => {
                    tracing::warn!(id = %machine.id, %error, "the state of the machine is unknown; it is assumed to be running");
                    true
                }
            },
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(id = %machine.id, %error, "the state of the machine is unknown; it is assumed to be running");
                true
            }
        }
    }

    pub(crate) async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        match self.known(machine)? {
            Some((_, id)) => self.end(&id, &machine.dir).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn sweep(&self, id: &SandboxId, dir: &Path) -> Result<(), Error> {
        let Some(record) = Record::load(dir)? else {
            return Ok(());
        };
        self.same_service(&record)?;
        match record.id {
            Some(known) => self.end(&known, dir).await,
            None => {
                tracing::warn!(%id, "a machine may remain at the service: its id was never received");
                Record::remove(dir)
            }
        }
    }

    async fn end(&self, id: &str, dir: &Path) -> Result<(), Error> {
        self.peer.destroy(id).await?;
        self.fates.forget(id);
        Record::remove(dir)
    }
}

/// The working directory that a command reported.
fn workdir(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().next().unwrap_or_default();
    match line.starts_with('/') && line.len() < 4096 {
        true => line.to_string(),
        false => "/".to_string(),
    }
}
