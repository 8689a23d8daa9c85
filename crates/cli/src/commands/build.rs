//! `motu env build`: an environment from another one.

use super::cp;
use super::shape::SizeArgs;
use crate::failure::Reader;
use crate::show;
use crate::show::answer;
use motu_api::Client;
use motu_core::build::BuildRequest;
use motu_core::files::ByteStream;
use motu_core::report::{Environment, ProgressEvent};
use motu_core::{Error, Result, Service, limits};
use motu_dockerfile::{Ignore, Ignored};
use motu_workspaces::tarball::{Meta, TarWriter};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Steps and lines of output that may wait to be shown.
const WAITING: usize = 4096;
const IGNORE: &str = ".dockerignore";

/// Build an environment from another one: by a Dockerfile, or by commands
///
/// Every step runs in a sandbox of its own, without a network unless a policy gives it one. What a
/// step changed is kept, and taken again when nothing before it and none of its files is different.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu env build -t app:1 .
  motu env build -f docker/Dockerfile -t app:1 --build-arg VERSION=2 --target test .
  motu env build --from debian:12 --run 'echo hello > /etc/greeting' -t hello:1
  motu env build -t app:1 --secret id=token,src=token.txt --policy registries .")]
pub struct Args {
    /// The directory whose files COPY and ADD take
    context: Option<PathBuf>,
    /// The Dockerfile; the one in the context when missing, `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What the result is called: a word, such as mine:1
    #[arg(short, long, value_name = "NAME")]
    tag: Option<String>,
    /// Instead of a Dockerfile: the environment to begin with
    #[arg(long, value_name = "ENV", conflicts_with_all = ["file", "target", "context"])]
    from: Option<String>,
    /// With --from: a command for its shell; again for the next step
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "from",
        allow_hyphen_values = true
    )]
    run: Vec<String>,
    /// A value for an ARG
    #[arg(long, value_name = "NAME=VALUE")]
    build_arg: Vec<String>,
    /// A value for RUN --mount=type=secret: id=NAME,src=FILE or id=NAME,env=VARIABLE
    #[arg(long, value_name = "SECRET")]
    secret: Vec<String>,
    /// The stage to build; the last one when missing
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// Run every step again
    #[arg(long)]
    no_cache: bool,
    /// The policy of the network that RUN has; none when missing
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// What makes the machines; container when missing
    #[arg(long, value_name = "NAME")]
    runtime: Option<String>,
    #[command(flatten, next_help_heading = "Machine of a step")]
    size: SizeArgs,
    /// How long one step may run
    #[arg(long = "timeout", value_name = "SECONDS")]
    timeout_seconds: Option<u64>,
    /// Print every step, and then the result, as one line of JSON each
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, client: &Client) -> Result<()> {
        let json = self.json;
        let mut request = self.request()?;
        if self.from.is_none() {
            let context = self.context.clone().unwrap_or(PathBuf::from("."));
            let sent = client.send_build_context(pack(&context)?).await?;
            request.context_id = Some(sent.context_id);
        }
        let (sink, mut steps) = mpsc::channel(WAITING);
        let building = client.build_environment(request, sink);
        let showing = async {
            while let Some(step) = steps.recv().await {
                tell(&step, Reader::of(json));
            }
        };
        let (built, ()) = tokio::join!(building, showing);
        let built = built?;
        match json {
            true => show::exact(&format!("{}\n", serde_json::json!(built))),
            false => answer(false, &built, summary),
        }
        Ok(())
    }

    fn request(&self) -> Result<BuildRequest> {
        let (dockerfile, dockerfile_name) = match &self.from {
            Some(_) => (None, None),
            None => {
                let (name, text) = self.dockerfile()?;
                (Some(text), Some(name))
            }
        };
        let mut build_args = BTreeMap::new();
        for pair in &self.build_arg {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, value.to_string()),
                // As in Docker: a name without a value means the variable of this shell.
                None => match std::env::var(pair) {
                    Ok(value) => (pair.as_str(), value),
                    Err(_) => continue,
                },
            };
            build_args.insert(name.to_string(), value);
        }
        let mut secrets = BTreeMap::new();
        for text in &self.secret {
            let (id, value) = secret(text)?;
            secrets.insert(id, value);
        }
        Ok(BuildRequest {
            name: self.tag.clone(),
            dockerfile,
            dockerfile_name,
            from: self.from.clone(),
            run: self.run.clone(),
            build_args,
            secrets,
            target: self.target.clone(),
            no_cache: self.no_cache,
            policy: self.policy.clone(),
            runtime: self.runtime.clone(),
            size: self.size.into(),
            timeout_seconds: self.timeout_seconds,
            ..BuildRequest::default()
        })
    }

    fn dockerfile(&self) -> Result<(String, String)> {
        let path = match &self.file {
            Some(path) if path == Path::new("-") => {
                let text = std::io::read_to_string(std::io::stdin())
                    .map_err(|error| Error::io("read the Dockerfile", &error))?;
                return Ok(("Dockerfile".to_string(), text));
            }
            Some(path) => path.clone(),
            None => match &self.context {
                Some(context) => context.join("Dockerfile"),
                None => {
                    return Err(Error::invalid("nothing says what to build")
                        .hint("name the directory with a Dockerfile, or use --from and --run"));
                }
            },
        };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::with_file(format_args!("read {}", path.display()), &error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok((name.into_owned(), text))
    }
}

/// `id=NAME,src=FILE` or `id=NAME,env=VARIABLE`.
fn secret(text: &str) -> Result<(String, String)> {
    let wrong = || {
        Error::invalid("a secret is id=NAME,src=FILE or id=NAME,env=VARIABLE")
            .hint("--secret id=token,src=token.txt")
    };
    let (mut id, mut path, mut variable) = (None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        match key {
            "id" => id = Some(value.to_string()),
            "src" | "source" => path = Some(PathBuf::from(value)),
            "env" => variable = Some(value.to_string()),
            "type" if value == "file" || value == "env" => {}
            _ => return Err(wrong()),
        }
    }
    let id = id.filter(|id| !id.is_empty()).ok_or_else(wrong)?;
    let value = match (path, variable) {
        (Some(path), None) => std::fs::read_to_string(&path)
            .map_err(|error| Error::with_file(format_args!("read {}", path.display()), &error))?,
        (None, variable) => std::env::var(variable.unwrap_or(id.clone()))
            .map_err(|_| Error::invalid(format!("the variable of the secret {id} is not set")))?,
        _ => return Err(wrong()),
    };
    if value.len() as u64 > limits::SECRET_BYTES.max {
        return Err(Error::limit(format!(
            "the secret {id} is larger than secret_bytes, {}",
            limits::SECRET_BYTES.max
        )));
    }
    Ok((id, value))
}

/// The files of a context as an archive. Links stay links; who builds looks where they lead.
fn pack(context: &Path) -> Result<ByteStream> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Error::with_file(format_args!("read {path}"), &error)
    };
    if !std::fs::metadata(context)
        .map_err(failed(context))?
        .is_dir()
    {
        return Err(Error::invalid(format!(
            "{} is not a directory",
            context.display()
        )));
    }
    let ignore = match std::fs::read_to_string(context.join(IGNORE)) {
        Ok(text) => {
            Ignore::parse(&text).map_err(|error| Error::invalid(format!("{IGNORE}, {error}")))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ignore::default(),
        Err(error) => return Err(failed(&context.join(IGNORE))(error)),
    };
    let top = context.to_path_buf();
    Ok(cp::produce(move |sink| {
        let out = std::io::BufWriter::with_capacity(256 * 1024, sink);
        let mut tar = TarWriter::new(out);
        let mut waiting = vec![PathBuf::new()];
        let (mut ignored, again) = (ignore.walk(), !ignore.is_final());
        while let Some(dir) = waiting.pop() {
            let full = top.join(&dir);
            let mut names: Vec<_> = std::fs::read_dir(&full)
                .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect())
                .map_err(failed(&full))?;
            names.sort();
            for name in names {
                let path = dir.join(name);
                let added = add(&mut tar, &top, &path, (&mut ignored, again));
                if added.map_err(failed(&top.join(&path)))? {
                    waiting.push(path);
                }
            }
        }
        let done = tar.finish().and_then(|mut out| out.flush());
        done.map_err(|error| Error::io("send the context", &error))
    }))
}

/// Adds one path; `true` when it is a directory to look into.
fn add<W: Write>(
    tar: &mut TarWriter<W>,
    top: &Path,
    path: &Path,
    (ignored, again): (&mut Ignored<'_>, bool),
) -> std::io::Result<bool> {
    let full = top.join(path);
    let found = std::fs::symlink_metadata(&full)?;
    let name = path.as_os_str().as_bytes();
    // The ignore file itself is always sent.
    let out = ignored.excludes(name) && path != Path::new(IGNORE);
    let meta = Meta {
        mode: found.mode() & 0o777,
        uid: 0,
        gid: 0,
        modified_unix_ns: found.mtime().saturating_mul(1_000_000_000),
    };
    let none = BTreeMap::new();
    if found.is_dir() {
        if !out {
            tar.directory(name, meta, &none)?;
        }
        return Ok(!out || again);
    }
    if out {
        return Ok(false);
    }
    if found.is_symlink() {
        let target = std::fs::read_link(&full)?;
        tar.symlink(name, meta, target.as_os_str().as_bytes())?;
    } else if found.is_file() {
        let mut file = std::fs::File::open(&full)?;
        let size = file.metadata()?.len();
        tar.file(name, meta, &none, size, &mut file)?;
    }
    Ok(false)
}

/// One step, to a person or a program.
pub fn tell(step: &ProgressEvent, reader: Reader) {
    if reader == Reader::Program {
        return show::exact(&format!("{}\n", serde_json::json!(step)));
    }
    let place = match (step.done, step.total) {
        (Some(done), Some(total)) => format!("[{done}/{total}] "),
        _ => String::new(),
    };
    let message = show::safe(&step.message);
    let (bold, dim) = (show::bold(), show::dim());
    match step.stage.as_str() {
        "step" => show::note(&format!("{bold}{place}{message}{bold:#}\n")),
        "cached" => show::note(&format!("{place}CACHED\n")),
        "done" => show::note(&format!("{place}{message}\n")),
        "output" => show::note(&format!("{dim}{message}{dim:#}\n")),
        _ => show::note(&format!("{message}\n")),
    }
}

fn summary(built: &Environment) -> String {
    let report = built.build.clone().unwrap_or_default();
    let seconds = report.duration_ms as f64 / 1000.0;
    format!(
        "{} is installed: {} steps, {} cached, {seconds:.1} s\n",
        built.name, report.steps, report.cached
    )
}
