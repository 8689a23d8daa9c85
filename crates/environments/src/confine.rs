//! Confines the program that writes root filesystems.
//!
//! Starts it with Landlock, so that it can write below one directory only and has no network. Its
//! input was checked before; this is the second line of defence. For an unprivileged user the user
//! namespace confines it instead: the helper that maps ids is setuid, and cannot run under
//! Landlock's no_new_privs.

use std::{io, path::Path, process::Command, thread};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, path_beneath_rules,
};

use crate::{
    privilege::Privilege,
    process::{self, Cancel, Running},
};

/// The newest Landlock ABI requested; an older kernel enforces what it knows.
const RULES: ABI = ABI::V5;

/// Starts `command` so that it can write below `writable` and nowhere else.
pub(crate) fn start(
    command: Command,
    privilege: Privilege,
    cancel: &Cancel,
    scratch: &Path,
    writable: &Path,
) -> io::Result<Running> {
    if privilege == Privilege::User {
        return process::start(command, cancel, scratch, |_| {});
    }
    // Landlock restricts the calling thread and its children permanently, so a separate thread
    // takes the restrictions on.
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            if let Err(error) = restrict(writable) {
                tracing::warn!(%error, "the unpacker runs without Landlock");
            }
            process::start(command, cancel, scratch, |_| {})
        });
        starter
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("starting a program panicked")))
    })
}

fn restrict(writable: &Path) -> Result<(), RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(RULES)))?
        .add_rules(path_beneath_rules([writable], AccessFs::from_all(RULES)))?
        .restrict_self()
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cage_holds() {
        if Privilege::detect() == Privilege::User {
            println!("SKIP: an ordinary user's cage is the user namespace");
            return;
        }
        let inside = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let script =
            "echo fine > \"$1/file\" && ln \"$1/file\" \"$1/link\" && ! echo bad > \"$2/file\"";
        command.args(["-c", script, "sh"]);
        command.args([inside.path(), outside.path()]);
        let cancel = Cancel::default();
        let mut running = start(
            command,
            Privilege::Root,
            &cancel,
            Path::new("/tmp"),
            inside.path(),
        )
        .unwrap();
        drop(running.take_stdin());
        drop(running.take_stdout());
        let exit = running.finish().unwrap();
        assert!(exit.status.success(), "{}", exit.tail);
        assert!(!outside.path().join("file").exists());
        // The thread of this test is not restricted.
        std::fs::write(outside.path().join("file"), "x").unwrap();
    }
}
