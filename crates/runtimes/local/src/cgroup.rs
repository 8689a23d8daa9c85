//! Control groups: limits of memory, processes, CPU time and disk I/O.
//!
//! cgroup v1, v2 and both at once ("hybrid") are plain directories, so this module is plain file
//! work below a root that tests replace. It only writes below `motu-<home>/<id>` of a hierarchy,
//! plus, on v2, the parents' list of enabled controllers, and, on v1, a rule of the root group
//! about a machine's own disk (see `throughput`).
//!
//! ```text
//!   v1  <mount>/<own cgroup>/motu-1a2b3c4d/sb-…   one directory per controller
//!   v2  <mount>/<base>/motu-1a2b3c4d/sb-…         one directory for all
//! ```

mod detect;
mod throughput;

pub use detect::Hierarchies;
pub use throughput::Target;

use motu_core::runtime::{MachineLimits, Usage};
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind};
use motu_launch::ControlGroups;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The length of a CPU accounting period.
const CPU_PERIOD_US: u64 = 100_000;
/// On v1, the fraction of a machine's memory that its sockets may use in addition (1/8).
const SOCKET_SHARE: u64 = 8;
/// Who enforces a limit whose group was removed.
const REMOVED: &str =
    "nobody: its control group was taken away from outside; stop it and start it, or make it again";
/// How often a group that vanished is created again.
const GROUP_TRIES: u32 = 100;
/// How often removing a cgroup is tried: the last process takes a moment to leave it.
const REMOVE_TRIES: u32 = 200;

/// What a controller limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Memory,
    Pids,
    Cpu,
    Freezer,
    /// Counts CPU time, limits nothing. v1 only: `cpu` of v2 counts too.
    Account,
}

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Memory,
        Kind::Pids,
        Kind::Cpu,
        Kind::Freezer,
        Kind::Account,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Pids => "pids",
            Kind::Cpu => "cpu",
            Kind::Freezer => "freezer",
            Kind::Account => "cpuacct",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// A usable controller, and the parent directory of our cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub kind: Kind,
    pub version: Version,
    pub base: PathBuf,
}

/// The cgroups of one machine.
#[derive(Debug, Default)]
pub struct Made {
    /// The directories, to be removed at the end.
    pub dirs: Vec<PathBuf>,
    /// The `tasks` or `cgroup.procs` files through which a process enters.
    pub entries: Vec<PathBuf>,
    pub limits: Vec<AppliedLimit>,
}

impl Hierarchies {
    /// All possible directories of a machine.
    pub fn dirs(&self, id: &str) -> Vec<PathBuf> {
        let mut dirs = self.usual_dirs(id);
        dirs.extend(self.io_dir(id).filter(|dir| !dirs.contains(dir)));
        dirs
    }

    /// The directories that every machine has.
    fn usual_dirs(&self, id: &str) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = Vec::new();
        for controller in &self.controllers {
            let dir = controller.base.join(&self.group).join(id);
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        dirs
    }

    /// The files through which a process of a machine with these limits enters its cgroups.
    pub fn entries(&self, id: &str, limits: &MachineLimits) -> Vec<PathBuf> {
        let of = |version: Version, base: &Path| {
            base.join(&self.group).join(id).join(match version {
                Version::V1 => "tasks",
                Version::V2 => "cgroup.procs",
            })
        };
        let mut entries: Vec<PathBuf> = Vec::new();
        let usual = self.controllers.iter().map(|c| of(c.version, &c.base));
        let io = self.io.iter().filter(|_| !limits.io().is_empty());
        for entry in usual.chain(io.map(|io| of(io.version, &io.base))) {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries
    }

    /// The control groups that a machine may see: those that limit it.
    pub fn shown(&self) -> ControlGroups {
        let of = |version| {
            let controllers = self.controllers.iter();
            let limits = |kind| !matches!(kind, Kind::Freezer | Kind::Account);
            controllers.filter(move |c| c.version == version && limits(c.kind))
        };
        ControlGroups {
            old: of(Version::V1).map(|c| c.kind.name().to_string()).collect(),
            unified: of(Version::V2).next().is_some(),
        }
    }

    /// How each limit would be enforced; refuses an explicit one that cannot be.
    pub fn judge(&self, limits: &MachineLimits) -> Result<Vec<AppliedLimit>, Error> {
        let asks = [
            (Kind::Memory, "mem_mib", limits.mem_mib),
            (Kind::Pids, "pids_max", limits.pids_max),
            (Kind::Cpu, "vcpu_count", limits.vcpu_count),
        ];
        let mut applied = Vec::new();
        for (kind, name, ask) in asks {
            let found = self.controller(kind);
            if found.is_none() && ask.explicit {
                return Err(Error::unsupported(format!(
                    "{name} cannot be enforced: {}",
                    self.missing(kind)
                ))
                .hint("leave the limit out, or run the daemon where it may use this controller"));
            }
            applied.push(AppliedLimit {
                name: name.to_string(),
                value: ask.value,
                enforced: found.is_some(),
                by: found.map_or_else(|| self.missing(kind), |c| c.label()),
            });
        }
        applied.extend(self.judge_io(limits)?);
        Ok(applied)
    }

    pub fn controller(&self, kind: Kind) -> Option<&Controller> {
        self.controllers.iter().find(|c| c.kind == kind)
    }

    fn missing(&self, kind: Kind) -> String {
        format!("no usable cgroup controller for {}", kind.name())
    }

    /// Creates and configures the cgroups of one machine.
    pub fn make(&self, id: &str, limits: &MachineLimits) -> Result<Made, Error> {
        let made = Made {
            limits: self.judge(limits)?,
            dirs: match limits.io().is_empty() {
                true => self.usual_dirs(id),
                false => self.dirs(id),
            },
            entries: self.entries(id, limits),
        };
        for dir in &made.dirs {
            if let Err(error) = self.make_dir(dir) {
                remove_now(&made.dirs);
                return Err(Error::io(format_args!("cgroup {}", dir.display()), &error));
            }
        }
        for controller in &self.controllers {
            let dir = controller.base.join(&self.group).join(id);
            if let Err((file, error)) = controller.apply(&dir, limits) {
                remove_now(&made.dirs);
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("cgroup file {}: {error}", file.display()),
                ));
            }
        }
        Ok(made)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match std::fs::create_dir(dir) {
                // The group is removed with its last machine, perhaps between the next two calls.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < GROUP_TRIES => {
                    tries += 1;
                    match self.make_group(dir.parent().unwrap_or(dir)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                // Left by a removed machine with the same id: empty, or its removal would have
                // failed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => break,
                other => {
                    other?;
                    break;
                }
            }
        }
        // Whoever made the group may not have come to its controllers yet, or never will: two machines
        // are the first ones at once, or a daemon ended in between.
        self.enable(dir.parent().unwrap_or(dir))
    }

    /// Creates the group of this state directory, with the controllers its machines need.
    fn make_group(&self, group: &Path) -> io::Result<()> {
        match std::fs::create_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.enable(group)
    }

    /// Gives the machines of a group the controllers they need (version 2).
    fn enable(&self, group: &Path) -> io::Result<()> {
        let base = group.parent().unwrap_or(group);
        let wanted = self
            .controllers
            .iter()
            .filter(|c| c.version == Version::V2 && c.base == base && c.kind != Kind::Freezer);
        let words: Vec<String> = wanted.map(|c| format!("+{}", c.kind.name())).collect();
        if words.is_empty() {
            return Ok(());
        }
        for dir in [base, group] {
            let file = dir.join("cgroup.subtree_control");
            let enabled = std::fs::read_to_string(&file).unwrap_or_default();
            let enabled: Vec<&str> = enabled.split_whitespace().collect();
            for word in &words {
                if !enabled.contains(&&word[1..]) {
                    std::fs::write(&file, word)?;
                }
            }
        }
        Ok(())
    }

    /// Lifts the CPU limit while a machine is being made, or sets it again.
    pub fn limit_cpu(&self, id: &str, vcpu_count: Option<u64>) -> io::Result<()> {
        let Some(controller) = self.controller(Kind::Cpu) else {
            return Ok(());
        };
        let quota = vcpu_count.map(|count| (count * CPU_PERIOD_US).to_string());
        let (file, value) = match controller.version {
            Version::V1 => ("cpu.cfs_quota_us", quota.unwrap_or("-1".into())),
            Version::V2 => {
                let quota = quota.unwrap_or("max".into());
                ("cpu.max", format!("{quota} {CPU_PERIOD_US}"))
            }
        };
        let dir = controller.base.join(&self.group).join(id);
        std::fs::write(dir.join(file), value)
    }

    /// Freezes or thaws every process of a machine.
    pub async fn freeze(&self, id: &str, frozen: bool) -> Result<(), Error> {
        let controller = self.controller(Kind::Freezer).ok_or_else(|| {
            Error::unsupported("pausing needs a cgroup freezer, and there is none to use")
        })?;
        let dir = controller.base.join(&self.group).join(id);
        let context = |error: io::Error| Error::io("freezer", &error);
        match controller.version {
            Version::V2 => {
                let word = if frozen { "1" } else { "0" };
                std::fs::write(dir.join("cgroup.freeze"), word).map_err(context)?;
                let expected = format!("frozen {word}");
                wait_for(|| file_has_line(&dir.join("cgroup.events"), &expected)).await
            }
            Version::V1 => {
                let word = if frozen { "FROZEN" } else { "THAWED" };
                std::fs::write(dir.join("freezer.state"), word).map_err(context)?;
                wait_for(|| file_has_line(&dir.join("freezer.state"), word)).await
            }
        }
    }

    /// The file that lets a machine go on, and what is written to it.
    pub fn thawing(&self, id: &str) -> Option<(PathBuf, String)> {
        let controller = self.controller(Kind::Freezer)?;
        let (file, word) = match controller.version {
            Version::V1 => ("freezer.state", "THAWED"),
            Version::V2 => ("cgroup.freeze", "0"),
        };
        let dir = controller.base.join(&self.group).join(id);
        Some((dir.join(file), word.to_string()))
    }

    /// Thaws without waiting: on v1 a frozen process cannot even be killed.
    pub fn thaw(&self, id: &str) {
        if let Some((file, word)) = self.thawing(id) {
            // Nothing to thaw if the directory is gone.
            let _ = std::fs::write(file, word);
        }
    }

    /// Processes the memory limit has killed.
    pub fn memory_kills(&self, id: &str) -> u64 {
        let Some(controller) = self.controller(Kind::Memory) else {
            return 0;
        };
        let file = match controller.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = std::fs::read_to_string(controller.base.join(&self.group).join(id).join(file));
        let count = text.ok().and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))?;
            line.trim().parse().ok()
        });
        count.unwrap_or(0)
    }

    /// A machine's resource usage, if both controllers count it. The memory of one that has not run
    /// since `before` is taken from there: reading it costs more than everything else.
    pub fn usage(&self, id: &str, before: Option<Usage>) -> Option<Usage> {
        let read = |controller: &Controller, name: &str| {
            let dir = controller.base.join(&self.group).join(id);
            std::fs::read_to_string(dir.join(name)).ok()
        };
        let cpu_us = match self.controller(Kind::Account) {
            Some(account) => {
                let nanoseconds = read(account, "cpuacct.usage")?;
                nanoseconds.trim().parse::<u64>().ok()? / 1000
            }
            None => value_of(
                &read(self.controller(Kind::Cpu)?, "cpu.stat")?,
                "usage_usec ",
            )?,
        };
        if let Some(before) = before.filter(|before| before.cpu_us == cpu_us) {
            return Some(before);
        }
        let memory = self.controller(Kind::Memory)?;
        let (used, cache) = match memory.version {
            Version::V1 => ("memory.usage_in_bytes", "total_inactive_file "),
            Version::V2 => ("memory.current", "inactive_file "),
        };
        let used = read(memory, used)?;
        // Inactive page cache does not count: the kernel reclaims it.
        let cache = value_of(&read(memory, "memory.stat")?, cache).unwrap_or(0);
        Some(Usage {
            cpu_us,
            mem_bytes: used.trim().parse::<u64>().ok()?.saturating_sub(cache),
        })
    }

    /// The limits of a machine as they hold now: one whose group the machine's process is no longer
    /// in holds nothing. Groups can be removed from outside, once their processes were moved away.
    pub fn standing(&self, id: &str, pid: i32, limits: &[AppliedLimit]) -> Vec<AppliedLimit> {
        let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
        // A process that has ended is in no group; that it has ended is seen elsewhere.
        let own = own.unwrap_or_default();
        let mut limits = limits.to_vec();
        if own.is_empty() {
            return limits;
        }
        for limit in limits.iter_mut().filter(|limit| limit.enforced) {
            if !self.is_inside(&own, id, &limit.name) {
                limit.enforced = false;
                limit.by = REMOVED.to_string();
            }
        }
        limits
    }

    /// Whether a process with these memberships is in the group that keeps a limit of a machine;
    /// also true for limits that no group keeps.
    fn is_inside(&self, own: &str, id: &str, limit: &str) -> bool {
        let controller = |kind| self.controller(kind).map(|c| (kind.name(), c.version));
        let keeper = match limit {
            "mem_mib" => controller(Kind::Memory),
            "pids_max" => controller(Kind::Pids),
            "vcpu_count" => controller(Kind::Cpu),
            "io_mbps" | "iops" => self.io.as_ref().ok().map(|io| ("blkio", io.version)),
            _ => None,
        };
        let Some((name, version)) = keeper else {
            return true;
        };
        let place = format!("/{}/{id}", self.group);
        own.lines().any(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(names), Some(path)) = (fields.next(), fields.next()) else {
                return false;
            };
            let ours = match version {
                Version::V1 => names.split(',').any(|one| one == name),
                Version::V2 => names.is_empty(),
            };
            // What was removed with the process still in it is marked.
            ours && path.ends_with(&place)
        })
    }

    /// How often the process limit has refused a fork of a machine.
    pub fn refused_tasks(&self, id: &str) -> u64 {
        let Some(controller) = self.controller(Kind::Pids) else {
            return 0;
        };
        let dir = controller.base.join(&self.group).join(id);
        let text = std::fs::read_to_string(dir.join("pids.events")).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("max "));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }

    /// The processes in a machine's cgroups, by host pid.
    pub fn processes(&self, id: &str) -> Vec<i32> {
        let mut pids: Vec<i32> = self
            .dirs(id)
            .iter()
            .filter_map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")).ok())
            .flat_map(|text| {
                text.lines()
                    .filter_map(|l| l.parse().ok())
                    .collect::<Vec<_>>()
            })
            .filter(|pid| *pid > 0)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Removes our group where no machine is left in it.
    pub fn leave(&self) {
        let bases = self.controllers.iter().map(|c| &c.base);
        for base in bases.chain(self.io.iter().map(|io| &io.base)) {
            let _ = std::fs::remove_dir(base.join(&self.group));
        }
    }

    /// Removes a machine's cgroups once the last process has left them. v1 has no event for that,
    /// so it is retried with growing pauses.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        for dir in self.dirs(id) {
            let mut pause = Duration::from_micros(200);
            let mut tries = 0;
            loop {
                match std::fs::remove_dir(&dir) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(_) if tries < REMOVE_TRIES => {
                        tries += 1;
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_millis(50));
                    }
                    Err(error) => {
                        return Err(Error::new(
                            ErrorKind::Cleanup,
                            format!("cgroup {} is left: {error}", dir.display()),
                        ));
                    }
                }
            }
        }
        self.leave();
        Ok(())
    }
}

impl Controller {
    fn label(&self) -> String {
        let version = match self.version {
            Version::V1 => "v1",
            Version::V2 => "v2",
        };
        format!("cgroup {version} {}", self.kind.name())
    }

    fn apply(&self, dir: &Path, limits: &MachineLimits) -> Result<(), (PathBuf, io::Error)> {
        let bytes = limits.mem_mib.value * 1024 * 1024;
        let quota = limits.vcpu_count.value * CPU_PERIOD_US;
        let pids = limits.pids_max.value;
        let files: Vec<(&str, String, Presence)> = match (self.version, self.kind) {
            (Version::V1, Kind::Memory) => vec![
                ("memory.limit_in_bytes", bytes.to_string(), Presence::Needed),
                // Memory and swap together; only if swap accounting is enabled.
                (
                    "memory.memsw.limit_in_bytes",
                    bytes.to_string(),
                    Presence::Optional,
                ),
                // v1 counts socket memory separately.
                (
                    "memory.kmem.tcp.limit_in_bytes",
                    (bytes / SOCKET_SHARE).to_string(),
                    Presence::Optional,
                ),
            ],
            (Version::V1, Kind::Cpu) => vec![
                (
                    "cpu.cfs_period_us",
                    CPU_PERIOD_US.to_string(),
                    Presence::Needed,
                ),
                ("cpu.cfs_quota_us", quota.to_string(), Presence::Needed),
            ],
            (Version::V2, Kind::Memory) => vec![
                ("memory.max", bytes.to_string(), Presence::Needed),
                ("memory.swap.max", "0".into(), Presence::Optional),
                // Kill one process of the machine, not all of them with the guest.
                ("memory.oom.group", "0".into(), Presence::Optional),
            ],
            (Version::V2, Kind::Cpu) => vec![(
                "cpu.max",
                format!("{quota} {CPU_PERIOD_US}"),
                Presence::Needed,
            )],
            (_, Kind::Pids) => vec![("pids.max", pids.to_string(), Presence::Needed)],
            (_, Kind::Freezer | Kind::Account) => Vec::new(),
        };
        for (name, value, presence) in files {
            let file = dir.join(name);
            match std::fs::write(&file, value) {
                Err(error) if presence == Presence::Needed => return Err((file, error)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Needed,
    Optional,
}

/// After a failed creation the directories are empty, so one attempt is enough.
fn remove_now(dirs: &[PathBuf]) {
    for dir in dirs {
        let _ = std::fs::remove_dir(dir);
    }
}

fn value_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

fn file_has_line(file: &Path, line: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(|l| l == line))
}

async fn wait_for(mut reached: impl FnMut() -> bool) -> Result<(), Error> {
    let mut pause = Duration::from_micros(200);
    for _ in 0..REMOVE_TRIES {
        if reached() {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Err(Error::new(ErrorKind::Timeout, "the freezer did not settle"))
}
