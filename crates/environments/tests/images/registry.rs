//! Pulls from a real registry, Debian's `docker-registry`, filled by skopeo.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Stdio},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use motu_environments::EnvironmentError;
use tar::EntryType;

use crate::{
    Home, downloaded, options, text, watch,
    writer::{Image, Layer, Packed, gzip, plain, write, zstd},
};

/// A registry of its own, ended with the test.
struct Registry {
    child: Child,
    address: String,
    dir: tempfile::TempDir,
}

fn found(tool: &str) -> bool {
    let there = Path::new("/usr/bin").join(tool).exists();
    if !there {
        println!("SKIP: {tool} is missing");
    }
    there
}

impl Registry {
    /// Starts it on a free port; `None` if it is not installed.
    fn start(extra: &str) -> Option<Self> {
        if !found("docker-registry") || !found("skopeo") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:0'}}\n{extra}",
            dir.path().join("data").display()
        );
        let config = write(dir.path(), "config.yml", config.as_bytes());
        let mut child = motu_needs::command("docker-registry")
            .arg("serve")
            .arg(config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, rest) = line.split_once("listening on ")?;
                Some(rest.split('"').next()?.to_owned())
            })
            .expect("the registry says where it listens");
        // Drain the output: otherwise the registry would block.
        thread::spawn(move || lines.for_each(drop));
        Some(Self {
            child,
            address,
            dir,
        })
    }

    fn name(&self, tag: &str) -> String {
        format!("{}/team/app:{tag}", self.address)
    }

    fn push(&self, image: &Image, tag: &str, login: &[&str]) {
        let layout = self.dir.path().join(format!("layout-{tag}"));
        let _ = fs::remove_dir_all(&layout);
        image.layout(&layout, tag);
        let output = motu_needs::command("skopeo")
            .args(["--insecure-policy", "copy", "--dest-tls-verify=false"])
            .args(login)
            .arg(format!("oci:{}:{tag}", layout.display()))
            .arg(format!("docker://{}", self.name(tag)))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn base() -> Packed {
    gzip(
        Layer::new()
            .dir("bin")
            .file("bin/sh", "shell")
            .link("bin/ash", "bin/sh")
            .dir("opaque")
            .file("opaque/old", "")
            .dir("opaque/sub")
            .file("opaque/sub/old", "")
            .dir("d")
            .file("d/gone", "")
            .file("d/kept", "")
            .file("was-file", "")
            .dir("was-dir")
            .file("was-dir/x", "")
            .dir("usr")
            .dir("usr/lib")
            .symlink("lib", "usr/lib"),
    )
}

fn middle() -> Packed {
    zstd(
        Layer::new()
            .file("d/.wh.gone", "")
            .dir("opaque")
            .file("opaque/.wh..wh..opq", "")
            .file("opaque/new", "new")
            .dir("was-file")
            .file("was-file/y", "")
            .file("was-dir", "now a file")
            .noted("bin/ping", &[("security.capability", &CAPABILITY)])
            .owned(EntryType::Regular, "bin/su", "", b"x", (0o4755, 0, 0)),
    )
}

fn top(contents: &str) -> Packed {
    plain(
        Layer::new()
            .file("lib/module", contents)
            .link("bin/copy", "bin/sh")
            .owned(EntryType::Regular, "owned", "", b"", (0o640, 1234, 5678)),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_layers_are_told_while_they_come() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    // Each is told of more than once.
    let layer = |name: &str, pieces: u32| {
        let noise: Vec<u8> = (0..pieces * 500_000)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        plain(Layer::new().bytes(name, &noise))
    };
    let image = Image::new(vec![layer("one", 3), layer("two", 5)]);
    registry.push(&image, "large", &[]);
    let home = Home::new();
    let (progress, events) = watch();
    let name = registry.name("large");
    home.environments.pull(&name, progress).await.unwrap();
    let layers = downloaded(&events);
    assert_eq!(layers.len(), 2);
    let events = events.lock().unwrap();
    let mut totals = Vec::new();
    for layer in layers {
        let told = events.iter().filter(|event| event.message == layer);
        let told: Vec<(u64, u64)> = told.map(|e| (e.done.unwrap(), e.total.unwrap())).collect();
        assert!(told.len() > 1, "{layer}: {told:?}");
        assert!(told.is_sorted(), "{layer}: {told:?}");
        let (done, total) = told[told.len() - 1];
        assert_eq!(done, total, "{layer} came whole");
        totals.push(total);
    }
    totals.sort_unstable();
    // Compressed by who pushed it, as far as noise can be.
    assert!(
        totals[0] > 6_000_000 && totals[1] > 10_000_000,
        "{totals:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn three_layers_become_one_root() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    let image = Image::new(vec![base(), middle(), top("one")]);
    registry.push(&image, "v1", &[]);
    let home = Home::new();
    let name = registry.name("v1");
    let (progress, events) = watch();
    let info = home.environments.pull(&name, progress).await.unwrap();
    assert_eq!(downloaded(&events).len(), 3);
    let last: Vec<_> = events.lock().unwrap().clone();
    assert!(
        last.iter()
            .any(|event| event.stage == "unpack" && event.done == event.total)
    );

    let root = home.root(&name).await;
    let meta = |path: &str| fs::symlink_metadata(root.join(path));
    for gone in [
        "d/gone",
        "opaque/old",
        "opaque/sub",
        "was-dir/x",
        "lib/.wh.x",
    ] {
        assert!(meta(gone).is_err(), "{gone}");
    }
    for kept in ["d/kept", "opaque/new", "was-file/y"] {
        assert!(meta(kept).unwrap().is_file(), "{kept}");
    }
    assert_eq!(text(root.join("was-dir")), "now a file");
    assert!(meta("lib").unwrap().is_symlink());
    assert_eq!(text(root.join("usr/lib/module")), "one");
    let inodes: Vec<u64> = ["bin/sh", "bin/ash", "bin/copy"]
        .map(|path| meta(path).unwrap().ino())
        .to_vec();
    assert!(inodes.iter().all(|inode| *inode == inodes[0]));
    assert_eq!(meta("bin/su").unwrap().mode() & 0o7777, 0o4755);
    if motu_environments::Privilege::detect() == motu_environments::Privilege::Root {
        let owned = meta("owned").unwrap();
        assert_eq!((owned.uid(), owned.gid()), (1234, 5678));
        let mut buffer = [0; 64];
        let path = root.join("bin/ping");
        let length = rustix::fs::lgetxattr(path, "security.capability", &mut buffer).unwrap();
        assert_eq!(buffer[..length], CAPABILITY);
    }
    home.environments.verify(&name).await.unwrap();

    // By digest it is the same environment, and nothing is downloaded again.
    let digest = info.image.unwrap().manifest_digest.unwrap();
    let pinned = format!("{}/team/app@{digest}", registry.address);
    let (progress, events) = watch();
    let again = home.environments.pull(&pinned, progress).await.unwrap();
    assert_eq!(again.digest, info.digest);
    assert!(downloaded(&events).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_tag_costs_what_changed() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    registry.push(&Image::new(vec![base(), middle(), top("one")]), "v1", &[]);
    let home = Home::new();
    let name = registry.name("v1");
    let first = home.pull(&name).await.unwrap();
    registry.push(&Image::new(vec![base(), middle(), top("two")]), "v1", &[]);
    let (progress, events) = watch();
    let second = home.environments.pull(&name, progress).await.unwrap();
    assert_ne!(first.digest, second.digest);
    assert_eq!(downloaded(&events).len(), 1);
    assert_eq!(text(home.root(&name).await.join("usr/lib/module")), "two");
    // Nothing uses the old root, and `all` also empties the cache.
    assert_eq!(home.cached("blobs").len(), 4);
    let none = Default::default();
    let pruned = home.environments.prune(&none, false).await.unwrap();
    assert_eq!(Some(&pruned.digests[0]), first.digest.as_ref());
    home.environments.prune(&none, true).await.unwrap();
    assert!(home.cached("blobs").is_empty());
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_passwords_wants_one() {
    if !found("htpasswd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = motu_needs::command("htpasswd")
        .args(["-Bbn", "ann", "secret"])
        .output()
        .unwrap();
    let passwords = write(dir.path(), "htpasswd", &output.stdout);
    let auth = format!(
        "auth: {{htpasswd: {{realm: here, path: {}}}}}\n",
        passwords.display()
    );
    let Some(registry) = Registry::start(&auth) else {
        return;
    };
    let image = Image::new(vec![base()]);
    registry.push(&image, "v1", &["--dest-creds=ann:secret"]);
    let name = registry.name("v1");
    let error = Home::new().pull(&name).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::AuthRequired { .. }),
        "{error}"
    );
    for (password, works) in [("wrong", false), ("secret", true)] {
        let login = STANDARD.encode(format!("ann:{password}"));
        let config = format!(
            r#"{{"auths":{{"{}":{{"auth":"{login}"}}}}}}"#,
            registry.address
        );
        let mut options = options();
        options.docker_config = Some(write(dir.path(), "config.json", config.as_bytes()));
        let pulled = Home::with(options).pull(&name).await;
        assert_eq!(pulled.is_ok(), works, "{pulled:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_is_the_one_umoci_unpacks() {
    let is_root = motu_environments::Privilege::detect() == motu_environments::Privilege::Root;
    if !found("umoci") || !found("skopeo") || !is_root {
        println!("SKIP: the comparison needs umoci and root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // This umoci does not support zstd, and needs all parent directories listed.
    let second = gzip(
        Layer::new()
            .dir("d")
            .file("d/.wh.gone", "")
            .dir("opaque")
            .file("opaque/.wh..wh..opq", "")
            .file("opaque/new", "new")
            .dir("was-file")
            .file("was-file/y", "")
            .file("was-dir", "now a file"),
    );
    let image = Image::new(vec![base(), second, top("one")]);
    let layout = dir.path().join("layout");
    image.layout(&layout, "t");
    let bundle = dir.path().join("bundle");
    let output = motu_needs::command("umoci")
        .args(["unpack", "--image"])
        .arg(format!("{}:t", layout.display()))
        .arg(&bundle)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let home = Home::new();
    let name = format!("oci:{}", layout.display());
    home.pull(&name).await.unwrap();
    let ours = listing(&home.root(&name).await);
    let theirs = listing(&bundle.join("rootfs"));
    assert_eq!(ours, theirs);
}

/// The entries of a tree, without those that motu adds.
fn listing(root: &Path) -> Vec<String> {
    let added = ["proc", "sys", "dev", "run", "tmp", "etc", "workspace"];
    let output = motu_needs::command("find")
        .arg(root)
        .args(["-mindepth", "1", "-printf", "%P %y %m %U %G %s %n %l\\n"])
        .output()
        .unwrap();
    let mut lines: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| {
            !added.iter().any(|dir| {
                line.starts_with(&format!("{dir} ")) || line.starts_with(&format!("{dir}/"))
            })
        })
        // The size of a directory depends on the file system.
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[1] {
                "d" => fields[..5].join(" "),
                _ => line.to_owned(),
            }
        })
        .collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_one_file_known_by_its_digest() {
    let Some(registry) = Registry::start("") else {
        return;
    };
    let one = Image::new(vec![base()]);
    registry.push(&one, "one", &[]);
    // What is copied has a manifest of its own.
    let name = |tag: &str| {
        let mut inspect = motu_needs::command("skopeo");
        inspect.args(["inspect", "--tls-verify=false", "--format", "{{.Digest}}"]);
        let said = inspect
            .arg(format!("docker://{}", registry.name(tag)))
            .output()
            .unwrap();
        let digest = String::from_utf8(said.stdout).unwrap();
        format!("{}/team/app@{}", registry.address, digest.trim())
    };
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("file");
    motu_environments::artifact(&name("one"), "a package", &to)
        .await
        .unwrap();
    assert_eq!(fs::read(&to).unwrap(), one.layers[0].bytes);

    let two = Image::new(vec![base(), middle()]);
    registry.push(&two, "two", &[]);
    let absent = format!("{}/team/app@sha256:{}", registry.address, "0".repeat(64));
    for (name, cause) in [
        (name("two"), "2 layers"),
        (absent, "404"),
        (registry.name("one"), "by its digest"),
    ] {
        let to = dir.path().join("other");
        let error = motu_environments::artifact(&name, "a package", &to).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(cause), "{name}: {error}");
        assert!(!to.exists());
    }
}
