//! motu inside other people's sandboxes: what works there, and that the rest is refused with its cause.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../conformance/tests/engines/engine.rs"]
#[expect(dead_code, reason = "other files ask more of an engine")]
mod engine;
#[expect(dead_code, reason = "other files tell stories in more ways")]
mod story;

use engine::{Engine, Kind};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use story::{Story, Told};

/// Libraries of `proot` that a small Debian lacks.
const TALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtalloc.so.2";
/// The options with which an engine lets an ordinary user's machines into its containers.
const OPEN: [&str; 4] = [
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
];
/// Runs in the container: everything that is tried, each with its exit code.
const TRY: &str = r#"
export MOTU_HOME=${1:-/var/lib/motu}
motu env import /srv/busybox.tar mine:1 >/dev/null || exit 90
motu doctor --json >/tmp/doctor.json
try() {
    name=$1
    shift
    motu run mine:1 --json "$@" -- echo hello >/tmp/out 2>/tmp/err
    code=$?
    # One line each: the name, the code, what was printed and why not.
    printf '%s\t%s\t%s\t%s\n' "$name" "$code" "$(tr -d '\n' </tmp/out)" "$(tr '\n' ' ' </tmp/err)"
}
try auto
try container --runtime container
try proot --runtime proot --allow-host-compat
try host --runtime host --allow-host-compat
motu serve --stop >/dev/null 2>/tmp/err
printf 'stop\t%s\t\t%s\n' $? "$(tr '\n' ' ' </tmp/err)"
printf 'doctor\t0\t%s\t\n' "$(tr -d '\n' </tmp/doctor.json)"
"#;

/// An engine with a small Debian in it, and what is brought into its containers.
struct Yard {
    engine: Engine,
    story: Story,
}

/// What came of one try.
#[derive(Debug)]
struct Tried {
    code: i32,
    answer: Value,
    told: String,
}

impl Yard {
    fn new() -> Option<Yard> {
        let root = debian()?;
        let engine = match Engine::start(Kind::Docker) {
            Ok(engine) => engine,
            Err(reason) => {
                motu_conformance::skip(&reason);
                return None;
            }
        };
        let story = Story::with_machines()?;
        let yard = Yard { engine, story };
        let archive = yard.story.path().join("busybox.tar");
        let export = ["env", "export", "busybox", "-o", archive.to_str().unwrap()];
        let told = yard.story.motu(&export);
        assert_eq!(told.code, 0, "{told}");
        std::fs::write(yard.story.path().join("try"), TRY).unwrap();
        let mut pack = motu_needs::command("tar");
        pack.args(["--numeric-owner", "-cf", "-", "-C"]);
        let mut packing = pack
            .arg(root)
            .arg(".")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut import = yard.docker(&["import", "-", "small-debian"]);
        let done = import.stdin(packing.stdout.take().unwrap()).output();
        let done = done.unwrap();
        assert!(packing.wait().unwrap().success());
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        Some(yard)
    }

    fn docker(&self, words: &[&str]) -> std::process::Command {
        let mut command = motu_needs::command("docker");
        command
            .env("HOME", self.story.path())
            .env("DOCKER_BUILDKIT", "0")
            .arg("--host")
            .arg(format!("unix://{}", self.engine.socket().display()))
            .args(words);
        command
    }

    /// Tries everything in a container with these options, and `home` in it as the state directory.
    fn tried(&self, options: &[&str], home: &str) -> impl Fn(&str) -> Tried + use<> {
        let place = self.story.path().display();
        let motu = format!("{}:/usr/bin/motu:ro", env!("CARGO_BIN_EXE_motu"));
        let proot = format!("{}:/usr/bin/proot:ro", motu_needs::find("proot").display());
        let script = format!("{place}/try:/srv/try:ro");
        let archive = format!("{place}/busybox.tar:/srv/busybox.tar:ro");
        let library = format!("{TALLOC}:{TALLOC}:ro");
        let mut words = vec!["run", "--rm", "-v", "/var/lib/motu"];
        for volume in [&motu, &proot, &script, &archive, &library] {
            words.extend(["-v", volume]);
        }
        words.extend(options);
        words.extend(["small-debian", "sh", "/srv/try", home]);
        let told = self.story.told(self.docker(&words));
        move |name| read(&told, name)
    }
}

/// The line of one try.
fn read(told: &Told, name: &str) -> Tried {
    assert_eq!(told.code, 0, "{told}");
    let mut lines = told.stdout.lines().map(|line| line.split('\t'));
    let mut fields = lines
        .find(|line| line.clone().next() == Some(name))
        .unwrap();
    let mut field = || fields.next().unwrap_or_default().to_string();
    let _ = field();
    let code = field().parse().unwrap();
    let answer: Value = serde_json::from_str(&field()).unwrap_or_default();
    let error = answer["error"]["message"].as_str().unwrap_or_default();
    Tried {
        code,
        told: format!("{error} {}", field()),
        answer,
    }
}

/// The root of the Debian that the tests share.
fn debian() -> Option<PathBuf> {
    let root = std::env::var_os("MOTU_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        motu_conformance::skip("nested: MOTU_TEST_ROOT names no root");
    }
    root
}

/// The advice of one check of the container runtime.
fn fix(doctor: &Value, check: &str) -> String {
    let mut runtimes = doctor["runtimes"].as_array().unwrap().iter();
    let container = runtimes.find(|one| one["name"] == "container").unwrap();
    let mut checks = container["checks"].as_array().unwrap().iter();
    let found = checks.find(|one| one["name"] == check).unwrap();
    found["fix"].as_str().unwrap_or_default().to_string()
}

/// One engine for all of it: its Debian is what takes time.
#[test]
fn in_containers_of_docker_it_works_as_far_as_they_let_it() {
    let Some(yard) = Yard::new() else { return };
    in_a_plain_container_only_what_isolates_nothing_works(&yard);
    a_container_that_may_make_namespaces_has_containers_in_it(&yard);
    in_gvisor_nothing_is_made(&yard);
    the_image_of_motu_serves(&yard);
}

fn in_a_plain_container_only_what_isolates_nothing_works(yard: &Yard) {
    let tried = yard.tried(&[], "/var/lib/motu");
    for name in ["auto", "container"] {
        let one = tried(name);
        assert_eq!(one.code, 107, "{name}: {one:?}");
        assert!(one.told.contains("namespaces"), "{name}: {one:?}");
    }
    assert_eq!(tried("stop").code, 0);
    for name in ["proot", "host"] {
        let one = tried(name);
        assert_eq!(one.code, 0, "{name}: {one:?}");
        assert_eq!(one.answer["isolation"], "none", "{name}: {one:?}");
    }
    // The advice is for whoever starts the container, not "run the daemon as root".
    let doctor = tried("doctor").answer;
    let namespaces = fix(&doctor, "namespaces");
    assert!(
        namespaces.contains("systempaths=unconfined"),
        "{namespaces}"
    );
    for check in ["cgroups", "disk limit"] {
        let said = fix(&doctor, check);
        assert!(said.contains("itself a container"), "{check}: {said}");
    }
}

fn a_container_that_may_make_namespaces_has_containers_in_it(yard: &Yard) {
    let one = yard.tried(&OPEN, "/var/lib/motu")("auto");
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(one.answer["isolation"], "container", "{one:?}");
    // Hidden parts of /proc: the doctor knows before the first machine is made.
    let half = yard.tried(&OPEN[..2], "/var/lib/motu");
    let one = half("container");
    assert_eq!(one.code, 107, "{one:?}");
    assert!(one.told.contains("mount /proc"), "{one:?}");
    let said = fix(&half("doctor").answer, "namespaces");
    assert!(said.contains("systempaths=unconfined"), "{said}");
    // No overlay above the overlay that a container's root is.
    let rootless = yard.tried(&OPEN, "/root/state");
    assert_eq!(rootless("container").code, 107);
    let said = fix(&rootless("doctor").answer, "overlayfs");
    assert!(said.contains("volume"), "{said}");
}

fn in_gvisor_nothing_is_made(yard: &Yard) {
    let tried = yard.tried(&["--runtime", "runsc"], "/var/lib/motu");
    for name in ["auto", "container", "host"] {
        let one = tried(name);
        assert_eq!(one.code, 107, "{name}: {one:?}");
        assert_eq!(
            one.answer["error"]["kind"], "unavailable",
            "{name}: {one:?}"
        );
    }
}

#[test]
fn in_a_machine_of_our_own_it_says_what_it_may_not() {
    let Some(root) = debian() else { return };
    let Some(story) = Story::with_machines() else {
        return;
    };
    let environment = format!("dir:{}", root.display());
    for words in [
        &["env", "pull", &environment][..],
        &["create", &environment, "--id", "outer"],
        &["cp", env!("CARGO_BIN_EXE_motu"), "outer:/tmp/motu"],
    ] {
        let told = story.motu(words);
        assert_eq!(told.code, 0, "{words:?}: {told}");
    }
    let inside = "export MOTU_HOME=/tmp/state; cd /tmp; ./motu doctor --json >doctor; ./motu run busybox -- true; \
                  code=$?; ./motu serve --stop >/dev/null; exit $code";
    let told = story.motu(&["exec", "outer", "--", "sh", "-c", inside]);
    assert_eq!(told.code, 107, "{told}");
    assert!(told.stderr.contains("namespaces"), "{told}");
}

fn the_image_of_motu_serves(yard: &Yard) {
    let context = yard.story.path().join("context");
    std::fs::create_dir(&context).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_motu"), context.join("motu")).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/Dockerfile");
    // As its readers build it, but for the base: this host reaches mirrors and no registry.
    let build = [
        "build",
        "--file",
        file.to_str().unwrap(),
        "--build-arg",
        "BASE=small-debian",
        "--network=host",
        "--tag",
        "motu",
        context.to_str().unwrap(),
    ];
    let told = yard.story.told(yard.docker(&build));
    assert_eq!(told.code, 0, "{told}");
    let archive = format!(
        "{}/busybox.tar:/srv/busybox.tar:ro",
        yard.story.path().display()
    );
    let start = [
        &["run", "--rm", "--detach", "--init", "--name", "service"][..],
        &OPEN,
        &["-v", &archive, "motu"],
    ];
    let told = yard.story.told(yard.docker(&start.concat()));
    assert_eq!(told.code, 0, "{told}");
    let within = |words: &[&str]| {
        let words = [&["exec", "service", "motu"], words].concat();
        yard.story.told(yard.docker(&words))
    };
    // What the step with packages brought is not in the base.
    for program in ["newuidmap", "proot", "mke2fs"] {
        let look = ["exec", "service", "which", program];
        let told = yard.story.told(yard.docker(&look));
        assert_eq!(told.code, 0, "{program}: {told}");
    }
    let told = within(&["env", "import", "/srv/busybox.tar", "mine:1"]);
    assert_eq!(told.code, 0, "{told}");
    let told = within(&["run", "mine:1", "--json", "--", "echo", "hello"]);
    assert_eq!(told.code, 0, "{told}");
    let answer: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(answer["isolation"], "container", "{told}");
    // It leaves when the engine asks, and not because its time is over.
    let told = yard
        .story
        .told(yard.docker(&["stop", "--time", "30", "service"]));
    assert_eq!(told.code, 0, "{told}");
}
