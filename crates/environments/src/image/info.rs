//! An image's configuration, and its conversion to an environment.
//!
//! Turns an image's configuration into the defaults of an environment, and adds to its tree what
//! every machine needs: mount points, a few files, a working directory.

use std::collections::BTreeMap;

use crate::{
    about::{ImageInfo, LayerInfo},
    finish::{self, HOSTNAME, HOSTS},
    layer::{Merged, merge::What},
    oci::manifest::Settings,
    tree::Meta,
};

const ROOT: &str = "root";
/// The default PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SUDO: [&str; 2] = ["usr/bin/sudo", "bin/sudo"];
const SETUID: u32 = 0o4000;

impl ImageInfo {
    pub(super) fn new(
        name: &str,
        manifest_digest: Option<String>,
        layers: Vec<LayerInfo>,
        settings: Settings,
    ) -> Self {
        let user = settings.user.unwrap_or_default();
        let ports = settings.exposed_ports.unwrap_or_default();
        Self {
            reference: name.to_owned(),
            manifest_digest,
            layers,
            default_user: match user.trim() {
                "" => ROOT.to_owned(),
                user => user.to_owned(),
            },
            default_workdir: workdir(&settings.working_dir.unwrap_or_default()),
            env: variables(settings.env.unwrap_or_default()),
            entrypoint: settings.entrypoint.unwrap_or_default(),
            cmd: settings.cmd.unwrap_or_default(),
            labels: settings.labels.unwrap_or_default(),
            exposed_ports: ports.into_keys().collect(),
            stop_signal: settings.stop_signal.filter(|text| !text.is_empty()),
            volumes: settings.volumes.unwrap_or_default().into_keys().collect(),
            healthcheck: settings.healthcheck.filter(|value| !value.is_null()),
            on_build: settings.on_build.unwrap_or_default(),
            shell: settings.shell.unwrap_or_default(),
            wants_sudo: false,
        }
    }

    /// The configuration of an image with these settings.
    pub(crate) fn settings(&self) -> Settings {
        let empty = || serde_json::json!({});
        let keys = |list: &[String]| -> Option<BTreeMap<String, serde_json::Value>> {
            let map = list.iter().map(|key| (key.clone(), empty())).collect();
            (!list.is_empty()).then_some(map)
        };
        let words = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let pair = |(key, value): (&String, &String)| format!("{key}={value}");
        Settings {
            env: Some(self.env.iter().map(pair).collect()),
            user: Some(self.default_user.clone()),
            working_dir: Some(self.default_workdir.clone()),
            entrypoint: words(&self.entrypoint),
            cmd: words(&self.cmd),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
            exposed_ports: keys(&self.exposed_ports),
            stop_signal: self.stop_signal.clone(),
            volumes: keys(&self.volumes),
            healthcheck: self.healthcheck.clone(),
            on_build: words(&self.on_build),
            shell: words(&self.shell),
        }
    }

    /// Adds what a machine needs to the image's tree. Paths of the runtime are emptied or replaced;
    /// everything else is kept.
    pub(crate) fn complete(&mut self, merged: &mut Merged) {
        merged.empty_directory("proc", Meta::root(0o555));
        merged.empty_directory("sys", Meta::root(0o555));
        merged.empty_directory("dev", Meta::root(0o755));
        merged.mount_point("run", Meta::root(0o755));
        merged.mount_point("tmp", Meta::root(0o1777));
        merged.directory("etc", Meta::root(0o755));
        for (path, text) in [
            ("etc/hosts", HOSTS),
            ("etc/hostname", HOSTNAME),
            ("etc/resolv.conf", ""),
            ("etc/machine-id", ""),
        ] {
            merged.own_file(path, Meta::root(0o644), text);
        }
        let passwd = merged.text(finish::PASSWD).unwrap_or_default();
        let (uid, gid) = owner(&self.default_user, passwd);
        let owned = Meta {
            uid,
            gid,
            ..Meta::root(0o755)
        };
        merged.mount_point("workspace", owned);
        merged.directory(self.default_workdir.trim_matches('/'), Meta::root(0o755));
        self.wants_sudo = SUDO.into_iter().any(|path| {
            merged.get(path).is_some_and(|spot| {
                matches!(spot.what, What::File(_) | What::Base) && spot.meta.mode & SETUID != 0
            })
        });
    }

    /// One line for people.
    pub(crate) fn description(&self) -> String {
        let label = |key: &str| self.labels.get(key).filter(|text| !text.is_empty());
        let said = label("org.opencontainers.image.description")
            .or_else(|| label("org.opencontainers.image.title"));
        match (said, self.layers.len()) {
            (Some(text), _) => text.lines().next().unwrap_or_default().to_owned(),
            (None, 1) => "An image of one layer.".to_owned(),
            (None, count) => format!("An image of {count} layers."),
        }
    }

    /// Its origin, with the digest if known.
    pub(crate) fn source(&self) -> String {
        match &self.manifest_digest {
            Some(digest) if !self.reference.contains('@') => {
                format!("{}@{digest}", self.reference)
            }
            _ => self.reference.clone(),
        }
    }
}

/// A normalized absolute path.
fn workdir(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    format!("/{}", parts.join("/"))
}

fn variables(list: Vec<String>) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = list
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .filter(|(key, value)| !key.is_empty() && !key.contains('\0') && !value.contains('\0'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    variables
        .entry("PATH".to_owned())
        .or_insert_with(|| DEFAULT_PATH.to_owned());
    variables
}

/// The owner of the working directory. A user that the image does not know is reported by the first
/// command that runs as that user.
fn owner(user: &str, passwd: &[u8]) -> (u64, u64) {
    let (user, group) = user.split_once(':').unwrap_or((user, ""));
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let (uid, own_group) = match number(user) {
        Some(uid) => (uid, uid),
        None => finish::ids_of(passwd, user).unwrap_or((0, 0)),
    };
    (uid, number(group).unwrap_or(own_group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(settings: Settings) -> ImageInfo {
        ImageInfo::new(
            "r.example/a:1",
            Some("sha256:x".into()),
            Vec::new(),
            settings,
        )
    }

    #[test]
    fn missing_settings_have_defaults() {
        let info = info(Settings::default());
        assert_eq!(info.default_user, "root");
        assert_eq!(info.default_workdir, "/");
        assert_eq!(info.env["PATH"], DEFAULT_PATH);
        assert_eq!(info.source(), "r.example/a:1@sha256:x");
        assert_eq!(info.description(), "An image of 0 layers.");
    }

    #[test]
    fn settings_are_taken_over_and_cleaned() {
        let info = info(Settings {
            env: Some(vec![
                "A=b=c".into(),
                "odd".into(),
                "=x".into(),
                "PATH=/p".into(),
            ]),
            user: Some(" 1000:2000 ".into()),
            working_dir: Some("app/../src/./x".into()),
            ..Settings::default()
        });
        assert_eq!(info.env.len(), 2);
        assert_eq!(info.env["A"], "b=c");
        assert_eq!(info.env["PATH"], "/p");
        assert_eq!(info.default_user, "1000:2000");
        assert_eq!(info.default_workdir, "/app/src/x");
    }

    #[test]
    fn owners_are_numbers_names_or_root() {
        let passwd = b"root:x:0:0::/:\napp:x:100:101::/:\n";
        assert_eq!(owner("app", passwd), (100, 101));
        assert_eq!(owner("app:7", passwd), (100, 7));
        assert_eq!(owner("1000:2000", passwd), (1000, 2000));
        assert_eq!(owner("1000", passwd), (1000, 1000));
        assert_eq!(owner("nobody-here", passwd), (0, 0));
    }
}
