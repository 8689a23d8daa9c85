//! What one key may ask for, and the quotas of one project, on real machines.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Value, json};

/// The error of an answer; one that comes with steps is its last line.
fn error(answer: &Answer) -> Value {
    let last = answer.text.lines().last().unwrap_or_default();
    let whole: Value = serde_json::from_str(last).unwrap_or_default();
    whole["error"].clone()
}

fn denied(answer: &Answer, field: &str) {
    let told = error(answer);
    assert_eq!(told["kind"], "denied", "{answer}");
    assert_eq!(told["details"]["field"], field, "{answer}");
    assert_eq!(told["details"]["code"], "key", "{answer}");
}

fn made(answer: &Answer) -> Value {
    assert!((200..300).contains(&answer.status), "{answer}");
    assert_eq!(error(answer), Value::Null, "{answer}");
    let last = answer.text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_default()
}

/// Requests of every verb that makes a machine, with something more in each.
fn makers(more: &Value) -> Vec<(&'static str, Ask)> {
    let with = |mut request: Value| {
        for (name, value) in more.as_object().unwrap() {
            request[name] = value.clone();
        }
        request
    };
    let busybox = || json!({"environment": "busybox"});
    let run = json!({"sandbox": with(busybox()), "exec": {"command": ["true"]}});
    let template = Ask::new("PUT", "/v1/templates/bounded").body(with(busybox()));
    vec![
        ("create", Ask::post("/v1/sandboxes", with(busybox()))),
        ("run", Ask::post("/v1/run", run)),
        ("workspace", Ask::post("/v1/workspaces", with(busybox()))),
        ("template", template),
    ]
}

#[test]
fn a_key_makes_machines_within_its_bounds_only() {
    let host = Host::new("");
    let limits = ["--max-mem-mib", "128", "--max-vcpu-count", "1"];
    let bounded =
        host.key(&[&["--project", "acme", "--max-disk-mib", "512"], &limits[..]].concat());
    let free = host.key(&["--project", "acme"]);
    for (field, more) in [
        ("mem_mib", json!({"mem_mib": 129})),
        ("vcpu_count", json!({"vcpu_count": 2})),
        ("disk_mib", json!({"disk_mib": 513})),
    ] {
        for (verb, ask) in makers(&more) {
            let answer = host.call(&bounded, ask);
            assert!(answer.text.contains("the key allows"), "{verb}: {answer}");
            denied(&answer, field);
        }
    }
    // Who does not say gets the host's usual size, as far as the key allows it.
    let box_ = made(&host.call(
        &bounded,
        Ask::post("/v1/sandboxes", json!({"environment": "busybox"})),
    ));
    assert_eq!(
        (&box_["mem_mib"], &box_["vcpu_count"]),
        (&json!(128), &json!(1))
    );
    // A template of another key does not lead around the bounds.
    let large = Ask::new("PUT", "/v1/templates/large")
        .body(json!({"environment": "busybox", "mem_mib": 256}));
    made(&host.call(&free, large));
    let around = Ask::post("/v1/sandboxes", json!({"template": "large"}));
    denied(&host.call(&bounded, around), "mem_mib");
    let within = Ask::post("/v1/sandboxes", json!({"template": "large", "mem_mib": 64}));
    assert_eq!(made(&host.call(&bounded, within))["mem_mib"], 64);
    // It is in what is told of the key, and the next daemon keeps to it.
    let listed = host.story.motu(&["key", "list", "--json"]);
    assert!(listed.stdout.contains("\"mem_mib\": 128"), "{listed}");
    host.stop();
    let host = host.start();
    let (_, again) = makers(&json!({"mem_mib": 129})).remove(0);
    denied(&host.call(&bounded, again), "mem_mib");
}

#[test]
fn a_key_names_its_policies_only() {
    let host = Host::new("");
    let bounded = host.key(&["--project", "acme", "--policy", "packages"]);
    let free = host.key(&["--project", "acme"]);
    let mut makers = makers(&json!({"policy": "public"}));
    // A workspace also says `egress` for it.
    let egress = json!({"environment": "busybox", "network_policy": "egress"});
    makers.push(("egress", Ask::post("/v1/workspaces", egress)));
    let open = json!({"environment": "busybox", "network": true});
    makers.push(("network", Ask::post("/v1/sandboxes", open)));
    let call = json!({"image": "busybox", "command": ["true"], "policy": "public"});
    makers.push(("call", Ask::post("/v1/calls", call)));
    let build = json!({"dockerfile": "FROM busybox\nRUN true\n", "policy": "public"});
    makers.push(("build", Ask::post("/v1/environments/build", build)));
    for (verb, ask) in makers {
        let answer = host.call(&bounded, ask);
        assert!(
            answer.text.contains("may not use the policy public"),
            "{verb}: {answer}"
        );
        denied(&answer, "policy");
    }
    // Without a network, and with its own policy, it works.
    let plain = json!({"environment": "busybox"});
    made(&host.call(&bounded, Ask::post("/v1/sandboxes", plain)));
    let own = json!({"environment": "busybox", "policy": "packages"});
    let made_here = made(&host.call(&bounded, Ask::post("/v1/sandboxes", own)));
    assert_eq!(made_here["policy"]["name"], "packages");
    let id = made_here["sandbox_id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}/policy");
    let change = || Ask::new("PUT", &path).body(json!({"policy": "public"}));
    denied(&host.call(&bounded, change()), "policy");
    made(&host.call(&free, change()));
}

#[test]
fn a_project_may_have_quotas_of_its_own() {
    let quotas = "runtime = \"container\"
[quota]
sandboxes = 1
calls_per_minute = 1000
[quota.projects.acme]
vcpus = 2
disk_mib = 1200
calls_per_minute = 12
";
    let host = Host::configured(quotas, "");
    assert!(host.story.has_busybox());
    let acme = host.key(&["--project", "acme"]);
    let beta = host.key(&["--project", "beta"]);
    let make = |vcpus: u64, disk: u64| {
        let ask =
            json!({"environment": "busybox", "vcpu_count": vcpus, "disk_mib": disk, "mem_mib": 64});
        Ask::post("/v1/sandboxes", ask)
    };
    let over = |answer: &Answer, limit: &str| {
        let told = error(answer);
        assert_eq!(told["kind"], "limit", "{answer}");
        assert_eq!(told["details"]["limit"], limit, "{answer}");
    };
    // The general quota does not count for a project that has one of its own.
    made(&host.call(&acme, make(1, 400)));
    made(&host.call(&acme, make(1, 400)));
    over(&host.call(&acme, make(1, 100)), "quota_vcpus");
    made(&host.call(&beta, make(4, 8000)));
    over(&host.call(&beta, make(1, 100)), "quota_sandboxes");
    // A disk that is kept counts when its machine is stopped, too.
    let listed = host.call(&acme, Ask::get("/v1/sandboxes"));
    let first = listed.json["sandboxes"][0]["sandbox_id"].as_str().unwrap();
    made(&host.call(&acme, Ask::new("DELETE", &format!("/v1/sandboxes/{first}"))));
    over(&host.call(&acme, make(1, 801)), "quota_disk_mib");
    made(&host.call(&acme, make(1, 800)));
    // Six calls were counted so far: what only looks is not.
    let busy = (0..12).find_map(|_| {
        let answer = host.call(&acme, make(1, 100));
        (error(&answer)["details"]["limit"] == "quota_calls_per_minute").then_some(answer)
    });
    assert_eq!(busy.map(|answer| answer.status), Some(429));
    made(&host.call(
        &beta,
        Ask::new("PUT", "/v1/templates/t").body(json!({"environment": "busybox"})),
    ));
}
