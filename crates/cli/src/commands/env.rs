//! `motu env`: what sandboxes start from.

use super::page::{PageArgs, more};
use super::{archives, build};
use crate::context::Context;
use crate::failure::Reader;
use crate::show::answer;
use crate::waiting::{self, Moved};
use crate::{pull, show};
use motu_core::report::{Environment, EnvironmentLayer, ImportAs, Prune, Pruned, TagAs};
use motu_core::{Result, Service};
use std::path::PathBuf;
use std::process::ExitCode;

/// Manage environments, which sandboxes start from
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List environments, installed or not
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Print everything that is known of them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Install an environment, or bring it up to date
    ///
    /// From the catalog (`motu env list`), from a registry, or from files of this host:
    ///
    ///   oci:/path/to/layout[:tag]        a directory in the OCI image layout
    ///
    ///   docker-archive:/path/image.tar   what `docker save` or `podman save` writes
    ///
    ///   tar:/path/root.tar[.gz|.zst]     a root file system in an archive
    ///
    ///   dir:/path/to/root                a root file system in a directory
    #[command(after_help = "Examples:
  motu env pull debian:12
  motu env pull docker.io/library/python:3.12
  docker save app:1 -o app.tar && motu env pull docker-archive:$PWD/app.tar
  motu env tag docker-archive:$PWD/app.tar app:1")]
    Pull {
        /// Its name, such as debian:12, or where it comes from
        name: String,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    Build(Box<build::Args>),
    /// Show one environment
    Inspect {
        /// Its name, such as debian:12
        name: String,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove one installed environment, unless a sandbox uses it
    Rm {
        /// Its name
        name: String,
        /// Print what was removed as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give an installed environment another name
    Tag {
        /// Its name
        name: String,
        /// The new name: a word, such as mine:1
        #[arg(value_name = "NEW")]
        new: String,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write an installed environment to a file, as an archive in the OCI image layout
    ///
    /// Owners, permissions, links and attributes of its files are in it, and its settings: other
    /// programs (skopeo, podman, docker load) read it, and so does `motu env import`.
    #[command(after_help = "Examples:
  motu env export debian:12 -o debian.tar
  motu env export busybox | ssh other motu env import - mine:1")]
    Export {
        /// Its name
        name: String,
        /// The file, which must not exist yet; standard output when missing
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a file that exists
        #[arg(long)]
        force: bool,
        /// Print what was written as JSON
        #[arg(long, requires = "output")]
        json: bool,
    },
    /// Make an environment of an archive: an OCI image layout, or what `docker save` writes
    #[command(after_help = "Examples:
  motu env import app.tar
  docker save app:1 | motu env import - app:1")]
    Import {
        /// The archive; `-` is standard input
        file: PathBuf,
        /// What it shall be called: a word, such as mine:1; its name in the archive when missing
        name: Option<String>,
        /// Print everything that is known of it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove environments that nothing uses and nothing could be started from any more
    Prune {
        /// Also those that could be used again, cached packages and layers, and what virtual
        /// machines are made from
        #[arg(long)]
        all: bool,
        /// Print what was removed as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn json(&self) -> bool {
        match self.command {
            Command::Build(ref args) => args.json,
            Command::List { json, .. }
            | Command::Pull { json, .. }
            | Command::Inspect { json, .. }
            | Command::Rm { json, .. }
            | Command::Tag { json, .. }
            | Command::Export { json, .. }
            | Command::Import { json, .. }
            | Command::Prune { json, .. } => json,
        }
    }

    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        match self.command {
            Command::List { page, json } => {
                let all = client.list_environments(page.into()).await?;
                answer(json, &all, |all| list(all));
                more(json, all.next_cursor.as_deref());
            }
            Command::Pull { name, json } => {
                let environment = pull::pull(&client, &name, Reader::of(json)).await?;
                answer(json, &environment, |environment| {
                    format!("{} is installed\n", environment.name)
                });
            }
            Command::Build(args) => args.run(&client).await?,
            Command::Inspect { name, json } => {
                answer(json, &client.inspect_environment(&name).await?, inspect);
            }
            Command::Rm { name, json } => {
                let work = client.remove_environment(&name);
                let removed = waiting::told("removing", Reader::of(json), work).await?;
                answer(json, &removed, pruned);
            }
            Command::Tag { name, new, json } => {
                let ask = TagAs {
                    owner: String::new(),
                    name: new,
                };
                let tagged = client.tag_environment(&name, ask).await?;
                answer(json, &tagged, |tagged| format!("{}\n", tagged.name));
            }
            Command::Export {
                name,
                output,
                force,
                json,
            } => {
                let moved = Moved::default();
                let archive = moved.counting(client.export_environment(&name).await?);
                let Some(output) = output else {
                    let work = archives::to_stdout(archive);
                    waiting::moving("writing", Reader::Person, &moved, work).await?;
                    return Ok(ExitCode::SUCCESS);
                };
                let work = archives::write(archive, &output, force);
                let written = waiting::moving("writing", Reader::of(json), &moved, work).await?;
                answer(json, &written, |written| {
                    let size = show::bytes(written.bytes_written);
                    format!("{}: {size}\n", show::safe(&written.output_path))
                });
            }
            Command::Import { file, name, json } => {
                let moved = Moved::default();
                let content = moved.counting(archives::read(&file)?);
                let ask = ImportAs {
                    name,
                    ..ImportAs::default()
                };
                let work = client.import_environment(ask, content);
                let made = waiting::moving("importing", Reader::of(json), &moved, work).await?;
                answer(json, &made, |made| format!("{} is installed\n", made.name));
            }
            Command::Prune { all, json } => {
                let work = client.prune_environments(Prune { all });
                let removed = waiting::told("removing", Reader::of(json), work).await?;
                answer(json, &removed, pruned);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(environments: &[Environment]) -> String {
    let row = |environment: &Environment| {
        vec![
            environment.name.clone(),
            if environment.installed { "yes" } else { "no" }.to_string(),
            environment.size_bytes.map_or("-".to_string(), show::bytes),
            environment.description.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = environments.iter().map(row).collect();
    show::table(&["NAME", "INSTALLED", "SIZE", "DESCRIPTION"], &rows)
}

fn inspect(environment: &Environment) -> String {
    let size = environment.size_bytes.map(show::bytes);
    let packages = match environment.packages.is_empty() {
        true => None,
        false => Some(environment.packages.join(" ")),
    };
    show::facts(&[
        ("name", Some(environment.name.clone())),
        ("description", Some(environment.description.clone())),
        (
            "installed",
            Some(if environment.installed { "yes" } else { "no" }.to_string()),
        ),
        ("digest", environment.digest.clone()),
        ("size", size),
        ("created", environment.created_at.clone()),
        ("architecture", Some(environment.architecture.clone())),
        ("user", Some(environment.default_user.clone())),
        ("workdir", Some(environment.default_workdir.clone())),
        ("source", Some(environment.source.clone())),
        ("packages", packages),
        ("manifest", environment.manifest_digest.clone()),
        ("entrypoint", words(&environment.entrypoint)),
        ("command", words(&environment.cmd)),
        ("layers", layers(environment)),
    ])
}

/// A command as a JSON array, so that its words can be told apart.
fn words(command: &[String]) -> Option<String> {
    (!command.is_empty()).then(|| serde_json::json!(command).to_string())
}

/// One line each, under each other.
fn layers(environment: &Environment) -> Option<String> {
    let line = |layer: &EnvironmentLayer| {
        let size = show::bytes(layer.size_bytes);
        format!("{} {size}", layer.digest)
    };
    let lines: Vec<String> = environment.layers.iter().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n              "))
}

fn pruned(pruned: &Pruned) -> String {
    let mut text: String = pruned
        .removed
        .iter()
        .map(|name| format!("removed {}\n", show::safe(name)))
        .collect();
    for name in &pruned.in_use {
        text.push_str(&format!("kept {}: sandboxes use it\n", show::safe(name)));
    }
    text.push_str(&format!("{} freed\n", show::bytes(pruned.freed_bytes)));
    text
}
