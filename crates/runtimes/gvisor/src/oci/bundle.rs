//! A bundle: `config.json` of the OCI runtime specification.
//!
//! Only the parts we use. Plain data without decisions.

use super::OciError;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The version of the specification that is written.
const OCI_VERSION: &str = "1.0.2";
/// The file a runtime looks for.
pub const CONFIG: &str = "config.json";

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    oci_version: &'static str,
    pub process: Process,
    pub root: Root,
    pub hostname: String,
    pub mounts: Vec<Mount>,
    pub linux: Linux,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    user: User,
    pub capabilities: Capabilities,
    pub no_new_privileges: bool,
    pub rlimits: Vec<Rlimit>,
}

/// Processes start as the machine's root; the guest switches users.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct User {
    uid: u32,
    gid: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    bounding: Vec<&'static str>,
    effective: Vec<&'static str>,
    permitted: Vec<&'static str>,
}

impl Capabilities {
    /// The same capabilities in all sets that matter for root.
    pub fn all_of(names: &[&'static str]) -> Capabilities {
        Capabilities {
            bounding: names.to_vec(),
            effective: names.to_vec(),
            permitted: names.to_vec(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Rlimit {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Root {
    pub path: PathBuf,
    pub readonly: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Mount {
    pub destination: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub source: PathBuf,
    pub options: Vec<String>,
}

impl Mount {
    /// A file system of the kernel's own.
    pub fn of(kind: &'static str, destination: &str, options: &[&str]) -> Mount {
        Mount {
            destination: destination.to_string(),
            kind,
            source: kind.into(),
            options: options.iter().map(ToString::to_string).collect(),
        }
    }

    /// A file or directory of the host.
    pub fn bind(source: &Path, destination: &str, access: Access) -> Mount {
        let access = match access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        Mount {
            source: source.to_path_buf(),
            ..Mount::of("bind", destination, &["rbind", "nosuid", "nodev", access])
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Linux {
    namespaces: Vec<Namespace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups_path: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: &'static str,
    /// An existing namespace; `None` makes a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
}

/// All namespaces but the user namespace.
const NAMESPACES: [&str; 5] = ["pid", NETWORK, "ipc", "uts", "mount"];
const NETWORK: &str = "network";

impl Config {
    /// Joins this network namespace instead of making a new one.
    pub fn join_network(&mut self, path: PathBuf) {
        let mut namespaces = self.linux.namespaces.iter_mut();
        if let Some(network) = namespaces.find(|namespace| namespace.kind == NETWORK) {
            network.path = Some(path);
        }
    }

    /// A machine with this command as its first process, in its own namespaces.
    pub fn new(root: &Path, hostname: &str, args: Vec<String>, capabilities: Capabilities) -> Self {
        Config {
            oci_version: OCI_VERSION,
            process: Process {
                args,
                env: Vec::new(),
                cwd: "/".into(),
                user: User::default(),
                capabilities,
                no_new_privileges: false,
                rlimits: Vec::new(),
            },
            root: Root {
                path: root.to_path_buf(),
                readonly: false,
            },
            hostname: hostname.to_string(),
            mounts: Vec::new(),
            linux: Linux {
                namespaces: NAMESPACES.map(|kind| Namespace { kind, path: None }).into(),
                cgroups_path: None,
            },
        }
    }

    /// Writes the bundle into a directory that exists.
    pub fn write(&self, bundle: &Path) -> Result<(), OciError> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from);
        text.and_then(|text| std::fs::write(bundle.join(CONFIG), text))
            .map_err(|error| OciError::Io {
                what: "the bundle",
                error,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_names_of_the_specification() {
        let args = vec!["/guest".to_string()];
        let caps = Capabilities::all_of(&["CAP_CHOWN"]);
        let mut config = Config::new(Path::new("root"), "box", args, caps);
        config.mounts = vec![
            Mount::of("proc", "/proc", &[]),
            Mount::bind(Path::new("/a b"), "/b", Access::ReadOnly),
        ];
        let value = serde_json::to_value(&config).unwrap();
        assert_eq!(value["ociVersion"], "1.0.2");
        assert_eq!(value["process"]["noNewPrivileges"], false);
        assert_eq!(value["process"]["capabilities"]["bounding"][0], "CAP_CHOWN");
        assert_eq!(value["mounts"][1]["source"], "/a b");
        assert_eq!(value["mounts"][1]["type"], "bind");
        assert!(value["linux"].get("cgroupsPath").is_none());
    }
}
