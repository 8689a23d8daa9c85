//! Virtual machines and gVisor of an ordinary user: environments with many owners become disks and roots without root, and
//! QEMU is shut in.

use motu_testkit::story::Told;
use motu_testkit::user::User;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What is added to the environment: a directory that nobody but its owner may look into.
const PRIVATE: &str = "private";

fn test_home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-home")
}

/// A user with an environment whose files have two owners.
fn prepared() -> Option<(User, String)> {
    let user = User::new()?;
    let names = test_home().join("environments/names/busybox.json");
    if !names.exists() {
        motu_needs::skip("rootless: busybox is not pulled into target/test-home");
        return None;
    }
    let named: Value = serde_json::from_slice(&std::fs::read(names).unwrap()).unwrap();
    let digest = named["digest"].as_str().unwrap().replace(':', "-");
    let root = test_home()
        .join("environments/blobs")
        .join(digest)
        .join("root");
    let archive = user.own().join("two-owners.tar");
    tar(&["-cf"], &archive, &root, ".");
    let extra = user.story.path().join("extra");
    std::fs::create_dir_all(extra.join(PRIVATE)).unwrap();
    std::fs::write(extra.join(PRIVATE).join("file"), "theirs\n").unwrap();
    let owned = ["--owner=1000", "--group=1001", "--mode=u=rwX,go=", "-rf"];
    tar(&owned, &archive, &extra, PRIVATE);
    Some((user, format!("tar:{}", archive.display())))
}

fn tar(options: &[&str], archive: &Path, directory: &Path, what: &str) {
    let mut pack = motu_needs::command("tar");
    pack.arg("--numeric-owner")
        .args(options)
        .arg(archive)
        .arg("-C");
    assert!(pack.arg(directory).arg(what).status().unwrap().success());
}

fn fine(told: Told) -> String {
    assert_eq!(told.code, 0, "{told}");
    told.stdout
}

#[test]
fn an_ordinary_user_has_virtual_machines() {
    let Some((user, environment)) = prepared() else {
        return;
    };
    fine(user.motu(&["env", "pull", &environment]));
    let accel = motu_needs::accelerator();
    let qemu = ["--runtime", "qemu", "--accel", &accel];
    let look = "id -u; stat -c '%u:%g %a' /bin/busybox /private /private/file; cat /private/file";
    let run = [
        &["run", &environment, "--json"][..],
        &qemu,
        &["--", "sh", "-c", look],
    ]
    .concat();
    let told = user.motu(&run);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(answer["isolation"], "vm", "{told}");
    let said = "0\n0:0 755\n1000:1001 700\n1000:1001 600\ntheirs\n";
    assert_eq!(answer["stdout"], said, "{told}");

    let keep = ["create", &environment, "--id", "kept", "--keep"];
    fine(user.motu(&[&keep[..], &qemu].concat()));
    shut_in(&user, "kept");
    let exec = |script| user.motu(&["exec", "kept", "--", "sh", "-c", script]);
    assert_eq!(
        fine(exec("stat -c %u:%g /workspace && echo new >/workspace/b")),
        "0:0\n"
    );
    fine(user.motu(&["stop", "kept"]));
    fine(user.motu(&["start", "kept"]));
    assert_eq!(fine(exec("cat /workspace/b")), "new\n");

    // A seed of the user's is root's inside, as this environment works as root.
    std::fs::create_dir(user.own().join("project")).unwrap();
    std::fs::write(user.own().join("project/a"), "one\n").unwrap();
    let create = [
        "workspace",
        "create",
        &environment,
        "--id",
        "ws-own",
        "--seed-path",
        "project",
    ];
    fine(user.motu(&[&create[..], &qemu].concat()));
    let exec = |script| user.motu(&["workspace", "exec", "ws-own", "--", "sh", "-c", script]);
    assert_eq!(
        fine(exec("stat -c %u:%g . a && echo two >> a")),
        "0:0\n0:0\n"
    );
    fine(user.motu(&["workspace", "stop", "ws-own"]));
    fine(user.motu(&["workspace", "start", "ws-own"]));
    let diff = fine(user.motu(&["workspace", "diff", "ws-own"]));
    assert!(diff.contains("+two"), "{diff}");
}

/// QEMU is the user's, without capabilities, with a root and a network of its own.
fn shut_in(user: &User, id: &str) {
    let record = user
        .state()
        .join("machines/qemu")
        .join(id)
        .join("machine.json");
    let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let process = PathBuf::from(format!("/proc/{}", record["process"]["pid"]));
    let status = std::fs::read_to_string(process.join("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_string()
    };
    let theirs = std::os::unix::fs::MetadataExt::uid(&user.own().metadata().unwrap());
    assert_eq!(field("Uid:"), theirs.to_string());
    assert_eq!(field("CapEff:").trim_start_matches('0'), "");
    assert_eq!(field("NoNewPrivs:"), "1");
    for kind in ["user", "mnt", "net", "ipc", "uts"] {
        let of = |process: &Path| std::fs::read_link(process.join("ns").join(kind)).unwrap();
        assert_ne!(of(&process), of(Path::new("/proc/self")), "{kind}");
    }
    let root = process.join("root");
    assert!(root.join("machine").is_dir() && root.join("usr").is_dir());
    for hidden in ["tmp", "home", "root", "var", "etc/passwd"] {
        assert!(!root.join(hidden).exists(), "/{hidden} is seen");
    }
}

/// What a machine of gVisor shows of itself, and of an environment with two owners.
const LOOK: &str = "id -u; stat -c '%u:%g %a' /bin/busybox /private /private/file; cat /private/file; \
                    echo new >/private/b && stat -c %u:%g /private/b; dmesg | head -n 1 | grep -o gVisor";

#[test]
fn an_ordinary_user_has_machines_of_gvisor() {
    let Some((user, environment)) = prepared() else {
        return;
    };
    fine(user.motu(&["env", "pull", &environment]));
    let gvisor = ["--runtime", "gvisor"];
    let run = |more: &[&str], script: &str| {
        let words = [&["run", &environment, "--json"][..], &gvisor, more];
        user.motu(&[&words.concat()[..], &["--", "sh", "-c", script]].concat())
    };
    let told = run(&["--mem-mib", "96"], LOOK);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(answer["isolation"], "gvisor", "{told}");
    let said = "0\n0:0 755\n1000:1001 700\n1000:1001 600\ntheirs\n0:0\ngVisor\n";
    assert_eq!(answer["stdout"], said, "{told}");
    // The user has groups of their own, and no way to bound a disk.
    assert_eq!(
        answer["not_enforced"],
        serde_json::json!(["disk_mib"]),
        "{told}"
    );

    // What it cannot do is refused, with its cause.
    for (flag, value) in [("--disk-mib", "64"), ("--network", "open")] {
        let told = run(&[flag, value], "true");
        assert_ne!(told.code, 0, "{flag}: {told}");
        assert!(!told.stdout.contains("internal"), "{flag}: {told}");
    }
    let keep = ["create", &environment, "--id", "kept", "--keep"];
    let told = user.motu(&[&keep[..], &gvisor].concat());
    assert_ne!(told.code, 0, "{told}");

    // The next daemon finds it, and its end leaves nothing.
    let create = ["create", &environment, "--id", "sb-two"];
    fine(user.motu(&[&create[..], &gvisor].concat()));
    let exec = |script| user.motu(&["exec", "sb-two", "--", "sh", "-c", script]);
    fine(exec(
        "mkdir /private/c && chown 1000:1000 /private/c && chmod 700 /private/c",
    ));
    fine(user.motu(&["serve", "--stop"]));
    assert_eq!(fine(exec("stat -c %u /private/c")), "1000\n");
    fine(user.motu(&["pause", "sb-two"]));
    fine(user.motu(&["resume", "sb-two"]));
    assert_eq!(fine(exec("echo again")), "again\n");
    let place = user.state().join("machines/gvisor/sb-two");
    assert!(place.is_dir() && !of_bundle(&place).is_empty());
    fine(user.motu(&["rm", "sb-two"]));
    assert!(!place.exists());
    assert_eq!(of_bundle(&place), Vec::<String>::new());
}

/// Command lines of processes that name a bundle.
fn of_bundle(place: &Path) -> Vec<String> {
    let place = place.display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&place)).collect()
}
