//! The conversations in `tests/conversations`, held with a real QEMU: what it answers there is what it answers here.
//!
//! `MOTU_UPDATE=1` writes them anew: what is said to QEMU stays, and what QEMU says is replaced.

use crate::conversation::{Conversation, Line};
use crate::support::World;
use motu_core::Runtime;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const NAMES: [&str; 8] = [
    "pause",
    "resume",
    "spare",
    "save",
    "save-refused",
    "throttle",
    "fork",
    "fork-refused",
];

fn file(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    place.join(format!("{name}.qmp"))
}

#[tokio::test]
async fn a_real_qemu_says_what_was_recorded() {
    let names = std::fs::read_dir(file("x").parent().unwrap())
        .unwrap()
        .count();
    assert_eq!(names, NAMES.len(), "every recording is held again");
    let world = World::new();
    for name in NAMES {
        let recorded = Conversation::parse(&std::fs::read_to_string(file(name)).unwrap());
        let machine = world.runtime.create(&world.spec()).await.unwrap();
        prepare(name, &machine.dir);
        let held = hold(&machine.dir, &recorded);
        if std::env::var_os("MOTU_UPDATE").is_some() {
            std::fs::write(file(name), held.text()).unwrap();
        } else {
            assert_eq!(kinds(&held), kinds(&recorded), "{name}: {}", held.text());
        }
        world.runtime.destroy(&machine).await.unwrap();
    }
}

/// What the runtime itself does before it says this to a machine, and what goes wrong.
fn prepare(name: &str, dir: &Path) {
    match name {
        "fork" => {
            for disk in ["root", "work"] {
                let [below, new] = [1, 2].map(|layer| dir.join(format!("{disk}-{layer}.qcow2")));
                std::fs::copy(&below, &new).unwrap();
                let owner = below.metadata().unwrap();
                chown(&new, Some(owner.uid()), Some(owner.gid())).unwrap();
            }
        }
        "save-refused" => {
            let state = dir.join("state");
            chown(&state, Some(0), Some(0)).unwrap();
            std::fs::set_permissions(&state, PermissionsExt::from_mode(0o600)).unwrap();
        }
        _ => {}
    }
}

/// The same commands, with what QEMU says of them now.
fn hold(dir: &Path, recorded: &Conversation) -> Conversation {
    // Paths of sockets have a small limit.
    let handle = std::fs::File::open(dir).unwrap();
    let short = format!("/proc/self/fd/{}/qmp.sock", handle.as_raw_fd());
    let mut stream = UnixStream::connect(short).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    let mut said = BufReader::new(stream.try_clone().unwrap()).lines();
    let remarks = recorded.0.iter();
    let remarks = remarks.take_while(|line| matches!(line, Line::Remark(_)));
    let mut lines: Vec<Line> = remarks.cloned().collect();
    let mut hear = |lines: &mut Vec<Line>| {
        loop {
            let mut line: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
            if line["timestamp"].is_object() {
                line["timestamp"] = json!({"seconds": 0, "microseconds": 0});
            }
            let is_event = line["event"].is_string();
            lines.push(Line::Said(line.to_string()));
            if !is_event {
                return;
            }
        }
    };
    hear(&mut lines);
    for asked in recorded.asked() {
        lines.push(Line::Asked(asked.clone()));
        stream.write_all(format!("{asked}\n").as_bytes()).unwrap();
        hear(&mut lines);
    }
    Conversation(lines)
}

/// The commands, and whether QEMU did them. Events come as they like, and words differ between versions.
fn kinds(conversation: &Conversation) -> Vec<String> {
    let kind = |line: &Line| match line {
        Line::Asked(asked) => Some(asked.to_string()),
        Line::Said(said) => {
            let said: Value = serde_json::from_str(said).unwrap();
            let kinds = ["QMP", "return", "error"].into_iter();
            let mut found = kinds.filter(|kind| said.get(kind).is_some());
            found.next().map(str::to_string)
        }
        _ => None,
    };
    conversation.0.iter().filter_map(kind).collect()
}
