//! Changes of a workspace: on a real overlay, with both kinds of attributes, and as two plain
//! trees.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;
use std::path::{Path, PathBuf};

/// How the workspace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Trusted,
    User,
    Compare,
}

pub const ALL: [Kind; 3] = [Kind::Trusted, Kind::User, Kind::Compare];

/// A guest with a workspace, and the baseline's place.
pub struct World {
    pub machine: Machine,
}

impl World {
    /// Fills the baseline with a script. `None` where overlays cannot be mounted.
    pub async fn new(kind: Kind, baseline: &str) -> Option<World> {
        if !is_root() && kind != Kind::Compare {
            eprintln!("skipped: an overlay needs root");
            return None;
        }
        // Not on a tmpfs: overlays of every kind work on a disk.
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["base", "upper", "work"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        script(&at("base"), baseline);
        let guest = env!("CARGO_BIN_EXE_motu-guest");
        let (text, mut flags) = match kind {
            Kind::Compare => {
                script(place.path(), "cp -a base ws");
                (format!("exec {guest} \"$@\""), Vec::new())
            }
            overlay => {
                std::fs::create_dir(at("ws")).unwrap();
                let more = match overlay {
                    Kind::User => ",userxattr",
                    _ => ",redirect_dir=off,metacopy=off",
                };
                let dir = place.path().display();
                let mount = format!(
                    "mount -t overlay test -o lowerdir={dir}/base,upperdir={dir}/upper,workdir={dir}/work{more} {dir}/ws"
                );
                let flags = vec![
                    "--workspace-upper".to_string(),
                    at("upper").display().to_string(),
                ];
                (format!("{mount} && exec {guest} \"$@\""), flags)
            }
        };
        if kind == Kind::User {
            flags.push("--workspace-user-attributes".to_string());
        }
        flags.extend(["--workspace".to_string(), at("ws").display().to_string()]);
        flags.extend([
            "--workspace-lower".to_string(),
            at("base").display().to_string(),
        ]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut command = match kind {
            Kind::Compare => motu_needs::command("sh"),
            _ => {
                let mut command = motu_needs::command("unshare");
                command.args(["--mount", "sh"]);
                command
            }
        };
        command.args(["-c", &text, "sh"]);
        let machine = Machine::start_in(place, command, &flags).await;
        Some(World { machine })
    }

    pub fn base(&self) -> PathBuf {
        self.machine.place.path().join("base")
    }

    /// Runs a script in the workspace, as the machine's programs see it.
    pub async fn run(&self, text: &str) -> String {
        let dir = self.machine.place.path().join("ws");
        let text = format!("set -e; cd {}; {text}", dir.display());
        let said = self.machine.shell(&text).await.ok();
        assert_eq!(
            said.exited().code,
            0,
            "{text}: {}",
            String::from_utf8_lossy(&said.err)
        );
        String::from_utf8_lossy(&said.out).into_owned()
    }

    pub async fn changes(&self) -> Vec<ChangedEntry> {
        self.changes_at("").await
    }

    pub async fn changes_at(&self, at: &str) -> Vec<ChangedEntry> {
        let request = Changes { path: path(at) };
        let said = self.machine.call(Verb::Changes(request)).await.ok();
        let pages = said.notes.into_iter().map(|note| match note {
            Said::Changed(page) => page.entries,
            other => panic!("{other:?}"),
        });
        pages.flatten().collect()
    }

    /// The changes in short: `+` added, `-` deleted, `~` changed.
    pub async fn short(&self) -> Vec<String> {
        self.changes().await.iter().map(short).collect()
    }
}

pub fn short(entry: &ChangedEntry) -> String {
    let sign = match (&entry.before, &entry.after) {
        (None, Some(_)) => '+',
        (Some(_), None) => '-',
        (Some(_), Some(_)) => '~',
        (None, None) => '?',
    };
    format!("{sign}{}", String::from_utf8_lossy(&entry.path))
}

/// Runs a script on the host.
pub fn script(at: &Path, text: &str) {
    let done = motu_needs::command("bash")
        .args(["-ec", text])
        .current_dir(at)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{text}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

const BASELINE: &str = "mkdir -p dir/sub many gone/deep swap replaced; \
    echo one > a; echo two > dir/b; echo three > dir/sub/c; echo keep > keep; \
    echo x > gone/deep/f; echo y > gone/g; echo old > swap/old; echo same > swap/same; \
    echo r > replaced/inner; ln -s a link; echo target > file-to-link; echo m > mode; \
    ln a hard; touch -d @1000000000.123456789 keep dir/b mode swap/same; chmod 640 mode; \
    echo late > dir.txt";

#[tokio::test]
async fn an_untouched_workspace_has_no_changes() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        assert_eq!(world.short().await, [""; 0], "{kind:?}");
        // Reading, opening for writing and a copy-up without a change are no changes.
        world
            .run("cat keep dir/b >/dev/null; exec 3<>keep; exec 3>&-; chmod 600 mode; chmod 640 mode")
            .await;
        assert_eq!(world.short().await, [""; 0], "{kind:?}");
    }
}

#[tokio::test]
async fn every_kind_of_change_is_found_in_order() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        world
            .run(
                "echo new > new; mkdir -p made/deep; echo z > made/deep/z; echo more >> dir/b; \
                 chmod 600 mode; rm -r gone; rm dir.txt; ln -sf b link; \
                 rm file-to-link; ln -s a file-to-link; \
                 cp -p swap/same same.tmp; rm -r swap; mkdir swap; echo new > swap/new; mv same.tmp swap/same; \
                 rm -r replaced; echo file > replaced; ln keep keep2; \
                 python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' 2>/dev/null || mkfifo sock",
            )
            .await;
        let mut expected = vec![
            "~dir/b",
            "-dir.txt",
            "~file-to-link",
            "-gone",
            "-gone/deep",
            "-gone/deep/f",
            "-gone/g",
            "~keep",
            "+keep2",
            "~link",
            "+made",
            "+made/deep",
            "+made/deep/z",
            "~mode",
            "+new",
            "~replaced",
            "-replaced/inner",
            "+sock",
            "+swap/new",
            "-swap/old",
        ];
        expected.sort_by(|a, b| a[1..].cmp(&b[1..]));
        assert_eq!(world.short().await, expected, "{kind:?}");

        let all = world.changes().await;
        let find = |name: &str| all.iter().find(|e| &e.path[..] == name.as_bytes()).unwrap();
        let mode = find("mode");
        let bits = |facts: &Option<Facts>| facts.as_ref().unwrap().mode & 0o7777;
        assert_eq!((bits(&mode.before), bits(&mode.after)), (0o640, 0o600));
        let link = find("link");
        assert_eq!(&link.before.as_ref().unwrap().symlink_target[..], b"a");
        assert_eq!(&link.after.as_ref().unwrap().symlink_target[..], b"b");
        let replaced = find("replaced");
        assert_eq!(replaced.before.as_ref().unwrap().mode & 0o170000, 0o040000);
        assert_eq!(replaced.after.as_ref().unwrap().mode & 0o170000, 0o100000);
        let (keep, keep2) = (find("keep"), find("keep2"));
        let after = |entry: &ChangedEntry| entry.after.clone().unwrap();
        assert_eq!(after(keep).inode, after(keep2).inode);
        assert_eq!(after(keep).links, 2);

        parts_are_found(&world).await;
        script(
            &world.base(),
            "test \"$(cat dir/b)\" = two && test -d gone/deep && test -d swap",
        );
    }
}

/// The same changes, looked at from one path.
async fn parts_are_found(world: &World) {
    for (at, expected) in [
        ("swap", &["+swap/new", "-swap/old"][..]),
        ("gone/deep", &["-gone/deep", "-gone/deep/f"]),
        ("keep/x", &[]),
        ("dir/sub", &[]),
    ] {
        let part: Vec<_> = world.changes_at(at).await.iter().map(short).collect();
        assert_eq!(part, expected, "{at}");
    }
}

#[tokio::test]
async fn a_renamed_directory_is_removed_and_added() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        world.run("mv dir moved").await;
        let expected = [
            "-dir",
            "-dir/b",
            "-dir/sub",
            "-dir/sub/c",
            "+moved",
            "+moved/b",
            "+moved/sub",
            "+moved/sub/c",
        ];
        assert_eq!(world.short().await, expected, "{kind:?}");
        // Moved back: identical entries are no changes.
        world.run("mv moved dir").await;
        let left = world.short().await;
        assert!(
            left.iter().all(|line| line.starts_with("~dir")),
            "{kind:?}: {left:?}"
        );
    }
}

#[tokio::test]
async fn content_is_compared_where_times_say_nothing() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        world
            .run("printf KEEP > keep.tmp; echo >> keep.tmp; touch -r keep keep.tmp; cat keep.tmp > keep; touch -r keep.tmp keep; rm keep.tmp")
            .await;
        assert_eq!(world.short().await, ["~keep"], "{kind:?}");
        let entry = world.changes().await.remove(0);
        let (before, after) = (entry.before.unwrap(), entry.after.unwrap());
        assert_eq!(before.modified_unix_ns, 1_000_000_000_123_456_789);
        assert_eq!(before.modified_unix_ns, after.modified_unix_ns);
        let read = ReadBase {
            path: path("keep"),
            ..ReadBase::default()
        };
        assert_eq!(
            world.machine.call(Verb::ReadBase(read)).await.ok().file,
            b"keep\n"
        );
    }
}

#[tokio::test]
async fn a_stamp_that_comes_again_means_the_same_content() {
    let Some(world) = World::new(Kind::User, "true").await else {
        return;
    };
    let stamp = async || {
        let entry = world.changes().await.remove(0);
        entry.after.unwrap().stamp_ns
    };
    // In quick succession: each write must get a new stamp.
    let file = world.machine.place.path().join("upper/file");
    let mut seen = std::collections::HashMap::new();
    for content in 0..50 {
        std::fs::write(&file, content.to_string()).unwrap();
        let known = seen.insert(stamp().await, content);
        assert_eq!(known, None, "at {content}");
    }
    eventually("the stamp rests", async || {
        let first = stamp().await;
        first > 0 && first == stamp().await
    })
    .await;
}

#[tokio::test]
async fn attributes_and_owners_are_part_of_a_file() {
    let Some(world) = World::new(Kind::User, BASELINE).await else {
        return;
    };
    world
        .run("setfattr -n user.note -v hello keep || python3 -c 'import os; os.setxattr(\"keep\", \"user.note\", b\"hello\")'; chown 1234:4321 mode; chmod 700 .")
        .await;
    assert_eq!(world.short().await, ["~", "~keep", "~mode"]);
    let all = world.changes().await;
    let after = all[2].after.clone().unwrap();
    assert_eq!((after.uid, after.gid), (1234, 4321));
}

#[tokio::test]
async fn hostile_names_are_bytes() {
    for kind in ALL {
        let Some(world) = World::new(kind, "true").await else {
            continue;
        };
        let long = "n".repeat(255);
        world
            .run(&format!(
                "printf 1 > \"$(printf 'bad\\377name')\"; printf 2 > \"$(printf 'new\\nline')\"; printf 3 > {long}; mkdir ' '; printf 4 > ' /--'"
            ))
            .await;
        let paths: Vec<Bytes> = world.changes().await.into_iter().map(|e| e.path).collect();
        let expected: [&[u8]; 5] = [b" ", b" /--", b"bad\xffname", b"new\nline", long.as_bytes()];
        assert_eq!(paths, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn few_changes_among_many_files_are_found_quickly() {
    let baseline = "mkdir -p d{0..99}; for d in d*; do for f in {0..99}; do : > $d/f$f; done; done";
    let Some(world) = World::new(Kind::User, baseline).await else {
        return;
    };
    world.run("echo x > d7/f7; rm d8/f8; echo y > d9/new").await;
    let start = std::time::Instant::now();
    assert_eq!(world.short().await, ["~d7/f7", "-d8/f8", "+d9/new"]);
    let took = start.elapsed();
    println!("3 changes among 10 000 files: {took:?}");
    assert!(took.as_millis() < 200, "{took:?}");
}

#[tokio::test]
async fn many_changes_come_in_pages_in_order() {
    let Some(world) = World::new(Kind::Trusted, "true").await else {
        return;
    };
    world
        .run("i=0; while [ $i -lt 5000 ]; do : > a-rather-long-name-of-a-file-$i; i=$((i+1)); done")
        .await;
    let request = Changes { path: Bytes::new() };
    let said = world.machine.call(Verb::Changes(request)).await.ok();
    assert!(said.notes.len() > 1, "{}", said.notes.len());
    let all = world.changes().await;
    assert_eq!(all.len(), 5000);
    assert!(all.is_sorted_by(|a, b| a.path < b.path));
}

#[tokio::test]
async fn paths_never_leave_the_workspace() {
    let Some(world) = World::new(Kind::Trusted, BASELINE).await else {
        return;
    };
    script(&world.base(), "ln -s /etc escape");
    for bad in ["/etc/passwd", "../base/a", "dir/../../x"] {
        let read = ReadBase {
            path: path(bad),
            ..ReadBase::default()
        };
        world
            .machine
            .call(Verb::ReadBase(read))
            .await
            .fails(Failure::Invalid);
    }
    for (bad, kind) in [
        ("escape/passwd", Failure::Denied),
        ("link", Failure::Denied),
        ("dir", Failure::Invalid),
        ("none", Failure::NotFound),
    ] {
        let read = ReadBase {
            path: path(bad),
            ..ReadBase::default()
        };
        world.machine.call(Verb::ReadBase(read)).await.fails(kind);
    }
}

#[tokio::test]
async fn a_machine_without_a_baseline_says_so() {
    let machine = Machine::start().await;
    let request = Changes { path: Bytes::new() };
    machine
        .call(Verb::Changes(request))
        .await
        .fails(Failure::Unsupported);
}
