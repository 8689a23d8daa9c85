//! Capsules and snapshots in the document: addresses that are no verbs of their own.

use super::{Document, answer, content, path_parameters, query_parameters};
use crate::capsules::shapes::{
    Capsule, CapsuleAt, Entry, NewCapsule, NewCommand, NewSnapshot, Point, Ran, Running, Saved,
    Snapshotted, Started, Status,
};
use crate::capsules::usage::{Day, Now, Peaks, Range, Series, Stats, Usage};
use motu_core::exec::{Attach, SignalProcess};
use motu_core::form;
use motu_core::metrics::ReadMetrics;
use motu_core::verb::{self, Info, Verb};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The tag of these addresses.
pub const FAMILY: (&str, &str) = (
    "capsules",
    "Sandboxes in the shape of host agents, and templates as snapshots.",
);

/// One address and method.
struct At<'a> {
    path: &'a str,
    method: &'a str,
    name: &'static str,
    about: &'static str,
    status: u16,
    parameters: Vec<Value>,
}

impl Document {
    pub(super) fn capsules(&mut self) {
        self.refer::<Status>();
        self.capsule_life();
        self.capsule_figures();
        self.capsule_commands();
        self.capsule_files();
        self.snapshots();
        self.capsule_sockets();
    }

    fn at(&mut self, at: At<'_>, success: Value, request: Option<Value>) {
        let info = Info {
            name: at.name,
            family: FAMILY.0,
            about: at.about,
            status: at.status,
            ..verb::GetSandbox::INFO
        };
        let mut operation = self.operation(&info, at.name, success);
        if !at.parameters.is_empty() {
            operation["parameters"] = Value::Array(at.parameters);
        }
        if let Some(content) = request {
            operation["requestBody"] = json!({"content": content, "required": true});
        }
        self.add(at.path, at.method, operation);
    }

    /// A request in JSON that takes nothing but its fields.
    fn asked<T: ToSchema>(&mut self) -> Option<Value> {
        let schema = self.refer::<T>();
        self.requests.insert(T::name().to_string());
        Some(content("application/json", &schema))
    }

    /// An object of these fields.
    fn object(&self, fields: &[(&str, Value)]) -> Value {
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let fields: serde_json::Map<String, Value> = fields
            .iter()
            .map(|(name, schema)| (name.to_string(), schema.clone()))
            .collect();
        let schema = json!({"type": "object", "properties": fields, "required": names});
        json!({"description": "Done.", "content": content("application/json", &schema)})
    }

    fn capsule_life(&mut self) {
        let one = || path_parameters::<verb::GetSandbox>();
        let (made, all) = (
            self.json_answer::<Capsule>(),
            self.json_answer::<Vec<Capsule>>(),
        );
        let request = self.asked::<NewCapsule>();
        let rows: [(&str, &str, &'static str, &'static str, u16, bool); 7] = [
            (
                "/v1/capsules",
                "post",
                "create_capsule",
                "Make a capsule\n\n`template` is a template, or else an environment, which is pulled if it must be. It lives until it is destroyed.",
                202,
                false,
            ),
            (
                "/v1/capsules",
                "get",
                "list_capsules",
                "Every capsule\n\nThose that were made here and have not failed.",
                200,
                false,
            ),
            (
                "/v1/capsules/{id}",
                "get",
                "get_capsule",
                "One capsule",
                200,
                true,
            ),
            (
                "/v1/capsules/{id}",
                "delete",
                "destroy_capsule",
                "Destroy a capsule",
                202,
                true,
            ),
            (
                "/v1/capsules/{id}/pause",
                "post",
                "pause_capsule",
                "Stop the clock of a capsule",
                202,
                true,
            ),
            (
                "/v1/capsules/{id}/resume",
                "post",
                "resume_capsule",
                "Let a capsule go on",
                202,
                true,
            ),
            (
                "/v1/capsules/{id}/ping",
                "post",
                "ping_capsule",
                "Count a use of a capsule",
                204,
                true,
            ),
        ];
        for (path, method, name, about, status, with_id) in rows {
            let success = match (name, status) {
                ("list_capsules", _) => all.clone(),
                ("destroy_capsule", _) | (_, 204) => answer("Done."),
                _ => made.clone(),
            };
            let at = At {
                path,
                method,
                name,
                about,
                status,
                parameters: if with_id { one() } else { Vec::new() },
            };
            let request = request.clone().filter(|_| name == "create_capsule");
            self.at(at, success, request);
        }
    }

    /// What all capsules of a caller have taken.
    fn capsule_figures(&mut self) {
        self.refer::<Range>();
        self.refer::<Now>();
        self.refer::<Peaks>();
        self.refer::<Series>();
        self.refer::<Day>();
        let (stats, usage) = (self.json_answer::<Stats>(), self.json_answer::<Usage>());
        let range = json!({"type": "string", "enum": ["5m", "1h", "6h", "24h", "30d"]});
        let range = json!({
            "name": "range", "in": "query", "required": false, "schema": range,
            "description": "How far back; default `1h`",
        });
        let at = At {
            path: "/v1/capsules/stats",
            method: "get",
            name: "capsule_stats",
            about: "How many capsules run, and how many ran when\n\nAs far back as events and removed sandboxes are remembered.",
            status: 200,
            parameters: vec![range],
        };
        self.at(at, stats, None);
        let day = |name: &str, about: &str| {
            json!({
                "name": name, "in": "query", "required": false, "description": about,
                "schema": {"type": "string", "format": "date"},
            })
        };
        let at = At {
            path: "/v1/capsules/usage",
            method: "get",
            name: "capsule_usage",
            about: "Minutes of processors and memory, day by day\n\nDays are those of UTC, at most 92.",
            status: 200,
            parameters: vec![
                day(
                    "from",
                    "The first day; 30 days before the last when missing",
                ),
                day("to", "The last day; today when missing"),
            ],
        };
        self.at(at, usage, None);
    }

    fn capsule_commands(&mut self) {
        let one = || path_parameters::<verb::GetSandbox>();
        let (ran, begun) = (self.json_answer::<Ran>(), self.json_answer::<Started>());
        let at = At {
            path: "/v1/capsules/{id}/exec",
            method: "post",
            name: "exec_capsule",
            about: "Run a command\n\nWith `background` it is answered when it has begun. One whose time is over is an error, whose `details` have what it printed; so is a `cwd` that is no directory.",
            status: 200,
            parameters: one(),
        };
        let request = self.asked::<NewCommand>();
        self.at(at, ran, request);
        if let Some(exec) = self.paths.get_mut("/v1/capsules/{id}/exec") {
            exec["post"]["responses"]["202"] = begun;
        }
        let processes = self.refer::<Vec<Running>>();
        let processes = self.object(&[("processes", processes)]);
        let at = At {
            path: "/v1/capsules/{id}/processes",
            method: "get",
            name: "list_capsule_processes",
            about: "The processes that run",
            status: 200,
            parameters: one(),
        };
        self.at(at, processes, None);
        let mut parameters = path_parameters::<verb::SignalOne>();
        let signal = query_parameters::<SignalProcess>().into_iter();
        let signal = signal.filter(|one| one["name"] == "signal");
        parameters.extend(signal.map(|mut one| {
            one["required"] = json!(false);
            one
        }));
        let at = At {
            path: "/v1/capsules/{id}/processes/{selector}",
            method: "delete",
            name: "kill_capsule_process",
            about: "End a process\n\nA signal, which is `KILL` unless another is asked for.",
            status: 204,
            parameters,
        };
        self.at(at, answer("Done."), None);
        let points = self.refer::<Vec<Point>>();
        let text = json!({"type": "string"});
        let fields = [
            ("sandbox_id", text.clone()),
            ("range", text),
            ("points", points),
        ];
        let points = self.object(&fields);
        let mut parameters = one();
        parameters.extend(query_parameters::<ReadMetrics>());
        let at = At {
            path: "/v1/capsules/{id}/metrics",
            method: "get",
            name: "capsule_metrics",
            about: "What it used, over time",
            status: 200,
            parameters,
        };
        self.at(at, points, None);
    }

    fn capsule_files(&mut self) {
        let one = || path_parameters::<verb::GetSandbox>();
        let request = self.asked::<CapsuleAt>();
        let entry = self.refer::<Entry>();
        let made = self.object(&[("entry", entry.clone())]);
        let entries = json!({"type": "array", "items": entry});
        let listed = self.object(&[
            ("entries", entries),
            ("truncated", json!({"type": "boolean"})),
        ]);
        let bytes = json!({"type": "string", "format": "binary"});
        let whole = json!({
            "description": "Done.", "content": content("application/octet-stream", &bytes),
        });
        let rows: [(&str, &'static str, &'static str, u16, Value); 5] = [
            (
                "read",
                "read_capsule_file",
                "The contents of a file",
                200,
                whole.clone(),
            ),
            (
                "stream/read",
                "stream_capsule_file",
                "The contents of a file, as `files/read`",
                200,
                whole,
            ),
            (
                "list",
                "list_capsule_files",
                "What is in a directory",
                200,
                listed,
            ),
            (
                "mkdir",
                "make_capsule_directory",
                "Make a directory, and those above it",
                200,
                made,
            ),
            (
                "remove",
                "remove_capsule_file",
                "Remove a file, or a directory with what is in it",
                204,
                answer("Done."),
            ),
        ];
        for (word, name, about, status, success) in rows {
            let path = format!("/v1/capsules/{{id}}/files/{word}");
            let at = At {
                path: &path,
                method: "post",
                name,
                about,
                status,
                parameters: one(),
            };
            self.at(at, success, request.clone());
        }
        let form = json!({
            "type": "object",
            "properties": {"path": {"type": "string", "pattern": form::GUEST_PATH}, "file": bytes},
            "required": ["path", "file"],
        });
        let mut write = content("multipart/form-data", &form);
        write["application/octet-stream"] = json!({"schema": bytes});
        let mut parameters = one();
        parameters.push(json!({
            "name": "path", "in": "query", "required": false,
            "schema": {"type": "string", "pattern": form::GUEST_PATH},
            "description": "The path, where the body is the contents alone",
        }));
        for (path, name, about) in [
            (
                "/v1/capsules/{id}/files/write",
                "write_capsule_file",
                "Write a file\n\nA form with `path` and then `file`, or the contents with `path` in the query. A file of at most 16 MiB may come before its path.",
            ),
            (
                "/v1/capsules/{id}/files/stream/write",
                "stream_into_capsule_file",
                "Write a file, as `files/write`",
            ),
        ] {
            let at = At {
                path,
                method: "post",
                name,
                about,
                status: 204,
                parameters: parameters.clone(),
            };
            self.at(at, answer("Done."), Some(write.clone()));
        }
    }

    fn snapshots(&mut self) {
        let (saved, all) = (
            self.json_answer::<Snapshotted>(),
            self.json_answer::<Vec<Saved>>(),
        );
        let request = self.asked::<NewSnapshot>();
        let at = |path, method, name, about, status, parameters| At {
            path,
            method,
            name,
            about,
            status,
            parameters,
        };
        let create = at(
            "/v1/snapshots",
            "post",
            "save_capsule",
            "Save a capsule as a template\n\nWith its memory where the runtime can; it goes on. The answer comes when it is saved.",
            202,
            Vec::new(),
        );
        self.at(create, saved, request);
        let list = at(
            "/v1/snapshots",
            "get",
            "list_saved_capsules",
            "Every template",
            200,
            vec![json!({
                "name": "type", "in": "query", "required": false,
                "schema": {"type": "string", "enum": ["base", "snapshot"]},
                "description": "Only those that were defined, or only those that were saved",
            })],
        );
        self.at(list, all, None);
        let name = path_parameters::<verb::GetTemplate>();
        let remove = at(
            "/v1/snapshots/{name}",
            "delete",
            "remove_saved_capsule",
            "Remove a template that nothing came from",
            204,
            name,
        );
        self.at(remove, answer("Done."), None);
    }

    /// What happens to capsules, and their WebSockets.
    fn capsule_sockets(&mut self) {
        let events = json!({
            "description": "Events, for as long as the client listens.",
            "content": content("text/event-stream", &json!({"type": "string"})),
        });
        let at = At {
            path: "/v1/events/stream",
            method: "get",
            name: "capsule_events",
            about: "What happens to capsules from now on\n\nServer-sent events: `connected` first, then `capsule.create`, `capsule.pause`, `capsule.resume`, `capsule.destroy`, `capsule.state.changed`, `host.up` and `host.down`, with the capsule as `sandbox`.",
            status: 200,
            parameters: Vec::new(),
        };
        self.at(at, events, None);
        let rows: [(&str, &'static str, &'static str); 3] = [
            (
                "/v1/capsules/{id}/exec/stream",
                "exec_capsule_ws",
                "Run a command over a WebSocket\n\nMessages are JSON. The first is `{\"type\": \"start\"}` with the fields of a `CapsuleCommand`; `{\"type\": \"stop\"}` or leaving ends the command. Answers have the types `start` (`pid`), `stdout` and `stderr` (`data`; `encoding` is `base64` where it is no text; `from` and `to`: which bytes of the channel), `exit` (`exit_code`) and `error`.",
            ),
            (
                "/v1/capsules/{id}/pty",
                "open_capsule_pty_ws",
                "A program on a terminal over a WebSocket\n\nMessages are JSON. The first is `{\"type\": \"start\"}` with the fields of a `CapsuleTerminal`, or `{\"type\": \"connect\", \"tag\": …}`, with `stdout_from` to go on at that byte of its output. Binary messages are what is typed, and what is printed; text messages are `resize` (`cols`, `rows`), `kill`, `pong` and `input` (`data` in base64). Answers in JSON have the types `started` (`tag`, `pid`, `from`: the byte at which the output begins), `gap`, `exit`, `error` and `ping`. With `\"encoding\": \"base64\"` in the first message output is JSON, too: `output` (`data` in base64, `from`, `to`). Leaving ends nothing.",
            ),
            (
                "/v1/capsules/{id}/processes/{selector}/stream",
                "follow_capsule_process_ws",
                "Follow a process over a WebSocket\n\nThe answers of `exec_capsule_ws` and `gap`, from the oldest output that is kept, or from where the query says. Leaving ends nothing.",
            ),
        ];
        self.refer::<crate::capsules::shapes::Encoding>();
        self.refer::<crate::capsules::shapes::NewTerminal>();
        for (path, name, about) in rows {
            let parameters = match path.contains("{selector}") {
                true => {
                    let mut parameters = path_parameters::<verb::SignalOne>();
                    parameters.extend(query_parameters::<Attach>());
                    parameters
                }
                false => path_parameters::<verb::GetSandbox>(),
            };
            let at = At {
                path,
                method: "get",
                name,
                about,
                status: 101,
                parameters,
            };
            self.at(at, answer("Messages of JSON."), None);
        }
    }
}
