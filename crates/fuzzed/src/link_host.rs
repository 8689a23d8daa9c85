//! A hostile guest says anything at all to a host with an open stream: the
//! host's side ends, or waits, but never panics and never holds more than its
//! window.

use bytes::Bytes;
use motu_link::{Event, Link};
use tokio::io::AsyncWriteExt;

pub fn link_host(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers always builds");
    runtime.block_on(async {
        let (host, guest) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(host);
        let (link, _incoming) = Link::start(read, write, false);
        let Ok(mut stream) = link.open(Bytes::from_static(b"request")).await else {
            return;
        };
        let (_drain, mut say) = tokio::io::split(guest);
        let _ = say.write_all(data).await;
        let _ = say.shutdown().await;
        drop(say);
        drop(_drain);
        let mut unread = 0usize;
        while let Ok(event) = stream.rx.recv().await {
            if let Event::Data { bytes, .. } = event {
                unread += bytes.len();
            }
        }
        assert!(unread <= data.len());
        link.closed().await;
    });
}
