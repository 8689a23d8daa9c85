//! Serving others over TCP: where, for whom, and until when.

use motu_core::{Error, Result};
use motu_mcp::MAX_TOKEN_BYTES;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// `7333` or `0.0.0.0:7333`.
pub fn address(text: &str) -> Result<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        Error::invalid(format!("{text:?} is not an address"))
            .hint("write PORT, or ADDRESS:PORT with a numeric address")
    })
}

/// Reads a token or a key from a file.
pub fn read_token(path: &Path) -> Result<String> {
    let cannot =
        |error: &std::io::Error| Error::with_file(format_args!("read {}", path.display()), error);
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot(&error))?;
    if text.len() > MAX_TOKEN_BYTES {
        return Err(Error::invalid(format!(
            "{} is too long for a token",
            path.display()
        )));
    }
    Ok(text.trim().to_string())
}

/// Waits until this process is asked to end.
pub async fn asked_to_leave() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_host() {
        assert_eq!(address("80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(address("example.org:80").is_err());
    }
}
