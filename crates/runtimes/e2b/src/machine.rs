//! One machine: created, found, paused, removed.
//!
//! A record is written before the service is asked for anything, with a name of ours that the
//! service stores as metadata. So a crash at any moment leaves enough to find the machine.

use crate::guest::{Guest, script};
use crate::keeper::Keeper;
use crate::limit;
use crate::record::Record;
use crate::settings::Service;
use crate::wire::{Control, Detail, Made, Order, Standing};
use motu_core::hint;
use motu_core::hint::field;
use motu_core::runtime::{Connection, Ended, Machine, MachineSpec};
use motu_core::{Error, ErrorKind, SandboxId};
use motu_peer::{Fates, PeerError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of our own name for a machine.
const NAME_CHARS: usize = 24;
/// How often a machine's status is polled.
const LOOK: Duration = Duration::from_secs(5);
/// Bytes in flight in each direction of a link.
const PIPE: usize = 256 * 1024;
/// Prints the default directory and the directory for temporary files.
const WHERE: &str = r#"pwd; echo "${TMPDIR:-/tmp}""#;
/// The oldest agent version with all calls that we use.
const OLDEST: [u64; 3] = [0, 5, 7];

/// Creates machines.
#[derive(Debug)]
pub(crate) struct Maker {
    pub(crate) service: Service,
    fates: Arc<Fates>,
    keeper: Keeper,
    guests: Mutex<HashMap<String, Arc<Guest>>>,
    /// Held while a guest is made: each machine has one.
    making: tokio::sync::Mutex<()>,
}

impl Maker {
    pub(crate) fn new(service: Service) -> Maker {
        Maker {
            service,
            fates: Arc::default(),
            keeper: Keeper::default(),
            guests: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }
    }

    fn control(&self) -> &Arc<Control> {
        &self.service.control
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<String, Arc<Guest>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, id: &str) {
        let timeout = self.service.timeout;
        self.keeper.keep(self.control(), &self.fates, id, timeout);
    }

    pub(crate) fn plan(&self, spec: &MachineSpec) -> Result<String, Error> {
        limit::check(&spec.limits)?;
        Ok(format!(
            "ask the service at {} for a machine from the template {:?}, without internet access\n\
             send its agent commands and files\n\
             give it {} s more again and again\n",
            self.service.url(),
            self.service.template(&spec.environment),
            self.service.timeout
        ))
    }

    pub(crate) async fn create(&self, spec: &MachineSpec) -> Result<Machine, Error> {
        limit::check(&spec.limits)?;
        if spec.network.is_some() || spec.kept.is_some() {
            return Err(Error::unsupported(
                "the e2b runtime has neither networks nor disks of its own",
            ));
        }
        let name = motu_core::id::random_name(NAME_CHARS);
        let record = Record::new(self.service.url(), name.clone());
        record.store(&spec.dir)?;
        let order = Order {
            template: self.service.template(&spec.environment),
            timeout: self.service.timeout,
            name,
            sandbox: spec.id.to_string(),
        };
        let made = match self.control().create(&order).await {
            Ok(made) => made,
            Err(error) => return Err(self.unmade(error, &order, &spec.dir).await),
        };
        let id = made.id.clone();
        match self.settle(spec, record, made).await {
            Ok(machine) => Ok(machine),
            Err(error) => {
                if let Err(left) = self.control().kill(&id).await {
                    tracing::warn!(id, error = %left, "removing an unusable machine at the service failed");
                }
                Err(error)
            }
        }
    }

    /// Handles a failed create: the service may have made a machine all the same.
    async fn unmade(&self, error: PeerError, order: &Order, dir: &Path) -> Error {
        if error.is_unknown() {
            if let Err(left) = self.kill_named(&order.name).await {
                tracing::warn!(name = order.name, error = %left, "the service may have made a machine");
            }
        } else {
            let _ = Record::remove(dir);
        }
        let missing = error.status() == Some(404);
        let error = Error::from(error);
        match missing {
            true => error.hint(hint![
                field("environment"),
                " names a template of the service, or a row of [e2b.templates] in config.toml"
            ]),
            false => error,
        }
    }

    /// Kills every machine with a name of ours.
    async fn kill_named(&self, name: &str) -> Result<(), PeerError> {
        for id in self.control().find(name).await? {
            self.control().kill(&id).await?;
        }
        Ok(())
    }

    /// Checks that the new machine is what was requested, and that it answers.
    async fn settle(
        &self,
        spec: &MachineSpec,
        mut record: Record,
        made: Made,
    ) -> Result<Machine, Error> {
        record.id = Some(made.id.clone());
        record.store(&spec.dir)?;
        if !is_new_enough(&made.envd_version) {
            return Err(Error::unsupported(format!(
                "the machine's agent is of version {:?}; 0.5.7 is the oldest that has every call",
                made.envd_version.chars().take(40).collect::<String>()
            )));
        }
        let detail = self.detail(&made.id).await?;
        if detail.allow_internet_access == Some(true) {
            return Err(Error::new(
                ErrorKind::Denied,
                "the service made a machine with internet access; none was asked for",
            ));
        }
        let agent = self.service.agent(&made.id)?;
        agent.admit(made.envd_access_token.as_deref())?;
        let done = script::run(&agent, "", ("/bin/sh", &["-c", WHERE])).await;
        let done = done.map_err(|reason| {
            Error::unavailable(format!("the new machine runs no command: {reason}"))
        })?;
        (record.workdir, record.tmp) = places(&done.out);
        record.store(&spec.dir)?;
        self.keep(&made.id);
        let remembered = serde_json::to_value(&record);
        Ok(Machine {
            id: spec.id.clone(),
            dir: spec.dir.clone(),
            limits: limit::report(&spec.limits, &detail),
            accelerator: None,
            record: remembered.map_err(|error| Error::internal(error.to_string()))?,
        })
    }

    async fn detail(&self, id: &str) -> Result<Detail, Error> {
        match self.control().detail(id).await? {
            Standing::There(detail) => Ok(*detail),
            Standing::Gone(reason) => Err(Error::unavailable(reason)),
        }
    }

    pub(crate) async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        let Some((record, id)) = self.known(machine)? else {
            return Err(Error::transport(format!("{} has no machine", machine.id)));
        };
        let guest = self.guest(&id, record, &machine.dir).await?;
        self.keep(&id);
        let (ours, theirs) = tokio::io::duplex(PIPE);
        tokio::spawn(guest.serve(theirs));
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    }

    /// The guest of a machine; a new one adopts what a previous daemon left.
    async fn guest(&self, id: &str, record: Record, dir: &Path) -> Result<Arc<Guest>, Error> {
        let _making = self.making.lock().await;
        if let Some(guest) = self.guests().get(id) {
            return Ok(guest.clone());
        }
        let detail = self.detail(id).await?;
        let mut token = detail.envd_access_token.clone();
        if token.is_none() && !detail.is_paused() {
            // Some services return the token only from `connect`.
            let made = self.control().connect(id, self.service.timeout).await?;
            token = made.envd_access_token;
        }
        let agent = self.service.agent(id)?;
        agent.admit(token.as_deref())?;
        let around = (self.control().clone(), self.fates.clone());
        let place = (id.to_string(), dir.to_path_buf());
        let guest = Guest::new(around, (agent, detail.envd_version.clone()), place, record);
        guest.set_paused(detail.is_paused());
        guest.take_up();
        self.guests().insert(id.to_string(), guest.clone());
        Ok(guest)
    }

    /// The record of a machine and its id at the service.
    fn known(&self, machine: &Machine) -> Result<Option<(Record, String)>, Error> {
        let record = match Record::load(&machine.dir)? {
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
        match record.url == self.service.url() {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "its machine is at {}; [e2b] api_url in config.toml is {} now",
                record.url,
                self.service.url()
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
        self.keep(&id);
        let mut fate = self.fates.watch(&id);
        loop {
            let told = async {
                let told = fate.wait_for(Option::is_some).await;
                told.ok().and_then(|why| why.clone())
            };
            if let Ok(reason) = tokio::time::timeout(LOOK, told).await {
                self.release(&id);
                let reason = reason.unwrap_or_else(|| "it was destroyed".to_string());
                return Ended { reason };
            }
            if let Ok(Standing::Gone(reason)) = self.control().detail(&id).await {
                self.fates.end(&id, &reason);
            }
        }
    }

    /// Whether a machine exists. Only an explicit answer means that it does not: an unreachable
    /// service may still have it.
    pub(crate) async fn alive(&self, machine: &Machine) -> bool {
        let standing = match self.known(machine) {
            Ok(Some((_, id))) => self.control().detail(&id).await.map_err(Error::from),
            Ok(None) => return false,
            Err(error) => Err(error),
        };
        match standing {
            Ok(Standing::There(_)) => true,
            Ok(Standing::Gone(_)) => false,
            Err(error) => {
                tracing::warn!(id = %machine.id, %error, "the state of the machine is unknown; it is assumed to be running");
                true
            }
        }
    }

    pub(crate) async fn pause(&self, machine: &Machine) -> Result<(), Error> {
        let id = self.id(machine)?;
        let guest = self.guests().get(&id).cloned();
        if let Some(guest) = &guest {
            guest.hold().await;
        }
        let paused = self.control().pause(&id).await;
        if let (Err(_), Some(guest)) = (&paused, &guest) {
            guest.let_go().await;
        }
        Ok(paused?)
    }

    pub(crate) async fn resume(&self, machine: &Machine) -> Result<(), Error> {
        let id = self.id(machine)?;
        let made = self.control().connect(&id, self.service.timeout).await?;
        let guest = self.guests().get(&id).cloned();
        if let Some(guest) = guest {
            if made.envd_access_token.is_some() {
                guest.envd.admit(made.envd_access_token.as_deref())?;
            }
            guest.let_go().await;
        }
        Ok(())
    }

    fn id(&self, machine: &Machine) -> Result<String, Error> {
        let known = self.known(machine)?;
        let known = known.map(|(_, id)| id);
        known.ok_or_else(|| Error::unavailable(format!("{} has no machine", machine.id)))
    }

    pub(crate) async fn destroy(&self, machine: &Machine) -> Result<(), Error> {
        match self.known(machine)? {
            Some((_, id)) => self.end(&id, &machine.dir).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn sweep(&self, _: &SandboxId, dir: &Path) -> Result<(), Error> {
        let Some(record) = Record::load(dir)? else {
            return Ok(());
        };
        self.same_service(&record)?;
        match record.id {
            Some(known) => self.end(&known, dir).await,
            None => {
                self.kill_named(&record.name).await?;
                Record::remove(dir)
            }
        }
    }

    async fn end(&self, id: &str, dir: &Path) -> Result<(), Error> {
        self.control().kill(id).await?;
        self.release(id);
        self.fates.forget(id);
        Record::remove(dir)
    }

    /// Drops the local state of a machine.
    fn release(&self, id: &str) {
        self.keeper.release(id);
        self.guests().remove(id);
    }
}

/// Parses the default directory and the one for temporary files.
fn places(said: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines();
    let mut next = |otherwise: &str| {
        let line = lines
            .next()
            .filter(|line| line.starts_with('/') && line.len() < 2048);
        let line = line.unwrap_or(otherwise).trim_end_matches('/');
        if line.is_empty() { "/" } else { line }.to_string()
    };
    (next("/"), next("/tmp"))
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || {
        let part = numbers.next().unwrap_or_default();
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse::<u64>().ok()
    };
    match (next(), next(), next()) {
        (Some(major), Some(minor), patch) => [major, minor, patch.unwrap_or(0)] >= OLDEST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_where_things_are() {
        let two = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(
            places(b"/home/user\n/var/tmp/\n"),
            two("/home/user", "/var/tmp")
        );
        assert_eq!(places(b"/\n"), two("/", "/tmp"));
        assert_eq!(places(b"rubbish"), two("/", "/tmp"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, enough) in [
            ("0.5.7", true),
            ("0.6.13", true),
            ("v1.0.0-rc", true),
            ("0.10.0", true),
            ("0.5.6", false),
            ("0.4", false),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version}");
        }
    }
}
