//! The network of build steps, and who may build.

use motu_testkit::builds::{built, counts, own_environments, project};
use motu_testkit::network::World;
use motu_testkit::network::user::User;
use motu_testkit::story::Told;

/// A command that fetches a page, or fails.
fn fetch(host: &str) -> String {
    format!(
        "python3 -c 'import urllib.request as u; \
         print(u.urlopen(\"http://{host}/\", timeout=60).read().decode().strip())'"
    )
}

fn build(world: &World, text: &str, more: &[&str]) -> Told {
    let dir = project(&world.story, "reach", &[("Dockerfile", text)]);
    let args = ["env", "build", "--json", "-t", "reach:1"];
    world.motu(&[&args[..], more, &[dir.to_str().unwrap()]].concat())
}

#[test]
fn a_build_reaches_what_its_policy_names_and_nothing_else() {
    let Some(world) = World::new("container") else {
        return;
    };
    own_environments(&world.story);
    let (good, other) = (fetch("good.example"), fetch("other.example"));
    let text = format!(
        "FROM debian:12\nRUN {good} > /page\nRUN --network=none ! {good}\nRUN ! {other} && ! {inside}\n",
        inside = fetch("inside.example")
    );
    let told = build(&world, &text, &["--policy", "test"]);
    assert_eq!(counts(&built(&told)), (3, 0));
    let page = world.motu(&["run", "reach:1", "--", "cat", "/page"]);
    assert_eq!(page.stdout.trim(), "page of good.example", "{page}");
    // Other hosts are denied.
    let told = build(
        &world,
        &format!("FROM debian:12\nRUN {other}\n"),
        &["--policy", "test"],
    );
    assert_eq!(told.code, 102, "{told}");
    assert!(!told.stdout.contains("page of other"), "{told}");
    let why = "the policy test refused it other.example";
    assert!(told.stdout.contains(why), "{told}");
    let (_, refused) = told.stdout.split_once("\"refused\": [").unwrap();
    assert!(
        refused.trim_start().starts_with("\"other.example\""),
        "{told}"
    );
    // Without a policy there is no network, and the cached result of a build with a policy is not
    // used.
    let told = build(&world, &text, &[]);
    assert_eq!(told.code, 102, "{told}");
    assert!(told.stdout.contains("Dockerfile, line 2"), "{told}");
    assert!(told.stdout.contains("its steps have no network"), "{told}");
    let told = build(&world, &text, &["--policy", "unknown"]);
    assert_ne!(told.code, 0, "{told}");
}

#[test]
fn an_ordinary_users_daemon_says_why_it_does_not_build() {
    let Some(user) = User::new() else {
        return;
    };
    let image = format!("tar:{}", user.own.join("busybox.tar").display());
    let pulled = user.motu(&["env", "pull", &image]);
    assert_eq!(pulled.code, 0, "{pulled}");
    let args = ["env", "build", "--from", &image, "--run", "echo x > /x"];
    let told = user.motu(&[&args[..], &["-t", "mine:1", "--json"]].concat());
    assert_eq!(told.code, 108, "{told}");
    assert!(told.stdout.contains("needs a daemon of root's"), "{told}");
    // Ordinary users can build from their own files.
    let text = format!("FROM {image}\nWORKDIR /app\nCOPY word /app/\nCMD [\"cat\", \"word\"]\n");
    let dir = user.own.join("project");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("Dockerfile"), text).unwrap();
    std::fs::write(dir.join("word"), "built\n").unwrap();
    let dir = dir.to_str().unwrap();
    let told = user.motu(&["env", "build", "-t", "files:1", "--json", dir]);
    assert_eq!(counts(&built(&told)), (2, 0));
    let ran = user.motu(&["run", "--runtime", "container", "files:1"]);
    assert_eq!((ran.code, &*ran.stdout), (0, "built\n"), "{ran}");
    // All other commands for environments work for them too.
    let tagged = user.motu(&["env", "tag", &image, "mine:1"]);
    assert_eq!(tagged.code, 0, "{tagged}");
    let listed = user.motu(&["env", "rm", "mine:1"]);
    assert_eq!(listed.code, 0, "{listed}");
}
