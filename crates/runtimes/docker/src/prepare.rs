//! Builds the requests to the engine. Pure: no I/O.

use crate::walls::Walls;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::runtime::{MachineLimits, MachineSpec};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, Isolation, limits};
use motu_link::network;
use motu_local::hidden;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The directory in which the guest listens at first; shared with the host only until then.
pub(crate) const LINK_DIR: &str = "link";
pub(crate) const LINK_SOCKET: &str = "guest.sock";
/// Mounts for the guest only, inside.
const OURS: &str = "/dev/motu";
/// Shared memory.
const SHM_BYTES: u64 = 64 << 20;
/// Open files of the guest itself.
const GUEST_FILES: u64 = 65_536;
/// Memory and host tasks for gVisor itself, in addition to the machine's limits.
const GVISOR_MIB: u64 = 128;
const GVISOR_TASKS: u64 = 1024;
const GVISOR_TASKS_PER_TASK: u64 = 8;
const MIB: u64 = 1 << 20;
const NANO_CPUS: u64 = 1_000_000_000;

/// The label with the state directory's identity; the others describe the object.
pub(crate) const HOME_LABEL: &str = "motu.home";
pub(crate) const SANDBOX_LABEL: &str = "motu.sandbox";
pub(crate) const ROOT_LABEL: &str = "motu.root";

/// Capabilities of a command run as root: the container runtime's, with numbers and names.
const COMMAND_CAPS: [(u32, &str); 12] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (10, "CAP_NET_BIND_SERVICE"),
    (18, "CAP_SYS_CHROOT"),
    (29, "CAP_AUDIT_WRITE"),
    (31, "CAP_SETFCAP"),
];
/// Additional capabilities of the guest: owners of ports, and who waits for input. Unlike in the
/// container runtime its root may be the host's, so it has nothing more powerful.
const GUEST_CAPS: [&str; 1] = ["CAP_SYS_PTRACE"];
/// In gVisor the guest unmounts its own mounts; the capability applies only to gVisor's kernel.
const GVISOR_CAPS: [&str; 1] = ["CAP_SYS_ADMIN"];

/// Decisions made before the container.
#[derive(Clone, Debug)]
pub(crate) struct Decided<'a> {
    pub(crate) walls: &'a Walls,
    /// The identity of the state directory.
    pub(crate) identity: &'a str,
    pub(crate) image: &'a str,
    /// The guest program, on the host.
    pub(crate) guest: &'a Path,
    /// The most open files and processes that an engine of this host can provide.
    pub(crate) most_files: Option<u64>,
    pub(crate) most_processes: Option<u64>,
}

/// The name of a machine's container.
pub(crate) fn name(identity: &str, id: &str) -> String {
    format!("motu-{}-{id}", identity.get(..12).unwrap_or(identity))
}

/// The container, as requested from the engine.
pub(crate) fn container(spec: &MachineSpec, decided: &Decided<'_>) -> Result<Value, Error> {
    let gvisor = decided.walls.isolation() == Isolation::Gvisor;
    let mut caps: Vec<&str> = COMMAND_CAPS.iter().map(|(_, name)| *name).collect();
    caps.extend(GUEST_CAPS);
    if gvisor {
        caps.extend(GVISOR_CAPS);
    }
    let files = files(&spec.limits, decided.most_files);
    let mut ulimits = vec![json!({ "Name": "nofile", "Soft": files, "Hard": files })];
    if let Some(most) = decided.most_processes {
        // Without this, Podman requests more than it is allowed to; no machine can have more
        // processes than this anyway.
        let most = most.min(limits::PIDS_MAX.max);
        ulimits.push(json!({ "Name": "nproc", "Soft": most, "Hard": most }));
    }
    let allowed = host_limits(&spec.limits, gvisor);
    let mut host = json!({
        "Binds": [
            bind(&spec.dir.join(LINK_DIR), "link", "rw,Z")?,
            bind(decided.guest, "guest", "ro,z")?,
        ],
        // Only the loopback device. A policy's device is added by us.
        "NetworkMode": "none",
        // Do not reveal the host's own name servers.
        "Dns": [network::GATEWAY.to_string()],
        "CapDrop": ["ALL"],
        "CapAdd": caps,
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": false,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Memory": allowed.mem_mib.value.saturating_mul(MIB),
        // The same as memory: no swap.
        "MemorySwap": allowed.mem_mib.value.saturating_mul(MIB),
        "NanoCpus": allowed.vcpu_count.value.saturating_mul(NANO_CPUS),
        "PidsLimit": allowed.pids_max.value,
        "ShmSize": SHM_BYTES,
        "Ulimits": ulimits,
        "RestartPolicy": { "Name": "no" },
        // A machine's output must not fill the engine's disk.
        "LogConfig": { "Type": "none" },
        "Init": false,
        "AutoRemove": false,
    });
    if !gvisor {
        // More than the engine hides by itself: its kernel is the host's.
        let hidden: Vec<&str> = hidden::OF_PROC.into_iter().chain(hidden::OF_SYS).collect();
        host["MaskedPaths"] = json!(hidden);
    }
    if let Some(name) = decided.walls.name() {
        host["Runtime"] = json!(name);
    }
    Ok(json!({
        "Image": decided.image,
        "Entrypoint": [format!("{OURS}/guest")],
        "Cmd": arguments(spec, gvisor),
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": spec.hostname,
        "Env": [],
        "Tty": false,
        "OpenStdin": false,
        "Healthcheck": { "Test": ["NONE"] },
        "Labels": { HOME_LABEL: decided.identity, SANDBOX_LABEL: spec.id.as_str() },
        "HostConfig": host,
    }))
}

/// A bind mount of the host.
fn bind(source: &Path, name: &str, options: &str) -> Result<String, Error> {
    let text = source.to_str().filter(|text| !text.contains(':'));
    let text = text.ok_or_else(|| {
        Error::invalid(format!(
            "container engines cannot mount {}: a path with a colon, or not in UTF-8",
            source.display()
        ))
        .hint("choose another state directory (MOTU_HOME)")
    })?;
    Ok(format!("{text}:{OURS}/{name}:{options}"))
}

/// The guest's command line.
fn arguments(spec: &MachineSpec, gvisor: bool) -> Vec<String> {
    let caps = COMMAND_CAPS
        .iter()
        .fold(0u64, |set, (bit, _)| set | 1 << bit);
    let socket = format!("{OURS}/link/{LINK_SOCKET}");
    let mut args = vec!["serve".to_string(), "--pid1".into(), "--restrict".into()];
    let files = spec.limits.nofile.value;
    // In gVisor no group of the engine's counts the machine's own processes.
    args.push(match gvisor {
        true => format!("{caps:x}:{files}:none:{}", spec.limits.pids_max.value),
        false => format!("{caps:x}:{files}:none"),
    });
    if gvisor {
        args.extend(["--seal".into(), format!("{OURS}/link")]);
        args.extend(["--unmount".into(), format!("{OURS}/guest")]);
        args.extend(["--listen".into(), socket]);
    } else {
        args.extend(["--listen-for-all".into(), socket]);
    }
    args
}

/// Open files of the first process; the limits of commands are below it.
pub(crate) fn files(limits: &MachineLimits, most: Option<u64>) -> u64 {
    let wanted = GUEST_FILES.max(limits.nofile.value);
    most.map_or(wanted, |most| wanted.min(most))
}

/// The limits of the host's cgroups: the machine's plus those of gVisor.
pub(crate) fn host_limits(limits: &MachineLimits, gvisor: bool) -> MachineLimits {
    let mut host = *limits;
    if gvisor {
        host.mem_mib.value = limits.mem_mib.value.saturating_add(GVISOR_MIB);
        let tasks = limits.pids_max.value.saturating_mul(GVISOR_TASKS_PER_TASK);
        host.pids_max.value = tasks.saturating_add(GVISOR_TASKS);
    }
    host
}

/// The most bytes of memory of a machine with this limit, gVisor's own included.
pub(crate) fn most_memory(mem_mib: u64) -> u64 {
    mem_mib.saturating_add(GVISOR_MIB).saturating_mul(MIB)
}

/// Refuses what no engine can provide, before anything is made.
pub(crate) fn refuse(limits: &MachineLimits) -> Result<(), Error> {
    if let Some((name, _)) = limits.io().first() {
        return Err(Error::unsupported(format!(
            "{name} cannot be enforced: the docker runtime does not limit what disks do"
        ))
        .hint(hint![
            "leave the limit out, or choose ",
            field("runtime").is("container"),
            ", gvisor or qemu"
        ]));
    }
    if limits.disk_mib.explicit {
        return Err(Error::unsupported(
            "disk_mib cannot be enforced: a container's files are on the engine's own disk",
        )
        .hint(hint![
            "leave the limit out, or choose ",
            field("runtime").is("container"),
            ", gvisor or qemu"
        ]));
    }
    Ok(())
}

/// The disk's entry among the applied limits.
pub(crate) fn disk(limits: &MachineLimits) -> AppliedLimit {
    AppliedLimit {
        name: "disk_mib".into(),
        value: limits.disk_mib.value,
        enforced: false,
        by: "a container's files are on the engine's own disk".into(),
    }
}

/// Describes the steps.
pub(crate) fn describe(spec: &MachineSpec, walls: &Walls, guest: &Path) -> Result<String, Error> {
    let decided = Decided {
        walls,
        identity: "IDENTITY",
        image: "the environment's image",
        guest,
        most_files: None,
        most_processes: None,
    };
    let value = container(spec, &decided)?;
    let mut text = String::new();
    let root = spec.root.display();
    let _ = writeln!(
        text,
        "import {root} into the engine, unless it has it already"
    );
    let _ = writeln!(text, "make the directory {}", link_dir(spec).display());
    let _ = writeln!(text, "ask the engine for this container and start it:");
    let pretty = serde_json::to_string_pretty(&value);
    text += &pretty.map_err(|error| Error::internal(error.to_string()))?;
    let _ = writeln!(text, "\nconnect to the guest, and take its directory away");
    if spec.network.is_some() {
        let _ = writeln!(text, "put the gateway's device into the container");
    }
    Ok(text)
}

pub(crate) fn link_dir(spec: &MachineSpec) -> PathBuf {
    spec.dir.join(LINK_DIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::runtime::Ask;
    use motu_core::{Accel, SandboxId};

    fn spec(dir: &str) -> MachineSpec {
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        MachineSpec {
            id: SandboxId::parse("sb-one").unwrap(),
            dir: dir.into(),
            environment: "test".into(),
            root: "/env/blobs/x/root".into(),
            hostname: "sb-one".into(),
            wants_sudo: true,
            limits: MachineLimits {
                vcpu_count: ask(2),
                mem_mib: ask(256),
                disk_mib: ask(100),
                pids_max: ask(64),
                nofile: ask(1024),
                io_mbps: Ask::NONE,
                iops: Ask::NONE,
            },
            accel: Accel::Auto,
            kept: None,
            network: None,
        }
    }

    fn made(walls: &Walls, dir: &str) -> Result<Value, Error> {
        let decided = Decided {
            walls,
            identity: "0123456789abcdef",
            image: "image",
            guest: Path::new("/guest"),
            most_files: Some(20_000),
            most_processes: None,
        };
        container(&spec(dir), &decided)
    }

    #[test]
    fn a_container_is_closed_and_bounded() {
        let value = made(&Walls::new(None), "/m").unwrap();
        let host = &value["HostConfig"];
        assert_eq!(host["NetworkMode"], "none");
        assert_eq!(host["CapDrop"][0], "ALL");
        assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
        assert_eq!(host["Memory"], 256 << 20);
        assert_eq!(host["MemorySwap"], host["Memory"]);
        assert_eq!(host["NanoCpus"], 2_000_000_000u64);
        assert_eq!(host["PidsLimit"], 64);
        assert_eq!(host["Ulimits"][0]["Hard"], 20_000);
        assert_eq!(host["Privileged"], false);
        assert!(host.get("Runtime").is_none());
        let caps = host["CapAdd"].as_array().unwrap();
        assert!(!caps.iter().any(|cap| cap == "CAP_SYS_ADMIN"));
        assert!(!caps.iter().any(|cap| cap == "CAP_NET_ADMIN"));
        assert_eq!(value["Labels"][HOME_LABEL], "0123456789abcdef");
    }

    #[test]
    fn gvisor_is_named_and_has_room_of_its_own() {
        let value = made(&Walls::new(Some("runsc")), "/m").unwrap();
        assert_eq!(value["HostConfig"]["Runtime"], "runsc");
        assert_eq!(value["HostConfig"]["Memory"], 384 << 20);
        assert_eq!(value["HostConfig"]["PidsLimit"], 64 * 8 + 1024);
    }

    #[test]
    fn what_a_mount_cannot_name_is_refused() {
        assert!(made(&Walls::new(None), "/with:colon").is_err());
    }

    #[test]
    fn what_cannot_be_enforced_is_refused_when_it_is_insisted_on() {
        let mut limits = spec("/m").limits;
        assert!(refuse(&limits).is_ok());
        limits.disk_mib.explicit = true;
        assert!(refuse(&limits).is_err());
        limits.disk_mib.explicit = false;
        limits.io_mbps.value = 5;
        assert!(refuse(&limits).is_err());
    }
}
