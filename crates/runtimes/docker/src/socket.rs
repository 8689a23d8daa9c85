//! Finds the engine's socket.
//!
//! The operator's setting comes first, then the settings of the Docker and Podman tools, then the
//! usual paths. Only sockets of this host are accepted: a machine's link is a local file.

use motu_core::Error;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// A larger file is not a Docker configuration.
const SETTINGS_MOST: u64 = 1 << 20;
/// The context that means the usual socket.
const DEFAULT_CONTEXT: &str = "default";

/// A socket, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) socket: PathBuf,
    pub(crate) by: &'static str,
}

/// The inputs of the search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// `[docker] socket` of the settings.
    pub(crate) named: Option<PathBuf>,
    pub(crate) variables: BTreeMap<&'static str, OsString>,
    pub(crate) uid: u32,
    /// The directory of the usual sockets: `/run`.
    pub(crate) run: PathBuf,
}

/// The variables that are used.
const VARIABLES: [&str; 6] = [
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
    "HOME",
];

impl Around {
    pub(crate) fn of_process(named: Option<PathBuf>) -> Around {
        let set = |name| Some((name, std::env::var_os(name).filter(|v| !v.is_empty())?));
        Around {
            named,
            variables: VARIABLES.into_iter().filter_map(set).collect(),
            uid: rustix::process::geteuid().as_raw(),
            run: "/run".into(),
        }
    }

    /// The socket to use, or an error that says why there is none.
    pub(crate) fn find(&self) -> Result<Found, Error> {
        if let Some(socket) = &self.named {
            let (socket, by) = (socket.clone(), "[docker] socket in config.toml");
            return Ok(Found { socket, by });
        }
        if let Some(address) = self.text("DOCKER_HOST") {
            return local(&address, "DOCKER_HOST");
        }
        if let Some(found) = self.context()? {
            return Ok(found);
        }
        if let Some(address) = self.text("CONTAINER_HOST") {
            return local(&address, "CONTAINER_HOST");
        }
        let usual = self.usual();
        let there = usual.into_iter().find(|socket| is_socket(socket));
        there
            .map(|socket| Found {
                socket,
                by: "its usual place",
            })
            .ok_or_else(|| {
                Error::unavailable("no socket of Docker or Podman was found")
                    .hint(crate::api::ABSENT)
            })
    }

    fn text(&self, name: &str) -> Option<String> {
        let value = self.variables.get(name)?;
        Some(value.to_string_lossy().into_owned())
    }

    /// The default sockets; the user's own before the host's.
    fn usual(&self) -> Vec<PathBuf> {
        let runtime = match self.variables.get("XDG_RUNTIME_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => self.run.join("user").join(self.uid.to_string()),
        };
        let own = ["docker.sock", "podman/podman.sock"].map(|name| runtime.join(name));
        let host = ["docker.sock", "podman/podman.sock"].map(|name| self.run.join(name));
        match self.uid {
            0 => host.into_iter().chain(own).collect(),
            _ => own.into_iter().chain(host).collect(),
        }
    }

    /// The socket of the current `docker` context, if there is one.
    fn context(&self) -> Result<Option<Found>, Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Settings {
            current_context: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Context {
            endpoints: BTreeMap<String, Endpoint>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Endpoint {
            #[serde(default)]
            host: String,
        }
        let settings = match (
            self.variables.get("DOCKER_CONFIG"),
            self.variables.get("HOME"),
        ) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(home)) => Path::new(home).join(".docker"),
            (None, None) => return Ok(None),
        };
        let name = match self.text("DOCKER_CONTEXT") {
            Some(name) => name,
            // An unreadable configuration means no context: it may contain logins only.
            None => {
                read::<Settings>(&settings.join("config.json"))
                    .unwrap_or_default()
                    .current_context
            }
        };
        if name.is_empty() || name == DEFAULT_CONTEXT {
            return Ok(None);
        }
        let directory: String = Sha256::digest(name.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let file = settings
            .join("contexts/meta")
            .join(directory)
            .join("meta.json");
        let context: Option<Context> = read(&file);
        let endpoint = context.and_then(|mut context| context.endpoints.remove("docker"));
        let endpoint = endpoint.ok_or_else(|| {
            Error::unavailable(format!(
                "the docker context {name:?} says no address ({})",
                file.display()
            ))
            .hint(
                "`docker context ls` lists contexts; `docker context use default` leaves this one",
            )
        })?;
        local(&endpoint.host, "the docker context in use").map(Some)
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(SETTINGS_MOST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The socket of an address; other addresses are not local.
fn local(address: &str, by: &'static str) -> Result<Found, Error> {
    let path = address.strip_prefix("unix://").map(PathBuf::from);
    match path.filter(|path| path.is_absolute()) {
        Some(socket) => Ok(Found { socket, by }),
        None => Err(Error::unsupported(format!(
            "{by} names {address:?}: the docker runtime needs an engine of this host, at unix:///…"
        ))
        .hint("`[docker] socket` in config.toml names a socket of this host")),
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::ErrorKind;
    use std::os::unix::net::UnixListener;

    fn around(run: &Path, variables: &[(&'static str, &str)]) -> Around {
        let pair = |(name, value): &(&'static str, &str)| (*name, OsString::from(value));
        Around {
            named: None,
            variables: variables.iter().map(pair).collect(),
            uid: 1000,
            run: run.to_path_buf(),
        }
    }

    #[test]
    fn the_operators_word_comes_first_and_foreign_hosts_are_refused() {
        let empty = tempfile::tempdir().unwrap();
        let mut here = around(empty.path(), &[("DOCKER_HOST", "unix:///a/b.sock")]);
        assert_eq!(here.find().unwrap().socket, Path::new("/a/b.sock"));
        here.named = Some("/named.sock".into());
        assert_eq!(here.find().unwrap().socket, Path::new("/named.sock"));
        for far in ["tcp://10.0.0.1:2375", "ssh://me@there", "unix://relative"] {
            let error = around(empty.path(), &[("DOCKER_HOST", far)]).find();
            assert_eq!(error.unwrap_err().kind, ErrorKind::Unsupported, "{far}");
        }
    }

    #[test]
    fn a_context_is_followed() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join(".docker");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(
            place.join("config.json"),
            r#"{"auths":{},"currentContext":"mine"}"#,
        )
        .unwrap();
        let home_text = home.path().to_str().unwrap().to_string();
        let here = around(home.path(), &[("HOME", &home_text)]);
        let error = here.find().unwrap_err();
        assert!(error.message.contains("mine"));
        let directory: String = Sha256::digest(b"mine")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let place = place.join("contexts/meta").join(directory);
        std::fs::create_dir_all(&place).unwrap();
        let meta = r#"{"Name":"mine","Endpoints":{"docker":{"Host":"unix:///x.sock"}}}"#;
        std::fs::write(place.join("meta.json"), meta).unwrap();
        assert_eq!(here.find().unwrap().socket, Path::new("/x.sock"));
        let other = around(
            home.path(),
            &[("HOME", &home_text), ("DOCKER_CONTEXT", "default")],
        );
        assert_eq!(other.find().unwrap_err().kind, ErrorKind::Unavailable);
    }

    #[test]
    fn ones_own_engine_comes_before_the_hosts_unless_one_is_root() {
        let run = tempfile::tempdir().unwrap();
        let (own, host) = (run.path().join("user/1000/podman"), run.path());
        std::fs::create_dir_all(&own).unwrap();
        let _host = UnixListener::bind(host.join("docker.sock")).unwrap();
        let mut here = around(run.path(), &[]);
        assert_eq!(here.find().unwrap().socket, host.join("docker.sock"));
        let _own = UnixListener::bind(own.join("podman.sock")).unwrap();
        assert_eq!(here.find().unwrap().socket, own.join("podman.sock"));
        here.uid = 0;
        assert_eq!(here.find().unwrap().socket, host.join("docker.sock"));
    }
}
