//! The gateway process: from its setup to the confined loop.

use super::spawn::{self, Kind, Ready, Setup};
use super::turn::{Gateway, Parts};
use super::{Addresses, MTU, SOCKET_MTU, confine, host, sys};
use crate::proxy::Proxy;
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;

/// Runs the gateway that [`super::spawn()`] set up on standard input. Returns the exit status when
/// it ends.
///
/// Must be called first, while the process has one thread.
pub fn run() -> i32 {
    let mut stream = match standard_input() {
        Ok(input) => UnixStream::from(input),
        Err(_) => return 2,
    };
    let told = spawn::told(&mut stream);
    // Daemonize: the parent waits for the first process, whose exit shows that the gateway is on
    // its own.
    match sys::fork() {
        Ok(Some(_)) => return 0,
        Ok(None) => {}
        Err(error) => return fail(&mut stream, &error),
    }
    match told.and_then(|(setup, descriptors)| begin(setup, descriptors)) {
        Ok((gateway, start_time)) => serve(gateway, start_time, stream),
        Err(error) => fail(&mut stream, &error),
    }
}

/// Takes standard input and replaces it by `/dev/null`.
fn standard_input() -> io::Result<OwnedFd> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(input)
}

fn fail(stream: &mut UnixStream, error: &io::Error) -> i32 {
    answer(stream, &Ready::Failed(error.to_string()));
    1
}

fn answer(stream: &mut UnixStream, ready: &Ready) {
    if let Ok(mut text) = serde_json::to_vec(ready) {
        text.push(b'\n');
        // The starter may be gone; the leash tells.
        let _ = stream.write_all(&text);
    }
}

/// Everything that needs privileges and files.
fn begin(setup: Setup, descriptors: Vec<OwnedFd>) -> io::Result<(Gateway, u64)> {
    sys::keep_memory_low();
    let _ = rustix::process::setsid();
    let mut given = descriptors.into_iter();
    let mut next = || given.next().ok_or(io::ErrorKind::InvalidData);
    let v6 = setup.rules.lead_to_v6();
    let (frames, mtu) = match setup.frames {
        Kind::Socket => {
            let socket = next()?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            (socket, SOCKET_MTU)
        }
        Kind::Namespace => (sys::device::make(next()?, None, v6)?, MTU),
        Kind::NamespaceOfUser => {
            let net = next()?;
            (sys::device::make(net, Some(next()?), v6)?, MTU)
        }
    };
    let (decisions, control) = (next()?, next()?);
    let addresses = Addresses::open()?;
    let resolvers = if setup.resolvers.is_empty() {
        host::resolvers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
    } else {
        setup.resolvers
    };
    let proxy = setup.proxy.map(place_of).transpose()?;
    let gateway = Gateway::new(Parts {
        frames,
        mtu,
        control: Some(control),
        decisions,
        rules: setup.rules,
        border: setup.border,
        addresses: Some(addresses),
        resolvers,
        proxy,
        memory: host::Memory::open().ok(),
    })?;
    let start_time = host::start_time("/proc/self/stat")?;
    prepare_randomness()?;
    confine::confine(setup.user)?;
    Ok((gateway, start_time))
}

/// Where the program is static, random bytes come from a file, which stays open once it was read.
fn prepare_randomness() -> io::Result<()> {
    getrandom::fill(&mut [0]).map_err(|error| io::Error::other(error.to_string()))
}

/// Resolves a proxy's name once: after confinement the resolver's files cannot be read.
fn place_of(proxy: Proxy) -> io::Result<(Proxy, SocketAddr)> {
    let failed = |why: &str| io::Error::other(format!("the proxy {}: {why}", proxy.host));
    let found = (proxy.host.as_str(), proxy.port).to_socket_addrs();
    let mut found = found.map_err(|error| failed(&error.to_string()))?;
    let first = found.next().ok_or_else(|| failed("it has no address"))?;
    Ok((proxy, first))
}

fn serve(mut gateway: Gateway, start_time: u64, mut stream: UnixStream) -> i32 {
    let ready = Ready::Ready {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        start_time,
    };
    answer(&mut stream, &ready);
    match spawn::held(&stream).and_then(|leash| leash.map(|leash| gateway.hold(leash)).transpose())
    {
        Ok(Some(())) => drop(stream),
        // The machine was never made, and its maker is gone.
        Ok(None) => return 0,
        Err(_) => return 1,
    }
    loop {
        match gateway.turn() {
            Ok(true) => {}
            Ok(false) => return 0,
            Err(_) => return 1,
        }
    }
}
