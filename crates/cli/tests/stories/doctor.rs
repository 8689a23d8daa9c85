//! `motu doctor` on real machines: the self-test, and what is said of a runtime that does not work.

use motu_testkit::builds::world_of_its_own as world;
use motu_testkit::story::Story;
use motu_testkit::user::User;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// The steps a runtime's self-test has, in this order.
const OF_ALL: [&str; 5] = ["boot", "again", "randomness", "clock", "timer"];

fn step<'a>(trial: &'a Value, name: &str) -> &'a Value {
    let steps = trial["steps"].as_array().unwrap();
    let mut found = steps.iter().filter(|step| step["name"] == name);
    found.next().unwrap_or_else(|| panic!("{name} in {trial}"))
}

#[test]
fn who_has_no_ids_is_told_before_any_pull_and_may_run_on_the_host() {
    let Some(user) = User::new() else { return };
    let user = user.without_ids();
    for image in ["busybox", "docker.io/library/busybox:1"] {
        let told = user.motu(&["run", image, "--", "true"]);
        assert_eq!(told.code, 107, "{told}");
        for part in ["is not installed, and cannot be", "usermod --add-subuids"] {
            assert!(told.stderr.contains(part), "{part}: {told}");
        }
        assert!(!told.stderr.contains("pulling"), "{told}");
    }
    let doctor = user.motu(&["doctor", "--json"]);
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    assert_eq!(doctor["healthy"], false, "{doctor}");
    assert_eq!(doctor["auto"], Value::Null, "{doctor}");
    for runtime in doctor["runtimes"].as_array().unwrap() {
        let works = runtime["works"] == true && runtime["isolation"] != "none";
        assert!(!works, "{runtime}");
    }
    let run = ["run", "busybox", "--allow-host-compat", "--json", "--"];
    let told = user.motu(&[&run[..], &["echo", "here"]].concat());
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!(answer["stdout"], "here\n", "{told}");
    assert_eq!(answer["isolation"], "none", "{told}");
    // Never where more is demanded.
    let run = [&run[..4], &["--isolation", "container", "--", "true"]].concat();
    let told = user.motu(&run);
    assert_eq!(told.code, 107, "{told}");
}

#[test]
fn a_self_test_tries_everything_and_its_report_names_nobody() {
    let Some(story) = world() else { return };
    let told = story.motu(&["doctor", "--deep"]);
    assert_eq!(told.code, 0, "{told}");
    assert!(told.stdout.contains("trying container"), "{told}");
    let (_, paste) = told.stdout.split_once("----- for a report -----").unwrap();
    // The story writes these where the directories themselves were.
    assert!(
        !paste.contains("$HOME") && !paste.contains("$MOTU_HOME"),
        "{paste}"
    );
    for runtime in ["container", "gvisor", "qemu"] {
        if motu_testkit::works(runtime).is_ok() {
            let tried = paste.contains(&format!("self-test of {runtime}"));
            assert!(tried, "{runtime}: {paste}");
        }
    }
    assert!(!paste.contains("FAIL"), "{paste}");
    // Nothing of it stays.
    let left = story.motu(&["ps", "--json"]);
    assert!(!left.stdout.contains("sandbox_id"), "{left}");
}

#[test]
fn a_self_test_as_json_names_every_step() {
    let Some(story) = world() else { return };
    let told = story.motu(&["doctor", "--deep", "--json"]);
    assert_eq!(told.code, 0, "{told}");
    let deep: Value = serde_json::from_str(&told.stdout).unwrap();
    let trials = deep["trials"].as_array().unwrap();
    for trial in trials {
        assert_eq!(trial["works"], true, "{trial:#}");
        let names = trial["steps"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|step| step["name"].as_str().unwrap()).collect();
        assert!(names.starts_with(&OF_ALL), "{names:?}");
        assert_eq!(step(trial, "end")["came"], "well");
    }
    let works = |name: &str| motu_testkit::works(name).is_ok();
    for name in ["container", "gvisor", "qemu"]
        .into_iter()
        .filter(|name| works(name))
    {
        assert!(
            trials.iter().any(|trial| trial["runtime"] == name),
            "{name}"
        );
    }
    if let Some(vm) = trials.iter().find(|trial| trial["runtime"] == "qemu") {
        for name in ["processors", "fork", "pause", "process", "memory"] {
            assert_eq!(step(vm, name)["came"], "well", "{vm:#}");
        }
    }
}

/// A QEMU that fails as on a host whose `/dev/kvm` is not for everybody.
fn broken_qemu(story: &Story) -> std::path::PathBuf {
    let bin = story.path().join("qemu/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::set_permissions(story.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = bin.join("qemu-system-x86_64");
    let real = motu_needs::find("qemu-system-x86_64");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in --version|\"-L help\") exec {} \"$@\" ;; esac\n\
         echo 'Could not access KVM kernel module: Permission denied' >&2\nexit 1\n",
        real.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

#[test]
fn a_runtime_that_fails_at_its_first_machine_is_told_of_and_not_tried_again() {
    let Some(story) = world() else { return };
    let program = broken_qemu(&story);
    story.configure(&format!(
        "[qemu]\nprogram = {:?}\n",
        program.display().to_string()
    ));
    let _ = story.command(&["serve", "--stop"]).output();
    let run = |more: &[&str]| {
        let words = [&["run", "busybox"], more, &["--", "true"]].concat();
        story.motu(&words)
    };
    let why = "Could not access KVM kernel module: Permission denied";
    let first = run(&["--isolation", "vm"]);
    assert_eq!(first.code, 107, "{first}");
    assert!(first.stderr.contains(why), "{first}");
    let begun = std::time::Instant::now();
    let second = run(&["--isolation", "vm"]);
    assert!(second.stderr.contains(why), "{second}");
    assert!(begun.elapsed().as_secs() < 5, "nobody tries it again");
    // Whoever asks for no virtual machine gets what there is.
    let weaker = run(&[]);
    assert_eq!(weaker.code, 0, "{weaker}");
    let doctor = story.motu(&["doctor"]);
    assert!(doctor.stdout.contains("first machine: failed"), "{doctor}");
}
