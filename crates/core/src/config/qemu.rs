//! `[qemu]` of the configuration.

use crate::Error;
use serde::{Deserialize, Serialize};

/// What the `qemu` runtime makes machines from; looked for or downloaded when missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QemuConfig {
    /// The program, in place of the first `qemu-system-x86_64` of the search path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<std::path::PathBuf>,
    /// A kernel (`vmlinuz`) for machines. With `modules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<std::path::PathBuf>,
    /// The directory of that kernel's modules, such as `/lib/modules/6.1.0-40-cloud-amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<std::path::PathBuf>,
    /// Instead of both: a Debian package of a kernel (`.deb`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_package: Option<std::path::PathBuf>,
    /// The same package as an OCI artifact of one file, by digest: `registry.example/kernels/cloud@sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_artifact: Option<String>,
    /// Where the kernel's package is downloaded from in place of Debian's own mirrors: `http://` or
    /// `https://`, and the directory that has `pool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
}

impl QemuConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.kernel.is_some() != self.modules.is_some() {
            return Err(Error::invalid(
                "config.toml: [qemu] kernel and modules belong together, and one of them is missing",
            )
            .hint("set both, or kernel_package alone"));
        }
        let named = [
            ("kernel", self.kernel.is_some()),
            ("kernel_package", self.kernel_package.is_some()),
            ("kernel_artifact", self.kernel_artifact.is_some()),
        ];
        let mut named = named.iter().filter(|(_, is)| *is).map(|(name, _)| *name);
        if let (Some(one), Some(other)) = (named.next(), named.next()) {
            return Err(Error::invalid(format!(
                "config.toml: [qemu] {one} and {other} are two answers to one question"
            ))
            .hint("keep one of them"));
        }
        let artifact = self.kernel_artifact.as_deref().unwrap_or_default();
        let digest = artifact.split_once("@sha256:").map(|(_, digest)| digest);
        let whole =
            |digest: &str| digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        if self.kernel_artifact.is_some() && !digest.is_some_and(whole) {
            return Err(
                Error::invalid("config.toml: [qemu] kernel_artifact has no whole digest").hint(
                    "such as registry.example/kernels/cloud@sha256: and 64 hexadecimal digits",
                ),
            );
        }
        let address = |mirror: &str| {
            ["http://", "https://"].iter().any(|scheme| {
                let rest = mirror.strip_prefix(scheme);
                rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
            })
        };
        match &self.mirror {
            Some(mirror) if !address(mirror) => Err(Error::invalid(format!(
                "config.toml: [qemu] mirror is {mirror:?}, which is no address"
            ))
            .hint("such as https://deb.debian.org/debian-security")),
            _ => Ok(()),
        }
    }
}
