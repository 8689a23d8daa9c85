//! Workspaces with a large tree, compared with git and cp on the same tree.

mod disk;
mod service;
mod tree;

use crate::motu::Motu;
use crate::rivals::{present, quiet};
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use disk::Disk;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tree::Tree;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const FILES: usize = 50_000;
const QUICK_FILES: usize = 2_000;
/// Rounds of measurements in milliseconds, and of those that copy the whole tree.
const ROUNDS: usize = 9;
const HEAVY: usize = 3;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("workspaces (whole commands, p50, caches warm)");
    bench.note_load();
    if !present(
        &bench.report,
        &["git", "cp", "sync", "python3", "mke2fs", "mount"],
    ) {
        return Ok(());
    }
    let disk = Disk::make(bench.motu.home.parent().unwrap_or(Path::new(".")))?;
    let own = disk.serve(&bench.motu)?;
    let usual = std::mem::replace(&mut bench.motu, own);
    let done = on_disk(bench);
    bench.motu = usual;
    done
}

/// All measurements, with a daemon on a separate disk.
fn on_disk(bench: &mut Bench) -> Outcome {
    let place = bench.motu.home.parent().unwrap_or(Path::new("."));
    let count = if bench.quick { QUICK_FILES } else { FILES };
    let tree = Tree::make(place, count)?;
    tree.commit()?;
    bench.report.note(
        "the tree",
        format!("{count} files, {:.0} MB", tree.bytes as f64 / 1e6),
    );
    let host = copying(&tree)?;
    bench.report.note("cp -a of it", format!("{host:.0} MB/s"));
    seeding(bench, &tree)?;
    let seed = tree.root().display().to_string();
    let motu = &bench.motu;
    let workspace = Workspace::create(motu, ENVIRONMENT, "container", &["--seed-path", &seed])?;
    let figures = Figures::take(&workspace, &tree);
    workspace.delete()?;
    figures?.tell(bench, tree.bytes);
    service::measure(bench)?;
    small_reset(bench)?;
    small_machine(bench)
}

/// A workspace under a name; call `delete` at the end.
pub struct Workspace<'a> {
    motu: &'a Motu,
    id: String,
}

impl<'a> Workspace<'a> {
    fn create(
        motu: &'a Motu,
        environment: &str,
        runtime: &str,
        more: &[&str],
    ) -> Fallible<Workspace<'a>> {
        let mut words = vec!["workspace", "create", environment, "--json"];
        words.extend(["--runtime", runtime, "--ttl-seconds", "1800"]);
        words.extend(more);
        let made = motu.json(&words)?;
        let id = made["workspace_id"].as_str().ok_or("no workspace_id")?;
        Ok(Workspace {
            motu,
            id: id.to_string(),
        })
    }

    /// A `motu workspace` command; an empty word is replaced by the workspace's id.
    fn command(&self, words: &[&str]) -> Command {
        let mut all = vec!["workspace"];
        all.extend(words.iter().map(|word| match *word {
            "" => self.id.as_str(),
            word => word,
        }));
        self.motu.command(&all)
    }

    /// The same with a JSON answer.
    fn ask(&self, words: &[&str]) -> Fallible<serde_json::Value> {
        let mut all = vec!["workspace", "--json"];
        all.extend(words.iter().map(|word| match *word {
            "" => self.id.as_str(),
            word => word,
        }));
        self.motu.json(&all)
    }

    fn delete(self) -> Outcome {
        quiet(self.command(&["delete", ""]))
    }

    /// Appends a line to some files, as [`Tree::change`] does on the host.
    fn change(&self, files: &[String]) -> Outcome {
        let script = "for file; do echo changed >> /workspace/$file; done";
        let mut command = self.command(&["exec", "", "--", "sh", "-c", script, "sh"]);
        command.args(files);
        quiet(command)
    }
}

/// Writes dirty pages, so that they do not slow down the next round.
fn settle() -> Outcome {
    quiet(Command::new("sync"))
}

/// Measures `work`; `back` restores the state and is not measured.
fn rounds(
    count: usize,
    mut work: impl FnMut() -> Outcome,
    mut back: impl FnMut() -> Outcome,
) -> Fallible<Timings> {
    let mut all = Vec::new();
    for _ in 0..count {
        settle()?;
        let begun = Instant::now();
        work()?;
        all.push(begun.elapsed());
        back()?;
    }
    Ok(Timings::from(all))
}

/// The lower bound for copying the tree.
fn copying(tree: &Tree) -> Fallible<f64> {
    let copy = tree.beside("copy");
    let work = || {
        let mut command = Command::new("cp");
        command.args(["-a", "--reflink=never"]);
        command.arg(tree.root()).arg(&copy);
        quiet(command)
    };
    let timings = rounds(HEAVY, work, || Ok(std::fs::remove_dir_all(&copy)?))?;
    Ok(timings.speed(tree.bytes))
}

fn seeding(bench: &mut Bench, tree: &Tree) -> Outcome {
    let seed = tree.root().display().to_string();
    let mut all = Vec::new();
    for _ in 0..HEAVY {
        settle()?;
        let begun = Instant::now();
        let more = ["--seed-path", seed.as_str()];
        let workspace = Workspace::create(&bench.motu, ENVIRONMENT, "container", &more)?;
        all.push(begun.elapsed());
        workspace.delete()?;
    }
    let speed = Timings::from(all).speed(tree.bytes);
    bench
        .report
        .at_least("workspace create --seed-path", speed, 250.0, "MB/s");
    Ok(())
}

/// Results for the large workspace.
struct Figures {
    push: f64,
    export: f64,
    git: f64,
    diff: f64,
    snapshot: f64,
    growth: f64,
    reset: f64,
}

impl Figures {
    fn take(workspace: &Workspace<'_>, tree: &Tree) -> Fallible<Figures> {
        let source = tree.root().display().to_string();
        let push = || quiet(workspace.command(&["sync", "push", "", &source]));
        let push = rounds(HEAVY, push, || Ok(()))?.p50();
        let exported = tree.beside("exported");
        let target = exported.display().to_string();
        let export =
            || quiet(workspace.command(&["export", "", "/workspace", "--output", &target]));
        let export = rounds(HEAVY, export, || Ok(std::fs::remove_dir_all(&exported)?))?;
        let (git, diff) = comparing(workspace, tree)?;
        let (snapshot, growth) = snapshots(workspace, tree)?;
        let files = tree.changing();
        Ok(Figures {
            push,
            export: export.speed(tree.bytes),
            git,
            diff,
            snapshot,
            growth,
            reset: resets(workspace, &files)?,
        })
    }

    fn tell(&self, bench: &mut Bench, bytes: u64) {
        let report = &mut bench.report;
        let changes = tree::CHANGES;
        report.at_least("workspace export", self.export, 250.0, "MB/s");
        report.at_most("sync push, nothing changed", self.push, 1500.0, "ms");
        report.note(
            &format!("git status + git diff, {changes} files changed"),
            format!("{:.0} ms", self.git),
        );
        let what = format!("workspace diff, {changes} files changed");
        report.at_most(&what, self.diff, 150.0, "ms");
        report.at_least("ratio to git", self.git / self.diff, 10.0, "x");
        report.at_most("snapshot create", self.snapshot, 100.0, "ms");
        report.at_most("  growth to bytes changed", self.growth, 1.2, "x");
        report.at_most("reset, to the first exec done", self.reset, 500.0, "ms");
        report.note("  of a tree of", format!("{:.0} MB", bytes as f64 / 1e6));
    }
}

/// git's time and ours for the same changes in the same tree.
fn comparing(workspace: &Workspace<'_>, tree: &Tree) -> Fallible<(f64, f64)> {
    tree.change()?;
    workspace.change(&tree.changing())?;
    let found = workspace.ask(&["diff", ""])?;
    if found["modified"] != tree::CHANGES {
        let count = &found["modified"];
        return Err(format!("the diff shows {count} files").into());
    }
    let git = Timings::of(ROUNDS, || {
        quiet(tree.git(&["status", "--porcelain"]))?;
        quiet(tree.git(&["diff"]))
    })?;
    let diff = Timings::of(ROUNDS, || quiet(workspace.command(&["diff", ""])))?;
    Ok((git.p50(), diff.p50()))
}

/// The time of a snapshot, and the growth of the state directory per changed byte.
fn snapshots(workspace: &Workspace<'_>, tree: &Tree) -> Fallible<(f64, f64)> {
    let files = tree.changing();
    let home = &workspace.motu.home;
    let (mut times, mut growth) = (Vec::new(), 0.0);
    for round in 0..ROUNDS {
        // A snapshot may reuse blocks that the change wrote, so both together are its cost.
        settle()?;
        let before = occupied(home)?;
        workspace.change(&files)?;
        settle()?;
        let begun = Instant::now();
        quiet(workspace.command(&["snapshot", "create", "", &format!("round-{round}")]))?;
        times.push(begun.elapsed());
        settle()?;
        growth += occupied(home)?.saturating_sub(before) as f64;
    }
    // The tree has the same files, which differ only by a few lines in length.
    let mut changed = 0;
    for file in &files {
        changed += tree.root().join(file).metadata()?.len();
    }
    let growth = growth / (ROUNDS as u64 * changed) as f64;
    Ok((Timings::from(times).p50(), growth))
}

/// The time of a reset and one command after a change.
fn resets(workspace: &Workspace<'_>, files: &[String]) -> Fallible<f64> {
    let mut all: Vec<Duration> = Vec::new();
    for _ in 0..ROUNDS {
        workspace.change(files)?;
        let begun = Instant::now();
        quiet(workspace.command(&["reset", ""]))?;
        quiet(workspace.command(&["exec", "", "--", "true"]))?;
        all.push(begun.elapsed());
    }
    Ok(Timings::from(all).p50())
}

/// The command `workspace reset` alone, after few changes in a small tree.
fn small_reset(bench: &mut Bench) -> Outcome {
    let place = bench.motu.home.parent().unwrap_or(Path::new("."));
    let tree = Tree::make(place, tree::CHANGES * 10)?;
    let seed = tree.root().display().to_string();
    let more = ["--seed-path", &seed];
    let workspace = Workspace::create(&bench.motu, ENVIRONMENT, "container", &more)?;
    quiet(workspace.command(&["snapshot", "create", "", "before"]))?;
    let files = tree.changing();
    let few = &files[..files.len().min(2)];
    let mut all = Vec::new();
    for _ in 0..ROUNDS * 3 {
        workspace.change(few)?;
        // A person or a model needs a moment between commands, and the disk settles.
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        quiet(workspace.command(&["reset", "", "--snapshot", "before"]))?;
        all.push(begun.elapsed());
    }
    workspace.delete()?;
    let reset = Timings::from(all).p50();
    bench
        .report
        .at_most("reset with few changes, the command", reset, 20.0, "ms");
    Ok(())
}

/// The same reset with a virtual machine (`MOTU_TEST_ACCEL`), and a small tree.
fn small_machine(bench: &mut Bench) -> Outcome {
    if !present(&bench.report, &["qemu-system-x86_64"]) {
        return Ok(());
    }
    let place = bench.motu.home.parent().unwrap_or(Path::new("."));
    let tree = Tree::make(place, tree::CHANGES * 10)?;
    let seed = tree.root().display().to_string();
    quiet(bench.motu.command(&["env", "pull", "busybox"]))?;
    let accelerator = motu_needs::accelerator();
    let more = ["--seed-path", &seed, "--accel", &accelerator];
    let workspace = Workspace::create(&bench.motu, "busybox", "qemu", &more)?;
    let reset = resets(&workspace, &tree.changing());
    workspace.delete()?;
    bench.report.at_most(
        &format!("reset on qemu ({accelerator}), to the first exec done"),
        reset?,
        3000.0,
        "ms",
    );
    Ok(())
}

/// The disk usage of a state directory, without the parts that snapshots do not change.
fn occupied(home: &Path) -> Fallible<u64> {
    let mut all = 0;
    for entry in std::fs::read_dir(home)? {
        let path = entry?.path();
        if !path.ends_with("environments") && !path.ends_with("cache") {
            all += below(&path);
        }
    }
    Ok(all)
}

/// The disk usage of a file or a directory tree. Files that vanish meanwhile count as 0.
fn below(path: &Path) -> u64 {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    let own = found.blocks() * 512;
    match std::fs::read_dir(path) {
        Ok(entries) if found.is_dir() => {
            own + entries
                .flatten()
                .map(|entry| below(&entry.path()))
                .sum::<u64>()
        }
        _ => own,
    }
}
