//! What a key makes the daemon fetch: from where, and with whose login.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use motu_testkit::host::{Ask, Host};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A registry on this host that wants a login and then has nothing. It remembers what it was sent.
struct Registry {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut seen = seen.lock().unwrap();
                seen.push(answer(stream));
            }
        });
        Registry { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn image(&self) -> String {
        format!("{}/team/tools:1", self.address)
    }
}

fn answer(mut stream: TcpStream) -> String {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let lines = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty());
    let request = lines.collect::<Vec<_>>().join("\n").to_ascii_lowercase();
    let status = match request.contains("authorization:") {
        true => "404 Not Found",
        false => "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // Whoever asked may have left.
    let _ = stream.write_all(answer.as_bytes());
    request
}

#[test]
fn a_key_makes_the_daemon_speak_to_nobody_beside_it() {
    let (inside, named) = (Registry::start(), Registry::start());
    let host = Host::unstarted();
    let allowed = format!("[registries]\nallow = [\"{}\"]\n", named.address);
    host.listen(&allowed, "");
    // The operator is logged in at both.
    let login = STANDARD.encode("operator:secret");
    let login = json!({"auths": {
        inside.address.to_string(): {"auth": login}, named.address.to_string(): {"auth": login},
    }});
    let docker = host.story.path().join(".docker");
    std::fs::create_dir(&docker).unwrap();
    std::fs::write(docker.join("config.json"), login.to_string()).unwrap();
    host.start();
    let key = host.key(&["--project", "acme"]);
    let pull = |image: &str| {
        let name = image.replace('/', "%2F");
        Ask::post(&format!("/v1/environments/{name}/pull"), json!({}))
    };
    let port = inside.address.port();
    for registry in ["127.0.0.1", "localhost", "127.1", "0.0.0.0"] {
        let image = format!("{registry}:{port}/team/tools:1");
        let built = json!({"from": image, "run": ["true"], "name": "made:1"});
        let copied = format!("FROM scratch\nCOPY --from={image} /a /a\n");
        let templated = json!({"environment": image, "setup": ["true"]});
        for ask in [
            pull(&image),
            Ask::post("/v1/environments/build", built),
            Ask::post(
                "/v1/environments/build",
                json!({"dockerfile": copied, "name": "made:1"}),
            ),
            Ask::new("PUT", "/v1/templates/made").body(templated),
        ] {
            let answer = host.call(&key, ask);
            assert!(answer.text.contains("\"denied\""), "{image}: {answer}");
            assert!(answer.text.contains("[registries]"), "{image}: {answer}");
        }
    }
    assert_eq!(inside.asked(), [""; 0]);
    // One that is named is asked, and not with the operator's login.
    let answer = host.call(&key, pull(&named.image()));
    assert!(answer.text.contains("log in"), "{answer}");
    let asked = named.asked();
    assert!(!asked.is_empty() && asked.iter().all(|one| !one.contains("authorization")));
    // The operator has what they had.
    let told = host.story.motu(&["env", "pull", &inside.image()]);
    assert_eq!(told.code, 104, "{told}");
    assert!(
        inside
            .asked()
            .iter()
            .any(|one| one.contains("authorization: basic"))
    );
}
