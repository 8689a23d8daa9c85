//! A full disk under the state directory.
//!
//! The state directory is a small tmpfs in a mount namespace of the daemon. The test accesses it
//! through `/proc/PID/root`, and the mount ends with the daemon.

use super::workspaces::{asked, create, script, sh};
use motu_api::Client;
use motu_api::client::SocketAt;
use motu_core::files::{WriteFile, WriteOptions};
use motu_core::sandbox::State;
use motu_core::workspace::{CreateWorkspace, ReadText, SaveAs, WriteText};
use motu_core::{ErrorKind, SandboxId, Service, Size, Workspaces};
use motu_testkit::story::Told;
use motu_testkit::world::{World, at, connect, eventually, refused, shell, small, stream};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const SIZE_MIB: u64 = 24;
/// Mounts the file system, links the environments into it, and executes the daemon.
const ENTER: &str = r#"mount -t tmpfs -o size="$2"m,mode=0700 motu-test "$1" &&
    ln -s "$3" "$1/environments" && { [ -z "$4" ] || echo "$4" > "$1/config.toml"; } && exec "$5" serve"#;

/// The same on ext4, which, unlike tmpfs, does not hold its files in memory.
const ENTER_EXT4: &str = r#"truncate -s "$2"M "$1.ext4" && mke2fs -q -F -t ext4 -m 0 "$1.ext4" &&
    mount -o loop "$1.ext4" "$1" && chmod 700 "$1" &&
    ln -s "$3" "$1/environments" && echo "$4" > "$1/config.toml" && exec "$5" serve"#;

/// A daemon on a small disk. Its `World` removes leftovers.
pub struct Small {
    world: World,
    daemon: Child,
    inside: PathBuf,
}

/// Another file on the disk, which grows.
pub struct Filling {
    path: PathBuf,
    file: std::fs::File,
}

impl Filling {
    /// Writes as much as fits.
    pub fn grow(&mut self, bytes: usize) {
        let _ = self.file.write_all(&vec![1; bytes]);
    }

    pub fn end(self) {
        std::fs::remove_file(self.path).unwrap();
    }
}

impl Small {
    fn new(config: &str) -> Option<Small> {
        Small::enter(ENTER, SIZE_MIB, config)
    }

    /// On an ext4 of this size.
    pub fn ext4(size_mib: u64, config: &str) -> Option<Small> {
        Small::enter(ENTER_EXT4, size_mib, config)
    }

    fn enter(script: &str, size_mib: u64, config: &str) -> Option<Small> {
        let world = World::bare()?;
        let home = world.home().to_path_buf();
        let mut command = motu_needs::command("unshare");
        command
            .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(&home)
            .arg(size_mib.to_string())
            .arg(motu_testkit::environments())
            .arg(config)
            .arg(motu_testkit::program())
            .env("MOTU_HOME", &home)
            .stdin(Stdio::null());
        let daemon = command.spawn().unwrap();
        let root = PathBuf::from(format!("/proc/{}/root", daemon.id()));
        let inside = root.join(home.strip_prefix("/").unwrap());
        let deadline = std::time::Instant::now() + motu_testkit::world::SOON;
        while connect(&inside.join("daemon.sock")).is_none() {
            assert!(
                std::time::Instant::now() < deadline,
                "the daemon does not come up"
            );
            std::thread::yield_now();
        }
        Some(Small {
            world,
            daemon,
            inside,
        })
    }

    pub fn filling(&self) -> Filling {
        let path = self.inside.join("filling");
        let file = std::fs::File::create(&path).unwrap();
        Filling { path, file }
    }

    pub fn client(&self) -> Client {
        Client::new(SocketAt(self.socket()))
    }

    pub fn socket(&self) -> PathBuf {
        self.inside.join("daemon.sock")
    }

    /// The state directory, by a path that is valid in the test's namespace.
    pub fn home(&self) -> &Path {
        &self.inside
    }

    /// A directory of the test, outside the small disk.
    pub fn path(&self) -> &Path {
        self.world.path()
    }

    /// Runs `motu` in the daemon's mount namespace.
    pub fn motu(&self, args: &[&str]) -> Told {
        let mut command = motu_needs::command("nsenter");
        command
            .args(["-m", "-t", &self.daemon.id().to_string()])
            .arg(motu_testkit::program())
            .args(args)
            .env("MOTU_HOME", self.world.home())
            .stdin(Stdio::null());
        Told::of(command)
    }

    /// Fills the remaining space to the last byte.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let mut piece = 1 << 20;
        while piece > 0 {
            if file.write_all(&vec![1; piece]).is_err() {
                piece /= 2;
            }
        }
    }

    /// Takes the remaining space away in a moment.
    pub fn fill_at_once(&self) {
        let file = std::fs::File::create(self.filler()).unwrap();
        let (mut at, mut piece) = (0, 1 << 30);
        while piece >= 4096 {
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, at, piece) {
                Ok(()) => at += piece,
                Err(_) => piece /= 2,
            }
        }
    }

    fn filler(&self) -> PathBuf {
        self.inside.join("filler")
    }

    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Machines that have a directory.
    fn machines(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.inside.join("machines/container"));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    async fn assert_works(&self, id: &SandboxId) {
        let said = self.client().exec(id, shell("echo works")).await.unwrap();
        assert_eq!(said.stdout, "works\n");
    }

    async fn assert_nothing_half_done(&self, machines: usize) {
        eventually("only what is listed is there", async || {
            let listed = self
                .client()
                .list_sandboxes(Default::default())
                .await
                .unwrap();
            let running = listed.iter().all(|sandbox| sandbox.state == State::Running);
            let found = self.world.traces.found();
            let counts = (listed.len(), self.machines().len(), found.cgroups.len());
            (
                running && counts == (machines, machines, machines),
                (counts, listed),
            )
        })
        .await;
    }
}

impl Drop for Small {
    /// Removes everything before the `World` looks for leftovers.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.filler());
        let listed = self.motu(&["ps", "--json"]);
        let sandboxes: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        for sandbox in sandboxes["sandboxes"].as_array().into_iter().flatten() {
            let id = sandbox["sandbox_id"].as_str().unwrap_or_default();
            let _ = self.motu(&["rm", id]);
            let _ = self.motu(&["workspace", "delete", id]);
        }
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

#[tokio::test]
async fn too_little_space_is_a_limit_before_anything_is_made() {
    let Some(small_disk) = Small::new("") else {
        return;
    };
    assert!(
        !Path::new(&small_disk.world.home().join("motu.db")).exists(),
        "it is elsewhere"
    );
    let error = refused(
        ErrorKind::Limit,
        small_disk.client().create_sandbox(small()).await,
    );
    assert!(error.message.contains("min_free_disk_mib"), "{error:?}");
    assert!(
        error
            .hint
            .is_some_and(|hint| hint.contains("prune_environments"))
    );
    let told = small_disk.motu(&["run", "busybox", "--", "true"]);
    assert_eq!(told.code, 106, "{told:?}");
    assert!(told.stderr.contains("`motu env prune`"), "{told:?}");
    small_disk.assert_nothing_half_done(0).await;
}

#[tokio::test]
async fn a_full_disk_fails_a_create_and_leaves_nothing() {
    let Some(small_disk) = Small::new("min_free_disk_mib = 0") else {
        return;
    };
    let client = small_disk.client();
    let first = client.create_sandbox(small()).await.unwrap().sandbox_id;
    // Disks are prepared in the background after the first answer: fill until that has finished.
    for _ in 0..5 {
        small_disk.fill();
        let mut request = small();
        // A size for which no disk was prepared.
        request.size.disk_mib = Some(48);
        let error = refused(ErrorKind::Limit, client.create_sandbox(request).await);
        assert!(error.hint.is_some(), "{error:?}");
        small_disk.assert_nothing_half_done(1).await;
        let told = small_disk.motu(&["run", "busybox", "--disk-mib", "48", "--", "true"]);
        assert_eq!(told.code, 106, "{told:?}");
        assert!(told.stderr.contains("hint:"), "{told:?}");
        // Running sandboxes continue, and can be inspected.
        small_disk.assert_works(&first).await;
    }
    small_disk.free();
    let second = client.create_sandbox(small()).await.unwrap().sandbox_id;
    small_disk.assert_works(&second).await;
    small_disk.assert_works(&first).await;
    small_disk.assert_nothing_half_done(2).await;
}

#[tokio::test]
async fn a_destroy_on_a_full_disk_is_a_destroy() {
    let Some(small_disk) = Small::new("min_free_disk_mib = 0") else {
        return;
    };
    let client = small_disk.client();
    let id = client.create_sandbox(small()).await.unwrap().sandbox_id;
    let other = client.create_sandbox(small()).await.unwrap().sandbox_id;
    // Writing more than the host has free is an error for that program only.
    small_disk.fill();
    let content = vec![7; 8 << 20];
    let written = client
        .write_file(
            &id,
            WriteFile::new(at("/big"), WriteOptions::default()),
            stream(&content),
        )
        .await;
    println!("{written:?}");
    let destroyed = client.destroy_sandbox(&id).await.unwrap();
    assert_eq!(destroyed.state, State::Destroyed);
    refused(ErrorKind::NotFound, client.exec(&id, shell("true")).await);
    small_disk.assert_works(&other).await;
    small_disk.assert_nothing_half_done(1).await;
    small_disk.free();
    let found = client.get_sandbox(&id).await.unwrap();
    assert_eq!(found.state, State::Destroyed);
    small_disk.assert_works(&other).await;
}

#[tokio::test]
async fn a_full_workspace_is_a_limit_and_can_be_emptied() {
    let Some(world) = World::new() else { return };
    let request = CreateWorkspace {
        size: Size {
            disk_mib: Some(24),
            ..asked("full").size
        },
        ..asked("full")
    };
    let id = create(&world, request).await;
    let client = world.client();
    sh(&world, &id, "echo mine > kept").await;
    let filled = client
        .exec_workspace(&id, script("cat /dev/zero > filler"))
        .await;
    let filled = filled.unwrap();
    assert_ne!(filled.exit_code, 0, "{filled:?}");
    assert!(filled.stderr.contains("No space left"), "{filled:?}");
    let big = || WriteText {
        path: "big".to_string(),
        text: "x".repeat(1 << 20),
    };
    refused(
        ErrorKind::Limit,
        client.write_workspace_file(&id, big()).await,
    );
    // The failed file is not there in part, and existing files remain.
    let missing = client
        .read_workspace_file(&id, ReadText::new("big", None))
        .await;
    refused(ErrorKind::NotFound, missing);
    assert_eq!(sh(&world, &id, "cat kept").await.stdout, "mine\n");
    assert_eq!(
        client
            .list_workspaces(Default::default())
            .await
            .unwrap()
            .len(),
        1
    );
    // The workspace can be stopped and started while it is full.
    client.stop_workspace(&id).await.unwrap();
    client.start_workspace(&id).await.unwrap();
    sh(&world, &id, "rm filler").await;
    client.write_workspace_file(&id, big()).await.unwrap();
    client
        .create_snapshot(&id, SaveAs::named("emptied"))
        .await
        .unwrap();
    assert_eq!(
        sh(&world, &id, "cat kept; wc -c < big").await.stdout,
        "mine\n1048576\n"
    );
}
