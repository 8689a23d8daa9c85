//! Verbs of environments, sandboxes and processes.

use super::*;
use motu_core::lists::{Reaped, SandboxList};
use motu_core::report::{ProgressEvent, ProgressSink, Prune, Pruned, TagAs};
use motu_core::sandbox::Keepalive;

#[tokio::test]
async fn environments_are_named_exactly() {
    let world = world();
    let it = &world.recorder;
    it.on(|call: verb::InspectEnvironment| Ok(answers::environment(&call.name)));
    for name in ["debian:12", "docker.io/library/alpine:3.20", "a b%2Fc"] {
        assert_eq!(
            world.client.inspect_environment(name).await.unwrap().name,
            name
        );
    }
}

#[tokio::test]
async fn a_pull_reports_its_steps_and_its_end() {
    let world = world();
    let pull = |call: verb::PullEnvironment, progress: ProgressSink| async move {
        for done in 0..3 {
            let step = ProgressEvent {
                stage: "fetch".to_string(),
                message: "fetching".to_string(),
                done: Some(done),
                total: Some(3),
            };
            let _ = progress.try_send(step);
            tokio::task::yield_now().await;
        }
        match call.name.as_str() {
            "broken" => Err(Error::unavailable("no mirror answers").hint("try later")),
            name => Ok(answers::environment(name)),
        }
    };
    world.recorder.on_with(pull);
    let (sink, mut steps) = tokio::sync::mpsc::channel(8);
    world
        .client
        .pull_environment("debian:12", sink)
        .await
        .unwrap();
    let mut seen = 0;
    while steps.recv().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3);
    let (sink, _steps) = tokio::sync::mpsc::channel(8);
    let error = world
        .client
        .pull_environment("broken", sink)
        .await
        .unwrap_err();
    assert_eq!(
        error,
        Error::unavailable("no mirror answers").hint("try later")
    );
}

fn tell_of_sandboxes(it: &Recorder) {
    it.always::<verb::ListSandboxes>(SandboxList::new(vec![answers::sandbox(&id())]));
    it.on(|call: verb::KeepAlive| {
        Ok(Sandbox {
            ttl_seconds: call.ask.ttl_seconds.unwrap_or(600),
            ..answers::sandbox(&call.id)
        })
    });
    it.on(|_: verb::ReapExpired| Ok(Reaped::new(vec![SandboxId::parse("sb-old")?])));
    it.on(|call: verb::PruneEnvironments| {
        Ok(Pruned {
            freed_bytes: u64::from(call.ask.all),
            ..Pruned::default()
        })
    });
    it.on(|call: verb::RemoveEnvironment| {
        Ok(Pruned {
            removed: vec![call.name],
            ..Pruned::default()
        })
    });
    it.on(|call: verb::TagEnvironment| Ok(answers::environment(&call.ask.name)));
    it.on(|call: verb::Plan| Ok(format!("1. start {}\n", call.ask.environment)));
    it.on(|call: verb::DestroySandbox| Ok(answers::sandbox(&call.id)));
}

#[tokio::test]
async fn verbs_on_sandboxes() {
    let world = world();
    tell_of_sandboxes(&world.recorder);
    let client = &world.client;
    assert_eq!(
        client
            .list_sandboxes(Default::default())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        client
            .keepalive(
                &id(),
                Keepalive {
                    ttl_seconds: Some(9),
                    ..Keepalive::default()
                }
            )
            .await
            .unwrap()
            .ttl_seconds,
        9
    );
    assert_eq!(
        client.reap_expired().await.unwrap().sandbox_ids[0].as_str(),
        "sb-old"
    );
    assert!(
        client
            .prune_environments(Prune { all: true })
            .await
            .unwrap()
            .freed_bytes
            == 1
    );
    // A name with everything an address cannot hold as it is.
    let odd = "docker.io/library/x:1";
    assert_eq!(client.remove_environment(odd).await.unwrap().removed, [odd]);
    let tag = TagAs {
        owner: String::new(),
        name: "mine:1".to_string(),
    };
    let tagged = client.tag_environment("debian:12", tag).await.unwrap();
    assert_eq!(tagged.name, "mine:1");
    let request = motu_core::sandbox::CreateSandbox {
        environment: "debian:12".to_string(),
        ..Default::default()
    };
    assert_eq!(client.plan(request).await.unwrap(), "1. start debian:12\n");
    client.destroy_sandbox(&id()).await.unwrap();
}

#[tokio::test]
async fn processes_are_found_by_pid_and_tag() {
    let world = world();
    let client = &world.client;
    let mut request = exec(&["server"]);
    request.tag = Some("web".to_string());
    world.recorder.on(|call: verb::ExecBackground| {
        let tag = call.ask.tag.unwrap_or_default();
        Ok(Background { pid: 7, tag })
    });
    let started = client.exec_background(&id(), request).await.unwrap();
    assert_eq!((started.pid, started.tag.as_str()), (7, "web"));

    let tag = Selector::parse("web").unwrap();
    let signals = Arc::new(Mutex::new(Vec::new()));
    let noted = signals.clone();
    world.recorder.on(move |call: verb::SignalOne| {
        let signal = (call.selector, call.ask.signal.number(), call.ask.tree);
        noted.lock().unwrap().push(signal);
        Ok(())
    });
    client
        .signal_process(
            &id(),
            &tag.clone(),
            SignalProcess {
                signal: 10.try_into().unwrap(),
                tree: true,
            },
        )
        .await
        .unwrap();
    world
        .raw("DELETE /v1/sandboxes/sb-a/processes/7 HTTP/1.1", "")
        .await;
    assert_eq!(
        *signals.lock().unwrap(),
        [(tag.clone(), 10, true), (Selector::Pid(7), 9, false)]
    );

    let from = AttachFrom::Offsets {
        stdout: 5,
        stderr: 6,
    };
    let sessions = world.sessions.clone();
    world.recorder.on(move |call: verb::AttachProcess| {
        let told = format!("{:?} {:?}", call.selector, call.ask.begin()?);
        sessions.start(&["echo".to_string(), told], Vec::new())
    });
    let mut session = client.attach(&id(), &tag, from.into()).await.unwrap();
    match session.events.next().await.unwrap().unwrap() {
        ExecEvent::Stdout(text) => {
            assert_eq!(text, "Tag(\"web\") Offsets { stdout: 5, stderr: 6 }\n");
        }
        other => panic!("{other:?}"),
    }
}
