//! Telling the truth about this host.

use crate::choose::Demand;
use crate::engine::Engine;
use crate::store::STORE_VERSION;
use motu_core::limits::Limit;
use motu_core::report::{Check, Doctor, Health, RuntimeReport};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Isolation, Result};
use motu_environments::EnvironmentError;

/// Open files the daemon needs for the default number of sandboxes, with room to spare.
const WANTED_FILES: u64 = 4096;

impl Engine {
    pub(crate) async fn examine(&self, deep: bool) -> Result<Doctor> {
        let mut runtimes = self.sandboxes.runtimes.reports(deep).await;
        self.without_environments(&mut runtimes).await;
        if deep {
            for report in &mut runtimes {
                if report.works && report.isolation != Isolation::None {
                    let check = self.try_out(&report.name).await;
                    if check.health == Health::Failed {
                        report.works = false;
                        report.detail = check.detail.clone();
                    }
                    report.checks.push(check);
                }
            }
        }
        let auto = runtimes
            .iter()
            .filter(|report| report.works && report.isolation != Isolation::None)
            .filter(|report| !self.is_by_name_only(&report.name))
            .min_by_key(|report| (self.is_foreign(&report.name), report.emulated))
            .map(|report| report.name.clone());
        let host = self.host_checks();
        Ok(Doctor {
            healthy: auto.is_some() && host.iter().all(|check| check.health != Health::Failed),
            version: env!("CARGO_PKG_VERSION").to_string(),
            link_version: motu_link::LINK_VERSION,
            store_version: STORE_VERSION,
            home: self.sandboxes.shared.home.path().display().to_string(),
            privilege: match rustix::process::geteuid().is_root() {
                true => "root".to_string(),
                false => "user".to_string(),
            },
            auto,
            runtimes,
            host,
        })
    }

    /// A runtime that starts from environments does not work where none is installed and none can
    /// be.
    async fn without_environments(&self, runtimes: &mut [RuntimeReport]) {
        let checked = self.sandboxes.environments.check();
        let Err(error @ EnvironmentError::NoIdMap(_)) = checked else {
            return;
        };
        if self.any_environment().await.is_some() {
            return;
        }
        for report in runtimes.iter_mut().filter(|report| report.works) {
            let runtime = self.sandboxes.runtimes.named(&report.name);
            if runtime.is_none_or(|runtime| !runtime.capabilities().uses_environment) {
                continue;
            }
            report.works = false;
            report.detail = format!("no environment is installed, and none can be: {error}");
            report.checks.push(Check {
                name: "environments".to_string(),
                health: Health::Failed,
                detail: error.to_string(),
                fix: error.hint(),
            });
        }
    }

    /// Whether calls can be served: the store answers, and the configured runtime works. What is
    /// known of a runtime that works is not asked for again.
    pub(crate) async fn answers(&self) -> Result<()> {
        let sandboxes = &self.sandboxes;
        sandboxes.shared.store.meta("ready").await?;
        let demand = Demand {
            runtime: &sandboxes.config.runtime,
            floor: sandboxes.config.min_isolation,
            allow_host_compat: true,
            accel: sandboxes.config.accel,
            setuid: false,
        };
        sandboxes.runtimes.choose(demand).await.map(drop)
    }

    /// Whether a runtime is somebody else's, which `auto` takes last.
    fn is_foreign(&self, name: &str) -> bool {
        let runtime = self.sandboxes.runtimes.named(name);
        runtime.is_some_and(|runtime| runtime.foreign())
    }

    /// Whether `auto` never takes a runtime.
    fn is_by_name_only(&self, name: &str) -> bool {
        let runtime = self.sandboxes.runtimes.named(name);
        runtime.is_some_and(|runtime| runtime.by_name_only())
    }

    /// Boots a machine, talks to it, and throws it away.
    async fn try_out(&self, runtime: &str) -> Check {
        let name = "boot".to_string();
        let Some(environment) = self.any_environment().await else {
            return Check {
                name,
                health: Health::Degraded,
                detail: "not tried: no environment is installed".to_string(),
                fix: Some("motu env pull busybox".to_string()),
            };
        };
        let begun = std::time::Instant::now();
        let request = CreateSandbox {
            environment,
            runtime: Some(runtime.to_string()),
            ..CreateSandbox::default()
        };
        let tried = async {
            let (_, handle) = self
                .sandboxes
                .make(request, crate::driver::Keep::Transient)
                .await?;
            let answered = match handle.guest() {
                Ok(guest) => guest.ping().await,
                Err(error) => Err(error),
            };
            handle.destroy().await?;
            answered
        };
        match tried.await {
            Ok(pong) => Check {
                name,
                health: Health::Ok,
                detail: format!(
                    "a machine was made, answered (guest {}) and was destroyed in {} ms",
                    pong.guest_version,
                    begun.elapsed().as_millis()
                ),
                fix: None,
            },
            Err(error) => Check {
                name,
                health: Health::Failed,
                detail: error.message,
                fix: error.hint,
            },
        }
    }

    async fn any_environment(&self) -> Option<String> {
        let list = self.sandboxes.environments.list().await.ok()?;
        list.into_iter()
            .find(|found| found.installed)
            .map(|found| found.name)
    }

    fn host_checks(&self) -> Vec<Check> {
        let mut all = vec![
            self.disk_check(),
            self.environments_check(),
            network_check(),
            files_check(),
            memory_check(),
            kernel_check(),
            self.quota_check(),
            self.redaction_check(),
        ];
        all.extend(self.kept_check());
        all
    }

    /// What is kept and is not there, or cannot be read; no line while there is nothing of it.
    fn kept_check(&self) -> Option<Check> {
        let home = &self.sandboxes.shared.home;
        let name = "kept".to_string();
        if let Err(error) = motu_workspaces::secrets::Vault::check(home.path()) {
            let error = motu_core::Error::from(error);
            return Some(Check {
                name,
                health: Health::Failed,
                fix: error.hint,
                detail: error.message,
            });
        }
        let loss = self.sandboxes.shared.store.loss();
        let loss = loss.map(|loss| format!("the store has lost {} changes", loss.changes));
        let aside = crate::recover::list(home).len();
        let aside = (aside > 0).then(|| format!("{aside} things were set aside"));
        let said: Vec<String> = loss.into_iter().chain(aside).collect();
        (!said.is_empty()).then(|| Check {
            name,
            health: Health::Degraded,
            detail: said.join("; "),
            fix: Some("motu recover".to_string()),
        })
    }

    /// What one owner may have.
    fn quota_check(&self) -> Check {
        let quota = &self.sandboxes.config.quota;
        let part = |(limit, most): (Limit, u64)| {
            let name = limit.name.trim_start_matches("quota_");
            match most {
                0 => format!("{name} any"),
                most => format!("{name} {most}"),
            }
        };
        let parts = quota.parts().map(part).join(", ");
        let own = match quota.projects.is_empty() {
            true => String::new(),
            false => {
                let names: Vec<&str> = quota.projects.keys().map(String::as_str).collect();
                format!("; of their own: {}", names.join(", "))
            }
        };
        Check {
            name: "quota".to_string(),
            health: Health::Ok,
            detail: format!("of one owner: {parts}{own}"),
            fix: None,
        }
    }

    /// What is taken out of what is shown, and how often it was.
    fn redaction_check(&self) -> Check {
        let found: u64 = self
            .sandboxes
            .patterns
            .found()
            .iter()
            .map(|(_, count)| count)
            .sum();
        Check {
            name: "redaction".to_string(),
            health: Health::Ok,
            detail: format!(
                "{} kinds of credentials; taken out by this daemon: {} values of secrets, {found} credentials",
                self.sandboxes.patterns.kinds(),
                self.sandboxes.patterns.values_found(),
            ),
            fix: None,
        }
    }

    /// Without an environment there is no sandbox.
    fn environments_check(&self) -> Check {
        let name = "environments".to_string();
        match self.sandboxes.environments.check() {
            Ok(()) => Check {
                name,
                health: Health::Ok,
                detail: "can be installed".to_string(),
                fix: None,
            },
            Err(error) => Check {
                name,
                health: Health::Failed,
                detail: format!("cannot be installed: {error}"),
                fix: error.hint(),
            },
        }
    }

    fn disk_check(&self) -> Check {
        let name = "disk".to_string();
        match self.sandboxes.shared.home.free_bytes() {
            Ok(free) => {
                let (free, needed) = (free / 1024 / 1024, self.sandboxes.config.min_free_disk_mib);
                Check {
                    name,
                    health: if free >= needed {
                        Health::Ok
                    } else {
                        Health::Failed
                    },
                    detail: format!(
                        "{free} MiB free under the state directory (min_free_disk_mib {needed})"
                    ),
                    fix: (free < needed).then(|| "motu env prune".to_string()),
                }
            }
            Err(error) => Check {
                name,
                health: Health::Failed,
                detail: error.message,
                fix: error.hint,
            },
        }
    }
}

/// What devices of sandboxes with a network are made of.
fn network_check() -> Check {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let (health, detail, fix) = match device {
        Ok(_) => (
            Health::Ok,
            "sandboxes can have one (--network): /dev/net/tun opens".to_string(),
            None,
        ),
        Err(error) => (
            Health::Degraded,
            format!(
                "sandboxes can have one (--network), slower than it could be: /dev/net/tun: {error}"
            ),
            Some("modprobe tun; for ordinary users: chmod 666 /dev/net/tun".to_string()),
        ),
    };
    Check {
        name: "network".to_string(),
        health,
        detail,
        fix,
    }
}

fn files_check() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    Check {
        name: "open files".to_string(),
        health: if soft >= WANTED_FILES {
            Health::Ok
        } else {
            Health::Degraded
        },
        detail: format!("the daemon may open {soft} files; each sandbox needs about 3"),
        fix: (soft < WANTED_FILES).then(|| format!("ulimit -n {WANTED_FILES}")),
    }
}

fn memory_check() -> Check {
    let available = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find(|line| line.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
    match available {
        Some(kib) => Check {
            name: "memory".to_string(),
            health: if kib >= 256 * 1024 {
                Health::Ok
            } else {
                Health::Degraded
            },
            detail: format!("{} MiB available", kib / 1024),
            fix: None,
        },
        None => Check {
            name: "memory".to_string(),
            health: Health::Degraded,
            detail: "unknown: /proc/meminfo cannot be read".to_string(),
            fix: None,
        },
    }
}

fn kernel_check() -> Check {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    Check {
        name: "kernel".to_string(),
        health: Health::Ok,
        detail: format!("Linux {release}"),
        fix: None,
    }
}
