//! A server that is told to stop: what is being done is finished, the rest does not hold it up.

use super::files::Files;
use super::*;
use motu_core::Terminals as _;
use tokio::sync::oneshot;

/// A server that can be told to stop.
struct Leaving {
    world: World,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

fn leaving() -> Leaving {
    let (stop, stopped) = oneshot::channel::<()>();
    let (world, server) = world_until(async { drop(stopped.await) });
    Leaving {
        world,
        stop: Some(stop),
        server,
    }
}

impl Leaving {
    /// Tells it to stop, and waits until it has heard.
    async fn stop(&mut self) {
        drop(self.stop.take());
        within(async {
            while UnixStream::connect(&self.world.socket).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Lets time pass for the server alone.
    async fn wait(&self, seconds: u64) {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn an_upload_that_takes_long_is_finished() {
    let mut leaving = leaving();
    let files = Files::of(&leaving.world.recorder);
    let mut stream = UnixStream::connect(&leaving.world.socket).await.unwrap();
    let head = "PUT /v1/sandboxes/sb-a/files/content?path=/f HTTP/1.1\r\nHost: x\r\n\
                Expect: 100-continue\r\nContent-Length: 8\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // Said when somebody reads the body.
    let mut word = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    within(stream.read_exact(&mut word)).await.unwrap();
    assert!(word.starts_with(b"HTTP/1.1 100"), "{word:?}");
    stream.write_all(b"half").await.unwrap();
    leaving.stop().await;
    leaving.wait(20).await;
    assert!(!leaving.server.is_finished());
    stream.write_all(b"done").await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(files.kept().remove(&b"/f"[..]).unwrap(), b"halfdone");
    within(leaving.server).await.unwrap();
}

#[tokio::test]
async fn a_command_in_the_foreground_is_finished() {
    let mut leaving = leaving();
    let client = leaving.world.client.clone();
    let mut session = client.exec_stream(&id(), exec(&["cat"])).await.unwrap();
    session.events.next().await.unwrap().unwrap();
    leaving.stop().await;
    leaving.wait(20).await;
    session
        .input
        .send(ExecInput::Stdin("late".into()))
        .await
        .unwrap();
    let echoed = within(session.events.next()).await.unwrap().unwrap();
    assert_eq!(echoed, ExecEvent::Stdout("late".into()));
    session.input.send(ExecInput::CloseStdin).await.unwrap();
    let ended = within(session.events.next()).await.unwrap().unwrap();
    assert!(matches!(ended, ExecEvent::Exited(_)), "{ended:?}");
    assert!(within(session.events.next()).await.is_none());
    within(leaving.server).await.unwrap();
}

#[tokio::test]
async fn a_command_that_does_not_end_is_cut_off_in_the_end() {
    let mut leaving = leaving();
    let client = leaving.world.client.clone();
    let mut session = client.exec_stream(&id(), exec(&["sleep"])).await.unwrap();
    session.events.next().await.unwrap().unwrap();
    leaving.stop().await;
    leaving.wait(motu_server::GRACE.as_secs() - 1).await;
    assert!(!leaving.server.is_finished());
    leaving.wait(2).await;
    within(leaving.server).await.unwrap();
}

#[tokio::test]
async fn what_has_no_end_of_its_own_holds_nobody_up() {
    let mut leaving = leaving();
    let client = leaving.world.client.clone();
    live::tell_of_ports(&leaving.world.recorder);
    // A connection that is kept for the next call, one to a port, and two who look at a terminal.
    client.version().await.unwrap();
    let mut port = client.dial(&id(), &80).await.unwrap();
    port.write.write_all(b"x").await.unwrap();
    port.read.read_exact(&mut [0; 1]).await.unwrap();
    let terminal = motu_core::terminal::TerminalId::parse("t").unwrap();
    let mut session = client
        .attach_terminal(&terminal, Default::default())
        .await
        .unwrap();
    let stream = UnixStream::connect(&leaving.world.socket).await.unwrap();
    let address = "ws://motu/v1/terminals/t/stream/ws";
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream)
        .await
        .unwrap();
    for _ in 0..2 {
        session.events.next().await.unwrap().unwrap();
        socket.next().await.unwrap().unwrap();
    }
    let watching = tokio::spawn(async move { while let Some(Ok(_)) = socket.next().await {} });
    leaving.stop().await;
    within(leaving.server).await.unwrap();
    let rest = within(session.events.next()).await;
    assert!(!matches!(rest, Some(Ok(ExecEvent::Exited(_)))), "{rest:?}");
    within(watching).await.unwrap();
}
