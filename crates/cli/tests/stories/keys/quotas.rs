//! Quotas of what a project has by name: one cannot take the places of another.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Value, json};

const QUOTAS: &str = "runtime = \"container\"
[quota]
templates = 2
terminals = 2
environments = 2
secrets = 2
[terminal]
environment = \"busybox\"
";

/// A kind of thing: how one is made, and how it is removed.
struct Kind {
    limit: &'static str,
    make: fn(&str) -> Ask,
    remove: fn(&str) -> Ask,
}

const KINDS: &[Kind] = &[
    Kind {
        limit: "quota_secrets",
        make: |name| {
            let ask = Ask::new("PUT", &format!("/v1/secrets/{name}"));
            ask.body(json!({"value": "v", "hosts": ["example.com"]}))
        },
        remove: |name| Ask::new("DELETE", &format!("/v1/secrets/{name}")),
    },
    Kind {
        limit: "quota_templates",
        make: |name| {
            let ask = Ask::new("PUT", &format!("/v1/templates/{name}"));
            ask.body(json!({"environment": "busybox"}))
        },
        remove: |name| Ask::new("DELETE", &format!("/v1/templates/{name}")),
    },
    Kind {
        limit: "quota_environments",
        make: |name| {
            let tag = json!({"name": format!("{name}:1")});
            Ask::post("/v1/environments/busybox/tag", tag)
        },
        remove: |name| Ask::new("DELETE", &format!("/v1/environments/{name}:1")),
    },
    Kind {
        limit: "quota_terminals",
        make: |name| {
            let open = json!({"session_id": name, "command": ["sh"]});
            Ask::post("/v1/terminals", open)
        },
        remove: |name| Ask::new("DELETE", &format!("/v1/terminals/{name}")),
    },
];

/// The error of an answer; one that comes with steps is its last line.
fn error(answer: &Answer) -> Value {
    let last = answer.text.lines().last().unwrap_or_default();
    let whole: Value = serde_json::from_str(last).unwrap_or_default();
    whole["error"].clone()
}

fn made(host: &Host, key: &str, ask: Ask) {
    let answer = host.call(key, ask);
    assert!((200..300).contains(&answer.status), "{answer}");
    assert_eq!(error(&answer), Value::Null, "{answer}");
}

#[test]
fn a_project_has_no_more_than_its_quota_of_what_has_names() {
    let host = Host::configured(QUOTAS, "");
    assert!(host.story.has_busybox());
    let acme = host.key(&["--project", "acme"]);
    let beta = host.key(&["--project", "beta"]);
    for kind in KINDS {
        made(&host, &acme, (kind.make)("one"));
        made(&host, &acme, (kind.make)("two"));
        let refused = host.call(&acme, (kind.make)("three"));
        let told = error(&refused);
        assert_eq!(told["kind"], "limit", "{}: {refused}", kind.limit);
        assert_eq!(told["details"]["limit"], kind.limit, "{refused}");
        assert_eq!(told["details"]["code"], "quota", "{refused}");
        assert_eq!(told["details"]["max"], 2, "{refused}");
        let hint = told["hint"].as_str().unwrap();
        assert!(hint.contains("DELETE /v1/"), "{hint}");
        assert!(hint.contains(kind.limit), "{hint}");
        // Another project has places of its own, and what is removed makes room.
        made(&host, &beta, (kind.make)("three"));
        made(&host, &acme, (kind.remove)("two"));
        made(&host, &acme, (kind.make)("three"));
    }
    // A secret and a template that are there can be replaced, and the host has no quota.
    made(&host, &acme, (KINDS[0].make)("one"));
    made(&host, &acme, (KINDS[1].make)("one"));
    for number in 0..3 {
        let tagged = host
            .story
            .motu(&["env", "tag", "busybox", &format!("own:{number}")]);
        assert_eq!(tagged.code, 0, "{tagged}");
    }
}

#[test]
fn who_asks_at_once_gets_no_more_either() {
    let host = Host::configured(QUOTAS, "");
    assert!(host.story.has_busybox());
    let key = format!("Authorization: Bearer {}", host.key(&["--project", "acme"]));
    let json_type = "Content-Type: application/json";
    let status = |method: &str, path: &str, body: Value| {
        let mut curl = motu_needs::command("curl");
        curl.args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        curl.args(["--header", &key, "--header", json_type, "--request", method]);
        curl.args(["--data", &body.to_string()]);
        let output = curl.arg(format!("http://{}{path}", host.address)).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let secret = |number: usize| {
        let body = json!({"value": "v", "hosts": ["example.com"]});
        status("PUT", &format!("/v1/secrets/s{number}"), body)
    };
    let environment = |number: usize| {
        let body = json!({"name": format!("e{number}:1")});
        status("POST", "/v1/environments/busybox/tag", body)
    };
    for ask in [&secret as &(dyn Fn(usize) -> String + Sync), &environment] {
        let answers: Vec<String> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8)
                .map(|number| scope.spawn(move || ask(number)))
                .collect();
            asked.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let fine = answers.iter().filter(|status| *status == "200").count();
        let refused = answers.iter().filter(|status| *status == "429").count();
        assert_eq!((fine, refused), (2, 6), "{answers:?}");
    }
}
