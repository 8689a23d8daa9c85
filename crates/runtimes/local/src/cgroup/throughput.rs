//! Limits of disk I/O: megabytes and operations per second, for reads and writes separately.
//!
//! A rule is about one device. The machine's disk is its own loop device; the environment it reads
//! is on a device of the host.
//!
//! v2 attributes writeback to the cgroup that dirtied the pages. v1 does not: there, synchronous
//! I/O (direct writes, `fsync`, reads) counts for the machine, and writeback for the root group. So
//! the root group gets the same rule for the machine's own disk, and no other device, until the
//! machine ends.

use super::{Hierarchies, Version};
use motu_core::runtime::MachineLimits;
use motu_core::sandbox::AppliedLimit;
use motu_core::{Error, ErrorKind};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a megabyte.
const MEGABYTE: u64 = 1_000_000;
/// The major number of loop devices.
const LOOP_MAJOR: &str = "7:";
/// Files of v1.
const READ: [&str; 2] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.read_iops_device",
];
const WRITE: [&str; 2] = [
    "blkio.throttle.write_bps_device",
    "blkio.throttle.write_iops_device",
];
/// The file of v2.
const MAX: &str = "io.max";
const NO_LIMIT: &str = "rbps=max wbps=max riops=max wiops=max";

/// Reasons for missing limits.
pub(super) const MISSING: &str = "this host's cgroups have no io controller that may be used here";
pub(super) const NO_ROOT: &str = "cgroups of version 1 count what is written later as their root \
     group's, and that group cannot be reached from here";

/// The I/O controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Io {
    pub(super) version: Version,
    /// The parent directory of our groups.
    pub(super) base: PathBuf,
    /// The root group; needed on v1.
    pub(super) root: PathBuf,
}

/// The device that a machine writes to.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A device of its own.
    Own(u64),
    /// A device of the host.
    Shared(u64),
}

/// Limits of one device per second; 0: none.
#[derive(Clone, Copy, Debug)]
struct Rates {
    bytes: u64,
    operations: u64,
}

impl Rates {
    fn of(limits: &MachineLimits) -> Rates {
        Rates {
            bytes: limits.io_mbps.value.saturating_mul(MEGABYTE),
            operations: limits.iops.value,
        }
    }

    fn both(self) -> [u64; 2] {
        [self.bytes, self.operations]
    }
}

impl Hierarchies {
    /// The directory of a machine with I/O limits.
    pub(super) fn io_dir(&self, id: &str) -> Option<PathBuf> {
        let io = self.io.as_ref().ok()?;
        Some(io.base.join(&self.group).join(id))
    }

    /// How the I/O limits are enforced. One that cannot be is refused in any case: there is no
    /// default for them.
    pub(super) fn judge_io(&self, limits: &MachineLimits) -> Result<Vec<AppliedLimit>, Error> {
        let judge = |(name, value): (&str, u64)| match &self.io {
            Ok(io) => Ok(AppliedLimit {
                name: name.to_string(),
                value,
                enforced: true,
                by: io.label().to_string(),
            }),
            Err(reason) => Err(refused(name, reason)),
        };
        limits.io().into_iter().map(judge).collect()
    }

    /// Limits a machine's reads and writes: on its disk, and on the device of its environment.
    pub fn limit_io(
        &self,
        id: &str,
        limits: &MachineLimits,
        (target, environment): (Target, u64),
    ) -> Result<(), Error> {
        let asked = limits.io();
        let (Some((name, _)), Ok(io)) = (asked.first(), &self.io) else {
            return Ok(());
        };
        let dir = io.base.join(&self.group).join(id);
        let rates = Rates::of(limits);
        let written = match (io.version, target) {
            (Version::V1, Target::Own(disk)) => {
                let disk = device(disk).map_err(|reason| refused(name, &reason))?;
                set_old(&dir, &READ, &disk, rates)
                    .and_then(|()| set_old(&dir, &WRITE, &disk, rates))
                    .and_then(|()| set_old(&io.root, &WRITE, &disk, rates))
            }
            (Version::V1, Target::Shared(_)) => {
                let reason = "its disk is a plain directory, and cgroups of version 1 cannot \
                     count what is written there";
                return Err(refused(name, reason));
            }
            (Version::V2, Target::Own(disk) | Target::Shared(disk)) => {
                let disk = device(disk).map_err(|reason| refused(name, &reason))?;
                io.enable(&self.group)
                    .and_then(|()| std::fs::write(dir.join(MAX), new_rule(&disk, rates, "rw")))
            }
        };
        let written = written.and_then(|()| match device(environment) {
            // A file system without a device, such as tmpfs, has nothing to limit.
            Err(_) => Ok(()),
            Ok(_) if matches!(target, Target::Shared(disk) if disk == environment) => Ok(()),
            Ok(place) if io.version == Version::V1 => set_old(&dir, &READ, &place, rates),
            Ok(place) => std::fs::write(dir.join(MAX), new_rule(&place, rates, "r")),
        });
        written.map_err(|error| {
            let message = format!("{name} cannot be set in {}: {error}", dir.display());
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    /// Lifts the limits of a machine that ends: its last writeback is not delayed, and the next
    /// user of its loop device has no rule in the root group.
    pub fn lift_io(&self, id: &str) {
        let (Ok(io), Some(dir)) = (&self.io, self.io_dir(id)) else {
            return;
        };
        let devices = |file: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let first = |line: &str| line.split_whitespace().next().map(str::to_string);
            text.lines().filter_map(first).collect()
        };
        match io.version {
            Version::V1 => {
                for name in WRITE {
                    let own = devices(&dir.join(name));
                    for disk in own.iter().filter(|disk| disk.starts_with(LOOP_MAJOR)) {
                        // The machine's own rule is removed with its group; until then it is lifted
                        // too.
                        for place in [&io.root, &dir] {
                            lift(&place.join(name), &format!("{disk} 0"));
                        }
                    }
                }
            }
            Version::V2 => {
                for disk in devices(&dir.join(MAX)) {
                    lift(&dir.join(MAX), &format!("{disk} {NO_LIMIT}"));
                }
            }
        }
    }
}

impl Io {
    fn label(&self) -> &'static str {
        match self.version {
            Version::V1 => "cgroup v1 blkio",
            Version::V2 => "cgroup v2 io",
        }
    }

    /// Enables the controller in all ancestors, as v2 requires.
    fn enable(&self, group: &str) -> io::Result<()> {
        for dir in [self.base.clone(), self.base.join(group)] {
            let file = dir.join("cgroup.subtree_control");
            let enabled = std::fs::read_to_string(&file).unwrap_or_default();
            if !enabled.split_whitespace().any(|name| name == "io") {
                std::fs::write(&file, "+io")?;
            }
        }
        Ok(())
    }
}

fn refused(name: &str, reason: &str) -> Error {
    Error::unsupported(format!("{name} cannot be enforced: {reason}")).hint(
        "leave the limit out (also in config.toml), or use the qemu runtime, which always can",
    )
}

fn lift(file: &Path, rule: &str) {
    if let Err(error) = std::fs::write(file, rule) {
        tracing::warn!(file = %file.display(), %error, "removing the throughput limit of a disk failed");
    }
}

fn set_old(dir: &Path, files: &[&str; 2], device: &str, rates: Rates) -> io::Result<()> {
    for (file, rate) in files.iter().zip(rates.both()) {
        if rate > 0 {
            std::fs::write(dir.join(file), format!("{device} {rate}"))?;
        }
    }
    Ok(())
}

fn new_rule(device: &str, rates: Rates, ways: &str) -> String {
    let mut rule = device.to_string();
    for way in ways.chars() {
        for (what, rate) in ["bps", "iops"].iter().zip(rates.both()) {
            if rate > 0 {
                rule += &format!(" {way}{what}={rate}");
            }
        }
    }
    rule
}

/// The device number of a whole disk: the kernel refuses rules for partitions.
fn device(number: u64) -> Result<String, String> {
    let name = format!(
        "{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    if rustix::fs::major(number) == 0 {
        return Err("its disk is on a file system without a device of its own".to_string());
    }
    let place = Path::new("/sys/dev/block").join(&name);
    if !place.join("partition").exists() {
        return Ok(name);
    }
    let whole = place
        .canonicalize()
        .and_then(|place| std::fs::read_to_string(place.join("../dev")));
    match whole {
        Ok(whole) => Ok(whole.trim().to_string()),
        Err(error) => Err(format!("the disk of partition {name} is unknown: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::runtime::Ask;

    fn limits(io_mbps: u64, iops: u64) -> MachineLimits {
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(64),
            disk_mib: ask(64),
            pids_max: ask(64),
            nofile: ask(64),
            io_mbps: ask(io_mbps),
            iops: ask(iops),
        }
    }

    fn hierarchies(io: Result<Io, &'static str>) -> Hierarchies {
        Hierarchies {
            controllers: Vec::new(),
            io,
            group: "motu-0".into(),
        }
    }

    #[test]
    fn a_host_without_the_controller_refuses_whoever_set_the_limit() {
        let without = hierarchies(Err(MISSING));
        let error = without.judge(&limits(5, 0)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(
            error
                .message
                .contains("io_mbps cannot be enforced: this host's cgroups have no io controller"),
            "{error}"
        );
        let applied = without.judge(&limits(0, 0)).unwrap();
        assert!(applied.iter().all(|limit| limit.name != "io_mbps"));
    }

    #[test]
    fn version_2_has_one_rule_for_each_device() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("motu-0/sb-1");
        std::fs::create_dir_all(&dir).unwrap();
        let with = hierarchies(Ok(Io {
            version: Version::V2,
            base: top.path().to_path_buf(),
            root: top.path().to_path_buf(),
        }));
        let disk = rustix::fs::makedev(7, 3);
        let nowhere = rustix::fs::makedev(0, 30);
        with.limit_io("sb-1", &limits(2, 50), (Target::Own(disk), nowhere))
            .unwrap();
        let rule = std::fs::read_to_string(dir.join(MAX)).unwrap();
        assert_eq!(rule, "7:3 rbps=2000000 riops=50 wbps=2000000 wiops=50");
        with.lift_io("sb-1");
        let rule = std::fs::read_to_string(dir.join(MAX)).unwrap();
        assert_eq!(rule, format!("7:3 {NO_LIMIT}"));
        let error = with
            .limit_io("sb-1", &limits(2, 0), (Target::Shared(nowhere), nowhere))
            .unwrap_err();
        assert!(error.message.contains("without a device"), "{error}");
    }
}
