//! Machines: one command in one of its own, and the long way round.

use super::command::{self, OUTPUT};
use super::environment::{has_network, installed, named};
use super::{ALLOW_HOST_COMPAT, ENVIRONMENT, MAX_OUTPUT_BYTES, MEM_MIB, TEMPLATE};
use super::{CURSOR, LIMIT, more, page};
use super::{ISOLATION, RUNTIME, SECRET_REFS, TIMEOUT_SECONDS, VCPU_COUNT, count, secret_refs};
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::Seen;
use crate::schema::{Field, command as command_field, flag, limited, text};
use crate::tool::{Effect, Tool, run};
use motu_core::exec::{ExecRequest, RunRequest};
use motu_core::limits;
use motu_core::sandbox::{CreateSandbox, Sandbox};
use motu_core::{SandboxId, Size, Verbs};
use serde_json::json;
use std::sync::Arc;

const COMMAND: Field = command_field();
const TTL_SECONDS: Field = limited("ttl_seconds", &limits::TTL_SECONDS);
const NETWORK: Field = flag("network").about("The public internet, unless policy says otherwise.");
const POLICY: Field = text("policy", 64).about("A policy for its network, such as packages.");
const VM_ID: Field = text("vm_id", SandboxId::MAX_LEN as u64).required();

const MACHINE: &[(&str, &str)] = &[
    ("vm_id", "string"),
    ("sandbox_id", "string"),
    ("state", "string"),
    ("environment", "string"),
    ("isolation", "string"),
    ("network", "string"),
    ("expires_at", "string?"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "vm_run",
        verb: "run",
        about: "Run a shell script in a fresh isolated Linux machine that is thrown away when the script \
                ends. For code you want to try once: nothing stays, so print what you need. Files of the host \
                are not there. Example: {\"command\": \"python3 -c 'print(6*7)'\"}",
        fields: &[
            COMMAND,
            ENVIRONMENT,
            TEMPLATE,
            VCPU_COUNT,
            MEM_MIB,
            TIMEOUT_SECONDS,
            TTL_SECONDS,
            NETWORK,
            POLICY,
            SECRET_REFS,
            ISOLATION,
            RUNTIME,
            ALLOW_HOST_COMPAT,
            MAX_OUTPUT_BYTES,
        ],
        output: OUTPUT,
        effect: Effect::Runs,
        run: run!(vm_run),
    },
    Tool {
        name: "vm_list_environments",
        verb: "list_environments",
        about: "List what machines can start from. Pass a name as `environment` to vm_run, vm_create or \
                workspace_create; one that is not installed is installed then, which takes a while.",
        fields: &[LIMIT, CURSOR],
        output: &[
            ("count", "integer"),
            ("environments", "array"),
            ("next_cursor", "string?"),
        ],
        effect: Effect::Reads,
        run: run!(vm_list_environments),
    },
    Tool {
        name: "vm_create",
        verb: "create_sandbox",
        about: "Make a machine for one command that comes later: vm_exec runs it and throws the machine \
                away. For work of several commands use workspace_create instead.",
        fields: &[
            ENVIRONMENT,
            TEMPLATE,
            VCPU_COUNT,
            MEM_MIB,
            TTL_SECONDS,
            NETWORK,
            POLICY,
            SECRET_REFS,
            ISOLATION,
            RUNTIME,
            ALLOW_HOST_COMPAT,
        ],
        output: MACHINE,
        effect: Effect::Changes,
        run: run!(vm_create),
    },
    Tool {
        name: "vm_start",
        verb: "start_sandbox",
        about: "Start a machine that vm_stop stopped. A running one is left as it is.",
        fields: &[VM_ID],
        output: MACHINE,
        effect: Effect::Settles,
        run: run!(vm_start),
    },
    Tool {
        name: "vm_exec",
        verb: "exec_stream",
        about: "Run a shell script in a machine of vm_create, and delete the machine when it has ended.",
        fields: &[VM_ID, COMMAND, TIMEOUT_SECONDS, MAX_OUTPUT_BYTES],
        output: OUTPUT,
        effect: Effect::Runs,
        run: run!(vm_exec),
    },
    Tool {
        name: "vm_stop",
        verb: "stop_sandbox",
        about: "Stop a machine and keep its disk; vm_start goes on with it.",
        fields: &[VM_ID],
        output: MACHINE,
        effect: Effect::Settles,
        run: run!(vm_stop),
    },
    Tool {
        name: "vm_delete",
        verb: "destroy_sandbox",
        about: "Delete a machine and all that is in it.",
        fields: &[VM_ID],
        output: MACHINE,
        effect: Effect::Destroys,
        run: run!(vm_delete),
    },
    Tool {
        name: "vm_status",
        verb: "get_sandbox",
        about: "Show a machine: its state, what it was made from, and when it expires.",
        fields: &[VM_ID],
        output: MACHINE,
        effect: Effect::Reads,
        run: run!(vm_status),
    },
    Tool {
        name: "vm_network_info",
        verb: "list_ports",
        about: "Show what a machine may reach, and the TCP ports something in it listens on.",
        fields: &[VM_ID],
        output: &[
            ("vm_id", "string"),
            ("network", "string"),
            ("network_enabled", "boolean"),
            ("ports", "array"),
        ],
        effect: Effect::Reads,
        run: run!(vm_network_info),
    },
    Tool {
        name: "vm_reap_expired",
        verb: "reap_expired",
        about: "Delete the machines whose time to live is over. This also happens by itself.",
        fields: &[],
        output: &[("count", "integer"), ("sandbox_ids", "array")],
        effect: Effect::Destroys,
        run: run!(vm_reap_expired),
    },
];

fn asked(arguments: &Arguments) -> motu_core::Result<CreateSandbox> {
    let template = arguments.text("template");
    Ok(CreateSandbox {
        environment: named(arguments, template.as_deref()),
        template,
        size: Size {
            vcpu_count: arguments.integer("vcpu_count"),
            mem_mib: arguments.integer("mem_mib"),
            ..Size::default()
        },
        ttl_seconds: arguments.integer("ttl_seconds"),
        network: arguments.flag("network"),
        policy: arguments.text("policy"),
        secret_refs: secret_refs(arguments),
        allow_host_compat: arguments.flag("allow_host_compat"),
        isolation: arguments.isolation()?,
        runtime: arguments.text("runtime"),
        ..CreateSandbox::default()
    })
}

fn script(arguments: &Arguments) -> ExecRequest {
    ExecRequest::from(arguments.program())
}

async fn approve(call: &Call, sandbox: &CreateSandbox) -> Result<(), Stop> {
    let own = sandbox.network || sandbox.policy.is_some();
    let network = own || has_network(call, sandbox.template.as_deref()).await?;
    let network = network.then(|| "Give a new machine access to the network?".to_string());
    call.approve_made(sandbox.allow_host_compat, network).await
}

async fn vm_run(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = RunRequest {
        sandbox: asked(&arguments)?,
        exec: script(&arguments),
    };
    approve(call, &request.sandbox).await?;
    let seen = Seen::default();
    let work = async {
        let environment = &request.sandbox.environment;
        let run = || call.service().run(request.clone());
        let session = installed(call, &seen, environment, run).await?;
        command::ended(session, command::collector()?, &seen).await
    };
    let result = call.told(&seen, work).await?;
    let budget = arguments.integer("max_output_bytes");
    Ok(command::answer(call, result, budget))
}

async fn vm_list_environments(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let all = call.service().list_environments(page(&arguments)).await?;
    let mut text: String = all
        .iter()
        .map(|one| {
            let installed = if one.installed {
                "installed"
            } else {
                "not installed"
            };
            format!("{} ({installed}): {}\n", one.name, one.description)
        })
        .collect();
    more(&mut text, all.next_cursor.as_deref());
    Ok(Answer::new(text, &all))
}

async fn vm_create(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = CreateSandbox {
        keep: true,
        ..asked(&arguments)?
    };
    approve(call, &request).await?;
    let seen = Seen::default();
    let make = || call.service().create_sandbox(request.clone());
    let work = installed(call, &seen, &request.environment, make);
    let sandbox = call.told(&seen, work).await?;
    Ok(machine(&sandbox))
}

/// One machine, in the words of these tools.
fn machine(sandbox: &Sandbox) -> Answer {
    let mut text = format!(
        "{} is {}: {}, {} isolation, network {}",
        sandbox.sandbox_id, sandbox.state, sandbox.environment, sandbox.isolation, sandbox.network
    );
    if let Some(at) = sandbox.expires_at {
        text.push_str(&format!(", expires {at}"));
    }
    if let Some(reason) = &sandbox.reason {
        text.push_str(&format!(" ({reason})"));
    }
    let mut answer = Answer::new(text, sandbox);
    // The name of the id in the parameters of these tools.
    answer.structured["vm_id"] = sandbox.sandbox_id.as_str().into();
    answer
}

/// Deletes a machine when it goes away, however that comes.
struct Thrown<'a> {
    call: &'a Call,
    /// Nothing once it was deleted in the ordinary way.
    id: Option<SandboxId>,
}

impl Drop for Thrown<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let service: Arc<dyn Verbs> = self.call.shared.service.clone();
        self.call.chore(async move {
            // The caller has its answer or has left; if this fails, the time to live ends the
            // sandbox.
            let _ = service.destroy_sandbox(&id).await;
        });
    }
}

async fn vm_exec(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.vm()?;
    let seen = Seen::default();
    let within = call.service().get_sandbox(&id).await?;
    let session = call.service().exec_stream(&id, script(&arguments)).await?;
    let mut thrown = Thrown {
        call,
        id: Some(id.clone()),
    };
    let collector = command::collector()?.within(within);
    let work = command::ended(session, collector, &seen);
    let result = call.told(&seen, work).await?;
    call.service().destroy_sandbox(&id).await?;
    thrown.id = None;
    let budget = arguments.integer("max_output_bytes");
    let mut answer = command::answer(call, result, budget);
    answer.structured["vm_id"] = id.as_str().into();
    Ok(answer)
}

async fn vm_start(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.vm()?;
    let sandbox = call
        .told(&Seen::default(), call.service().start_sandbox(&id))
        .await?;
    Ok(machine(&sandbox))
}

async fn vm_stop(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    Ok(machine(
        &call.service().stop_sandbox(&arguments.vm()?).await?,
    ))
}

async fn vm_delete(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.vm()?;
    call.approve(&format!("Delete the machine {id} and all that is in it?"))
        .await?;
    Ok(machine(&call.service().destroy_sandbox(&id).await?))
}

async fn vm_status(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    Ok(machine(
        &call.service().get_sandbox(&arguments.vm()?).await?,
    ))
}

async fn vm_network_info(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.vm()?;
    let sandbox = call.service().get_sandbox(&id).await?;
    let ports = call.service().list_ports(&id).await?;
    let mut text = format!(
        "network {}; listening: {}",
        sandbox.network,
        count(ports.len() as u64, "port")
    );
    for port in &ports {
        text.push_str(&format!("\n{}:{}", port.address, port.port));
    }
    let known = json!({
        "vm_id": id, "sandbox_id": id, "network": sandbox.network,
        "network_enabled": sandbox.network != "off", "count": ports.count, "ports": ports.ports,
    });
    Ok(Answer::new(text, &known))
}

async fn vm_reap_expired(call: &Call, _: Arguments) -> Result<Answer, Stop> {
    let reaped = call.service().reap_expired().await?;
    let text = format!("{} deleted", count(reaped.count, "expired machine"));
    Ok(Answer::new(text, &reaped))
}
