//! A seeded workspace behaves like a plain disk, and files keep their metadata on every way in and
//! out: times to the nanosecond, user attributes, holes, links and pipes.

use motu_testkit::story::Story;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A time with all digits of nanoseconds set.
const MOMENT: Duration = Duration::new(1_700_000_000, 123_456_789);
const SPARSE_BYTES: u64 = 64 << 20;

/// Operations that must work on a seed as on a plain disk.
const PLAIN_DISK: &str = r#"
set -e
step() { echo "step: $*" >&2; }
cd /workspace
step "a directory is renamed, also over and back"
python3 -c '
import os
os.rename("sub", "other")
os.mkdir("empty")
os.rename("other", "empty")
os.rename("empty", "sub")
os.rename("sub/deep", "deep")
os.rename("deep", "sub/deep")
'
test "$(cat sub/deep/file)" = deep
step "git moves one"
git -C repository mv sub other
git -C repository commit -qm moved
git -C repository fsck --no-progress
test "$(git -C repository ls-files)" = other/file
step "names of one file stay together"
test "$(stat -c %i one)" = "$(stat -c %i two)"
echo changed >>one
test "$(cat two)" = "$(printf 'linked\nchanged')"
step "a mapping sees what is written later"
python3 -c '
import mmap, os
before = os.open("mapped", os.O_RDONLY)
view = mmap.mmap(before, 6, prot=mmap.PROT_READ)
assert view[:] == b"before"
with open("mapped", "r+b") as file:
    file.write(b"after!")
assert view[:] == b"after!", view[:]
assert os.pread(before, 6, 0) == b"after!"
'
"#;

/// Checks that the tree at `$1` has the metadata it had on the host.
const AS_IT_WAS: &str = r#"
set -e
cd "$1"
test "$(stat -c %.9Y plain)" = 1700000000.123456789
test "$(stat -c %.9Y sub)" = 1700000000.123456789
test "$(stat -c %.9Y link)" = 1700000000.123456789
test "$(stat -c %a plain)" = 640
python3 - $NO_ATTRIBUTES <<'LOOK'
import os, sys
if len(sys.argv) == 1:
    assert os.getxattr("plain", "user.n=%me") == b"\x00v=alue\n"
    assert os.getxattr("sub", "user.of") == b"a directory"
assert os.stat("one").st_ino == os.stat("two").st_ino
found = os.stat("sparse")
assert found.st_size == 64 << 20, found
assert len(sys.argv) > 1 or found.st_blocks * 512 < 4 << 20, found
with open("sparse", "rb") as file:
    file.seek(40 << 20)
    assert file.read(6) == b"middle"
LOOK
"#;

fn attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn attribute_of(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 64];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

fn set_time(path: &Path) {
    let time = rustix::fs::Timespec {
        tv_sec: MOMENT.as_secs() as i64,
        tv_nsec: MOMENT.subsec_nanos().into(),
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

/// Creates a tree with every kind of metadata that is easily lost.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deep")).unwrap();
    fs::write(at.join("sub/deep/file"), "deep\n").unwrap();
    fs::write(at.join("plain"), "plain\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(at.join("plain"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(at.join("one"), "linked\n").unwrap();
    fs::hard_link(at.join("one"), at.join("two")).unwrap();
    fs::write(at.join("mapped"), "before").unwrap();
    symlink("plain", at.join("link")).unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.set_len(SPARSE_BYTES).unwrap();
    sparse.write_all_at(b"middle", 40 << 20).unwrap();
    attribute(&at.join("plain"), "user.n=%me", b"\0v=alue\n");
    attribute(&at.join("sub"), "user.of", b"a directory");
    for (twin, content) in [("left", "this"), ("right", "that")] {
        fs::create_dir_all(at.join(twin).join("deep")).unwrap();
        for file in ["file", "deep/file"] {
            fs::write(at.join(twin).join(file), content).unwrap();
            set_time(&at.join(twin).join(file));
        }
    }
    for path in ["plain", "sub", "link"] {
        set_time(&at.join(path));
    }
}

/// The same checks on the host.
fn is_as_it_was(at: &Path, attributes: bool) {
    for path in ["plain", "sub", "link"] {
        let found = fs::symlink_metadata(at.join(path)).unwrap();
        let time = (found.mtime(), found.mtime_nsec());
        assert_eq!(time, (1_700_000_000, 123_456_789), "{path}");
    }
    if attributes {
        assert_eq!(attribute_of(&at.join("plain"), "user.n=%me"), b"\0v=alue\n");
        assert_eq!(attribute_of(&at.join("sub"), "user.of"), b"a directory");
    }
    let inode = |name: &str| fs::metadata(at.join(name)).unwrap().ino();
    assert_eq!(inode("one"), inode("two"));
    let sparse = fs::metadata(at.join("sparse")).unwrap();
    assert_eq!(sparse.len(), SPARSE_BYTES);
    assert!(sparse.blocks() * 512 < 4 << 20, "{}", sparse.blocks());
}

struct Kept {
    story: Story,
    id: String,
    /// Whether extended attributes work. The `runsc` of Debian 12 has them in memory only: none can
    /// be set on a file of its disks, and none is listed. It reports no block counts either, and
    /// its named pipes are in memory and end with the machine.
    attributes: bool,
}

impl Kept {
    fn new(runtime: &str) -> Option<Kept> {
        let story = Story::with_debian(runtime)?;
        let seed = story.path().join("seed");
        tree(&seed);
        let repository = seed.join("repository");
        fs::create_dir_all(repository.join("sub")).unwrap();
        fs::write(repository.join("sub/file"), "x").unwrap();
        for arguments in [
            &["init", "-q"][..],
            &["config", "user.email", "a@b"],
            &["config", "user.name", "a"],
            &["add", "."],
            &["commit", "-qm", "first"],
        ] {
            let done = motu_needs::command("git")
                .args(arguments)
                .current_dir(&repository)
                .output();
            assert!(done.unwrap().status.success());
        }
        let mut create = vec!["workspace", "create", "debian:12", "--runtime", runtime];
        create.extend(["--seed-path", seed.to_str().unwrap(), "--id-only"]);
        let made = story.motu(&create);
        assert_eq!(made.code, 0, "{made}");
        let id = made.stdout.trim().to_string();
        let attributes = runtime != "gvisor";
        Some(Kept {
            story,
            id,
            attributes,
        })
    }

    fn motu(&self, arguments: &[&str]) -> String {
        let told = self.story.motu(arguments);
        assert_eq!(told.code, 0, "{arguments:?}: {told}");
        told.stdout
    }

    fn sh(&self, script: &str, argument: &str) -> String {
        let mut arguments = vec!["workspace", "exec", &self.id, "--timeout-seconds", "200"];
        let script = match self.attributes {
            true => script.to_string(),
            false => format!("NO_ATTRIBUTES=none; {script}"),
        };
        arguments.extend(["--", "bash", "-c", &script, "bash", argument]);
        self.motu(&arguments)
    }

    fn here(&self, name: &str) -> String {
        self.story.path().join(name).to_str().unwrap().to_string()
    }

    fn there(&self, path: &str) -> String {
        format!("{}:{path}", self.id)
    }

    fn changed(&self) -> String {
        self.motu(&["workspace", "diff", &self.id])
    }
}

fn kept(runtime: &str) {
    let Some(kept) = Kept::new(runtime) else {
        return;
    };
    kept.sh(AS_IT_WAS, "/workspace");
    assert_eq!(kept.changed().trim(), "", "{runtime}: nothing was changed");

    // Export: a tree and a file, by both commands.
    let id = &kept.id;
    kept.motu(&[
        "workspace",
        "export",
        id,
        "/workspace",
        "--output",
        &kept.here("out"),
    ]);
    is_as_it_was(&kept.story.path().join("out"), kept.attributes);
    kept.motu(&[
        "workspace",
        "export",
        id,
        "plain",
        "--output",
        &kept.here("plain"),
    ]);
    kept.motu(&[
        "workspace",
        "export",
        id,
        "sparse",
        "--output",
        &kept.here("sparse"),
    ]);
    kept.motu(&["cp", &kept.there("/workspace"), &kept.here("copied")]);
    is_as_it_was(&kept.story.path().join("copied"), kept.attributes);
    kept.motu(&["cp", &kept.there("/workspace/plain"), &kept.here("again")]);
    for name in ["plain", "again"] {
        let found = fs::metadata(kept.story.path().join(name)).unwrap();
        assert_eq!(
            (found.mtime_nsec(), found.mode() & 0o777),
            (123_456_789, 0o640)
        );
        if kept.attributes {
            let path = kept.story.path().join(name);
            assert_eq!(attribute_of(&path, "user.n=%me"), b"\0v=alue\n");
        }
    }
    let sparse = fs::metadata(kept.story.path().join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 4 << 20, "{}", sparse.blocks());

    // Import: a tree, its files one by one, and a push.
    kept.motu(&["cp", &kept.here("seed"), &kept.there("/home/user/tree")]);
    kept.sh(AS_IT_WAS, "/home/user/tree");
    kept.sh("mkdir /home/user/single", "");
    for name in ["plain", "sparse"] {
        let from = format!("{}/{name}", kept.here("seed"));
        kept.motu(&["cp", &from, &kept.there("/home/user/single/")]);
    }
    let single = AS_IT_WAS.lines().filter(|line| {
        !["sub", "link", "one"]
            .iter()
            .any(|word| line.contains(word))
    });
    kept.sh(&single.collect::<Vec<_>>().join("\n"), "/home/user/single");
    kept.motu(&[
        "workspace",
        "sync",
        "push",
        id,
        &kept.here("seed"),
        "--dest",
        "pushed",
    ]);
    kept.sh(
        "cd /workspace/pushed && test \"$(stat -c %.9Y plain)\" = 1700000000.123456789 &&
         python3 -c 'import os, sys
assert sys.argv[1:] or os.getxattr(\"plain\", \"user.n=%me\") == b\"\\0v=alue\\n\"' $NO_ATTRIBUTES &&
         test -n \"$NO_ATTRIBUTES\" -o $(stat -c %b sparse) -lt 8192 && rm -r /workspace/pushed",
        "",
    );
    owner_stays(&kept);
    twins_are_told_apart(&kept);

    kept.sh(PLAIN_DISK, "");
    let changed = kept.changed();
    assert!(
        changed.contains("mapped") && changed.contains("two"),
        "{changed}"
    );
    snapshots(&kept);
}

/// A directory that replaced another one is reported as changed, although all names, sizes and
/// times in it are the same.
fn twins_are_told_apart(kept: &Kept) {
    kept.sh("cd /workspace && rm -r right && mv left right", "");
    let told = kept.motu(&["workspace", "diff", &kept.id, "--json"]);
    let diff: serde_json::Value = serde_json::from_str(&told).unwrap();
    let entries = diff["entries"].as_array().into_iter().flatten();
    let words = |entry: &serde_json::Value| format!("{} {}", entry["status"], entry["path"]);
    let mut found: Vec<_> = entries.map(|entry| words(entry).replace('"', "")).collect();
    found.sort();
    let expected = [
        "deleted left",
        "deleted left/deep",
        "deleted left/deep/file",
        "deleted left/file",
        "modified right/deep/file",
        "modified right/file",
    ];
    assert_eq!(found, expected);
    kept.motu(&["workspace", "reset", &kept.id]);
}

/// A file that replaces another gets the owner of the replaced one.
fn owner_stays(kept: &Kept) {
    let mut make = vec!["exec", "--user", "root", &kept.id, "--", "install"];
    make.extend(["-m", "600", "/dev/null", "/etc/of-root"]);
    kept.motu(&make);
    kept.motu(&["cp", &kept.here("plain"), &kept.there("/etc/of-root")]);
    let found = kept.sh("stat -c '%U %a %s' /etc/of-root", "");
    assert_eq!(found.trim(), "root 600 6");
    // A device is not a regular file, and is not replaced.
    let told = kept
        .story
        .motu(&["cp", &kept.here("plain"), &kept.there("/dev/null")]);
    assert_ne!(told.code, 0, "{told}");
    kept.sh("test -c /dev/null", "");
}

fn snapshots(kept: &Kept) {
    let id = &kept.id;
    let set = kept.sh(
        "cd /workspace && mkfifo -m 600 pipe && touch -d @1700000001.5 pipe &&
         python3 -c 'import os, socket
try:
    os.setxattr(\"one\", \"user.new\", b\"1\")
    print(\"set\")
except OSError as error:
    print(error.errno)
socket.socket(socket.AF_UNIX).bind(\"socket\")'",
        "",
    );
    // 95 is EOPNOTSUPP. If this changes, the documentation must change too.
    assert_eq!(set.trim(), if kept.attributes { "set" } else { "95" });
    kept.motu(&["workspace", "snapshot", "create", id, "saved"]);
    let diff = kept.changed();
    kept.motu(&["workspace", "reset", id, "--snapshot", "saved"]);
    kept.sh(
        "cd /workspace && test -n \"$NO_ATTRIBUTES\" -o \"$(stat -c '%a %F %.9Y' pipe)\" = '600 fifo 1700000001.500000000' &&
         test -z \"$NO_ATTRIBUTES\" -o ! -e pipe &&
         test -f sub/deep/file && test ! -e socket && test \"$(git -C repository ls-files)\" = other/file &&
         test \"$(stat -c %i one)\" = \"$(stat -c %i two)\" &&
         python3 -c 'import os, sys
assert sys.argv[1:] or os.getxattr(\"two\", \"user.new\") == b\"1\"' $NO_ATTRIBUTES",
        "",
    );
    // Only the socket is missing.
    let missing = |line: &&str| !line.contains("socket");
    let lines = |text: &str| {
        text.lines()
            .filter(missing)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&kept.changed()), lines(&diff));
    // After a stop and a start the seed is not copied again, and temporary files of interrupted
    // writes are removed, but nothing else.
    let begun = "sub/deep/.motu-0123456789abcdef.tmp";
    kept.sh(
        "cd /workspace && echo half >$1 && echo mine >.motu-mine.tmp",
        begun,
    );
    kept.motu(&["workspace", "stop", id]);
    kept.motu(&["workspace", "start", id]);
    kept.sh(
        "cd /workspace && for _ in $(seq 300); do if [ ! -e $1 ]; then break; fi; sleep 0.1; done
         test ! -e $1 && test \"$(cat .motu-mine.tmp)\" = mine && rm .motu-mine.tmp",
        begun,
    );
    assert_eq!(lines(&kept.changed()), lines(&diff));
    kept.motu(&["workspace", "reset", id]);
    kept.sh(AS_IT_WAS, "/workspace");
    assert_eq!(kept.changed().trim(), "");
}

#[test]
fn in_a_container() {
    kept("container");
}

#[test]
fn in_gvisor() {
    kept("gvisor");
}

#[test]
fn in_a_virtual_machine() {
    kept("qemu");
}

#[test]
fn a_time_is_what_the_file_system_says() {
    // A precondition of the tests above: this host's file system stores nanoseconds.
    let file = tempfile::NamedTempFile::new().unwrap();
    set_time(file.path());
    let found = file.as_file().metadata().unwrap().modified().unwrap();
    assert_eq!(
        found.duration_since(SystemTime::UNIX_EPOCH).unwrap(),
        MOMENT
    );
}
