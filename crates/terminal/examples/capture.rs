//! Records a program's terminal output, for `tests/screens/recordings`.
//!
//! ```text
//! cargo run -p motu-terminal --example capture -- OUT.80x24.bytes [--silence MS] [--keys NAME | --text TEXT]... -- PROGRAM ARGS
//! ```
//!
//! Each input is sent when the program has been silent for a while; after the last one it is
//! killed.

use motu_terminal::Size;
use motu_terminal::keys::Key;
use motu_terminal::screen::Screen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::error::Error;
use std::process::{Child, Command, Stdio};

/// Milliseconds of silence after which the next input is sent, unless `--silence` says otherwise.
const SILENCE: i64 = 700;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let out = args.next().ok_or("which file?")?;
    let size = size_of_name(&out).ok_or("the name must end in .COLSxROWS.bytes")?;
    let mut inputs = Vec::new();
    let mut silence = SILENCE;
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--" => break,
            "--silence" => silence = args.next().ok_or("how long?")?.parse()?,
            "--keys" => inputs.push((true, args.next().ok_or("which key?")?)),
            "--text" => inputs.push((false, args.next().ok_or("which text?")?)),
            other => return Err(format!("{other} is not an option").into()),
        }
    }
    let argv: Vec<String> = args.collect();
    let bytes = capture(size, silence, &inputs, &argv)?;
    std::fs::write(&out, &bytes)?;
    let mut screen = Screen::new(size);
    screen.write(&bytes);
    println!("{} bytes\n{}", bytes.len(), screen.view().text());
    Ok(())
}

fn size_of_name(name: &str) -> Option<Size> {
    let stem = name.strip_suffix(".bytes")?;
    let (cols, rows) = stem.rsplit('.').next()?.split_once('x')?;
    Some(Size::new(cols.parse().ok()?, rows.parse().ok()?))
}

fn capture(
    size: Size,
    silence: i64,
    inputs: &[(bool, String)],
    argv: &[String],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let tty = ptsname(&master, Vec::new())?;
    let window = Winsize {
        ws_row: size.rows(),
        ws_col: size.cols(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, window)?;
    let slave = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(tty.to_str()?)?;
    let mut child = start(argv, slave)?;
    let silence = Timespec {
        tv_sec: silence / 1000,
        tv_nsec: silence % 1000 * 1_000_000,
    };
    let mut screen = Screen::new(size);
    let mut inputs = inputs.iter();
    let mut bytes = Vec::new();
    loop {
        let mut fds = [PollFd::new(&master, PollFlags::IN)];
        if poll(&mut fds, Some(&silence))? == 0 {
            let Some((is_key, text)) = inputs.next() else {
                break;
            };
            let typed = if *is_key {
                Key::parse(text)?.bytes(&screen.modes())
            } else {
                text.clone().into_bytes()
            };
            rustix::io::write(&master, &typed)?;
            continue;
        }
        let mut buffer = [0; 65_536];
        match rustix::io::read(&master, &mut buffer) {
            Ok(got) if got > 0 => {
                screen.write(&buffer[..got]);
                bytes.extend_from_slice(&buffer[..got]);
                // Programs query the terminal and wait for the reply.
                rustix::io::write(&master, &screen.take_replies())?;
            }
            _ => break,
        }
    }
    let _ = child.kill();
    child.wait()?;
    Ok(bytes)
}

/// The program, in a session whose terminal is `slave`.
fn start(argv: &[String], slave: std::fs::File) -> std::io::Result<Child> {
    Command::new("setsid")
        .arg("--ctty")
        .args(argv)
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::from(slave.try_clone()?))
        .stdout(Stdio::from(slave.try_clone()?))
        .stderr(Stdio::from(slave))
        .spawn()
}
