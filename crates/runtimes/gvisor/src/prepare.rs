//! Builds the bundle and the mounts of a machine. Pure: no I/O.

use crate::mounts::{Notes, Overlay, Step};
use crate::oci::{Access, Capabilities, Config, Mount, Rlimit};
use motu_core::runtime::MachineSpec;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The directory and socket of the link, on the host.
pub(crate) const LINK_DIR: &str = "link";
pub(crate) const LINK_SOCKET: &str = "guest.sock";
/// The mount point of the machine's root, for `runsc`.
pub(crate) const ROOT: &str = "root";
/// The mount point of the machine's `/workspace`, for `runsc`.
pub(crate) const WORKSPACE: &str = "workspace";
/// The mount point of the machine's disk.
pub(crate) const DISK: &str = "disk";
/// The state directory of `runsc` for the machine.
pub(crate) const STATE: &str = "state";
/// The file that covers `/proc/meminfo` for `runsc`.
pub(crate) const MEMINFO: &str = "meminfo";

/// Mounts for the guest only; it unmounts most of them before anything else runs.
const OURS: &str = "/dev/motu";
/// gVisor's own cgroups, in which the guest limits processes; `runsc` supports no other path.
const CGROUP: &str = "/sys/fs/cgroup";
/// The size limit of `/dev`, shared memory included.
const DEV_MIB: u32 = 64;
/// Open files of the guest itself.
const GUEST_FILES: u64 = 65_536;

/// Capabilities of a command run as root: numbers and names of `capabilities(7)`.
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
/// Additional capabilities of the guest: access to any file, owners of ports, limits of open files,
/// mounts and the hostname.
const GUEST_CAPS: [&str; 4] = [
    "CAP_DAC_READ_SEARCH",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_ADMIN",
];

/// Decisions made before the bundle.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// The guest program, on the host.
    pub(crate) guest: PathBuf,
    /// Where the disk is.
    pub(crate) disk: Disk,
    /// How many processors programs are shown; `None`: all of the host's.
    pub(crate) processors: Option<u64>,
}

/// Where a machine's writes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// A file system of bounded size, mounted at [`DISK`].
    Mounted,
    /// A directory of the host.
    Directory(PathBuf),
}

impl Disk {
    fn place(&self, dir: &Path) -> PathBuf {
        match self {
            Disk::Mounted => dir.join(DISK),
            Disk::Directory(path) => path.clone(),
        }
    }
}

/// The mounts to make before `runsc` is started.
pub(crate) fn mounts(spec: &MachineSpec, decided: &Decided) -> Vec<Step> {
    let disk = decided.disk.place(&spec.dir);
    let mut steps = vec![Step::Private];
    if decided.disk == Disk::Mounted {
        steps.push(Step::Disk { at: disk.clone() });
    }
    steps.push(Step::Overlay(Overlay {
        lower: spec.root.clone(),
        upper: disk.join("upper"),
        work: disk.join("work"),
        at: spec.dir.join(ROOT),
        notes: Notes::Trusted,
    }));
    if let Some(kept) = &spec.kept {
        steps.push(Step::Overlay(Overlay {
            lower: kept.baseline.clone(),
            upper: disk.join("workspace-upper"),
            work: disk.join("workspace-work"),
            at: spec.dir.join(WORKSPACE),
            notes: Notes::User,
        }));
    }
    steps.push(Step::Memory {
        file: spec.dir.join(MEMINFO),
    });
    steps
}

/// The bundle, with an existing network namespace or none.
pub(crate) fn config(spec: &MachineSpec, decided: &Decided, network: Option<PathBuf>) -> Config {
    let mut caps: Vec<&'static str> = COMMAND_CAPS.iter().map(|(_, name)| *name).collect();
    caps.extend(GUEST_CAPS);
    let root = spec.dir.join(ROOT);
    let args = arguments(spec, decided);
    let mut config = Config::new(&root, &spec.hostname, args, Capabilities::all_of(&caps));
    if let Some(network) = network {
        config.join_network(network);
    }
    let files = GUEST_FILES.max(spec.limits.nofile.value);
    config.process.rlimits = vec![
        Rlimit {
            kind: "RLIMIT_NOFILE",
            soft: files,
            hard: files,
        },
        Rlimit {
            kind: "RLIMIT_CORE",
            soft: 0,
            hard: 0,
        },
    ];
    let dev_size = format!("size={DEV_MIB}m");
    config.mounts = vec![
        Mount::of("proc", "/proc", &[]),
        Mount::of("sysfs", "/sys", &["ro"]),
        Mount::of("tmpfs", "/dev", &["mode=755", &dev_size]),
        // Mode 1777 as usual: Python and databases keep locks here.
        Mount::of(
            "tmpfs",
            "/dev/shm",
            &["nosuid", "nodev", "mode=1777", &dev_size],
        ),
        Mount::of("cgroup", CGROUP, &[]),
        Mount::bind(
            &spec.dir.join(LINK_DIR),
            &format!("{OURS}/link"),
            Access::ReadWrite,
        ),
        Mount::bind(&decided.guest, &format!("{OURS}/guest"), Access::ReadOnly),
    ];
    if let Some(kept) = &spec.kept {
        let upper = decided.disk.place(&spec.dir).join("workspace-upper");
        let place = spec.dir.join(WORKSPACE);
        config.mounts.extend([
            Mount::bind(&place, "/workspace", Access::ReadWrite),
            Mount::bind(&upper, &format!("{OURS}/upper"), Access::ReadOnly),
            Mount::bind(&kept.baseline, &format!("{OURS}/lower"), Access::ReadOnly),
        ]);
    }
    config
}

/// The guest's command line.
fn arguments(spec: &MachineSpec, decided: &Decided) -> Vec<String> {
    let caps = COMMAND_CAPS
        .iter()
        .fold(0u64, |set, (bit, _)| set | 1 << bit);
    let privileges = if spec.wants_sudo { "new" } else { "none" };
    let nofile = spec.limits.nofile.value;
    let processes = spec.limits.pids_max.value;
    let mut args = vec![
        format!("{OURS}/guest"),
        "serve".into(),
        "--pid1".into(),
        "--restrict".into(),
        format!("{caps:x}:{nofile}:{privileges}:{processes}"),
        "--write".into(),
        format!("{CGROUP}/pids/pids.max={}", tasks(processes)),
    ];
    if let Some(count) = decided.processors {
        args.extend(["--processors".into(), count.to_string()]);
    }
    if spec.kept.is_some() {
        args.extend([
            "--workspace-upper".into(),
            format!("{OURS}/upper"),
            "--workspace-lower".into(),
            format!("{OURS}/lower"),
            "--workspace-user-attributes".into(),
            // The gofer reports success for every flush, whatever the disk returned.
            "--errors-hidden".into(),
        ]);
    }
    // Also unmount the tmpfs that `runsc` mounts on an empty /tmp: files there belong on the disk.
    args.extend(["--seal".into(), format!("{OURS}/link")]);
    let mut hidden = vec!["guest"];
    if spec.kept.is_some() {
        hidden.extend(["upper", "lower"]);
    }
    let hidden = hidden.iter().map(|name| format!("{OURS}/{name}"));
    for place in hidden.chain([CGROUP.to_string(), "/tmp".to_string()]) {
        args.extend(["--unmount".into(), place]);
    }
    // Last: when a connection is possible, everything is done.
    args.extend(["--listen".into(), format!("{OURS}/link/{LINK_SOCKET}")]);
    args
}

/// The tasks inside of a machine in which each user may have so many.
///
/// gVisor keeps the memory and the host's processes of every fork that its control group refuses, for
/// ever: a fork bomb ends the machine. What a user's limit refuses costs nothing. So that limit is
/// the one that is met, and the group only bounds those who become many users.
pub(crate) fn tasks(processes: u64) -> u64 {
    const USERS: u64 = 2;
    /// The guest, and two for each command that runs.
    const OWN: u64 = 64;
    processes.saturating_mul(USERS).saturating_add(OWN)
}

/// The contents of `/proc/meminfo` for `runsc`, which reads one line of it.
pub(crate) fn meminfo(mem_mib: u64) -> String {
    let kib = mem_mib * 1024;
    format!("MemTotal: {kib:>15} kB\nMemFree: {kib:>16} kB\nMemAvailable: {kib:>11} kB\n")
}

/// Describes the steps and the bundle.
pub(crate) fn describe(spec: &MachineSpec, decided: &Decided, options: &[String]) -> String {
    let mut text = String::new();
    for step in mounts(spec, decided) {
        let _ = writeln!(text, "{step}");
    }
    let config = config(spec, decided, None);
    for mount in &config.mounts {
        let (source, options) = (mount.source.display(), mount.options.join(","));
        let _ = writeln!(text, "show {source} at {} ({options})", mount.destination);
    }
    let _ = writeln!(text, "start runsc {} run", options.join(" "));
    let _ = writeln!(text, "pid 1: {}", config.process.args.join(" "));
    text
}
