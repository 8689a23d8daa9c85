//! Copies out of a machine: their disk usage on the host, what they may replace, and where they are
//! written.

use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, Size, Workspaces};
use motu_testkit::story::Told;
use motu_testkit::world::{ENVIRONMENT, World, refused};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A sparse file of 128 MiB, with one byte in the middle.
const HOLE: u64 = 128 << 20;
const MAKE_HOLES: &str = "cd /workspace && mkdir -p tree/deep \
    && for f in hole tree/deep/hole; do truncate -s 128M $f \
    && printf x | dd of=$f bs=1 seek=67108864 conv=notrunc; done";

async fn workspace(world: &World, script: &str) -> WorkspaceId {
    let request = CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        runtime: Some("container".to_string()),
        size: Size::of(256, 64),
        ..CreateWorkspace::default()
    };
    let client = world.client();
    let id = client.create_workspace(request).await.unwrap().workspace_id;
    let exec = WorkspaceExec::from(Program::shell(script));
    let made = client.exec_workspace(&id, exec).await.unwrap();
    assert_eq!(made.exit_code, 0, "{made:?}");
    id
}

fn told(world: &World, line: &str) -> Told {
    world.motu(&line.split_whitespace().collect::<Vec<_>>())
}

fn done(world: &World, line: &str) {
    let told = told(world, line);
    assert_eq!(told.code, 0, "{line}: {told:?}");
}

/// Exit code 105 is a conflict, 106 a limit.
fn fails(world: &World, line: &str, code: i32) {
    let told = told(world, line);
    assert_eq!(told.code, code, "{line}: {told:?}");
}

fn assert_sparse(path: &Path) {
    let found = std::fs::metadata(path).unwrap();
    assert_eq!(found.len(), HOLE, "{}", path.display());
    let cost = found.blocks() * 512;
    assert!(cost < 1 << 20, "{} takes {cost} bytes", path.display());
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn holes_stay_holes_and_a_copy_is_bounded() {
    let Some(world) = World::new() else { return };
    let id = workspace(&world, MAKE_HOLES).await;
    let out = world.path().join("out");
    std::fs::create_dir(&out).unwrap();
    done(
        &world,
        &format!("workspace export {id} hole --output out/file"),
    );
    assert_sparse(&out.join("file"));
    assert_eq!(std::fs::read(out.join("file")).unwrap()[64 << 20], b'x');
    done(
        &world,
        &format!("workspace export {id} tree --output out/tree"),
    );
    assert_sparse(&out.join("tree/deep/hole"));
    done(&world, &format!("cp {id}:/workspace/hole out/copy"));
    assert_sparse(&out.join("copy"));
    done(&world, &format!("cp {id}:/workspace/tree out/copied"));
    assert_sparse(&out.join("copied/deep/hole"));
    let before = names(&out);
    for line in [
        format!("workspace export {id} hole --output out/no --max-bytes 1000000"),
        format!("workspace export {id} tree --output out/no --max-bytes 1000000"),
        format!("cp {id}:/workspace/hole out/no --max-bytes 1000000"),
        format!("cp {id}:/workspace/tree out/no --max-bytes 1000000"),
    ] {
        let told = told(&world, &line);
        assert!(told.stderr.contains("export_bytes"), "{line}: {told:?}");
    }
    assert_eq!(names(&out), before, "nothing is left of what was refused");
    done(&world, &format!("workspace stop {id}"));
    done(
        &world,
        &format!("workspace disk export {id} --output out/disk"),
    );
    let disk = std::fs::metadata(out.join("disk")).unwrap();
    assert!(disk.len() > 2 * HOLE, "{}", disk.len());
    assert!(disk.blocks() * 512 < HOLE, "{} blocks", disk.blocks());
}

#[tokio::test]
async fn a_copy_replaces_plain_files_when_asked_and_nothing_else() {
    let Some(world) = World::new() else { return };
    let id = workspace(
        &world,
        "cd /workspace && echo new > file && mkdir tree && echo new > tree/f",
    )
    .await;
    let out = world.path().join("out");
    std::fs::create_dir_all(out.join("dir/mine")).unwrap();
    std::fs::create_dir_all(out.join("x.staging")).unwrap();
    for file in ["file", "precious", "x.staging/precious"] {
        std::fs::write(out.join(file), "old").unwrap();
    }
    std::os::unix::fs::symlink(out.join("precious"), out.join("link")).unwrap();
    let _listening = std::os::unix::net::UnixListener::bind(out.join("socket")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, out.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    // A device node of this test, if it may create one.
    let null = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let device = rustix::fs::mknodat(rustix::fs::CWD, out.join("device"), kind, mode, null);
    let before = names(&out);
    let mut odd = vec!["link", "socket", "pipe"];
    odd.extend(device.is_ok().then_some("device"));
    for name in &odd {
        for source in ["file", "tree"] {
            fails(
                &world,
                &format!("workspace export {id} {source} --output out/{name} --force"),
                105,
            );
            fails(
                &world,
                &format!("cp {id}:/workspace/{source} out/{name} --force"),
                105,
            );
        }
    }
    fails(
        &world,
        &format!("workspace export {id} file --output out/file"),
        105,
    );
    fails(
        &world,
        &format!("workspace export {id} file --output out/dir --force"),
        105,
    );
    fails(
        &world,
        &format!("workspace export {id} tree --output out/dir --force"),
        105,
    );
    fails(
        &world,
        &format!("workspace export {id} tree --output out/file --force"),
        105,
    );
    fails(&world, &format!("cp {id}:/workspace/file out/file"), 105);
    assert_eq!(names(&out), before);
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"old");
    done(
        &world,
        &format!("workspace export {id} file --output out/file --force"),
    );
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"new\n");
    std::fs::write(out.join("file"), "old").unwrap();
    done(&world, &format!("cp {id}:/workspace/file out/file --force"));
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"new\n");
    done(
        &world,
        &format!("workspace export {id} tree --output out/x"),
    );
    done(
        &world,
        &format!("workspace export {id} tree --output out/dir/mine"),
    );
    assert_eq!(std::fs::read(out.join("dir/mine/f")).unwrap(), b"new\n");
    for kept in ["precious", "x.staging/precious"] {
        assert_eq!(std::fs::read(out.join(kept)).unwrap(), b"old", "{kept}");
    }
    done(&world, &format!("workspace stop {id}"));
    for name in odd {
        fails(
            &world,
            &format!("workspace disk export {id} --output out/{name} --force"),
            105,
        );
    }
    fails(
        &world,
        &format!("workspace disk export {id} --output out/file"),
        105,
    );
    done(
        &world,
        &format!("workspace disk export {id} --output out/file --force"),
    );
    assert!(std::fs::metadata(out.join("file")).unwrap().len() > 1 << 20);
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_workspace() {
    let Some(world) = World::new() else { return };
    let script = "cd /workspace && mkdir d && echo fine > d/f && ln -s d/f good && ln -s /workspace/d/f far \
        && ln -s /etc out && ln -s /etc/passwd secret && ln -s ../etc/passwd up";
    let id = workspace(&world, script).await;
    let client = world.client();
    for inside in ["good", "far", "d/f"] {
        let read = client
            .read_workspace_file(&id, ReadText::new(inside, None))
            .await
            .unwrap();
        assert_eq!(read.content, "fine\n", "{inside}");
    }
    for outside in ["secret", "up", "out/passwd"] {
        let read = client
            .read_workspace_file(&id, ReadText::new(outside, None))
            .await;
        refused(ErrorKind::Denied, read);
    }
    refused(
        ErrorKind::Denied,
        client
            .list_workspace_files(&id, ListPaths::new("out/apt", false))
            .await,
    );
    let target = world.path().join("got").display().to_string();
    let options = ExportOptions::default();
    let export = client.export_workspace(&id, ExportFiles::new("out/passwd", &target, options));
    refused(ErrorKind::Denied, export.await);
    let export = client.export_workspace(&id, ExportFiles::new("secret", &target, options));
    refused(ErrorKind::Invalid, export.await);
    assert!(!Path::new(&target).exists());
}
