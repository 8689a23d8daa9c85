//! Resources of a state directory on its host: processes, cgroups, loop devices.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum depth of our cgroups below the mount points of the hierarchies.
const CGROUP_DEPTH: usize = 6;

/// Finds what belongs to one state directory.
#[derive(Clone, Debug)]
pub struct Traces {
    home: PathBuf,
    group: String,
}

/// The ids of sandboxes with a directory, a cgroup or a process.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub directories: BTreeSet<String>,
    pub cgroups: BTreeSet<String>,
    pub busy: BTreeSet<String>,
}

impl Traces {
    pub fn of(home: &Path) -> Traces {
        let hash = Sha256::digest(home.as_os_str().as_bytes());
        let seed = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        Traces {
            home: home.to_path_buf(),
            group: format!("motu-{seed:08x}"),
        }
    }

    /// The cgroups of this state directory, one per hierarchy.
    pub fn groups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        descend(
            Path::new("/sys/fs/cgroup"),
            &self.group,
            CGROUP_DEPTH,
            &mut found,
        );
        found
    }

    /// The sandboxes that have a directory, a cgroup or a process.
    pub fn found(&self) -> Found {
        let groups = self.groups();
        let cgroups: BTreeSet<String> = groups.iter().flat_map(|group| names(group)).collect();
        Found {
            directories: self.machines("container"),
            busy: cgroups
                .iter()
                .filter(|id| !self.processes(id).is_empty())
                .cloned()
                .collect(),
            cgroups,
        }
    }

    /// Machines of one runtime that have a directory.
    pub fn machines(&self, runtime: &str) -> BTreeSet<String> {
        names(&self.home.join("machines").join(runtime))
    }

    /// Workspaces that have disks or snapshots.
    pub fn kept(&self) -> BTreeSet<String> {
        names(&self.home.join("kept"))
    }

    /// Baselines that were made from a seed.
    pub fn seeded(&self) -> BTreeSet<String> {
        let mut all = names(&self.home.join("baselines"));
        all.retain(|name| !name.starts_with("empty-"));
        all
    }

    /// Host pids of all processes of a sandbox.
    pub fn processes(&self, id: &str) -> BTreeSet<i32> {
        self.groups()
            .iter()
            .filter_map(|group| std::fs::read_to_string(group.join(id).join("cgroup.procs")).ok())
            .flat_map(|text| {
                let pids = text.lines().filter_map(|line| line.parse().ok());
                pids.filter(|pid| *pid > 0).collect::<Vec<i32>>()
            })
            .collect()
    }

    /// The number of tasks of a sandbox, as counted by the kernel. The lists of pids are read in
    /// sequence, and may have more entries than ever ran at once.
    pub fn task_count(&self, id: &str) -> u64 {
        let count = |group: &std::path::PathBuf| {
            let text = std::fs::read_to_string(group.join(id).join("pids.current")).ok()?;
            text.trim().parse().ok()
        };
        let found = self.groups().iter().find_map(count);
        found.expect("the kernel counts the tasks of a sandbox")
    }

    /// Loop devices whose image is, or was, in the state directory.
    pub fn loops(&self) -> Vec<String> {
        let devices = std::fs::read_dir("/sys/block")
            .into_iter()
            .flatten()
            .flatten();
        devices
            .filter_map(|device| {
                let backing = std::fs::read(device.path().join("loop/backing_file")).ok()?;
                backing
                    .starts_with(self.home.as_os_str().as_bytes())
                    .then(|| String::from_utf8_lossy(&backing).trim().to_string())
            })
            .collect()
    }

    /// The host pid of a machine's process 1.
    pub fn first_process(&self, id: &str) -> i32 {
        let record = self
            .home
            .join("machines/container")
            .join(id)
            .join("machine.json");
        let record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        record["process"]["pid"].as_i64().unwrap() as i32
    }

    /// Describes everything that is left, and must not be, at the end of a test.
    pub fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = Vec::new();
        for group in self.groups() {
            left.push(format!("cgroup {}", group.display()));
        }
        for id in self.found().busy {
            left.push(format!("processes {:?} of {id}", self.processes(&id)));
        }
        left.extend(
            self.loops()
                .into_iter()
                .map(|path| format!("loop device of {path}")),
        );
        let machines = self.found().directories;
        left.extend(machines.into_iter().map(|id| format!("directory of {id}")));
        left.extend(self.kept().into_iter().map(|id| format!("disks of {id}")));
        left
    }
}

/// The directories in a directory, which may be missing.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn descend(dir: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            found.push(entry.path());
        } else if depth > 1 {
            descend(&entry.path(), name, depth - 1, found);
        }
    }
}

/// The children of a process, with their start times to detect reused pids.
pub fn children(pid: u32) -> Vec<(i32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            let pids = text.split_whitespace().filter_map(|word| word.parse().ok());
            pids.collect::<Vec<i32>>()
        })
        .filter_map(|pid| Some((pid, started(pid)?)))
        .collect()
}

/// The start time of a live process; `None` if it is gone or a zombie.
pub fn started(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_string)
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}
