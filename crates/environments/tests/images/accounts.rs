//! Pulls for callers with keys: where they may lead, and with whose logins.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use motu_environments::{Account, EnvironmentError, EnvironmentInfo, Progress, RegistryOptions};

use crate::{
    Home,
    fake::{Fake, respond},
    options,
    writer::{Image, Layer, digest, gzip, write},
};

fn image() -> Image {
    let layer = Layer::new().dir("etc").file("etc/motd", "hello");
    Image::new(vec![gzip(layer)])
}

fn allowing(fakes: &[&Fake]) -> RegistryOptions {
    let mut options = options();
    let names = fakes.iter().map(|fake| fake.address.to_string());
    options.allowed = names.map(|name| name.parse().unwrap()).collect();
    options
}

async fn pull(home: &Home, name: &str) -> Result<EnvironmentInfo, EnvironmentError> {
    let acme = Account::Other("acme".to_owned());
    let pulled = home
        .environments
        .pull_for(acme, None, name, Progress::none());
    pulled.await
}

#[track_caller]
fn is_out_of_reach(result: Result<EnvironmentInfo, EnvironmentError>) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::OutOfReach { .. }),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("[registries]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_nobody_speak_to_this_host() {
    let fake = Fake::serve(image(), |_, _| false);
    let home = Home::new();
    let port = fake.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "[::1]",
        "0.0.0.0",
    ] {
        let name = format!("{host}:{port}/a/b:v1");
        is_out_of_reach(pull(&home, &name).await);
    }
    // The port is named as well.
    let beside = Fake::serve(image(), |_, _| false);
    is_out_of_reach(pull(&Home::with(allowing(&[&beside])), &fake.name()).await);
    assert_eq!(fake.asked().len() + beside.asked().len(), 0);
    home.assert_empty().await;
    // Whoever runs the host may, and so may others where they are allowed by name.
    home.pull(&fake.name()).await.unwrap();
    let home = Home::with(allowing(&[&fake]));
    pull(&home, &fake.name()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_token_services_are_judged_like_registries() {
    let inside = Fake::serve(image(), |_, _| false);
    let (image, there) = (image(), inside.address);
    let layer = digest(&image.layers[0].bytes);
    let moving = Fake::serve(image.clone(), move |asked, stream| {
        let moves = asked.path.ends_with(&layer);
        if moves {
            let location = format!("location: http://{there}{}\r\n", asked.path);
            respond(stream, asked, "307 Temporary Redirect", &location, b"");
        }
        moves
    });
    let asking = Fake::serve(image, move |asked, stream| {
        let challenge = format!("www-authenticate: Bearer realm=\"http://{there}/t\"\r\n");
        respond(stream, asked, "401 Unauthorized", &challenge, b"");
        true
    });
    for fake in [&moving, &asking] {
        let home = Home::with(allowing(&[fake]));
        is_out_of_reach(pull(&home, &fake.name()).await);
        assert!(!fake.asked().is_empty());
        home.assert_empty().await;
    }
    assert_eq!(inside.asked().len(), 0);
    pull(&Home::with(allowing(&[&moving, &inside])), &moving.name())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_its_own_logins_and_those_that_are_lent() {
    let fake = Fake::serve(image(), |asked, stream| {
        let known = asked.header("authorization").is_some();
        if !known {
            let challenge = "www-authenticate: Basic realm=\"x\"\r\n";
            respond(stream, asked, "401 Unauthorized", challenge, b"");
        }
        !known
    });
    let dir = tempfile::tempdir().unwrap();
    let login = |name: &str| {
        let auth = STANDARD.encode(format!("{name}:secret"));
        let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, fake.address);
        write(dir.path(), name, text.as_bytes())
    };
    let mut all = allowing(&[&fake]);
    all.docker_config = Some(login("operator"));
    let error = pull(&Home::with(all.clone()), &fake.name()).await;
    assert!(
        matches!(error, Err(EnvironmentError::AuthRequired { .. })),
        "{error:?}"
    );
    assert!(
        fake.asked()
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );

    let sent = || {
        let last = fake.asked().pop().unwrap();
        let sent = last.header("authorization").unwrap().to_owned();
        let sent = STANDARD
            .decode(sent.strip_prefix("Basic ").unwrap())
            .unwrap();
        String::from_utf8(sent).unwrap()
    };
    let mut lent = all.clone();
    lent.lent = lent.allowed.clone();
    pull(&Home::with(lent.clone()), &fake.name()).await.unwrap();
    assert_eq!(sent(), "operator:secret");
    lent.logins.insert("acme".to_owned(), login("acme"));
    lent.logins.insert("beta".to_owned(), login("beta"));
    pull(&Home::with(lent), &fake.name()).await.unwrap();
    assert_eq!(sent(), "acme:secret");
}
