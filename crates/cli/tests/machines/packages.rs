//! Real package managers in machines with a network: pip, npm, apt and git, with real servers in
//! namespaces of the test and a policy that names only these servers.

use motu_testkit::network::World;
use motu_testkit::story::Told;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

const POLICY: &str = r#"
version = 1
description = "servers of packages"

[[allow]]
capability = "python"
hosts = ["pypi.example"]
ports = [443]

[[allow]]
capability = "npm"
hosts = ["npm.example"]
ports = [443]

[[allow]]
capability = "debian"
hosts = ["deb.example"]
ports = [80]
http = [{ methods = ["GET", "HEAD"] }]

[[allow]]
capability = "git"
hosts = ["git.example"]
ports = [443]
"#;

/// The names of the servers. The last one is not in the policy.
const NAMES: [&str; 5] = [
    "pypi.example",
    "npm.example",
    "deb.example",
    "git.example",
    "evil.example",
];

/// The script of each package manager. It prints 42 if the package works.
const PIP: &str = "pip install --quiet --break-system-packages --no-cache-dir --timeout 60 \
    --disable-pip-version-check --index-url https://HOST/simple tiny-answer \
    && python3 -c 'import tiny_answer; print(tiny_answer.ANSWER)'";
const APT: &str = "echo 'deb [trusted=yes] http://HOST ./' > /tmp/HOST.list \
    && apt='apt-get -q -o Dir::Etc::sourcelist=/tmp/HOST.list -o Dir::Etc::sourceparts=- -o Acquire::Retries=0' \
    && $apt update >&2 && $apt install -y --reinstall tiny-answer >&2 && tiny-answer";
const GIT: &str = "cd $(mktemp -d) && git clone -q https://HOST/tiny.git && cat tiny/answer";
const NPM: &str = "cd $(mktemp -d) && npm install --silent --no-audit --no-fund --no-update-notifier \
    --fetch-retries=0 --registry=https://HOST tiny-answer >&2 \
    && node -p 'require(\"tiny-answer\")'";

fn run(world: &World, id: &str, script: &str, host: &str) -> Told {
    let script = script.replace("HOST", host);
    let options = ["--user", "root", "--timeout-seconds", "300"];
    world.motu(&[&["exec", id][..], &options, &["--", "sh", "-c", &script]].concat())
}

/// Installs from the server that the policy names; nothing is fetched from others.
fn installs(world: &World, id: &str, script: &str, server: &str) {
    // The refused server first, while nothing is installed yet.
    let refused = run(world, id, script, "evil.example");
    assert_ne!(refused.code, 0, "{server}: {refused}");
    assert!(!refused.stdout.contains("42"), "{server}: {refused}");
    let told = run(world, id, script, server);
    assert_eq!((told.code, &*told.stdout), (0, "42\n"), "{server}: {told}");
}

fn package_managers_work(runtime: &str) {
    let Some(mut world) = World::with(runtime, POLICY, serve) else {
        return;
    };
    let authority = world.story.path().join("authority.pem");
    let authority = authority.to_str().unwrap().to_string();
    world.variables.push(("SSL_CERT_FILE", authority));
    let id = world.create("test");
    installs(&world, &id, PIP, "pypi.example");
    installs(&world, &id, APT, "deb.example");
    installs(&world, &id, GIT, "git.example");
    let decisions = world.decisions(&id);
    // All servers share one address: the gateway tells them apart by the first bytes.
    for rule in ["test.python", "test.debian", "test.git"] {
        let allowed = |one: &&Value| one["rule"] == rule && one["event"] == "request";
        assert!(
            decisions.iter().any(|one| allowed(&one)),
            "{rule}: {decisions:#?}"
        );
    }
    let evil = decisions.iter().filter(|one| one["name"] == "evil.example");
    let evil: Vec<&Value> = evil.collect();
    assert!(
        !evil.is_empty() && evil.iter().all(|one| one["allowed"] == false),
        "{evil:#?}"
    );
    assert_eq!(world.motu(&["rm", &id]).code, 0);
    let id = world.create_from(&world.programs("compilers"), "test");
    installs(&world, &id, NPM, "npm.example");
}

#[test]
fn package_managers_work_in_a_container() {
    package_managers_work("container");
}

#[test]
fn package_managers_work_in_gvisor() {
    package_managers_work("gvisor");
}

#[test]
fn package_managers_work_in_a_virtual_machine() {
    package_managers_work("qemu");
}

/// Creates an authority and a certificate for all names, and starts the servers.
fn serve(servers: &Child, place: &Path) -> Child {
    let names = NAMES.map(|name| format!("DNS:{name}")).join(",");
    let script = format!(
        "set -e; cd '{}'; curve='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'; \
         openssl req -x509 $curve -days 2 -subj /CN=Authority -keyout authority.key -out authority.pem; \
         openssl req $curve -subj /CN=servers.example -keyout servers.key -out servers.csr; \
         printf 'subjectAltName={names}' > names; \
         openssl x509 -req -in servers.csr -CA authority.pem -CAkey authority.key -CAcreateserial \
         -days 2 -extfile names -out servers.pem; cat servers.key >> servers.pem",
        place.display()
    );
    let made = motu_needs::command("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/packages/servers.py");
    let mut command = motu_testkit::network::inside(servers);
    command
        .arg("python3")
        .arg(script)
        .arg(motu_testkit::network::SERVERS);
    command
        .arg(place.join("servers.pem"))
        .arg(place)
        .args(NAMES);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    motu_testkit::network::wait_for_ready(&mut child);
    child
}
