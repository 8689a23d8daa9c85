//! Published ports: listeners on the host that lead into a machine.
//!
//! The guest dials the port, so the machine needs no network device.

use crate::driver::Handle;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::workspace::{NetworkPolicy, Publish, PublishedPort};
use motu_core::{Error, ErrorKind, Result, limits};
use motu_link::message as link;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LOOPBACK: &str = "127.0.0.1";
/// Ports below this are reserved for the host.
const FIRST_PORT: u16 = 1024;
/// How often a port is tried that somebody else has.
const AGAIN: Duration = Duration::from_secs(1);
/// Buffer of one connection per direction.
const BUFFER: usize = 256 * 1024;

/// A bound listener that does not accept yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    port: PublishedPort,
}

/// The ports of one service: those that are open, and those that somebody else has.
#[derive(Debug, Default)]
pub struct Ports(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Vec<JoinHandle<()>>,
    missing: Vec<PublishedPort>,
    /// Tries to bind those that are missing.
    again: Option<JoinHandle<()>>,
}

impl Ports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Host ports that are somebody else's now.
    pub fn missing(&self) -> Vec<u16> {
        let state = self.state();
        state.missing.iter().map(|port| port.host_port).collect()
    }

    /// Starts accepting connections.
    pub fn open(&self, bound: Vec<Bound>, handle: &Arc<Handle>) {
        let mut state = self.state();
        for bound in bound {
            let accepting = tokio::spawn(accept(bound, handle.clone()));
            state.open.push(accepting);
        }
    }

    /// Opens ports that a service had before. One that somebody else took meanwhile is missing until
    /// it is free again.
    pub async fn open_again(self: &Arc<Self>, wanted: Vec<PublishedPort>, handle: &Arc<Handle>) {
        let missing = self.try_to_open(wanted, handle).await;
        if missing.is_empty() {
            return;
        }
        let (ports, handle) = (self.clone(), handle.clone());
        let mut state = self.state();
        state.missing = missing;
        state.again = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let wanted = ports.state().missing.clone();
                let missing = ports.try_to_open(wanted, &handle).await;
                let over = missing.is_empty();
                ports.state().missing = missing;
                if over {
                    return;
                }
            }
        }));
    }

    /// Opens those that can be; returns the others.
    async fn try_to_open(
        &self,
        wanted: Vec<PublishedPort>,
        handle: &Arc<Handle>,
    ) -> Vec<PublishedPort> {
        let mut missing = Vec::new();
        for port in wanted {
            let publish = Publish {
                guest_port: port.guest_port,
                host_port: Some(port.host_port),
            };
            match bind_one(publish).await {
                Ok(bound) => self.open(vec![bound], handle),
                Err(error) => {
                    tracing::debug!(port = port.host_port, %error, "a published port cannot be opened again yet");
                    missing.push(port);
                }
            }
        }
        missing
    }

    /// Closes all of them; they can be bound when this returns.
    pub async fn close(&self) {
        let (again, open) = {
            let mut state = self.state();
            state.missing.clear();
            (state.again.take(), std::mem::take(&mut state.open))
        };
        // It may be opening one more.
        ended(again).await;
        let more = std::mem::take(&mut self.state().open);
        ended(open.into_iter().chain(more)).await;
        self.state().missing.clear();
    }
}

async fn ended(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        // Its listener is closed when it has ended.
        let _ = task.await;
    }
}

/// Why a port is not open that a service had.
pub fn taken_meanwhile(port: u16) -> String {
    format!(
        "port {port} of {LOOPBACK} was taken by another program; it is published again when it is free"
    )
}

/// Binds every port, or none.
pub async fn bind(wanted: &[Publish], policy: NetworkPolicy) -> Result<Vec<Bound>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    if policy != NetworkPolicy::EgressPublishedPorts {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("the network policy of this workspace is {policy}: it publishes no ports"),
        )
        .hint(hint![
            "create it with ",
            field("network_policy")
                .is("egress+published-ports")
                .of("create_workspace")
        ]));
    }
    let most = limits::PUBLISHED_PORTS;
    if wanted.len() as u64 > most.max {
        return Err(Error::limit(format!(
            "{} ports; {} allows {}",
            wanted.len(),
            most.name,
            most.max
        )));
    }
    let mut bound = Vec::new();
    for publish in wanted {
        bound.push(bind_one(*publish).await?);
    }
    Ok(bound)
}

async fn bind_one(publish: Publish) -> Result<Bound> {
    let host_port = publish.host_port.unwrap_or(0);
    if publish.guest_port == 0 {
        return Err(Error::invalid("guest port 0 is not a port"));
    }
    if publish.host_port.is_some() && host_port < FIRST_PORT {
        return Err(
            Error::invalid(format!("host port {host_port} is below {FIRST_PORT}"))
                .hint("choose one from 1024 to 65535, or leave it out"),
        );
    }
    let listener = TcpListener::bind((LOOPBACK, host_port))
        .await
        .map_err(|error| {
            if error.kind() == std::io::ErrorKind::AddrInUse {
                Error::conflict(format!("port {host_port} of {LOOPBACK} is in use"))
                    .hint("choose another host port, or leave it out")
                    .details(serde_json::json!({ "host_port": host_port }))
            } else {
                Error::io("cannot publish a port", &error)
            }
        })?;
    let local = listener
        .local_addr()
        .map_err(|error| Error::io("cannot publish a port", &error))?;
    Ok(Bound {
        listener,
        port: PublishedPort {
            guest_port: publish.guest_port,
            host: LOOPBACK.to_string(),
            host_port: local.port(),
        },
    })
}

impl Bound {
    pub fn port(&self) -> PublishedPort {
        self.port.clone()
    }
}

async fn accept(bound: Bound, handle: Arc<Handle>) {
    let mut callers = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = bound.listener.accept() => match accepted {
                Ok((caller, _)) => {
                    callers.spawn(carry(caller, bound.port.guest_port, handle.clone()));
                }
                Err(error) => {
                    // Probably out of file descriptors: wait until a connection ends, here or
                    // elsewhere. The port stays open.
                    tracing::warn!(%error, "could not accept a connection on a published port");
                    let _ = tokio::time::timeout(AGAIN, callers.join_next()).await;
                    if callers.is_empty() {
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            },
            Some(_) = callers.join_next() => {}
        }
    }
}

async fn carry(mut caller: TcpStream, port: u16, handle: Arc<Handle>) {
    let _ = caller.set_nodelay(true);
    let Ok(guest) = handle.guest() else { return };
    let dial = link::Dial {
        port: port.into(),
        unix: bytes::Bytes::new(),
    };
    match guest.dial(dial).await {
        Ok(connection) => {
            let mut inside = tokio::io::join(connection.read, connection.write);
            let carried =
                tokio::io::copy_bidirectional_with_sizes(&mut caller, &mut inside, BUFFER, BUFFER);
            let _ = carried.await;
        }
        Err(error) => tracing::debug!(port, %error, "could not connect to the port in the machine"),
    }
}
