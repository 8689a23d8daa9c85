//! gRPC through a generated client that has no code of motu.
//!
//! The client is Python's grpcio; `tools/setup test` installs it in `target/clients/grpc`.
//! Its tests are in `grpc/`; each file there is one test here, with its own daemon.

use base64::Engine as _;
use motu_needs::skip;
use motu_testkit::story::Story;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use std::path::Path;
use std::process::{Command, Stdio};

/// The Python with the client, if it is installed.
fn python(story: &Story) -> Option<Command> {
    let root = motu_testkit::root();
    let program = root.join("target/clients/grpc/bin/python");
    if !program.exists() {
        skip("the client of gRPC is not installed; run tools/setup test");
        return None;
    }
    let temporary = story.path().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new(program);
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories/grpc"))
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MOTU_BINARY", motu_testkit::program())
        .env("MOTU_HOME", story.home())
        .env("HOME", story.path())
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null());
    Some(command)
}

/// A state directory with a runtime and an environment.
fn place(runtime: &str) -> Story {
    let story = Story::new();
    story.configure(&format!(
        "runtime = \"{runtime}\"\n[grpc]\nenvironment = \"busybox\"\n"
    ));
    assert!(story.has_busybox());
    // It starts the daemon, which listens.
    let listed = story.motu(&["ps"]);
    assert_eq!(listed.code, 0, "{listed}");
    story
}

/// Runs tests of the client, all of which must pass.
fn pytest(story: &Story, tests: &[&str]) {
    pytest_with(story, tests, &[]);
}

fn pytest_with(story: &Story, tests: &[&str], variables: &[(&str, &str)]) {
    let Some(mut command) = python(story) else {
        return;
    };
    command.envs(variables.iter().copied());
    command.args([
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--durations=5",
    ]);
    command.arg("--basetemp").arg(story.path().join("pytest"));
    let output = command.args(tests).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success(),
        "{tests:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn sandboxes_health_and_reflection() {
    let memory = [
        "--deselect",
        "test_life.py::test_memory_goes_into_a_template",
    ];
    pytest(
        &place("container"),
        &[&["test_life.py"], &memory[..]].concat(),
    );
}

#[test]
fn what_is_not_installed_is_pulled() {
    let story = Story::new();
    story.configure("runtime = \"container\"\n[grpc]\nenvironment = \"busybox\"\n");
    // It starts the daemon, which listens.
    let listed = story.motu(&["ps"]);
    assert_eq!(listed.code, 0, "{listed}");
    pytest(&story, &["test_pull.py"]);
}

#[test]
fn events_in_a_service_of_their_own() {
    pytest(&place("container"), &["test_events.py"]);
}

#[test]
fn the_end_of_the_daemon() {
    pytest(&place("container"), &["test_end.py"]);
}

#[test]
fn commands_and_background_processes() {
    pytest(
        &place("container"),
        &["test_commands.py", "test_additions.py"],
    );
}

#[test]
fn streams_over_kills_of_the_daemon() {
    pytest(&place("container"), &["test_killed.py"]);
}

#[test]
fn files_and_directories() {
    pytest(&place("container"), &["test_files.py"]);
}

/// Creates an authority, certificates that it signed for this host and a caller, and one that it
/// did not sign.
fn certificates(place: &Path) {
    std::fs::create_dir(place).unwrap();
    let write = |name: &str, label: &str, der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        let lines = lines.join("\n");
        let text = format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n");
        std::fs::write(place.join(format!("{name}.pem")), text).unwrap();
    };
    let named = |hosts: Vec<String>, name: &str| {
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let issuer = |name: &str| {
        let mut params = named(Vec::new(), name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (authority, other) = (issuer("authority"), issuer("other"));
    write("authority", "CERTIFICATE", authority.der());
    for (name, by) in [
        ("host", &authority),
        ("caller", &authority),
        ("stranger", &other),
    ] {
        let key = KeyPair::generate().unwrap();
        let params = named(vec!["127.0.0.1".to_string()], name);
        let certificate = params.signed_by(&key, by).unwrap();
        write(name, "CERTIFICATE", certificate.der());
        write(&format!("{name}-key"), "PRIVATE KEY", &key.serialize_der());
    }
}

#[test]
fn callers_of_other_hosts_need_a_certificate() {
    let story = Story::new();
    let pems = story.path().join("certificates");
    certificates(&pems);
    // The port was free a moment ago; nothing else here binds ports of this range by number.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    let configure = |host: &str| {
        story.configure(&format!(
            "runtime = \"container\"\n[grpc]\nenvironment = \"busybox\"\nlisten = \"{address}\"\n\
             cert_file = \"{pems}/{host}.pem\"\nkey_file = \"{pems}/host-key.pem\"\n\
             client_ca_file = \"{pems}/authority.pem\"\n",
            pems = pems.display()
        ));
    };
    configure("nobody");
    let told = story.motu(&["serve"]);
    assert_ne!(told.code, 0, "{told}");
    assert!(told.stderr.contains("cert_file"), "{told}");
    configure("host");
    // It starts the daemon, which listens.
    let pulled = story.motu(&["env", "pull", "busybox"]);
    assert_eq!(pulled.code, 0, "{pulled}");
    let variables = [
        ("MOTU_ADDRESS", address.as_str()),
        ("MOTU_CERTIFICATES", pems.to_str().unwrap()),
    ];
    pytest_with(&story, &["test_remote.py"], &variables);
}

#[test]
fn callers_with_a_key_share_the_address_of_rest() {
    let story = Story::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    story.configure(&format!(
        "runtime = \"container\"\n[grpc]\nenvironment = \"busybox\"\n\
         [listen]\naddress = \"{address}\"\ncertificate = \"self\"\n"
    ));
    // It starts the daemon, which listens.
    let pulled = story.motu(&["env", "pull", "busybox"]);
    assert_eq!(pulled.code, 0, "{pulled}");
    pytest_with(&story, &["test_keyed.py"], &[("MOTU_ADDRESS", &address)]);
}

#[test]
fn terminals() {
    pytest(&place("container"), &["test_terminals.py"]);
}

/// Tests that depend on the runtime: memory that survives a pause, and streams.
const EVERYWHERE: &[&str] = &[
    "test_life.py::test_pausing_keeps_memory_and_processes",
    "test_commands.py::test_bytes_are_bytes",
    "test_commands.py::test_commands_of_a_paused_sandbox",
    "test_commands.py::test_who_leaves_a_stream_ends_its_command",
    "test_files.py::test_a_file_in_pieces",
    "test_terminals.py::test_a_shell_is_typed_into_resized_and_ends",
];

#[test]
fn the_same_in_gvisor() {
    pytest(&place("gvisor"), EVERYWHERE);
}

#[test]
fn the_same_in_virtual_machines() {
    let memory = ["test_life.py::test_memory_goes_into_a_template"];
    pytest(&place("qemu"), &[EVERYWHERE, &memory].concat());
}
