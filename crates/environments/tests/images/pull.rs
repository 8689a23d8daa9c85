//! Real pulls of the smallest environment.
//!
//! They need a Debian host with a reachable mirror. Without the tools they skip with a printed
//! reason.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use motu_environments::{EnvironmentError, Environments, Privilege, Progress};

/// A user id that no account has.
const ORDINARY_USER: u32 = 47_114;
/// Tells the inner tests their working directory.
const USER_HOME: &str = "MOTU_TEST_USER_HOME";
const KILLED_HOME: &str = "MOTU_TEST_KILLED_HOME";

fn can_pull() -> bool {
    let found = |tool: &str| Path::new("/usr/bin").join(tool).exists();
    let ready = ["apt-get", "dpkg-deb", "unshare", "tar"]
        .into_iter()
        .all(found);
    if !ready {
        println!("SKIP: apt-get, dpkg-deb, unshare or tar is missing");
    }
    ready
}

fn is_root() -> bool {
    Privilege::detect() == Privilege::Root
}

fn open(home: &Path) -> Environments {
    Environments::open(home, Privilege::detect()).expect("the home can be opened")
}

fn count_builds(counter: &Arc<AtomicUsize>) -> Progress {
    let counter = counter.clone();
    Progress::new(move |event| {
        if event.stage == "download" {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    })
}

fn children(dir: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory is readable");
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a running program has `path` in its arguments.
fn mentioned(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let pids = fs::read_dir("/proc").expect("proc is mounted").flatten();
    pids.filter_map(|pid| fs::read(pid.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(&*path))
}

#[tokio::test(flavor = "multi_thread")]
async fn busybox_is_pulled_and_runs() {
    if !can_pull() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let environments = open(home.path());
    let started = Instant::now();
    let info = environments
        .pull("busybox", Progress::none())
        .await
        .unwrap();
    println!("busybox pulled in {:?}", started.elapsed());
    assert!(info.installed && !info.outdated);
    assert!(info.packages["busybox-static"].contains("1."), "{info:?}");

    let environment = environments.resolve("busybox").await.unwrap();
    assert_eq!(Some(&environment.digest), info.digest.as_ref());
    let root = &environment.root;
    let echo = Command::new(root.join("bin/busybox"))
        .args(["echo", "hello"])
        .output()
        .unwrap();
    assert_eq!(echo.stdout, b"hello\n");
    assert_eq!(
        fs::read_link(root.join("bin/sh")).unwrap(),
        Path::new("/bin/busybox")
    );
    for dir in ["proc", "sys", "dev", "run", "tmp", "workspace", "home/user"] {
        assert!(root.join(dir).is_dir(), "{dir}");
    }
    for file in ["etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/passwd"] {
        assert!(
            fs::symlink_metadata(root.join(file)).unwrap().is_file(),
            "{file}"
        );
    }
    assert_eq!(fs::read(root.join("etc/resolv.conf")).unwrap(), b"");
    let tmp = fs::metadata(root.join("tmp")).unwrap().permissions().mode();
    assert_eq!(tmp & 0o7777, 0o1777);

    // The tree matches its digest, and a second pull is free.
    environments.verify("busybox").await.unwrap();
    let again = Instant::now();
    assert_eq!(
        environments
            .pull("busybox", Progress::none())
            .await
            .unwrap(),
        info
    );
    assert!(again.elapsed() < Duration::from_millis(500));
    assert!(children(home.path().join("environments/staging")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pulls_share_one_build() {
    if !can_pull() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let environments = open(home.path());
    let (ours, theirs) = (Arc::default(), Arc::default());
    // The second handle simulates another process: it shares only the disk.
    let other_process = open(home.path());
    let elsewhere = Arc::default();
    let (one, two, three) = tokio::join!(
        environments.pull("busybox", count_builds(&ours)),
        environments.pull("busybox", count_builds(&theirs)),
        other_process.pull("busybox", count_builds(&elsewhere)),
    );
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    assert_eq!(
        (&one.digest, &one.created_at),
        (&two.digest, &two.created_at)
    );
    assert_eq!(
        (&one.digest, &one.created_at),
        (&three.digest, &three.created_at)
    );
    let counts = [&ours, &theirs, &elsewhere].map(|count| count.load(Ordering::SeqCst));
    let here = counts[0].max(counts[1]);
    assert_eq!(here + counts[2], 1, "{counts:?}");
    // All waiters in this process saw the events of the build.
    assert_eq!(counts[0], counts[1], "{counts:?}");
    assert_eq!(children(home.path().join("environments/blobs")).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_pull_leaves_nothing() {
    if !can_pull() {
        return;
    }
    for stage in ["resolve", "download", "configure"] {
        let home = tempfile::tempdir().unwrap();
        let environments = open(home.path());
        let (reached, mut at_stage) = tokio::sync::mpsc::channel(1);
        let progress = Progress::new(move |event| {
            if event.stage == stage {
                let _ = reached.try_send(());
            }
        });
        tokio::select! {
            _ = environments.pull("busybox", progress) => panic!("{stage}: not interrupted"),
            _ = at_stage.recv() => {}
        }
        let dir = home.path().join("environments");
        wait_until("staging is empty", || {
            children(dir.join("staging")).is_empty()
        });
        assert!(children(dir.join("blobs")).is_empty(), "{stage}");
        assert!(children(dir.join("names")).is_empty(), "{stage}");
        let error = environments.resolve("busybox").await.unwrap_err();
        assert!(matches!(error, EnvironmentError::NotInstalled { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_bootstrap_ends_its_programs() {
    if !can_pull() || !Path::new("/usr/bin/mmdebstrap").exists() {
        println!("SKIP: mmdebstrap is missing");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let environments = open(home.path());
    let (reached, mut at_stage) = tokio::sync::mpsc::channel(1);
    let progress = Progress::new(move |event| {
        if event.message.contains("apt-get update") {
            let _ = reached.try_send(());
        }
    });
    tokio::select! {
        result = environments.pull("debian:12-base", progress) => panic!("{result:?}"),
        _ = at_stage.recv() => {}
    }
    let dir = home.path().join("environments");
    wait_until("staging is empty", || {
        children(dir.join("staging")).is_empty()
    });
    wait_until("no program is left", || !mentioned(home.path()));
}

#[test]
fn a_killed_process_takes_its_programs_along() {
    if !can_pull() || !Path::new("/usr/bin/mmdebstrap").exists() {
        println!("SKIP: mmdebstrap is missing");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "pull::until_killed"])
        .env(KILLED_HOME, home.path())
        .spawn()
        .unwrap();
    let staging = home.path().join("environments/staging");
    wait_until("the bootstrap runs", || {
        let builds = fs::read_dir(&staging).into_iter().flatten().flatten();
        let scratches = builds.flat_map(|build| fs::read_dir(build.path().join("scratch")));
        let mut files = scratches.flatten().flatten();
        files.any(|file| {
            file.file_name()
                .to_string_lossy()
                .starts_with("mmdebstrap.")
        })
    });
    assert!(mentioned(home.path()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("no program is left", || !mentioned(home.path()));
    assert_eq!(children(staging.clone()).len(), 1);
    open(home.path());
    assert!(children(staging).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by a_killed_process_takes_its_programs_along"]
async fn until_killed() {
    let Some(home) = std::env::var_os(KILLED_HOME) else {
        println!("SKIP: run by a_killed_process_takes_its_programs_along");
        return;
    };
    let environments = open(Path::new(&home));
    let pulled = environments.pull("debian:12-base", Progress::none()).await;
    panic!("not killed: {pulled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_come_in_order() {
    if !can_pull() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let stages = seen.clone();
    let progress = Progress::new(move |event| stages.lock().unwrap().push(event.stage));
    open(home.path()).pull("busybox", progress).await.unwrap();
    let mut stages = seen.lock().unwrap().clone();
    stages.dedup();
    assert_eq!(
        stages,
        ["resolve", "download", "unpack", "configure", "seal"]
    );
}

/// Writes the account files of the unprivileged user; returns the home directory.
fn give_account(dir: &Path) -> PathBuf {
    let id = ORDINARY_USER;
    let write = || -> std::io::Result<PathBuf> {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        for (file, line) in [
            (
                "passwd",
                format!("motu-test:x:{id}:{id}::/nonexistent:/bin/sh\n"),
            ),
            ("group", format!("motu-test:x:{id}:\n")),
            ("subuid", "motu-test:700000:65536\n".to_owned()),
            ("subgid", "motu-test:700000:65536\n".to_owned()),
        ] {
            let text = fs::read_to_string(Path::new("/etc").join(file)).unwrap_or_default();
            fs::write(dir.join(file), text + &line)?;
        }
        let home = dir.join("home");
        fs::create_dir(&home)?;
        chown(&home, Some(id), Some(id))?;
        Ok(home)
    };
    write().expect("root can write these files")
}

/// Runs the test below as an unprivileged user, in a mount namespace in which that user has an
/// account and subordinate ids. The host's files are not changed.
#[test]
fn an_ordinary_user_can_pull() {
    if !can_pull() || !is_root() {
        println!("SKIP: only root can become another user");
        return;
    }
    if !Path::new("/usr/bin/newuidmap").exists() {
        println!("SKIP: newuidmap is missing");
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = give_account(dir.path());
    // A copy: the user may not have access to the target directory.
    let program = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = format!(
        "for f in passwd group subuid subgid; do mount --bind {dir}/$f /etc/$f || exit 9; done; \
         exec setpriv --reuid={id} --regid={id} --clear-groups \
         env {USER_HOME}={home} {dir}/tests --ignored --exact --nocapture pull::as_an_ordinary_user",
        id = ORDINARY_USER,
        dir = dir.path().display(),
        home = home.display(),
    );
    let out = motu_needs::command("unshare")
        .args(["--mount", "sh", "-c", &script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let (text, log) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    if out.status.code() == Some(9) {
        println!("SKIP: files cannot be mounted here: {log}");
        return;
    }
    assert!(out.status.success(), "{text}\n{log}");
    assert!(text.contains("1 passed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by an_ordinary_user_can_pull"]
async fn as_an_ordinary_user() {
    use std::os::unix::fs::MetadataExt as _;

    let Some(home) = std::env::var_os(USER_HOME) else {
        println!("SKIP: run by an_ordinary_user_can_pull");
        return;
    };
    assert_eq!(Privilege::detect(), Privilege::User);
    let environments = open(Path::new(&home));
    let name = std::env::var("MOTU_TEST_USER_PULL").unwrap_or_else(|_| "busybox".to_owned());
    let info = environments.pull(&name, Progress::none()).await.unwrap();
    let root = environments.resolve(&name).await.unwrap().root;
    // Root inside is the caller; other users inside are subordinate ids.
    assert_eq!(
        fs::metadata(root.join("etc/passwd")).unwrap().uid(),
        ORDINARY_USER
    );
    if name == "busybox" {
        assert_eq!(
            fs::metadata(root.join("home/user")).unwrap().uid(),
            700_000 + 999
        );
    }
    environments.verify(&name).await.unwrap();
    if name == "busybox" {
        // The same files, imported as a directory, give the same environment.
        let copy = format!("dir:{}", root.display());
        let copied = environments.pull(&copy, Progress::none()).await.unwrap();
        assert_eq!(copied.digest, info.digest);
        environments.verify(&copy).await.unwrap();
    }
    let pruned = environments.prune(&Default::default(), true).await.unwrap();
    assert_eq!(Some(&pruned.digests[0]), info.digest.as_ref());
    wait_until("everything is removed", || {
        let dir = Path::new(&home).join("environments");
        children(dir.join("blobs")).is_empty() && children(dir.join("staging")).is_empty()
    });
}
