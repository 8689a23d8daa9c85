//! Named processes that stay.

use super::{SECRET_ENV, WORKSPACE_ID, count, line, secret_env};
use crate::OUTPUT_BUDGET;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::cut;
use crate::progress::Seen;
use crate::schema::{Field, command, flag, limited, nested, text};
use crate::tool::{Effect, Tool, run};
use motu_core::shown::misread;
use motu_core::workspace::{
    LogOptions, Publish, Readiness, ServiceLogs, ServiceStatus, StartService,
};
use motu_core::{Error, Result as Outcome, limits};
use serde_json::{Value, json};

const SERVICE_NAME: Field = text("service_name", 64).required();
const SERVICE: &[(&str, &str)] = &[
    ("workspace_id", "string"),
    ("service_name", "string"),
    ("state", "string"),
    ("reason", "string"),
    ("exit_code", "integer"),
    ("published_ports", "array"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "service_start",
        verb: "start_service",
        about: "Start a named process that runs on (a server, a watcher) in a running workspace, and wait \
                until it is ready. Example: {\"workspace_id\": \"ws-1\", \"service_name\": \"web\", \
                \"command\": \"python3 -m http.server 8000\", \"readiness\": {\"type\": \"tcp\", \"port\": \
                8000}}",
        fields: &[
            WORKSPACE_ID,
            SERVICE_NAME,
            command(),
            text("cwd", limits::PATH_BYTES.max).usually("/workspace"),
            nested(
                "readiness",
                r#"{"type":"object","properties":{"type":{"type":"string","enum":["file","tcp","http","command","log"]},"path":{"type":"string"},"port":{"type":"integer","minimum":1,"maximum":65535},"command":{"type":"string"},"pattern":{"type":"string"}},"required":["type"],"description":"file: path; tcp: port; http: port, path; command: command; log: pattern."}"#,
            ),
            text("ready_file", limits::PATH_BYTES.max),
            text("ready_tcp", 255),
            text("ready_http", 2048),
            text("ready_command", 4096),
            limited("ready_timeout_seconds", &limits::READY_TIMEOUT_SECONDS),
            limited("ready_interval_ms", &limits::READY_INTERVAL_MS),
            SECRET_ENV,
            nested(
                "published_ports",
                r#"{"type":"array","maxItems":16,"items":{"type":"object","properties":{"guest_port":{"type":"integer","minimum":1,"maximum":65535},"host_port":{"type":"integer","minimum":1024,"maximum":65535}},"required":["guest_port"]},"description":"Reached on 127.0.0.1 of the host; needs network_policy egress+published-ports."}"#,
            ),
        ],
        output: SERVICE,
        effect: Effect::Runs,
        run: run!(start),
    },
    Tool {
        name: "service_list",
        verb: "list_services",
        about: "List the services of a workspace.",
        fields: &[WORKSPACE_ID],
        output: &[
            ("workspace_id", "string"),
            ("count", "integer"),
            ("services", "array"),
        ],
        effect: Effect::Reads,
        run: run!(list),
    },
    Tool {
        name: "service_status",
        verb: "status_service",
        about: "Show one service: its state, why it ended, its ports.",
        fields: &[WORKSPACE_ID, SERVICE_NAME],
        output: SERVICE,
        effect: Effect::Reads,
        run: run!(status),
    },
    Tool {
        name: "service_logs",
        verb: "logs_service",
        about: "Show the last lines a service printed.",
        fields: &[
            WORKSPACE_ID,
            SERVICE_NAME,
            limited("tail_lines", &limits::SERVICE_TAIL_LINES),
            flag("all").about("Everything that is kept."),
        ],
        output: &[
            ("stdout", "string"),
            ("stderr", "string"),
            ("truncated", "boolean"),
            ("rest", "string"),
        ],
        effect: Effect::Reads,
        run: run!(logs),
    },
    Tool {
        name: "service_stop",
        verb: "stop_service",
        about: "Stop a service and all it started.",
        fields: &[WORKSPACE_ID, SERVICE_NAME],
        output: SERVICE,
        effect: Effect::Destroys,
        run: run!(stop),
    },
];

fn row(one: &ServiceStatus) -> String {
    let mut text = format!("{} is {}", one.service_name, one.state.as_str());
    if let Some(reason) = &one.reason {
        text.push_str(&format!(": {reason}"));
    }
    for port in &one.published_ports {
        text.push_str(&format!(
            ", {} at {}:{}",
            port.guest_port, port.host, port.host_port
        ));
    }
    text + "\n"
}

fn shown(service: &ServiceStatus) -> Answer {
    Answer::new(row(service), service)
}

/// What shows that a service is ready: an object, or one of the fields that say the same.
fn readiness(arguments: &Arguments) -> Outcome<Option<Readiness>> {
    let short = [
        ("ready_file", "file", "path"),
        ("ready_tcp", "tcp", "address"),
        ("ready_http", "http", "url"),
        ("ready_command", "command", "command"),
    ];
    let given = short.into_iter().filter_map(|(field, kind, name)| {
        let value = arguments.text(field)?;
        // A port alone is no address.
        match (kind, value.parse::<u16>()) {
            ("tcp", Ok(port)) => Some(json!({"type": kind, "port": port})),
            _ => Some(json!({"type": kind, name: value})),
        }
    });
    let given: Vec<Value> = given.collect();
    match (arguments.nested("readiness")?, &given[..]) {
        (readiness, []) => Ok(readiness),
        (None, [one]) => serde_json::from_value(one.clone())
            .map(Some)
            .map_err(|mistake| Error::invalid(misread(mistake))),
        _ => Err(Error::invalid(
            "what shows that the service is ready is given twice",
        )),
    }
}

async fn start(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let ports: Option<Vec<Publish>> = arguments.nested("published_ports")?;
    let program = arguments.program();
    let request = StartService {
        service_name: arguments.text_or("service_name", ""),
        command: program.command,
        mode: program.mode,
        cwd: arguments.text("cwd"),
        secret_env: secret_env(&arguments),
        readiness: readiness(&arguments)?,
        ready_timeout_seconds: arguments.integer("ready_timeout_seconds"),
        ready_interval_ms: arguments.integer("ready_interval_ms"),
        published_ports: ports.unwrap_or_default(),
        ..StartService::default()
    };
    let seen = Seen::default();
    seen.step("waiting until it is ready".to_string());
    let work = call.service().start_service(&id, request);
    Ok(shown(&call.told(&seen, work).await?))
}

async fn list(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let all = call
        .service()
        .list_services(&arguments.workspace()?)
        .await?;
    let mut text = count(all.len() as u64, "service") + "\n";
    text.extend(all.iter().map(row));
    Ok(Answer::new(text, &all))
}

async fn status(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let name = arguments.text_or("service_name", "");
    let id = arguments.workspace()?;
    Ok(shown(&call.service().status_service(&id, &name).await?))
}

/// Both channels of a service as text.
pub fn log(logs: &ServiceLogs) -> String {
    let mut text = logs.stdout.clone();
    line(&mut text);
    if !logs.stderr.is_empty() {
        text.push_str("[stderr]\n");
        text.push_str(&logs.stderr);
        line(&mut text);
    }
    text
}

async fn logs(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let name = arguments.text_or("service_name", "");
    let options = LogOptions {
        tail_lines: arguments.integer("tail_lines"),
        all: arguments.flag("all"),
    };
    let mut logs = call.service().logs_service(&id, &name, options).await?;
    let stdout = cut::middle(&logs.stdout, OUTPUT_BUDGET / 2);
    let stderr = cut::middle(&logs.stderr, OUTPUT_BUDGET / 2);
    let cut = stdout.missing + stderr.missing > 0;
    (logs.stdout, logs.stderr) = (stdout.text, stderr.text);
    logs.truncated |= cut;
    let mut answer = Answer::new(log(&logs), &logs);
    if cut {
        let uri = format!("motu://workspaces/{id}/services/{name}/logs");
        answer
            .text
            .push_str(&format!("[all of it: resource {uri}]\n"));
        answer.structured["rest"] = uri.into();
    }
    if answer.text.is_empty() {
        answer.text.push_str("nothing printed yet");
    }
    Ok(answer)
}

async fn stop(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let name = arguments.text_or("service_name", "");
    let id = arguments.workspace()?;
    Ok(shown(&call.service().stop_service(&id, &name).await?))
}
