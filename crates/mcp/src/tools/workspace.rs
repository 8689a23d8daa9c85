//! Workspaces: their life, their commands and their history.

use super::command::{self, OUTPUT};
use super::environment::{has_network, installed, named};
use super::{ALLOW_HOST_COMPAT, ENVIRONMENT, MAX_OUTPUT_BYTES, MEM_MIB, TEMPLATE};
use super::{CURSOR, LIMIT, ROWS, count, host_path, line, more, page, secret_env, secret_refs};
use super::{
    ISOLATION, RUNTIME, SECRET_ENV, SECRET_REFS, TIMEOUT_SECONDS, VCPU_COUNT, WORKSPACE_ID,
};
use crate::OUTPUT_BUDGET;
use crate::answer::{Answer, value};
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::cut;
use crate::progress::Seen;
use crate::schema::{
    Field, command as command_field, flag, integer, map, nested, one_of, text, texts,
};
use crate::tool::{Effect, Tool, run};
use motu_core::limits;
use motu_core::workspace::{
    CommandRecord, CreateWorkspace, NetworkPolicy, ResetTo, Undo, UpdateWorkspace, Workspace,
    WorkspaceExec,
};
use motu_core::{Isolation, Result as Outcome, Size, workspace::WorkspaceSummary};
use serde_json::json;

const NAME: Field = text("name", limits::NAME_CHARS.max);
const LABELS: Field = map("labels", limits::LABELS.max);

const WORKSPACE: &[(&str, &str)] = &[
    ("workspace_id", "string"),
    ("state", "string"),
    ("name", "string?"),
    ("environment", "string"),
    ("isolation", "string"),
    ("network_policy", "string"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "workspace_create",
        verb: "create_workspace",
        about: "Make a persistent isolated machine with files in /workspace; it stays until \
                workspace_delete. Keep the workspace_id it answers with. Example: {\"seed_path\": \
                \"/home/me/project\", \"name\": \"fix-login\"}, then workspace_exec.",
        fields: &[
            ENVIRONMENT,
            TEMPLATE,
            text("seed_path", limits::PATH_BYTES.max)
                .about("Host directory or .tar(.gz) to copy into /workspace."),
            NAME,
            LABELS,
            one_of("network_policy", &NetworkPolicy::NAMES).usually("off"),
            text("policy", 64)
                .about("What it may reach, by the name of a policy, such as packages."),
            nested(
                "secrets",
                r#"{"type":"array","maxItems":64,"items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"},"path":{"type":"string"}},"required":["name"]},"description":"Each by value, or by the path of a file of the host. Used with secret_env; never shown again."}"#,
            ),
            SECRET_REFS,
            VCPU_COUNT,
            MEM_MIB,
            ISOLATION,
            RUNTIME,
            ALLOW_HOST_COMPAT,
            integer(
                "ttl_seconds",
                limits::WORKSPACE_TTL_SECONDS.min,
                limits::WORKSPACE_TTL_SECONDS.max,
            )
            .about("Delete it after so long; 0 or missing: never."),
            flag("checkpoint").about("Save /workspace before each command, for workspace_undo."),
        ],
        output: WORKSPACE,
        effect: Effect::Changes,
        run: run!(create),
    },
    Tool {
        name: "workspace_list",
        verb: "list_workspaces",
        about: "List workspaces, the last used first, or by id in pages. Use it to find one again.",
        fields: &[LIMIT, CURSOR],
        output: &[
            ("count", "integer"),
            ("workspaces", "array"),
            ("next_cursor", "string?"),
        ],
        effect: Effect::Reads,
        run: run!(list),
    },
    Tool {
        name: "workspace_status",
        verb: "status_workspace",
        about: "Show one workspace: state, network, services, snapshots.",
        fields: &[WORKSPACE_ID],
        output: WORKSPACE,
        effect: Effect::Reads,
        run: run!(status),
    },
    Tool {
        name: "workspace_update",
        verb: "update_workspace",
        about: "Change a workspace's name and labels.",
        fields: &[
            WORKSPACE_ID,
            NAME,
            flag("clear_name"),
            LABELS,
            texts("clear_labels", limits::LABELS.max).about("Keys to remove."),
        ],
        output: WORKSPACE,
        effect: Effect::Settles,
        run: run!(update),
    },
    Tool {
        name: "workspace_exec",
        verb: "exec_workspace_stream",
        about: "Run a shell script in /workspace and wait for it; changes stay. For servers use a service \
                or `&`. Example: {\"workspace_id\": \"ws-1\", \"command\": \"make test\", \
                \"timeout_seconds\": 300}",
        fields: &[
            WORKSPACE_ID,
            command_field(),
            TIMEOUT_SECONDS,
            SECRET_ENV,
            MAX_OUTPUT_BYTES,
            flag("checkpoint").about("Save /workspace first, for workspace_undo."),
        ],
        output: OUTPUT,
        effect: Effect::Runs,
        run: run!(exec),
    },
    Tool {
        name: "workspace_logs",
        verb: "logs_workspace",
        about: "Show the commands a workspace has run since it was made or reset, with their output.",
        fields: &[WORKSPACE_ID],
        output: &[
            ("count", "integer"),
            ("entries", "array"),
            ("truncated", "boolean"),
            ("rest", "string"),
        ],
        effect: Effect::Reads,
        run: run!(logs),
    },
    Tool {
        name: "workspace_stop",
        verb: "stop_workspace",
        about: "Stop a workspace's machine. Files, snapshots and history stay; running processes end.",
        fields: &[WORKSPACE_ID],
        output: WORKSPACE,
        effect: Effect::Settles,
        run: run!(stop),
    },
    Tool {
        name: "workspace_start",
        verb: "start_workspace",
        about: "Start a stopped workspace with the files it had.",
        fields: &[WORKSPACE_ID],
        output: WORKSPACE,
        effect: Effect::Settles,
        run: run!(start),
    },
    Tool {
        name: "workspace_reset",
        verb: "reset_workspace",
        about: "Make the machine anew with /workspace as it was at first, or in a snapshot. Other changes, \
                processes and history are lost.",
        fields: &[
            WORKSPACE_ID,
            text("snapshot", limits::SNAPSHOT_NAME_CHARS.max).usually("baseline"),
        ],
        output: WORKSPACE,
        effect: Effect::Destroys,
        run: run!(reset),
    },
    Tool {
        name: "workspace_undo",
        verb: "undo_workspace",
        about: "Take the last commands back that ran with a checkpoint: /workspace is as it was before \
                them. The machine and its services go on.",
        fields: &[
            WORKSPACE_ID,
            integer("steps", 1, limits::CHECKPOINTS.max).usually_number(1),
        ],
        output: &[
            ("steps", "integer"),
            ("commands", "array"),
            ("restored_count", "integer"),
            ("removed_count", "integer"),
            ("checkpoint_count", "integer"),
        ],
        effect: Effect::Destroys,
        run: run!(undo),
    },
    Tool {
        name: "workspace_delete",
        verb: "delete_workspace",
        about: "Delete a workspace and all in it. Export what matters first.",
        fields: &[WORKSPACE_ID],
        output: WORKSPACE,
        effect: Effect::Destroys,
        run: run!(delete),
    },
];

/// One workspace, in a line and as a value.
fn shown(workspace: &Workspace) -> Answer {
    let mut text = format!("{} is {}", workspace.workspace_id, workspace.state);
    if let Some(name) = &workspace.name {
        text.push_str(&format!(" ({name})"));
    }
    text.push_str(&format!(
        ": {}, {} isolation, network {}, {} in /workspace's seed, {}, {}, {} running, {}",
        workspace.environment,
        workspace.isolation,
        workspace.network_policy,
        count(workspace.workspace_seed.entry_count, "entry").replace("entrys", "entries"),
        count(workspace.command_count, "command"),
        count(workspace.service_count, "service"),
        workspace.running_service_count,
        count(workspace.snapshot_count, "snapshot"),
    ));
    if let Some(policy) = &workspace.policy {
        text.push_str(&format!(", policy {policy}"));
    }
    if let Some(reason) = &workspace.reason {
        text.push_str(&format!("\n{reason}"));
    }
    Answer::new(text, workspace)
}

fn asked(arguments: &Arguments) -> Outcome<CreateWorkspace> {
    let seed = arguments.text("seed_path");
    let policy = arguments.text("network_policy");
    Ok(CreateWorkspace {
        environment: named(arguments, arguments.text("template").as_deref()),
        template: arguments.text("template"),
        seed_path: seed.as_deref().map(host_path).transpose()?,
        name: arguments.text("name"),
        labels: arguments.map("labels"),
        network_policy: policy.map_or(Ok(NetworkPolicy::Off), |policy| policy.parse())?,
        policy: arguments.text("policy"),
        secrets: arguments.nested("secrets")?.unwrap_or_default(),
        secret_refs: secret_refs(arguments),
        size: Size {
            vcpu_count: arguments.integer("vcpu_count"),
            mem_mib: arguments.integer("mem_mib"),
            ..Size::default()
        },
        allow_host_compat: arguments.flag("allow_host_compat"),
        ttl_seconds: arguments.integer("ttl_seconds"),
        checkpoint: arguments.flag("checkpoint"),
        isolation: arguments.isolation()?,
        runtime: arguments.text("runtime"),
        ..CreateWorkspace::default()
    })
}

async fn create(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = asked(&arguments)?;
    let network = if request.network_policy != NetworkPolicy::Off || request.policy.is_some() {
        let policy = request.policy.as_deref();
        let policy = policy.unwrap_or(request.network_policy.as_str());
        Some(format!(
            "Make a workspace with the network policy {policy}?"
        ))
    } else if has_network(call, request.template.as_deref()).await? {
        Some("Make a workspace with the network of its template?".to_string())
    } else {
        None
    };
    call.approve_made(request.allow_host_compat, network)
        .await?;
    let seen = Seen::default();
    let make = || call.service().create_workspace(request.clone());
    let work = installed(call, &seen, &request.environment, make);
    Ok(shown(&call.told(&seen, work).await?))
}

fn row(one: &WorkspaceSummary) -> String {
    let name = one.name.as_deref().unwrap_or("-");
    let labels: Vec<String> = one
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!(
        "{} {} {} {} last used {} {}",
        one.workspace_id,
        one.state,
        name,
        one.environment,
        one.last_activity_at,
        labels.join(",")
    )
    .trim_end()
    .to_string()
        + "\n"
}

async fn list(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let mut all = call.service().list_workspaces(page(&arguments)).await?;
    let mut text = count(all.len() as u64, "workspace") + "\n";
    text.extend(all.iter().take(ROWS).map(row));
    if all.len() > ROWS {
        text.push_str("[there are more: ask for pages with limit]\n");
    }
    all.workspaces.truncate(ROWS);
    more(&mut text, all.next_cursor.as_deref());
    Ok(Answer::new(text, &all))
}

async fn status(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    Ok(shown(
        &call
            .service()
            .status_workspace(&arguments.workspace()?)
            .await?,
    ))
}

async fn update(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let update = UpdateWorkspace {
        name: arguments.text("name"),
        clear_name: arguments.flag("clear_name"),
        labels: arguments.map("labels"),
        clear_labels: arguments.texts("clear_labels"),
    };
    let id = arguments.workspace()?;
    Ok(shown(&call.service().update_workspace(&id, update).await?))
}

async fn exec(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let request = WorkspaceExec {
        program: arguments.program(),
        secret_env: secret_env(&arguments),
        checkpoint: arguments.flag_maybe("checkpoint"),
    };
    let seen = Seen::default();
    let work = async {
        let session = call.service().exec_workspace_stream(&id, request).await?;
        let within = call.service().get_sandbox(&id).await?;
        let collector = command::collector()?.within(within).of_workspace();
        command::ended(session, collector, &seen).await
    };
    let result = call.told(&seen, work).await?;
    let budget = arguments.integer("max_output_bytes");
    let mode = match result.isolation {
        Isolation::None => "host_compat",
        _ => "guest_vsock",
    };
    Ok(command::answer(call, result, budget)
        .with("command", arguments.command_line())
        .with("cwd", motu_core::workspace::WORKSPACE)
        .with("execution_mode", mode))
}

/// One command of the history as text.
pub fn record(record: &CommandRecord) -> String {
    let code = record
        .exit_code
        .map(|code| format!(" {code}"))
        .unwrap_or_default();
    let mut text = format!(
        "#{} $ {}\n[{}{code} after {} ms]\n",
        record.sequence,
        record.command.join(" "),
        record.status,
        record.duration_ms
    );
    text.push_str(&record.stdout);
    line(&mut text);
    if !record.stderr.is_empty() {
        text.push_str("[stderr]\n");
        text.push_str(&record.stderr);
        line(&mut text);
    }
    text
}

async fn logs(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let log = call.service().logs_workspace(&id).await?;
    // The newest entries that fit; the others are available through the handle.
    let mut kept: Vec<String> = Vec::new();
    let mut room = OUTPUT_BUDGET;
    for entry in log.entries.iter().rev() {
        let text = cut::middle(&record(entry), OUTPUT_BUDGET / 2).text;
        if text.len() > room {
            break;
        }
        room -= text.len();
        kept.push(text);
    }
    let truncated = kept.len() < log.entries.len();
    let newest = &log.entries[log.entries.len() - kept.len()..];
    let entries: Vec<_> = newest
        .iter()
        .map(|entry| {
            let mut entry = value(entry);
            for channel in ["stdout", "stderr"] {
                let text = entry[channel].as_str().unwrap_or_default();
                entry[channel] = cut::middle(text, OUTPUT_BUDGET / 4).text.into();
            }
            entry
        })
        .collect();
    let mut known = json!({"workspace_id": id, "count": log.count, "entries": entries});
    let mut text: String = kept.into_iter().rev().collect();
    if truncated {
        let uri = format!("motu://workspaces/{id}/logs");
        text.insert_str(0, &format!("[older commands: resource {uri}]\n"));
        known["truncated"] = true.into();
        known["rest"] = uri.into();
    }
    if text.is_empty() {
        text.push_str("no commands yet");
    }
    Ok(Answer::new(text, &known))
}

async fn stop(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let work = call.service().stop_workspace(&id);
    Ok(shown(&call.told(&Seen::default(), work).await?))
}

async fn start(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let work = call.service().start_workspace(&id);
    Ok(shown(&call.told(&Seen::default(), work).await?))
}

async fn reset(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let snapshot = arguments.text_or("snapshot", "baseline");
    let question = format!("Reset the workspace {id} to {snapshot:?}, losing what was done since?");
    call.approve(&question).await?;
    let work = call
        .service()
        .reset_workspace(&id, ResetTo::snapshot(&snapshot));
    let reset = shown(&call.told(&Seen::default(), work).await?);
    Ok(reset.with("workspace_reset", json!({"snapshot_name": snapshot})))
}

async fn undo(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let steps = arguments.integer("steps").unwrap_or(1);
    let what = count(steps, "command");
    let question = format!("Take back what the last {what} of the workspace {id} did?");
    call.approve(&question).await?;
    let work = call.service().undo_workspace(&id, Undo { steps });
    let undone = call.told(&Seen::default(), work).await?;
    let text = format!(
        "{what} taken back: {} put back, {} removed; {} more can be taken back",
        count(undone.restored_count, "path"),
        count(undone.removed_count, "path"),
        undone.checkpoint_count
    );
    Ok(Answer::new(text, &undone))
}

async fn delete(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    call.approve(&format!("Delete the workspace {id} and everything in it?"))
        .await?;
    let deleted = call.service().delete_workspace(&id).await?;
    let mut answer = shown(&deleted);
    answer.text = format!("{id} is deleted");
    Ok(answer.with("deleted", true))
}
