//! `motu doctor --deep`: a self-test of every runtime that works, and a text about it that can be
//! shown to others.

use crate::context::Context;
use crate::failure::{Reader, exit_code};
use crate::{show, waiting};
use motu_contract::{Came, Step, Subject, Trial};
use motu_core::report::{Doctor, Examine, Health};
use motu_core::{ErrorKind, Isolation, Result, Service};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// The environment that is taken if it is there: the smallest.
const USUAL: &str = "busybox";

/// The whole answer.
#[derive(Debug, Serialize)]
struct Deep {
    #[serde(flatten)]
    doctor: Doctor,
    trials: Vec<Trial>,
    /// For people to paste: without names of users, hosts and directories.
    paste: String,
}

/// Tries everything, says each step as it comes, and the whole at the end.
pub(super) async fn run(json: bool, context: &Context) -> Result<ExitCode> {
    let client = context.client();
    let work = client.doctor(Examine { deep: false });
    let doctor = waiting::told("looking at this host", Reader::of(json), work).await?;
    let mut trials = Vec::new();
    let environment = environment(&client).await?;
    for runtime in &doctor.runtimes {
        // One that failed at its first machine is tried again here.
        let passed_over = runtime.checks.iter().any(|one| one.name == "first machine");
        if runtime.isolation == Isolation::None || !(runtime.works || passed_over) {
            continue;
        }
        let Some(environment) = &environment else {
            continue;
        };
        if !json {
            let bold = show::bold();
            let name = show::safe(&runtime.name);
            show::print(&format!("{bold}trying {name}{bold:#}\n"));
        }
        let subject = Subject {
            runtime: &runtime.name,
            environment,
            isolation: runtime.isolation,
            capabilities: &runtime.capabilities,
            home: Path::new(&doctor.home),
        };
        let mut said = |step: &Step| {
            if !json {
                show::print(&line(step));
            }
        };
        trials.push(motu_contract::try_out(&client, subject, &mut said).await);
    }
    let fine = doctor.healthy && trials.iter().all(|trial| trial.works);
    let paste = paste(&facts(), &doctor, &trials);
    let deep = Deep {
        doctor,
        trials,
        paste,
    };
    show::answer(json, &deep, |deep| text(deep, environment.is_some()));
    Ok(match fine {
        true => ExitCode::SUCCESS,
        false => exit_code(ErrorKind::Unavailable),
    })
}

/// An environment that is there already.
async fn environment(client: &dyn Service) -> Result<Option<String>> {
    let all = client
        .list_environments(Default::default())
        .await?
        .environments;
    let mut installed: Vec<String> = all
        .into_iter()
        .filter(|one| one.installed)
        .map(|one| one.name)
        .collect();
    installed.sort_by_key(|name| name != USUAL);
    Ok(installed.into_iter().next())
}

fn text(deep: &Deep, tried: bool) -> String {
    let mut text = String::from("\n");
    text.push_str(&super::text(&deep.doctor));
    if !tried {
        text.push_str("Nothing was tried: no environment is installed (motu env pull busybox).\n");
    }
    text.push_str(&format!(
        "\n----- for a report -----\n{}----- end -----\n",
        show::safe(&deep.paste)
    ));
    text
}

fn health(came: Came) -> Health {
    match came {
        Came::Well => Health::Ok,
        Came::Badly => Health::Failed,
        Came::Untried => Health::Degraded,
    }
}

fn line(step: &Step) -> String {
    format!(
        "  {} {} ({} ms): {}\n",
        super::mark(health(step.came)),
        step.name,
        step.milliseconds,
        show::safe(&step.detail)
    )
}

/// What is worth knowing of a host that somebody else cannot see.
#[derive(Debug, Default)]
struct Facts {
    kernel: String,
    distribution: String,
    processor: String,
    processors: usize,
    memory_mib: u64,
    cgroups: &'static str,
    kvm: String,
}

fn facts() -> Facts {
    use std::os::unix::fs::PermissionsExt;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (cpus, memory, release) = (
        read("/proc/cpuinfo"),
        read("/proc/meminfo"),
        read("/etc/os-release"),
    );
    let kib = value(&memory, "MemTotal", ':').and_then(|text| text.split(' ').next()?.parse().ok());
    let kvm = std::fs::metadata("/dev/kvm");
    let kernel = read("/proc/sys/kernel/osrelease");
    Facts {
        kernel: kernel.trim().to_string(),
        distribution: value(&release, "PRETTY_NAME", '=').unwrap_or_default(),
        processor: value(&cpus, "model name", ':').unwrap_or_default(),
        processors: cpus
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count(),
        memory_mib: kib.unwrap_or(0u64) / 1024,
        cgroups: match Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            true => "version 2",
            false => "version 1",
        },
        kvm: kvm.map_or_else(
            |_| "absent".to_string(),
            |found| format!("mode {:o}", found.permissions().mode() & 0o777),
        ),
    }
}

fn value(text: &str, name: &str, sign: char) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(sign));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().trim_matches('"').to_string())
}

/// The text for others: what there is and what happened, without names of this host.
fn paste(facts: &Facts, doctor: &Doctor, trials: &[Trial]) -> String {
    let mut text = format!(
        "motu {} ({}), {}, kernel {}, {}\n{} x {}, {} MiB, cgroups {}, /dev/kvm {}\n",
        doctor.version,
        doctor.privilege,
        facts.distribution,
        facts.kernel,
        std::env::consts::ARCH,
        facts.processors,
        facts.processor,
        facts.memory_mib,
        facts.cgroups,
        facts.kvm,
    );
    for runtime in &doctor.runtimes {
        let works = if runtime.works {
            "works"
        } else {
            "does not work"
        };
        text.push_str(&format!(
            "{} ({}) {works}\n",
            runtime.name, runtime.isolation
        ));
        let worth = runtime
            .checks
            .iter()
            .filter(|check| runtime.name == "qemu" || check.health != Health::Ok);
        for check in worth {
            text.push_str(&format!("  {}: {}\n", check.name, check.detail));
        }
    }
    for trial in trials {
        let on = trial.accelerator.as_deref().unwrap_or("the host's kernel");
        text.push_str(&format!("self-test of {} on {on}\n", trial.runtime));
        for step in &trial.steps {
            let came = match step.came {
                Came::Well => "ok",
                Came::Badly => "FAILED",
                Came::Untried => "untried",
            };
            text.push_str(&format!(
                "  {came} {} {} ms: {}\n",
                step.name, step.milliseconds, step.detail
            ));
        }
    }
    anonymous(&text, &doctor.home, std::env::var("HOME").ok().as_deref())
}

/// Without the directories of this host's people.
fn anonymous(text: &str, state: &str, home: Option<&str>) -> String {
    let text = text.replace(state, "MOTU_HOME");
    match home {
        // Root's own, and one that is everything, say nothing.
        Some(home) if home.len() > 1 => text.replace(home, "HOME"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_names_nobody() {
        let text = "kernel: /home/ada/.local/state/motu/cache is full; see /home/ada/x";
        let shown = anonymous(text, "/home/ada/.local/state/motu", Some("/home/ada"));
        assert_eq!(shown, "kernel: MOTU_HOME/cache is full; see HOME/x");
        assert_eq!(anonymous("a/b", "/var/lib/motu", Some("/")), "a/b");
    }

    #[test]
    fn facts_are_read_in_the_kernels_words() {
        assert_eq!(
            value("processor\t: 0\nmodel name\t: A B\n", "model name", ':').as_deref(),
            Some("A B")
        );
        assert_eq!(
            value("PRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME", '=').as_deref(),
            Some("Debian 12")
        );
        assert_eq!(value("", "x", '='), None);
    }
}
