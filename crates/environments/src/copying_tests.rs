//! Tests of the rules for entries of a root filesystem.

use tar::{Builder, EntryType};

use super::*;
use crate::tree::{Meta, Summary};

/// One raw entry, written without the checks of the tar library.
fn raw(kind: EntryType, path: &str, link: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = header(kind, Meta::root(0o755), contents.len() as u64);
    let old = header.as_old_mut();
    old.name[..path.len()].copy_from_slice(path.as_bytes());
    old.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn import(entries: &[Vec<u8>]) -> Result<Summary, EnvironmentError> {
    let mut stream = entries.concat();
    stream.resize(stream.len() + 1024, 0);
    let mut tree = TreeWriter::new(Vec::new())?;
    copy_tar(stream.as_slice(), &mut tree, |_, _| Verdict::Keep)?;
    Ok(tree.finish()?.0)
}

fn refusal(entries: &[Vec<u8>]) -> &'static str {
    match import(entries) {
        Err(EnvironmentError::Refused { reason, .. }) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

const DIR: EntryType = EntryType::Directory;
const FILE: EntryType = EntryType::Regular;

#[test]
fn paths_cannot_leave_the_tree() {
    assert_eq!(refusal(&[raw(FILE, "/etc/x", "", b"")]), "absolute path");
    assert_eq!(refusal(&[raw(FILE, "../x", "", b"")]), "path with ..");
    let through_link = [
        raw(EntryType::Symlink, "out", "/etc", b""),
        raw(FILE, "out/passwd", "", b"x"),
    ];
    assert_eq!(refusal(&through_link), "its parent is not a directory");
    let to_outside = [raw(EntryType::Link, "x", "../../etc/shadow", b"")];
    assert_eq!(refusal(&to_outside), "path with ..");
    let to_unknown = [raw(EntryType::Link, "x", "etc/shadow", b"")];
    assert_eq!(
        refusal(&to_unknown),
        "hard link to something outside or later"
    );
}

#[test]
fn devices_pipes_and_repeats_are_refused() {
    assert_eq!(
        refusal(&[raw(EntryType::Block, "sda", "", b"")]),
        "device outside /dev"
    );
    assert_eq!(
        refusal(&[raw(EntryType::Fifo, "pipe", "", b"")]),
        "neither file, directory nor link"
    );
    let twice = [raw(FILE, "a", "", b"1"), raw(FILE, "./a", "", b"2")];
    assert_eq!(refusal(&twice), "it appears twice");
}

#[test]
fn the_digest_does_not_depend_on_order_or_spelling() {
    let one = [
        raw(DIR, "./", "", b""),
        raw(DIR, "./a/", "", b""),
        raw(FILE, "./a/f", "", b"text"),
        raw(DIR, "./b/", "", b""),
    ];
    let other = [
        raw(DIR, "b", "", b""),
        raw(DIR, "a", "", b""),
        raw(FILE, "a/f", "", b"text"),
    ];
    let (one, other) = (import(&one).unwrap(), import(&other).unwrap());
    assert_eq!(one.digest, other.digest);
    assert_eq!((one.bytes, one.entries), (4, 4));
}

#[test]
fn a_hard_link_counts_as_the_file_it_names() {
    let linked = [
        raw(FILE, "a", "", b"x"),
        raw(EntryType::Link, "b", "a", b""),
    ];
    let copied = [raw(FILE, "a", "", b"x"), raw(FILE, "b", "", b"x")];
    assert_eq!(
        import(&linked).unwrap().digest,
        import(&copied).unwrap().digest
    );
}

#[test]
fn a_truncated_stream_is_an_error() {
    let mut entry = raw(FILE, "a", "", &[7; 4096]);
    entry.truncate(1024);
    let mut tree = TreeWriter::new(Vec::new()).unwrap();
    let copied = copy_tar(entry.as_slice(), &mut tree, |_, _| Verdict::Keep);
    assert!(copied.is_err());
}

#[test]
fn what_is_written_reads_back_the_same() {
    let long = "d/".to_owned() + &"n".repeat(150);
    let mut tree = TreeWriter::new(Vec::new()).unwrap();
    tree.ensure_directory("d", Meta::root(0o1777)).unwrap();
    tree.file(&long, Meta::root(0o4755), b"contents").unwrap();
    tree.symlink(b"l", Meta::root(0), long.as_bytes()).unwrap();
    tree.hard_link(b"h", long.as_bytes()).unwrap();
    let (written, stream) = tree.finish().unwrap();
    let mut again = TreeWriter::new(Vec::new()).unwrap();
    copy_tar(stream.as_slice(), &mut again, |_, _| Verdict::Keep).unwrap();
    let (read, _) = again.finish().unwrap();
    assert_eq!(written.digest, read.digest);
}

#[test]
fn attributes_survive_the_stream() {
    let kept = BTreeMap::from([
        ("security.capability".to_owned(), vec![1, 0, 0, 2]),
        ("user.note".to_owned(), b"kept".to_vec()),
    ]);
    let mut out = Builder::new(Vec::new());
    let pairs = [
        ("SCHILY.xattr.security.capability", [1, 0, 0, 2].as_slice()),
        ("SCHILY.xattr.user.note", b"kept"),
        ("SCHILY.xattr.user.overlay.opaque", b"dropped"),
        ("SCHILY.xattr.trusted.other", b"dropped"),
    ];
    out.append_pax_extensions(pairs).unwrap();
    let mut entry = header(FILE, Meta::root(0o755), 0);
    out.append_data(&mut entry, "ping", io::empty()).unwrap();
    let stream = out.into_inner().unwrap();
    let mut tree = TreeWriter::new(Vec::new()).unwrap();
    copy_tar(stream.as_slice(), &mut tree, |_, _| Verdict::Keep).unwrap();
    let (first, stream) = tree.finish().unwrap();
    assert_eq!(first.nodes[b"ping".as_slice()].attributes, kept);
    let mut again = TreeWriter::new(Vec::new()).unwrap();
    copy_tar(stream.as_slice(), &mut again, |_, _| Verdict::Keep).unwrap();
    assert_eq!(again.finish().unwrap().0.digest, first.digest);
}

/// A header as another library writes it.
fn header(kind: EntryType, meta: Meta, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode);
    header.set_uid(meta.uid);
    header.set_gid(meta.gid);
    header.set_mtime(meta.mtime);
    header.set_size(size);
    header
}
