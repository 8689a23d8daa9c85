//! `motu template`: machines that are described once and asked for by name.

use super::build::tell;
use super::given;
use super::page::{PageArgs, more};
use super::shape::{SizeArgs, Variables, word};
use crate::context::Context;
use crate::failure::Reader;
use crate::show::{self, answer};
use crate::waiting;
use jiff::Timestamp;
use motu_core::commit::AfterCommit;
use motu_core::report::ProgressSink;
use motu_core::template::{
    RebuildTemplate, SaveTemplate, SavedTemplate, Template, TemplateDefinition,
};
use motu_core::{Isolation, Result, SandboxId, Service};
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Steps that wait to be shown.
const WAITING: usize = 64;

/// Describe machines once, and ask for them by name
///
/// A template has an environment, commands that set it up, variables, secrets by name, the hosts
/// its machines reach, their size, their time to live, and how many of them wait ready. The setup
/// is built once; `motu run --template NAME` and `motu create --template NAME` start from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu template create py --from debian:12 --setup-policy packages \\
      --setup 'apt-get update && apt-get install -y python3-venv' --pool-size 2
  motu run --template py -- python3 -c 'print(6 * 7)'
  motu template create agent --from debian:12 --allow-host api.example.com --secret-ref KEY=api-key
  motu create --template agent --mem-mib 2048
  motu template save $id warm
  motu template list
  motu template rm py")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(Box<Create>),
    Save(Save),
    /// Run the setup of a template again, on its environment as it is now
    Build {
        /// Its name
        name: String,
        /// Run every step again
        #[arg(long)]
        no_cache: bool,
        /// Print every step, and then the result, as one line of JSON each
        #[arg(long)]
        json: bool,
    },
    /// List templates
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Print everything that is known of them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a template, and how many machines wait for it
    Show {
        /// Its name
        name: String,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a template that no sandbox came from, and the machines that wait for it
    Rm {
        /// Its name
        name: String,
        /// Print everything that was known of it as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Make a template, or change it
///
/// The setup is run first; nothing is kept of a template whose setup fails. One of this name
/// becomes what is said here: its next version, if machines are made from something else.
/// Sandboxes that came from it stay what they are.
#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: a-z, 0-9, '.', '_' and '-'
    name: String,

    /// The environment to begin with, such as debian:12 (`motu env list`)
    #[arg(long, value_name = "ENVIRONMENT")]
    from: String,

    /// A command that sets it up, in its shell; may be given several times
    #[arg(
        long,
        value_name = "COMMAND",
        allow_hyphen_values = true,
        help_heading = "Setup"
    )]
    setup: Vec<String>,

    /// The policy of the network that the setup has [default: that of the machines]
    #[arg(long, value_name = "NAME", help_heading = "Setup")]
    setup_policy: Option<String>,

    #[command(flatten, next_help_heading = "Machines")]
    variables: Variables,

    /// Set a variable to the placeholder of a secret that is bound to hosts (`motu secret set`)
    #[arg(
        long = "secret-ref",
        visible_alias = "secret",
        value_name = "VARIABLE=SECRET",
        help_heading = "Machines"
    )]
    secret_refs: Vec<String>,

    /// Let its machines reach this host, and no others: a name, *.name or an address, perhaps
    /// with :PORT
    #[arg(
        long = "allow-host",
        value_name = "HOST[:PORT]",
        value_delimiter = ',',
        help_heading = "Machines"
    )]
    allowed_hosts: Vec<String>,

    /// Give its machines the network that a policy allows; with --allow-host, those hosts of it
    #[arg(long, value_name = "NAME", help_heading = "Machines")]
    policy: Option<String>,

    #[command(flatten, next_help_heading = "Machines")]
    size: SizeArgs,

    /// How long it lives at most [default: 600]
    #[arg(
        long,
        visible_alias = "ttl",
        value_name = "SECONDS",
        help_heading = "Machines"
    )]
    ttl_seconds: Option<u64>,

    /// The runtime that makes it [default: the strongest that works here]
    #[arg(long, value_name = "NAME", help_heading = "Machines")]
    runtime: Option<String>,

    /// The weakest isolation that will do: vm, gvisor, container or none
    #[arg(long, value_name = "LEVEL", help_heading = "Machines", value_parser = word::<Isolation>)]
    isolation: Option<Isolation>,

    /// Machines that wait ready; not with a network [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pool_size: u64,

    /// A label; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    /// Print every step, and then the result, as one line of JSON each
    #[arg(long)]
    json: bool,
}

/// Make a template of a sandbox as it is
///
/// With its memory, where the runtime can: machines of the template begin where the sandbox was,
/// with everything that ran in it, and the sandbox goes on. Otherwise of its files: it must have
/// been created with --keep, and its machine is ended in order and made again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  id=$(motu create debian:12 --runtime qemu)
  motu exec $id -- sh -c 'echo warm > /dev/shm/cache'
  motu template save $id warm
  motu run --template warm -- cat /dev/shm/cache
  motu template save $id files --no-memory --then destroy")]
struct Save {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// What the template will be called
    name: String,

    /// With its memory, or refuse
    #[arg(long, conflicts_with = "no_memory")]
    memory: bool,

    /// Its files alone
    #[arg(long)]
    no_memory: bool,

    /// What becomes of the sandbox: start (it goes on), stop or destroy [default: start]
    #[arg(long, value_name = "WHAT", value_parser = word::<AfterCommit>)]
    then: Option<AfterCommit>,

    /// Print everything that is known of the template as JSON
    #[arg(long)]
    json: bool,
}

impl Save {
    fn ask(&self) -> SaveTemplate {
        SaveTemplate {
            name: self.name.clone(),
            memory: match (self.memory, self.no_memory) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            then: self.then.unwrap_or_default(),
        }
    }
}

impl Create {
    fn definition(&self) -> Result<TemplateDefinition> {
        Ok(TemplateDefinition {
            owner: String::new(),
            bounds: motu_core::Bounds::default(),
            environment: self.from.clone(),
            setup: self.setup.clone(),
            setup_policy: self.setup_policy.clone(),
            env: self.variables.read()?,
            secret_refs: given::secret_refs(&self.secret_refs)?,
            allowed_hosts: self.allowed_hosts.clone(),
            policy: self.policy.clone(),
            runtime: self.runtime.clone(),
            isolation: self.isolation,
            size: self.size.into(),
            ttl_seconds: self.ttl_seconds,
            pool_size: self.pool_size,
            labels: given::labels(&self.labels)?,
        })
    }
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Create(create) => create.json,
            Command::Save(save) => save.json,
            Command::Build { json, .. }
            | Command::List { json, .. }
            | Command::Show { json, .. }
            | Command::Rm { json, .. } => *json,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::Create(create) => {
                let definition = create.definition()?;
                let put = |sink| client.put_template(&create.name, definition, sink);
                let made = followed(put, create.json).await?;
                told(&made, create.json);
            }
            Command::Save(save) => {
                let work = client.save_template(&save.id, save.ask());
                let reader = Reader::of(save.json);
                let saved = waiting::told("saving the sandbox", reader, work).await?;
                answer(save.json, &saved, |saved| format!("{}\n", saved.name));
            }
            Command::Build {
                name,
                no_cache,
                json,
            } => {
                let ask = RebuildTemplate { no_cache };
                let built = followed(|sink| client.build_template(&name, ask, sink), json).await?;
                told(&built, json);
            }
            Command::List { page, json } => {
                let all = client.list_templates(page.into()).await?;
                answer(json, &all, |all| list(all));
                more(json, all.next_cursor.as_deref());
            }
            Command::Show { name, json } => {
                answer(json, &client.get_template(&name).await?, facts);
            }
            Command::Rm { name, json } => {
                let gone = client.remove_template(&name).await?;
                answer(json, &gone, |gone| format!("{} is removed\n", gone.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows the steps of a call while it goes on.
async fn followed<F>(call: impl FnOnce(ProgressSink) -> F, json: bool) -> Result<Template>
where
    F: Future<Output = Result<Template>>,
{
    let (sink, mut steps) = mpsc::channel(WAITING);
    let showing = async {
        while let Some(step) = steps.recv().await {
            tell(&step, Reader::of(json));
        }
    };
    tokio::join!(call(sink), showing).0
}

fn told(template: &Template, json: bool) {
    match json {
        true => show::print(&format!("{}\n", serde_json::json!(template))),
        false => show::print(&format!(
            "{} is ready, version {}\n",
            template.name, template.version
        )),
    }
}

fn list(templates: &[Template]) -> String {
    let row = |template: &Template| {
        let definition = &template.definition;
        vec![
            template.name.clone(),
            template.version.to_string(),
            definition.environment.clone(),
            definition.setup.len().to_string(),
            definition.network().unwrap_or("-").to_string(),
            match definition.pool_size {
                0 => "-".to_string(),
                size => format!("{}/{size}", template.pool.ready),
            },
            show::ago(template.updated_at, Timestamp::now()),
        ]
    };
    let rows: Vec<Vec<String>> = templates.iter().map(row).collect();
    let headings = [
        "NAME",
        "VERSION",
        "ENVIRONMENT",
        "SETUP",
        "NETWORK",
        "READY",
        "CHANGED",
    ];
    show::table(&headings, &rows)
}

fn saved(saved: &SavedTemplate) -> String {
    let what = match saved.memory {
        true => "with its memory",
        false => "its files",
    };
    let size = show::bytes(saved.size_bytes);
    format!(
        "{what}, {size}, {}",
        show::ago(saved.saved_at, Timestamp::now())
    )
}

fn facts(template: &Template) -> String {
    let definition = &template.definition;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let pairs = |pairs: &std::collections::BTreeMap<String, String>| {
        let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
        some(pairs.collect::<Vec<_>>().join(" "))
    };
    let secrets = definition.secret_refs.iter();
    let secrets = secrets.map(|(variable, secret)| format!("{variable}={}", secret.name));
    let mut text = show::facts(&[
        ("name", Some(template.name.clone())),
        ("version", Some(template.version.to_string())),
        ("digest", Some(template.digest.clone())),
        ("owner", some(template.owner.clone())),
        ("environment", Some(definition.environment.clone())),
        (
            "starts from",
            template
                .built
                .as_ref()
                .map(|built| built.environment.clone()),
        ),
        ("saved", template.saved.as_ref().map(saved)),
        (
            "size",
            template
                .built
                .as_ref()
                .and_then(|built| built.size_bytes)
                .map(show::bytes),
        ),
        ("variables", pairs(&definition.env)),
        ("secrets", some(secrets.collect::<Vec<_>>().join(" "))),
        ("policy", definition.network().map(String::from)),
        ("hosts", some(definition.allowed_hosts.join(" "))),
        ("setup policy", definition.setup_policy.clone()),
        ("runtime", definition.runtime.clone()),
        (
            "isolation",
            definition.isolation.map(|level| level.to_string()),
        ),
        ("CPUs", number(definition.size.vcpu_count)),
        ("memory MiB", number(definition.size.mem_mib)),
        ("disk MiB", number(definition.size.disk_mib)),
        (
            "lives",
            number(definition.ttl_seconds).map(|ttl| format!("{ttl} s")),
        ),
        (
            "waiting",
            (definition.pool_size > 0).then(|| {
                let pool = &template.pool;
                format!(
                    "{} of {}; {} taken",
                    pool.ready, definition.pool_size, pool.taken
                )
            }),
        ),
        ("problem", template.pool.problem.clone()),
        ("labels", pairs(&definition.labels)),
    ]);
    for command in &definition.setup {
        text.push_str(&format!("setup         {}\n", show::safe(command)));
    }
    text
}
