//! Ports and WebSockets.

use super::*;
use futures_util::SinkExt;
use motu_core::runtime::Connection;

/// What is sent to a port comes back; nothing listens on port 1.
pub fn tell_of_ports(recorder: &Recorder) {
    recorder.on(|call: verb::Dial| {
        if call.port == 1 {
            return Err(Error::unavailable("nothing listens on port 1"));
        }
        let (ours, theirs) = tokio::io::duplex(64);
        let (mut read, mut write) = tokio::io::split(theirs);
        tokio::spawn(async move { drop(tokio::io::copy(&mut read, &mut write).await) });
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    });
}

#[tokio::test]
async fn a_port_becomes_plain_bytes() {
    let world = world();
    tell_of_ports(&world.recorder);
    let mut connection = world.client.dial(&id(), &80).await.unwrap();
    // More than any buffer on the way, so both directions must flow at once.
    let sent = vec![5u8; 1 << 20];
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        connection.write.write_all(&sent).await.unwrap();
        connection.write.shutdown().await.unwrap();
        connection.write
    });
    let mut received = Vec::new();
    within(connection.read.read_to_end(&mut received))
        .await
        .unwrap();
    assert!(received == expected);
    drop(writer.await.unwrap());
    within(world.activity.idle_for(Duration::ZERO)).await;
    let error = world.client.dial(&id(), &1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn websockets_carry_the_same_frames() {
    use tokio_tungstenite::tungstenite::Message;
    let world = world();
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let (mut socket, _) =
        tokio_tungstenite::client_async("ws://motu/v1/sandboxes/sb-a/exec/ws", stream)
            .await
            .unwrap();
    socket
        .send(Message::text(r#"{"command":["cat"]}"#))
        .await
        .unwrap();
    let started = socket.next().await.unwrap().unwrap().into_data();
    assert!(started.starts_with(b"\x00"), "{started:?}");
    socket
        .send(Message::binary(&b"\x01\x00\x00\x00\x02hi"[..]))
        .await
        .unwrap();
    let echoed = socket.next().await.unwrap().unwrap().into_data();
    assert_eq!(echoed, &b"\x01\x00\x00\x00\x02hi"[..]);
    socket
        .send(Message::text(r#"{"type":"close_stdin"}"#))
        .await
        .unwrap();
    let exited = socket.next().await.unwrap().unwrap().into_data();
    assert!(
        exited.windows(8).any(|window| window == b"\"exited\""),
        "{exited:?}"
    );
    assert!(matches!(
        within(socket.next()).await,
        Some(Ok(Message::Close(_))) | None
    ));

    // One that goes away ends its command.
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("ws://motu/v1/run/ws", stream)
        .await
        .unwrap();
    socket
        .send(Message::text(r#"{"exec":{"command":["sleep"]}}"#))
        .await
        .unwrap();
    socket.next().await.unwrap().unwrap();
    drop(socket);
    within(world.sessions.killed.notified()).await;
    within(world.activity.idle_for(Duration::ZERO)).await;
}
