//! The runtimes under test.

use crate::subject::{Skip, Subject};
use bytes::Bytes;
use motu_container::Container;
use motu_core::config::QemuConfig;
use motu_core::{Runtime, limits};
use motu_docker::Docker;
use motu_e2b::E2b;
use motu_environments::{Environments, Privilege, Progress};
use motu_fake::Fake;
use motu_gvisor::Gvisor;
use motu_host::Host;
use motu_http::Http;
use motu_proot::Proot;
use motu_qemu::Qemu;
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Where cargo's build script leaves the guest.
const GUEST: &str = "target/guest/x86_64-unknown-linux-gnu/guest/motu-guest";
/// The environment of every sandbox of the suite.
const ENVIRONMENT: &str = "busybox";

/// Machines in memory.
pub fn fake() -> Result<Subject, Skip> {
    // One fake for all lives of the daemon: its machines outlive them.
    let fake = Fake::new();
    let runtime = fake.clone();
    Ok(Subject::new(
        "fake",
        Box::new(move |_| runtime.clone() as Arc<dyn Runtime>),
        Box::new(move |id, _| assert!(fake.kill(id), "there is a machine to kill")),
    ))
}

/// The host itself, with no isolation.
pub fn host() -> Result<Subject, Skip> {
    let guest = guest()?;
    let make = move |_: &Path| -> Arc<dyn Runtime> {
        let settings = motu_host::Settings {
            guest: guest.clone(),
            files: None,
        };
        Arc::new(Host::new(settings).expect("the runtime is set up"))
    };
    works("host", &make)?;
    let mut subject = Subject::new("host", Box::new(make), Box::new(|_, dir| kill_first(dir)));
    subject.request.allow_host_compat = true;
    Ok(subject)
}

/// Below proot, with a tree of its own and no isolation.
pub fn proot() -> Result<Subject, Skip> {
    let guest = guest()?;
    let make = move |_: &Path| -> Arc<dyn Runtime> {
        let settings = motu_proot::Settings {
            guest: guest.clone(),
            files: None,
        };
        Arc::new(Proot::new(settings).expect("the runtime is set up"))
    };
    works("proot", &make)?;
    let mut subject = Subject::new("proot", Box::new(make), Box::new(|_, dir| kill_first(dir)));
    subject.request.allow_host_compat = true;
    subject.environments = Some(environments()?);
    Ok(subject)
}

/// Namespaces, cgroups and seccomp.
pub fn container() -> Result<Subject, Skip> {
    let guest = guest()?;
    let make = move |home: &Path| -> Arc<dyn Runtime> {
        let settings = motu_container::Settings {
            guest: guest.clone(),
            home: home.to_path_buf(),
            usual_disk_mib: limits::DISK_MIB.default,
        };
        Arc::new(Container::new(settings).expect("the runtime is set up"))
    };
    works("container", &make)?;
    let mut subject = Subject::new(
        "container",
        Box::new(make),
        Box::new(|_, dir| kill_first(dir)),
    );
    subject.environments = Some(environments()?);
    Ok(subject)
}

/// A user-space kernel.
pub fn gvisor() -> Result<Subject, Skip> {
    let guest = guest()?;
    let make = move |home: &Path| -> Arc<dyn Runtime> {
        Arc::new(Gvisor::new(motu_gvisor::Settings {
            guest: guest.clone(),
            home: home.to_path_buf(),
            usual_disk_mib: limits::DISK_MIB.default,
            program: None,
        }))
    };
    works("gvisor", &make)?;
    let mut subject = Subject::new("gvisor", Box::new(make), Box::new(|_, dir| kill_first(dir)));
    subject.environments = Some(environments()?);
    Ok(subject)
}

/// Containers of the engine at this socket, with the named OCI runtime.
pub fn docker(socket: &Path, runtime: Option<&str>) -> Result<Subject, Skip> {
    let guest = guest()?;
    let (socket, runtime) = (socket.to_path_buf(), runtime.map(str::to_string));
    let make = move |home: &Path| -> Arc<dyn Runtime> {
        Arc::new(Docker::new(motu_docker::Settings {
            guest: guest.clone(),
            home: home.to_path_buf(),
            socket: Some(socket.clone()),
            runtime: runtime.clone(),
        }))
    };
    works("docker", &make)?;
    let mut subject = Subject::new("docker", Box::new(make), Box::new(|_, dir| kill_first(dir)));
    subject.environments = Some(environments()?);
    Ok(subject)
}

/// Machines of a service with the provider protocol. `end` destroys one there, by its id.
pub fn http(
    url: &str,
    key_file: &Path,
    end: Box<dyn Fn(&str) + Send + Sync>,
) -> Result<Subject, Skip> {
    let (url, key_file) = (url.to_string(), key_file.to_path_buf());
    let make = move |_: &Path| -> Arc<dyn Runtime> {
        let settings = motu_http::Settings {
            url: url.clone(),
            key_file: Some(key_file.clone()),
            ca_file: None,
        };
        Arc::new(Http::new(settings).expect("the runtime is set up"))
    };
    works("http", &make)?;
    let mut subject = Subject::new("http", Box::new(make), ended_there(end));
    // A service need not report its isolation.
    subject.request.allow_host_compat = true;
    Ok(subject)
}

/// Machines of a service with the E2B API. `end` destroys one there, by its id.
pub fn e2b(
    url: &str,
    key_file: &Path,
    end: Box<dyn Fn(&str) + Send + Sync>,
) -> Result<Subject, Skip> {
    let settings = motu_e2b::Settings {
        api_url: url.to_string(),
        sandbox_url: Some(url.to_string()),
        key_file: Some(key_file.to_path_buf()),
        ..motu_e2b::Settings::default()
    };
    let make = move |_: &Path| -> Arc<dyn Runtime> {
        Arc::new(E2b::new(settings.clone()).expect("the runtime is set up"))
    };
    works("e2b", &make)?;
    let mut subject = Subject::new("e2b", Box::new(make), ended_there(end));
    // The settings do not state the isolation.
    subject.request.allow_host_compat = true;
    Ok(subject)
}

/// Destroys a machine at a service, by the id in its record.
fn ended_there(end: Box<dyn Fn(&str) + Send + Sync>) -> crate::subject::End {
    Box::new(move |_, dir| {
        let record = std::fs::read(dir.join("machine.json")).expect("a record");
        let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
        end(record["id"].as_str().expect("an id"));
    })
}

/// Virtual machines, emulated unless `MOTU_TEST_ACCEL` says otherwise. Kernel, images and templates are shared by all tests:
/// only the first one boots.
pub fn qemu() -> Result<Subject, Skip> {
    let guest = guest()?;
    let home = workspace().join("target/test-home/qemu");
    let make = move |_: &Path| -> Arc<dyn Runtime> {
        let settings = motu_qemu::Settings {
            guest: guest.clone(),
            home: home.clone(),
            accel: motu_needs::accelerator().parse().expect("kvm or tcg"),
            spares: 0,
            config: QemuConfig::default(),
        };
        Arc::new(Qemu::new(settings).expect("the runtime is set up"))
    };
    works("qemu", &make)?;
    let mut subject = Subject::new("qemu", Box::new(make), Box::new(|_, dir| kill_first(dir)));
    subject.environments = Some(environments()?);
    Ok(subject)
}

/// The guest program, built before the suite.
fn guest() -> Result<Bytes, Skip> {
    static GUEST_BYTES: OnceLock<Result<Bytes, String>> = OnceLock::new();
    let read = || {
        let path = match std::env::var_os("MOTU_GUEST_BIN") {
            Some(path) => PathBuf::from(path),
            None => workspace().join(GUEST),
        };
        std::fs::read(&path).map(Bytes::from).map_err(|error| {
            let place = path.display();
            format!("no guest at {place} ({error}); `cargo build -p motu` makes it")
        })
    };
    GUEST_BYTES.get_or_init(read).clone().map_err(Skip)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a runtime works on this host. What it learns by a machine of its own it finds in the shared directory when it
/// is asked again.
fn works(name: &str, make: &dyn Fn(&Path) -> Arc<dyn Runtime>) -> Result<(), Skip> {
    let _alone = motu_needs::probes::alone();
    let report = wait(make(&motu_needs::probes::tried()).report());
    match report.works {
        true => Ok(()),
        false => Err(Skip(format!("{name}: {}", report.detail))),
    }
}

/// The state directory with the suite's environment, pulled if missing. Concurrent tests share one
/// build through the store.
fn environments() -> Result<PathBuf, Skip> {
    let home = workspace().join("target/test-home");
    let pulled = wait(async {
        let environments = Environments::open(&home, Privilege::detect())?;
        environments.pull(ENVIRONMENT, Progress::new(|_| {})).await
    });
    match pulled {
        Ok(_) => Ok(home),
        Err(error) => Err(Skip(format!("environment {ENVIRONMENT}: {error}"))),
    }
}

/// A runtime in an environment with bash, for terminals. The host has its own; otherwise a Debian
/// that was built before (in `MOTU_DEV_HOME`), or the smallest one.
pub fn with_bash(subject: Result<Subject, Skip>) -> Result<Subject, Skip> {
    let mut subject = subject?;
    if subject.environments.is_none() {
        return Ok(subject);
    }
    let built = std::env::var_os("MOTU_DEV_HOME").unwrap_or("/var/tmp/motu-dev".into());
    for (home, name) in [
        (PathBuf::from(built), "debian:12"),
        (workspace().join("target/test-home"), "debian:12-base"),
    ] {
        let there = wait(async {
            let environments = Environments::open(&home, Privilege::detect()).ok()?;
            environments.resolve(name).await.ok()
        });
        if there.is_some() {
            subject.environments = Some(home);
            subject.request.environment = name.to_string();
            return Ok(subject);
        }
    }
    let home = workspace().join("target/test-home");
    let pulled = wait(async {
        let environments = Environments::open(&home, Privilege::detect())?;
        environments
            .pull("debian:12-base", Progress::new(|_| {}))
            .await
    });
    match pulled {
        Ok(_) => {
            subject.environments = Some(home);
            subject.request.environment = "debian:12-base".to_string();
            Ok(subject)
        }
        Err(error) => Err(Skip(format!("environment with bash: {error}"))),
    }
}

fn wait<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a test can start a runtime")
        .block_on(answer)
}

/// Kills the first process of a machine, by the record in its directory.
fn kill_first(dir: &Path) {
    let record = std::fs::read(dir.join("machine.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
    let pid = record["process"]["pid"].as_i64().expect("a pid");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    rustix::process::kill_process(pid.expect("a pid"), Signal::KILL).expect("it is killed");
}
