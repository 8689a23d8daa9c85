//! The socket of an SSH agent: bytes of every connection are relayed to the gateway and back.
//!
//! Nothing is parsed or decided here. The gateway has the keys and the rules; a program that
//! connects to the gateway's port directly gets the same.

use motu_link::network;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::lock::locked;

/// Concurrent connections; more wait for one to end.
const CONNECTIONS: usize = 32;

/// The listening socket, if there is one.
#[derive(Debug, Default)]
pub struct Agent(Mutex<Option<AbortHandle>>);

impl Agent {
    /// Opens the socket for all users of the machine, or closes it.
    pub fn serve(&self, wanted: bool) -> io::Result<()> {
        let task = match wanted {
            true => {
                let listener = listen(Path::new(network::AGENT_SOCKET))?;
                let gateway = (network::GATEWAY, network::AGENT_PORT).into();
                Some(tokio::spawn(accept(listener, gateway)).abort_handle())
            }
            false => None,
        };
        let before = std::mem::replace(&mut *locked(&self.0), task);
        if let Some(before) = before {
            before.abort();
        }
        Ok(())
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755))?;
    }
    // An earlier machine on the same disk may have left its socket.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Mode 0666: any user who can reach the gateway could ask the agent anyway.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, gateway: std::net::SocketAddr) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = free.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    // If the gateway is gone or has no keys, the connection closes, like that of a
                    // dead agent.
                    let _ = pass(stream, gateway).await;
                    drop(turn);
                });
            }
            // Out of file descriptors: wait until a connection ends.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn pass(mut inside: UnixStream, gateway: std::net::SocketAddr) -> io::Result<()> {
    let mut outside = TcpStream::connect(gateway).await?;
    // The protocol is small messages that each wait for an answer.
    outside.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut inside, &mut outside).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn bytes_go_out_and_back_and_an_old_socket_gives_way() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("motu/agent.sock");
        let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = outside.local_addr().unwrap();
        drop(listen(&path).unwrap());
        let listener = listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let task = tokio::spawn(accept(listener, gateway));
        for _ in 0..CONNECTIONS + 1 {
            let mut inside = UnixStream::connect(&path).await.unwrap();
            inside.write_all(b"question").await.unwrap();
            inside.shutdown().await.unwrap();
            let (mut stream, _) = outside.accept().await.unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "question");
            stream.write_all(b"answer").await.unwrap();
            drop(stream);
            said.clear();
            inside.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "answer");
        }
        drop(outside);
        let mut inside = UnixStream::connect(&path).await.unwrap();
        assert_eq!(inside.read(&mut [0]).await.unwrap(), 0, "it hangs up");
        task.abort();
    }
}
