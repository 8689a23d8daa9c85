//! A test service on loopback, with its own engine.

use super::bare;
use motu_conformance::Subject;
use motu_core::{SandboxId, Service};
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, Privilege};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

const KEY: &str = "a-key-of-the-tests-alone";
/// The time limit of the service on a busy machine.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server of `motu serve --provider`.
    Ours,
    /// The bare protocol.
    Bare,
}

pub struct Served {
    dir: TempDir,
    address: SocketAddr,
    engine: Arc<Engine>,
    tokio: tokio::runtime::Handle,
    leave: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The message of a service's thread when it listens.
type Up = (SocketAddr, Arc<Engine>, tokio::runtime::Handle);

impl Served {
    /// Starts a service with machines of this subject.
    pub fn start(kind: Kind, behind: Subject) -> Served {
        let dir = tempfile::Builder::new()
            .prefix("served-")
            .tempdir()
            .expect("a temporary directory");
        std::fs::write(dir.path().join("key"), KEY).expect("a key");
        let (leave, left) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let home = dir.path().join("home");
        let thread = std::thread::spawn(move || serve(kind, behind, home, left, tell));
        let (address, engine, tokio) = told.recv_timeout(SOON).expect("the service is up");
        Served {
            dir,
            address,
            engine,
            tokio,
            leave: Some(leave),
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn key_file(&self) -> PathBuf {
        self.dir.path().join("key")
    }

    /// Runs work on the service's engine from any thread.
    fn ask<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        wait(&self.tokio, work)
    }

    /// How many sandboxes the service has.
    pub fn count(&self) -> usize {
        let engine = self.engine.clone();
        self.ask(async move {
            let all = engine.list_sandboxes(Default::default()).await;
            all.expect("a list").len()
        })
    }

    /// Destroys a machine there, by its id.
    pub fn ends(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        let (engine, tokio) = (self.engine.clone(), self.tokio.clone());
        Box::new(move |id| {
            let (engine, id) = (engine.clone(), SandboxId::parse(id).expect("an id"));
            let gone = wait(&tokio, async move { engine.destroy_sandbox(&id).await });
            gone.expect("destroyed");
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.leave.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                std::thread::panicking() || ended.is_ok(),
                "the service fell over"
            );
        }
    }
}

fn wait<T: Send + 'static>(
    tokio: &tokio::runtime::Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let (tell, told) = mpsc::channel();
    tokio.spawn(async move { tell.send(work.await) });
    told.recv_timeout(SOON).expect("the service answers")
}

fn serve(
    kind: Kind,
    behind: Subject,
    home: PathBuf,
    left: oneshot::Receiver<()>,
    tell: mpsc::Sender<Up>,
) {
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test can start threads");
    threads.block_on(async {
        let runtime = (behind.make)(&home);
        let known = behind.environments.clone().unwrap_or_else(|| home.clone());
        let setup = Setup {
            home: Home::open(&home).expect("the state directory opens"),
            runtimes: vec![runtime],
            environments: Environments::open(&known, Privilege::detect()).expect("environments"),
            gateway: None,
        };
        let engine = Engine::open(setup).await.expect("the engine opens");
        let own = engine.clone();
        let up = move |address| {
            let up = (address, own, tokio::runtime::Handle::current());
            tell.send(up).expect("somebody waits");
        };
        let leave = async { drop(left.await) };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        match kind {
            Kind::Ours => {
                let options = motu_provider::Options {
                    runtime: Some(behind.name.to_string()),
                    policy: None,
                    ttl_seconds: 3600,
                    reads_host_files: |_| false,
                };
                let at = (loopback, KEY);
                // Open connections of callers do not delay it.
                tokio::select! {
                    served = motu_provider::serve(engine, options, at, std::future::pending(), up) => {
                        served.expect("it serves");
                    }
                    () = leave => {}
                }
            }
            Kind::Bare => {
                let serving = bare::serve(engine, behind.name, (loopback, KEY), up);
                tokio::select! { () = serving => {} () = leave => {} }
            }
        }
    });
    threads.shutdown_timeout(Duration::from_secs(5));
}
