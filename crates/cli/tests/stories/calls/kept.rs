//! A state that one call keeps, and the next one goes on with.

use super::{POLICY, World, script, with};
use motu_testkit::host::{Ask, Host};
use serde_json::{Value, json};

fn keeps(text: &str, from: Option<&str>, retention: &str) -> Value {
    let mut state = json!({"retention": retention});
    if retention != "destroy" {
        state["ttl_seconds"] = 600.into();
    }
    if let Some(from) = from {
        state["from"] = from.into();
    }
    with(script(text), json!({ "state": state }))
}

#[test]
fn the_next_call_goes_on_with_what_the_last_one_kept() {
    let Some(world) = World::new() else { return };
    let first = world.answered(&keeps("echo one > file", None, "stop"));
    let id = first["sandbox_id"].as_str().unwrap();
    let mut expected = "one\n".to_string();
    for (retention, state) in [
        ("stop", "stopped"),
        ("cold", "paused"),
        ("snapshot", "stopped"),
        ("snapshot", "stopped"),
    ] {
        let text = format!("cat file; echo {retention} >> file");
        let answer = world.answered(&keeps(&text, Some(id), retention));
        assert_eq!(answer["failure"], Value::Null, "{answer}");
        assert_eq!(answer["stdout"], expected, "{answer}");
        assert_eq!(answer["sandbox_id"], id, "{answer}");
        assert!(answer["expires_at"].is_string(), "{answer}");
        expected += &format!("{retention}\n");
        let shown = world.story.motu(&["workspace", "status", id, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(shown["state"], state, "{shown}");
        assert_eq!(shown["labels"]["motu.call"], retention, "{shown}");
    }
    let snapshots = world.story.motu(&["workspace", "snapshot", "list", id]);
    assert!(snapshots.stdout.contains("call-2"), "{snapshots}");
    let logs = world.story.motu(&["logs", id]);
    assert!(logs.stdout.contains("one\nstop\ncold\n"), "{logs}");
    assert_eq!(logs.stdout.matches("cat file").count(), 4, "{logs}");
    // What does not fit is refused, and the state stays as it was.
    let last = keeps("cat file", Some(id), "destroy");
    for wrong in [
        json!({"limits": {"mem_mib": 64}}),
        json!({"language": null, "image": "other"}),
        json!({"network": {"mode": "bridge"}}),
    ] {
        let error = world.refused(&with(last.clone(), wrong.clone()));
        let class = error["details"]["class"].as_str().unwrap();
        assert!(
            ["validation_failure", "policy_denial"].contains(&class),
            "{wrong}: {error}"
        );
    }
    let answer = world.answered(&last);
    assert_eq!(answer["stdout"], expected, "{answer}");
    let gone = world.refused(&last);
    assert_eq!(gone["kind"], "not_found", "{gone}");
    assert_eq!(gone["details"]["class"], "validation_failure", "{gone}");
}

#[test]
fn one_call_at_a_time_has_a_state() {
    let Some(world) = World::new() else { return };
    let first = world.answered(&keeps("echo 0 > count", None, "stop"));
    let id = first["sandbox_id"].as_str().unwrap();
    let adds = keeps(
        "n=$(cat count); sleep 2; echo $((n + 1)) > count",
        Some(id),
        "stop",
    );
    let told: Vec<Value> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..2)
            .map(|number| {
                let (world, adds) = (&world, &adds);
                scope.spawn(move || {
                    let file = world.story.path().join(format!("call-{number}.json"));
                    std::fs::write(&file, adds.to_string()).unwrap();
                    let args = ["call", "--policy", "calls", "--json", "--request"];
                    let told = world
                        .story
                        .motu(&[&args[..], &[file.to_str().unwrap()]].concat());
                    serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"))
                })
            })
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let ran = told.iter().filter(|one| one["exit_code"] == 0).count();
    assert_eq!(ran, 1, "{told:?}");
    let refused = told.iter().find(|one| one["error"].is_object()).unwrap();
    let error = &refused["error"];
    assert_eq!(error["kind"], "conflict", "{error}");
    assert_eq!(error["details"]["class"], "transport_failure", "{error}");
    let retry = error["details"]["retry"].as_str().unwrap();
    assert!(retry.starts_with("yes"), "{error}");
    let last = world.answered(&keeps("cat count", Some(id), "destroy"));
    assert_eq!(last["stdout"], "1\n", "{last}");
}

#[test]
fn a_dry_run_looks_at_the_state_and_leaves_it() {
    let Some(world) = World::new() else { return };
    let first = world.answered(&keeps("true", None, "stop"));
    let id = first["sandbox_id"].as_str().unwrap();
    let plan = |from: &str| {
        let file = world.story.path().join("call.json");
        std::fs::write(&file, keeps("true", Some(from), "stop").to_string()).unwrap();
        let args = ["call", "--request", "call.json", "--policy", "calls"];
        let told = world
            .story
            .motu(&[&args[..], &["--dry-run", "--json"]].concat());
        let plan: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
        plan
    };
    assert_eq!(plan(id)["allowed"], true);
    assert_eq!(plan(id)["runtime"], "container");
    // A workspace that no call has kept is none of theirs.
    let made = world
        .story
        .motu(&["workspace", "create", "busybox", "--json"]);
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    let other = plan(made["workspace_id"].as_str().unwrap());
    assert_eq!(other["allowed"], false, "{other}");
    let last = other["checks"].as_array().unwrap().last().unwrap();
    assert_eq!(last["check"], "state.from", "{other}");
}

#[test]
fn a_state_has_an_owner_and_an_end() {
    let host = Host::new("");
    std::fs::create_dir_all(host.story.home().join("policies")).unwrap();
    std::fs::write(host.story.home().join("policies/calls.toml"), POLICY).unwrap();
    let (acme, beta) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "beta"]),
    );
    let call = |key: &str, request: Value| {
        let request = with(request, json!({"policy": "calls"}));
        host.call(key, Ask::post("/v1/calls", request))
    };
    let first = call(&acme, keeps("echo mine > file", None, "stop"));
    let id = first.json["sandbox_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{first}"));
    let next = keeps("cat file", Some(id), "stop");
    let stranger = call(&beta, next.clone());
    assert_eq!(stranger.status, 404, "{stranger}");
    assert!(!stranger.text.contains("mine"), "{stranger}");
    let owner = call(&acme, next.clone());
    assert_eq!(owner.json["stdout"], "mine\n", "{owner}");
    // Its time is over.
    let short = format!("/v1/sandboxes/{id}/keepalive");
    let short = host.call(&acme, Ask::post(&short, json!({"ttl_seconds": 1})));
    assert_eq!(short.status, 200, "{short}");
    super::failing::until("it has gone", || {
        let looked = host.call(&acme, Ask::get(&format!("/v1/workspaces/{id}")));
        (looked.status == 404).then_some(())
    });
    let late = call(&acme, next);
    assert_eq!(late.status, 404, "{late}");
    assert_eq!(late.json["error"]["details"]["class"], "validation_failure");
}
