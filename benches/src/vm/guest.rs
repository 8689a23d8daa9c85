//! A minimal client: one command in a machine.

use super::Fallible;
use bytes::Bytes;
use motu_core::Runtime;
use motu_core::runtime::Machine;
use motu_link::message::{Outcome, Request, Start, Verb};
use motu_link::{Event, Link, hello};
use motu_qemu::Qemu;
use prost::Message as _;

/// Runs `true` over a fresh connection.
pub async fn exec(runtime: &Qemu, machine: &Machine) -> Fallible<()> {
    let connection = runtime.connect(machine).await?;
    let mut both = tokio::io::join(connection.read, connection.write);
    hello::host(&mut both, [1; 16]).await?;
    let (read, write) = both.into_inner();
    let link = Link::start(read, write, false).0;
    let start = Start {
        argv: vec![Bytes::from_static(b"true")],
        user: "root".into(),
        cwd: Bytes::from_static(b"/"),
        follow: true,
        forget: true,
        timeout_ms: 60_000,
        ..Start::default()
    };
    let request = Request::from(Verb::Start(start)).encode_to_vec();
    let mut stream = link.open(request.into()).await?;
    let outcome = loop {
        match stream.rx.recv().await? {
            Event::End(last) => break Outcome::decode(last)?,
            Event::Reset => return Err("the guest gave up".into()),
            _ => {}
        }
    };
    link.close();
    match outcome.kind {
        0 => Ok(()),
        _ => Err(outcome.message.into()),
    }
}
