//! Which runtime makes a machine.
//!
//! `auto` takes the strongest that works here and can run what the environment
//! needs; what somebody else makes, only when nothing of ours works. A weaker isolation than was asked for is never chosen, and the host itself
//! only when a call allows it.

use crate::proof::Proofs;
use motu_core::hint;
use motu_core::hint::{field, setting, verb};
use motu_core::report::{Check, Health, RuntimeReport};
use motu_core::{Accel, Error, ErrorKind, Isolation, Result, Runtime};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Runtimes that only tests may use; never chosen, only named.
pub(crate) const TEST_ONLY: &[&str] = &["fake"];

/// The runtimes of this host, strongest first, and what is known of them.
#[derive(Debug)]
pub struct Runtimes {
    list: Vec<Known>,
    proofs: Arc<Proofs>,
}

/// How long a runtime that does not work is taken at its word: somebody may be installing it.
/// Whoever names it is told the truth of now; a call that takes what there is does not pay for
/// looking at what is not there, but once in a while.
const DOUBT_NAMED: Duration = Duration::from_secs(1);
const DOUBT_AUTO: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    runtime: Arc<dyn Runtime>,
    /// What was found, and when. What works is not looked at again for a call.
    report: Mutex<Option<(Instant, Arc<RuntimeReport>)>>,
}

/// What a call demands.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// A runtime's name, or `auto`.
    pub runtime: &'a str,
    pub floor: Isolation,
    pub allow_host_compat: bool,
    /// Anything but `auto` means: a virtual machine.
    pub accel: Accel,
    /// The environment is made for programs with the setuid bit.
    pub setuid: bool,
}

impl Runtimes {
    pub fn new(mut runtimes: Vec<Arc<dyn Runtime>>, proofs: Arc<Proofs>) -> Runtimes {
        runtimes.sort_by_key(|runtime| std::cmp::Reverse(runtime.isolation()));
        Runtimes {
            list: runtimes
                .into_iter()
                .map(|runtime| Known {
                    runtime,
                    report: Mutex::default(),
                })
                .collect(),
            proofs,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Runtime>> {
        self.list.iter().map(|known| &known.runtime)
    }

    pub fn named(&self, name: &str) -> Option<&Arc<dyn Runtime>> {
        self.all().find(|runtime| runtime.name() == name)
    }

    /// What is known of each runtime, looked at now. With `pardon` those that failed at their first
    /// machine may try again: whoever looks closely has perhaps mended them.
    pub async fn reports(&self, pardon: bool) -> Vec<RuntimeReport> {
        let mut reports = Vec::new();
        for known in &self.list {
            if !TEST_ONLY.contains(&known.runtime.name()) {
                let mut report = known.look().await.as_ref().clone();
                if pardon {
                    self.proofs.pardon(known.runtime.as_ref());
                }
                let broken = self.proofs.broken(known.runtime.as_ref());
                if let (true, Some(broken)) = (report.works, broken) {
                    report.works = false;
                    report.checks.push(disappointed(&broken.error));
                    report.detail = broken.error.message;
                }
                reports.push(report);
            }
        }
        reports
    }

    /// The runtime for a demand, or why there is none.
    pub async fn choose(&self, demand: Demand<'_>) -> Result<Arc<dyn Runtime>> {
        if demand.runtime == "auto" {
            let floor = match demand.accel {
                Accel::Auto => demand.floor,
                Accel::Kvm | Accel::Tcg => demand.floor.max(Isolation::Vm),
            };
            self.strongest(Demand { floor, ..demand }).await
        } else {
            self.by_name(demand).await
        }
    }

    /// What `auto` takes where the environment cannot be installed: the host itself, which needs
    /// none, if the call allows it.
    pub async fn without_environment(&self, demand: Demand<'_>) -> Option<Arc<dyn Runtime>> {
        let free = demand.runtime == "auto" && demand.accel == Accel::Auto;
        if !free || !demand.allow_host_compat || demand.floor > Isolation::None {
            return None;
        }
        for known in &self.list {
            let runtime = &known.runtime;
            let fits = runtime.isolation() == Isolation::None
                && !runtime.capabilities().uses_environment
                && !runtime.elsewhere()
                && !runtime.by_name_only()
                && !TEST_ONLY.contains(&runtime.name());
            if fits && known.report(DOUBT_AUTO).await.works {
                tracing::warn!("no environment can be installed here: running on the host");
                return Some(runtime.clone());
            }
        }
        None
    }

    async fn by_name(&self, demand: Demand<'_>) -> Result<Arc<dyn Runtime>> {
        let Some(known) = self
            .list
            .iter()
            .find(|known| known.runtime.name() == demand.runtime)
        else {
            let names: Vec<_> = self.all().map(|runtime| runtime.name()).collect();
            return Err(
                Error::invalid(format!("there is no runtime {:?}", demand.runtime))
                    .hint(format!("one of: auto, {}", names.join(", "))),
            );
        };
        // Somebody else's service says itself how strong its walls are, so it is asked first.
        if known.runtime.elsewhere() {
            self.working(known).await?;
        }
        let isolation = known.runtime.isolation();
        if isolation < demand.floor {
            return Err(too_weak(known.runtime.name(), isolation, demand.floor));
        }
        if demand.accel != Accel::Auto && isolation < Isolation::Vm {
            return Err(Error::invalid(format!(
                "the {} runtime has no accelerator to choose",
                known.runtime.name()
            ))
            .hint(hint![
                "leave ",
                field("accel"),
                " out, or choose ",
                field("runtime").is("qemu")
            ]));
        }
        let tests_only = TEST_ONLY.contains(&known.runtime.name());
        if isolation == Isolation::None && !demand.allow_host_compat && !tests_only {
            return Err(unwalled(known.runtime.as_ref()));
        }
        self.working(known).await
    }

    async fn working(&self, known: &Known) -> Result<Arc<dyn Runtime>> {
        let report = known.report(DOUBT_NAMED).await;
        if report.works {
            Ok(known.runtime.clone())
        } else {
            Err(unavailable(
                &format!("the {} runtime does not work here", report.name),
                [&*report],
            ))
        }
    }

    async fn strongest(&self, demand: Demand<'_>) -> Result<Arc<dyn Runtime>> {
        let mut tried = Vec::new();
        let mut second = None;
        let mut emulated = None;
        let mut foreign = None;
        let mut last = None;
        for known in &self.list {
            let runtime = &known.runtime;
            let host = runtime.isolation() == Isolation::None;
            if TEST_ONLY.contains(&runtime.name())
                || runtime.by_name_only()
                || runtime.isolation() < demand.floor
                || (host && !demand.allow_host_compat)
            {
                continue;
            }
            // Somebody else's walls before none.
            if host && foreign.is_some() {
                break;
            }
            let report = known.report(DOUBT_AUTO).await;
            if let (true, Some(broken)) = (report.works, self.proofs.broken(runtime.as_ref())) {
                if broken.is_old() {
                    last = last.or(Some(runtime));
                }
                tried.push(Arc::new(RuntimeReport {
                    works: false,
                    detail: broken.error.message,
                    ..report.as_ref().clone()
                }));
                continue;
            }
            match (report.works, report.emulated) {
                (true, _) if runtime.foreign() => foreign = foreign.or(Some(runtime)),
                // Where sudo is part of the environment, a runtime without it comes after one with it.
                (true, false) if demand.setuid && !runtime.capabilities().setuid => {
                    second = second.or(Some(runtime));
                }
                (true, false) => {
                    if host {
                        tracing::warn!("nothing that isolates works here: running on the host");
                    }
                    return Ok(runtime.clone());
                }
                (true, true) => emulated = emulated.or(Some(runtime)),
                (false, _) => tried.push(report),
            }
        }
        // One that failed a while ago, before none: what was wrong may have passed.
        if let Some(runtime) = second.or(emulated).or(foreign).or(last) {
            return Ok(runtime.clone());
        }
        let what = match demand.floor {
            Isolation::None => "no runtime works on this host".to_string(),
            floor => format!("no runtime here gives {floor} isolation"),
        };
        Err(unavailable(&what, tried.iter().map(Arc::as_ref)))
    }
}

impl Known {
    /// What is known, which is as old as the daemon for one that works.
    async fn report(&self, doubt: Duration) -> Arc<RuntimeReport> {
        let mut known = self.report.lock().await;
        match &*known {
            Some((when, report)) if report.works || when.elapsed() < doubt => report.clone(),
            _ => self.ask(&mut known).await,
        }
    }

    /// What is so now; calls know it from here on.
    async fn look(&self) -> Arc<RuntimeReport> {
        self.ask(&mut *self.report.lock().await).await
    }

    async fn ask(&self, known: &mut Option<(Instant, Arc<RuntimeReport>)>) -> Arc<RuntimeReport> {
        let report = Arc::new(self.runtime.report().await);
        *known = Some((Instant::now(), report.clone()));
        report
    }
}

/// What `doctor` says of a runtime that failed at its first machine.
fn disappointed(error: &Error) -> Check {
    Check {
        name: "first machine".to_string(),
        health: Health::Failed,
        detail: format!(
            "failed, and `auto` passes this runtime over until somebody looks closely: {}",
            error.message
        ),
        fix: error.hint.clone(),
    }
}

/// There are no walls, or nobody says that there are any.
fn unwalled(runtime: &dyn Runtime) -> Error {
    let name = runtime.name();
    let (what, then) = match runtime.elsewhere() {
        true => (
            format!("the service behind the {name} runtime does not say that it isolates anything"),
            " to use it all the same",
        ),
        false => (
            format!("the {name} runtime isolates nothing"),
            " to run on the host all the same",
        ),
    };
    Error::new(ErrorKind::Denied, what).hint(hint![
        "pass ",
        field("allow_host_compat").is(true),
        then
    ])
}

fn too_weak(name: &str, isolation: Isolation, floor: Isolation) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("the {name} runtime gives {isolation} isolation; at least {floor} is demanded"),
    )
    .hint(hint![
        "choose another ",
        field("runtime"),
        ", or lower ",
        field("isolation"),
        " (or ",
        setting("min_isolation"),
        ")"
    ])
}

fn unavailable<'a>(what: &str, tried: impl IntoIterator<Item = &'a RuntimeReport>) -> Error {
    let reasons: Vec<String> = tried
        .into_iter()
        .map(|report| format!("{}: {}", report.name, report.detail))
        .collect();
    let message = match reasons.is_empty() {
        true => what.to_string(),
        false => format!("{what} ({})", reasons.join("; ")),
    };
    Error::unavailable(message).hint(hint![
        verb("doctor"),
        " says what is missing and how to get it"
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use motu_core::SandboxId;
    use motu_core::runtime::{Capabilities, Connection, Ended, Machine, MachineSpec};
    use std::path::Path;

    /// A runtime that says what it is, and makes nothing.
    #[derive(Clone, Copy, Debug)]
    struct Said {
        name: &'static str,
        isolation: Isolation,
        works: bool,
        foreign: bool,
        emulated: bool,
    }

    #[async_trait]
    impl Runtime for Said {
        fn name(&self) -> &'static str {
            self.name
        }
        fn isolation(&self) -> Isolation {
            self.isolation
        }
        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
        async fn check(&self) -> Vec<Check> {
            vec![Check {
                name: "said".into(),
                health: if self.works {
                    Health::Ok
                } else {
                    Health::Failed
                },
                detail: String::new(),
                fix: None,
            }]
        }
        async fn emulated(&self) -> bool {
            self.emulated
        }
        fn foreign(&self) -> bool {
            self.foreign
        }
        fn plan(&self, _: &MachineSpec) -> Result<String> {
            Err(self.cannot("plan"))
        }
        async fn create(&self, _: &MachineSpec) -> Result<Machine> {
            Err(self.cannot("create"))
        }
        async fn connect(&self, _: &Machine) -> Result<Connection> {
            Err(self.cannot("connect"))
        }
        async fn ended(&self, _: &Machine) -> Ended {
            std::future::pending().await
        }
        async fn alive(&self, _: &Machine) -> bool {
            false
        }
        async fn destroy(&self, _: &Machine) -> Result<()> {
            Err(self.cannot("destroy"))
        }
        async fn sweep(&self, _: &SandboxId, _: &Path) -> Result<()> {
            Err(self.cannot("sweep"))
        }
    }

    /// What `auto` takes when these work.
    async fn taken(working: &[&str]) -> Option<&'static str> {
        let said = |name, isolation| Said {
            name,
            isolation,
            works: working.contains(&name),
            foreign: name == "theirs",
            emulated: name == "emulated",
        };
        let all = [
            said("emulated", Isolation::Vm),
            // As strong as an engine's containers can be.
            said("theirs", Isolation::Gvisor),
            said("ours", Isolation::Container),
            said("bare", Isolation::None),
        ];
        let list = all.map(|said| Arc::new(said) as Arc<dyn Runtime>);
        let demand = Demand {
            runtime: "auto",
            floor: Isolation::None,
            allow_host_compat: true,
            accel: Accel::Auto,
            setuid: false,
        };
        let runtimes = Runtimes::new(list.into(), Arc::default());
        let chosen = runtimes.choose(demand).await;
        chosen.ok().map(|runtime| runtime.name())
    }

    #[tokio::test]
    async fn what_somebody_else_makes_is_taken_last_but_before_no_walls() {
        assert_eq!(taken(&["theirs", "ours", "bare"]).await, Some("ours"));
        assert_eq!(taken(&["theirs", "emulated"]).await, Some("emulated"));
        assert_eq!(taken(&["theirs", "bare"]).await, Some("theirs"));
        assert_eq!(taken(&["bare"]).await, Some("bare"));
        assert_eq!(taken(&[]).await, None);
    }

    fn strong(name: &'static str, isolation: Isolation) -> Arc<dyn Runtime> {
        Arc::new(Said {
            name,
            isolation,
            works: true,
            foreign: false,
            emulated: false,
        })
    }

    async fn chosen(runtimes: &Runtimes, runtime: &str, floor: Isolation) -> Result<&'static str> {
        let demand = Demand {
            runtime,
            floor,
            allow_host_compat: false,
            accel: Accel::Auto,
            setuid: false,
        };
        runtimes.choose(demand).await.map(|runtime| runtime.name())
    }

    #[tokio::test]
    async fn what_fails_at_its_first_machine_is_passed_over_and_never_for_less() {
        let (vm, wall) = (
            strong("vm", Isolation::Vm),
            strong("wall", Isolation::Container),
        );
        let proofs = Arc::new(Proofs::default());
        let runtimes = Runtimes::new(vec![vm.clone(), wall], proofs.clone());
        let auto = |floor| chosen(&runtimes, "auto", floor);
        assert_eq!(auto(Isolation::None).await, Ok("vm"));

        let wrong: Result<()> = Err(Error::invalid("too little memory"));
        assert!(proofs.note(vm.as_ref(), wrong).is_err());
        assert_eq!(auto(Isolation::None).await, Ok("vm"));
        let broken: Result<()> = Err(Error::unavailable("failed to set MSR"));
        assert!(proofs.note(vm.as_ref(), broken.clone()).is_err());
        assert_eq!(auto(Isolation::None).await, Ok("wall"));
        // Nothing weaker than what was asked for, and the reason is told.
        let error = auto(Isolation::Vm).await.unwrap_err();
        assert!(error.message.contains("failed to set MSR"), "{error}");
        // After a while it is tried again where there is nothing else, and only there.
        proofs.age(Duration::from_secs(61));
        assert_eq!(auto(Isolation::Vm).await, Ok("vm"));
        assert_eq!(auto(Isolation::None).await, Ok("wall"));
        // Whoever names it gets it, and a machine that is made is a proof.
        assert_eq!(chosen(&runtimes, "vm", Isolation::Vm).await, Ok("vm"));
        proofs.note(vm.as_ref(), Ok(())).unwrap();
        assert_eq!(auto(Isolation::None).await, Ok("vm"));
        // What has worked may fail once.
        assert!(proofs.note(vm.as_ref(), broken).is_err());
        assert_eq!(auto(Isolation::None).await, Ok("vm"));
        assert_eq!(proofs.disappointments(), 1);
    }

    #[tokio::test]
    async fn whoever_looks_lets_it_try_again() {
        let vm = strong("vm", Isolation::Vm);
        let proofs = Arc::new(Proofs::default());
        let runtimes = Runtimes::new(vec![vm.clone()], proofs.clone());
        let broken: Result<()> = Err(Error::unavailable("failed to set MSR"));
        assert!(proofs.note(vm.as_ref(), broken).is_err());
        assert!(chosen(&runtimes, "auto", Isolation::None).await.is_err());
        let reports = runtimes.reports(false).await;
        let last = reports[0].checks.last().unwrap();
        assert!(last.detail.contains("failed to set MSR"), "{last:?}");
        assert!(!reports[0].works);
        // Only who looks closely.
        assert!(chosen(&runtimes, "auto", Isolation::None).await.is_err());
        assert!(runtimes.reports(true).await[0].works);
        assert_eq!(chosen(&runtimes, "auto", Isolation::None).await, Ok("vm"));
    }
}
