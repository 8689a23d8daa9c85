//! The contents of `/workspace`.

use super::support::*;
use crate::life::{Life, refused};
use motu_core::ErrorKind;
use motu_core::workspace::*;

pub async fn files_are_listed_read_and_written(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "src/deep/a.txt", "first\n").await;
    write(&life, &workspace, "/workspace/src/b.txt", "second\n").await;
    assert_eq!(
        read(&life, &workspace, "src/deep/a.txt")
            .await
            .expect("read"),
        "first\n"
    );
    let list = engine
        .list_workspace_files(id, ListPaths::new("src", true))
        .await
        .expect("a list");
    let paths: Vec<_> = list
        .entries
        .iter()
        .map(|entry| {
            entry
                .path
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect();
    assert_eq!(list.entries.len(), 3, "{paths:?}");
    let shallow = engine
        .list_workspace_files(id, ListPaths::new("/workspace", false))
        .await;
    assert_eq!(shallow.expect("a list").entries.len(), 1);
    let cut = engine
        .read_workspace_file(id, ReadText::new("src/b.txt", Some(3)))
        .await
        .expect("read");
    assert_eq!((cut.content.as_str(), cut.truncated), ("sec", true));
    for bad in ["/etc/passwd", "../x", "a/../../b", ""] {
        refused(
            ErrorKind::Invalid,
            engine
                .read_workspace_file(id, ReadText::new(bad, None))
                .await,
        );
        let write = WriteText {
            path: bad.to_string(),
            text: String::new(),
        };
        refused(
            ErrorKind::Invalid,
            engine.write_workspace_file(id, write).await,
        );
    }
    refused(
        ErrorKind::NotFound,
        engine
            .read_workspace_file(id, ReadText::new("none", None))
            .await,
    );
}

pub async fn a_patch_is_all_or_nothing(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "a.txt", "one\ntwo\nthree\n").await;
    write(&life, &workspace, "old.txt", "goes\n").await;
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                 --- /dev/null\n+++ b/new/file.txt\n@@ -0,0 +1 @@\n+hello\n\
                 --- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-goes\n";
    let report = engine
        .apply_workspace_patch(id, Patch::new(patch))
        .await
        .expect("applied");
    assert_eq!((report.added, report.modified, report.deleted), (1, 1, 1));
    assert_eq!(
        read(&life, &workspace, "a.txt").await.expect("read"),
        "one\n2\nthree\n"
    );
    assert_eq!(
        read(&life, &workspace, "new/file.txt").await.expect("read"),
        "hello\n"
    );
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "old.txt").await,
    );
    // The second file does not match, so the first is not changed either.
    let bad = "--- a/new/file.txt\n+++ b/new/file.txt\n@@ -1 +1 @@\n-hello\n+bye\n\
               --- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n";
    let error = refused(
        ErrorKind::Conflict,
        engine.apply_workspace_patch(id, Patch::new(bad)).await,
    );
    assert!(error.message.contains("a.txt"), "{error}");
    assert_eq!(
        read(&life, &workspace, "new/file.txt").await.expect("read"),
        "hello\n"
    );
    let edit = |old: &str| Edit {
        path: "a.txt".to_string(),
        old: old.to_string(),
        new: "drei".to_string(),
        count: None,
    };
    engine
        .edit_workspace(
            id,
            EditFiles {
                edits: vec![edit("three")],
            },
        )
        .await
        .expect("edited");
    assert_eq!(
        read(&life, &workspace, "a.txt").await.expect("read"),
        "one\n2\ndrei\n"
    );
    refused(
        ErrorKind::Conflict,
        engine
            .edit_workspace(
                id,
                EditFiles {
                    edits: vec![edit("three")],
                },
            )
            .await,
    );
}

pub async fn a_diff_names_every_kind_of_change(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let clean = engine
        .diff_workspace(id, DiffOptions::default())
        .await
        .expect("a diff");
    assert!(!clean.changed, "{clean:?}");
    write(&life, &workspace, "text.txt", "new text\n").await;
    run(
        &life,
        &workspace,
        "printf 'a\\000b' > binary; mkdir -p sub; ln -s text.txt link",
    )
    .await;
    let diff = engine
        .diff_workspace(id, DiffOptions::default())
        .await
        .expect("a diff");
    assert_eq!(diff.added, 4, "{diff:?}");
    assert!(diff.patch.contains("+new text"), "{}", diff.patch);
    let binary = diff.entries.iter().find(|entry| entry.path == "binary");
    assert!(binary.is_some_and(|entry| entry.binary), "{diff:?}");
    let none = DiffOptions { max_bytes: Some(0) };
    let cut = engine.diff_workspace(id, none).await.expect("a diff");
    assert!(cut.truncated && cut.patch.is_empty());
    assert_eq!(cut.added, 4);
}

pub async fn a_seed_is_the_baseline_and_comes_back_out(life: Life) {
    let host = tempfile::tempdir().expect("a directory");
    let source = host.path().join("project");
    std::fs::create_dir_all(source.join("src")).expect("made");
    std::fs::write(source.join("src/main.txt"), "seeded\n").expect("written");
    std::fs::write(source.join("big"), vec![0u8; 3 << 20]).expect("written");
    std::os::unix::fs::symlink("src/main.txt", source.join("link")).expect("linked");
    let asked = CreateWorkspace {
        seed_path: Some(source.display().to_string()),
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, asked).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let seed = &workspace.workspace_seed;
    assert_eq!(
        (seed.mode.as_str(), seed.entry_count),
        ("directory", 4),
        "{seed:?}"
    );
    let clean = engine.diff_workspace(id, DiffOptions::default()).await;
    assert!(!clean.expect("a diff").changed);
    run(
        &life,
        &workspace,
        "test -w src && echo more >> src/main.txt && rm big",
    )
    .await;
    let diff = engine.diff_workspace(id, DiffOptions::default()).await;
    let diff = diff.expect("a diff");
    assert_eq!(
        (diff.modified, diff.deleted, diff.added),
        (1, 1, 0),
        "{diff:?}"
    );
    assert!(diff.patch.contains("+more"), "{}", diff.patch);
    // The source was copied, not mounted.
    assert_eq!(
        std::fs::read_to_string(source.join("src/main.txt")).expect("read"),
        "seeded\n"
    );
    let out = host.path().join("out");
    let text = out.display().to_string();
    let exported = engine
        .export_workspace(
            id,
            ExportFiles::new("/workspace", &text, ExportOptions::default()),
        )
        .await
        .expect("exported");
    assert_eq!(exported.entry_count, 3, "{exported:?}");
    let read = std::fs::read_to_string(out.join("src/main.txt")).expect("read");
    assert_eq!(read, "seeded\nmore\n");
    assert!(out.join("link").is_symlink());
    refused(
        ErrorKind::Conflict,
        engine
            .export_workspace(id, ExportFiles::new("src", &text, ExportOptions::default()))
            .await,
    );
    let file = host.path().join("one.txt").display().to_string();
    engine
        .export_workspace(
            id,
            ExportFiles::new("src/main.txt", &file, ExportOptions::default()),
        )
        .await
        .expect("exported");
    refused(
        ErrorKind::Conflict,
        engine
            .export_workspace(
                id,
                ExportFiles::new("src/main.txt", &file, ExportOptions::default()),
            )
            .await,
    );
    let socket = host.path().join("socket").display().to_string();
    let _listening = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let forced = ExportOptions {
        force: true,
        max_bytes: None,
    };
    engine
        .export_workspace(id, ExportFiles::new("src/main.txt", &file, forced))
        .await
        .expect("replaced");
    refused(
        ErrorKind::Conflict,
        engine
            .export_workspace(id, ExportFiles::new("src/main.txt", &socket, forced))
            .await,
    );
    assert_eq!(
        std::fs::read_to_string(&file).expect("read"),
        "seeded\nmore\n"
    );
    refused(
        ErrorKind::Invalid,
        engine
            .export_workspace(id, ExportFiles::new("link", &file, forced))
            .await,
    );
    refused(
        ErrorKind::Invalid,
        engine
            .export_workspace(id, ExportFiles::new("src", "relative", forced))
            .await,
    );
    engine
        .reset_workspace(id, ResetTo::snapshot("baseline"))
        .await
        .expect("reset");
    assert_eq!(
        read_text(&life, &workspace, "src/main.txt").await,
        "seeded\n"
    );
    let missing = CreateWorkspace {
        seed_path: Some("/nowhere/at/all".to_string()),
        ..request(&life)
    };
    refused(ErrorKind::NotFound, engine.create_workspace(missing).await);
    assert_eq!(
        engine
            .list_workspaces(Default::default())
            .await
            .expect("a list")
            .len(),
        1
    );
}

pub async fn a_push_sends_only_what_changed(life: Life) {
    let host = tempfile::tempdir().expect("a directory");
    let source = host.path().join("project");
    std::fs::create_dir_all(source.join("src")).expect("made");
    for name in ["src/a", "src/b", "top", "skip.log"] {
        std::fs::write(source.join(name), name).expect("written");
    }
    std::fs::write(source.join(".gitignore"), "*.log\n").expect("written");
    let asked = CreateWorkspace {
        seed_path: Some(source.display().to_string()),
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, asked).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let push = |dest: Option<&str>, gitignore| SyncPush {
        source_path: source.display().to_string(),
        dest: dest.map(str::to_string),
        gitignore,
    };
    let same = engine.push_workspace_sync(id, push(None, false)).await;
    let same = same.expect("pushed");
    assert_eq!((same.sent_count, same.entry_count), (0, 6), "{same:?}");
    std::fs::write(source.join("src/a"), "changed on the host").expect("written");
    std::fs::create_dir(source.join("new")).expect("made");
    std::fs::write(source.join("new/c"), "c").expect("written");
    run(&life, &workspace, "echo mine > top; echo own > other").await;
    let changed = engine.push_workspace_sync(id, push(None, false)).await;
    let changed = changed.expect("pushed");
    assert_eq!(changed.unchanged_count, 4, "{changed:?}");
    assert_eq!(
        read_text(&life, &workspace, "src/a").await,
        "changed on the host"
    );
    assert_eq!(read_text(&life, &workspace, "top").await, "top");
    assert_eq!(read_text(&life, &workspace, "other").await, "own\n");
    let beside = engine
        .push_workspace_sync(id, push(Some("deep/copy"), true))
        .await;
    let beside = beside.expect("pushed");
    assert_eq!(beside.destination, "/workspace/deep/copy");
    assert_eq!(read_text(&life, &workspace, "deep/copy/new/c").await, "c");
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "deep/copy/skip.log").await,
    );
    for outside in ["/etc", "../x"] {
        let pushed = engine
            .push_workspace_sync(id, push(Some(outside), false))
            .await;
        refused(ErrorKind::Invalid, pushed);
    }
    let hostile = host.path().join("hostile.tar");
    let archive = archive_with(&[("fine", "ok"), ("../../escaped", "no")]);
    std::fs::write(&hostile, archive).expect("written");
    let bad = SyncPush {
        source_path: hostile.display().to_string(),
        ..SyncPush::default()
    };
    engine
        .push_workspace_sync(id, bad)
        .await
        .expect_err("it is refused");
    refused(ErrorKind::NotFound, read(&life, &workspace, "fine").await);
    let good = host.path().join("good.tar");
    std::fs::write(&good, archive_with(&[("dir/fine", "ok")])).expect("written");
    let good = SyncPush {
        source_path: good.display().to_string(),
        ..SyncPush::default()
    };
    let sent = engine.push_workspace_sync(id, good).await.expect("pushed");
    assert_eq!(sent.mode, "tar_archive");
    assert_eq!(read_text(&life, &workspace, "dir/fine").await, "ok");
}

/// A tar archive with unchecked names.
fn archive_with(files: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, text) in files {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..116].copy_from_slice(b"0000000\0");
        header[116..124].copy_from_slice(b"0000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", text.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(text.as_bytes());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

pub async fn a_stopped_disk_is_read_without_a_machine(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "src/file.txt", "on the disk\n").await;
    if workspace.digest.is_empty() && workspace.host_compat {
        engine.stop_workspace(id).await.expect("stopped");
        let listed = engine
            .list_workspace_disk(id, ListPaths::new("/workspace", true))
            .await;
        refused(ErrorKind::Unsupported, listed);
        return;
    }
    refused(
        ErrorKind::Conflict,
        engine
            .list_workspace_disk(id, ListPaths::new("/workspace", true))
            .await,
    );
    let marked = ["/etc/mark", "/root/mark"];
    run(
        &life,
        &workspace,
        "echo root > /etc/mark; mkdir -p /root; echo r > /root/mark; rm -f /bin/wget",
    )
    .await;
    engine.stop_workspace(id).await.expect("stopped");
    let list = engine
        .list_workspace_disk(id, ListPaths::new("/workspace", true))
        .await;
    let paths: Vec<_> = list
        .expect("a list")
        .entries
        .into_iter()
        .map(|one| one.path)
        .collect();
    assert_eq!(paths, ["/workspace/src", "/workspace/src/file.txt"]);
    let read = |path: &'static str| async move {
        engine
            .read_workspace_disk(id, ReadText::new(path, None))
            .await
    };
    assert_eq!(
        read("src/file.txt").await.expect("read").content,
        "on the disk\n"
    );
    assert_eq!(read("/etc/mark").await.expect("read").content, "root\n");
    for path in marked {
        read(path).await.expect("read");
    }
    refused(ErrorKind::NotFound, read("/bin/wget").await);
    let passwd = read("/etc/passwd").await.expect("what the environment has");
    assert!(passwd.content.contains("root"));
    refused(ErrorKind::Invalid, read("/workspace/src").await);
    let host = tempfile::tempdir().expect("a directory");
    let output = host.path().join("disk.ext4").display().to_string();
    let exported = engine
        .export_workspace_disk(id, ExportDisk::new(&output, ExportOptions::default()))
        .await
        .expect("exported");
    assert_eq!(exported.disk_format, "ext4");
    let shown = motu_needs::command("debugfs")
        .args(["-R", "cat /workspace/src/file.txt", &output])
        .output()
        .expect("debugfs runs");
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "on the disk\n");
    refused(
        ErrorKind::Conflict,
        engine
            .export_workspace_disk(id, ExportDisk::new(&output, ExportOptions::default()))
            .await,
    );
    engine.start_workspace(id).await.expect("started");
    assert_eq!(
        read_text(&life, &workspace, "src/file.txt").await,
        "on the disk\n"
    );
}
