//! What tells one program, or one processor, from the next.
//!
//! A machine that was saved under KVM has seen the host's own processor through the host's own
//! kernel. It may be restored only where both are the same; a template's name has them in it.

use crate::accel::Accelerator;
use crate::sys::kvm::{self, Entry};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where the settings of KVM are.
const MODULES: [&str; 3] = ["kvm", "kvm_intel", "kvm_amd"];
/// Lines of `/proc/cpuinfo` that matter.
const FACTS: [&str; 4] = ["model name", "stepping", "microcode", "flags"];

/// Tells one version of a program from the next without running it.
pub(crate) fn file_identity(path: &Path) -> String {
    let found = path
        .canonicalize()
        .and_then(|path: PathBuf| Ok((path.metadata()?, path)));
    found.map_or_else(
        |_| String::new(),
        |(found, path)| {
            let (size, time) = (found.len(), found.mtime());
            format!("{} {size} {time} {}", path.display(), found.mtime_nsec())
        },
    )
}

/// What a machine under KVM depends on besides QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    release: String,
    cpuinfo: String,
    /// `kvm_intel.nested` and others, with their values.
    parameters: BTreeMap<String, String>,
    supported: Vec<Entry>,
}

impl Host {
    fn here() -> Host {
        let uname = rustix::system::uname();
        Host {
            release: uname.release().to_string_lossy().into_owned(),
            cpuinfo: std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
            parameters: MODULES.into_iter().flat_map(parameters).collect(),
            supported: kvm::supported(),
        }
    }

    fn text(&self) -> String {
        let first = self.cpuinfo.lines().take_while(|line| !line.is_empty());
        let facts = first.filter(|line| FACTS.iter().any(|fact| line.starts_with(fact)));
        let mut text: Vec<String> = facts.map(str::to_string).collect();
        text.push(format!("release {}", self.release));
        let parameters = self.parameters.iter();
        text.extend(parameters.map(|(name, value)| format!("{name}={value}")));
        let mut digest = Sha256::new();
        for entry in self.supported.iter().filter_map(lasting) {
            digest.update(entry.map(u32::to_le_bytes).concat());
        }
        let digest = digest.finalize();
        text.push(digest.iter().map(|byte| format!("{byte:02x}")).collect());
        text.join("\n")
    }
}

fn parameters(module: &str) -> Vec<(String, String)> {
    let dir = Path::new("/sys/module").join(module).join("parameters");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let value = std::fs::read_to_string(entry.path()).ok()?;
            Some((format!("{module}.{name}"), value.trim().to_string()))
        })
        .collect()
}

/// A line of what KVM supports without what depends on the processor that answered: its number
/// is in some of them.
fn lasting(entry: &Entry) -> Option<Entry> {
    let [function, index, flags, eax, ebx, ecx, edx] = *entry;
    match function {
        // Topology, which is the asking processor's.
        0xb | 0x1f | 0x8000_001e => None,
        // The upper byte is the processor's number; so are the sizes of what is switched on now.
        1 => Some([function, index, flags, eax, ebx & 0x00ff_ffff, ecx, edx]),
        0xd => Some([function, index, flags, eax, 0, ecx, edx]),
        _ => Some(*entry),
    }
}

/// With KVM a saved machine has seen the host's own processor. The host's kernel and processor do
/// not change while a daemon lives.
pub(crate) fn processor_identity(accel: Accelerator) -> &'static str {
    static HERE: OnceLock<String> = OnceLock::new();
    match accel {
        Accelerator::Tcg => "",
        Accelerator::Kvm => HERE.get_or_init(|| Host::here().text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            release: "6.1.0-1-amd64".into(),
            cpuinfo: "model name : A\nmicrocode : 0x1\nflags : fpu\ncpu MHz : 2100.1\n\n\
                      model name : B\n"
                .into(),
            parameters: [("kvm_intel.nested".to_string(), "Y".to_string())].into(),
            supported: vec![
                [0, 0, 0, 13, 1, 2, 3],
                [1, 0, 0, 0x806ea, 0x0300_0800, 5, 6],
                [0xb, 0, 1, 1, 2, 0x100, 3],
                [0xd, 0, 1, 7, 832, 832, 0],
            ],
        }
    }

    #[test]
    fn another_kernel_setting_or_processor_is_another_host() {
        type Change = fn(&mut Host);
        let changes: [(&str, Change); 6] = [
            ("kernel", |host| host.release = "6.1.0-2-amd64".into()),
            ("microcode", |host| {
                host.cpuinfo = host.cpuinfo.replace("0x1", "0x2");
            }),
            ("model", |host| {
                host.cpuinfo = host.cpuinfo.replace("A", "C");
            }),
            ("a setting of KVM", |host| {
                host.parameters
                    .insert("kvm_intel.nested".into(), "N".into());
            }),
            ("a feature", |host| host.supported[1][5] ^= 4),
            ("a line of features", |host| {
                host.supported.push([7, 0, 1, 1, 2, 3, 4]);
            }),
        ];
        let text = host().text();
        assert_eq!(text, host().text());
        for (what, change) in changes {
            let mut other = host();
            change(&mut other);
            assert_ne!(other.text(), text, "{what} went unnoticed");
        }
    }

    #[test]
    fn which_processor_was_asked_is_no_other_host() {
        let mut other = host();
        other.cpuinfo = other.cpuinfo.replace("2100.1", "3000.0");
        other.cpuinfo = other.cpuinfo.replace("B", "b");
        other.supported[1][4] = 0x0700_0800;
        other.supported[2][6] = 7;
        other.supported[3][4] = 576;
        assert_eq!(other.text(), host().text());
    }

    #[test]
    fn emulation_depends_on_no_host() {
        assert_eq!(processor_identity(Accelerator::Tcg), "");
        assert!(processor_identity(Accelerator::Kvm).contains("release "));
    }
}
