//! Templates, restores, copies and what heals of them, with a program in the place of QEMU (`examples/fake-qemu.rs`): it
//! answers as a real one did that was recorded, or fails as real ones do on other hosts. No machine runs, and no kernel.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod world;

use motu_core::runtime::{Ask, Machine, MachineSpec};
use motu_core::{Error, ErrorKind, Runtime};
use std::time::Duration;
use world::World;

/// Of a machine that was saved on another host, or by another kernel.
const MSR: &str = "error: failed to set MSR 0x48f to 0x7ffffff00036dfb";
const DENIED: &str = "Could not access KVM kernel module: Permission denied";

async fn refused(world: &World, wanted: &str) -> Error {
    let spec = world.spec();
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert!(error.message.contains(wanted), "{error}");
    let left = std::fs::read_dir(&spec.dir).unwrap().count();
    assert_eq!(left, 0, "{wanted}: something is left");
    error
}

async fn works(world: &World) -> Machine {
    world.runtime.create(&world.spec()).await.unwrap()
}

#[tokio::test]
async fn a_machine_is_saved_once_and_every_other_one_is_restored() {
    let world = World::new(&["save"]);
    let first = works(&world).await;
    assert_eq!(world.templates().len(), 1);
    // From here on nothing boots, and nothing is saved.
    world.says("boot", DENIED);
    world.knows(&[]);
    let second = works(&world).await;
    for machine in [first, second] {
        world.runtime.destroy(&machine).await.unwrap();
    }
}

#[tokio::test]
async fn a_template_that_is_not_restored_is_made_again_once() {
    let world = World::new(&["save"]);
    world.says("serial", "old");
    world.runtime.destroy(&works(&world).await).await.unwrap();
    // What was saved before is of no use any more, and what is saved from now on is.
    world.says("restore-old", MSR);
    world.says("serial", "new");
    world.runtime.destroy(&works(&world).await).await.unwrap();
    let [template] = world.templates().try_into().unwrap();
    let state = std::fs::read_to_string(template.join("state")).unwrap();
    assert!(state.ends_with("new"), "{state}");
    // One that fails as well is the answer.
    world.says("restore-new", MSR);
    let error = refused(&world, "failed to set MSR").await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    // The next machine may again be another one's.
    world.forgets("restore-new");
    works(&world).await;
}

#[tokio::test]
async fn a_template_whose_state_was_altered_is_not_given_to_qemu() {
    let mut world = World::new(&["save"]);
    works(&world).await;
    let [template] = world.templates().try_into().unwrap();
    std::fs::write(template.join("state"), "something else").unwrap();
    world.is_started_anew();
    works(&world).await;
}

#[tokio::test]
async fn a_host_that_denies_kvm_is_named_and_nothing_is_left() {
    let world = World::new(&["save"]);
    world.says("boot", DENIED);
    let error = refused(&world, DENIED).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(world.templates().len(), 0);
    world.forgets("boot");
    works(&world).await;
}

#[tokio::test]
async fn a_state_that_cannot_be_saved_is_no_template() {
    let world = World::new(&["save-refused"]);
    let error = refused(&world, "refused xen-save-devices-state").await;
    assert_eq!(error.kind, ErrorKind::Transport);
    // One that ends in the middle of it, and one that only hangs up.
    for end in ["! gone", "! hangs up"] {
        world.knows(&["save"]);
        world.alters("save", |text| before_answer(text, 2, end));
        refused(&world, "closed its control socket").await;
    }
    assert_eq!(world.templates().len(), 0);
    world.knows(&["save"]);
    works(&world).await;
}

/// A conversation up to the answer of one of its commands, and then this.
fn before_answer(text: &str, command: usize, end: &str) -> String {
    let mut left = command + 1;
    let lines = text.lines().take_while(|line| {
        let more = left > 0;
        left -= usize::from(more && line.starts_with('>'));
        more
    });
    let lines: Vec<&str> = lines.collect();
    format!("{}\n{end}\n", lines.join("\n"))
}

#[tokio::test]
async fn answers_that_are_none_are_errors_and_the_machine_goes_on() {
    let world = World::new(&["save"]);
    let machine = works(&world).await;
    for (end, wanted) in [
        ("< nonsense", "not QMP"),
        ("! long", "in one line"),
        ("! hangs up", "closed its control socket"),
        ("< {\"error\": {\"desc\": \"busy\"}}", "refused stop: busy"),
    ] {
        world.knows(&["pause"]);
        world.alters("pause", |text| before_answer(text, 1, end));
        let error = world.runtime.pause(&machine).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transport, "{error}");
        assert!(error.message.contains(wanted), "{error}");
        assert!(world.is_alive(&machine));
    }
    world.knows(&["pause", "resume"]);
    world.runtime.pause(&machine).await.unwrap();
    world.runtime.resume(&machine).await.unwrap();
    world.runtime.destroy(&machine).await.unwrap();
}

/// The recordings know every command of a copy in its order; another order ends the machine.
#[tokio::test]
async fn a_copy_is_made_as_it_was_recorded() {
    let world = World::new(&["save", "fork"]);
    let source = works(&world).await;
    let copies = [world.spec(), world.spec()];
    let made = world.runtime.fork(&source, &copies).await.unwrap();
    assert_eq!(made.len(), 2);
    for machine in made.iter().chain([&source]) {
        assert!(world.is_alive(machine));
        world.runtime.destroy(machine).await.unwrap();
    }
}

#[tokio::test]
async fn a_copy_that_fails_half_way_lets_its_source_go_on() {
    let world = World::new(&["save", "fork-refused"]);
    let source = works(&world).await;
    let spec = world.spec();
    let error = fork(&world, &source, &spec).await.unwrap_err();
    assert!(error.message.contains("blockdev-snapshot-sync"), "{error}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
    // It was told to go on: it takes the news of the time, which a stopped one does not.
    world.knows(&["pause", "resume"]);
    world.runtime.pause(&source).await.unwrap();
    world.runtime.resume(&source).await.unwrap();
    assert!(world.is_alive(&source));
    // A QEMU that ends in the middle takes the copy along, and nothing else.
    world.knows(&["fork"]);
    world.alters("fork", |text| before_answer(text, 4, "! gone"));
    let spec = world.spec();
    let error = fork(&world, &source, &spec).await.unwrap_err();
    assert!(error.message.contains("control socket"), "{error}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
    assert!(!world.is_alive(&source));
    world.runtime.destroy(&source).await.unwrap();
}

async fn fork(world: &World, source: &Machine, spec: &MachineSpec) -> Result<Vec<Machine>, Error> {
    world.runtime.fork(source, std::slice::from_ref(spec)).await
}

#[tokio::test]
async fn a_machine_with_limits_runs_only_with_them() {
    let world = World::new(&["save", "throttle"]);
    let mut spec = world.spec();
    spec.limits.io_mbps = ask(5);
    spec.limits.iops = ask(100);
    let machine = world.runtime.create(&spec).await.unwrap();
    world.runtime.destroy(&machine).await.unwrap();
    // A QEMU that does not set them: no machine, rather than one without limits.
    world.alters("throttle", |text| {
        before_answer(text, 2, "< {\"error\": {\"desc\": \"no such device\"}}")
    });
    let mut spec = world.spec();
    spec.limits.io_mbps = ask(5);
    spec.limits.iops = ask(100);
    let error = world.runtime.create(&spec).await.unwrap_err();
    assert!(error.message.contains("no such device"), "{error}");
    assert_eq!(std::fs::read_dir(&spec.dir).unwrap().count(), 0);
}

fn ask(value: u64) -> Ask {
    Ask {
        value,
        explicit: true,
    }
}

/// One that is made ahead waits for its state, lives for a moment when things are quiet, is stopped, and goes on for
/// whoever wants it.
#[tokio::test]
async fn a_machine_made_ahead_is_stopped_and_goes_on() {
    let world = World::with_spares(&["save", "spare"]);
    works(&world).await;
    // It is taken out of the line to be let live, and put back.
    for count in [1, 0, 1] {
        let waited = async {
            while world.runtime.spares() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), waited).await;
        waited.unwrap_or_else(|_| panic!("there are {} spares", world.runtime.spares()));
    }
    // Nothing is restored any more, so what comes is the one that was made.
    world.says("restore", MSR);
    let machine = works(&world).await;
    assert!(world.is_alive(&machine));
}
