//! Tests of reading archives, whole and hostile.

use std::fs;

use motu_archive::BLOCK;

use super::*;

/// One raw entry, written without the checks of a library.
fn raw(flag: u8, path: &str, contents: &[u8]) -> Vec<u8> {
    let mut block = [0; BLOCK];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    let size = format!("{:011o}", contents.len());
    block[124..135].copy_from_slice(size.as_bytes());
    block[156] = flag;
    block[257..263].copy_from_slice(b"ustar\0");
    seal(&mut block);
    let mut bytes = block.to_vec();
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn seal(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

fn read_all(bytes: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
    let mut archive = Archive::new(bytes);
    let mut all = Vec::new();
    while let Some(entry) = archive.next_entry()? {
        let mut contents = Vec::new();
        archive.read_to_end(&mut contents)?;
        all.push((entry, contents));
    }
    archive.drain()?;
    Ok(all)
}

fn failure(bytes: &[u8]) -> String {
    read_all(bytes).unwrap_err().to_string()
}

#[test]
fn extensions_say_more_than_the_header_can() {
    let long = "d/".repeat(100) + "name";
    let capability = [1, 0, 0, 2];
    let records = [
        record("path", long.as_bytes()),
        record("uid", b"3000000"),
        record("mtime", b"1700000000.5"),
        record("SCHILY.xattr.security.capability", &capability),
        record("SCHILY.xattr.trusted.x", b"dropped"),
        record("comment", b"ignored"),
    ]
    .concat();
    let archive = [
        raw(b'g', "global", &record("comment", b"x")),
        raw(b'x', "extension", &records),
        raw(b'0', "short", b"text"),
        raw(b'L', "././@LongLink", long.as_bytes()),
        raw(b'K', "././@LongLink", b"target\0"),
        raw(b'2', "short", b""),
        vec![0; 1024],
    ]
    .concat();
    let all = read_all(&archive).unwrap();
    let [(first, contents), (second, _)] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!(first.path, long.as_bytes());
    assert_eq!(
        (first.meta.uid, first.meta.mtime),
        (3_000_000, 1_700_000_000)
    );
    assert_eq!(first.attributes.len(), 1);
    assert_eq!(first.attributes["security.capability"], capability);
    assert_eq!(contents, b"text");
    assert_eq!(second.path, long.as_bytes());
    assert_eq!(second.link, b"target");
    assert!(second.attributes.is_empty());
}

#[test]
fn what_is_too_large_is_never_read_into_memory() {
    let mut header = raw(b'x', "huge", b"");
    header[124..135].copy_from_slice(b"77777777777");
    let mut block: [u8; BLOCK] = header[..BLOCK].try_into().unwrap();
    seal(&mut block);
    assert_eq!(failure(&block), "extension header is too large");
    block[156] = b'L';
    seal(&mut block);
    assert_eq!(failure(&block), "extension header is too large");
    let many = record("SCHILY.xattr.user.x", &vec![7; 70_000]);
    let archive = [raw(b'x', "x", &many), raw(b'0', "a", b"")].concat();
    assert_eq!(failure(&archive), "attributes of a file are too large");
}

#[test]
fn damage_is_noticed() {
    let good = raw(b'0', "a", &[7; 1000]);
    let mut flipped = good.clone();
    flipped[1] ^= 1;
    assert_eq!(failure(&flipped), "header has a wrong checksum");
    for length in [100, BLOCK + 100] {
        let error = read_all(&good[..length]).map(|all| all[0].1.len());
        assert!(error.is_err() || error.unwrap() < 1000, "{length}");
    }
    let after = [vec![0; BLOCK], good.clone()].concat();
    assert_eq!(failure(&after), "archive continues after its end");
    let broken = [raw(b'x', "x", b"99 path=x\n"), good.clone()].concat();
    assert_eq!(failure(&broken), "PAX record is broken");
    let mut owner = raw(b'0', "a", b"");
    owner[108..116].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let mut block: [u8; BLOCK] = owner[..BLOCK].try_into().unwrap();
    seal(&mut block);
    assert_eq!(failure(&block), "owner is not a valid id");
    // Some writers leave out the end; Docker accepts that, and so do we.
    assert_eq!(read_all(&good).unwrap().len(), 1);
}

#[test]
fn sparse_files_of_every_format_are_read_with_their_holes() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    use std::os::unix::fs::FileExt as _;
    // More regions than one header holds.
    let mut expected = vec![0; 3 << 20];
    for at in (0..40).map(|n| n * 65_536 + 4096) {
        file.write_all_at(&[9; 4096], at).unwrap();
        let at = usize::try_from(at).unwrap();
        expected[at..at + 4096].fill(9);
    }
    file.set_len(expected.len() as u64).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let output = motu_needs::command("tar")
            .args(["--create", "--file=-", "--sparse"])
            .args(format)
            .arg("--directory")
            .arg(dir.path())
            .arg("sparse")
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(output.stdout.len() < 1 << 20, "{format:?}");
        let all = read_all(&output.stdout).unwrap();
        assert_eq!(all[0].0.path, b"sparse", "{format:?}");
        assert_eq!(all[0].0.size, expected.len() as u64, "{format:?}");
        assert!(all[0].1 == expected, "{format:?}");
    }
}

#[test]
fn lies_about_holes_are_refused() {
    let lie = |records: Vec<u8>, contents: &[u8]| {
        failure(&[raw(b'x', "x", &records), raw(b'0', "a", contents)].concat())
    };
    let map = |text: &str| {
        [
            record("GNU.sparse.map", text.as_bytes()),
            record("GNU.sparse.size", b"100"),
        ]
        .concat()
    };
    assert!(lie(map("0,10,5,10"), &[1; 20]).contains("overlap"));
    assert!(lie(map("95,10"), &[1; 10]).contains("do not fit"));
    assert!(lie(map("0,10"), &[1; 5]).contains("do not fit"));
    assert!(lie(map("0"), &[1; 5]).contains("half a region"));
    assert!(lie(map("18446744073709551615,10"), &[1; 10]).contains("too large"));
    let new = [
        record("GNU.sparse.major", b"1"),
        record("GNU.sparse.realsize", b"100"),
    ]
    .concat();
    assert!(lie(new.clone(), b"x").contains("does not end"));
    let mut list = b"99999999\n".to_vec();
    list.resize(BLOCK, 0);
    assert!(lie(new, &list).contains("too many regions"));
}
