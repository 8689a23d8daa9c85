//! Networks and secrets of a template's machines.

use super::{says, value};
use motu_testkit::builds;
use motu_testkit::network::World;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const VALUE: &str = "open-sesame-of-the-template";

/// An internet in which environments can be built.
fn internet() -> Option<World> {
    let world = World::new("container")?;
    builds::own_environments(&world.story);
    Some(world)
}

fn template(world: &World, args: &[&str]) -> Value {
    let create = ["template", "create", "--json"];
    value(&world.motu(&[&create[..], args].concat()))
}

fn create(world: &World, args: &[&str]) -> (String, Value) {
    let made = value(&world.motu(&[&["create", "--json"][..], args].concat()));
    (made["sandbox_id"].as_str().unwrap().to_string(), made)
}

const PAGE: &str = "page of good.example\n";

#[test]
fn machines_reach_the_hosts_of_their_template_and_no_others() {
    let Some(world) = internet() else { return };
    let made = template(
        &world,
        &["t", "--from", "debian:12", "--allow-host", "good.example"],
    );
    assert_eq!(made["definition"]["allowed_hosts"], json!(["good.example"]));
    let (id, sandbox) = create(&world, &["--template", "t"]);
    assert_eq!(sandbox["policy"]["name"], "public", "{sandbox}");
    for url in ["http://good.example/", "https://good.example/"] {
        let page = world.curl(&id, url);
        assert_eq!((page.code, &*page.stdout), (0, PAGE), "{page}");
    }
    for url in [
        "http://other.example/",
        "http://11.22.33.44/",
        "-H 'Host: other.example' http://good.example/",
        "--connect-to other.example:443:good.example:443 https://other.example/",
    ] {
        let page = world.curl(&id, url);
        assert_ne!(
            (page.code, &*page.stdout),
            (0, "page of other.example\n"),
            "{url}: {page}"
        );
        assert_ne!(
            (page.code, &*page.stdout),
            (0, "page of 11.22.33.44\n"),
            "{url}: {page}"
        );
    }
    let refused = world.decisions(&id);
    let refused = refused.iter().any(|one| one["allowed"] == false);
    assert!(refused, "{:#?}", world.decisions(&id));
    a_workspace_reaches_no_more(&world);
    // A policy in the request overrides the template's.
    let (_, closed) = create(&world, &["--template", "t", "--policy", "none"]);
    assert_eq!(closed["network"], "off", "{closed}");
    let (id, _) = create(&world, &["--template", "t", "--network"]);
    let page = world.curl(&id, "http://other.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of other.example\n"),
        "{page}"
    );
}

fn a_workspace_reaches_no_more(world: &World) {
    let made = value(&world.motu(&["workspace", "create", "--template", "t", "--json"]));
    let id = made["workspace_id"].as_str().unwrap();
    let page = world.curl(id, "http://good.example/");
    assert_eq!((page.code, &*page.stdout), (0, PAGE), "{page}");
    let page = world.curl(id, "http://other.example/");
    assert_ne!(
        (page.code, &*page.stdout),
        (0, "page of other.example\n"),
        "{page}"
    );
    assert_eq!(world.motu(&["workspace", "delete", id]).code, 0);
}

#[test]
fn a_setup_reaches_what_its_policy_allows() {
    let Some(world) = internet() else { return };
    let fetch = "curl -sS -m 20 http://good.example/ > /etc/page";
    let other = "curl -sS -f -m 20 http://other.example/";
    let from = ["t", "--from", "debian:12", "--setup"];
    let hosts = [&from[..], &[fetch, "--allow-host", "good.example"]].concat();
    template(&world, &hosts);
    let cat = ["run", "--template", "t", "--", "cat", "/etc/page"];
    says(&world.motu(&cat), PAGE.trim());
    // The machines have no network, so they can be pooled; the setup has its own policy.
    let own = [
        &from[..],
        &[fetch, "--setup-policy", "test", "--pool-size", "1"],
    ]
    .concat();
    let own = template(&world, &own);
    assert_eq!(own["version"], 2);
    says(&world.motu(&cat), PAGE.trim());
    let (id, sandbox) = create(&world, &["--template", "t"]);
    assert_eq!(sandbox["network"], "off", "{sandbox}");
    assert_eq!(world.motu(&["rm", &id]).code, 0);
    for more in [
        &["--allow-host", "good.example"][..],
        &["--setup-policy", "test"],
        &[],
    ] {
        let closed = [&["template", "create"][..], &from, &[other], more].concat();
        let closed = world.motu(&closed);
        assert_eq!(closed.code, 102, "{more:?}: {closed}");
    }
    assert_eq!(world.motu(&["template", "rm", "t"]).code, 0);
}

#[test]
fn a_secret_is_a_name_in_a_template_and_a_placeholder_in_its_machines() {
    let Some(world) = internet() else { return };
    let mut set = world
        .command(&["secret", "set", "key", "--host", "good.example"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = set.stdin.take().unwrap();
    input.write_all(VALUE.as_bytes()).unwrap();
    drop(input);
    assert!(set.wait().unwrap().success());
    let made = template(
        &world,
        &[
            "t",
            "--from",
            "debian:12",
            "--allow-host",
            "good.example",
            "--secret-ref",
            "API_KEY=key",
        ],
    );
    assert_eq!(
        made["definition"]["secret_refs"],
        json!({"API_KEY": {"ref": "key"}})
    );
    let (id, _) = create(&world, &["--template", "t"]);
    let told = world.motu(&["exec", &id, "--", "sh", "-c", "echo $API_KEY"]);
    assert_eq!(told.code, 0, "{told}");
    assert!(told.stdout.trim().len() > 8, "{told}");
    assert!(!told.stdout.contains(VALUE), "{told}");
    // The gateway connects to the secret's host on behalf of the machine, so it is the gateway that
    // rejects the self-signed certificate.
    let page = world.curl(&id, "-H \"X-Key: $API_KEY\" https://good.example/");
    assert_ne!((page.code, &*page.stdout), (0, PAGE), "{page}");
    let log = world.motu(&["policy", "log", &id]);
    assert!(log.stdout.contains("certificate_not_trusted"), "{log}");
    assert!(!log.stdout.contains(VALUE), "{log}");
    let shown = world.motu(&["template", "show", "t"]);
    assert!(shown.stdout.contains("API_KEY=key"), "{shown}");
    for entry in ["motu.db", "motu.db-wal"] {
        let bytes = std::fs::read(world.story.home().join(entry)).unwrap_or_default();
        let found = bytes
            .windows(VALUE.len())
            .any(|part| part == VALUE.as_bytes());
        assert!(!found, "the value is in {entry}");
    }
}
