//! The Python SDK with its own tests: each group of them is one test here.
//!
//! `tools/setup test` installs what they need in `target/clients/python-sdk`.

use motu_needs::skip;
use motu_testkit::story::Story;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    motu_testkit::root()
}

fn sdk() -> PathBuf {
    root().join("sdk/python")
}

/// The Python with the packages that the tests need, if it is installed.
fn python() -> Option<Command> {
    let place = root().join("target/clients/python-sdk");
    let program = place.join("bin/python");
    if !program.exists() {
        skip("what tests the Python SDK is not installed; run tools/setup test");
        return None;
    }
    let mut command = Command::new(program);
    command
        .current_dir(sdk())
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("PYTHONPATH", sdk().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MOTU_BINARY", motu_testkit::program())
        .stdin(Stdio::null());
    Some(command)
}

/// Runs a command, which must succeed.
fn run(mut command: Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Tests that need no machines.
fn pytest(files: &[&str]) {
    let Some(mut command) = python() else { return };
    let home = tempfile::tempdir().unwrap();
    command.args(["-m", "pytest", "-q"]).args(files);
    command.env("HOME", home.path());
    run(command);
}

/// Tests on machines of one runtime.
fn machines(runtime: &str, tests: &[&str]) {
    let Some(mut command) = python() else { return };
    let story = Story::new();
    story.configure(&format!("runtime = \"{runtime}\"\n"));
    assert!(story.has_busybox());
    let temporary = story.path().join("tmp");
    command.args(["-m", "pytest", "-q", "--durations=5", "--basetemp"]);
    command.arg(&temporary).args(tests);
    command
        .env("HOME", story.path())
        .env("MOTU_HOME", story.home());
    run(command);
}

#[test]
fn what_is_generated_is_current() {
    let mut command = motu_needs::command("python3");
    command.arg(sdk().join("generate.py"));
    if std::env::var_os("MOTU_UPDATE").is_none() {
        command.arg("--check");
    }
    run(command);
}

#[test]
fn the_parts_are_right_and_the_contract_is_kept() {
    pytest(&["tests/test_parts.py", "tests/test_contract.py"]);
}

#[test]
fn mypy_finds_nothing() {
    let Some(mut command) = python() else { return };
    let cache = tempfile::tempdir().unwrap();
    command
        .args(["-m", "mypy", "--cache-dir"])
        .arg(cache.path());
    run(command);
}

#[test]
fn pyright_finds_nothing() {
    let Some(python) = python() else { return };
    let clients = root().join("target/clients");
    let mut command = Command::new(clients.join("nodejs/node_modules/.bin/node"));
    command
        .arg(clients.join("pyright/node_modules/pyright/index.js"))
        .args(["-p", ".", "--pythonpath"])
        .arg(python.get_program())
        .current_dir(sdk())
        .stdin(Stdio::null());
    run(command);
}

#[test]
fn it_is_installed_by_pip() {
    let Some(mut pip) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    // Its dependencies are installed; nothing is fetched.
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"])
        .args(["--no-build-isolation", "--target"])
        .arg(place.path())
        .arg(sdk());
    run(pip);
    assert!(place.path().join("motu/py.typed").exists());
    let mut import = python().unwrap();
    import
        .env("PYTHONPATH", place.path())
        .current_dir(place.path())
        .args(["-c", "import motu; motu.Motu, motu.AsyncMotu, motu.Sandbox"]);
    run(import);
}

/// Installs the SDK into an environment of its own, which sees the packages that are there.
fn environment(place: &Path, program: Option<&Path>) -> Option<PathBuf> {
    let mut venv = python()?;
    venv.args(["-m", "venv", "--without-pip"]).arg(place);
    run(venv);
    let packages = root().join("target/clients/python-sdk/lib");
    let version = std::fs::read_dir(&packages)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let theirs = packages.join(version.file_name()).join("site-packages");
    let ours = place
        .join("lib")
        .join(version.file_name())
        .join("site-packages");
    let theirs = theirs.canonicalize().unwrap().display().to_string();
    std::fs::write(ours.join("theirs.pth"), theirs).unwrap();
    let mut pip = python()?;
    pip.args(["-m", "pip", "--python"]).arg(place);
    pip.args(["install", "--quiet", "--no-index", "--no-deps"])
        .arg("--no-build-isolation")
        .arg(sdk());
    pip.env("MOTU_WHEEL_BINARY", program.unwrap_or(Path::new("")));
    run(pip);
    Some(place.join("bin/python"))
}

#[test]
fn the_wheel_brings_the_program() {
    let place = tempfile::tempdir().unwrap();
    // A script in its place: to pack a program that is not optimised, and to unpack it, takes a minute.
    let program = place.path().join("motu");
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", motu_testkit::program());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(python) = environment(&place.path().join("venv"), Some(&program)) else {
        return;
    };
    let Some(story) = Story::with_machines() else {
        return;
    };
    // Nothing else is called motu where this looks.
    let mut command = Command::new(python);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", story.path())
        .env("MOTU_HOME", story.home())
        .args(["-c", "import motu\nwith motu.Motu() as m: print(m.run_in_vm('busybox', ['echo', 'hello']).stdout)"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said.trim(),
        "hello",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn without_a_program_the_package_is_plain_python() {
    let place = tempfile::tempdir().unwrap();
    let Some(python) = environment(&place.path().join("venv"), None) else {
        return;
    };
    assert!(!place.path().join("venv/bin/motu").exists());
    let mut command = Command::new(python);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.args(["-c", "import motu; print(motu.Motu)"]);
    run(command);
}

#[test]
fn every_verb_in_containers() {
    machines("container", &["tests/test_verbs.py"]);
}

#[test]
fn stories_in_containers() {
    machines("container", &["tests/test_stories.py"]);
}

#[test]
fn errors_of_each_kind() {
    machines("container", &["tests/test_errors.py"]);
}

#[test]
fn a_daemon_of_another_host() {
    machines("container", &["tests/test_service.py"]);
}

#[test]
fn streams_outlive_the_daemon_of_containers() {
    machines("container", &["tests/test_resume.py"]);
}

#[test]
fn the_guide_does_what_it_says() {
    machines("container", &["tests/test_guide.py"]);
}

#[test]
fn every_verb_in_gvisor() {
    machines("gvisor", &["tests/test_verbs.py"]);
}

#[test]
fn stories_in_gvisor() {
    machines("gvisor", &["tests/test_stories.py"]);
}

#[test]
fn streams_outlive_the_daemon_of_gvisor() {
    machines("gvisor", &["tests/test_resume.py"]);
}

/// With only one of the two clients, because emulated machines are slow.
#[test]
fn every_verb_in_virtual_machines() {
    machines("qemu", &["tests/test_verbs.py", "-k", "not async"]);
}

#[test]
fn stories_in_virtual_machines() {
    machines("qemu", &["tests/test_stories.py"]);
}

#[test]
fn streams_outlive_the_daemon_of_virtual_machines() {
    machines("qemu", &["tests/test_resume.py"]);
}
