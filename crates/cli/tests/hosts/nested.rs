//! motu inside other people's sandboxes: what works there, and that the rest is refused with its cause.

use motu_testkit::engine::{Engine, Kind};
use motu_testkit::story::{Story, Told};
use motu_testkit::user::User;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Libraries of `proot` that a small Debian lacks.
const TALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtalloc.so.2";
/// The options with which an engine lets an ordinary user's machines into its containers.
const OPEN: [&str; 4] = [
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
];
/// An image that has every program of this host: a QEMU, and runsc. It is given the network for the kernel of machines.
const PROGRAMS: [&str; 5] = [
    "-v",
    "/usr:/usr:ro",
    "-v",
    "/etc/apt:/etc/apt:ro",
    "--network=host",
];
/// Runs in the container: everything that is tried, each with its exit code.
const TRY: &str = r#"
export MOTU_HOME=${1:-/var/lib/motu} PATH=/srv/bin:$PATH
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
try gvisor --runtime gvisor
try qemu --runtime qemu --accel tcg
try kvm --runtime qemu --accel kvm
try docker --runtime docker
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
                motu_needs::skip(&reason);
                return None;
            }
        };
        let story = Story::with_machines()?;
        prepare(&story, story.path());
        let yard = Yard { engine, story };
        import(&root, yard.docker(&["import", "-", "small-debian"]));
        Some(yard)
    }

    fn docker(&self, words: &[&str]) -> Command {
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
        let words = run(self.story.path(), options, home);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let told = self.story.told(self.docker(&words));
        move |name| read(&told, name)
    }
}

/// An ordinary user's Podman, with the same Debian in it.
struct Pod {
    user: User,
}

impl Pod {
    fn new() -> Option<Pod> {
        let root = debian()?;
        let story = Story::with_machines()?;
        let pod = Pod { user: User::new()? };
        prepare(&story, pod.user.story.path());
        import(&root, pod.podman(&["import", "-", "small-debian"]));
        Some(pod)
    }

    fn podman(&self, words: &[&str]) -> Command {
        let own = self.user.own();
        let mut command = self.user.command(motu_needs::find("podman"));
        // The default crun refuses hosts with both cgroup versions.
        command.arg("--runtime").arg(motu_needs::find("runc"));
        for (option, place) in [
            ("--root", "data"),
            ("--runroot", "run/containers"),
            ("--tmpdir", "run/tmp"),
        ] {
            command.arg(option).arg(own.join(place));
        }
        command
            .args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"])
            .arg("--events-backend=file")
            .args(words);
        command
    }

    fn tried(&self, options: &[&str], home: &str) -> impl Fn(&str) -> Tried + use<> {
        let words = run(self.user.story.path(), options, home);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let told = self.user.story.told(self.podman(&words));
        move |name| read(&told, name)
    }
}

impl Drop for Pod {
    /// Podman leaves a process that holds its user namespace; its environment names our directory.
    fn drop(&mut self) {
        let ours = format!("XDG_RUNTIME_DIR={}/run", self.user.own().display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let env = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if !env
                .split(|byte| *byte == 0)
                .any(|line| line == ours.as_bytes())
            {
                continue;
            }
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Puts what containers are shown into a directory.
fn prepare(story: &Story, place: &Path) {
    let archive = place.join("busybox.tar");
    let export = ["env", "export", "busybox", "-o", archive.to_str().unwrap()];
    let told = story.motu(&export);
    assert_eq!(told.code, 0, "{told}");
    std::fs::write(place.join("try"), TRY).unwrap();
    // The program itself may be in a place that an ordinary user cannot read.
    std::fs::copy(motu_testkit::program(), place.join("motu")).unwrap();
    for (name, mode) in [("busybox.tar", 0o644), ("try", 0o644), ("motu", 0o755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.join(name), mode).unwrap();
    }
}

/// Gives a root to whoever reads an archive from standard input.
fn import(root: &Path, mut import: Command) {
    let mut pack = motu_needs::command("tar");
    pack.args(["--numeric-owner", "-cf", "-", "-C"]);
    pack.arg(root).arg(".").stdout(Stdio::piped());
    let mut packing = pack.spawn().unwrap();
    let done = import.stdin(packing.stdout.take().unwrap()).output();
    let done = done.unwrap();
    assert!(packing.wait().unwrap().success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

/// The words with which an engine tries everything in a container with these options, and `home` in it as the state directory.
fn run(place: &Path, options: &[&str], home: &str) -> Vec<String> {
    let shown = |name: &str, to: &str| format!("{}:{to}:ro", place.join(name).display());
    let volumes = [
        "/var/lib/motu".to_string(),
        shown("motu", "/srv/bin/motu"),
        shown("try", "/srv/try"),
        shown("busybox.tar", "/srv/busybox.tar"),
        format!("{}:/usr/bin/proot:ro", motu_needs::find("proot").display()),
        format!("{TALLOC}:{TALLOC}:ro"),
    ];
    let mut words = vec!["run".to_string(), "--rm".to_string()];
    for volume in volumes {
        words.extend(["-v".to_string(), volume]);
    }
    // Networks of containers are not what this is about; not every host of tests can make one.
    if !options.contains(&"--network=host") {
        words.push("--network=none".to_string());
    }
    words.extend(options.iter().map(ToString::to_string));
    let program = ["small-debian", "sh", "/srv/try", home];
    words.extend(program.map(str::to_string));
    words
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
        motu_needs::skip("nested: MOTU_TEST_ROOT names no root");
    }
    root
}

/// What the doctor knows under a name.
fn named<'a>(all: &'a Value, name: &str) -> &'a Value {
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap()
}

/// The advice of one check of the container runtime.
fn fix(doctor: &Value, check: &str) -> String {
    let container = named(&doctor["runtimes"], "container");
    let found = named(&container["checks"], check);
    found["fix"].as_str().unwrap_or_default().to_string()
}

/// In a container without QEMU and runsc nobody has virtual machines or gVisor, and the doctor knows every cause, also those
/// that would be left with these programs.
fn only_programs_are_missing_for_virtual_machines(tried: &impl Fn(&str) -> Tried) {
    let doctor = tried("doctor").answer;
    let runtimes = &doctor["runtimes"];
    for (name, check, cause) in [
        ("qemu", "qemu-system-x86_64", "is not installed"),
        ("qemu", "accelerator", "there is no /dev/kvm"),
        ("gvisor", "runsc", "is not installed"),
        ("gvisor", "privilege", "this root may not mount"),
        ("docker", "engine", "no socket"),
    ] {
        let known = named(runtimes, name);
        assert_eq!(known["works"], false, "{known}");
        let said = named(&known["checks"], check)["detail"].to_string();
        assert!(said.contains(cause), "{name}, {check}: {said}");
        assert_eq!(tried(name).code, 107, "{name}: {:?}", tried(name));
    }
}

/// With a QEMU in the image a container has virtual machines, emulated; KVM is refused, and gVisor is not to be had.
fn with_programs_there_are_virtual_machines(tried: &impl Fn(&str) -> Tried) {
    let one = tried("qemu");
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(one.answer["isolation"], "vm", "{one:?}");
    assert_eq!(one.answer["accelerator"], "tcg", "{one:?}");
    for (name, cause) in [
        ("kvm", "there is no /dev/kvm"),
        ("gvisor", "this root may not mount"),
    ] {
        let one = tried(name);
        assert_eq!(one.code, 107, "{name}: {one:?}");
        assert!(one.told.contains(cause), "{name}: {one:?}");
    }
}

/// One engine for all of it: its Debian is what takes time.
#[test]
fn in_containers_of_docker_it_works_as_far_as_they_let_it() {
    let Some(yard) = Yard::new() else { return };
    in_a_plain_container_only_what_isolates_nothing_works(&yard);
    a_container_that_may_make_namespaces_has_containers_in_it(&yard);
    in_gvisor_nothing_is_made(&yard);
    with_programs_there_are_virtual_machines(&yard.tried(&PROGRAMS, "/var/lib/motu"));
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
    only_programs_are_missing_for_virtual_machines(&tried);
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
    let open = yard.tried(&OPEN, "/var/lib/motu");
    let one = open("auto");
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(one.answer["isolation"], "container", "{one:?}");
    only_programs_are_missing_for_virtual_machines(&open);
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
    for name in [
        "auto",
        "container",
        "gvisor",
        "qemu",
        "kvm",
        "docker",
        "proot",
        "host",
    ] {
        let one = tried(name);
        assert_eq!(one.code, 107, "{name}: {one:?}");
        assert_eq!(
            one.answer["error"]["kind"], "unavailable",
            "{name}: {one:?}"
        );
    }
}

#[test]
fn in_containers_of_rootless_podman_it_works_as_far_as_they_let_it() {
    let Some(pod) = Pod::new() else { return };
    let plain = pod.tried(&[], "/var/lib/motu");
    for (name, cause) in [
        ("auto", "mount /proc"),
        ("container", "mount /proc"),
        ("kvm", "is not installed"),
    ] {
        let one = plain(name);
        assert_eq!(one.code, 107, "{name}: {one:?}");
        assert!(one.told.contains(cause), "{name}: {one:?}");
    }
    only_programs_are_missing_for_virtual_machines(&plain);
    for name in ["proot", "host"] {
        let one = plain(name);
        assert_eq!(one.code, 0, "{name}: {one:?}");
        assert_eq!(one.answer["isolation"], "none", "{name}: {one:?}");
    }
    let said = fix(&plain("doctor").answer, "namespaces");
    assert!(said.contains("systempaths=unconfined"), "{said}");
    let open = pod.tried(&OPEN, "/var/lib/motu");
    for name in ["auto", "container"] {
        let one = open(name);
        assert_eq!(one.code, 0, "{name}: {one:?}");
        assert_eq!(one.answer["isolation"], "container", "{name}: {one:?}");
        let unlimited = one.answer["not_enforced"].to_string();
        assert!(unlimited.contains("mem_mib"), "{name}: {one:?}");
    }
    only_programs_are_missing_for_virtual_machines(&open);
    for name in ["proot", "host"] {
        assert_eq!(open(name).code, 0, "{name}: {:?}", open(name));
    }
    with_programs_there_are_virtual_machines(&pod.tried(&PROGRAMS, "/var/lib/motu"));
    every_privilege_of_a_rootless_engine_is_that_of_a_user(&pod);
}

/// Root has every capability there, over what is the container's own: for the host it is the engine's user, so it gets what
/// that user gets, and is not told to ask for what it has already.
fn every_privilege_of_a_rootless_engine_is_that_of_a_user(pod: &Pod) {
    let all = pod.tried(&["--privileged"], "/var/lib/motu");
    for name in ["auto", "container"] {
        let one = all(name);
        assert_eq!(one.code, 0, "{name}: {one:?}");
        assert_eq!(one.answer["isolation"], "container", "{name}: {one:?}");
        // The control groups that the engine's user has are theirs here, too; devices for disks are not.
        let unlimited = one.answer["not_enforced"].to_string();
        assert!(unlimited.contains("disk_mib"), "{name}: {one:?}");
    }
    for name in ["proot", "host", "stop"] {
        assert_eq!(all(name).code, 0, "{name}: {:?}", all(name));
    }
    let doctor = all("doctor").answer;
    let said = fix(&doctor, "disk limit");
    assert!(said.contains("sudo podman run"), "{said}");
    let gvisor = named(&doctor["runtimes"], "gvisor");
    let lacking = named(&gvisor["checks"], "privilege");
    let said = lacking["detail"].to_string();
    assert!(said.contains("an ordinary user of the host"), "{lacking}");
    let said = lacking["fix"].to_string();
    assert!(said.contains("sudo podman run"), "{lacking}");

    // With the host's programs in the image there are virtual machines. The device of KVM is shown, and is not theirs.
    let with = [&PROGRAMS[..], &["--privileged"]].concat();
    let all = pod.tried(&with, "/var/lib/motu");
    let one = all("qemu");
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(one.answer["accelerator"], "tcg", "{one:?}");
    let one = all("gvisor");
    assert_eq!(one.code, 107, "{one:?}");
    assert!(one.told.contains("an ordinary user of the host"), "{one:?}");
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
        &["cp", motu_testkit::program(), "outer:/tmp/motu"],
    ] {
        let told = story.motu(words);
        assert_eq!(told.code, 0, "{words:?}: {told}");
    }
    let inside = "export MOTU_HOME=/tmp/state; cd /tmp; ./motu doctor --json; ./motu run busybox -- true; \
                  code=$?; ./motu serve --stop >stopped; exit $code";
    let told = story.motu(&["exec", "outer", "--", "sh", "-c", inside]);
    assert_eq!(told.code, 107, "{told}");
    assert!(told.stderr.contains("namespaces"), "{told}");
    let doctor: Value = serde_json::from_str(&told.stdout).unwrap();
    for (name, works) in [
        ("container", false),
        ("gvisor", false),
        ("qemu", false),
        ("docker", false),
        ("host", true),
    ] {
        let known = named(&doctor["runtimes"], name);
        assert_eq!(known["works"], works, "{known}");
        assert!(works || known["detail"].is_string(), "{known}");
    }
}

fn the_image_of_motu_serves(yard: &Yard) {
    let context = yard.story.path().join("context");
    std::fs::create_dir(&context).unwrap();
    std::fs::copy(motu_testkit::program(), context.join("motu")).unwrap();
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
