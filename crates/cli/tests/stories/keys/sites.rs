//! Ports of sandboxes by their names.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::json;

/// Serves one page and a redirect, of busybox alone.
const SERVE: &str = r#"mkdir -p /tmp/www/cgi-bin && cd /tmp/www && echo inside > index.html
printf '#!/bin/sh\nprintf "Status: 302\\r\\nLocation: /next\\r\\nX-Host: $HTTP_X_FORWARDED_HOST\\r\\nX-Auth: $HTTP_AUTHORIZATION\\r\\nSet-Cookie: a=1; Domain=ports.test; Path=/\\r\\nClear-Site-Data: *\\r\\nAlt-Svc: h3\\r\\n\\r\\n"\n' > cgi-bin/go
chmod +x cgi-bin/go && exec httpd -f -p 127.0.0.1:8000 -h /tmp/www"#;

struct Site {
    host: Host,
    key: String,
}

impl Site {
    fn new() -> Site {
        let host = Host::new("domain = \"ports.test\"\n");
        let key = host.key(&["--project", "acme"]);
        let site = Site { host, key };
        let box_ = json!({"environment": "busybox", "sandbox_id": "box"});
        let made = site.host.call(&site.key, Ask::post("/v1/sandboxes", box_));
        assert_eq!(made.json["sandbox_id"], "acme--box", "{made}");
        let serve = json!({"command": ["sh", "-c", SERVE], "background": true, "no_timeout": true});
        let begun = Ask::post("/v1/sandboxes/box/exec", serve);
        let begun = site.host.call(&site.key, begun);
        assert!((200..300).contains(&begun.status), "{begun}");
        let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while site.page("/", &site.key).status != 200 {
            assert!(std::time::Instant::now() < late, "the server does not come");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        site
    }

    /// Asks as a browser whose user has typed the key.
    fn page(&self, path: &str, key: &str) -> Answer {
        let login = format!("me:{key}");
        self.at("8000-box.ports.test", path, &["--user", &login])
    }

    fn at(&self, name: &str, path: &str, more: &[&str]) -> Answer {
        let port = self.host.address.port();
        let resolve = format!("{name}:{port}:127.0.0.1");
        let more = [&["--resolve", &resolve], more].concat();
        self.host
            .ask_at(&format!("http://{name}:{port}"), &more, Ask::get(path))
    }
}

#[test]
fn a_port_has_a_name_and_asks_for_a_key() {
    let site = Site::new();
    let page = site.page("/", &site.key);
    assert_eq!(page.text, "inside\n", "{page}");
    // HTTP/2, which has the name in the address, and a token as programs send it.
    let bearer = format!("Authorization: Bearer {}", site.key);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let more = [version, "--header", &bearer];
        let page = site.at("8000-acme--box.ports.test", "/", &more);
        assert_eq!(page.text, "inside\n", "{version}: {page}");
    }
    let moved = site.page("/cgi-bin/go", &site.key);
    assert_eq!(
        (moved.status, moved.header("location")),
        (302, Some("/next"))
    );
    let name = format!("8000-box.ports.test:{}", site.host.address.port());
    assert_eq!(moved.header("x-host"), Some(&name[..]), "{moved}");
    assert_eq!(moved.header("x-auth").unwrap_or_default(), "", "{moved}");

    // What it answers is about its own port alone, whichever way one comes.
    assert_eq!(moved.header("set-cookie"), Some("a=1; Path=/"), "{moved}");
    let below = Ask::get("/v1/sandboxes/box/ports/8000/cgi-bin/go");
    let below = site.host.call(&site.key, below);
    let cookie = below.header("set-cookie");
    assert_eq!(cookie, Some("a=1; Path=/v1/sandboxes/box/ports/8000/"));
    let policy = below.header("content-security-policy").unwrap();
    assert!(policy.starts_with("sandbox ") && !policy.contains("same-origin"));
    for answer in [&moved, &below] {
        for name in ["clear-site-data", "alt-svc"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }

    // Without a key nothing is inside, not even addresses that the API answers to everybody.
    for path in ["/", "/healthz", "/v1/sandboxes"] {
        let nobody = site.at("8000-box.ports.test", path, &[]);
        assert_eq!(nobody.status, 401, "{path}: {nobody}");
        let asks = nobody.header("www-authenticate").unwrap();
        assert!(asks.starts_with("Basic "), "{asks}");
    }
    assert_eq!(site.page("/", "motu_wrong").status, 401);
    let other = site.host.key(&["--project", "beta"]);
    assert_eq!(site.page("/", &other).status, 404);
    // The address of the API below a port's name is a page of that port.
    assert_eq!(site.page("/v1/sandboxes", &site.key).status, 404);
    assert_eq!(site.page("/healthz", &site.key).status, 404);
}

#[test]
fn what_is_no_name_of_a_port_is_the_api_or_an_error() {
    let host = Host::new("domain = \"ports.test\"\n");
    let key = host.key(&["--project", "acme"]);
    let site = Site { host, key };
    let login = format!("me:{}", site.key);
    let bearer = format!("Authorization: Bearer {}", site.key);
    let listed = site.at("ports.test", "/v1/sandboxes", &["--header", &bearer]);
    assert_eq!(listed.status, 200, "{listed}");
    // A password is no key for the API: browsers would send it along with any page's requests.
    let login = ["--user", &login[..]];
    assert_eq!(site.at("ports.test", "/v1/sandboxes", &login).status, 401);
    for wrong in ["box.ports.test", "0-box.ports.test", "80-a.b.ports.test"] {
        let answer = site.at(wrong, "/", &login);
        assert_eq!(answer.status, 404, "{wrong}: {answer}");
    }
    let nothing = site.at("8000-gone.ports.test", "/", &login);
    assert_eq!(nothing.status, 404, "{nothing}");
}
