//! Builds with keys: caches, contexts and space of one project are not another's.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Value, json};

fn world(config: &str) -> (Host, String, String) {
    let host = Host::configured(&format!("runtime = \"container\"\n{config}"), "");
    assert!(host.story.has_busybox());
    let (acme, beta) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "beta"]),
    );
    (host, acme, beta)
}

/// The result of a build.
fn built(answer: &Answer) -> Value {
    let last = answer.text.lines().last().unwrap_or_default();
    let line: Value = serde_json::from_str(last).unwrap_or_default();
    assert!(line["result"]["digest"].is_string(), "{answer}");
    line["result"].clone()
}

#[test]
fn no_project_gets_what_another_has_put_into_a_step() {
    let (host, acme, beta) = world("");
    let text = "FROM busybox\n\
        RUN --mount=type=secret,id=s --mount=type=cache,id=c,target=/c \
        cat /run/secrets/s > /who; echo \"$http_proxy\" > /proxy; cat /c/* > /cached; cp /who /c/was; true\n";
    let build = |key: &str, secret: &str, proxy: &str| {
        let ask = json!({
            "dockerfile": text, "name": "made/by:1",
            "secrets": {"s": secret}, "build_args": {"http_proxy": proxy},
        });
        let answer = host.call(key, Ask::post("/v1/environments/build", ask));
        built(&answer)
    };
    let cached = |made: &Value| made["build"]["cached"].as_u64().unwrap();
    let first = build(&acme, "secret-of-acme", "http://acme.example:1");
    assert_eq!(cached(&first), 0, "{first}");
    // The very same request of another project is another step.
    let theirs = build(&beta, "secret-of-acme", "http://acme.example:1");
    assert_eq!(cached(&theirs), 0, "{theirs}");
    let theirs = build(&beta, "secret-of-beta", "");
    assert_eq!(cached(&theirs), 0, "{theirs}");
    let made = host.call(
        &beta,
        Ask::post("/v1/sandboxes", json!({"environment": "made/by:1"})),
    );
    let id = made.json["sandbox_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"));
    let read = json!({"command": ["cat", "/who", "/proxy", "/cached"]});
    let read = host.call(&beta, Ask::post(&format!("/v1/sandboxes/{id}/exec"), read));
    let text = read.json["stdout"]
        .as_str()
        .unwrap_or_else(|| panic!("{read}"));
    // Its own secret and proxy, and what its own last build left in the cache.
    assert_eq!(text, "secret-of-beta\nsecret-of-acme", "{read}");
    // Within a project the same is the same, and each value counts.
    let again = build(&acme, "secret-of-acme", "http://acme.example:1");
    assert_eq!(cached(&again), 1, "{again}");
    let secret = build(&acme, "another-of-acme", "http://acme.example:1");
    assert_eq!(cached(&secret), 0, "{secret}");
    let proxy = build(&acme, "secret-of-acme", "http://acme.example:2");
    assert_eq!(cached(&proxy), 0, "{proxy}");
    // No key in the cache can be made by trying values: there is a secret in each.
    let cache = host.story.home().join("cache/build-of");
    let keys = std::fs::read_dir(&cache).unwrap().map(|entry| {
        let path = entry.unwrap().path().join("key");
        std::fs::read(path).unwrap()
    });
    let keys: Vec<_> = keys.collect();
    assert_eq!(keys.len(), 2);
    assert!(keys[0] != keys[1] && keys.iter().all(|key| key.len() == 32));
}

#[test]
fn contexts_are_bounded_for_each_project_and_are_its_own() {
    let (host, acme, beta) = world("");
    let send = |key: &str| {
        host.call(
            key,
            Ask::new("PUT", "/v1/build-contexts").bytes(vec![0; 1024]),
        )
    };
    let most = motu_core::limits::BUILD_CONTEXTS.max;
    let first = send(&acme);
    assert_eq!(first.status, 200, "{first}");
    for _ in 1..most {
        assert_eq!(send(&acme).status, 200);
    }
    let over = send(&acme);
    assert_eq!(over.status, 429, "{over}");
    assert_eq!(over.json["error"]["details"]["limit"], "build_contexts");
    assert_eq!(send(&beta).status, 200);
    // Nobody else builds with it, not even who knows its id; and then it is used up.
    let id = first.json["context_id"].as_str().unwrap();
    let build = |key: &str, id: &str| {
        let ask = json!({"dockerfile": "FROM busybox\nLABEL a=b\n", "context_id": id});
        host.call(key, Ask::post("/v1/environments/build", ask))
    };
    let stolen = build(&beta, id);
    let never = build(&beta, "0123456789abcdef");
    assert!(stolen.text.contains("there is no such context"), "{stolen}");
    assert_eq!(stolen.status, never.status);
    built(&build(&acme, id));
    assert_eq!(send(&acme).status, 200);
}

#[test]
fn nothing_is_taken_in_that_leaves_too_little_space() {
    let (host, acme, _) = world("min_free_disk_mib = 1048576\n");
    let import = "/v1/environments/import?name=big";
    for path in ["/v1/build-contexts", import] {
        let refused = host.call(&acme, Ask::new("PUT", path).bytes(vec![0; 1024]));
        assert_eq!(refused.status, 429, "{path}: {refused}");
        assert!(
            refused.text.contains("min_free_disk_mib"),
            "{path}: {refused}"
        );
    }
    let left = host.story.home().join("cache/build-of");
    let left = std::fs::read_dir(left).map_or(0, |dirs| dirs.count());
    assert_eq!(left, 0);
}
