//! One shape per kind of object: the command line, REST and MCP return the same.

use crate::mcp::Mcp;
use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

struct Faces {
    story: Story,
    mcp: Mcp,
}

/// A kind of object, and the request for it on each interface.
struct Asked<'a> {
    cli: &'a [&'a str],
    rest: &'a str,
    tool: &'a str,
    arguments: Value,
    /// Fields that only MCP returns, from its tools' contracts.
    besides: &'a [&'a str],
}

impl Faces {
    fn cli(&self, args: &[&str]) -> Value {
        let output = self.story.command(args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {output:?}"))
    }

    /// Sends one request to the daemon's socket; returns the body.
    fn rest(&self, method: &str, path: &str, body: &str) -> Value {
        let mut socket = UnixStream::connect(self.story.home().join("daemon.sock")).unwrap();
        let length = body.len();
        let request = format!(
            "{method} /v1{path} HTTP/1.1\r\nHost: motu\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {answer}"))
    }

    fn same(&mut self, asked: Asked<'_>) -> Value {
        let mut cli = self.cli(&[asked.cli, &["--json"]].concat());
        let mut rest = self.rest("GET", asked.rest, "");
        let mut mcp = self.mcp.call(asked.tool, &asked.arguments);
        besides(&mut mcp, asked.besides);
        for value in [&mut cli, &mut rest, &mut mcp] {
            settle(value);
        }
        let tool = asked.tool;
        assert_eq!(cli, rest, "{tool}: the command line and REST");
        assert_eq!(mcp, rest, "{tool}: MCP and REST");
        assert!(rest.is_object(), "{tool}: {rest}");
        rest
    }
}

/// Removes the fields that only MCP returns, wherever they are; each must be there.
fn besides(value: &mut Value, names: &[&str]) {
    for name in names {
        let taken = take(value, name);
        assert!(taken > 0, "nothing says {name}: {value}");
    }
}

fn take(value: &mut Value, name: &str) -> usize {
    match value {
        Value::Object(fields) => {
            let own = usize::from(fields.remove(name).is_some());
            own + fields
                .values_mut()
                .map(|one| take(one, name))
                .sum::<usize>()
        }
        Value::Array(items) => items.iter_mut().map(|one| take(one, name)).sum(),
        _ => 0,
    }
}

/// Replaces values that change over time by their type.
fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "last_activity_at" | "audit_id" => *value = json!(value.is_string()),
                    "duration_ms" | "cursor" => *value = json!(value.is_u64()),
                    _ => settle(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

#[test]
fn every_face_gives_the_same_object() {
    let Some(story) = Story::with_machines() else {
        return;
    };
    let here = story.path().display().to_string();
    let options = ["--profile", "all", "--host-dir", &here];
    let mcp = Mcp::start(&story, &options, "2025-11-25");
    let mut faces = Faces { story, mcp };
    let seed = faces.story.path().join("seed");
    std::fs::create_dir_all(seed.join("sub")).unwrap();
    std::fs::write(seed.join("sub/a"), "a\n").unwrap();
    let given = json!({"environment": "busybox", "seed_path": seed, "labels": {"k": "v"}});
    let made = faces.mcp.call("workspace_create", &given);
    let id = made["workspace_id"].as_str().unwrap().to_string();
    // Absent values are null, as elsewhere.
    assert_eq!(made["name"], Value::Null);
    assert_eq!(
        made.as_object().unwrap().get("expires_at"),
        Some(&Value::Null)
    );
    let at = |rest: &str| format!("/workspaces/{id}{rest}");
    let of = json!({"workspace_id": id});

    let ran = json!({"workspace_id": id, "command": "echo b > b; rm sub/a; echo out"});
    let by_mcp = faces.mcp.call("workspace_exec", &ran);
    let by_rest = faces.rest("POST", &at("/exec"), r#"{"command":["true"]}"#);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    // Words of other contracts stand beside ours there.
    let mut ours = keys(&by_mcp);
    ours.retain(|key| !["command", "cwd", "execution_mode"].contains(&key.as_str()));
    assert_eq!(ours, keys(&by_rest));
    assert_eq!(by_mcp["workspace_id"], id.as_str());

    faces.mcp.call(
        "snapshot_create",
        &json!({"workspace_id": id, "snapshot_name": "one"}),
    );
    let start = json!({
        "workspace_id": id, "service_name": "web", "command": "touch /tmp/up; echo hi; sleep 600",
        "readiness": {"type": "file", "path": "/tmp/up"},
    });
    faces.mcp.call("service_start", &start);

    workspace(&mut faces, &id);
    let snapshots = faces.same(Asked {
        cli: &["workspace", "snapshot", "list", &id],
        rest: &at("/snapshots"),
        tool: "snapshot_list",
        arguments: of.clone(),
        besides: &[],
    });
    // The seed has a directory and a file; since then one entry was removed and one was added.
    let first = &snapshots["snapshots"][0];
    assert_eq!(
        (&first["entry_count"], &first["changed_count"]),
        (&json!(2), &json!(0))
    );
    let second = &snapshots["snapshots"][1];
    assert_eq!(second["entry_count"], 2, "{second}");
    assert_eq!(second["workspace_id"], id.as_str());
    pages(&mut faces, &id);
    running(&mut faces, &id);
    at_rest(&mut faces, &id);
    machines(&mut faces);
    refusals(&mut faces);
}

/// The first page of a list, and the next one: the same on every face.
fn pages(faces: &mut Faces, id: &str) {
    let snapshots = format!("/workspaces/{id}/snapshots");
    let list = ["workspace", "snapshot", "list", id];
    let first = faces.same(Asked {
        cli: &[&list[..], &["--limit", "1"]].concat(),
        rest: &format!("{snapshots}?limit=1"),
        tool: "snapshot_list",
        arguments: json!({"workspace_id": id, "limit": 1}),
        besides: &[],
    });
    assert_eq!(first["snapshots"][0]["kind"], "baseline", "{first}");
    let cursor = first["next_cursor"].as_str().unwrap();
    let next = faces.same(Asked {
        cli: &[&list[..], &["--cursor", cursor]].concat(),
        rest: &format!("{snapshots}?cursor={cursor}"),
        tool: "snapshot_list",
        arguments: json!({"workspace_id": id, "cursor": cursor}),
        besides: &[],
    });
    assert_eq!(next["snapshots"][0]["snapshot_name"], "one", "{next}");
    assert_eq!((&next["count"], next.get("next_cursor")), (&json!(1), None));
    for (cli, rest, tool) in [
        (&["workspace", "list"][..], "/workspaces", "workspace_list"),
        (&["env", "list"], "/environments", "vm_list_environments"),
    ] {
        let page = faces.same(Asked {
            cli: &[cli, &["--limit", "1"]].concat(),
            rest: &format!("{rest}?limit=1"),
            tool,
            arguments: json!({"limit": 1}),
            besides: &[],
        });
        assert_eq!(page["count"], 1, "{page}");
    }
}

/// A workspace, alone and in a list, its files and its history.
fn workspace(faces: &mut Faces, id: &str) {
    let at = |rest: &str| format!("/workspaces/{id}{rest}");
    let of = json!({"workspace_id": id});
    for (words, rest, tool) in [
        (&["status"][..], "", "workspace_status"),
        (&["logs"], "/logs", "workspace_logs"),
    ] {
        let cli = [&["workspace"], words, &[id]].concat();
        faces.same(Asked {
            cli: &cli,
            rest: &at(rest),
            tool,
            arguments: of.clone(),
            besides: &[],
        });
    }
    faces.same(Asked {
        cli: &["workspace", "list"],
        rest: "/workspaces",
        tool: "workspace_list",
        arguments: json!({}),
        besides: &[],
    });
    faces.same(Asked {
        cli: &["workspace", "diff", id],
        rest: &at("/diff"),
        tool: "workspace_diff",
        arguments: of.clone(),
        besides: &[],
    });
    let listed = faces.same(Asked {
        cli: &["workspace", "file", "list", id],
        rest: &at("/files"),
        tool: "workspace_file_list",
        arguments: of.clone(),
        besides: &[],
    });
    let file = &listed["entries"][0];
    assert_eq!(file["mode"], "0644", "{listed}");
    assert!(
        file["modified_at"].as_str().unwrap().ends_with('Z'),
        "{listed}"
    );
    let read = faces.same(Asked {
        cli: &["workspace", "file", "read", id, "/workspace/b"],
        rest: &at("/files/text?path=/workspace/b"),
        tool: "workspace_file_read",
        arguments: json!({"workspace_id": id, "path": "/workspace/b"}),
        besides: &[],
    });
    assert_eq!(read["workspace_id"], id);
}

/// Services, whose readiness is the same object in and out, and their output.
fn running(faces: &mut Faces, id: &str) {
    let at = |rest: &str| format!("/workspaces/{id}{rest}");
    faces.same(Asked {
        cli: &["workspace", "service", "list", id],
        rest: &at("/services"),
        tool: "service_list",
        arguments: json!({"workspace_id": id}),
        besides: &[],
    });
    let web = json!({"workspace_id": id, "service_name": "web"});
    let status = faces.same(Asked {
        cli: &["workspace", "service", "status", id, "web"],
        rest: &at("/services/web"),
        tool: "service_status",
        arguments: web.clone(),
        besides: &[],
    });
    assert_eq!(
        status["readiness"],
        json!({"type": "file", "path": "/tmp/up"})
    );
    faces.same(Asked {
        cli: &["workspace", "service", "logs", id, "web"],
        rest: &at("/services/web/logs"),
        tool: "service_logs",
        arguments: web,
        besides: &[],
    });
}

/// The disk of a stopped workspace; also, each change of a workspace counts as activity.
fn at_rest(faces: &mut Faces, id: &str) {
    let mut last = faces.rest("GET", &format!("/workspaces/{id}"), "")["last_activity_at"].clone();
    let of = json!({"workspace_id": id});
    for (tool, arguments) in [
        (
            "snapshot_delete",
            json!({"workspace_id": id, "snapshot_name": "one"}),
        ),
        ("workspace_reset", of.clone()),
        ("workspace_stop", of.clone()),
        ("workspace_start", of.clone()),
        ("workspace_stop", of.clone()),
    ] {
        faces.mcp.call(tool, &arguments);
        let now = faces.rest("GET", &format!("/workspaces/{id}"), "")["last_activity_at"].clone();
        assert_ne!(now, last, "{tool} is no activity");
        last = now;
    }
    let disk = format!("/workspaces/{id}/disk/files");
    faces.same(Asked {
        cli: &["workspace", "disk", "list", id, "/workspace"],
        rest: &format!("{disk}?path=/workspace"),
        tool: "workspace_disk_list",
        arguments: of,
        besides: &[],
    });
    let file = "/workspace/sub/a";
    let read = faces.same(Asked {
        cli: &["workspace", "disk", "read", id, file],
        rest: &format!("{disk}/text?path={file}"),
        tool: "workspace_disk_read",
        arguments: json!({"workspace_id": id, "path": file}),
        besides: &[],
    });
    assert_eq!(read["workspace_id"], id);
}

/// A machine and its environment.
fn machines(faces: &mut Faces) {
    faces.same(Asked {
        cli: &["env", "list"],
        rest: "/environments",
        tool: "vm_list_environments",
        arguments: json!({}),
        besides: &[],
    });
    let made = faces
        .mcp
        .call("vm_create", &json!({"environment": "busybox"}));
    let id = made["vm_id"].as_str().unwrap().to_string();
    let listed = faces.cli(&["ps", "--json"]);
    let mut listed = listed["sandboxes"].as_array().unwrap().clone();
    listed.retain(|one| one["sandbox_id"] == id.as_str());
    let mut cli = listed.remove(0);
    let mut rest = faces.rest("GET", &format!("/sandboxes/{id}"), "");
    let mut mcp = faces.mcp.call("vm_status", &json!({"vm_id": id}));
    besides(&mut mcp, &["vm_id"]);
    for value in [&mut cli, &mut rest, &mut mcp] {
        settle(value);
    }
    assert_eq!(cli, rest);
    assert_eq!(mcp, rest);
    faces.mcp.call("vm_delete", &json!({"vm_id": id}));
}

/// Errors have one shape too.
fn refusals(faces: &mut Faces) {
    let mut rest = faces.rest("GET", "/workspaces/ws-nobody", "");
    let mut mcp = faces
        .mcp
        .call("workspace_status", &json!({"workspace_id": "ws-nobody"}));
    // Each call has its own id in the audit log.
    settle(&mut rest);
    settle(&mut mcp);
    // The steps are the same; each interface words them in its own way.
    let mut rest = rest["error"].clone();
    let words = [&mut mcp, &mut rest].map(|value| value["hint"].take());
    assert_eq!(words[0], "`workspace_list` shows them");
    assert_eq!(
        words[1],
        "`GET /v1/workspaces` (list_workspaces) shows them"
    );
    assert_eq!(mcp, rest);
    assert_eq!(mcp["details"]["audit_id"], true);
    assert_eq!(mcp["kind"], "not_found");
}
