//! Standard input and terminals.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;

#[tokio::test]
async fn a_terminal_echoes_resizes_and_ends() {
    let machine = Machine::start().await;
    let start = Start {
        pty: Some(PtySize { cols: 91, rows: 17 }),
        stdin: true,
        ..argv(&["/bin/sh", "-i"])
    };
    let mut stream = machine.open(Verb::Start(start)).await;
    let sender = stream.tx.clone();
    let type_in = async move |text: &str| {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        sender.data(0, bytes).await.unwrap();
    };
    type_in("stty size; echo $TERM\n").await;
    let seen = read_until(&mut stream, "xterm-256color").await;
    assert!(
        seen.contains("stty size") && seen.contains("17 91"),
        "{seen:?}"
    );
    let control = Control::from(Do::Resize(PtySize {
        cols: 120,
        rows: 40,
    }));
    stream
        .tx
        .message(prost::Message::encode_to_vec(&control).into())
        .await
        .unwrap();
    type_in("stty size\n").await;
    read_until(&mut stream, "40 120").await;
    type_in("sed -u y/abc/xyz/\n").await;
    type_in("aabbcc\n").await;
    read_until(&mut stream, "xxyyzz").await;
    // The foreground program, not the shell, receives the signal, as for a typed Ctrl-C.
    let control = Control::from(Do::Signal(SignalNumber {
        signal: 2,
        tree: false,
    }));
    stream
        .tx
        .message(prost::Message::encode_to_vec(&control).into())
        .await
        .unwrap();
    type_in("\necho mark$((40+2))\n").await;
    read_until(&mut stream, "mark42").await;
    type_in("\nexit 5\n").await;
    assert_eq!(finish(stream).await.ok().exited().code, 5);
}

#[tokio::test]
async fn end_of_input_on_a_terminal_is_typed() {
    let machine = Machine::start().await;
    let start = Start {
        pty: Some(PtySize::default()),
        stdin: true,
        ..argv(&["cat"])
    };
    let said = machine.call_with(Verb::Start(start), b"line\n").await.ok();
    assert_eq!(said.exited().code, 0);
    assert_eq!(said.out, b"line\r\nline\r\n");
}

#[tokio::test]
async fn input_streams_and_ends() {
    let machine = Machine::start().await;
    let start = Start {
        stdin: true,
        ..argv(&["cat"])
    };
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let said = machine.call_with(Verb::Start(start), &data).await.ok();
    assert!(
        said.out == data,
        "{} of {} bytes",
        said.out.len(),
        data.len()
    );
    // Without input the program sees the end of its standard input immediately.
    assert_eq!(
        machine
            .call(Verb::Start(argv(&["cat"])))
            .await
            .ok()
            .exited()
            .code,
        0
    );
    // A program that does not read its input is not disturbed.
    let start = Start {
        stdin: true,
        ..sh("exec <&-; echo fine")
    };
    assert_eq!(
        machine.call_with(Verb::Start(start), &data).await.ok().out,
        b"fine\n"
    );
}

#[tokio::test]
async fn input_can_come_from_another_stream() {
    let machine = Machine::start().await;
    let start = Start {
        stdin: true,
        tag: "reader".into(),
        ..argv(&["cat"])
    };
    let mut stream = machine.open(Verb::Start(start)).await;
    assert!(matches!(
        next(&mut stream).await,
        Next::Note(Said::Started(_))
    ));
    let input = |close| {
        Verb::Input(Input {
            process: by_tag("reader"),
            close,
        })
    };
    machine.call_with(input(false), b"first ").await.ok();
    read_until(&mut stream, "first ").await;
    machine.call_with(input(true), b"second").await.ok();
    let said = finish(stream).await.ok();
    assert_eq!(said.out, b"second");
}

#[tokio::test]
async fn a_reset_behind_unread_input_still_kills() {
    let machine = Machine::start().await;
    let start = Start {
        stdin: true,
        kill_on_reset: true,
        ..sh("echo up; sleep 1000")
    };
    let mut stream = machine.open(Verb::Start(start)).await;
    read_until(&mut stream, "up").await;
    let sender = stream.tx.clone();
    let flood = tokio::spawn(async move {
        while sender.data(0, Bytes::from(vec![0; 100_000])).await.is_ok() {}
    });
    eventually("the guest takes no more", async || {
        let before = machine.call(Verb::Ping(Ping {})).await;
        before.ok();
        !flood.is_finished()
    })
    .await;
    stream.tx.reset();
    drop(stream);
    flood.await.unwrap();
    eventually("the process is gone", async || {
        machine
            .processes()
            .await
            .iter()
            .all(|process| process.alive == 0)
    })
    .await;
}
