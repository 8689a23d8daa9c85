//! Interaction with the host: directories copied in and out, names of environments, shell
//! completion, manual pages.

mod first_use;
mod offered;

use motu_testkit::story::{Story, Told};
use std::fs;

fn fine(told: Told) -> String {
    assert_eq!(told.code, 0, "{told}");
    told.stdout
}

#[test]
fn a_volume_is_copied_in_and_what_changed_comes_back() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let dir = story.path().join("project");
    fs::create_dir_all(dir.join("sub")).unwrap();
    for (name, text) in [("a", "one\n"), ("kept", "here\n"), ("sub/b", "deep\n")] {
        fs::write(dir.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let run = |volume: &str, script: &str| {
        story.motu(&["run", "-v", volume, "busybox", "--", "sh", "-c", script])
    };
    let script = "cd /data; cat a sub/b; echo two > a; rm kept; mkdir new; echo n > new/f; exit 3";
    let told = run("./project:/data", script);
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (3, "one\ndeep\n"),
        "{told}"
    );
    assert_eq!((read("a"), read("new/f")), ("two\n".into(), "n\n".into()));
    assert_eq!(read("kept"), "here\n", "nothing is deleted here");
    assert!(dir.join("link").is_symlink());

    // If copying back fails, the sandbox is kept, so nothing is lost.
    let told = run(
        "./project:/data",
        "cd /data; rm link; mkdir link; echo four > a",
    );
    assert_eq!(told.code, 105, "{told}");
    assert!(told.stderr.contains("was not copied back"), "{told}");
    assert_eq!(read("a"), "two\n");
    let left = fine(story.motu(&["ps"]));
    let id = left.split_whitespace().find(|word| word.starts_with("sb-"));
    let there = format!("{}:/data/a", id.unwrap());
    fine(story.motu(&["cp", &there, "rescued"]));
    assert_eq!(
        fs::read_to_string(story.path().join("rescued")).unwrap(),
        "four\n"
    );

    for (volume, code) in [
        ("./none:/data", 104),
        ("./project/a:/data", 102),
        ("x:y", 102),
    ] {
        assert_eq!(run(volume, "true").code, code, "{volume}");
    }
}

/// A directory for volumes, with a file that is large but for its bytes.
fn kept(story: &Story) -> std::path::PathBuf {
    let dir = story.path().join("project");
    fs::create_dir_all(dir.join("sub")).unwrap();
    for (name, text) in [("a", "one\n"), ("sub/b", "deep\n")] {
        fs::write(dir.join(name), text).unwrap();
    }
    let big = fs::File::create(dir.join("big")).unwrap();
    big.set_len(2 << 30).unwrap();
    dir
}

fn with(story: &Story, volumes: &[&str], script: &str) -> Told {
    let flags = volumes.iter().flat_map(|volume| ["-v", volume]);
    let mut words: Vec<&str> = ["run", "--disk-mib", "64"]
        .into_iter()
        .chain(flags)
        .collect();
    words.extend(["busybox", "--", "sh", "-c", script]);
    story.motu(&words)
}

/// A story in which volumes are bound.
fn with_bound_volumes() -> Option<Story> {
    if !rustix::process::geteuid().is_root() {
        motu_needs::skip("volumes are bound by a daemon of root only");
        return None;
    }
    Story::with_machines()
}

#[test]
fn a_read_only_volume_is_the_directory_itself() {
    let Some(story) = with_bound_volumes() else {
        return;
    };
    let dir = kept(&story);
    // Two gigabytes would not fit.
    let script = "cd /data; cat a sub/b; stat -c %s big; { echo x > a; } 2>/dev/null || echo no; \
                  rm a 2>/dev/null || echo no; exit 3";
    let told = with(&story, &["./project:/data:ro"], script);
    let expected = "one\ndeep\n2147483648\nno\nno\n";
    assert_eq!((told.code, told.stdout.as_str()), (3, expected), "{told}");
    assert_eq!(told.stderr, "", "{told}");
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "one\n");

    // What is written beside it comes back.
    fs::create_dir(story.path().join("out")).unwrap();
    let volumes = ["./project:/data:ro", "./out:/out"];
    fine(with(&story, &volumes, "cp /data/a /out/a"));
    let out = story.path().join("out/a");
    assert_eq!(fs::read_to_string(out).unwrap(), "one\n");

    // It is in the audit log, as every call.
    let listed = fine(story.motu(&["audit", "list", "--json"]));
    assert!(listed.contains("lend_directory"), "{listed}");

    // Every sandbox is gone, and with it every mount.
    let left = fine(story.motu(&["ps", "--json"]));
    assert_eq!(left.matches("sb-").count(), 0, "{left}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*dir.to_string_lossy()), "{mounts}");
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_read_only_volume_that_cannot_be_shown_as_it_is_is_copied_or_refused() {
    let Some(story) = with_bound_volumes() else {
        return;
    };
    let dir = kept(&story);
    fs::remove_file(dir.join("big")).unwrap();
    fs::create_dir(story.path().join("out")).unwrap();
    let volumes = ["./project:/data:ro", "./out:/data/out"];
    let told = with(&story, &volumes, "cat /data/a; echo new > /data/out/a");
    assert_eq!((told.code, told.stdout.as_str()), (0, "one\n"), "{told}");
    let note = "motu: ./project is copied, not bound: another volume is at the same place\n";
    assert!(told.stderr.contains(note), "{told}");
    let out = story.path().join("out/a");
    assert_eq!(fs::read_to_string(out).unwrap(), "new\n");
    // The kernel's own file systems have a place for it, but not that way.
    let told = with(&story, &["./project:/dev/data:ro"], "cat /dev/data/a");
    assert_eq!((told.code, told.stdout.as_str()), (0, "one\n"), "{told}");
    assert!(told.stderr.contains("is copied, not bound"), "{told}");

    for (volume, code) in [
        ("./none:/data:ro", 104),
        ("./project/a:/data:ro", 102),
        ("./project:/etc/passwd:ro", 105),
    ] {
        let told = with(&story, &[volume], "true");
        assert_eq!(told.code, code, "{volume}: {told}");
    }
    let left = fine(story.motu(&["ps", "--json"]));
    assert_eq!(left.matches("sb-").count(), 0, "{left}");
}

#[test]
fn a_read_only_volume_is_copied_where_nothing_else_can_be_and_that_is_said() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let doctor = fine(story.motu(&["doctor", "--json"]));
    let doctor: serde_json::Value = serde_json::from_str(&doctor).unwrap();
    let mut all = doctor["runtimes"].as_array().unwrap().iter();
    let works = all.any(|one| one["name"] == "gvisor" && one["works"] == true);
    if !works {
        return motu_needs::skip("gvisor does not work here");
    }
    let dir = kept(&story);
    fs::remove_file(dir.join("big")).unwrap();
    let volume = ["run", "--runtime", "gvisor", "-v", "./project:/data:ro"];
    let script = "cat /data/a; echo inside > /data/a; cat /data/a";
    let words = [&volume[..], &["busybox", "--", "sh", "-c", script]].concat();
    let told = story.motu(&words);
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (0, "one\ninside\n"),
        "{told}"
    );
    let note = "motu: ./project is copied, not bound: the gvisor runtime cannot show";
    assert!(told.stderr.contains(note), "{told}");
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "one\n");
}

#[test]
fn an_environment_has_names_and_goes_when_nobody_uses_it() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    assert_eq!(
        fine(story.motu(&["env", "tag", "busybox", "mine:1"])),
        "mine:1\n"
    );
    assert_eq!(
        fine(story.motu(&["run", "mine:1", "--", "echo", "hi"])),
        "hi\n"
    );
    let taken = story.motu(&["env", "tag", "mine:1", "debian:12"]);
    assert_eq!(taken.code, 105, "{taken}");
    let id = fine(story.motu(&["create", "mine:1"]));
    fine(story.motu(&["env", "rm", "busybox"]));
    let used = story.motu(&["env", "rm", "mine:1"]);
    assert_eq!(used.code, 105, "{used}");
    fine(story.motu(&["rm", id.trim()]));
    let gone = fine(story.motu(&["env", "rm", "mine:1"]));
    assert!(gone.starts_with("removed mine:1\n"), "{gone}");
    assert_eq!(story.motu(&["env", "rm", "mine:1"]).code, 104);
}

/// The completions a shell would offer at the end of a line. If the daemon is slow to answer, the
/// request is repeated.
fn offered(story: &Story, shell: &str, line: &str) -> Vec<String> {
    for _ in 0..20 {
        let offered = asked(story, shell, line);
        if offered.iter().any(|word| !word.is_empty()) {
            return offered;
        }
    }
    Vec::new()
}

fn asked(story: &Story, shell: &str, line: &str) -> Vec<String> {
    let script = fine(story.motu(&["completions", shell]));
    let ask = match shell {
        "bash" => format!(
            "{script}\nCOMP_LINE='{line}' COMP_POINT=${{#COMP_LINE}}\n\
             COMP_WORDBREAKS=$' \\t\\n:'; COMP_POINT=${{#COMP_LINE}}; _motu; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ),
        "fish" => format!("{script}\ncomplete -C '{line}'"),
        shell => panic!("{shell} is not asked here"),
    };
    let bin = story.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let _ = std::os::unix::fs::symlink(motu_testkit::program(), bin.join("motu"));
    let asked = motu_needs::command(shell)
        .args(["-c", &ask])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("HOME", story.path())
        .env("MOTU_HOME", story.home())
        .output()
        .unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    assert!(
        asked.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    text.lines().map(String::from).collect()
}

#[test]
fn shells_complete_what_there_is() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let made = [
        "workspace",
        "create",
        "busybox",
        "--id",
        "ws-one",
        "--name",
        "fix-login",
    ];
    fine(story.motu(&made));
    fine(story.motu(&["workspace", "snapshot", "create", "ws-one", "before"]));
    for shell in ["bash", "fish"] {
        let at = |line: &str| offered(&story, shell, line);
        assert_eq!(at("motu workspace exec fix"), ["fix-login"], "{shell}");
        assert_eq!(at("motu exec ws-o"), ["ws-one"], "{shell}");
        assert_eq!(
            at("motu workspace reset ws-one --snapshot be"),
            ["before"],
            "{shell}"
        );
        assert_eq!(at("motu workspace und"), ["undo"], "{shell}");
        assert_eq!(at("motu run --runtime qe"), ["qemu"], "{shell}");
    }
    // Bash completes only the part after the colon.
    assert_eq!(offered(&story, "bash", "motu run debian:12-b"), ["12-base"]);
    let whole = offered(&story, "fish", "motu run debian:12-b");
    assert_eq!(whole, ["debian:12-base"]);
    assert_eq!(
        offered(&story, "bash", "motu env inspect busy"),
        ["busybox"]
    );
}

#[test]
fn nobody_is_started_to_complete_a_word() {
    let story = Story::new();
    assert_eq!(fine(story.motu(&["__complete", "--", "motu exec "])), "");
    assert_eq!(
        fine(story.motu(&["__complete", "--", "motu workspace rese"])),
        "reset\n"
    );
    assert!(!story.home().exists(), "no daemon, and no place for one");
}

#[test]
fn every_command_has_a_manual_page() {
    let story = Story::new();
    let page = fine(story.motu(&["man", "workspace", "undo"]));
    assert!(page.starts_with(".TH MOTU\\-WORKSPACE\\-UNDO 1"), "{page}");
    assert!(page.contains("How many commands"), "{page}");
    assert_eq!(story.motu(&["man", "no-such"]).code, 104);
    let dir = story.path().join("man1");
    fs::create_dir(&dir).unwrap();
    fine(story.motu(&["man", "--dir", "man1"]));
    let pages = fs::read_dir(&dir).unwrap().count();
    assert!(pages > 80, "{pages} pages");
    assert!(dir.join("motu.1").exists() && dir.join("motu-env-pull.1").exists());
}

/// A user id that nobody on the host has, without any privileges.
const ORDINARY: &str = "64123";

#[test]
fn an_ordinary_user_is_told_what_does_not_work() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let story = Story::new();
    // The program itself may be in a place the user cannot read.
    let motu = story.path().join("motu");
    fs::copy(motu_testkit::program(), &motu).unwrap();
    fs::set_permissions(story.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = story.path().join("own");
    fs::create_dir(&own).unwrap();
    let id = ORDINARY.parse().unwrap();
    chown(&own, Some(id), Some(id)).unwrap();
    let run = |args: &[&str]| {
        let mut command = motu_needs::command("setpriv");
        command
            .args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")])
            .args(["--clear-groups".as_ref(), motu.as_os_str()])
            .args(args)
            .current_dir(&own)
            .env_clear()
            // An ordinary user's PATH has no `sbin` directories.
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &own)
            .env("MOTU_HOME", own.join("state"));
        story.told(command)
    };
    let told = run(&["doctor", "--json"]);
    let text = run(&["doctor"]);
    let _ = run(&["serve", "--stop"]).code;
    assert_eq!((told.code, text.code), (107, 107), "{told}");
    assert!(
        !text.stdout.contains("Everything needed is there"),
        "{text}"
    );
    let doctor: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let named = |all: &serde_json::Value, name: &str| {
        let mut all = all.as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap().clone()
    };
    let qemu = named(&doctor["runtimes"], "qemu");
    assert_eq!(qemu["works"], false, "{qemu}");
    assert!(
        qemu["detail"].as_str().unwrap().contains("range of ids"),
        "{qemu}"
    );
    // Each names the same command, and none passes on what `unshare` says of it: "…: Success".
    for runtime in ["qemu", "gvisor"] {
        let runtime = named(&doctor["runtimes"], runtime);
        let lacking = named(&runtime["checks"], "privilege");
        assert_eq!(lacking["health"], "failed", "{lacking}");
        let fix = lacking["fix"].as_str().unwrap();
        assert!(fix.starts_with("usermod --add-subuids"), "{lacking}");
    }
    assert!(!text.stdout.contains(": Success"), "{text}");
    let programs = named(&qemu["checks"], "mke2fs");
    assert_eq!(programs["health"], "ok", "{programs}");
    let environments = named(&doctor["host"], "environments");
    assert_eq!(environments["health"], "failed", "{environments}");
    let fix = environments["fix"].as_str().unwrap();
    let range = fix.split_whitespace().nth(2).unwrap();
    let (first, last) = range.split_once('-').unwrap();
    let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
    for file in ["/etc/subuid", "/etc/subgid"] {
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            let numbers: Vec<u64> = line.split(':').skip(1).flat_map(str::parse).collect();
            let [start, count] = numbers[..] else {
                continue;
            };
            assert!(
                last < start || start + count <= first,
                "{fix} beside {line}"
            );
        }
    }
}
