//! The engine's OCI runtime, and the isolation it provides.

use crate::api::{Info, Make};
use motu_core::{Error, Isolation};
use std::path::Path;

/// Runtimes whose containers share the host's kernel.
const CONTAINERS: [&str; 4] = ["runc", "crun", "youki", "io.containerd.runc.v2"];
/// Runtimes with a user-space kernel.
const GVISOR: [&str; 2] = ["runsc", "io.containerd.runsc.v1"];

/// The engine's runtime, as named by the operator: `[docker] runtime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walls {
    name: Option<String>,
}

impl Walls {
    pub(crate) fn new(name: Option<&str>) -> Walls {
        Walls {
            name: name.map(str::to_string),
        }
    }

    /// The runtime to request; `None`: the engine's default.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The isolation of a machine. Unknown names are refused before this matters.
    pub(crate) fn isolation(&self) -> Isolation {
        match self.name() {
            Some(name) if GVISOR.contains(&name) => Isolation::Gvisor,
            _ => Isolation::Container,
        }
    }

    /// Checks that the engine has the named runtime and that it is what its name says; returns the
    /// name of the runtime in use.
    pub(crate) fn fit(&self, make: Make, info: &Info) -> Result<String, Error> {
        // Podman may name its runtime by its path.
        let usual = Path::new(&info.default_runtime).file_name();
        let usual = usual.and_then(|name| name.to_str()).unwrap_or_default();
        let name = self.name().unwrap_or(usual);
        let known = CONTAINERS.contains(&name) || GVISOR.contains(&name);
        if !known {
            return Err(Error::unsupported(format!(
                "it is not known what the engine's runtime {name:?} isolates"
            ))
            .hint("`[docker] runtime` in config.toml: one of runc, crun, youki, runsc"));
        }
        if GVISOR.contains(&name) && self.name.is_none() {
            return Err(Error::unsupported(format!(
                "the engine makes its containers with {name} unless told otherwise"
            ))
            .hint(format!(
                "name it, so that it is reported: `[docker] runtime = \"{name}\"` in config.toml"
            )));
        }
        if self.name.is_none() {
            return Ok(name.to_string());
        }
        // Podman ignores the runtime of a request: all its containers use the one it was started
        // with.
        if make == Make::Podman && usual != name {
            return Err(Error::unavailable(format!(
                "this Podman makes its containers with {usual}, not with {name}"
            ))
            .hint(format!(
                "runtime = \"{name}\" in containers.conf, then restart podman.socket"
            )));
        }
        let programs = info.runtimes.iter().flatten();
        let Some((_, program)) = programs.into_iter().find(|(known, _)| *known == name) else {
            return Err(
                Error::unavailable(format!("the engine has no runtime {name:?}")).hint(format!(
                    "\"runtimes\" in /etc/docker/daemon.json; it has: {}",
                    info.runtimes
                        .iter()
                        .flat_map(|all| all.keys())
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .join(", ")
                )),
            );
        };
        // An operator may have configured any program under a name; the reported isolation is the
        // name's, so compare.
        let file = program.path.as_deref().and_then(|path| {
            let file = Path::new(path).file_name()?.to_str()?;
            Some(file.to_string())
        });
        let gvisor_file = file.as_deref().is_none_or(|file| file.contains("runsc"));
        match self.isolation() == Isolation::Gvisor && !gvisor_file {
            true => Err(Error::unsupported(format!(
                "the engine's runtime {name:?} is the program {}, not gVisor's",
                program.path.as_deref().unwrap_or_default()
            ))),
            false => Ok(name.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Program;

    fn info(default: &str, programs: &[(&str, &str)]) -> Info {
        let program = |path: &str| Program {
            path: Some(path.to_string()),
        };
        Info {
            default_runtime: default.to_string(),
            runtimes: Some(
                programs
                    .iter()
                    .map(|(name, path)| (name.to_string(), program(path)))
                    .collect(),
            ),
            ..Info::default()
        }
    }

    #[test]
    fn the_isolation_is_that_of_what_is_named() {
        assert_eq!(Walls::new(None).isolation(), Isolation::Container);
        assert_eq!(Walls::new(Some("crun")).isolation(), Isolation::Container);
        assert_eq!(Walls::new(Some("runsc")).isolation(), Isolation::Gvisor);
    }

    #[test]
    fn nothing_is_taken_for_what_it_is_not() {
        let both = info("runc", &[("runc", "runc"), ("runsc", "/usr/bin/runsc")]);
        let fit = |name: Option<&str>, make, info: &Info| Walls::new(name).fit(make, info);
        assert_eq!(fit(None, Make::Docker, &both).unwrap(), "runc");
        assert!(fit(Some("runsc"), Make::Docker, &both).is_ok());
        assert_eq!(
            fit(None, Make::Podman, &info("/usr/sbin/runc", &[])).unwrap(),
            "runc"
        );
        // Podman would silently use runc.
        assert!(fit(Some("runsc"), Make::Podman, &both).is_err());
        assert!(fit(Some("crun"), Make::Docker, &both).is_err());
        assert!(fit(Some("kata"), Make::Docker, &both).is_err());
        let renamed = info("runc", &[("runsc", "/usr/bin/runc")]);
        assert!(fit(Some("runsc"), Make::Docker, &renamed).is_err());
        assert!(fit(None, Make::Docker, &info("runsc", &[])).is_err());
        assert!(fit(None, Make::Docker, &info("kata", &[])).is_err());
    }
}
