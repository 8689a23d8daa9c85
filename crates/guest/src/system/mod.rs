//! The machine itself: identity, clock, randomness, metrics and shutdown.

mod ending;
mod hosts;
mod metrics;
mod names;

pub use ending::{Endings, end_processes, shutdown};
pub use metrics::metrics;

use crate::answer::{Failed, Quoted};
use crate::blocking;
use crate::place::{Place, Root};
use crate::state::{Guest, Settings};
use crate::sys;
use bytes::Bytes;
use motu_link::message::{Failure, Init, Pong};
use rustix::io::Errno;
use std::io::Write as _;
use std::sync::Arc;

/// The file with the machine's id (systemd).
const MACHINE_ID: &str = "/etc/machine-id";

pub fn pong(guest: &Guest) -> Pong {
    Pong {
        guest_version: env!("CARGO_PKG_VERSION").to_string(),
        uptime_ms: guest.started.elapsed().as_millis() as u64,
        link_version: motu_link::LINK_VERSION,
    }
}

/// Applies an `Init`; everything is checked before anything changes.
pub async fn init(guest: &Arc<Guest>, request: Init) -> Result<(), Failed> {
    let root = open_root(request.file_root.clone()).await?;
    if !request.default_cwd.is_empty() {
        Place::parse(&request.default_cwd)?;
    }
    guest.users.find(&request.default_user)?;
    if let Some(name) = request
        .env
        .keys()
        .find(|name| name.is_empty() || name.contains(['=', '\0']))
    {
        return Err(Failed::invalid(format!(
            "{} is not the name of an environment variable",
            Quoted(name.as_bytes())
        )));
    }
    // If the name is right already, setting it may not be permitted, and is not needed.
    let has_name = rustix::system::uname().nodename().to_bytes() == request.hostname.as_bytes();
    if !request.hostname.is_empty() && guest.pid1 && !has_name {
        let named = rustix::system::sethostname(request.hostname.as_bytes());
        named.map_err(|errno| {
            Failed::errno(
                format!(
                    "cannot set the host name {}",
                    Quoted(request.hostname.as_bytes())
                ),
                errno,
            )
        })?;
    }
    if !request.hostname.is_empty() && guest.own_root {
        hosts::add(&request.hostname);
    }
    if guest.own_root {
        let failed = |what: &'static str| {
            move |error: std::io::Error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Failed::errno(what, errno)
            }
        };
        names::take(&request).map_err(failed("cannot write what the network needs to /etc"))?;
        let served = guest.agent.serve(request.agent);
        served.map_err(failed(
            "cannot open the socket of the SSH agent in /dev/shm",
        ))?;
    }
    if request.clock_unix_ns != 0 {
        set_clock(request.clock_unix_ns)?;
    }
    reseed(&request.entropy)?;
    guest.set_settings(Settings {
        default_user: request.default_user,
        default_cwd: request.default_cwd.to_vec(),
        env: request.env.into_iter().collect(),
        root: Arc::new(root),
    });
    Ok(())
}

/// The root for file operations.
async fn open_root(path: Bytes) -> Result<Root, Failed> {
    if path.is_empty() {
        // Opening `/` never blocks, so it needs no thread.
        return Root::open(b"/").map_err(|errno| Failed::errno("cannot open /", errno));
    }
    blocking::run(move || {
        let place = Place::parse(&path)?;
        Root::open(place.as_bytes()).map_err(|errno| place.failed(errno))
    })
    .await
}

pub fn set_clock(unix_ns: i64) -> Result<(), Failed> {
    match sys::set_clock(unix_ns) {
        Ok(()) => Ok(()),
        Err(errno @ Errno::PERM) => Err(Failed::errno_as(
            Failure::Unsupported,
            "this machine may not set its clock",
            errno,
        )),
        Err(errno) => Err(Failed::errno("cannot set the clock", errno)),
    }
}

/// Adds entropy from the host, which a forked machine needs before it makes keys. A machine with
/// its own kernel also gets a new machine id.
pub fn reseed(entropy: &[u8]) -> Result<(), Failed> {
    if entropy.is_empty() {
        return Ok(());
    }
    // Neither the device nor a file in the page cache blocks.
    mix(entropy).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Failed::errno("cannot take new randomness", errno)
    })
}

fn mix(entropy: &[u8]) -> std::io::Result<()> {
    let mut device = std::fs::File::options().write(true).open("/dev/urandom")?;
    device.write_all(entropy)?;
    // Without this ioctl the kernel uses the old state for up to a minute. It needs privileges over
    // the kernel; without them the kernel is the host's, which was not copied.
    if sys::reseed_now(&device).is_ok()
        && let Ok(id) = std::fs::File::options().write(true).open(MACHINE_ID)
    {
        let fresh = motu_boot::fresh_id()?;
        std::os::unix::fs::FileExt::write_all_at(&id, fresh.as_bytes(), 0)?;
    }
    Ok(())
}
