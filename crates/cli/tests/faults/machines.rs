//! `kill -9` of the daemon while machines wait ready.

use crate::support::{Dice, ENVIRONMENT, World, eventually};
use std::collections::BTreeSet;
use std::process::Stdio;

/// Machines that wait ready.
const READY: usize = 2;

#[tokio::test]
async fn a_daemon_killed_while_machines_wait_ready() {
    let Some(mut world) = World::bare() else {
        return;
    };
    let config = format!(
        "[[pool]]\nenvironment = \"{ENVIRONMENT}\"\nruntime = \"container\"\nready = {READY}\n"
    );
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let mut dice = Dice::new(0x706f_6f6c);
    let mut used = BTreeSet::new();
    let mut before = BTreeSet::new();
    for round in 0..4 {
        world.start();
        eventually("other machines wait, and no more of them", async || {
            let found = world.traces.found();
            let full = found.directories.len() == READY && found.busy == found.directories;
            let fresh = found.directories.is_disjoint(&before);
            (full && fresh && found.cgroups == found.directories, found)
        })
        .await;
        let waiting = world.traces.found().directories;
        let run = || {
            let words = [
                "run",
                ENVIRONMENT,
                "--runtime",
                "container",
                "--",
                "hostname",
            ];
            let mut command = world.command(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        // More than wait: some are claimed, some are made.
        let runs: Vec<_> = (0..READY + 2).map(|_| run()).collect();
        let mut claimed = 0;
        for run in runs {
            let output = run.wait_with_output().unwrap();
            let name = String::from_utf8_lossy(&output.stdout).trim().to_string();
            assert!(output.status.success(), "{output:?}");
            claimed += usize::from(waiting.contains(&name));
            assert!(used.insert(name), "handed out twice: {output:?}");
        }
        assert!(claimed > 0, "nothing was claimed: {waiting:?} {used:?}");
        // The next blow falls while the pool is being filled again, or is full.
        let cut_off = (round > 0).then(run);
        tokio::time::sleep(dice.moment(150)).await;
        before = world.traces.found().directories;
        world.kill();
        if let Some(run) = cut_off {
            let output = run.wait_with_output().unwrap();
            let name = String::from_utf8_lossy(&output.stdout).trim().to_string();
            let new = name.is_empty() || used.insert(name);
            assert!(new, "handed out twice: {output:?}");
        }
        let listed = world.traces.found().directories;
        before.extend(listed);
    }
    world.start();
}
