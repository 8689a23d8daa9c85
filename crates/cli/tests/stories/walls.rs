//! Who may take a wall down: the table in docs/security.md, and those who try without being in it.

mod plain;

use crate::mcp::Mcp;
use motu_testkit::story::Story;
use plain::PLAIN;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const NEWER: &str = "2025-11-25";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The arguments of the table, which are the words of its first column.
fn table() -> BTreeSet<String> {
    let text = read("docs/security.md");
    let (_, table) = text.split_once("## Who may take a wall down").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let first = row.split('|').nth(1).unwrap();
        first.split('`').skip(1).step_by(2).map(String::from)
    })
    .collect()
}

/// Names of fields in a schema, and where they were found.
struct Walk<'a> {
    schemas: &'a Value,
    found: &'a mut BTreeMap<String, String>,
    seen: BTreeSet<String>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, place: &str) {
        if !schema.is_object() {
            return;
        }
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap();
            let schemas = self.schemas;
            if self.seen.insert(name.to_string()) {
                self.schema(&schemas[name], place);
            }
            return;
        }
        for several in ["allOf", "oneOf", "anyOf"] {
            for one in schema[several].as_array().into_iter().flatten() {
                self.schema(one, place);
            }
        }
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            self.found.insert(name.clone(), place.to_string());
            self.schema(below, place);
        }
        self.schema(&schema["items"], place);
        self.schema(&schema["additionalProperties"], place);
    }
}

/// Every argument of every operation of the API.
fn of_verbs(found: &mut BTreeMap<String, String>) {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let operations = document["paths"].as_object().unwrap().values();
    for operation in operations.flat_map(|path| path.as_object().unwrap().values()) {
        let place = operation["operationId"].as_str().unwrap_or_default();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap().to_string();
            found.insert(name, place.to_string());
        }
        let bodies = operation["requestBody"]["content"].as_object();
        for body in bodies.into_iter().flatten() {
            let mut walk = Walk {
                schemas: &document["components"]["schemas"],
                found,
                seen: BTreeSet::new(),
            };
            walk.schema(&body.1["schema"], place);
        }
    }
}

/// Every argument of every tool.
fn of_tools(found: &mut BTreeMap<String, String>) {
    let story = Story::new();
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    let listed = mcp.ask("tools/list", &json!({}));
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let mut walk = Walk {
            schemas: &Value::Null,
            found,
            seen: BTreeSet::new(),
        };
        walk.schema(&tool["inputSchema"], tool["name"].as_str().unwrap());
    }
}

/// Every argument of the Python SDK: those of its methods that are written by hand, and of those
/// that are made from the verbs.
fn of_python(found: &mut BTreeMap<String, String>) {
    for file in [
        "_aio/client.py",
        "_aio/sandbox.py",
        "_verbs.py",
        "server.py",
    ] {
        let text = read(&format!("sdk/python/src/motu/{file}"));
        let mut within = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some((name, rest)) = line
                .trim_start_matches("async ")
                .strip_prefix("def ")
                .and_then(|def| def.split_once('('))
            {
                within = Some(name.to_string());
                for argument in rest.split([',', ')']) {
                    put(found, argument, name, file);
                }
            } else if line.starts_with(')') {
                within = None;
            } else if let Some(name) = &within {
                put(found, line, name, file);
            }
            if line.ends_with(':') && line.contains("->") {
                within = None;
            }
        }
    }
}

/// An argument `name: type`, as a line of Python has it.
fn put(found: &mut BTreeMap<String, String>, text: &str, method: &str, file: &str) {
    let Some((name, _)) = text.trim().split_once(':') else {
        return;
    };
    let name = name.trim_start_matches('*');
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !method.starts_with('_') && !name.is_empty() && name.chars().all(is_name) {
        // A word of Python has its underscore at the end.
        let name = name.trim_end_matches('_').to_string();
        found.insert(name, format!("{file} {method}"));
    }
}

#[test]
fn every_argument_is_in_the_table_or_opens_nothing() {
    let walls = table();
    assert!(walls.contains("allow_host_compat"), "{walls:?}");
    let plain: BTreeSet<String> = PLAIN.split_whitespace().map(String::from).collect();
    let both: Vec<_> = walls.intersection(&plain).collect();
    assert!(both.is_empty(), "in the table and in the list: {both:?}");
    let mut found = BTreeMap::new();
    of_verbs(&mut found);
    let of_api = found.len();
    of_tools(&mut found);
    of_python(&mut found);
    assert!(of_api > 150 && found.len() > of_api, "{of_api} {found:?}");
    let new: Vec<_> = found
        .iter()
        .filter(|(name, _)| !walls.contains(*name) && !plain.contains(*name))
        .collect();
    assert!(
        new.is_empty(),
        "does it take a wall down? Then it goes into the table of docs/security.md with who may say it; \
         if it opens nothing, into plain.rs: {new:?}"
    );
    let gone: Vec<_> = walls
        .union(&plain)
        .filter(|name| !found.contains_key(*name))
        .collect();
    assert!(gone.is_empty(), "arguments of nothing: {gone:?}");
}

fn denied(mcp: &mut Mcp, tool: &str, arguments: &Value) {
    let result = mcp.result(tool, arguments);
    assert_eq!(
        result["structuredContent"]["kind"], "denied",
        "{tool} {arguments}: {result}"
    );
}

#[test]
fn a_model_does_not_get_the_host_by_asking_for_it() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let host = json!({"environment": "busybox", "runtime": "host", "allow_host_compat": true});
    let with = |more: Value| {
        let mut given = host.clone();
        let more = more.as_object().unwrap().clone();
        given.as_object_mut().unwrap().extend(more);
        given
    };
    let command = with(json!({"command": "id -u > proof"}));
    // Approvals were given in advance, which is not the operator's word for this.
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    denied(&mut mcp, "vm_run", &command);
    denied(&mut mcp, "vm_create", &host);
    denied(&mut mcp, "workspace_create", &host);

    let options = ["--profile", "all", "--allow-host-compat"];
    let mut free = Mcp::start(&story, &options, NEWER);
    let ran = free.call("vm_run", &with(json!({"command": "echo here"})));
    assert_eq!(
        (&ran["stdout"], &ran["isolation"]),
        (&json!("here\n"), &json!("none")),
        "{ran}"
    );
    let made = free.call("workspace_create", &host);
    let id = made["workspace_id"].as_str().unwrap().to_string();
    let named = |more: Value| {
        let mut given = json!({"workspace_id": id});
        let more = more.as_object().unwrap().clone();
        given.as_object_mut().unwrap().extend(more);
        given
    };
    let ran = free.call("workspace_exec", &named(json!({"command": "echo in it"})));
    assert_eq!(ran["stdout"], "in it\n", "{ran}");
    let opened = free.call("shell_open", &named(json!({})));
    let shell = opened["shell_id"].as_str().unwrap().to_string();

    // What is there already is not used by one that may not have made it.
    let typed = json!({"shell_id": shell, "input": "id"});
    for (tool, given) in [
        ("workspace_exec", named(json!({"command": "id"}))),
        ("workspace_file_read", named(json!({"path": "/etc/passwd"}))),
        ("workspace_logs", named(json!({}))),
        ("shell_open", named(json!({}))),
        ("shell_write", named(typed)),
        (
            "service_start",
            named(json!({"service_name": "s", "command": "sleep 9"})),
        ),
        (
            "create_session",
            json!({"session_id": "s", "sandbox_id": id}),
        ),
        ("workspace_reset", named(json!({}))),
    ] {
        denied(&mut mcp, tool, &given);
    }
    let status = mcp.call("workspace_status", &named(json!({})));
    assert_eq!(status["isolation"], "none", "{status}");
    let deleted = mcp.call("workspace_delete", &named(json!({})));
    assert_eq!(deleted["workspace_id"], id.as_str(), "{deleted}");
}

#[test]
fn a_model_names_no_path_but_below_its_directories() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let (project, keys) = (story.path().join("project"), story.path().join("keys"));
    for dir in [&project, &keys] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("a"), "text\n").unwrap();
    }
    std::os::unix::fs::symlink(&keys, project.join("link")).unwrap();
    let seed = |path: &Path| json!({"environment": "busybox", "seed_path": path});
    // Started in the home, as a desktop starts it: nothing of the host is the project.
    let mut mcp = Mcp::start(&story, &["--profile", "all"], NEWER);
    denied(&mut mcp, "workspace_create", &seed(&project));

    let options = ["--profile", "all", "--host-dir", "project"];
    let mut mcp = Mcp::start(&story, &options, NEWER);
    denied(&mut mcp, "workspace_create", &seed(&keys));
    denied(&mut mcp, "workspace_create", &seed(&project.join("link")));
    for environment in ["dir:/etc", "dir:/root", "tar:/etc/x.tar", "oci:/etc:x"] {
        let asked = json!({"environment": environment, "command": "ls"});
        denied(&mut mcp, "vm_run", &asked);
    }
    let secret = json!([{"name": "KEY", "path": keys.join("a")}]);
    let asked = json!({"environment": "busybox", "secrets": secret});
    denied(&mut mcp, "workspace_create", &asked);
    let made = mcp.call("workspace_create", &seed(&project));
    let id = made["workspace_id"].as_str().unwrap().to_string();
    let push = |path: &Path| json!({"workspace_id": id, "source_path": path});
    denied(&mut mcp, "workspace_sync_push", &push(&keys));
    let export =
        |path: PathBuf| json!({"workspace_id": id, "path": "/workspace/a", "output_path": path});
    for path in [
        keys.join("new"),
        project.join("link/new"),
        project.join("../keys/new"),
        PathBuf::from("/etc/cron.d/motu-was-here"),
    ] {
        denied(&mut mcp, "workspace_export", &export(path.clone()));
        assert!(!path.exists(), "{}", path.display());
    }
    let out = project.join("out");
    let exported = mcp.call("workspace_export", &export(out.clone()));
    assert_eq!(exported["bytes_written"], 5, "{exported}");
    assert_eq!(std::fs::read_to_string(out).unwrap(), "text\n");
}

#[test]
fn a_session_on_the_host_ends_with_the_owners_word() {
    let story = Story::new();
    story.configure("[terminal]\nhost = true\n");
    let run = |word: &str| story.motu(&["terminal", "run", "old", "echo", word]);
    let opened = story.motu(&["terminal", "open", "old", "--host"]);
    assert_eq!(opened.code, 0, "{opened}");
    let told = run("before");
    assert!(told.stdout.contains("before"), "{told}");
    assert_eq!(story.motu(&["serve", "--stop"]).code, 0);

    // The shell runs on; the operator has taken back what it was opened by.
    story.configure("[terminal]\nhost = false\n");
    for args in [
        &["terminal", "run", "old", "echo", "after"][..],
        &["terminal", "send", "old", "id", "--enter"],
        &["terminal", "screen", "old"],
        &["workspace", "exec", "terminals-host", "--", "id"],
        &["terminal", "open", "new", "--sandbox", "terminals-host"],
    ] {
        let told = story.motu(args);
        assert_eq!(told.code, 103, "{args:?}: {told}");
        assert!(told.stderr.contains("host = true"), "{args:?}: {told}");
    }
    let ended = story.motu(&["terminal", "terminate", "old"]);
    assert_eq!(ended.code, 0, "{ended}");
}
