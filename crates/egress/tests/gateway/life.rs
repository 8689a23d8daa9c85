//! The start of a gateway, its confinement, and its end.

use crate::world::{
    GOOD, GOOD6, LONG, OTHER, Owner, PROGRAM, Setting, World, missing, proc, skip, start, wait,
};
use crate::{opaque, rules, world};
use motu_egress::gateway::control::{Answer, Request};
use motu_egress::gateway::{Frames, Standby, spawn};
use motu_egress::rules::Rules;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Whether the process has ended.
fn is_gone(pid: i32) -> Option<()> {
    let stat = std::fs::read_to_string(proc(pid, "stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    (state.is_empty() || state.starts_with(['Z', 'X'])).then_some(())
}

#[test]
fn it_is_confined() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    let status = std::fs::read_to_string(proc(world.gateway.pid, "status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':')
            .unwrap()
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(field("Uid"), "65534 65534 65534 65534");
    assert_eq!(field("Gid"), "65534 65534 65534 65534");
    assert_eq!(field("Groups"), "");
    assert_eq!(field("CapEff"), "0000000000000000");
    assert_eq!(field("CapPrm"), "0000000000000000");
    assert_eq!(field("CapBnd"), "0000000000000000");
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("Seccomp"), "2");
    assert_eq!(field("Threads"), "1");
    let limits = std::fs::read_to_string(proc(world.gateway.pid, "limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"));
    let resident = world.status().resident_bytes;
    assert!(resident > 0 && resident <= 8 << 20, "{resident}");
    // Pid and start time identify the same process.
    let stat = std::fs::read_to_string(proc(world.gateway.pid, "stat")).unwrap();
    let time = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(19)
        .unwrap();
    assert_eq!(time, world.gateway.start_time.to_string());
}

#[test]
fn it_ends_with_its_leash() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let mut held = motu_needs::command("sleep").arg("1000").spawn().unwrap();
    let pid = Pid::from_child(&held);
    let leash = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let world = World::leashed(rules(vec![opaque("*")]), leash);
    world.serve_echo(GOOD, 7);
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    held.kill().unwrap();
    held.wait().unwrap();
    assert!(wait(|| is_gone(world.gateway.pid)).is_some());
    world.decided(&[("event", "end".into()), ("reason", "stopped".into())]);
    // Nothing gets out any more: the device is gone with it.
    assert!(world.connect(GOOD, 7).is_err());
}

#[test]
fn it_stops_when_it_is_told_and_nothing_gets_out_when_it_is_killed() {
    let Some(first) = world(Rules::public()) else {
        return;
    };
    assert_eq!(first.ask(&Request::Stop), Answer::Done);
    assert!(wait(|| is_gone(first.gateway.pid)).is_some());
    let second = World::new(Rules::public());
    second.serve_echo(GOOD, 7);
    second.connect(GOOD, 7).unwrap();
    kill_process(Pid::from_raw(second.gateway.pid).unwrap(), Signal::KILL).unwrap();
    assert!(wait(|| is_gone(second.gateway.pid)).is_some());
    assert!(second.connect(GOOD, 7).is_err());
}

#[test]
fn a_request_that_is_not_understood_is_refused() {
    let Some(world) = world(Rules::public()) else {
        return;
    };
    let path = world.directory.path().join("control");
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(b"{\"replace\": {\"policy\": 1}}\n")
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"{\"refused\":\"");
    // The rules are unchanged.
    assert_eq!(world.status().policy, "public");
}

#[test]
fn a_sandbox_in_a_user_namespace_of_its_own() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let mut child = motu_needs::command("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            "echo up; read line",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let open = |name: &str| {
        let path = proc(child.id() as i32, &format!("ns/{name}"));
        OwnedFd::from(std::fs::File::open(path).unwrap())
    };
    let frames = Frames::Namespace {
        net: open("net"),
        user: Some(open("user")),
    };
    let directory = tempfile::tempdir().unwrap();
    let leash = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let started = spawn(
        Path::new(PROGRAM),
        &[],
        start(frames, Rules::none(), directory.path()),
        &leash,
    )
    .unwrap();
    let pid = child.id().to_string();
    let shown = motu_needs::command("nsenter")
        .args(["-t", &pid, "-n", "ip", "addr", "show", "eth0"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.contains("10.107.0.2/24") && text.contains("mtu 65520"),
        "{text}"
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(wait(|| is_gone(started.pid)).is_some());
}

#[test]
fn frames_may_come_over_a_socket() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_read_timeout(Some(LONG)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let leash = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    let start = start(
        Frames::Socket(theirs.into()),
        Rules::none(),
        directory.path(),
    );
    let started = spawn(Path::new(PROGRAM), &[], start, &leash).unwrap();
    // Who has 10.107.0.1?
    let mut asked = [0xff; 6].to_vec();
    asked.extend([
        2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 107, 0, 2,
    ]);
    asked.extend([0, 0, 0, 0, 0, 0, 10, 107, 0, 1]);
    ours.send(&asked).unwrap();
    let mut reply = [0; 100];
    let count = ours.recv(&mut reply).unwrap();
    assert_eq!(&reply[..6], &[2, 0, 0, 0, 0, 9], "to whoever asked");
    assert_eq!(&reply[22..28], &motu_egress::gateway::GATEWAY_MAC);
    assert_eq!(count, 42);
    kill_process(Pid::from_raw(started.pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn what_cannot_begin_says_why() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let leash = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    // Not a namespace.
    let net = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let frames = Frames::Namespace { net, user: None };
    let start = start(frames, Rules::none(), directory.path());
    let error = spawn(Path::new(PROGRAM), &[], start, &leash).unwrap_err();
    assert!(
        error.to_string().starts_with("the network device: "),
        "{error}"
    );
}

/// Bytes go out and come back over both families, and what is not allowed does not.
fn carries_frames(setting: Setting) {
    let known = rules(vec![opaque("11.22.33.44"), opaque("2600:22:33::44")]);
    let world = World::set(known, setting);
    let devices = world
        .sandbox
        .inside(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
    assert!(devices.unwrap().contains("motu0"), "there is no pair");
    world.serve_echo(GOOD, 7);
    world.serve_echo(GOOD6, 7);
    let sent: Vec<u8> = (0..4u32 << 20).map(|at| (at % 251) as u8).collect();
    for address in [IpAddr::from(GOOD), GOOD6.into()] {
        let mut stream = world.connect(address, 7).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn({
            let sent = sent.clone();
            move || writer.write_all(&sent).unwrap()
        });
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == sent, "{address}");
    }
    assert!(world.connect(OTHER, 7).is_err());
    world.decided(&[("reason", "host_not_allowed".into())]);
}

/// Where `/dev/net/tun` cannot be opened, a pair of devices takes the place of the TAP.
#[test]
fn without_a_tap_a_pair_of_devices_carries_the_frames() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    carries_frames(Setting {
        no_tap: true,
        ..Setting::default()
    });
}

/// A sandbox in an unprivileged user's namespace, with a gateway that never was root.
#[test]
fn an_ordinary_user_has_a_network_too() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let (owner, mut holder) = Owner::new();
    carries_frames(Setting {
        no_tap: true,
        owner: Some(owner),
        ..Setting::default()
    });
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn one_that_stands_by_becomes_a_gateway_when_it_is_told() {
    let mut standby = Standby::start(Path::new(PROGRAM), &[]).unwrap();
    assert!(standby.waits());
    let directory = tempfile::tempdir().unwrap();
    let (_ours, theirs) = UnixDatagram::pair().unwrap();
    let begin = start(
        Frames::Socket(theirs.into()),
        Rules::none(),
        directory.path(),
    );
    let pending = standby.begin(begin).unwrap();
    let gateway = pending.started;
    assert!(gateway.open().is_some());
    // The gateway was never leashed, and its starter is gone.
    drop(pending);
    assert!(wait(|| is_gone(gateway.pid)).is_some());
    // A dropped standby has ended when this returns.
    drop(Standby::start(Path::new(PROGRAM), &[]).unwrap());
}
