//! A machine's process, as the host sees it: for those who may look.

use std::path::Path;

/// The process that is a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    pid: u32,
}

impl Outside {
    /// Of the machine in a directory, where its record says which process it is.
    pub(crate) fn of(dir: &Path) -> Option<Outside> {
        let text = std::fs::read(dir.join("machine.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let pid = record["process"]["pid"].as_u64()?;
        let outside = Outside {
            pid: u32::try_from(pid).ok()?,
        };
        outside.is_there().then_some(outside)
    }

    pub(crate) fn is_there(self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    fn status(self) -> Result<String, String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .map_err(|error| format!("its process cannot be looked at: {error}"))
    }

    /// Memory of the host that it has now.
    pub(crate) fn resident_mib(self) -> Result<u64, String> {
        resident_mib(&self.status()?).ok_or_else(|| "the kernel does not say its size".to_string())
    }

    /// Nobody's user, who cannot become anybody else.
    pub(crate) fn confined(self) -> Result<String, String> {
        confined(&self.status()?)
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

fn resident_mib(status: &str) -> Option<u64> {
    let kib = field(status, "VmRSS")?.split_whitespace().next()?;
    kib.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn confined(status: &str) -> Result<String, String> {
    let uid = field(status, "Uid").and_then(|ids| ids.split_whitespace().nth(1));
    let uid = uid.unwrap_or("unknown");
    let set = |name: &str, wanted: &str| field(status, name) == Some(wanted);
    let seen = format!("user {uid}");
    if uid == "0" {
        return Err(format!("{seen}: it is root on the host"));
    }
    match (set("NoNewPrivs", "1"), set("Seccomp", "2")) {
        (true, true) => Ok(format!("{seen}, no new privileges, filtered system calls")),
        (false, _) => Err(format!("{seen}: it could gain privileges")),
        (_, false) => Err(format!("{seen}: its system calls are not filtered")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process_is_read() {
        let status = |uid: &str, new: &str, filter: &str| {
            format!(
                "Name:\tqemu\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmRSS:\t  104448 kB\n\
                 NoNewPrivs:\t{new}\nSeccomp:\t{filter}\nSeccomp_filters:\t1\n"
            )
        };
        let good = status("2415919107", "1", "2");
        assert_eq!(resident_mib(&good), Some(102));
        assert!(confined(&good).unwrap().contains("2415919107"));
        for bad in [
            status("0", "1", "2"),
            status("2415919107", "0", "2"),
            status("2415919107", "1", "0"),
        ] {
            assert!(confined(&bad).is_err(), "{bad}");
        }
    }
}
