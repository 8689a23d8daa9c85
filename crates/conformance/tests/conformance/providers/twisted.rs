//! A proxy to a service that breaks answers in the middle.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What happens when the service sends a certain word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    Nothing,
    /// The connection is closed after it.
    Cut,
    /// Nothing follows it, on any connection, and all stay open.
    Hang,
    /// Garbage follows it.
    Rubbish,
}

#[derive(Default)]
struct State {
    /// The test is over.
    over: AtomicBool,
    /// Nothing is forwarded.
    still: AtomicBool,
}

impl State {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until forwarding is allowed again.
    fn pause(&self) {
        while self.still.load(Ordering::SeqCst) && !self.is_over() {
            std::thread::sleep(LOOK);
        }
    }
}

/// How often a thread checks whether the test is over.
const LOOK: Duration = Duration::from_millis(50);

pub struct Way {
    pub address: SocketAddr,
    twist: Arc<Mutex<(Twist, Vec<u8>)>>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Way {
    pub fn to(service: SocketAddr) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a mode");
        let twist = Arc::new(Mutex::new((Twist::Nothing, Vec::new())));
        let state: Arc<State> = Arc::default();
        let thread = std::thread::spawn({
            let (twist, state) = (twist.clone(), state.clone());
            move || {
                let mut all = Vec::new();
                while !state.is_over() {
                    match listener.accept() {
                        Ok((caller, _)) => {
                            let (twist, state) = (twist.clone(), state.clone());
                            let connection = move || pass(caller, service, &twist, &state);
                            all.push(std::thread::spawn(connection));
                        }
                        Err(_) => std::thread::sleep(LOOK),
                    }
                }
                for one in all {
                    one.join().expect("a connection is passed on");
                }
            }
        });
        Way {
            address,
            twist,
            state,
            thread: Some(thread),
        }
    }

    /// Sets what happens at this word from now on.
    pub fn twist(&self, twist: Twist, word: &str) {
        *self.twist.lock().expect("a lock") = (twist, word.as_bytes().to_vec());
        self.state.still.store(false, Ordering::SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

/// Both directions of one connection.
fn pass(
    mut caller: TcpStream,
    service: SocketAddr,
    twist: &Mutex<(Twist, Vec<u8>)>,
    state: &State,
) {
    let Ok(mut service) = TcpStream::connect(service) else {
        return;
    };
    for stream in [&caller, &service] {
        // Sockets accepted from a non-blocking listener must be made blocking.
        stream.set_nonblocking(false).expect("a mode");
        stream.set_read_timeout(Some(LOOK)).expect("a time limit");
        stream.set_nodelay(true).expect("an option");
    }
    std::thread::scope(|scope| {
        let (mut from, mut to) = (
            caller.try_clone().expect("a copy"),
            service.try_clone().expect("a copy"),
        );
        scope.spawn(move || {
            copy(&mut from, &mut to, state, |_| Twist::Nothing);
        });
        let mut said = Vec::new();
        copy(&mut service, &mut caller, state, |piece| {
            said.extend_from_slice(piece);
            let twist = twist.lock().expect("a lock");
            let word = &twist.1;
            let heard = twist.0 != Twist::Nothing && said.windows(word.len()).any(|at| at == word);
            if heard { twist.0 } else { Twist::Nothing }
        });
    });
}

/// Forwards until one side or the test ends.
fn copy(
    from: &mut TcpStream,
    to: &mut TcpStream,
    state: &State,
    mut look: impl FnMut(&[u8]) -> Twist,
) {
    let mut buffer = [0; 16 * 1024];
    while !state.is_over() {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        let piece = &buffer[..count];
        state.pause();
        let twist = look(piece);
        if to.write_all(piece).is_err() {
            break;
        }
        match twist {
            Twist::Cut => break,
            Twist::Rubbish => {
                // As a separate chunk, so that the answer itself is invalid.
                let _ = to.write_all(b"8\r\n{\"what\"\n\r\n");
                break;
            }
            Twist::Hang => state.still.store(true, Ordering::SeqCst),
            Twist::Nothing => {}
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
