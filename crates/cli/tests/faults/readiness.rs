//! Services that are not ready yet, and ports they publish, when a daemon or a caller goes.

use crate::races::service;
use crate::workspaces::{asked, create, sh};
use motu_core::exec::ExecMode;
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Workspaces};
use motu_testkit::world::{World, eventually};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tokio::task::JoinSet;

fn waits_for(path: &str, seconds: u64) -> StartService {
    StartService {
        readiness: Some(Readiness::File {
            path: format!("/workspace/{path}"),
        }),
        ready_timeout_seconds: Some(seconds),
        ..service(path, &["sleep", "1000"])
    }
}

async fn status(world: &World, id: &WorkspaceId, name: &str) -> ServiceStatus {
    world.client().status_service(id, name).await.unwrap()
}

async fn becomes(world: &World, id: &WorkspaceId, name: &str, state: ServiceState) {
    eventually(&format!("{name} is {state:?}"), async || {
        let now = status(world, id, name).await;
        (now.state == state, now)
    })
    .await;
}

#[tokio::test]
async fn the_next_daemon_waits_for_what_was_not_ready() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("unready")).await;
    let mut starts = JoinSet::new();
    for (name, seconds) in [("soon", 600), ("never", 1)] {
        let (client, id) = (world.client(), id.clone());
        starts.spawn(async move { client.start_service(&id, waits_for(name, seconds)).await });
    }
    for name in ["soon", "never"] {
        eventually(&format!("{name} is there"), async || {
            let now = world.client().status_service(&id, name).await;
            let pid = now.as_ref().ok().and_then(|now| now.pid);
            (pid.is_some(), now)
        })
        .await;
    }
    world.kill();
    while let Some(cut) = starts.join_next().await {
        let error: Error = cut.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transport, "{error:?}");
    }
    world.start();
    let now = status(&world, &id, "soon").await;
    assert_eq!((now.state, now.ready_at), (ServiceState::Starting, None));
    sh(&world, &id, "touch soon").await;
    becomes(&world, &id, "soon", ServiceState::Running).await;
    assert!(status(&world, &id, "soon").await.ready_at.is_some());
    becomes(&world, &id, "never", ServiceState::Failed).await;
    let why = status(&world, &id, "never").await.reason.unwrap();
    assert!(why.contains("not ready after 1 s"), "{why}");
    let again = world.client().stop_service(&id, "soon").await.unwrap();
    assert_eq!(again.state, ServiceState::Stopped);
}

/// A caller who goes while a service is not ready leaves nothing half done.
#[tokio::test]
async fn a_caller_who_leaves_does_not_leave_a_service_without_readiness() {
    let Some(world) = World::new() else {
        return;
    };
    let id = create(&world, asked("left")).await;
    let caller = tokio::spawn({
        let (client, id) = (world.client(), id.clone());
        async move { client.start_service(&id, waits_for("later", 600)).await }
    });
    eventually("the service is there", async || {
        let now = world.client().status_service(&id, "later").await;
        (now.is_ok(), now)
    })
    .await;
    caller.abort();
    let _ = caller.await;
    sh(&world, &id, "touch later").await;
    becomes(&world, &id, "later", ServiceState::Running).await;
}

/// What a port says; nothing if nobody serves it.
fn said(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = stream.read_to_string(&mut text);
    }
    text
}

#[tokio::test]
async fn a_port_that_somebody_else_took_is_not_ours_until_it_is_free() {
    let Some(mut world) = World::new() else {
        return;
    };
    let request = CreateWorkspace {
        network_policy: NetworkPolicy::EgressPublishedPorts,
        ..asked("ports")
    };
    let id = create(&world, request).await;
    let serve = StartService {
        mode: ExecMode::Shell,
        readiness: Some(Readiness::Tcp { port: 8000 }),
        published_ports: vec![Publish {
            guest_port: 8000,
            host_port: None,
        }],
        ..service("web", &["while true; do echo ours | nc -l -p 8000; done"])
    };
    let started = world.client().start_service(&id, serve).await.unwrap();
    let port = started.published_ports[0].host_port;
    world.kill();
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    world.start();
    let now = status(&world, &id, "web").await;
    assert_eq!(now.state, ServiceState::Running);
    assert!(now.published_ports.is_empty(), "{now:?}");
    assert!(now.reason.unwrap().contains(&port.to_string()));
    drop(taken);
    eventually("it is published again", async || {
        let now = status(&world, &id, "web").await;
        let ours = now.published_ports == started.published_ports && now.reason.is_none();
        (ours, now)
    })
    .await;
    eventually("it is reached", async || {
        let text = said(port);
        (text == "ours\n", text)
    })
    .await;
    world.client().stop_service(&id, "web").await.unwrap();
    // Whoever is told that it has ended can have the port.
    drop(TcpListener::bind(("127.0.0.1", port)).unwrap());
}
