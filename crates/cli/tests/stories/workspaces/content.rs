//! Files, patches and what changed.

use super::*;
use motu_core::workspace::FileWritten;

fn tell_of_content(world: &World) {
    let it = &world.recorder;
    it.on(|call: verb::PushWorkspaceSync| {
        Ok(made(json!({
            "workspace_id": call.id, "mode": "directory", "source_path": call.ask.source_path,
            "destination": call.ask.dest, "entry_count": 3, "sent_count": 2,
            "unchanged_count": 1, "bytes_written": 9,
        })))
    });
    it.on(|call: verb::ListWorkspaceFiles| Ok(answers::path_list(&call.ask)));
    it.on(|call: verb::ReadWorkspaceFile| Ok(answers::file_text(&call.ask)));
    it.on(|call: verb::WriteWorkspaceFile| {
        let bytes = call.ask.text.len() as u64;
        Ok(FileWritten {
            workspace_id: call.id,
            path: call.ask.path,
            size_bytes: bytes,
            bytes_written: bytes,
        })
    });
    it.on(|call: verb::ExportWorkspace| {
        Ok(made(json!({
            "workspace_id": call.id, "workspace_path": call.ask.path,
            "output_path": call.ask.output_path, "type": "directory", "entry_count": 1,
            "bytes_written": 2,
        })))
    });
    it.always::<verb::ApplyWorkspacePatch>(answers::patch_report());
    it.always::<verb::EditWorkspace>(answers::patch_report());
    it.always::<verb::DiffWorkspace>(answers::diff_report(BASELINE, "now"));
}

#[test]
fn content_goes_in_and_out() {
    let world = World::new("workspace");
    tell_of_content(&world);
    let home = world.story.path().display().to_string();
    told!(world.motu("sync push ws-a src --dest /workspace/x --gitignore"), @"ws-a: 2 of 3 entries sent to /workspace/x, 1 unchanged, 9 B written");
    told!(world.motu("file list ws-a"), @r#"
    MODE   SIZE  MODIFIED   PATH
    l0777  3 B   N days ago  /workspace/link -> ä�
    ------- stderr -------
    there are more entries than one answer holds (list_entries_max)
    "#);
    assert_eq!(
        world.sends("file list ws-a /workspace/x --recursive"),
        (
            "list_workspace_files",
            json!(["ws-a", {"path": "/workspace/x", "recursive": true}])
        )
    );
    assert_eq!(
        world.sends("file read ws-a f --max-bytes 5"),
        (
            "read_workspace_file",
            json!(["ws-a", {"path": "f", "max_bytes": 5}])
        )
    );
    let read = world.motu("file read ws-a f");
    assert_eq!(read.stdout, "line\n\u{1f30a}\u{0}", "byte for byte");
    told!(world.motu("file write ws-a /workspace/f --text text"), @"/workspace/f: 4 B written");
    told!(world.fed("file write ws-a f --text-file -", "piped"), @"f: 5 B written");
    std::fs::write(world.story.path().join("f"), "filed").unwrap();
    told!(world.motu("file write ws-a f --text-file f"), @"f: 5 B written");
    assert_eq!(
        world.sends("export ws-a /workspace --output out"),
        (
            "export_workspace",
            json!(["ws-a", {"path": "/workspace", "output_path": format!("{home}/out")}])
        )
    );
    told!(world.motu("patch apply ws-a --patch x"), @"renamed   /workspace/a -> /workspace/b");
    told!(world.fed("patch apply ws-a --patch-file -", "12345"), @"renamed   /workspace/a -> /workspace/b");
    assert_eq!(
        world.called(),
        ("apply_workspace_patch", json!(["ws-a", {"patch": "12345"}]))
    );
    let edit = json!({"path": "f", "old": "a", "new": "", "count": 2});
    assert_eq!(
        world.sends("edit ws-a f --old a --new= --count 2"),
        ("edit_workspace", json!(["ws-a", {"edits": [edit]}]))
    );
    let dashed = json!({"path": "f", "old": "-a", "new": "--b"});
    assert_eq!(
        world.sends("edit ws-a f --old -a --new --b"),
        ("edit_workspace", json!(["ws-a", {"edits": [dashed]}]))
    );
    told!(world.motu("file write ws-a f --text -text"), @"f: 5 B written");
    told!(world.motu("patch apply ws-a --patch-file ."), @r#"
    ------- stderr -------
    error: read .: it is a directory
    hint: name a file
    [exit code: 102]
    "#);
    let edits = json!([edit]).to_string();
    let told = world.fed("edit ws-a --edits-file -", &edits);
    assert_eq!(told.code, 0, "{told}");
    assert_eq!(
        world.called(),
        ("edit_workspace", json!(["ws-a", {"edits": [edit]}]))
    );
    told!(world.motu("diff ws-a"), @r#"
    --- a
    +++ b
    ------- stderr -------
    /workspace/a: mode_changed (0644 -> 0755), binary
    1 with another mode
    "#);
}
