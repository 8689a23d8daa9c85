//! Images with their own command.

use crate::stubbed::World;
use motu_core::report::{Environment, EnvironmentLayer};
use motu_core::verb;
use motu_testkit::answers;

#[test]
fn an_image_has_a_command_of_its_own() {
    let world = World::new("workspace");
    world.recorder.on(|call: verb::InspectEnvironment| {
        let own = |word: &str| match call.name.as_str() {
            "silent" => Vec::new(),
            _ => vec![word.to_string()],
        };
        Ok(Environment {
            manifest_digest: Some("sha256:11".to_string()),
            layers: vec![EnvironmentLayer {
                digest: "sha256:22".to_string(),
                size_bytes: 2048,
            }],
            entrypoint: own("echo"),
            cmd: own("from the image"),
            ..answers::environment(&call.name)
        })
    });
    insta::assert_snapshot!(world.story.motu(&["run", "image"]).to_string(), @r#"
    from the image
    ------- stderr -------
    motu: not isolated: stub runs on the host itself, with its files and its network
    "#);
    insta::assert_snapshot!(world.story.motu(&["run", "image", "--", "echo", "mine"]).to_string(), @r#"
    mine
    ------- stderr -------
    motu: not isolated: stub runs on the host itself, with its files and its network
    "#);
    insta::assert_snapshot!(world.story.motu(&["run", "silent"]).to_string(), @r#"
    ------- stderr -------
    error: no command is given, and silent has none of its own
    hint: put it after `--`
    [exit code: 102]
    "#);
    insta::assert_snapshot!(world.story.motu(&["env", "inspect", "image"]).to_string(), @r#"
    name          image
    description   
    installed     yes
    architecture  amd64
    user          root
    workdir       /
    source        stub
    manifest      sha256:11
    entrypoint    ["echo"]
    command       ["from the image"]
    layers        sha256:22 2.0 KiB
    "#);
}
