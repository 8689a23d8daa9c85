//! Tests of merging layers.

use proptest::prelude::*;

use super::*;
use crate::layer::{archive::Entry, entry::EntryKind, index::change_of};

/// A layer made of paths: `d/` is a directory, `a -> b` a symbolic link,
/// `a = b` a hard link, anything else a file.
fn layer(lines: &[&str]) -> Result<LayerIndex, EnvironmentError> {
    let mut index = LayerIndex {
        items: Vec::new(),
        diff_id: String::new(),
        skipped: 0,
    };
    for (place, line) in (0..).zip(lines) {
        let (path, kind, link) = if let Some((path, link)) = line.split_once(" -> ") {
            (path, EntryKind::Symlink, link)
        } else if let Some((path, link)) = line.split_once(" = ") {
            (path, EntryKind::HardLink, link)
        } else if line.ends_with('/') {
            (*line, EntryKind::Directory, "")
        } else {
            (*line, EntryKind::File, "")
        };
        let entry = Entry {
            mtime_nanos: 0,
            path: path.into(),
            link: link.into(),
            kind,
            meta: Meta::root(0o700),
            size: 1,
            attributes: BTreeMap::new(),
        };
        if let Some(change) = change_of(&entry)? {
            index.items.push(Item {
                place,
                change,
                meta: entry.meta,
                size: 1,
                attributes: BTreeMap::new(),
                text: None,
            });
        }
    }
    Ok(index)
}

fn merge(layers: &[&[&str]]) -> Result<Merged, EnvironmentError> {
    let mut merged = Merged::default();
    for lines in layers {
        merged.add(layer(lines)?)?;
    }
    Ok(merged)
}

/// The tree in the notation above; files say which layer they are from.
fn tree(layers: &[&[&str]]) -> Vec<String> {
    let merged = merge(layers).unwrap();
    let line = |(path, spot): (&[u8], &Spot)| {
        let path = String::from_utf8_lossy(path);
        match &spot.what {
            What::Directory => format!("{path}/"),
            What::Symlink(target) => format!("{path} -> {}", String::from_utf8_lossy(target)),
            What::File(number) => {
                let contents = merged.contents(*number);
                format!("{path} {}.{}", contents.layer, contents.place)
            }
            What::Own(text) => format!("{path} {text:?}"),
            What::Base => format!("{path} base"),
        }
    };
    merged.spots().map(line).collect()
}

fn refusal(layers: &[&[&str]]) -> &'static str {
    match merge(layers) {
        Err(EnvironmentError::Refused { reason, .. }) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn later_layers_replace_earlier_ones() {
    assert_eq!(
        tree(&[&["a", "b"], &["b", "c"]]),
        ["a 0.0", "b 1.0", "c 1.1"]
    );
    assert_eq!(tree(&[&["a", "a"]]), ["a 0.1"]);
    // A file in place of a directory, and the other way round.
    assert_eq!(tree(&[&["d/", "d/x", "d0"], &["d"]]), ["d 1.0", "d0 0.2"]);
    assert_eq!(tree(&[&["d"], &["d/", "d/x"]]), ["d/", "d/x 1.1"]);
    assert_eq!(tree(&[&["d -> e"], &["d/", "d/x"]]), ["d/", "d/x 1.1"]);
    // A directory again keeps what is in it.
    assert_eq!(tree(&[&["d/", "d/x"], &["d/"]]), ["d/", "d/x 0.1"]);
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_else() {
    let base: &[&str] = &["d/", "d/x", "d/y", "d/s/", "d/s/z", "dx"];
    assert_eq!(
        tree(&[base, &["d/.wh.x", ".wh.dx"]]).join(" "),
        "d/ d/s/ d/s/z 0.4 d/y 0.2"
    );
    assert_eq!(tree(&[base, &[".wh.d"]]), ["dx 0.5"]);
    // Wherever the mark stands in its layer, the layer's own files stay.
    for own in [
        &["d/", "d/.wh..wh..opq", "d/s/new"][..],
        &["d/s/new", "d/.wh..wh..opq"],
        &["d/s/new", ".wh.d", "d/.wh..wh..opq"],
    ] {
        let merged = tree(&[base, own]).join(" ");
        assert!(merged.starts_with("d/ d/s/ d/s/new 1."), "{merged}");
        assert!(merged.ends_with(" dx 0.5"), "{merged}");
    }
    assert_eq!(tree(&[base, &[".wh..wh..opq"]]), Vec::<String>::new());
    assert_eq!(tree(&[&["a"], &[".wh.none", "no/.wh..wh..opq"]]), ["a 0.0"]);
    // A whiteout of the own layer hides nothing of it.
    assert_eq!(tree(&[&["a", ".wh.a"]]), ["a 0.0"]);
}

#[test]
fn links_lead_to_where_they_point_and_never_out() {
    let merged = tree(&[&["usr/", "usr/lib/", "lib -> usr/lib"], &["lib/x"]]);
    assert_eq!(
        merged,
        ["lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/x 1.0"]
    );
    let merged = tree(&[&["a -> /etc", "a/passwd"]]);
    assert_eq!(merged, ["a -> /etc", "etc/", "etc/passwd 0.1"]);
    let merged = tree(&[&["a -> ../../../../up", "a/x", "d/b -> ../../..", "d/b/y"]]);
    assert_eq!(
        merged,
        [
            "a -> ../../../../up",
            "d/",
            "d/b -> ../../..",
            "up/",
            "up/x 0.1",
            "y 0.3"
        ]
    );
    // Whiteouts follow as well, but never the last name.
    let merged = tree(&[&["t/", "t/x", "l -> t"], &["l/.wh.x"]]);
    assert_eq!(merged, ["l -> t", "t/"]);
    let merged = tree(&[&["t/", "t/x", "l -> t"], &[".wh.l"]]);
    assert_eq!(merged, ["t/", "t/x 0.1"]);
    assert_eq!(
        refusal(&[&["a -> b", "b -> a", "a/x"]]),
        "too many links lead to it"
    );
    assert_eq!(refusal(&[&["a", "a/x"]]), "its parent is not a directory");
}

#[test]
fn hard_links_share_contents_across_layers() {
    let layers: &[&[&str]] = &[&["a"], &["b = a", "c = b"], &[".wh.a"]];
    assert_eq!(tree(layers), ["b 0.0", "c 0.0"]);
    let merged = merge(layers).unwrap();
    assert_eq!(merged.winners()[&(0, 0)], [b"b", b"c"]);
    assert_eq!(merged.bytes(), 1);
    // A new file under an old name leaves the other name alone.
    assert_eq!(tree(&[&["a", "b = a"], &["a"]]), ["a 1.0", "b 0.0"]);
    assert_eq!(tree(&[&["l -> t", "m = l"]]), ["l -> t", "m -> t"]);
    assert_eq!(tree(&[&["a", "a = a"]]), ["a 0.0"]);
    for bad in [&["b = a"][..], &["d/", "b = d"], &["b = x/y"]] {
        assert!(refusal(&[bad]).starts_with("hard link to"), "{bad:?}");
    }
    assert_eq!(refusal(&[&["b = ../a"]]), "path with ..");
}

#[test]
fn the_tree_is_completed_without_following_links_to_mount_points() {
    let mut merged = merge(&[&[
        "dev/",
        "dev/x",
        "run -> /var/run",
        "app -> /srv",
        "etc -> /e",
    ]])
    .unwrap();
    merged.empty_directory("dev", Meta::root(0o755));
    merged.mount_point("run", Meta::root(0o755));
    merged.directory("app/src", Meta::root(0o711));
    merged.own_file("etc/hosts", Meta::root(0o644), "x");
    let is_directory = |path| merged.get(path).unwrap().what == What::Directory;
    assert!(is_directory("dev") && is_directory("run") && is_directory("srv/src"));
    assert!(merged.get("dev/x").is_none());
    assert_eq!(merged.get("srv/src").unwrap().meta.mode, 0o711);
    assert_eq!(merged.get("e/hosts").unwrap().what, What::Own("x"));
    assert_eq!(merged.follow("etc/hosts").unwrap(), b"e/hosts");
}

proptest! {
    #[test]
    fn whatever_layers_say_the_tree_is_a_tree(
        layers in prop::collection::vec(
            prop::collection::vec(
                "(\\.wh\\.)?[ab](/(\\.wh\\.)?[abc]){0,3}/?( (->|=) /?[abc](/(\\.\\.|[ab])){0,3})?",
                0..12,
            ),
            1..4,
        )
    ) {
        let mut merged = Merged::default();
        for lines in &layers {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let Ok(layer) = layer(&lines) else { return Ok(()) };
            if merged.add(layer).is_err() {
                return Ok(());
            }
        }
        for (path, _) in merged.spots() {
            let (parent, name) = split(path);
            prop_assert!(!matches!(name, b"" | b"." | b".."));
            prop_assert!(!name.starts_with(b".wh."));
            if !parent.is_empty() {
                let above = merged.spots.get(parent);
                prop_assert!(above.is_some_and(|spot| spot.what == What::Directory));
            }
        }
    }
}
