use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::*;
use crate::{Ext4Layer, Layer as _, Merged, Raw};

/// Works on a disk with a small journal and copies it as a power cut would leave it, also after the
/// kernel's replay. Everything is mounted in a private namespace.
const WORK: &str = r#"
set -e
cd "$1"
mke2fs -q -F -t ext4 -b 1024 -J size=1 disk 24M
mkdir m k
# Without the kernel putting off where a file is to be, which says nothing about journals.
mount -o loop,commit=300,nodelalloc disk m
python3 - <<'WORK'
import os, random, shutil
random.seed(7)
def settle(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
for turn in range(14):
    for step in range(30):
        name = f"m/d{random.randrange(9)}"
        # A removed directory's blocks are given away, and come back as somebody's content.
        if os.path.exists(name) and random.random() < 0.3:
            shutil.rmtree(name)
        else:
            os.makedirs(name, exist_ok=True)
            if random.random() < 0.3:
                os.setxattr(name, "user.overlay.opaque", b"y")
            for count in range(random.randrange(1, 12)):
                path = f"{name}/f{random.randrange(40)}-{'x' * random.randrange(90)}"
                with open(path, "wb") as file:
                    # Content that begins like a block of the journal must stay what it is.
                    file.write(b"\xc0\x3b\x39\x98" + bytes([turn, step]) * random.randrange(3000))
                if random.random() < 0.2:
                    os.rename(path, path + "r")
        settle("m")
    shutil.copyfile("disk", f"cut{turn}")
    shutil.copyfile(f"cut{turn}", "replay")
    os.mkdir(f"seen{turn}")
    assert os.system(f"mount -o loop replay k && cp -a k/. seen{turn}/ && umount k") == 0
WORK
umount m
"#;

/// Every path with its content, and whether it is opaque.
type Tree = BTreeMap<String, (Option<Vec<u8>>, bool)>;

fn kernels(top: &Path, at: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("/{}", path.strip_prefix(top).unwrap().display());
        if !path.is_dir() {
            tree.insert(name, (Some(fs::read(&path).unwrap()), false));
            continue;
        }
        let mut value = [0; 2];
        let read = rustix::fs::getxattr(&path, "user.overlay.opaque", &mut value[..]);
        tree.insert(name, (None, read == Ok(1)));
        kernels(top, &path, tree);
    }
}

fn ours(disk: &Path) -> Tree {
    let open = || Ext4Layer::upper(Box::new(Raw::open(disk).unwrap()), b"").unwrap();
    let mut layer = open();
    assert!(layer.knows_opaque());
    let mut view = Merged::new(vec![Box::new(open())]);
    let listing = view.list(b"/", true, 100_000).unwrap();
    let read = |entry: crate::Entry| {
        let content = match entry.kind {
            crate::Kind::File => Some(view.read(entry.path.as_bytes(), 1 << 20).unwrap().bytes),
            _ => None,
        };
        let found = layer.stat(entry.path.trim_start_matches('/').as_bytes());
        (entry.path, (content, found.unwrap().unwrap().opaque))
    };
    listing.entries.into_iter().map(read).collect()
}

/// Whether the journal has wrapped around.
fn goes_round(disk: &Path) -> bool {
    let disk: Rc<dyn Blocks> = Rc::new(Raw::open(disk).unwrap());
    let inodes = Inodes::new(disk).unwrap();
    let journal = Journal::open(&inodes, 8).unwrap();
    let before = |place: &u64| {
        let at = journal.blocks.iter().position(|block| block == place);
        at.unwrap() < journal.start as usize
    };
    journal.newer().values().any(|(place, _)| before(place))
}

#[test]
fn a_disk_cut_off_reads_as_the_kernel_would_have_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = motu_needs::command("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            WORK,
            "sh",
        ])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (mut round, mut given_away) = (0, 0);
    for turn in 0..14 {
        let disk: PathBuf = dir.path().join(format!("cut{turn}"));
        let mut expected = Tree::new();
        let seen = dir.path().join(format!("seen{turn}"));
        kernels(&seen, &seen, &mut expected);
        let found = ours(&disk);
        let differ = |name: &&String| found.get(*name) != expected.get(*name);
        let names = found.keys().chain(expected.keys());
        let wrong: Vec<_> = names.filter(differ).collect();
        assert!(wrong.is_empty(), "cut {turn}: {wrong:?}");
        round += usize::from(goes_round(&disk));
        let blocks: Rc<dyn Blocks> = Rc::new(Raw::open(&disk).unwrap());
        let inodes = Inodes::new(blocks).unwrap();
        let transactions = Journal::open(&inodes, 8).unwrap().transactions();
        given_away += transactions
            .iter()
            .map(|one| one.revoked.len())
            .sum::<usize>();
    }
    // Check that the tested situations occurred.
    assert!(round > 2, "{round} journals go round");
    assert!(given_away > 0, "no block was given away");
}

#[test]
fn a_hostile_journal_is_followed_no_further_than_it_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let made = motu_needs::command("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=1"])
        .arg(&disk)
        .arg("8M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut bytes = fs::read(&disk).unwrap();
    // Marks the file system as not cleanly unmounted.
    bytes[1024 + 96] |= 4;
    fs::write(&disk, &bytes).unwrap();
    let blocks: Rc<dyn Blocks> = Rc::new(Raw::open(&disk).unwrap());
    let inodes = Inodes::new(Rc::clone(&blocks)).unwrap();
    let journal = inodes.inode(8).unwrap();
    let place = inodes.blocks(&journal, MAX_BLOCKS).unwrap();
    let at = |number: usize| usize::try_from(place[number]).unwrap() * 1024;
    let put = |bytes: &mut Vec<u8>, at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    };
    // Every block is a commit of the next transaction; none has a checksum.
    put(&mut bytes, at(0) + 24, 1);
    put(&mut bytes, at(0) + 28, 1);
    put(&mut bytes, at(0) + 40, 0);
    for number in 1..place.len() {
        let value = u32::try_from(number).unwrap();
        for (field, value) in [(0, MAGIC), (4, COMMIT), (8, value)] {
            put(&mut bytes, at(number) + field, value);
        }
    }
    fs::write(&disk, &bytes).unwrap();
    let blocks: Rc<dyn Blocks> = Rc::new(Raw::open(&disk).unwrap());
    let inodes = Inodes::new(Rc::clone(&blocks)).unwrap();
    let transactions = Journal::open(&inodes, 8).unwrap().transactions();
    assert_eq!(transactions.len(), place.len() - 1);
    assert!(Replayed::new(&blocks).is_some());
    // A start beyond the end means no journal.
    put(&mut bytes, at(0) + 28, u32::MAX);
    fs::write(&disk, &bytes).unwrap();
    let blocks: Rc<dyn Blocks> = Rc::new(Raw::open(&disk).unwrap());
    assert!(Replayed::new(&blocks).is_none());
}

#[test]
fn the_sum_is_the_one_of_the_format() {
    // The check value of CRC-32C, which includes the final inversion.
    assert_eq!(!crc32c(u32::MAX, b"123456789"), 0xe306_9283);
}
