//! What can go wrong here, and the next step for each of it.

use crate::distribution::{self, Need};
use crate::qmp::QmpError;
use crate::version::{FIRMWARE, OLDEST, Version};
use motu_core::{Error, ErrorKind};
use std::io;

/// Why the runtime could not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QemuError {
    #[error("the program {tool} is not installed")]
    Tool { tool: String },
    #[error("QEMU {found} is too old: at least {} is needed", OLDEST)]
    Old { found: Version },
    #[error("QEMU's firmware {} is not installed", FIRMWARE)]
    Firmware,
    #[error("{tool} failed: {tail}")]
    Failed { tool: String, tail: String },
    #[error("{context}: {error}")]
    Io { context: String, error: io::Error },
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("KVM does not work on this host: {reason}")]
    Kvm { reason: String },
    #[error("QEMU would have to run as root: {reason}")]
    Unprivileged { reason: String },
    #[error("this host has no kernel for virtual machines: {reason}")]
    Kernel { reason: String },
    #[error("the virtual machine did not come up: {reason}")]
    Boot { reason: String },
    #[error("the machine's guest: {reason}")]
    Guest { reason: String },
    /// Unlike [`QemuError::Guest`]: nobody in the machine said anything.
    #[error("the machine's guest: {reason}")]
    Silent { reason: String },
    #[error("the template is damaged: {reason}")]
    Damaged { reason: String },
    #[error("the saved machine cannot be used: {reason}")]
    Saved { reason: String },
    #[error("the kept disks cannot be used: {reason}")]
    Disks { reason: String },
    #[error("another machine is using the kept disks")]
    InUse,
    #[error("the machine is not there")]
    Gone,
    #[error("the machine's network: {}", .0.message)]
    Network(motu_core::Error),
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Invalid(String),
}

impl QemuError {
    /// Names the work during which something failed.
    pub(crate) fn io(context: impl Into<String>) -> impl FnOnce(io::Error) -> QemuError {
        let context = context.into();
        move |error| QemuError::Io { context, error }
    }

    /// Whether a machine that was copied from a template failed in a way that another template,
    /// made anew, may not: QEMU ended, or nobody in the machine answered.
    pub(crate) fn may_be_the_templates(&self) -> bool {
        matches!(self, QemuError::Boot { .. } | QemuError::Silent { .. })
    }

    /// Names the work during which a system call failed.
    pub(crate) fn errno(context: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> QemuError {
        let context = context.into();
        move |errno| QemuError::Io {
            context,
            error: errno.into(),
        }
    }
}

impl From<QemuError> for Error {
    fn from(error: QemuError) -> Error {
        let message = error.to_string();
        match error {
            QemuError::Tool { tool } => {
                Error::unavailable(message).hint(distribution::hint(Need::of(&tool)))
            }
            QemuError::Old { .. } => Error::unavailable(message).hint(distribution::upgrade_here()),
            QemuError::Firmware => {
                Error::unavailable(message).hint(distribution::hint(Need::Firmware))
            }
            QemuError::Io { context, error } => Error::io(context, &error),
            QemuError::Network(error) => error,
            QemuError::Kvm { .. } => Error::unavailable(message).hint(
                "choose software emulation (`accel = \"tcg\"`, about 10 times slower), \
                 or run on a host whose KVM works",
            ),
            QemuError::Unprivileged { .. } => Error::unavailable(message).hint(
                "QEMU is never run as root; run the daemon as another user who may use KVM, \
                 map more ids, or choose software emulation (`accel = \"tcg\"`)",
            ),
            QemuError::Kernel { .. } => Error::unavailable(message).hint(
                "it is Debian's kernel for clouds: let this host reach deb.debian.org or a mirror \
                 (`mirror` in [qemu] of config.toml), or bring a kernel yourself (`kernel` and \
                 `modules`, `kernel_package`, or `kernel_artifact` of a registry)",
            ),
            QemuError::Boot { .. } | QemuError::Damaged { .. } => Error::unavailable(message),
            QemuError::Qmp(QmpError::Timeout) => Error::new(ErrorKind::Timeout, message),
            QemuError::Guest { .. } | QemuError::Silent { .. } | QemuError::Qmp(_) => {
                Error::transport(message)
            }
            QemuError::Saved { .. } => Error::unavailable(message).hint(
                "save it again where it is to be used, or without its memory: files do not depend \
                 on the host",
            ),
            QemuError::Disks { .. } => Error::unavailable(message).hint(
                "they are damaged or of another version; start from a new directory or a snapshot",
            ),
            QemuError::InUse => Error::conflict(message).hint("stop it first"),
            QemuError::Gone => Error::not_found(message),
            QemuError::Unsupported(_) => Error::unsupported(message),
            QemuError::Invalid(_) => Error::invalid(message),
            QemuError::Failed { .. } => Error::internal(message),
        }
    }
}
