//! What machines with a network can reach, on every runtime, with a real daemon, gateways and
//! servers, in network namespaces of the test.

use motu_testkit::network::World;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a decision has all these values.
fn is(decision: &Value, wanted: &[(&str, Value)]) -> bool {
    wanted.iter().all(|(name, value)| decision[*name] == *value)
}

fn has(decisions: &[Value], wanted: &[(&str, Value)]) {
    let found = decisions.iter().any(|decision| is(decision, wanted));
    assert!(found, "{wanted:?} is not among {decisions:#?}");
}

/// A machine reaches what its policy names, and nothing else, however it is addressed.
fn reaches_what_its_policy_names(world: &World) {
    let id = world.create("test");
    let page = world.curl(&id, "http://good.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of good.example\n"),
        "{page}"
    );
    let page = world.curl(&id, "https://good.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of good.example\n"),
        "{page}"
    );
    for destination in [
        // A name that is not in the policy, although it resolves to the same server.
        "http://other.example/",
        "http://nowhere.example/",
        // The server's address without a name, in several spellings.
        "http://11.22.33.44/",
        "http://185999660/",
        "http://013.026.041.054/",
        "http://[::ffff:11.22.33.44]/",
        // Another host behind an allowed name: in the request, and in the TLS hello.
        "-H 'Host: other.example' http://good.example/",
        "--connect-to other.example:443:good.example:443 https://other.example/",
        // Allowed names that resolve to forbidden addresses.
        "http://inside.example/",
        "http://here.example/",
        "http://cloud.example/",
        "http://daemon.example/",
        // Cloud metadata, the daemon's host, this machine's gateway, another port.
        "http://169.254.169.254/latest/meta-data/",
        "http://11.22.33.1/",
        "http://10.107.0.1:80/",
        "http://good.example:8080/",
        // A resolver chosen by the program.
        "--dns-servers 11.22.33.44 http://other.example/",
    ] {
        let refused = world.curl(&id, destination);
        assert_ne!(refused.code, 0, "{destination}: {refused}");
        assert!(
            !refused.stdout.contains("page of"),
            "{destination}: {refused}"
        );
    }
    let decisions = world.decisions(&id);
    has(
        &decisions,
        &[
            ("event", "dns".into()),
            ("allowed", true.into()),
            ("name", "good.example".into()),
            ("rule", "test.good".into()),
        ],
    );
    has(
        &decisions,
        &[
            ("event", "dns".into()),
            ("allowed", false.into()),
            ("name", "other.example".into()),
            ("reason", "host_not_allowed".into()),
        ],
    );
    has(
        &decisions,
        &[
            ("event", "connect".into()),
            ("allowed", false.into()),
            ("address", "169.254.169.254".into()),
            ("reason", "metadata_address".into()),
        ],
    );
    has(
        &decisions,
        &[
            ("event", "dns".into()),
            ("allowed", false.into()),
            ("name", "inside.example".into()),
            ("reason", "private_address".into()),
        ],
    );
    has(
        &decisions,
        &[
            ("allowed", false.into()),
            ("reason", "name_mismatch".into()),
        ],
    );
    let shown: Value = serde_json::from_str(&world.motu(&["ps", "--json"]).stdout).unwrap();
    assert_eq!(shown["sandboxes"][0]["network"], "egress");
    assert_eq!(shown["sandboxes"][0]["policy"]["name"], "test");
    let gone = world.motu(&["rm", &id]);
    assert_eq!(gone.code, 0, "{gone}");
    // Decisions can be read after the machine is destroyed.
    assert_eq!(world.decisions(&id).len(), decisions.len());
}

#[test]
fn a_container_reaches_what_its_policy_names() {
    if let Some(world) = World::new("container") {
        reaches_what_its_policy_names(&world);
    }
}

#[test]
fn a_container_of_docker_reaches_what_its_policy_names() {
    // Declared before the world, because the world's machines run in it.
    let engine = match motu_testkit::engine::Engine::start(motu_testkit::engine::Kind::Docker) {
        Ok(engine) => engine,
        Err(reason) => return motu_needs::skip(&reason),
    };
    if let Some(world) = World::new("docker") {
        let socket = engine.socket();
        let settings = format!("runtime = \"docker\"\n[docker]\nsocket = {socket:?}\n");
        world.story.configure(&settings);
        reaches_what_its_policy_names(&world);
    }
}

/// An address that the host gets while a machine runs is the host's as well.
#[test]
fn an_address_that_the_host_gets_later_is_closed_at_once() {
    let Some(world) = World::new("container") else {
        return;
    };
    let id = world.create("test");
    let page = world.curl(&id, "http://six.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of six.example\n"),
        "{page}"
    );
    let address = "2600:22:33::44/128";
    let added = world
        .at_daemon("ip")
        .args(["addr", "add", address, "dev", "lo", "nodad"])
        .output()
        .unwrap();
    assert!(added.status.success(), "{added:?}");
    let refused = world.curl(&id, "http://six.example/");
    assert_ne!(refused.code, 0, "{refused}");
    // The address is still known inside, and of no use.
    let known = world.curl(
        &id,
        "--resolve six.example:80:[2600:22:33::44] http://six.example/",
    );
    assert_ne!(known.code, 0, "{known}");
    let decisions = world.decisions(&id);
    for event in ["dns", "connect"] {
        has(
            &decisions,
            &[("event", event.into()), ("reason", "host_address".into())],
        );
    }
}

/// Reads the decisions of a machine as events with `curl` until one contains `word`; returns all
/// lines.
fn events_until(world: &World, id: &str, last: Option<&str>, word: &str) -> Vec<String> {
    let mut curl = motu_needs::command("curl");
    let socket = world.story.home().join("daemon.sock");
    curl.args(["-sSN", "-m", "60", "-H", "Accept: text/event-stream"]);
    curl.arg("--unix-socket").arg(socket);
    if let Some(last) = last {
        curl.arg("-H").arg(format!("Last-Event-ID: {last}"));
    }
    curl.arg(format!("http://motu/v1/sandboxes/{id}/decisions"));
    let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(curl.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().is_some_and(|line| line.contains(word)) {
            break;
        }
    }
    curl.kill().unwrap();
    curl.wait().unwrap();
    assert!(
        lines.iter().any(|line| line.contains(word)),
        "{word}: {lines:#?}"
    );
    lines
}

/// The id of the last event.
fn last_id(lines: &[String]) -> String {
    let id = lines
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix("id: "));
    id.unwrap().to_string()
}

#[test]
fn decisions_are_events_that_go_on_where_a_client_left() {
    let Some(world) = World::new("container") else {
        return;
    };
    let id = world.create("test");
    assert_eq!(world.curl(&id, "http://good.example/").code, 0);
    let first = events_until(&world, &id, None, "good.example");
    assert!(first[0].starts_with("id: "), "{first:#?}");
    assert_ne!(world.curl(&id, "http://other.example/").code, 0);
    let all = events_until(&world, &id, Some("0"), "other.example");
    assert!(all.starts_with(&first), "{all:#?}");
    // Every event once, starting with the next one.
    let rest = events_until(&world, &id, Some(&last_id(&first)), "other.example");
    let told: Vec<String> = [&first[..], &[String::new()], &rest[..]].concat();
    assert_eq!(told, all);
    // An event that occurs while a client listens.
    let later = std::thread::scope(|scope| {
        let listening =
            scope.spawn(|| events_until(&world, &id, Some(&last_id(&all)), "later.example"));
        assert_ne!(world.curl(&id, "http://later.example/").code, 0);
        listening.join().unwrap()
    });
    assert!(
        !later.iter().any(|line| line.contains("other.example")),
        "{later:#?}"
    );
}

#[test]
fn decisions_are_a_resource_that_mcp_clients_subscribe_to() {
    let Some(world) = World::new("container") else {
        return;
    };
    let id = world.create("test");
    assert_eq!(world.curl(&id, "http://good.example/").code, 0);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for generation in ["python-old", "python-new"] {
        let python = here.join(format!("../../target/clients/{generation}/bin/python"));
        if !python.exists() {
            motu_needs::skip("the MCP clients are not installed; run tools/setup test");
            return;
        }
        let ours = world.story.command(&[]);
        let mut client = Command::new(python);
        client.arg(here.join("tests/stories/mcp_clients/stories.py"));
        client.args([motu_testkit::program(), "decisions", &id]);
        client.env_clear().current_dir(world.story.path());
        for (name, value) in ours.get_envs() {
            client.env(name, value.unwrap_or_default());
        }
        let told = client.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{generation}: {said}");
    }
}

#[test]
fn gvisor_reaches_what_its_policy_names() {
    if let Some(world) = World::new("gvisor") {
        reaches_what_its_policy_names(&world);
    }
}

/// Sends one datagram, and prints the reply or why there is none.
const DATAGRAM: &str = r#"
import socket, sys
family, kind, _, _, where = socket.getaddrinfo(HOST, PORT, type=socket.SOCK_DGRAM)[0]
one = socket.socket(family, kind)
one.settimeout(5)
try:
    one.connect(where)
    one.send(b"hello")
    print(one.recv(100).decode())
except OSError as error:
    print("nothing:", error)
"#;

/// UDP, ICMP echo and IPv6: only what the policy names.
fn reaches_more_than_tcp_only_by_rule(world: &World) {
    let id = world.create("test");
    let datagram = |host: &str, port: u16| {
        let script = DATAGRAM.replace("HOST", &format!("{host:?}"));
        world.python(&id, &script.replace("PORT", &port.to_string()))
    };
    let told = datagram("time.example", 123);
    assert_eq!(told.stdout, "echo of hello\n", "{told}");
    // QUIC, an address without its name, another port, metadata, this host, multicast on this link.
    for (host, port) in [
        ("good.example", 443),
        ("time.example", 443),
        ("11.22.33.45", 123),
        ("169.254.169.254", 123),
        ("11.22.33.1", 123),
        ("fd00:ec2::254", 123),
        ("2600:22:33::44", 443),
        ("::ffff:169.254.169.254", 123),
        ("ff02::fb%eth0", 5353),
        ("224.0.0.251", 5353),
    ] {
        let told = datagram(host, port);
        assert!(!told.stdout.contains("echo of"), "{host}:{port}: {told}");
    }
    for page in ["http://six.example/", "http://both.example/"] {
        let told = world.curl(&id, &format!("-6 {page}"));
        assert!(told.code == 0 && told.stdout.contains("page of"), "{told}");
    }
    for destination in [
        // A name that is allowed for IPv4 only, and the address without a name.
        "-6 http://good.example/",
        "http://[2600:22:33::44]/",
        // Another host behind an allowed one.
        "-6 -H 'Host: other.example' http://six.example/",
        // Names that resolve to metadata, this machine, this link, the daemon's host.
        "http://tricks.example/",
        "http://[fd00:ec2::254]/",
        "http://[2600:22:33::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[fd6d:7475::1]/",
    ] {
        let refused = world.curl(&id, destination);
        assert_ne!(refused.code, 0, "{destination}: {refused}");
        assert!(
            !refused.stdout.contains("page of"),
            "{destination}: {refused}"
        );
    }
    let echo = |host: &str| {
        let ping = ["ping", "-c", "1", "-W", "20", host];
        world.motu(&[&["exec", &id, "--timeout-seconds", "60", "--"][..], &ping].concat())
    };
    let told = echo("11.22.33.44");
    assert_eq!(told.code, 0, "{told}");
    let decisions = world.decisions(&id);
    for wanted in [
        &[("protocol", "udp".into()), ("rule", "test.time".into())][..],
        &[("protocol", "icmp".into()), ("rule", "test.echo".into())],
        &[
            ("address", "2600:22:33::44".into()),
            ("rule", "test.six".into()),
        ],
        &[
            ("port", 443.into()),
            ("protocol", "udp".into()),
            ("allowed", false.into()),
        ],
        &[
            ("address", "fd00:ec2::254".into()),
            ("reason", "metadata_address".into()),
        ],
        &[
            ("name", "tricks.example".into()),
            ("event", "dns".into()),
            ("allowed", false.into()),
        ],
    ] {
        has(&decisions, wanted);
    }
    let gone = world.motu(&["rm", &id]);
    assert_eq!(gone.code, 0, "{gone}");
}

#[test]
fn a_container_reaches_more_than_tcp_only_by_rule() {
    if let Some(world) = World::new("container") {
        reaches_more_than_tcp_only_by_rule(&world);
    }
}

#[test]
fn gvisor_reaches_more_than_tcp_only_by_rule() {
    if let Some(world) = World::new("gvisor") {
        reaches_more_than_tcp_only_by_rule(&world);
    }
}

/// A policy applies throughout a machine's life: after a change while it runs, after the daemon was
/// killed, after a stop and a start, and without its gateway.
fn holds_all_its_life(world: &World) {
    let made = world.motu(&[
        "workspace",
        "create",
        "debian:12",
        "--policy",
        "test",
        "--id-only",
    ]);
    assert_eq!(made.code, 0, "{made}");
    let id = made.stdout.trim();
    let good = |when: &str| {
        let page = world.curl(id, "http://good.example/");
        assert_eq!(
            (page.code, &*page.stdout),
            (0, "page of good.example\n"),
            "{when}: {page}"
        );
        let other = world.curl(id, "http://other.example/");
        assert_ne!(other.code, 0, "{when}: {other}");
    };
    let nothing = |when: &str| {
        let page = world.curl(id, "http://good.example/");
        assert_ne!(page.code, 0, "{when}: {page}");
    };
    good("at first");
    let set = world.motu(&["policy", "set", id, "none"]);
    assert_eq!(set.code, 0, "{set}");
    nothing("with another policy");
    let set = world.motu(&["policy", "set", id, "test"]);
    assert_eq!(set.code, 0, "{set}");
    good("with the first one again");
    kill_daemon(world);
    good("after the daemon was killed");
    for step in ["stop", "start"] {
        let done = world.motu(&["workspace", step, id]);
        assert_eq!(done.code, 0, "{done}");
    }
    good("after a stop and a start");
    let reset = world.motu(&["workspace", "reset", id]);
    assert_eq!(reset.code, 0, "{reset}");
    good("after a reset");
    kill_gateway(world, id);
    nothing("without its gateway");
    let deleted = world.motu(&["workspace", "delete", id]);
    assert_eq!(deleted.code, 0, "{deleted}");
}

fn kill_daemon(world: &World) {
    let said: Value = serde_json::from_str(&world.motu(&["version", "--json"]).stdout).unwrap();
    kill(
        said["daemon"]["pid"]
            .as_i64()
            .or(said["pid"].as_i64())
            .unwrap(),
    );
}

fn kill_gateway(world: &World, id: &str) {
    let record = world
        .story
        .home()
        .join("run/egress")
        .join(id)
        .join("gateway.json");
    let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    kill(record["process"]["pid"].as_i64().unwrap());
}

/// Kills a process of ours and waits until it has ended.
fn kill(pid: i64) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pid = Pid::from_raw(pid as i32).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&process, Signal::KILL).unwrap();
    let mut watched = [rustix::event::PollFd::new(
        &process,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut watched, None).unwrap();
}

#[test]
fn a_policy_holds_all_the_life_of_a_container() {
    if let Some(world) = World::new("container") {
        holds_all_its_life(&world);
    }
}

#[test]
fn a_policy_holds_all_the_life_of_gvisor() {
    if let Some(world) = World::new("gvisor") {
        holds_all_its_life(&world);
    }
}

/// One world for all checks, because building the files for virtual machines takes long.
#[test]
fn a_virtual_machine_has_a_network_like_others() {
    let Some(world) = World::new("qemu") else {
        return;
    };
    reaches_what_its_policy_names(&world);
    reaches_more_than_tcp_only_by_rule(&world);
    holds_all_its_life(&world);
    a_copy_has_its_own(&world);
}

/// A copy of a machine has its own gateway, rules and log.
fn a_copy_has_its_own(world: &World) {
    let id = world.create("test");
    assert_eq!(world.curl(&id, "http://good.example/").code, 0);
    let forked = world.motu(&["fork", &id, "--json"]);
    assert_eq!(forked.code, 0, "{forked}");
    let forked: Value = serde_json::from_str(&forked.stdout).unwrap();
    let copy = forked["sandboxes"][0]["sandbox_id"].as_str().unwrap();
    let page = world.curl(copy, "http://good.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of good.example\n"),
        "{page}"
    );
    assert_ne!(world.curl(copy, "http://other.example/").code, 0);
    let set = world.motu(&["policy", "set", copy, "none"]);
    assert_eq!(set.code, 0, "{set}");
    assert_ne!(world.curl(copy, "http://good.example/").code, 0);
    assert_eq!(
        world.curl(&id, "http://good.example/").code,
        0,
        "the source keeps its own"
    );
    has(
        &world.decisions(copy),
        &[("name", "other.example".into()), ("allowed", false.into())],
    );
    assert!(
        !world
            .decisions(&id)
            .iter()
            .any(|one| one["name"] == "other.example")
    );
}

/// The preset of `--network`: public addresses, and nothing of this host or its neighbours.
#[test]
fn the_public_internet_is_public_alone() {
    let Some(world) = World::new("container") else {
        return;
    };
    let run =
        |script: &str| world.motu(&["run", "debian:12", "--network", "--", "sh", "-c", script]);
    let page = run("curl -sS -m 20 http://other.example/");
    assert_eq!(
        (page.code, &*page.stdout),
        (0, "page of other.example\n"),
        "{page}"
    );
    for host in [
        "11.22.33.1",
        "10.107.0.1",
        "127.0.0.1",
        "inside.example",
        "cloud.example",
    ] {
        let refused = run(&format!("curl -sS -m 20 http://{host}/"));
        assert_ne!(refused.code, 0, "{host}: {refused}");
    }
    let off = world.motu(&["run", "debian:12", "--", "cat", "/proc/net/dev"]);
    assert!(!off.stdout.contains("eth0"), "{off}");
}
