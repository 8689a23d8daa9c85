//! Turns a request into a [`Plan`]: user, directory, environment and program file. Everything that
//! a forked child may not do is done here, before the fork.

use crate::answer::{Failed, Quoted};
use crate::state::{Guest, Settings};
use crate::sys::spawn::RunAs;
use crate::users::Identity;
use bytes::Bytes;
use motu_link::message::{Failure, Start};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CString;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHELL: &str = "/bin/sh";
/// Arguments of one program; the request's own size bounds their bytes.
const MAX_ARGUMENTS: usize = 256 * 1024;

/// A program ready to start, except for its descriptors.
#[derive(Debug)]
pub struct Prepared {
    pub program: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: Vec<u8>,
    pub user: RunAs,
    pub user_name: String,
}

/// Checks a request and prepares what it asks for.
pub fn prepare(guest: &Guest, start: &Start) -> Result<Prepared, Failed> {
    let settings = guest.settings();
    let wanted = if start.user.is_empty() {
        &settings.default_user
    } else {
        &start.user
    };
    let identity = guest.users.find(wanted)?;
    let user = run_as(&identity)?;
    let cwd = directory(&settings, start)?;
    let env = environment(&settings, start, &identity)?;
    let arguments = arguments(start)?;
    let name = arguments
        .first()
        .ok_or_else(|| Failed::invalid("no program to run"))?;
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let program = find_program(name, path, &cwd)?;
    let mut lines = Vec::with_capacity(env.len());
    for (name, value) in &env {
        lines.push(c_string(
            "an environment variable",
            format!("{name}={value}").into_bytes(),
        )?);
    }
    let mut argv = Vec::with_capacity(arguments.len());
    for argument in arguments {
        argv.push(c_string("an argument", argument)?);
    }
    Ok(Prepared {
        program: c_string("the program", program)?,
        argv,
        env: lines,
        cwd,
        user,
        user_name: identity.name,
    })
}

fn c_string(what: &str, bytes: Vec<u8>) -> Result<CString, Failed> {
    CString::new(bytes).map_err(|_| Failed::invalid(format!("{what} contains a NUL byte")))
}

fn run_as(identity: &Identity) -> Result<RunAs, Failed> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let differs = identity.uid != uid || identity.gid != gid;
    if differs && uid != 0 {
        let message = format!(
            "cannot run as {}: the guest itself is not root",
            Quoted(identity.name.as_bytes())
        );
        return Err(Failed::new(Failure::Denied, message));
    }
    Ok(RunAs {
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups.clone(),
        differs,
    })
}

/// The working directory. If the default one is missing, the root is used; a requested one must
/// exist.
fn directory(settings: &Settings, start: &Start) -> Result<Vec<u8>, Failed> {
    let asked = !start.cwd.is_empty();
    let wanted: &[u8] = match (asked, settings.default_cwd.is_empty()) {
        (true, _) => &start.cwd,
        (false, false) => &settings.default_cwd,
        (false, true) => b"/",
    };
    if wanted.first() != Some(&b'/') {
        return Err(Failed::invalid(format!(
            "working directory {} is not absolute",
            Quoted(wanted)
        )));
    }
    let found = match rustix::fs::stat(wanted) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
        Ok(_) => Err(Errno::NOTDIR),
        Err(errno) => Err(errno),
    };
    match found {
        Ok(()) => Ok(wanted.to_vec()),
        Err(_) if !asked => Ok(b"/".to_vec()),
        Err(errno) => Err(Failed::errno_as(
            Failure::NoDirectory,
            format!("working directory {}", Quoted(wanted)),
            errno,
        )),
    }
}

fn environment(
    settings: &Settings,
    start: &Start,
    identity: &Identity,
) -> Result<BTreeMap<String, String>, Failed> {
    let mut env = BTreeMap::new();
    if !start.clear_env {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        env.insert("PATH".to_string(), DEFAULT_PATH.to_string());
        env.insert("HOME".to_string(), text(&identity.home));
        env.insert("USER".to_string(), identity.name.clone());
        env.insert("LOGNAME".to_string(), identity.name.clone());
        env.insert("SHELL".to_string(), text(&identity.shell));
        env.insert("LANG".to_string(), "C.UTF-8".to_string());
        if start.pty.is_some() {
            env.insert("TERM".to_string(), "xterm-256color".to_string());
        }
        env.extend(settings.env.clone());
    }
    env.extend(
        start
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    match env
        .keys()
        .find(|name| name.is_empty() || name.contains('='))
    {
        None => Ok(env),
        Some(name) => {
            let message = format!(
                "{} is not the name of an environment variable",
                Quoted(name.as_bytes())
            );
            Err(Failed::invalid(message))
        }
    }
}

fn arguments(start: &Start) -> Result<Vec<Vec<u8>>, Failed> {
    if start.argv.len() > MAX_ARGUMENTS {
        let message = format!(
            "{} arguments are more than {MAX_ARGUMENTS}",
            start.argv.len()
        );
        return Err(Failed::new(Failure::Limit, message));
    }
    if !start.shell {
        return Ok(start
            .argv
            .iter()
            .map(|argument| argument.to_vec())
            .collect());
    }
    let Some((script, more)) = start.argv.split_first() else {
        return Ok(Vec::new());
    };
    Ok(vec![
        SHELL.into(),
        b"-c".to_vec(),
        shell_script(script, more),
    ])
}

/// A script followed by its arguments as quoted words.
fn shell_script(script: &Bytes, arguments: &[Bytes]) -> Vec<u8> {
    let mut line = script.to_vec();
    for argument in arguments {
        line.extend_from_slice(b" '");
        for byte in argument {
            match byte {
                b'\'' => line.extend_from_slice(b"'\\''"),
                other => line.push(*other),
            }
        }
        line.push(b'\'');
    }
    line
}

/// Finds a program's file like `execvp`, as the child will see it.
fn find_program(name: &[u8], path: &str, cwd: &[u8]) -> Result<Vec<u8>, Failed> {
    if name.is_empty() {
        return Err(Failed::errno_as(
            Failure::CannotRun,
            "program \"\"",
            Errno::NOENT,
        ));
    }
    if name.contains(&b'/') {
        // A name with a slash is resolved by the child, relative to its own directory.
        return Ok(name.to_vec());
    }
    let mut worst = Errno::NOENT;
    for directory in path.split(':') {
        let mut candidate = Vec::new();
        if !directory.starts_with('/') {
            candidate.extend_from_slice(cwd);
            candidate.push(b'/');
        }
        candidate.extend_from_slice(directory.as_bytes());
        candidate.push(b'/');
        candidate.extend_from_slice(name);
        match rustix::fs::stat(&candidate[..]) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {}
            Ok(stat) if stat.st_mode & 0o111 != 0 => return Ok(candidate),
            Ok(_) | Err(Errno::ACCESS) => worst = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(Failed::errno_as(
        Failure::CannotRun,
        format!("program {} in PATH", Quoted(name)),
        worst,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_arguments_are_words_whatever_they_contain() {
        let words = [
            Bytes::from_static(b"a b"),
            Bytes::from_static(b"it's"),
            Bytes::from_static(b"$HOME;`x`"),
        ];
        let line = shell_script(&Bytes::from_static(b"printf '%s|'"), &words);
        let run = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg(String::from_utf8(line).unwrap())
            .output()
            .unwrap();
        assert_eq!(run.stdout, b"a b|it's|$HOME;`x`|");
    }

    #[test]
    fn a_missing_program_and_a_forbidden_one_differ() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("plain"), "x").unwrap();
        let path = place.path().to_str().unwrap();
        let missing = find_program(b"nothing", path, b"/").unwrap_err();
        assert_eq!(
            (missing.kind, missing.errno),
            (Failure::CannotRun, libc::ENOENT)
        );
        let forbidden = find_program(b"plain", path, b"/").unwrap_err();
        assert_eq!(
            (forbidden.kind, forbidden.errno),
            (Failure::CannotRun, libc::EACCES)
        );
        assert_eq!(find_program(b"plain/x", path, b"/").unwrap(), b"plain/x");
    }
}
