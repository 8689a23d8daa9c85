//! What is missing at first use, and what is put in place while the daemon runs.

use motu_testkit::directory;
use motu_testkit::screen;
use motu_testkit::story::Story;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn the_first_use_of_an_environment_pulls_it_and_says_so() {
    let Some(source) = Story::with_machines() else {
        return;
    };
    let place = format!("dir:{}", directory::of_busybox(&source).display());
    let story = Story::new();
    story.configure("runtime = \"container\"\n");
    let told = story.motu(&["run", &place, "--", "echo", "hi"]);
    assert_eq!((told.code, told.stdout.as_str()), (0, "hi\n"), "{told}");
    let progress = format!("pulling {place}: ");
    assert!(told.stderr.contains(&progress), "{told}");
    // Once is enough, and a program is told nothing.
    let again = story.motu(&["run", &place, "--", "echo", "hi"]);
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again}");
    let removed = story.motu(&["env", "rm", &place]);
    assert_eq!(removed.code, 0, "{removed}");
    let quiet = story.motu(&["run", "--json", &place, "--", "echo", "hi"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""), "{quiet}");
    let answer: Value = serde_json::from_str(&quiet.stdout).unwrap();
    assert_eq!(answer["stdout"], "hi\n", "{quiet}");
}

/// What `doctor` says of qemu: whether it works, and of its check of the program.
fn told_of_qemu(story: &Story) -> (bool, String) {
    let doctor = story.motu(&["doctor", "--json"]);
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let mut all = doctor["runtimes"].as_array().unwrap().iter();
    let qemu = all.find(|one| one["name"] == "qemu").unwrap();
    let mut checks = qemu["checks"].as_array().unwrap().iter();
    let found = checks.find(|one| one["name"] == "qemu-system-x86_64");
    let health = found.map_or("", |one| one["health"].as_str().unwrap_or_default());
    (qemu["works"] == true, health.to_string())
}

#[test]
fn a_program_installed_while_the_daemon_runs_is_found_by_doctor_and_by_run() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    motu_needs::probes::share_machines(&story.home());
    let program = story.path().join("qemu-system-x86_64");
    story.configure(&format!(
        "[qemu]\nprogram = {:?}\n",
        program.display().to_string()
    ));
    let _ = story.command(&["serve", "--stop"]).output();
    let run = || story.motu(&["run", "--runtime", "qemu", "busybox", "--", "true"]);
    assert_eq!(told_of_qemu(&story), (false, "failed".to_string()));
    let absent = run();
    assert_eq!(absent.code, 107, "{absent}");
    let daemon = |story: &Story| {
        let version = story.motu(&["version", "--json"]);
        let version: Value = serde_json::from_str(&version.stdout).unwrap();
        version["daemon"]["pid"].clone()
    };
    let before = daemon(&story);

    // It tells its version, and no machine starts with it.
    let real = motu_needs::find("qemu-system-x86_64");
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in --version|\"-L help\") exec {} \"$@\" ;; esac\n\
         echo 'this one makes no machines' >&2\nexit 1\n",
        real.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(story.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // `run` looks for itself. What was found a second ago is not looked for again.
    let begun = Instant::now();
    while run().stderr == absent.stderr {
        assert!(begun.elapsed() < Duration::from_secs(20), "{absent}");
    }
    assert_eq!(told_of_qemu(&story).1, "ok");

    // Taken away again: both say what is so now.
    fs::remove_file(&program).unwrap();
    assert_eq!(told_of_qemu(&story), (false, "failed".to_string()));
    let gone = run();
    assert_eq!(
        (gone.code, &gone.stderr),
        (absent.code, &absent.stderr),
        "{gone}"
    );
    assert_eq!(daemon(&story), before, "the daemon was not started again");
}

#[test]
fn variables_come_from_files_of_this_host() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    fs::write(
        story.path().join("one.env"),
        "A=1\n# B=2\n\nC=x=y z\nFROM_HERE\n",
    )
    .unwrap();
    fs::write(story.path().join("two.env"), "A=2\nD=\n").unwrap();
    let script = "echo \"$A,${B-none},$C,${D-none},$FROM_HERE\"";
    let mut run = story.command(&[
        "run",
        "busybox",
        "--env-file",
        "one.env",
        "--env-file",
        "two.env",
        "--env",
        "A=3",
        "--",
        "sh",
        "-c",
        script,
    ]);
    run.env("FROM_HERE", "host");
    let told = story.told(run);
    assert_eq!(told.stdout, "3,none,x=y z,,host\n", "{told}");
    let missing = story.motu(&["run", "busybox", "--env-file", "no.env", "--", "true"]);
    assert_eq!(missing.code, 104, "{missing}");
    assert!(missing.stderr.contains("no.env"), "{missing}");
    fs::write(story.path().join("bad.env"), "A=1\n=2\n").unwrap();
    let wrong = story.motu(&["run", "busybox", "--env-file", "bad.env", "--", "true"]);
    assert_eq!(wrong.code, 102, "{wrong}");
    assert!(wrong.stderr.contains("bad.env, line 2"), "{wrong}");
}

#[test]
fn whoever_waits_for_bytes_sees_how_many_there_were() {
    let story = Story::new();
    let mut import = story.command(&["env", "import", "-"]);
    import.stdin(Stdio::piped());
    let (mut child, mut shown) = screen::on_terminal(import, 80);
    let mut archive = child.stdin.take().unwrap();
    archive.write_all(&[0; 512 * 1024]).unwrap();
    screen::until(&mut shown, "importing");
    screen::until(&mut shown, "512 KiB");
    // It was no archive, which is said when it has ended.
    drop(archive);
    screen::until(&mut shown, "error:");
    drop(shown);
    assert!(!child.wait().unwrap().success());
}
