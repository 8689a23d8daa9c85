//! The origin of an environment outside the catalog.
//!
//! Owns the grammar: references to images in registries, and the prefixes for files of the host.
//! Pure: no I/O.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Component, Path, PathBuf},
};

use crate::digest;

/// The default registry.
pub(crate) const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
const OFFICIAL: &str = "library/";

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host, and port where one is given.
    pub registry: String,
    pub repository: String,
    pub version: Version,
}

/// The image of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    Tag(String),
    /// Content-addressed.
    Digest(String),
}

impl Version {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Digest(text) => text,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.version {
            Version::Tag(_) => ':',
            Version::Digest(_) => '@',
        };
        let version = self.version.as_str();
        write!(f, "{}/{}{mark}{version}", self.registry, self.repository)
    }
}

/// A source of environments besides the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Registry(Reference),
    /// A directory in the OCI layout, and which of its images.
    OciLayout(PathBuf, Option<String>),
    /// What `docker save` writes.
    DockerArchive(PathBuf),
    /// An OCI layout in an archive; `docker save` may write one too.
    OciArchive(PathBuf),
    /// A root filesystem as an archive.
    Tar(PathBuf),
    /// A root filesystem as a directory.
    Directory(PathBuf),
}

impl Origin {
    pub fn parse(name: &str) -> Option<Self> {
        if name.chars().any(char::is_control) {
            return None;
        }
        if let Some(rest) = name.strip_prefix("oci:/") {
            let rest = format!("/{rest}");
            return match rest.rsplit_once(':') {
                Some((path, tag)) if !tag.contains('/') => {
                    // Tags in layouts are less restricted than in registries.
                    (!tag.is_empty()).then_some(())?;
                    Some(Self::OciLayout(host_path(path)?, Some(tag.to_owned())))
                }
                _ => Some(Self::OciLayout(host_path(&rest)?, None)),
            };
        }
        for (prefix, make) in [
            (
                "docker-archive:",
                Self::DockerArchive as fn(PathBuf) -> Self,
            ),
            ("oci-archive:", Self::OciArchive),
            ("tar:", Self::Tar),
            ("dir:", Self::Directory),
        ] {
            if let Some(path) = name.strip_prefix(prefix)
                && path.starts_with('/')
            {
                return host_path(path).map(make);
            }
        }
        parse_reference(name).map(Self::Registry)
    }

    /// The canonical spelling, under which everything is stored.
    pub fn name(&self) -> String {
        match self {
            Self::Registry(reference) => reference.to_string(),
            Self::OciLayout(path, Some(tag)) => format!("oci:{}:{tag}", path.display()),
            Self::OciLayout(path, None) => format!("oci:{}", path.display()),
            Self::DockerArchive(path) => format!("docker-archive:{}", path.display()),
            Self::OciArchive(path) => format!("oci-archive:{}", path.display()),
            Self::Tar(path) => format!("tar:{}", path.display()),
            Self::Directory(path) => format!("dir:{}", path.display()),
        }
    }

    pub fn is_host_path(&self) -> bool {
        !matches!(self, Self::Registry(_))
    }
}

/// Whether `name` itself states its origin: a registry or a host path. Other names may be
/// references, or typing mistakes.
pub(crate) fn is_explicit(name: &str) -> bool {
    match Origin::parse(name) {
        Some(Origin::Registry(_)) => split_registry(name).is_some(),
        Some(_) => true,
        None => false,
    }
}

/// Whether `stored` is the name under which an environment lies that was asked for as `asked`.
pub fn is_spelled(stored: &str, asked: &str) -> bool {
    stored == asked || Origin::parse(asked).is_some_and(|origin| origin.name() == stored)
}

/// Whether an environment of this name came from a registry, which it names.
pub fn is_pulled(name: &str) -> bool {
    matches!(Origin::parse(name), Some(Origin::Registry(_))) && is_explicit(name)
}

/// Whether a registry runs on this host, where plain HTTP is fine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

/// Host and port of a registry, `[::1]:5000` included.
pub(crate) fn split_port(registry: &str) -> (&str, Option<u16>) {
    match registry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok())
        }
        _ => (registry, None),
    }
}

/// An absolute path of plain names.
fn host_path(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    (path.is_absolute() && plain && path.parent().is_some()).then(|| path.components().collect())
}

fn parse_reference(name: &str) -> Option<Reference> {
    let (name, pin) = match name.split_once('@') {
        Some((name, pin)) => (name, Some(pin)),
        None => (name, None),
    };
    let (registry, rest) = split_registry(name).unwrap_or((DEFAULT_REGISTRY, name));
    let (repository, tag) = match rest.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (rest, None),
    };
    let fits = is_registry(registry)
        && repository.split('/').all(is_repository_part)
        && tag.is_none_or(is_tag)
        && pin.is_none_or(digest::is_valid);
    fits.then_some(())?;
    let registry = match registry.to_ascii_lowercase() {
        alias if alias == "index.docker.io" => DEFAULT_REGISTRY.to_owned(),
        registry => registry,
    };
    let official = registry == DEFAULT_REGISTRY && !repository.contains('/');
    Some(Reference {
        repository: format!("{}{repository}", if official { OFFICIAL } else { "" }),
        registry,
        // A digest identifies the image; a tag beside it is ignored.
        version: match (pin, tag) {
            (Some(pin), _) => Version::Digest(pin.to_owned()),
            (None, tag) => Version::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        },
    })
}

/// Registry and rest, when the first part looks like a host.
fn split_registry(name: &str) -> Option<(&str, &str)> {
    let (first, rest) = name.split_once('/')?;
    (first.contains(['.', ':']) || first == "localhost").then_some((first, rest))
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = split_port(registry);
    let has_port = host.len() < registry.len();
    if has_port && port.is_none_or(|port| port == 0) {
        return false;
    }
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

fn is_repository_part(part: &str) -> bool {
    let ends_well =
        |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    ends_well(part.bytes().next())
        && ends_well(part.bytes().next_back())
        && part
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(name: &str) -> Option<String> {
        Origin::parse(name).map(|origin| origin.name())
    }

    #[test]
    fn references_have_one_spelling() {
        let pin = format!("sha256:{}", "0a".repeat(32));
        for (name, expected) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("index.docker.io/a/b:c", "docker.io/a/b:c"),
            ("team/app:V1_x", "docker.io/team/app:V1_x"),
            ("ghcr.io/Team/app", ""),
            ("ghcr.io/team/app", "ghcr.io/team/app:latest"),
            ("localhost:5000/a/b/c:1", "localhost:5000/a/b/c:1"),
            ("localhost/a", "localhost/a:latest"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("Registry.example/a", "registry.example/a:latest"),
            (
                &format!("python@{pin}"),
                &format!("docker.io/library/python@{pin}"),
            ),
            (&format!("r.io/a:1@{pin}"), &format!("r.io/a@{pin}")),
        ] {
            assert_eq!(normal(name).unwrap_or_default(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for name in [
            "",
            "A",
            "a b",
            "a:",
            "a@sha256:12",
            "../x",
            "a//b",
            "-a",
            "a/",
            "r.io:0/a",
            "r.io:x/a",
            "a:b c",
            "a\n",
            "[::g]:1/a",
            "a%2F",
            "ä",
            "r..io/a",
        ] {
            assert_eq!(normal(name), None, "{name}");
        }
    }

    #[test]
    fn host_paths_are_absolute_and_plain() {
        assert_eq!(
            Origin::parse("oci:/a/b:v1"),
            Some(Origin::OciLayout("/a/b".into(), Some("v1".into())))
        );
        assert_eq!(
            Origin::parse("oci:/a:b/c"),
            Some(Origin::OciLayout("/a:b/c".into(), None))
        );
        assert_eq!(
            normal("tar:/A dir//x.tar.gz"),
            Some("tar:/A dir/x.tar.gz".into())
        );
        assert_eq!(normal("dir:/srv/root/"), Some("dir:/srv/root".into()));
        assert_eq!(
            normal("docker-archive:/x.tar"),
            Some("docker-archive:/x.tar".into())
        );
        for name in ["dir:/", "dir:/a/../b", "tar:/a\u{7}", "oci:/a:", "dir:x/y"] {
            let origin = Origin::parse(name);
            assert!(
                !origin.is_some_and(|origin| origin.is_host_path()),
                "{name}"
            );
        }
    }

    #[test]
    fn only_this_host_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.example",
            "128.0.0.1",
            "127.0.0.1.example",
            "[::2]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
        assert_eq!(split_port("[::1]:80"), ("[::1]", Some(80)));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        assert_eq!(split_port("a.b:5"), ("a.b", Some(5)));
    }
}
