//! The engine and its runtimes, put together for `motu serve`.

use crate::guest::GUEST;
use motu_container::{Container, Settings};
use motu_core::{Error, Result, Runtime};
use motu_engine::{Engine, Home, Setup};
use motu_environments::{Environments, Privilege};
use std::path::Path;
use std::sync::Arc;

/// Opens the state directory and adopts what runs in it.
pub async fn open(path: &Path) -> Result<Arc<Engine>> {
    let home = Home::open(path)?;
    let config = home.config()?;
    let container = Container::new(Settings {
        guest: Arc::from(GUEST),
        home: home.path().to_path_buf(),
        usual_disk_mib: config.defaults.disk_mib,
    })?;
    let environments = Environments::open(home.path(), Privilege::detect())
        .map_err(|error| Error::unavailable(format!("open the environments: {error}")))?;
    let runtimes: Vec<Arc<dyn Runtime>> = vec![Arc::new(container)];
    Engine::open(Setup {
        home,
        runtimes,
        environments,
    })
    .await
}
