//! Published ports: listeners on the host that lead into a machine.
//!
//! The guest dials the port, so the machine needs no network device.

use crate::driver::Handle;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::workspace::{NetworkPolicy, Publish, PublishedPort};
use motu_core::{Error, ErrorKind, Result, limits};
use motu_link::message as link;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const LOOPBACK: &str = "127.0.0.1";
/// Ports below this are reserved for the host.
const FIRST_PORT: u16 = 1024;
/// Buffer of one connection per direction.
const BUFFER: usize = 256 * 1024;

/// A bound listener that does not accept yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    port: PublishedPort,
}

/// Open ports, closed on drop.
#[derive(Debug, Default)]
pub struct Published {
    tasks: Vec<AbortHandle>,
}

impl Drop for Published {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
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

/// Starts accepting connections.
pub fn open(bound: Vec<Bound>, handle: &Arc<Handle>) -> Published {
    let tasks = bound.into_iter().map(|bound| {
        let handle = handle.clone();
        tokio::spawn(accept(bound, handle)).abort_handle()
    });
    Published {
        tasks: tasks.collect(),
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
                    // Probably out of file descriptors: wait until a connection ends.
                    tracing::warn!(%error, "could not accept a connection on a published port");
                    if callers.join_next().await.is_none() {
                        return;
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
