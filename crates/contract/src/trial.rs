//! A self-test of one runtime on this host: machines are made, copied, paused and ended, and what
//! they say of time, randomness and processors is compared with what is seen from outside.
//!
//! It finds what checks cannot: a KVM that opens and does not run, clocks that stand still after
//! a restore, copies that repeat each other's random numbers.

use crate::asks::shell;
use crate::outside::Outside;
use motu_core::sandbox::{CreateSandbox, Fork, Sandbox};
use motu_core::{Isolation, SandboxId, Service, Size};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// How far a machine's clock may be from the host's: both are asked in whole seconds, one after
/// the other.
const CLOCK_SECONDS: u64 = 2;
/// How long a timer runs, and how long a machine is paused.
const WAIT: Duration = Duration::from_secs(2);
/// How much later than by its own clock a command's end may be seen outside.
const LATE: Duration = Duration::from_millis(1500);
/// What is written to see memory grow.
const GROWTH_MIB: u64 = 32;
/// Names of capabilities.
const FORK: &str = "fork";
const PAUSE: &str = "pause";
const SIZE: Size = Size {
    vcpu_count: Some(1),
    mem_mib: Some(256),
    disk_mib: Some(128),
};

/// How a step came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    Well,
    Badly,
    /// What it needs is not there, or did not work before it.
    Untried,
}

/// One step of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub name: &'static str,
    pub came: Came,
    /// What was measured, or what is wrong.
    pub detail: String,
    pub milliseconds: u64,
}

/// What a runtime has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub runtime: String,
    pub environment: String,
    pub isolation: Isolation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Nothing came badly.
    pub works: bool,
    pub steps: Vec<Step>,
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub runtime: &'a str,
    pub environment: &'a str,
    pub isolation: Isolation,
    /// What it says that it can do.
    pub capabilities: &'a [String],
    /// The daemon's state directory, where machines are seen from outside.
    pub home: &'a Path,
}

type Shown = Result<String, String>;

/// Tries a runtime. `said` hears of each step when it is over.
pub async fn try_out(
    service: &dyn Service,
    subject: Subject<'_>,
    said: &mut (dyn FnMut(&Step) + Send),
) -> Trial {
    let mut trial = Trying {
        service,
        said,
        steps: Vec::new(),
        made: Vec::new(),
        accelerator: None,
        subject,
    };
    trial.run().await;
    Trial {
        runtime: trial.subject.runtime.to_string(),
        environment: trial.subject.environment.to_string(),
        isolation: trial.subject.isolation,
        accelerator: trial.accelerator,
        works: trial.steps.iter().all(|step| step.came != Came::Badly),
        steps: trial.steps,
    }
}

struct Trying<'a> {
    service: &'a dyn Service,
    subject: Subject<'a>,
    said: &'a mut (dyn FnMut(&Step) + Send),
    steps: Vec<Step>,
    /// To be destroyed at the end.
    made: Vec<SandboxId>,
    accelerator: Option<String>,
}

impl Trying<'_> {
    async fn run(&mut self) {
        let begun = Instant::now();
        let first = self.make(SIZE).await;
        let accelerator = first.as_ref().ok().and_then(|one| one.accelerator.clone());
        self.accelerator = accelerator.clone();
        let on = accelerator.map_or_else(String::new, |name| format!(" on {name}"));
        let shown = first.as_ref().map(|_| format!("a machine answers{on}"));
        self.note("boot", begun, shown.map_err(Clone::clone));
        let Ok(first) = first else {
            let nothing = Instant::now();
            self.untried("everything else", nothing, "there is no machine");
            return;
        };
        let first = first.sandbox_id;
        self.twice_more(&first).await;
        self.times(&first).await;
        self.processors().await;
        self.copies(&first).await;
        self.pause(&first).await;
        self.seen_from_outside(&first).await;
        self.end().await;
    }

    /// Machines that begin from the same saved one share nothing they should not.
    async fn twice_more(&mut self, first: &SandboxId) {
        let begun = Instant::now();
        let (second, third) = (self.make(SIZE).await, self.make(SIZE).await);
        let both = second.and_then(|one| Ok([one, third?].map(|found| found.sandbox_id)));
        let shown = both
            .as_ref()
            .map(|_| "two more machines answer".to_string());
        self.note("again", begun, shown.map_err(Clone::clone));
        let begun = Instant::now();
        match both {
            Err(_) => self.untried("randomness", begun, "there are no two machines"),
            Ok([second, third]) => {
                let shown = self.strangers(&[first, &second, &third]).await;
                self.note("randomness", begun, shown);
            }
        }
    }

    async fn strangers(&self, machines: &[&SandboxId]) -> Shown {
        let script = "for i in 1 2; do head -c 16 /dev/urandom | od -An -tx1; done";
        let mut seen = std::collections::BTreeSet::new();
        for id in machines {
            for line in self.ask(id, script).await?.lines() {
                if !seen.insert(line.to_string()) {
                    return Err("two machines have the same random numbers".to_string());
                }
            }
        }
        Ok(format!("{} numbers, all different", seen.len()))
    }

    async fn times(&mut self, id: &SandboxId) {
        let begun = Instant::now();
        let shown = self.clock(id).await;
        self.note("clock", begun, shown);
        let begun = Instant::now();
        let shown = self.timer(id).await;
        self.note("timer", begun, shown);
    }

    async fn clock(&self, id: &SandboxId) -> Shown {
        let text = self.ask(id, "date +%s").await?;
        let inside: u64 = number(&text)?;
        let now = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_err(|e| e.to_string())?;
        match inside.abs_diff(now.as_secs()) {
            apart if apart <= CLOCK_SECONDS => Ok("as the host's".to_string()),
            apart => Err(format!("{apart} s away from the host's")),
        }
    }

    /// A timer that runs as long inside as it does outside.
    async fn timer(&self, id: &SandboxId) -> Shown {
        let wait = WAIT.as_secs();
        let script = format!("cat /proc/uptime; sleep {wait}; cat /proc/uptime");
        let begun = Instant::now();
        let text = self.ask(id, &script).await?;
        let outside = begun.elapsed();
        let times = text
            .lines()
            .map(|line| number(line.split(' ').next().unwrap_or_default()));
        let times: Vec<f64> = times.collect::<Result<_, _>>()?;
        let [before, after] = times[..] else {
            return Err(format!("{text:?} is no two times"));
        };
        let inside = Duration::try_from_secs_f64(after - before).map_err(|e| e.to_string())?;
        let seen = format!(
            "{wait} s took {:.2} s inside and {:.2} s outside",
            inside.as_secs_f64(),
            outside.as_secs_f64()
        );
        let early = inside + Duration::from_millis(50) < WAIT || outside < WAIT;
        match early || inside > WAIT + LATE || outside > inside + LATE {
            true => Err(seen),
            false => Ok(seen),
        }
    }

    async fn processors(&mut self) {
        let begun = Instant::now();
        if self.subject.isolation < Isolation::Vm {
            return;
        }
        let size = Size {
            vcpu_count: Some(2),
            ..SIZE
        };
        let shown = match self.make(size).await {
            Err(error) => Err(error),
            Ok(made) => {
                // Each is busy for a moment.
                let busy = "for i in 1 2; do (n=0; while [ $n -lt 3000 ]; do n=$((n+1)); done) & \
                            done; wait; grep -c ^processor /proc/cpuinfo; \
                            awk '/^cpu[0-9]/ && $2 + $4 > 0' /proc/stat | wc -l";
                match self.ask(&made.sandbox_id, busy).await.as_deref() {
                    Ok("2\n2") => Ok("two, and both work".to_string()),
                    Ok(other) => Err(format!("of two processors there are, and work: {other:?}")),
                    Err(error) => Err(error.to_string()),
                }
            }
        };
        self.note("processors", begun, shown);
    }

    fn can(&self, what: &str) -> bool {
        self.subject.capabilities.iter().any(|name| name == what)
    }

    async fn copies(&mut self, first: &SandboxId) {
        let begun = Instant::now();
        if !self.can(FORK) {
            return self.untried("fork", begun, "this runtime cannot");
        }
        let shown = self.copy(first).await;
        self.note("fork", begun, shown);
    }

    async fn copy(&mut self, first: &SandboxId) -> Shown {
        self.ask(first, "echo here > /tmp/mark").await?;
        let copies = self.service.fork_sandbox(first, Fork { count: 2 }).await;
        let copies = copies.map_err(|error| error.to_string())?.sandboxes;
        let ids: Vec<SandboxId> = copies.into_iter().map(|one| one.sandbox_id).collect();
        self.made.extend(ids.iter().cloned());
        for id in &ids {
            match self.ask(id, "cat /tmp/mark").await?.as_str() {
                "here" => {}
                _ => return Err("a copy does not have what its source had".to_string()),
            }
            self.clock(id).await?;
        }
        let all: Vec<&SandboxId> = ids.iter().chain([first]).collect();
        let random = self.strangers(&all).await?;
        Ok(format!("{} copies go on; {random}", ids.len()))
    }

    async fn pause(&mut self, first: &SandboxId) {
        let begun = Instant::now();
        if !self.can(PAUSE) {
            return self.untried("pause", begun, "this runtime cannot");
        }
        let shown = async {
            let told = |error: motu_core::Error| error.to_string();
            self.service.pause_sandbox(first).await.map_err(told)?;
            tokio::time::sleep(WAIT).await;
            self.service.resume_sandbox(first).await.map_err(told)?;
            self.clock(first).await
        };
        let shown = shown
            .await
            .map(|clock| format!("goes on; its clock is {clock}"));
        self.note("pause", begun, shown);
    }

    /// Who the machine's process is on the host, and what it takes.
    async fn seen_from_outside(&mut self, first: &SandboxId) {
        let begun = Instant::now();
        if self.subject.isolation < Isolation::Vm {
            return;
        }
        let Some(outside) = self.process(first) else {
            return self.untried("process", begun, "it cannot be seen from here");
        };
        self.note("process", begun, outside.confined());
        let begun = Instant::now();
        let shown = self.growth(first, &outside).await;
        self.note("memory", begun, shown);
    }

    async fn growth(&self, id: &SandboxId, outside: &Outside) -> Shown {
        let before = outside.resident_mib()?;
        let fill = format!(
            "tr '\\000' x < /dev/zero | head -c {} > /dev/shm/fill; wc -c < /dev/shm/fill",
            GROWTH_MIB << 20
        );
        let written: u64 = number(&self.ask(id, &fill).await?)?;
        if written != GROWTH_MIB << 20 {
            return Err(format!("only {written} bytes were written"));
        }
        let grown = outside.resident_mib()?.saturating_sub(before);
        let seen = format!("{before} MiB at rest; {GROWTH_MIB} MiB inside are {grown} outside");
        match (GROWTH_MIB * 3 / 4..=GROWTH_MIB * 3).contains(&grown) {
            true => Ok(seen),
            false => Err(seen),
        }
    }

    /// Ends everything that was made; nothing of it stays.
    async fn end(&mut self) {
        let begun = Instant::now();
        let all = std::mem::take(&mut self.made);
        let mut problems = Vec::new();
        for id in &all {
            let outside = self.process(id);
            if let Err(error) = self.service.destroy_sandbox(id).await {
                problems.push(error.to_string());
            }
            if outside.is_some_and(|outside| outside.is_there()) {
                problems.push("a process is still there".to_string());
            }
        }
        let shown = match problems.is_empty() {
            true => Ok(format!("{} machines ended, no process is left", all.len())),
            false => Err(problems.join("; ")),
        };
        self.note("end", begun, shown);
    }

    /// The one process that is a virtual machine. What is in a container are many.
    fn process(&self, id: &SandboxId) -> Option<Outside> {
        let machines = self.subject.home.join("machines");
        let dir = machines.join(self.subject.runtime).join(id.as_str());
        let vm = self.subject.isolation == Isolation::Vm;
        vm.then(|| Outside::of(&dir)).flatten()
    }

    async fn make(&mut self, size: Size) -> Result<Sandbox, String> {
        let request = CreateSandbox {
            environment: self.subject.environment.to_string(),
            runtime: Some(self.subject.runtime.to_string()),
            size,
            ..CreateSandbox::default()
        };
        let made = self.service.create_sandbox(request).await;
        let made = made.map_err(|error| error.to_string())?;
        self.made.push(made.sandbox_id.clone());
        Ok(made)
    }

    async fn ask(&self, id: &SandboxId, script: &str) -> Shown {
        let done = self.service.exec(id, shell(&[script])).await;
        let done = done.map_err(|error| error.to_string())?;
        match done.exit_code {
            0 => Ok(done.stdout.trim().to_string()),
            code => Err(format!(
                "a command ended with {code}: {}",
                done.stderr.trim()
            )),
        }
    }

    fn note(&mut self, name: &'static str, begun: Instant, shown: Shown) {
        let (came, detail) = match shown {
            Ok(detail) => (Came::Well, detail),
            Err(detail) => (Came::Badly, detail),
        };
        self.add(name, begun, came, detail);
    }

    fn untried(&mut self, name: &'static str, begun: Instant, why: &str) {
        self.add(name, begun, Came::Untried, why.to_string());
    }

    fn add(&mut self, name: &'static str, begun: Instant, came: Came, detail: String) {
        let step = Step {
            name,
            came,
            detail,
            milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        (self.said)(&step);
        self.steps.push(step);
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("{text:?} is no number"))
}
