//! Checkpoints and `undo`: requests and output.

use crate::stubbed::World;
use motu_core::verb;
use motu_core::workspace::Undone;
use motu_testkit::answers::workspace;
use serde_json::json;

#[test]
fn an_undo_says_what_it_went_back_to() {
    let world = World::new("workspace");
    world.recorder.on(|call: verb::UndoWorkspace| {
        Ok(Undone {
            workspace_id: call.id,
            steps: call.ask.steps,
            commands: vec![vec!["make".to_string(), "it so".to_string()]],
            restored_count: 3,
            removed_count: 1,
            checkpoint_count: 4,
        })
    });
    let told = world.motu("undo ws-a").to_string();
    insta::assert_snapshot!(told, @r"
    ws-a is as it was before `make 'it so'`: 3 paths put back, 1 removed
    4 more commands can be taken back
    ");
    let asked = world.sends("undo ws-a 3");
    assert_eq!(asked, ("undo_workspace", json!(["ws-a", {"steps": 3}])));
}

#[test]
fn a_checkpoint_is_asked_for_or_declined() {
    let world = World::new("workspace");
    for (flag, asked) in [
        ("", json!(null)),
        ("--checkpoint ", json!(true)),
        ("--no-checkpoint ", json!(false)),
    ] {
        world.motu(&format!("exec ws-a {flag}-- make")).to_string();
        let (_, request) = world.called();
        assert_eq!(request[1]["checkpoint"], asked, "{flag}");
    }
    let it = &world.recorder;
    it.always::<verb::CreateWorkspace>(workspace());
    let (_, request) = world.sends("create debian:12 --id ws-a --checkpoint");
    assert_eq!(request[0]["checkpoint"], json!(true));
}
