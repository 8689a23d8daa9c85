use super::*;
use motu_core::ErrorKind;
use std::os::unix::net::UnixListener;

fn write(target: &Path, replace: Replace, text: &str) -> Result<u64> {
    let mut output = OutputFile::create(target, replace)?;
    let bytes = output.fill(&mut text.as_bytes(), 1000)?;
    output.finish(0o644)?;
    Ok(bytes)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn conflict<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::Conflict);
}

#[test]
fn only_plain_files_are_replaced_and_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    assert_eq!(write(&file, Replace::Nothing, "one").unwrap(), 3);
    conflict(write(&file, Replace::Nothing, "two"));
    assert_eq!(fs::read(&file).unwrap(), b"one");
    write(&file, Replace::PlainFiles, "two").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"two");

    let precious = dir.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&precious, &link).unwrap();
    let socket = dir.path().join("socket");
    let _listening = UnixListener::bind(&socket).unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let directory = dir.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let before = names(dir.path());
    for odd in [&link, &socket, &pipe, &directory] {
        conflict(write(odd, Replace::PlainFiles, "x"));
    }
    assert!(link.is_symlink());
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert_eq!(names(dir.path()), before, "nothing is left behind");
}

#[test]
fn what_takes_the_place_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let mut output = OutputFile::create(&file, Replace::Nothing).unwrap();
    output.fill(&mut &b"late"[..], 100).unwrap();
    fs::write(&file, "first").unwrap();
    conflict(output.finish(0o644));
    assert_eq!(fs::read(&file).unwrap(), b"first");
    let output = OutputFile::create(&file, Replace::PlainFiles).unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    conflict(output.finish(0o644));
    assert!(file.is_symlink());
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn nothing_of_nothing_costs_nothing_and_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hole");
    let mut output = OutputFile::create(&file, Replace::Nothing).unwrap();
    let size = 256 << 20;
    assert_eq!(
        output.fill(&mut io::repeat(0).take(size), size).unwrap(),
        size
    );
    output.finish(0o600).unwrap();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.len(), found.blocks()), (size, 0));
    let mut output = OutputFile::create(&dir.path().join("much"), Replace::Nothing).unwrap();
    let error = output.fill(&mut io::repeat(1), 5000).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
    assert!(error.message.contains("export_bytes"), "{error:?}");
    drop(output);
    assert_eq!(names(dir.path()), ["hole"]);
}

/// An archive with these files; directories end in a slash.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, contents) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_size(contents.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, name, *contents).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_tree_goes_to_a_new_name_or_an_empty_directory() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    // A foreign directory with the name of an old staging directory.
    let theirs = dir.path().join("out.staging");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("precious"), "precious").unwrap();
    let tree = archive(&[("d/", b""), ("d/f", b"one")]);
    let put = |replace, most| unpack_tree(&tree[..], &target, replace, most);
    assert_eq!(put(Replace::Nothing, 2).unwrap_err().kind, ErrorKind::Limit);
    assert!(!target.exists());
    assert_eq!(put(Replace::Nothing, 100).unwrap().bytes, 3);
    conflict(put(Replace::Nothing, 100));
    fs::remove_dir_all(&target).unwrap();
    fs::create_dir(&target).unwrap();
    put(Replace::Nothing, 100).unwrap();
    assert_eq!(fs::read(target.join("d/f")).unwrap(), b"one");
    assert_eq!(fs::read(theirs.join("precious")).unwrap(), b"precious");
    assert_eq!(names(dir.path()), ["out", "out.staging"]);
    let odd = theirs.join("precious");
    conflict(unpack_tree(&tree[..], &odd, Replace::PlainFiles, 100));
}

#[test]
fn a_tree_over_a_tree_replaces_plain_files_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    fs::create_dir_all(target.join("d")).unwrap();
    fs::write(target.join("d/f"), "old").unwrap();
    fs::write(target.join("mine"), "mine").unwrap();
    let tree = archive(&[("a", b"new"), ("d/", b""), ("d/f", b"new"), ("d/g", b"new")]);
    unpack_tree(&tree[..], &target, Replace::PlainFiles, 100).unwrap();
    assert_eq!(fs::read(target.join("d/f")).unwrap(), b"new");
    assert_eq!(fs::read(target.join("d/g")).unwrap(), b"new");
    assert_eq!(fs::read(target.join("mine")).unwrap(), b"mine");

    let precious = dir.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    fs::remove_file(target.join("d/g")).unwrap();
    std::os::unix::fs::symlink(&precious, target.join("d/g")).unwrap();
    fs::write(target.join("a"), "kept").unwrap();
    conflict(unpack_tree(&tree[..], &target, Replace::PlainFiles, 100));
    assert_eq!(fs::read(target.join("a")).unwrap(), b"kept");
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert_eq!(names(dir.path()), ["out", "precious"]);
}

/// The archive a machine would send back for a directory.
fn packed(tree: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    crate::tree::pack(tree, b".", &mut archive).unwrap();
    archive
}

#[test]
fn only_what_the_machine_changed_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    for tree in [&here, &there] {
        fs::create_dir_all(tree.join("sub")).unwrap();
    }
    for name in ["same", "theirs", "gone", "sub/deep"] {
        fs::write(here.join(name), "old").unwrap();
        // The machine's copy has the same times.
        fs::copy(here.join(name), there.join(name)).unwrap();
        let time = fs::metadata(here.join(name)).unwrap().modified().unwrap();
        File::options()
            .write(true)
            .open(there.join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    for tree in [&here, &there] {
        std::os::unix::fs::symlink("same", tree.join("link")).unwrap();
    }
    let sent = Sent::of(&here).unwrap();
    fs::write(here.join("same"), "changed here meanwhile").unwrap();
    fs::write(there.join("theirs"), "changed there").unwrap();
    fs::write(there.join("sub/new"), "new").unwrap();
    fs::remove_file(there.join("gone")).unwrap();
    assert_eq!(
        bring_back(&packed(&there)[..], &here, &sent, 1000).unwrap(),
        2
    );
    let read = |name: &str| fs::read_to_string(here.join(name)).unwrap();
    assert_eq!(read("same"), "changed here meanwhile");
    assert_eq!(read("theirs"), "changed there");
    assert_eq!(read("sub/new"), "new");
    assert_eq!(
        (read("gone"), read("sub/deep")),
        ("old".into(), "old".into())
    );

    // A symbolic link here is never written through; nothing is brought back then.
    fs::remove_file(there.join("link")).unwrap();
    fs::create_dir(there.join("link")).unwrap();
    fs::write(there.join("link/x"), "x").unwrap();
    fs::write(there.join("theirs"), "again").unwrap();
    conflict(bring_back(&packed(&there)[..], &here, &sent, 1000));
    assert_eq!(read("theirs"), "changed there");
    assert!(here.join("link").is_symlink());
}
