//! The tables of tools, one file per group.

mod call;
mod command;
mod content;
mod environment;
mod services;
mod shells;
mod snapshots;
mod terminal;
mod vm;
mod workspace;

pub use services::log;
pub use workspace::record;

use crate::arguments::Arguments;
use crate::schema::{Field, limited, text};
use crate::tool::Tool;
use motu_core::call::SecretRef;
use motu_core::limits;
use motu_core::workspace::SecretEnv;
use motu_core::{Error, Page, Result, SandboxId};
use std::collections::BTreeMap;

/// Every tool of machines and workspaces, the most useful first.
pub fn machines() -> impl Iterator<Item = &'static Tool> {
    let tables = [
        vm::TOOLS,
        workspace::TOOLS,
        content::TOOLS,
        snapshots::TOOLS,
        services::TOOLS,
        shells::TOOLS,
    ];
    tables.into_iter().flatten()
}

/// The tool of typed calls.
pub fn calls() -> impl Iterator<Item = &'static Tool> {
    call::TOOLS.iter()
}

/// Every tool of terminals.
pub fn terminals() -> impl Iterator<Item = &'static Tool> {
    terminal::TABLES.iter().copied().flatten()
}

const WORKSPACE_ID: Field = text("workspace_id", SandboxId::MAX_LEN as u64).required();
const ENVIRONMENT: Field = text("environment", 255)
    .usually(DEFAULT_ENVIRONMENT)
    .about("debian:12 has Python, git, curl; busybox is tiny; or an OCI image.");
const TEMPLATE: Field =
    text("template", limits::TEMPLATE_NAME_CHARS.max).about("Instead of environment.");
const VCPU_COUNT: Field = limited("vcpu_count", &limits::VCPU_COUNT);
const MEM_MIB: Field = limited("mem_mib", &limits::MEM_MIB);
const TIMEOUT_SECONDS: Field = limited("timeout_seconds", &limits::TIMEOUT_SECONDS);
const ISOLATION: Field = crate::schema::one_of("isolation", &["container", "gvisor", "vm"])
    .about("The weakest that will do.");
const RUNTIME: Field = text("runtime", 64).about("Such as qemu.");
const ALLOW_HOST_COMPAT: Field = crate::schema::flag("allow_host_compat")
    .about("The host, without isolation, if its operator allows it.");
const MAX_OUTPUT_BYTES: Field = limited("max_output_bytes", &limits::MCP_OUTPUT_BYTES);
const SECRET_ENV: Field = crate::schema::map("secret_env", limits::SECRETS.max)
    .about("Secrets of the workspace to pass, as {secret name: variable}.");
const SECRET_REFS: Field = crate::schema::map("secret_refs", limits::SECRETS.max)
    .about("Variables for bound secrets: {variable: secret name}.");
const LIMIT: Field = crate::schema::integer("limit", limits::PAGE_ITEMS.min, ROWS as u64);
const CURSOR: Field = text("cursor", 1024).about("next_cursor of the page before.");
const PATH: Field = text("path", limits::PATH_BYTES.max);

/// Rows of a listing that fit an answer, and at most of one page.
const ROWS: usize = 200;

/// What machines start from unless told otherwise.
const DEFAULT_ENVIRONMENT: &str = "debian:12";

/// The mapping of secrets to variables.
fn secret_env(arguments: &Arguments) -> Vec<SecretEnv> {
    let pairs = arguments.map("secret_env").into_iter();
    pairs
        .map(|(secret, variable)| SecretEnv {
            secret,
            variable: Some(variable).filter(|variable| !variable.is_empty()),
        })
        .collect()
}

/// The variables of secrets by name.
fn secret_refs(arguments: &Arguments) -> BTreeMap<String, SecretRef> {
    let pairs = arguments.map("secret_refs").into_iter();
    pairs
        .map(|(variable, name)| (variable, SecretRef { name }))
        .collect()
}

/// A path of this host: the daemon stands elsewhere, so it is made absolute here.
fn host_path(text: &str) -> Result<String> {
    let path = std::path::absolute(text)
        .map_err(|error| Error::invalid(format!("{text:?} is not a path: {error}")))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The part of a list that is asked for; all of it when none is.
fn page(arguments: &Arguments) -> Page {
    Page {
        limit: arguments.integer("limit"),
        cursor: arguments.text("cursor"),
        ..Page::default()
    }
}

/// Says under a list that there is more.
fn more(text: &mut String, next_cursor: Option<&str>) {
    if let Some(next) = next_cursor {
        text.push_str(&format!("[there are more: cursor {next}]\n"));
    }
}

/// The words of a count: `1 file`, `2 files`.
fn count(number: u64, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    }
}

/// Text for a model: the last line ends like the others.
fn line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
