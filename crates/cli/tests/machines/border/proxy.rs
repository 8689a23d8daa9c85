//! A host behind a corporate proxy receives the value as well; the proxy does not.

use super::{FIRST, PORT, Sea, text};
use motu_testkit::network::{SERVERS, wait_for_ready};
use std::path::Path;
use std::process::{Child, Stdio};

const PROXY_PORT: &str = "3128";

/// A proxy process, killed at the end of the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn proxy(sea: &Sea, log: &Path) -> Proxy {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/border/proxy.py");
    let mut child = sea
        .world
        .at_servers("python3")
        .arg(script)
        .args([SERVERS, PROXY_PORT])
        .arg(log)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_ready(&mut child);
    Proxy(child)
}

#[test]
fn through_a_proxy_too_only_the_host_sees_the_value() {
    let Some(mut sea) = Sea::new("container") else {
        return;
    };
    let log = sea.world.story.path().join("proxy.log");
    let proxy = proxy(&sea, &log);
    let address = format!("http://{SERVERS}:{PROXY_PORT}");
    sea.world.variables.push(("HTTPS_PROXY", address));
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let id = sea.workspace(&["--secret-ref", "API_KEY=key"]);
    for flag in ["--http1.1", "--http2"] {
        let curl = format!("{flag} -H \"X-Key: $API_KEY\" https://good.example:{PORT}/proxy");
        let asked = sea.asked(&id, &curl);
        assert_eq!(text(&asked["headers"]["x-key"]), FIRST);
    }
    let other = sea.inside(&id, "curl -sS -m 60 https://nobody.example/");
    assert_ne!(other.code, 0, "{other}");
    let said = std::fs::read_to_string(&log).unwrap();
    let wanted = format!("CONNECT good.example:{PORT}\n");
    assert_eq!(said, wanted.repeat(2));
    drop(proxy);
}
