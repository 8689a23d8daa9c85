//! Bases of builds, and the provenance of their results.

use motu_testkit::builds::{able, build, built, counts, project, says, world_of_its_own};
use motu_testkit::story::Story;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

#[test]
fn what_a_base_wants_done_is_done_in_builds_that_start_from_it() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let base = "FROM busybox\nWORKDIR /app\nONBUILD COPY *.txt ./\n\
        ONBUILD RUN wc -l < words.txt > counted\nONBUILD ENV COUNTED=yes\nRUN touch of-the-base\n";
    let dir = project(&story, "base", &[("Dockerfile", base)]);
    // ONBUILD steps do not run in the base itself, whose context lacks these files.
    assert_eq!(
        counts(&built(&build(&story, &dir, &["-t", "base:1"]))),
        (2, 0)
    );
    says(
        &story,
        &["run", "base:1", "--", "ls", "/app"],
        "of-the-base",
    );
    let words = [
        ("words.txt", "one\ntwo\n"),
        ("Dockerfile", "FROM base:1\nRUN cat counted > again\n"),
    ];
    let dir = project(&story, "child", &words);
    let first = built(&build(&story, &dir, &["-t", "child:1"]));
    assert_eq!(counts(&first), (3, 0));
    let seen = "cat /app/again; echo $COUNTED; ls /app";
    let expected = "2\nyes\nagain\ncounted\nof-the-base\nwords.txt";
    says(
        &story,
        &["run", "child:1", "--", "sh", "-c", seen],
        expected,
    );
    assert_eq!(
        counts(&built(&build(&story, &dir, &["-t", "child:1"]))),
        (3, 3)
    );
    // ONBUILD applies to the next build only, not to the one after it.
    let text = [("Dockerfile", "FROM child:1\nRUN test ! -e other.txt\n")];
    let dir = project(&story, "grandchild", &text);
    fs::write(dir.join("other.txt"), "").unwrap();
    let made = built(&build(&story, &dir, &["-t", "grandchild:1"]));
    assert_eq!(counts(&made), (1, 0));
}

/// A registry of this test, stopped at its end.
struct Registry {
    child: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Registry {
    fn start() -> Registry {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:0'}}\n",
            dir.path().join("data").display()
        );
        let file = dir.path().join("config.yml");
        fs::write(&file, config).unwrap();
        let mut child = motu_needs::command("docker-registry")
            .arg("serve")
            .arg(file)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split('"').next()?.to_owned())
        });
        // A registry whose output is not read would block.
        std::thread::spawn(move || lines.for_each(drop));
        let mut registry = Registry {
            child,
            address: String::new(),
            _dir: dir,
        };
        registry.address = said.unwrap();
        registry
    }

    /// Pushes an environment to the registry from an archive.
    fn push(&self, story: &Story, environment: &str, name: &str) -> String {
        let archive = story.path().join("pushed.tar");
        let path = archive.to_str().unwrap();
        let told = story.motu(&["env", "export", environment, "-o", path]);
        assert_eq!(told.code, 0, "{told}");
        let reference = format!("{}/{name}", self.address);
        let output = motu_needs::command("skopeo")
            .args(["--insecure-policy", "copy", "--dest-tls-verify=false"])
            .arg(format!("oci-archive:{path}"))
            .arg(format!("docker://{reference}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        fs::remove_file(archive).unwrap();
        reference
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_build_starts_from_what_a_registry_has() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let registry = Registry::start();
    let base =
        "FROM busybox\nENV FROM_BASE=yes\nRUN echo base > /base\nONBUILD RUN echo asked > /asked\n";
    let dir = project(&story, "base", &[("Dockerfile", base)]);
    built(&build(&story, &dir, &["-t", "base:1"]));
    let reference = registry.push(&story, "base:1", "team/base:1");
    assert_eq!(story.motu(&["env", "rm", "base:1"]).code, 0);
    let text = format!(
        "FROM {reference} AS first\nRUN echo $FROM_BASE > /said\nFROM busybox\n\
         COPY --from=first /said /asked /\nCOPY --from={reference} /base /base\n"
    );
    let dir = project(&story, "child", &[("Dockerfile", &text)]);
    let told = build(&story, &dir, &["-t", "child:1"]);
    assert_eq!(counts(&built(&told)), (4, 0), "{told}");
    says(
        &story,
        &["run", "child:1", "--", "cat", "/said", "/asked", "/base"],
        "yes\nasked\nbase",
    );
    // The image is stored locally now: the registry is not asked again.
    drop(registry);
    let again = built(&build(&story, &dir, &["-t", "child:1"]));
    assert_eq!(counts(&again), (4, 4));
    let missing = format!("FROM {}\n", reference.replace("base:1", "none:1"));
    let dir = project(&story, "missing", &[("Dockerfile", &missing)]);
    let told = build(&story, &dir, &["-t", "missing:1"]);
    assert_ne!(told.code, 0, "{told}");
    assert!(told.stdout.contains("Dockerfile, line 1: FROM"), "{told}");
}

/// A file capability, set with Python alone: CAP_NET_RAW, permitted and effective.
const CAPABILITY: &str = "0100000200200000000000000000000000000000";

#[test]
fn capabilities_and_attributes_of_files_are_the_same_whoever_builds() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let give = format!(
        "cp /bin/true /usr/local/bin/raw && python3 -c 'import os; p = \"/usr/local/bin/raw\"; \
         os.setxattr(p, \"security.capability\", bytes.fromhex(\"{CAPABILITY}\")); \
         os.setxattr(p, \"user.note\", b\"kept\")'"
    );
    let read = "import os; p = '/usr/local/bin/raw'; \
        print(os.getxattr(p, 'security.capability').hex(), os.getxattr(p, 'user.note').decode())";
    let expected = format!("{CAPABILITY} kept");
    let mut digests = Vec::new();
    for runtime in able() {
        // gVisor's kernel does not store file capabilities.
        if runtime == "gvisor" {
            continue;
        }
        let tag = format!("{runtime}:1");
        let args = ["env", "build", "--from", "debian:12", "--runtime", &runtime];
        let more = ["--no-cache", "-t", &tag, "--json", "--run", &give];
        let made = built(&story.motu(&[&args[..], &more].concat()));
        says(
            &story,
            &["run", &tag, "--", "python3", "-c", read],
            &expected,
        );
        // The next step sees the capability and keeps it.
        let next = ["env", "build", "--from", &tag, "--no-cache", "--json"];
        let next = story.motu(&[&next[..], &["--run", "test -x /usr/local/bin/raw"]].concat());
        assert_eq!(built(&next)["digest"], made["digest"]);
        digests.push((runtime, made["digest"].clone()));
    }
    assert!(!digests.is_empty());
    let same = |(_, digest): &(String, Value)| *digest == digests[0].1;
    assert!(digests.iter().all(same), "{digests:?}");
}

#[test]
fn arguments_are_in_nothing_that_is_kept() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let value = "an-argument-that-nobody-wrote-down-0815";
    let text = "FROM busybox\nARG WORD\nLABEL of=test\nRUN test ${#WORD} = 39\nENV SET=1\n";
    let dir = project(&story, "argument", &[("Dockerfile", text)]);
    let argument = format!("WORD={value}");
    built(&build(
        &story,
        &dir,
        &["-t", "argument:1", "--build-arg", &argument],
    ));
    let archive = story.path().join("argument.tar");
    let told = story.motu(&[
        "env",
        "export",
        "argument:1",
        "-o",
        archive.to_str().unwrap(),
    ]);
    assert_eq!(told.code, 0, "{told}");
    let shown = story.motu(&["env", "inspect", "argument:1", "--json"]);
    assert_eq!(shown.code, 0, "{shown}");
    assert!(!shown.stdout.contains(value), "{shown}");
    let found = crate::traces::of(story.path(), value.as_bytes());
    assert_eq!(found, Vec::<PathBuf>::new());
}
