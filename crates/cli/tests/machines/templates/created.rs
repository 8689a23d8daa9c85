//! A sandbox has the user and the variables it was created with, whatever becomes of what it was
//! made from.

use crate::templates::{says, template, value, world};
use motu_testkit::story::Story;

/// Builds an environment whose commands have these defaults.
fn build(story: &Story, user: &str, word: &str) {
    let dir = story.path().join("built");
    std::fs::create_dir_all(&dir).unwrap();
    let text = format!("FROM busybox\nENV WORD={word} FROM_ENVIRONMENT={word}\nUSER {user}\n");
    std::fs::write(dir.join("Dockerfile"), text).unwrap();
    let dir = dir.to_str().unwrap();
    let built = story.motu(&["env", "build", dir, "--tag", "own:1"]);
    assert_eq!(built.code, 0, "{built}");
}

const ASK: &str = "echo $(id -un) $WORD $FROM_ENVIRONMENT";

fn asked(story: &Story, id: &str) -> String {
    let told = story.motu(&["exec", id, "--", "sh", "-c", ASK]);
    assert_eq!(told.code, 0, "{told}");
    told.stdout.trim().to_string()
}

#[test]
fn a_sandbox_keeps_its_user_and_variables_when_what_it_came_from_changes() {
    let Some(story) = world() else { return };
    build(&story, "nobody", "first");
    template(&story, &["t", "--from", "own:1", "--env", "WORD=template"]);
    let made = |args: &[&str]| {
        let made = value(&story.motu(&[&["create", "--json", "--keep"], args].concat()));
        made["sandbox_id"].as_str().unwrap().to_string()
    };
    let (plain, from_template) = (made(&["own:1"]), made(&["--template", "t"]));
    let ids = [
        (plain, "nobody first first"),
        (from_template, "nobody template first"),
    ];
    for (id, before) in &ids {
        assert_eq!(asked(&story, id), *before);
        assert_eq!(story.motu(&["pause", id]).code, 0);
    }
    // Both mean something else by the time that they go on.
    build(&story, "root", "second");
    template(&story, &["t", "--from", "own:1", "--env", "WORD=changed"]);
    for (id, before) in &ids {
        assert_eq!(story.motu(&["resume", id]).code, 0);
        assert_eq!(asked(&story, id), *before, "after it was paused");
        assert_eq!(story.motu(&["stop", id]).code, 0);
        assert_eq!(story.motu(&["start", id]).code, 0);
        assert_eq!(asked(&story, id), *before, "after it was stopped");
    }
    // What is made now has what there is now.
    let run = |from: &[&str]| story.motu(&[&["run"], from, &["--", "sh", "-c", ASK]].concat());
    says(&run(&["own:1"]), "root second second");
    says(&run(&["--template", "t"]), "root changed second");
}
