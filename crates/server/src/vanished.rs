//! Callers that vanish without a word: a cable that is pulled, a host that loses power, a NAT that
//! forgets a connection.
//!
//! Nothing arrives from them any more, not even an end, so the kernel is told to ask. A connection
//! that it gives up ends like every other one, and so does what ran in the foreground for it.

use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Silence after which the kernel asks whether the other end is there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// How long after a question the next one is asked.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which the connection is given up.
pub const KEEPALIVE_PROBES: u32 = 3;
/// How long what was sent may stay unacknowledged. It also bounds a connection on which something
/// is being sent, where the kernel asks no questions, and without it would try for a quarter of an
/// hour. The three above come to the same time.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Has the kernel notice when whoever is at the other end of a TCP connection vanishes.
pub fn notice(stream: impl AsFd) {
    // A kernel without one of these options serves all the same.
    if let Err(error) = set(stream) {
        tracing::debug!(%error, "callers that vanish are not noticed");
    }
}

fn set(stream: impl AsFd) -> io::Result<()> {
    let stream = stream.as_fd();
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED.as_millis() as u32)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn an_accepted_connection_is_asked_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (caller, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        notice(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_PROBES);
        let unacknowledged = UNACKNOWLEDGED.as_millis() as u32;
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), unacknowledged);
        drop(caller);
    }
}
