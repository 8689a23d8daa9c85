//! Whose a thing is does not depend on what it is called: every form of name that a project can choose,
//! asked for by another one.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Value, json};

/// Names as a project may write them. Each has a sister that nobody has, which ends in another letter.
const FORMS: &[&str] = &[
    "thing",
    "py:1",
    "team/py:1",
    "sub/team/py",
    "oci:py",
    "beta--py:1",
    "acme/py:1",
    "busybox-like",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000",
];

/// The same name with another ending: there is nothing of it.
fn sister(name: &str) -> String {
    let (rest, last) = name.split_at(name.len() - 1);
    format!("{rest}{}", if last == "q" { "r" } else { "q" })
}

fn encoded(name: &str) -> String {
    name.replace('/', "%2F").replace(':', "%3A")
}

/// An answer without the name that was asked for, and what differs from call to call.
fn said(answer: &Answer, name: &str) -> (u16, Value) {
    let mut error = answer.json["error"].clone();
    if error.is_null() {
        let last = answer.text.lines().last().unwrap_or_default();
        let line: Value = serde_json::from_str(last).unwrap_or_default();
        error = line["error"].clone();
    }
    if let Some(details) = error["details"].as_object_mut() {
        details.remove("audit_id");
    }
    let text = error
        .to_string()
        .replace(&encoded(name), "NAME")
        .replace(name, "NAME");
    (answer.status, serde_json::from_str(&text).unwrap())
}

struct World {
    host: Host,
    acme: String,
    beta: String,
}

impl World {
    fn new(config: &str) -> World {
        let host = Host::configured(&format!("runtime = \"container\"\n{config}"), "");
        assert!(host.story.has_busybox());
        let acme = host.key(&["--project", "acme"]);
        let beta = host.key(&["--project", "beta"]);
        World { host, acme, beta }
    }

    fn acmes(&self, ask: Ask) -> Answer {
        self.host.call(&self.acme, ask)
    }

    /// What `beta` asks about a name of `acme`'s is answered as for the name's sister.
    fn is_not_there(&self, name: &str, what: &str, ask: impl Fn(&str) -> Ask) {
        let theirs = self.host.call(&self.beta, ask(name));
        let never = self.host.call(&self.beta, ask(&sister(name)));
        assert_eq!(
            said(&theirs, name),
            said(&never, &sister(name)),
            "{what} {name}: {theirs} and {never}"
        );
        let missing = said(&theirs, name).1["kind"] == "not_found";
        assert!(missing, "{what} {name}: {theirs}");
    }
}

fn tag(from: &str, name: &str) -> Ask {
    let path = format!("/v1/environments/{}/tag", encoded(from));
    Ask::post(&path, json!({ "name": name }))
}

fn from(name: &str) -> Value {
    json!({ "environment": name })
}

#[test]
fn an_environment_is_its_projects_whatever_it_is_called() {
    let world = World::new("");
    let mut archive = None;
    for (number, form) in FORMS.iter().enumerate() {
        // Each way to make one.
        let made = match number % 3 {
            0 => world.acmes(tag("busybox", form)),
            1 => {
                let text = "FROM busybox\nLABEL of=acme\n";
                let ask = json!({"dockerfile": text, "name": form});
                world.acmes(Ask::post("/v1/environments/build", ask))
            }
            _ => {
                let export = || {
                    let out = world.host.story.path().join("busybox.tar");
                    let args = ["env", "export", "busybox", "-o", out.to_str().unwrap()];
                    assert_eq!(world.host.story.motu(&args).code, 0);
                    std::fs::read(out).unwrap()
                };
                let bytes: &Vec<u8> = archive.get_or_insert_with(export);
                let path = format!("/v1/environments/import?name={}", encoded(form));
                world.acmes(Ask::new("PUT", &path).bytes(bytes.clone()))
            }
        };
        let last = made.text.lines().last().unwrap_or_default();
        assert!(
            made.status == 200 && last.contains("project:acme"),
            "{form}: {made}"
        );
        let own = world.acmes(Ask::get(&format!("/v1/environments/{}", encoded(form))));
        assert_eq!(own.json["owner"], "project:acme", "{form}: {own}");
        assert_eq!(own.json["name"], format!("acme--{form}"), "{own}");
    }
    for form in FORMS {
        let long = format!("acme--{form}");
        for name in [long.as_str(), form] {
            world.asks_every_verb(name);
        }
        // Only names that cannot be an image's are asked for where a pull would look for one.
        world.is_not_there(&long, "pull", |name| {
            Ask::post(
                &format!("/v1/environments/{}/pull", encoded(name)),
                json!({}),
            )
        });
        world.is_not_there(&long, "build", |name| {
            let text = format!("FROM {name}\n");
            Ask::post("/v1/environments/build", json!({"dockerfile": text}))
        });
        world.is_not_there(&long, "template", |name| {
            Ask::new("PUT", "/v1/templates/stolen").body(from(name))
        });
    }
    let theirs = world.host.call(&world.beta, Ask::get("/v1/environments"));
    assert!(!theirs.text.contains("acme"), "{theirs}");
    let ours = world.acmes(Ask::get("/v1/environments"));
    for form in FORMS {
        assert!(
            ours.text.contains(&format!("\"acme--{form}\"")),
            "{form}: {ours}"
        );
    }
    // Whose it is, starts from it by both names, and takes it away.
    for name in ["team/py:1", "acme--team/py:1"] {
        let made = world.acmes(Ask::post("/v1/sandboxes", from(name)));
        assert_eq!(made.json["environment"], "acme--team/py:1", "{made}");
        let id = made.json["sandbox_id"].as_str().unwrap();
        let gone = world.acmes(Ask::new("DELETE", &format!("/v1/sandboxes/{id}")));
        assert_eq!(gone.status, 200, "{gone}");
    }
    let gone = world.acmes(Ask::new("DELETE", "/v1/environments/team%2Fpy%3A1"));
    assert_eq!(gone.status, 200, "{gone}");
    assert_eq!(gone.json["removed"], json!(["acme--team/py:1"]), "{gone}");
    // A user of the host sees all of it, and whose it is.
    let told = world
        .host
        .story
        .motu(&["env", "inspect", "acme--py:1", "--json"]);
    assert!(told.stdout.contains("project:acme"), "{told}");
}

impl World {
    /// Every verb that takes the name of an environment which is there.
    fn asks_every_verb(&self, name: &str) {
        let at = |name: &str, rest: &str| format!("/v1/environments/{}{rest}", encoded(name));
        self.is_not_there(name, "inspect", |name| Ask::get(&at(name, "")));
        self.is_not_there(name, "export", |name| Ask::get(&at(name, "/export")));
        self.is_not_there(name, "tag", |name| tag(name, "stolen"));
        self.is_not_there(name, "create", |name| {
            Ask::post("/v1/sandboxes", from(name))
        });
        self.is_not_there(name, "workspace", |name| {
            Ask::post("/v1/workspaces", from(name))
        });
        if name.starts_with("acme--") {
            self.is_not_there(name, "remove", |name| Ask::new("DELETE", &at(name, "")));
        }
    }
}

#[test]
fn other_things_are_their_projects_whatever_they_are_called() {
    let world = World::new("");
    let mut tried = 0;
    for form in FORMS {
        let (at, busybox) = (encoded(form), from("busybox"));
        let boxed = format!("{form}-box");
        let with = |field: &str, name: &str| {
            let mut body = busybox.clone();
            body[field] = json!(name);
            body
        };
        let nouns = [
            (
                "templates",
                *form,
                Ask::new("PUT", &format!("/v1/templates/{at}")).body(busybox.clone()),
            ),
            (
                "secrets",
                *form,
                Ask::new("PUT", &format!("/v1/secrets/{at}")).body(json!({"value": "v"})),
            ),
            (
                "workspaces",
                *form,
                Ask::post("/v1/workspaces", with("workspace_id", form)),
            ),
            (
                "sandboxes",
                boxed.as_str(),
                Ask::post("/v1/sandboxes", with("sandbox_id", &boxed)),
            ),
        ];
        for (noun, called, make) in nouns {
            // Not every noun takes every form; what is refused is not there.
            let made = world.acmes(make);
            if !(200..300).contains(&made.status) {
                assert_eq!(made.status, 400, "{noun} {form}: {made}");
                continue;
            }
            tried += 1;
            for name in [format!("acme--{called}"), called.to_string()] {
                if noun != "secrets" {
                    world.is_not_there(&name, noun, |name| {
                        Ask::get(&format!("/v1/{noun}/{}", encoded(name)))
                    });
                }
                world.is_not_there(&name, noun, |name| {
                    Ask::new("DELETE", &format!("/v1/{noun}/{}", encoded(name)))
                });
            }
            let theirs = world
                .host
                .call(&world.beta, Ask::get(&format!("/v1/{noun}")));
            assert!(!theirs.text.contains("acme"), "{noun}: {theirs}");
        }
    }
    assert!(tried >= 8, "{tried}");
}

#[test]
fn environments_count_in_quotas_whatever_they_are_called() {
    let world = World::new("[quota]\nenvironments = 1\n");
    for name in ["team/py:1", "team/py:1"] {
        let made = world.acmes(tag("busybox", name));
        assert_eq!(made.status, 200, "{name}: {made}");
    }
    for name in ["team/py:2", "plain", "beta--py", "template-x:1"] {
        let over = world.acmes(tag("busybox", name));
        assert_eq!(over.status, 429, "{name}: {over}");
        assert_eq!(over.json["error"]["details"]["limit"], "quota_environments");
    }
    let other = world.host.call(&world.beta, tag("busybox", "team/py:1"));
    assert_eq!(other.status, 200, "{other}");
}
