//! Projects: what is one's is not there for another. One table over all verbs.

use motu_core::verb::{self, Effect, Info, Shape};
use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Map, Value, json};

/// What becomes of a call with a key of `beta` on things of `acme`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is not there, in the words for what never was.
    NotThere,
    /// No key may do it.
    Denied,
    /// It makes something of `beta`'s own, or lists what is.
    Own,
    /// It tells everybody the same.
    Shared,
}

/// Every verb that is not about one sandbox, workspace, session or call, which are never there, and
/// those that name paths of the host. One that is missing fails the test.
const FATES: &[(&str, Fate)] = &[
    ("version", Fate::Shared),
    ("doctor", Fate::Denied),
    ("backup", Fate::Denied),
    ("create_key", Fate::Denied),
    ("list_keys", Fate::Denied),
    ("revoke_key", Fate::Denied),
    ("list_audit", Fate::Own),
    ("verify_audit", Fate::Denied),
    ("audit_key", Fate::Shared),
    ("follow_audit", Fate::Denied),
    ("export_audit", Fate::Denied),
    ("list_environments", Fate::Own),
    ("inspect_environment", Fate::NotThere),
    ("pull_environment", Fate::NotThere),
    ("remove_environment", Fate::NotThere),
    ("tag_environment", Fate::NotThere),
    ("export_environment", Fate::NotThere),
    ("import_environment", Fate::Own),
    ("send_build_context", Fate::Own),
    ("build_environment", Fate::Own),
    ("prune_environments", Fate::Denied),
    ("put_template", Fate::Own),
    ("list_templates", Fate::Own),
    ("get_template", Fate::NotThere),
    ("build_template", Fate::NotThere),
    ("remove_template", Fate::NotThere),
    ("create_sandbox", Fate::Own),
    ("list_sandboxes", Fate::Own),
    ("reap_expired", Fate::Denied),
    ("plan", Fate::Denied),
    ("lend_file", Fate::Denied),
    ("lend_directory", Fate::Denied),
    ("list_policies", Fate::Shared),
    ("get_policy", Fate::Shared),
    ("check_policy", Fate::Shared),
    ("explain_policy", Fate::Shared),
    ("set_secret", Fate::Own),
    ("list_secrets", Fate::Own),
    ("remove_secret", Fate::NotThere),
    ("call", Fate::Own),
    ("dry_run_call", Fate::Own),
    ("run", Fate::Own),
    ("read_events", Fate::Own),
    ("create_workspace", Fate::Own),
    ("list_workspaces", Fate::Own),
    ("push_workspace_sync", Fate::Denied),
    ("export_workspace", Fate::Denied),
    ("export_workspace_disk", Fate::Denied),
    ("open_terminal", Fate::Own),
    ("list_terminals", Fate::Own),
];

fn fate(info: &Info) -> Fate {
    let listed = FATES.iter().find(|(name, _)| *name == info.name);
    let about_one = ["{id}", "{terminal}", "{audit}"]
        .iter()
        .any(|part| info.path.contains(part));
    match (listed, about_one) {
        (Some((_, fate)), false) => *fate,
        (Some((_, Fate::Denied)), true) => Fate::Denied,
        (None, true) => Fate::NotThere,
        (Some(_), true) => panic!("{} need not stand in the table", info.name),
        (None, false) => panic!("say in FATES what becomes of {}", info.name),
    }
}

/// The address of a verb, about things of `acme` whose names end in this.
fn address(info: &Info, ending: &str, audit: &str) -> String {
    let thing = format!("acme--thing{ending}");
    let mut path = info.path.replace("{id}", &thing);
    path = path.replace("{terminal}", &thing);
    path = path.replace("{audit}", audit);
    path = path.replace("{selector}", "1").replace("{port}", "80");
    path = path.replace("{shell}", "sh-aaaaaaaa");
    path = path.replace("{key}", "aaaaaaaaaaaa");
    match info.family {
        "policies" => path.replace("{name}", "public"),
        _ => path.replace("{name}", &thing),
    }
}

/// A value for a field that must be given.
fn sample(document: &Value, name: &str, schema: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = &document["components"]["schemas"][reference.rsplit('/').next().unwrap()];
        return sample(document, name, schema);
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["properties"].is_object() {
        return Value::Object(required(document, schema));
    }
    if let Some(first) = schema["oneOf"].get(0).or(schema["allOf"].get(0)) {
        return sample(document, name, first);
    }
    match (name, schema["type"].as_str()) {
        ("environment", _) => json!("busybox"),
        ("signal", _) => json!("TERM"),
        ("mode", _) => json!("644"),
        (_, Some("integer" | "number")) => json!(1),
        (_, Some("boolean")) => json!(false),
        (_, Some("array")) => json!([]),
        (_, Some("object")) => Value::Object(required(document, schema)),
        _ => json!("/x"),
    }
}

/// The fields of a request that must be given.
fn required(document: &Value, schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().cloned().unwrap_or_default();
    let names = names.iter().map(|name| name.as_str().unwrap().to_string());
    names
        .map(|name| {
            let value = sample(document, &name, &schema["properties"][&name]);
            (name, value)
        })
        .collect()
}

/// The request of a verb at an address, with everything that must be in it.
fn ask(document: &Value, info: &Info, path: &str) -> Ask {
    let method = info.method.as_str();
    let entry = &document["paths"][info.path][method.to_ascii_lowercase()];
    let mut query = Vec::new();
    for parameter in entry["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        // Paths of machines have two forms, so the document asks for neither.
        let path = name == "path";
        if parameter["in"] == "query" && (parameter["required"] == true || path) {
            let value = sample(document, name, &parameter["schema"]);
            let value = value.as_str().map_or(value.to_string(), str::to_string);
            query.push(format!("{name}={}", value.replace('/', "%2F")));
        }
    }
    let path = match query.is_empty() {
        true => path.to_string(),
        false => format!("{path}?{}", query.join("&")),
    };
    let ask = Ask::new(method, &path);
    let schema = &entry["requestBody"]["content"]["application/json"]["schema"];
    let mut body = match sample(document, "", schema) {
        Value::Object(body) => body,
        _ => Map::new(),
    };
    extra(info, &mut body);
    match info.shape {
        Shape::Dial => ask
            .header("Connection: upgrade")
            .header("Upgrade: motu-dial"),
        Shape::Upload => ask.bytes(b"x".to_vec()),
        Shape::Open => {
            let text = Value::Object(body).to_string();
            let mut frame = vec![0];
            frame.extend((text.len() as u32).to_be_bytes());
            frame.extend(text.as_bytes());
            ask.header("Accept: application/vnd.motu.stream")
                .bytes(frame)
        }
        _ if schema.is_null() => ask,
        _ => ask.body(Value::Object(body)),
    }
}

/// Fields that the document does not ask for, and the verb does.
fn extra(info: &Info, body: &mut Map<String, Value>) {
    let paths: &[&str] = match info.name {
        "move_file" => &["from", "to"],
        "mkdir" | "chmod" => &["path"],
        _ => &[],
    };
    for path in paths {
        body.insert(path.to_string(), json!("/x"));
    }
    let more = match info.name {
        "put_template" => Some(("environment", "busybox")),
        "send_to_terminal" => Some(("text", "x")),
        "signal_terminal" => Some(("signal", "INT")),
        _ => None,
    };
    if let Some((field, value)) = more {
        body.insert(field.to_string(), json!(value));
    }
}

/// An error without what differs from call to call.
fn error(answer: &Answer, ending: &str) -> Value {
    let mut error = answer.json["error"].clone();
    if error.is_null() {
        // Steps end in their error.
        let last = answer.text.lines().last().unwrap_or_default();
        let line: Value = serde_json::from_str(last).unwrap_or_default();
        error = line["error"].clone();
    }
    if let Some(details) = error["details"].as_object_mut() {
        details.remove("audit_id");
    }
    let text = error
        .to_string()
        .replace(&format!("thing{ending}"), "thing");
    serde_json::from_str(&text).unwrap()
}

/// Two projects on one host; one of them has everything.
struct World {
    host: Host,
    acme: String,
    beta: String,
    /// A call of `acme`.
    audit: String,
}

impl World {
    fn new() -> World {
        let host = Host::new("");
        let acme = host.key(&["--project", "acme"]);
        let beta = host.key(&["--project", "beta"]);
        let world = World {
            audit: String::new(),
            host,
            acme,
            beta,
        };
        let made = world.make("thing");
        World {
            audit: made.header("x-request-id").unwrap().to_string(),
            ..world
        }
    }

    /// One of each for `acme`, all of the same name.
    fn make(&self, name: &str) -> Answer {
        let busybox = |field: &str| json!({"environment": "busybox", field: name});
        let done = |ask: Ask| {
            let answer = self.host.call(&self.acme, ask);
            assert!((200..300).contains(&answer.status), "{answer}");
            answer
        };
        let workspace = done(Ask::post("/v1/workspaces", busybox("workspace_id")));
        assert_eq!(workspace.json["workspace_id"], format!("acme--{name}"));
        done(Ask::post(
            "/v1/sandboxes",
            json!({"environment": "busybox", "sandbox_id": format!("{name}-box")}),
        ));
        done(Ask::post(
            "/v1/terminals",
            json!({"session_id": name, "sandbox_id": name, "command": ["sh"]}),
        ));
        done(
            Ask::new("PUT", &format!("/v1/templates/{name}"))
                .body(json!({"environment": "busybox"})),
        );
        done(Ask::new("PUT", &format!("/v1/secrets/{name}")).body(json!({"value": "v"})));
        done(Ask::post(
            "/v1/environments/busybox/tag",
            json!({"name": name}),
        ));
        workspace
    }
}

#[test]
fn every_verb_keeps_projects_apart() {
    let world = World::new();
    let document = motu_server::openapi();
    let wrong: Vec<String> = verb::all()
        .filter_map(|info| {
            let why = world.looks_at(&document, info).err()?;
            Some(format!("{}: {why}", info.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl World {
    /// Calls a verb with a key of `beta` about things of `acme`.
    fn looks_at(&self, document: &Value, info: &Info) -> Result<(), String> {
        let nobody = "run_00000000000000000000000000000000";
        let at = |ending: &str, audit: &str| ask(document, info, &address(info, ending, audit));
        let kind = match fate(info) {
            Fate::NotThere => "not_found",
            Fate::Denied => "denied",
            Fate::Own | Fate::Shared => return Ok(()),
        };
        let theirs = self.host.call(&self.beta, at("", &self.audit));
        let said = error(&theirs, "");
        if said["kind"] != kind {
            return Err(format!("{theirs} instead of {kind}"));
        }
        if fate(info) == Fate::Denied {
            return Ok(());
        }
        // What never was is answered in the same words.
        let never = self.host.call(&self.beta, at("-x", nobody));
        let same = info.path.contains("{audit}") || error(&never, "-x") == said;
        if never.status != theirs.status || !same {
            return Err(format!("{never} for nothing, {theirs} for something"));
        }
        // Whose it is gets past that.
        if info.effect == Effect::Reads && info.shape == Shape::Value {
            let ours = self.host.call(&self.acme, at("", &self.audit));
            if error(&ours, "") == said {
                return Err(format!("{ours} for whose it is"));
            }
        }
        Ok(())
    }
}

#[test]
fn lists_hold_what_is_the_projects() {
    let world = World::new();
    for (path, list) in [
        ("/v1/sandboxes", "sandboxes"),
        ("/v1/sandboxes?all=true", "sandboxes"),
        ("/v1/workspaces", "workspaces"),
        ("/v1/terminals", "sessions"),
        ("/v1/templates", "templates"),
        ("/v1/secrets", "secrets"),
        ("/v1/environments", "environments"),
        ("/v1/audit", "entries"),
    ] {
        let ours = world.host.call(&world.acme, Ask::get(path));
        assert!(ours.text.contains("acme"), "{path}: {ours}");
        let theirs = world.host.call(&world.beta, Ask::get(path));
        assert_eq!(theirs.status, 200, "{path}: {theirs}");
        assert!(!theirs.text.contains("acme"), "{path}: {theirs}");
        let count = theirs.json[list].as_array().unwrap().len();
        assert_eq!(theirs.json["count"], count, "{path}");
    }
    // Whoever runs the host sees everything.
    for args in [
        &["ps", "--json"][..],
        &["workspace", "list"],
        &["secret", "list"],
    ] {
        let told = world.host.story.motu(args);
        assert!(told.stdout.contains("acme--thing"), "{told}");
    }
}

#[test]
fn two_projects_may_use_the_same_names() {
    let world = World::new();
    let other = World {
        acme: world.beta.clone(),
        beta: world.acme.clone(),
        audit: String::new(),
        host: world.host,
    };
    let busybox = json!({"environment": "busybox", "workspace_id": "thing", "name": "called"});
    let made = other
        .host
        .call(&other.acme, Ask::post("/v1/workspaces", busybox));
    assert_eq!(made.json["workspace_id"], "beta--thing", "{made}");
    for (method, path, body) in [
        (
            "PUT",
            "/v1/templates/thing",
            json!({"environment": "busybox"}),
        ),
        ("PUT", "/v1/secrets/thing", json!({"value": "other"})),
        (
            "POST",
            "/v1/environments/busybox/tag",
            json!({"name": "thing"}),
        ),
        (
            "POST",
            "/v1/terminals",
            json!({"session_id": "thing", "sandbox_id": "thing", "command": ["sh"]}),
        ),
    ] {
        let answer = other
            .host
            .call(&other.acme, Ask::new(method, path).body(body));
        assert!((200..300).contains(&answer.status), "{path}: {answer}");
        assert!(!answer.text.contains("acme"), "{path}: {answer}");
    }
    // Short names, whole ones, and names that people gave.
    for word in ["thing", "beta--thing", "called"] {
        let found = other
            .host
            .call(&other.acme, Ask::get(&format!("/v1/workspaces/{word}")));
        assert_eq!(found.json["workspace_id"], "beta--thing", "{word}: {found}");
    }
    let hidden = other
        .host
        .call(&other.beta, Ask::get("/v1/workspaces/called"));
    assert_eq!(hidden.status, 404, "{hidden}");
    // What one writes the other does not read.
    let path = "/v1/workspaces/thing/files/text";
    let write = json!({"path": "a.txt", "text": "of beta"});
    let wrote = other
        .host
        .call(&other.acme, Ask::new("PUT", path).body(write));
    assert_eq!(wrote.status, 200, "{wrote}");
    let read = |key: &str| {
        other
            .host
            .call(key, Ask::get(&format!("{path}?path=a.txt")))
    };
    assert!(read(&other.acme).text.contains("of beta"));
    assert_eq!(read(&other.beta).status, 404);
    // The environment of a project is started from by its short name, by that project alone.
    let from = |name: &str| Ask::post("/v1/sandboxes", json!({"environment": name}));
    let made = other.host.call(&other.acme, from("thing"));
    assert_eq!(made.json["environment"], "beta--thing", "{made}");
    for name in ["acme--thing", "template-acme--thing:0"] {
        let refused = other.host.call(&other.acme, from(name));
        assert_eq!(refused.status, 404, "{name}: {refused}");
    }
    let dockerfile = json!({"dockerfile": "FROM acme--thing\n", "name": "stolen"});
    let built = other
        .host
        .call(&other.acme, Ask::post("/v1/environments/build", dockerfile));
    assert!(!built.text.contains("\"result\""), "{built}");
    let host = other
        .host
        .call(&other.acme, Ask::new("DELETE", "/v1/environments/busybox"));
    assert_eq!(host.status, 403, "{host}");
}

#[test]
fn sessions_without_a_place_are_apart_and_what_is_gone_stays_hidden() {
    let host = Host::configured(
        "runtime = \"container\"\n[terminal]\nenvironment = \"busybox\"\n",
        "",
    );
    assert!(host.story.has_busybox());
    let (acme, beta) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "beta"]),
    );
    let open = || {
        Ask::post(
            "/v1/terminals",
            json!({"session_id": "s", "command": ["sh"]}),
        )
    };
    for (key, place) in [(&acme, "acme--terminals"), (&beta, "beta--terminals")] {
        let opened = host.call(key, open());
        assert_eq!(opened.status, 201, "{opened}");
        assert!(opened.text.contains(place), "{opened}");
    }
    let made = host.call(
        &acme,
        Ask::post("/v1/sandboxes", json!({"environment": "busybox"})),
    );
    let id = made.json["sandbox_id"].as_str().unwrap();
    let at = format!("/v1/sandboxes/{id}");
    assert_eq!(host.call(&beta, Ask::new("DELETE", &at)).status, 404);
    assert_eq!(host.call(&beta, Ask::get(&at[..at.len() - 3])).status, 404);
    assert_eq!(host.call(&acme, Ask::get(&at[..at.len() - 3])).status, 200);
    assert_eq!(host.call(&acme, Ask::new("DELETE", &at)).status, 200);
    assert_eq!(host.call(&acme, Ask::get(&at)).status, 200);
    assert_eq!(host.call(&beta, Ask::get(&at)).status, 404);
    // The log tells each project of its own calls, and nothing of what was not there for it.
    let log = host.call(&beta, Ask::get("/v1/audit?limit=1000"));
    assert!(!log.text.contains("acme"), "{log}");
    for entry in log.json["entries"].as_array().unwrap() {
        if entry["outcome"] == "not_found" {
            assert_eq!(entry["facts"], json!({}), "{entry}");
        }
    }
}

#[test]
fn quotas_count_for_each_project() {
    let host = Host::configured("runtime = \"container\"\n[quota]\nsandboxes = 1\n", "");
    assert!(host.story.has_busybox());
    let (one, two) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "acme"]),
    );
    let beta = host.key(&["--project", "beta"]);
    let create = || Ask::post("/v1/sandboxes", json!({"environment": "busybox"}));
    assert_eq!(host.call(&one, create()).status, 201);
    let over = host.call(&two, create());
    assert_eq!(over.status, 429, "{over}");
    assert_eq!(over.json["error"]["details"]["owner"], "project:acme");
    assert_eq!(host.call(&beta, create()).status, 201);
}
