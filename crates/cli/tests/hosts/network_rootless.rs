//! A network for the sandboxes of an ordinary user: no part of it runs as root.

use motu_testkit::network::SERVERS;
use motu_testkit::network::user::User;

#[test]
fn an_ordinary_users_sandbox_reaches_what_its_policy_names() {
    let Some(user) = User::new() else {
        return;
    };
    let image = format!("tar:{}", user.own.join("busybox.tar").display());
    let made = [
        "create",
        &image,
        "--runtime",
        "container",
        "--policy",
        "test",
        "--id",
        "rootless",
    ];
    let made = user.motu(&made);
    assert_eq!(made.code, 0, "{made}");
    let good = user.fetch("rootless", "good.example", SERVERS);
    assert_eq!(
        (good.code, &*good.stdout),
        (0, "page of good.example\n"),
        "{good}"
    );
    // Not another name of the same server, its address, the daemon's host, or an address that no
    // policy opens.
    for (name, address) in [
        ("other.example", SERVERS),
        (SERVERS, SERVERS),
        ("daemon.example", "11.22.33.1"),
        ("here.example", "127.0.0.1"),
        ("cloud.example", "169.254.169.254"),
    ] {
        let closed = user.fetch("rootless", name, address);
        assert_ne!(closed.code, 0, "{name}: {closed}");
    }
    let log = user.motu(&["policy", "log", "rootless"]).stdout;
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let said = |name: &str, allowed: bool| {
        let of = |line: &&serde_json::Value| line["name"] == name && line["allowed"] == allowed;
        assert!(lines.iter().any(|line| of(&line)), "{name}: {log}");
    };
    said("good.example", true);
    said("other.example", false);
    // After the daemon was killed, the network is as before.
    let listed = user.motu(&["version", "--json"]).stdout;
    let said: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let pid = said["daemon"]["pid"]
        .as_i64()
        .or(said["pid"].as_i64())
        .unwrap();
    let process = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let again = user.fetch("rootless", "good.example", SERVERS);
    assert_eq!(again.code, 0, "{again}");
    let open = user.motu(&["policy", "set", "rootless", "none"]);
    assert_eq!(open.code, 0, "{open}");
    let closed = user.fetch("rootless", "good.example", SERVERS);
    assert_ne!(closed.code, 0, "{closed}");
}
