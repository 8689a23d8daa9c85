//! Links and paths that point out of the sandbox: every file operation must stay inside.

use crate::wire::query;
use futures_util::StreamExt;
use motu_core::files::{
    ChangeMode, FileType, ListFiles, ListOptions, MakeDirectory, MoveFile, ReadFile, ReadRange,
    RemoveFile, StatFile, WatchFiles, WriteFile, WriteOptions,
};
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::world::{World, at, collect, soon, stream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The content of the sandbox's own file.
const OWN: &[u8] = b"the sandbox's own\n";
/// The content of the host's file.
const SECRET: &[u8] = b"the host's secret\n";
const SHADOW: &str = "/etc/shadow";

/// A file of the host, with its original content and metadata.
struct Kept {
    path: PathBuf,
    content: Vec<u8>,
    stamp: (u64, u32, i64, i64, u32),
}

impl Kept {
    fn of(path: &Path) -> Kept {
        let found = std::fs::metadata(path).unwrap();
        Kept {
            path: path.to_path_buf(),
            content: std::fs::read(path).unwrap(),
            stamp: (
                found.ino(),
                found.mode(),
                found.mtime(),
                found.mtime_nsec(),
                found.uid(),
            ),
        }
    }

    fn assert_same(&self) {
        let now = Kept::of(&self.path);
        assert!(
            now.content == self.content,
            "{} was changed",
            self.path.display()
        );
        assert_eq!(now.stamp, self.stamp, "{} was touched", self.path.display());
    }
}

/// A sandbox with its own `/etc/shadow` and links in `/l`, and the host's files that the links must
/// not reach.
struct Trap {
    world: World,
    id: SandboxId,
    kept: Vec<Kept>,
    /// The names in `/l` that resolve to the sandbox's own file, if to anything.
    names: Vec<&'static str>,
}

impl Trap {
    async fn set() -> Option<Trap> {
        let world = World::new()?;
        let id = world.create().await;
        let marker = world.path().join("marker");
        std::fs::write(&marker, SECRET).unwrap();
        let script = format!(
            "mkdir /l; cd /l; ln -s /etc/shadow plain; ln -s ../../../../../../etc/shadow up;
             ln -s /proc/1/root/etc/shadow magic; ln -s /proc/self/root/etc/shadow self;
             ln -s {} host; ln -s /proc/1/root{} deep; ln -s /etc dir; ln -s plain twice",
            marker.display(),
            marker.display()
        );
        let made = world.sh(&id, &script).await;
        assert_eq!(made.exit_code, 0, "{made:?}");
        world.write(&id, SHADOW, OWN).await.unwrap();
        let kept = [Path::new(SHADOW), &marker]
            .into_iter()
            .filter(|path| path.exists());
        Some(Trap {
            kept: kept.map(Kept::of).collect(),
            names: vec![
                "plain",
                "up",
                "magic",
                "self",
                "host",
                "deep",
                "twice",
                "dir/shadow",
            ],
            world,
            id,
        })
    }

    fn paths(&self) -> Vec<String> {
        self.names.iter().map(|name| format!("/l/{name}")).collect()
    }

    fn assert_host_untouched(&self) {
        self.kept.iter().for_each(Kept::assert_same);
    }

    /// Checks that content which was read is the sandbox's.
    fn assert_own(&self, path: &str, content: &[u8]) {
        for kept in &self.kept {
            assert!(
                content != kept.content,
                "{path} gives {}",
                kept.path.display()
            );
        }
        assert_eq!(content, OWN, "{path}");
    }
}

#[tokio::test]
async fn looking_through_links_shows_nothing_of_the_host() {
    let Some(trap) = Trap::set().await else {
        return;
    };
    let (client, id) = (trap.world.client(), &trap.id);
    let mut seen = 0;
    for path in trap.paths() {
        if let Ok(content) = trap.world.read(id, &path).await {
            trap.assert_own(&path, &content);
            seen += 1;
        }
        if let Ok(entry) = client
            .stat(
                id,
                StatFile {
                    path: at(&path),
                    follow: true,
                    user: None,
                },
            )
            .await
        {
            assert_eq!(
                (entry.kind, entry.size_bytes),
                (FileType::File, OWN.len() as u64),
                "{path}"
            );
        }
        if let Ok(hash) = client.hash(id, (at(&path)).into()).await {
            let own = client.hash(id, (at(SHADOW)).into()).await.unwrap();
            assert_eq!(hash, own, "{path}");
        }
        let range = ReadRange {
            offset: 4,
            length: Some(3),
        };
        if let Ok((_, part)) = client.read_file(id, ReadFile::new(at(&path), range)).await {
            assert_eq!(collect(part).await.unwrap(), OWN[4..7], "{path}");
        }
        let listed = client
            .list_files(id, ListFiles::new(at(&path), ListOptions::default()))
            .await;
        assert!(listed.is_err(), "{path} is no directory: {listed:?}");
    }
    assert!(seen >= 4, "links inside work: {seen}");
    let entry = client
        .stat(
            id,
            StatFile {
                path: at("/l/plain"),
                follow: false,
                user: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(entry.kind, FileType::Symlink);
    // A directory behind a link is the sandbox's.
    let listed = client
        .list_files(id, ListFiles::new(at("/l/dir"), ListOptions::default()))
        .await
        .unwrap();
    let own = client
        .list_files(id, ListFiles::new(at("/etc"), ListOptions::default()))
        .await
        .unwrap();
    assert_eq!(listed.entries.len(), own.entries.len());
    trap.assert_host_untouched();
}

#[tokio::test]
async fn changing_through_links_changes_nothing_of_the_host() {
    let Some(trap) = Trap::set().await else {
        return;
    };
    let (client, id) = (trap.world.client(), &trap.id);
    for path in trap.paths() {
        // Whether the write succeeds depends on the link, but it must never reach the host.
        let append = WriteOptions {
            append: true,
            ..WriteOptions::default()
        };
        let _ = client
            .write_file(id, WriteFile::new(at(&path), append), stream(b"more"))
            .await;
        let _ = client
            .write_file(
                id,
                WriteFile::new(at(&path), WriteOptions::default()),
                stream(b"new"),
            )
            .await;
        let _ = client
            .chmod(
                id,
                ChangeMode {
                    path: at(&path),
                    mode: 0o777,
                    user: None,
                },
            )
            .await;
        let _ = client
            .mkdir(
                id,
                MakeDirectory {
                    path: at(format!("{path}/sub")),
                    mode: None,
                    user: None,
                },
            )
            .await;
        let moved = format!("/l/moved-{}", path.len());
        let _ = client
            .move_file(
                id,
                MoveFile {
                    from: at(&path),
                    to: at(&moved),
                    overwrite: false,
                    user: None,
                },
            )
            .await;
        let _ = client
            .move_file(
                id,
                MoveFile {
                    from: at(&moved),
                    to: at(&path),
                    overwrite: true,
                    user: None,
                },
            )
            .await;
        trap.assert_host_untouched();
    }
    // Removal affects the link itself, and its target stays.
    for path in trap.paths().iter().filter(|path| !path.contains("dir/")) {
        client
            .remove_file(
                id,
                RemoveFile {
                    path: at(path),
                    recursive: true,
                    user: None,
                },
            )
            .await
            .unwrap();
        trap.assert_host_untouched();
    }
    assert!(trap.world.read(id, SHADOW).await.is_ok());
    client
        .remove_file(
            id,
            RemoveFile {
                path: at("/l"),
                recursive: true,
                user: None,
            },
        )
        .await
        .unwrap();
    assert!(
        client
            .stat(
                id,
                StatFile {
                    path: at("/etc/passwd"),
                    follow: false,
                    user: None,
                }
            )
            .await
            .is_ok()
    );
    trap.assert_host_untouched();
}

#[tokio::test]
async fn trees_and_watches_stay_inside() {
    let Some(trap) = Trap::set().await else {
        return;
    };
    let (client, id) = (trap.world.client(), &trap.id);
    let mut changes = client
        .watch(
            id,
            WatchFiles {
                path: at("/l"),
                recursive: true,
                user: None,
            },
        )
        .await
        .unwrap();
    for path in trap.paths() {
        // A watch on a link watches something inside, or is refused.
        drop(
            client
                .watch(
                    id,
                    WatchFiles {
                        path: at(&path),
                        recursive: false,
                        user: None,
                    },
                )
                .await,
        );
    }
    // Export: links stay links.
    let archive = collect(client.read_tree(id, (at("/l")).into()).await.unwrap())
        .await
        .unwrap();
    for kept in &trap.kept {
        let hit = archive
            .windows(kept.content.len())
            .any(|part| part == kept.content);
        assert!(!hit, "the archive holds {}", kept.path.display());
    }
    let mut links = 0;
    for entry in tar::Archive::new(&archive[..]).entries().unwrap() {
        let kind = entry.unwrap().header().entry_type();
        links += usize::from(kind == tar::EntryType::Symlink);
    }
    assert_eq!(links, 8);
    let out = trap.world.motu(&["cp", &format!("{id}:/l"), "out"]);
    assert_eq!(out.code, 0, "{out:?}");
    let copied = std::fs::read_link(trap.world.path().join("out/plain")).unwrap();
    assert_eq!(copied, Path::new(SHADOW));

    // Import: below a link to a directory, which is the sandbox's.
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(OWN.len() as u64);
    header.set_mode(0o600);
    builder.append_data(&mut header, "shadow", OWN).unwrap();
    let archive = builder.into_inner().unwrap();
    let _ = client
        .write_tree(id, (at("/l/dir")).into(), stream(&archive))
        .await;
    trap.assert_host_untouched();

    trap.world.write(id, "/l/new", b"x").await.unwrap();
    let change = soon("a change", changes.next()).await.unwrap().unwrap();
    assert!(change.path.starts_with("/l/"), "{change:?}");
}

#[tokio::test]
async fn no_path_leads_out() {
    let Some(trap) = Trap::set().await else {
        return;
    };
    let id = &trap.id;
    for path in [
        "/../../../../etc/shadow",
        "/l/../../etc/shadow",
        "/etc/./../etc//shadow",
        "/l/dir/../etc/shadow",
        "//etc/shadow",
    ] {
        let content = trap.world.read(id, path).await.unwrap();
        trap.assert_own(path, &content);
    }
    let marker = trap.kept.last().unwrap().path.display().to_string();
    for path in [
        marker.clone(),
        format!("/..{marker}"),
        format!("/../../..{marker}"),
    ] {
        motu_testkit::world::refused(ErrorKind::NotFound, trap.world.read(id, &path).await);
    }
    // Requests that the client itself would not send.
    let base = format!("/v1/sandboxes/{id}/files");
    for wrong in [
        "etc/shadow",
        "",
        "../etc/shadow",
        "/etc/shadow\0",
        "/a\0b",
        &"/x".repeat(3000),
    ] {
        for (method, address) in [
            ("GET", base.clone()),
            ("DELETE", base.clone()),
            ("GET", format!("{base}/content")),
            ("PUT", format!("{base}/content")),
            ("GET", format!("{base}/list")),
            ("GET", format!("{base}/hash")),
            ("GET", format!("{base}/tree")),
            ("PUT", format!("{base}/tree")),
            ("GET", format!("{base}/watch")),
        ] {
            let answer = query(&trap.world, method, &address, &[("path", wrong)]);
            assert_eq!(
                answer.kind(),
                (400, "invalid"),
                "{method} {address} {wrong:?}: {answer:?}"
            );
        }
    }
    trap.assert_host_untouched();
}
