//! Acknowledged writes are on the disk.
//!
//! A power cut is simulated by a copy of a running machine's image: what the machine's file
//! system has not written yet is not in the copy. The copy is then read as the next machine would
//! read it.

use motu_core::files::{ChangeMode, MakeDirectory, MoveFile, RemoveFile, WriteFile, WriteOptions};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, SandboxId, Service, Size, Workspaces};
use motu_disks::{Ext4Layer, Layer, open_disk};
use motu_testkit::world::{Blows, ENVIRONMENT, World, at, eventually, refused, stream};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const RUNTIMES: [(&str, &str); 2] = [
    ("container", "workspace/upper"),
    ("gvisor", "workspace-upper"),
];
/// Files per edit.
const FILES: usize = 40;
const MIB: u64 = 1 << 20;

pub fn asked(id: &str, runtime: &str, disk_mib: u64) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(id).unwrap()),
        runtime: Some(runtime.to_string()),
        size: Size::of(256, disk_mib),
        ..CreateWorkspace::default()
    }
}

/// Whether a runtime works here; otherwise the skip says why not.
pub fn works(world: &World, runtime: &str) -> bool {
    let doctor = world.motu(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&doctor.stdout).unwrap();
    let runtimes = report["runtimes"].as_array().unwrap();
    let found = runtimes.iter().find(|found| found["name"] == runtime);
    let works = found.is_some_and(|found| found["works"] == true);
    if !works {
        motu_needs::skip(&format!("faults: {runtime} does not work: {found:?}"));
    }
    works
}

fn image(world: &World, id: &WorkspaceId) -> PathBuf {
    let kept = world.home().join("kept").join(id.as_str());
    kept.join("disks-1/disk.img")
}

/// The allocated ranges of an image.
fn parts(image: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut from = std::fs::File::open(image).unwrap();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(&from, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&from, rustix::fs::SeekFrom::Hole(start)).unwrap();
        from.seek(SeekFrom::Start(start)).unwrap();
        let mut piece = vec![0; (end - start) as usize];
        from.read_exact(&mut piece).unwrap();
        parts.push((start, piece));
        at = end;
    }
    parts
}

/// Copies an image in a consistent state: two equal reads mean that nobody wrote in between.
pub fn cut(image: &Path, copy: &Path) {
    let mut last = parts(image);
    loop {
        let again = parts(image);
        if again == last {
            break;
        }
        last = again;
    }
    let to = std::fs::File::create(copy).unwrap();
    to.set_len(image.metadata().unwrap().len()).unwrap();
    for (at, piece) in last {
        to.write_all_at(&piece, at).unwrap();
    }
}

/// Reads `/workspace` in a copied image.
pub struct Cut(Ext4Layer);

impl Cut {
    pub fn open(copy: &Path, upper: &str) -> Cut {
        // The journal is replayed as a mount would do it. Read without that, files of long runs came
        // back some versions old; the reader seems to stop short in a journal that has wrapped.
        e2fsprogs("e2fsck", &["-fy"], copy);
        let disk = open_disk(&[copy]).unwrap();
        Cut(Ext4Layer::upper(disk, upper.as_bytes()).unwrap())
    }

    pub fn text(&mut self, path: &str) -> Option<String> {
        self.0.stat(path.as_bytes()).unwrap()?;
        let mut bytes = Vec::new();
        self.0.read(path.as_bytes(), MIB, &mut bytes).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    fn mode(&mut self, path: &str) -> Option<u32> {
        let found = self.0.stat(path.as_bytes()).unwrap();
        found.map(|found| found.mode)
    }
}

async fn write(world: &World, id: &WorkspaceId, path: &str, text: &str) {
    let request = WriteText {
        path: path.to_string(),
        text: text.to_string(),
    };
    let written = world.client().write_workspace_file(id, request).await;
    written.unwrap();
}

fn edits(number: usize, from: &str, to: &str) -> Vec<Edit> {
    let edit = |number| Edit {
        path: format!("many/{number}"),
        old: from.to_string(),
        new: to.to_string(),
        count: None,
    };
    (0..number).map(edit).collect()
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_power_cut() {
    let Some(world) = World::new() else { return };
    for (runtime, upper) in RUNTIMES {
        if !works(&world, runtime) {
            continue;
        }
        let client = world.client();
        let made = client.create_workspace(asked(runtime, runtime, 64)).await;
        let id = &made.unwrap().workspace_id;
        let (disk, copy) = (image(&world, id), world.path().join("cut.img"));
        let power_cut = || {
            cut(&disk, &copy);
            Cut::open(&copy, upper)
        };
        write(&world, id, "new", "one").await;
        assert_eq!(power_cut().text("new").as_deref(), Some("one"), "{runtime}");
        write(&world, id, "new", "two").await;
        assert_eq!(power_cut().text("new").as_deref(), Some("two"), "{runtime}");

        let source = world.path().join("source");
        std::fs::create_dir_all(source.join("many")).unwrap();
        for number in 0..FILES {
            std::fs::write(source.join(format!("many/{number}")), "before\n").unwrap();
        }
        let push = SyncPush {
            source_path: source.display().to_string(),
            dest: None,
            gitignore: false,
        };
        client.push_workspace_sync(id, push).await.unwrap();
        let mut found = power_cut();
        for number in 0..FILES {
            let text = found.text(&format!("many/{number}"));
            assert_eq!(text.as_deref(), Some("before\n"), "{runtime} {number}");
        }

        for few in [1, 3, FILES] {
            let (from, to) = (format!("after {few}\n"), "before\n");
            client
                .edit_workspace(
                    id,
                    EditFiles {
                        edits: edits(few, to, &from),
                    },
                )
                .await
                .unwrap();
            let mut found = power_cut();
            for number in 0..few {
                let text = found.text(&format!("many/{number}"));
                assert_eq!(text.as_ref(), Some(&from), "{runtime} {number}");
            }
            client
                .edit_workspace(
                    id,
                    EditFiles {
                        edits: edits(few, &from, to),
                    },
                )
                .await
                .unwrap();
        }

        let inside = |name: &str| at(format!("/workspace/{name}"));
        let options = WriteOptions::default();
        let written = client.write_file(
            id,
            WriteFile::new(inside("copied"), options),
            stream(b"copied"),
        );
        written.await.unwrap();
        assert_eq!(power_cut().text("copied").as_deref(), Some("copied"));
        client
            .chmod(
                id,
                ChangeMode {
                    path: inside("copied"),
                    mode: 0o751,
                    user: None,
                },
            )
            .await
            .unwrap();
        assert_eq!(power_cut().mode("copied"), Some(0o751));
        client
            .mkdir(
                id,
                MakeDirectory {
                    path: inside("a/b/c"),
                    mode: None,
                    user: None,
                },
            )
            .await
            .unwrap();
        assert_eq!(power_cut().mode("a/b/c"), Some(0o755));
        let moved = client.move_file(
            id,
            MoveFile {
                from: inside("copied"),
                to: inside("a/b/c/d"),
                overwrite: false,
                user: None,
            },
        );
        moved.await.unwrap();
        let mut found = power_cut();
        assert_eq!(found.text("a/b/c/d").as_deref(), Some("copied"));
        assert_eq!(found.text("copied"), None);
        client
            .remove_file(
                id,
                RemoveFile {
                    path: inside("a"),
                    recursive: true,
                    user: None,
                },
            )
            .await
            .unwrap();
        assert_eq!(power_cut().mode("a"), None);
        client.delete_workspace(id).await.unwrap();
    }
}

/// Every edit changes all files; whenever the machine is killed, all have the same version.
#[tokio::test]
async fn an_edit_whose_machine_is_killed_is_all_or_nothing() {
    let Some(world) = World::new() else { return };
    let client = world.client();
    let made = client.create_workspace(asked("killed", "container", 64));
    let id = made.await.unwrap().workspace_id;
    let text = |path: usize| {
        let (client, id) = (world.client(), id.clone());
        async move {
            let path = format!("many/{path}");
            let read = client
                .read_workspace_file(&id, ReadText::new(&path, None))
                .await;
            read.unwrap().content
        }
    };
    for number in 0..FILES {
        write(&world, &id, &format!("many/{number}"), "0").await;
    }
    let mut blows = Blows::new(0x6564_6974, 8);
    let mut version = "0".to_string();
    while let Some(round) = blows.another() {
        let next = (round + 1).to_string();
        let pid = world.traces.first_process(id.as_str());
        let moment = blows.moment(60);
        let edit = {
            let (client, id, edits) = (world.client(), id.clone(), edits(FILES, &version, &next));
            tokio::spawn(async move { client.edit_workspace(&id, EditFiles { edits }).await })
        };
        tokio::time::sleep(moment).await;
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        let answered = edit.await.unwrap();
        eventually("the end is seen", async || {
            let state = client.status_workspace(&id).await.unwrap().state;
            (state == State::Stopped, state)
        })
        .await;
        client.start_workspace(&id).await.unwrap();
        let found = text(0).await;
        for number in 1..FILES {
            assert_eq!(text(number).await, found, "round {round}, file {number}");
        }
        match answered {
            Ok(_) => assert_eq!(found, next, "an acknowledged edit is lost"),
            Err(_) => {
                blows.hit(1);
                assert!(found == version || found == next, "{found}");
            }
        }
        version = found;
        let listed = client
            .list_workspace_files(&id, ListPaths::new("/workspace", false))
            .await;
        let names: Vec<String> = listed
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect();
        assert_eq!(names, ["/workspace/many"], "round {round}");
    }
}

#[tokio::test]
async fn space_that_was_freed_goes_back_to_the_host_at_a_stop() {
    let Some(world) = World::new() else { return };
    let client = world.client();
    let made = client.create_workspace(asked("trimmed", "container", 512));
    let id = made.await.unwrap().workspace_id;
    let run = async |text: &str| {
        let request = WorkspaceExec::from(Program::shell(text));
        let done = client.exec_workspace(&id, request).await.unwrap();
        assert_eq!(done.exit_code, 0, "{done:?}");
    };
    let allocated = || image(&world, &id).metadata().unwrap().blocks() * 512;
    write(&world, &id, "small", "stays").await;
    run("dd if=/dev/urandom of=big bs=1M count=160 conv=fsync 2>/dev/null && rm big").await;
    assert!(allocated() > 150 * MIB, "{}", allocated());
    client.stop_workspace(&id).await.unwrap();
    assert!(allocated() < 100 * MIB, "{}", allocated());
    client.start_workspace(&id).await.unwrap();
    let read = client
        .read_workspace_file(&id, ReadText::new("small", None))
        .await;
    assert_eq!(read.unwrap().content, "stays");
}

/// Runs a program of e2fsprogs on the image of a stopped workspace.
fn e2fsprogs(program: &str, args: &[&str], image: &Path) {
    let mut command = motu_needs::command(program);
    let done = command.args(args).arg(image).output().unwrap();
    // Exit code 1 of e2fsck: it repaired something.
    assert!(matches!(done.status.code(), Some(0 | 1)), "{done:?}");
}

#[tokio::test]
async fn a_disk_that_has_met_errors_is_named_and_not_saved() {
    let Some(world) = World::new() else { return };
    let client = world.client();
    let made = client.create_workspace(asked("faulty", "container", 64));
    let id = made.await.unwrap().workspace_id;
    write(&world, &id, "file", "text").await;
    client
        .create_snapshot(&id, SaveAs::named("sound"))
        .await
        .unwrap();
    client.stop_workspace(&id).await.unwrap();
    // As ext4 itself records an error.
    let set = ["-w", "-R", "set_super_value error_count 3"];
    e2fsprogs("debugfs", &set, &image(&world, &id));
    client.start_workspace(&id).await.unwrap();
    let saved = client.create_snapshot(&id, SaveAs::named("broken")).await;
    let error = refused(ErrorKind::Unavailable, saved);
    assert!(error.message.contains("kept/faulty/disks-1"), "{error:?}");
    assert!(error.hint.is_some_and(|hint| hint.contains("e2fsck")));
    let listed = client
        .list_snapshots(&id, Default::default())
        .await
        .unwrap()
        .snapshots;
    let names: Vec<&str> = listed.iter().map(|one| &*one.snapshot_name).collect();
    assert_eq!(names, ["baseline", "sound"]);
    client.stop_workspace(&id).await.unwrap();
    e2fsprogs("e2fsck", &["-fy"], &image(&world, &id));
    client.start_workspace(&id).await.unwrap();
    client
        .create_snapshot(&id, SaveAs::named("repaired"))
        .await
        .unwrap();
}
