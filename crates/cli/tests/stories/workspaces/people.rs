//! Output that only a terminal shows: fitted tables, and progress messages.

use super::*;
use motu_testkit::screen::{all, on_terminal, until};
use std::sync::Arc;
use tokio::sync::Notify;

#[test]
fn a_table_is_no_wider_than_its_terminal() {
    let world = World::new("workspace");
    let it = &world.recorder;
    it.on(|call: verb::ListWorkspaceFiles| Ok(answers::path_list(&call.ask)));
    let path = format!("/workspace/{}", "deep/".repeat(20));
    let mut list = world
        .story
        .command(&["workspace", "file", "list", "ws-a", &path]);
    list.env("NO_COLOR", "1");
    let (mut child, mut screen) = on_terminal(list, 50);
    let seen = all(&mut screen);
    assert!(child.wait().unwrap().success());
    let rows: Vec<&str> = seen.lines().map(str::trim_end).take(2).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 50), "{seen}");
    assert!(
        rows[1].contains("/workspace/deep") && rows[1].ends_with('…'),
        "{seen}"
    );
    // A program gets the full text.
    let whole = world.motu(&format!("file list ws-a {path}")).to_string();
    assert!(whole.contains(&format!("{path}/link")), "{whole}");
}

#[test]
fn a_person_who_waits_is_told_so_and_a_program_is_not() {
    let world = World::new("workspace");
    let go_on = Arc::new(Notify::new());
    let told = go_on.clone();
    world.recorder.on_with(move |_: verb::StopWorkspace, ()| {
        let told = told.clone();
        async move {
            told.notified().await;
            Ok(workspace())
        }
    });
    let stop = world.story.command(&["workspace", "stop", "ws-slow"]);
    let (mut child, mut screen) = on_terminal(stop, 80);
    until(&mut screen, "stopping");
    go_on.notify_one();
    let rest = all(&mut screen);
    assert!(child.wait().unwrap().success());
    assert!(
        rest.contains("ws-a is running") || rest.contains("ws-slow is running"),
        "{rest:?}"
    );

    let stop = world
        .story
        .command(&["workspace", "--json", "stop", "ws-slow"]);
    let (mut child, mut screen) = on_terminal(stop, 80);
    // Longer than the delay before a progress message.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    go_on.notify_one();
    let seen = all(&mut screen);
    assert!(child.wait().unwrap().success());
    assert!(!seen.contains("stopping"), "{seen:?}");
}
