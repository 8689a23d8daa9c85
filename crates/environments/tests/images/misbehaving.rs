//! Registries that stall, lie, redirect, refuse and break off.

use std::{
    io::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use motu_environments::EnvironmentError;

use crate::{
    Home,
    fake::{Fake, honest, respond},
    options, text,
    writer::{Image, Layer, digest, gzip, plain, write},
};

fn image() -> Image {
    Image::new(vec![gzip(
        Layer::new().dir("etc").file("etc/motd", "hello"),
    )])
}

/// One layer that does not fit into one piece of a stream.
fn large() -> Image {
    let noise: Vec<u8> = (0..1_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    Image::new(vec![plain(Layer::new().bytes("noise", &noise))])
}

fn layer_of(image: &Image) -> String {
    digest(&image.layers[0].bytes)
}

/// Longer than every timeout of these tests.
fn stall() {
    thread::sleep(Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_registry_is_pulled_from_once() {
    let fake = Fake::serve(image(), |_, _| false);
    let home = Home::new();
    let info = home.pull(&fake.name()).await.unwrap();
    assert!(info.installed);
    let image = info.image.unwrap();
    assert_eq!(image.reference, fake.name());
    assert_eq!(image.layers.len(), 1);
    assert_eq!(
        text(home.root(&fake.name()).await.join("etc/motd")),
        "hello"
    );
    let before = fake.asked().len();
    home.pull(&fake.name()).await.unwrap();
    let after = fake.asked();
    assert_eq!(after.len(), before + 1, "{after:?}");
    assert_eq!(after.last().unwrap().method, "HEAD");
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_a_pull() {
    let fake = Fake::start(|_, _| stall());
    let home = Home::new();
    let started = Instant::now();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Stalled { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_stalls_goes_on_in_the_next_pull() {
    let image = large();
    let (layer, bytes) = (layer_of(&image), image.layers[0].bytes.clone());
    let times = AtomicUsize::new(0);
    let fake = Fake::serve(image, move |asked, stream| {
        let first = asked.path.ends_with(&layer) && times.fetch_add(1, Ordering::SeqCst) == 0;
        if first {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&bytes[..1_000_000]).unwrap();
            stall();
        }
        first
    });
    let home = Home::new();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Stalled { .. }), "{error}");
    home.assert_empty().await;
    assert_eq!(home.cached("partial").len(), 1);
    home.pull(&fake.name()).await.unwrap();
    let last = fake.asked().pop().unwrap();
    assert_eq!(last.from(), Some(1_000_000), "{last:?}");
    assert_eq!(home.cached("partial").len(), 0);
    home.environments.verify(&fake.name()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_made_again() {
    let image = large();
    let (layer, bytes) = (layer_of(&image), image.layers[0].bytes.clone());
    // Breaks off three times; once it also ignores the requested range.
    let times = AtomicUsize::new(0);
    let fake = Fake::serve(image, move |asked, stream| {
        let time = match asked.path.ends_with(&layer) {
            true => times.fetch_add(1, Ordering::SeqCst),
            false => return false,
        };
        let from = match time {
            0 | 1 => 0,
            2 => asked.from().unwrap(),
            _ => return false,
        };
        let range = format!("content-range: bytes {from}-{0}/{0}\r\n", bytes.len());
        let status = ["200 OK", "200 OK", "206 Partial Content"][time];
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{range}\r\n",
            bytes.len() - from
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&bytes[from..from + 500_000]).unwrap();
        true
    });
    let home = Home::new();
    home.pull(&fake.name()).await.unwrap();
    let ranges: Vec<_> = fake
        .asked()
        .iter()
        .filter_map(|asked| asked.from())
        .collect();
    assert_eq!(ranges, [500_000, 500_000, 1_000_000]);
    home.environments.verify(&fake.name()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_always_breaks_off_is_given_up() {
    let image = large();
    let layer = layer_of(&image);
    let fake = Fake::serve(image, move |asked, stream| {
        let is_layer = asked.path.ends_with(&layer);
        if is_layer {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4001536\r\n\r\n");
        }
        is_layer
    });
    let home = Home::new();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Unreachable { .. }),
        "{error}"
    );
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_contents_are_not_kept() {
    let image = image();
    let layer = layer_of(&image);
    let size = image.layers[0].bytes.len();
    let fake = Fake::serve(image, move |asked, stream| {
        let is_layer = asked.path.ends_with(&layer);
        if is_layer {
            respond(stream, asked, "200 OK", "", &vec![7; size]);
        }
        is_layer
    });
    let home = Home::new();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::DigestMismatch { .. }),
        "{error}"
    );
    home.assert_empty().await;
    assert!(home.cached("blobs").is_empty() && home.cached("partial").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_longer_than_announced_is_refused() {
    let image = image();
    let layer = layer_of(&image);
    let fake = Fake::serve(image, move |asked, stream| {
        let is_layer = asked.path.ends_with(&layer);
        if is_layer {
            respond(stream, asked, "200 OK", "", &[7; 100_000]);
        }
        is_layer
    });
    let home = Home::new();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Malformed { .. }),
        "{error}"
    );
    assert!(home.cached("partial").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_in_documents_are_found() {
    let home = Home::new();
    // A manifest other than the pinned one.
    let fake = Fake::serve(image(), |_, _| false);
    let pinned = format!("{}/a/b@sha256:{}", fake.address, "0".repeat(64));
    let error = home.pull(&pinned).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::DigestMismatch { .. }),
        "{error}"
    );
    // A layer whose uncompressed digest differs from the configuration.
    let mut lying = gzip(Layer::new().file("a", ""));
    lying.diff_id = digest(b"something else");
    let fake = Fake::serve(Image::new(vec![lying]), |_, _| false);
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::DigestMismatch { .. }),
        "{error}"
    );
    assert!(home.cached("blobs").is_empty());
    // An oversized manifest.
    let fake = Fake::start(|asked, stream| {
        respond(stream, asked, "200 OK", "", &vec![b' '; 5 << 20]);
    });
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::TooLarge { .. }),
        "{error}"
    );
    // No manifest at all.
    let fake = Fake::start(|asked, stream| respond(stream, asked, "200 OK", "", b"<html>"));
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Malformed { .. }),
        "{error}"
    );
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_end() {
    let home = Home::new();
    let circle = Fake::start(|asked, stream| {
        let next = if asked.path.ends_with("/x") {
            "/y"
        } else {
            "/x"
        };
        let location = format!("location: {next}\r\n");
        respond(stream, asked, "307 Temporary Redirect", &location, b"");
    });
    let error = home.pull(&circle.name()).await.unwrap_err().to_string();
    assert!(error.contains("in a circle"), "{error}");
    let endless = Fake::start(|asked, stream| {
        let location = format!("location: {}x\r\n", asked.path);
        respond(stream, asked, "302 Found", &location, b"");
    });
    let error = home.pull(&endless.name()).await.unwrap_err().to_string();
    assert!(error.contains("on too often"), "{error}");
    let away = Fake::start(|asked, stream| {
        let location = "location: http://192.0.2.1/x\r\n";
        respond(stream, asked, "302 Found", location, b"");
    });
    let error = home.pull(&away.name()).await.unwrap_err().to_string();
    assert!(error.contains("plain HTTP"), "{error}");
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_registry_is_asked_again_but_not_for_ever() {
    let times = AtomicUsize::new(0);
    let fake = Fake::serve(image(), move |asked, stream| {
        let busy = times.fetch_add(1, Ordering::SeqCst) == 0;
        if busy {
            respond(
                stream,
                asked,
                "429 Too Many Requests",
                "retry-after: 1\r\n",
                b"",
            );
        }
        busy
    });
    let home = Home::new();
    home.pull(&fake.name()).await.unwrap();

    let fake = Fake::start(|asked, stream| {
        let message = br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
        let wait = "retry-after: 100000\r\n";
        respond(stream, asked, "429 Too Many Requests", wait, message);
    });
    let home = Home::new();
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Registry { status: 429, .. }),
        "{error}"
    );
    assert!(error.to_string().ends_with("slow down"), "{error}");
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said_so() {
    let home = Home::new();
    let fake = Fake::start(|asked, stream| {
        let message = br#"{"errors":[{"message":"manifest unknown"}]}"#;
        respond(stream, asked, "404 Not Found", "", message);
    });
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Registry { status: 404, .. }),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("spelling"));
    // Connection refused: the port was just released.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("{}/a:b", free.local_addr().unwrap());
    drop(free);
    let error = home.pull(&name).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Unreachable { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_are_used_and_stay_with_their_host() {
    let image = image();
    let layer = layer_of(&image);
    // The layer is on another host, which must not see the login.
    let store = Fake::serve(image.clone(), |_, _| false);
    let elsewhere = store.address;
    let expected = format!("Basic {}", STANDARD.encode("ann:secret"));
    let fake = Fake::serve(image, move |asked, stream| {
        if asked.path.starts_with("/token") {
            assert!(
                asked
                    .path
                    .contains("service=here&scope=repository:a/b:pull")
            );
            let login = asked.header("authorization") == Some(&expected);
            let status = if login { "200 OK" } else { "401 Unauthorized" };
            respond(stream, asked, status, "", br#"{"token":"t0k3n"}"#);
            return true;
        }
        if asked.header("authorization") != Some("Bearer t0k3n") {
            let challenge = format!(
                "www-authenticate: Bearer realm=\"http://{}/token\",service=\"here\"\r\n",
                asked.header("host").unwrap()
            );
            respond(stream, asked, "401 Unauthorized", &challenge, b"");
            return true;
        }
        if asked.path.ends_with(&layer) {
            let location = format!("location: http://{elsewhere}{}\r\n", asked.path);
            respond(stream, asked, "307 Temporary Redirect", &location, b"");
            return true;
        }
        false
    });
    let error = Home::new().pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::AuthRequired { .. }),
        "{error}"
    );
    let hint = error.hint().unwrap();
    assert!(
        hint.starts_with(&format!("docker login {}", fake.address)),
        "{hint}"
    );

    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        r#"{{"auths":{{"{}":{{"auth":"{}"}}}}}}"#,
        fake.address,
        STANDARD.encode("ann:secret")
    );
    let mut options = options();
    options.docker_config = Some(write(dir.path(), "config.json", config.as_bytes()));
    Home::with(options).pull(&fake.name()).await.unwrap();
    let there = store.asked();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].header("authorization"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pull_leaves_nothing_that_counts() {
    let image = image();
    let layer = layer_of(&image);
    let fake = Fake::serve(image.clone(), move |asked, stream| {
        if asked.path.ends_with(&layer) {
            thread::sleep(Duration::from_millis(300));
        }
        let _ = stream;
        false
    });
    let home = Home::new();
    let name = fake.name();
    let pull = home.pull(&name);
    assert!(
        tokio::time::timeout(Duration::from_millis(150), pull)
            .await
            .is_err()
    );
    // The pulling thread notices the cancellation shortly.
    tokio::time::sleep(Duration::from_millis(400)).await;
    home.assert_empty().await;
    home.pull(&fake.name()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_at_the_same_time_are_one_pull() {
    let image = image();
    let fake = Fake::serve(image.clone(), move |asked, stream| {
        if asked.is_blob() {
            thread::sleep(Duration::from_millis(100));
        }
        let _ = (&image, stream);
        false
    });
    let home = Home::new();
    let name = fake.name();
    let (a, b, c) = tokio::join!(home.pull(&name), home.pull(&name), home.pull(&name));
    assert_eq!(a.unwrap().digest, b.unwrap().digest);
    c.unwrap();
    assert_eq!(fake.blobs_asked(), 2, "one layer and one configuration");
    // Two names that share a layer download it once.
    let other = format!("{}/a/other:v1", fake.address);
    home.pull(&other).await.unwrap();
    assert_eq!(fake.blobs_asked(), 3, "one more configuration");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_leads_to_the_image_for_this_machine() {
    let image = image();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        _ => "arm64",
    };
    let entry = |os: &str, architecture: &str| {
        serde_json::json!({
            "digest": image.digest(), "size": image.manifest.len(),
            "platform": { "os": os, "architecture": architecture },
        })
    };
    let serve = |entries: serde_json::Value| {
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": entries }).to_string();
        let image = image.clone();
        Fake::start(move |asked, stream| match asked.path.ends_with("/v1") {
            true => respond(stream, asked, "200 OK", "", index.as_bytes()),
            false => honest(&image, asked, stream),
        })
    };
    let home = Home::new();
    let both = [entry("linux", "s390x"), entry("linux", architecture)];
    let fake = serve(both.as_slice().into());
    let info = home.pull(&fake.name()).await.unwrap();
    assert_eq!(info.image.unwrap().manifest_digest, Some(image.digest()));
    let fake = serve([entry("linux", "s390x")].as_slice().into());
    let error = home.pull(&fake.name()).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::NoPlatform { .. }),
        "{error}"
    );
}
