//! The engine and its runtimes, put together for `motu serve`.

use crate::guest::GUEST;
use bytes::Bytes;
use motu_container::Container;
use motu_core::config::RegistriesConfig;
use motu_core::{Error, Result, Runtime};
use motu_docker::Docker;
use motu_e2b::E2b;
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, NotARegistry, Privilege, RegistryName, RegistryOptions};
use motu_gvisor::Gvisor;
use motu_host::Host;
use motu_http::Http;
use motu_proot::Proot;
use motu_qemu::Qemu;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;

/// Opens the state directory and adopts what runs in it.
pub async fn open(path: &Path) -> Result<Arc<Engine>> {
    let files = open_more_files();
    let home = Home::open(path)?;
    motu_engine::backup::settle(&home)?;
    let config = home.config()?;
    let container = Container::new(motu_container::Settings {
        guest: Bytes::from_static(GUEST),
        home: home.path().to_path_buf(),
        usual_disk_mib: config.defaults.disk_mib,
    })?;
    // Prepare launchers and disks in the background, before the first sandbox.
    tokio::spawn({
        let container = container.clone();
        async move { container.warm().await }
    });
    let host = Host::new(motu_host::Settings {
        guest: Bytes::from_static(GUEST),
        files,
    })?;
    let proot = Proot::new(motu_proot::Settings {
        guest: Bytes::from_static(GUEST),
        files,
    })?;
    let qemu = Qemu::new(motu_qemu::Settings {
        guest: Bytes::from_static(GUEST),
        home: home.path().to_path_buf(),
        accel: motu_core::Accel::Auto,
        spares: 2,
        config: config.qemu.clone(),
    })?;
    let gvisor = Gvisor::new(motu_gvisor::Settings {
        guest: Bytes::from_static(GUEST),
        home: home.path().to_path_buf(),
        usual_disk_mib: config.defaults.disk_mib,
        program: config.gvisor.program.clone(),
    });
    let docker = Docker::new(motu_docker::Settings {
        guest: Bytes::from_static(GUEST),
        home: home.path().to_path_buf(),
        socket: config.docker.socket.clone(),
        runtime: config.docker.runtime.clone(),
    });
    let registries = registries(&config.registries)?;
    let environments = Environments::open_with(home.path(), Privilege::detect(), registries)
        .map_err(|error| Error::unavailable(format!("open the environments: {error}")))?;
    let mut runtimes: Vec<Arc<dyn Runtime>> = vec![
        Arc::new(qemu),
        Arc::new(gvisor),
        Arc::new(container),
        Arc::new(docker),
        Arc::new(host),
        Arc::new(proot),
    ];
    // Without a configured service the runtime does not exist.
    if let Some(url) = config.http.url.clone() {
        let settings = motu_http::Settings {
            url,
            key_file: config.http.key_file.clone(),
            ca_file: config.http.ca_file.clone(),
        };
        runtimes.push(Arc::new(Http::new(settings)?));
    }
    if let Some(api_url) = config.e2b.api_url.clone() {
        let e2b = config.e2b.clone();
        runtimes.push(Arc::new(E2b::new(motu_e2b::Settings {
            api_url,
            sandbox_url: e2b.sandbox_url,
            domain: e2b.domain,
            key_file: e2b.key_file,
            isolation: e2b.isolation,
            templates: e2b.templates,
            timeout_seconds: e2b.timeout_seconds,
        })?));
    }
    Engine::open(Setup {
        home,
        runtimes,
        environments,
        gateway: Some("/proc/self/exe".into()),
    })
    .await
}

/// What `[registries]` says.
fn registries(config: &RegistriesConfig) -> Result<RegistryOptions> {
    let named = |list: &str, names: &[String]| -> Result<Vec<RegistryName>> {
        let names = names.iter().map(|name| name.parse());
        let names: std::result::Result<_, NotARegistry> = names.collect();
        names.map_err(|error| {
            Error::invalid(format!("config.toml: [registries] {list}: {error}"))
                .hint("a host and perhaps its port, such as \"127.0.0.1:5000\"")
        })
    };
    let logins = config.projects.iter();
    let logins = logins.filter_map(|(name, own)| Some((name.clone(), own.logins.clone()?)));
    let mut options = RegistryOptions::default();
    options.allowed = named("allow", &config.allow)?;
    options.lent = named("lend_login", &config.lend_login)?;
    options.logins = logins.collect();
    Ok(options)
}

/// Raises how many files this process may open to what it may ask for: each sandbox and each
/// terminal session needs some. Gives what it was before, for programs that run on the host;
/// those in machines have a limit of their own.
fn open_more_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let more = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, more) {
        tracing::warn!(%error, "raising the limit of open files failed");
    }
    limit.current
}
