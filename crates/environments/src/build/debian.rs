//! The builder for Debian systems.
//!
//! Owns the arguments of mmdebstrap and the parsing of its log. mmdebstrap runs as (mapped) root in
//! its own namespaces, verifies every signature, and outputs a tar stream; `finish` decides what
//! gets into the environment.

use std::{
    fs,
    io::{BufReader, Write},
    path::{Path, PathBuf},
    process::Command,
};

use super::{Built, Reporter, Step};
use crate::{
    apt,
    catalog::CatalogEntry,
    copying::copy_tar,
    error::{EnvironmentError, IoContext as _},
    finish, process,
    progress::ProgressEvent,
    store::private_directory,
    tree::{Captured, TreeWriter, Verdict},
    unpack::PIPE_BUFFER_BYTES,
};

/// Documentation and translations are left out: a third of a small system.
const PATH_RULES: [&str; 9] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-include=/usr/share/doc/apt/examples/sources.list",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/linda/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
];

/// Makes `/usr` merged by links from the start; otherwise a package converts the tree afterwards
/// and pulls in all of perl.
const MERGED_HOOKS: &str = "/usr/share/mmdebstrap/hooks/merged-usr";
const MERGED_PACKAGE: &str = "usr-is-merged";

/// Tells the hooks where packages are cached between builds.
const CACHE_VARIABLE: &str = "MOTU_PACKAGE_CACHE";
const CACHE_IN: &str = r#"mkdir -p "$1/var/cache/apt/archives"; cp "$MOTU_PACKAGE_CACHE"/*.deb "$1/var/cache/apt/archives/" 2>/dev/null || true"#;
const CACHE_OUT: &str =
    r#"cp -u "$1"/var/cache/apt/archives/*.deb "$MOTU_PACKAGE_CACHE/" 2>/dev/null || true"#;

/// Copies `ping` without the file capability that its package sets: ping sockets work for every
/// group in a machine, and where commands may not have that capability, exec would fail.
const PLAIN_PING: &str = r#"if [ -e "$1/usr/bin/ping" ]; then cp "$1/usr/bin/ping" "$1/usr/bin/ping.plain"; chmod 755 "$1/usr/bin/ping.plain"; mv "$1/usr/bin/ping.plain" "$1/usr/bin/ping"; fi"#;

/// First user id of people, inside as on any Debian system.
const FIRST_USER_ID: u32 = 1000;

pub(super) fn fill<W: Write>(
    step: &Step<'_>,
    tree: &mut TreeWriter<W>,
) -> Result<Built, EnvironmentError> {
    let entry = step.entry();
    let cache = step.build.store.package_cache().join("archives");
    private_directory(&cache)?;
    let mut command = bootstrap_command(step, "minbase")?;
    command.env(CACHE_VARIABLE, &cache);
    command.arg("--skip=essential/unlink");
    command.arg(format!("--setup-hook={CACHE_IN}"));
    for rule in PATH_RULES {
        command.arg(format!("--dpkgopt={rule}"));
    }
    // dpkg need not sync: the finished tree is synced once.
    command.arg("--dpkgopt=force-unsafe-io");
    if Path::new(MERGED_HOOKS).is_dir() {
        command.arg(format!("--hook-dir={MERGED_HOOKS}"));
        command.arg(format!("--include={MERGED_PACKAGE}"));
    }
    if let Some(hook) = user_hook(entry) {
        command.arg(format!("--customize-hook={hook}"));
    }
    command.arg(format!("--customize-hook={PLAIN_PING}"));
    command.arg(format!("--customize-hook={CACHE_OUT}"));
    add_sources(step, &mut command)?;
    let captured = run_bootstrap(step, command, tree, finish::judge).inspect_err(|error| {
        // A damaged package in the cache must not break the next build too.
        if matches!(error, EnvironmentError::BuildFailed { .. }) {
            drop(fs::remove_dir_all(&cache));
        }
    })?;
    step.reporter.say("seal", "adding mount points and users");
    finish::complete(tree, entry, &captured)?;
    Ok(Built {
        os: finish::os_name(&captured).unwrap_or_else(|| entry.source()),
        packages: finish::packages(&captured),
    })
}

/// The mmdebstrap command without its sources.
pub(super) fn bootstrap_command(
    step: &Step<'_>,
    variant: &str,
) -> Result<Command, EnvironmentError> {
    process::require("mmdebstrap", "apt-get install mmdebstrap")?;
    let scratch = step.staging.scratch();
    let mut command = step.build.store.privilege().contained("mmdebstrap");
    command
        .args(["--mode=root", "--format=tar", "--verbose"])
        .arg(format!("--variant={variant}"))
        .arg("--aptopt=Acquire::Languages \"none\"");
    let settings =
        apt::host_settings(&step.build.cancel, &scratch).at("asking apt in", &scratch)?;
    for line in settings {
        command.arg(format!("--aptopt={line}"));
    }
    if !step.entry().packages.is_empty() {
        command.arg(format!("--include={}", step.entry().packages.join(",")));
    }
    Ok(command)
}

/// Adds the host's mirrors; without any, mmdebstrap uses Debian's.
pub(super) fn add_sources(step: &Step<'_>, command: &mut Command) -> Result<(), EnvironmentError> {
    let scratch = step.staging.scratch();
    let suite = &step.entry().suite;
    let sources =
        apt::host_sources(suite, &step.build.cancel, &scratch).at("asking apt in", &scratch)?;
    command.args([suite, "-"]);
    if let Some(sources) = sources {
        command.arg(write_sources(&scratch, &sources.text)?);
    }
    Ok(())
}

pub(super) fn write_sources(scratch: &Path, text: &str) -> Result<PathBuf, EnvironmentError> {
    let path = scratch.join("host.sources");
    fs::write(&path, text).at("writing", &path)?;
    Ok(path)
}

/// Runs mmdebstrap and copies its tar stream into the tree.
pub(super) fn run_bootstrap<W: Write>(
    step: &Step<'_>,
    command: Command,
    tree: &mut TreeWriter<W>,
    judge: impl Fn(&[u8], bool) -> Verdict,
) -> Result<Captured, EnvironmentError> {
    let scratch = step.staging.scratch();
    let mut log = Log::new(step.reporter.clone());
    let mut running = process::start(command, &step.build.cancel, &scratch, move |line| {
        log.line(line);
    })
    .at("starting mmdebstrap in", &scratch)?;
    drop(running.take_stdin());
    let stdout = BufReader::with_capacity(PIPE_BUFFER_BYTES, running.take_stdout());
    // The pipe is closed when this returns: a builder that still writes fails.
    let copied = copy_tar(stdout, tree, judge);
    let exit = running.finish().at("waiting for mmdebstrap in", &scratch)?;
    match copied {
        // A truncated stream is the builder's failure, and its log has the reason.
        Err(EnvironmentError::Io { source, context }) => {
            if exit.status.success() || source.kind() == std::io::ErrorKind::BrokenPipe {
                return Err(EnvironmentError::Io { source, context });
            }
            Err(step.failed(exit.tail))
        }
        Err(error) => Err(error),
        Ok(_) if !exit.status.success() => Err(step.failed(exit.tail)),
        Ok(captured) => Ok(captured),
    }
}

fn user_hook(entry: &CatalogEntry) -> Option<String> {
    (entry.default_user != "root").then(|| {
        format!(
            "chroot \"$1\" useradd --create-home --user-group --uid {FIRST_USER_ID} \
             --shell /bin/bash {}",
            entry.default_user
        )
    })
}

/// Turns the log of mmdebstrap into progress.
struct Log {
    reporter: Reporter,
    stage: &'static str,
    configured: u64,
    announced: u64,
}

impl Log {
    fn new(reporter: Reporter) -> Self {
        Self {
            reporter,
            stage: "resolve",
            configured: 0,
            announced: 0,
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(event) = self.event(line) {
            self.reporter.send(event);
        }
    }

    fn event(&mut self, line: &str) -> Option<ProgressEvent> {
        if let Some(message) = line.strip_prefix("I: ") {
            // Other messages are about directories of the host.
            self.stage = stage_of(message)?;
            return Some(self.say(message.trim_end_matches('.')));
        }
        // "3 upgraded, 65 newly installed, ..."
        if let Some((before, _)) = line.split_once(" newly installed") {
            let count = before.rsplit(' ').next().and_then(|n| n.parse().ok());
            self.announced += count.unwrap_or(0_u64);
            return None;
        }
        if let Some(package) = line.strip_prefix("Setting up ") {
            self.configured += 1;
            self.stage = "configure";
            let name = package.split(' ').next().unwrap_or(package);
            return Some(self.say(&format!("setting up {name}")));
        }
        // "Get:12 http://mirror suite/main amd64 git amd64 1:2.39 [7254 kB]"
        let words: Vec<&str> = line.split(' ').collect();
        if let [get, _, _, _, name, _, _, size, ..] = words.as_slice()
            && get.starts_with("Get:")
            && size.starts_with('[')
        {
            self.stage = "download";
            return Some(self.say(&format!("downloading {name}")));
        }
        None
    }

    fn say(&self, message: &str) -> ProgressEvent {
        let counts = self.stage == "configure" && self.announced > 0;
        ProgressEvent {
            stage: self.stage.to_owned(),
            message: message.to_owned(),
            done: counts.then_some(self.configured.min(self.announced)),
            total: counts.then_some(self.announced),
        }
    }
}

fn stage_of(message: &str) -> Option<&'static str> {
    let stages = [
        ("running apt-get update", "resolve"),
        ("downloading", "download"),
        ("extracting", "unpack"),
        ("installing", "configure"),
        ("cleaning", "seal"),
        ("creating tarball", "seal"),
    ];
    stages
        .iter()
        .find(|(start, _)| message.starts_with(start))
        .map(|(_, stage)| *stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn the_log_becomes_stages_and_counts() {
        let mut log = Log::new(Reporter::new(Progress::none()));
        let lines = [
            "I: running apt-get update...",
            "Get:1 http://m bookworm InRelease [151 kB]",
            "Get:2 http://m bookworm/main amd64 Packages [8,793 kB]",
            "I: using /home/someone/tmp as tempdir",
            "I: downloading packages with apt...",
            "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.",
            "Get:1 http://m bookworm/main amd64 dash amd64 0.5 [97 kB]",
            "I: extracting archives...",
            "I: installing essential packages...",
            "Setting up dash (0.5) ...",
            "noise",
            "I: cleaning package lists and apt cache...",
        ];
        let events: Vec<String> = lines
            .iter()
            .filter_map(|line| log.event(line))
            .map(|e| format!("{} {} {:?}", e.stage, e.message, e.done.zip(e.total)))
            .collect();
        assert_eq!(
            events,
            [
                "resolve running apt-get update None",
                "download downloading packages with apt None",
                "download downloading dash None",
                "unpack extracting archives None",
                "configure installing essential packages Some((0, 2))",
                "configure setting up dash Some((1, 2))",
                "seal cleaning package lists and apt cache None",
            ]
        );
    }
}
