//! Machines of an ordinary user.
//!
//! The file systems are the same as root's, mounted in a user namespace in which the user's range of ids is 0 and up. A
//! process with threads cannot enter one, so programs of the host do what the daemon does itself when it is root:
//! `unshare` makes the namespace, a few lines of shell mount, and `runsc` goes on in their place.

use crate::mounts::Step;
use motu_packages::ids::{self, NoRange};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a namespace of one id, which fails at once where none may be made: with a range, the helper of a failed `unshare`
/// waits for ever.
const ALONE: [&str; 4] = ["unshare", "--map-root-user", "--", "true"];
/// Makes the namespaces. Mounts in them are private.
const UNSHARE: [&str; 4] = ["unshare", "--map-root-user", "--map-auto", "--mount"];
/// Directories by descriptor: a path may contain characters with a meaning in the option's syntax.
const SCRIPT: &str = r#"set -e
while [ "$1" != -- ]; do
    case $1 in
    overlay)
        exec 3<"$2" 4<"$3" 5<"$4"
        mount -t overlay -o "nodev,nosuid,userxattr,lowerdir=/proc/self/fd/3,upperdir=/proc/self/fd/4,workdir=/proc/self/fd/5" motu "$5"
        exec 3<&- 4<&- 5<&-
        shift 5 ;;
    bind)
        mount --bind "$2" "$3"
        shift 3 ;;
    esac
done
shift
exec "$@""#;

/// The words before the command line of `runsc` that mount what a machine needs.
pub(crate) fn words(steps: &[Step]) -> Vec<OsString> {
    let mut words: Vec<OsString> = UNSHARE.map(OsString::from).into();
    words.extend(["--", "sh", "-c", SCRIPT, "sh"].map(OsString::from));
    for step in steps {
        match step {
            // The namespace is private, and without root there are no disks.
            Step::Private | Step::Disk { .. } => {}
            Step::Overlay(overlay) => {
                words.push("overlay".into());
                let places = [&overlay.lower, &overlay.upper, &overlay.work, &overlay.at];
                words.extend(places.map(OsString::from));
            }
            Step::Memory { file } => {
                words.extend(["bind".into(), file.into(), "/proc/meminfo".into()]);
            }
        }
    }
    words.push("--".into());
    words
}

/// Whether this user has a range of ids, tried; else why not.
pub(crate) fn range() -> Result<(), NoRange> {
    ids::check(rustix::process::geteuid().as_raw())?;
    for mut tried in [plain(&ALONE), own(["true"])] {
        match tried.stderr(Stdio::piped()).output() {
            Ok(done) if done.status.success() => {}
            Ok(done) => return Err(NoRange::refused(&done.stderr)),
            Err(error) => {
                let said = format!("unshare: {error}");
                return Err(NoRange::Refused { said });
            }
        }
    }
    Ok(())
}

/// Removes what a machine left: its files belong to ids of the range.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let mut remove = own(["rm", "-rf", "--"]);
    let done = remove.arg(path).stderr(Stdio::piped()).output()?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = ids::plainly(&String::from_utf8_lossy(&done.stderr));
            Err(io::Error::other(said))
        }
    }
}

/// Every process of the host.
pub(crate) fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// A command to which everything of the user's range belongs.
fn own<const N: usize>(words: [&str; N]) -> Command {
    let mut command = plain(&UNSHARE);
    command.arg("--").args(words);
    command
}

fn plain(words: &[&str; 4]) -> Command {
    let [program, rest @ ..] = words;
    let mut command = Command::new(program);
    command
        .args(rest)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{Notes, Overlay};

    #[test]
    fn steps_are_words_of_their_own() {
        let overlay = Overlay {
            lower: "/a b".into(),
            upper: "/c:d".into(),
            work: "/e,f".into(),
            at: "/g".into(),
            notes: Notes::User,
        };
        let steps = [
            Step::Private,
            Step::Overlay(overlay),
            Step::Memory { file: "/m".into() },
        ];
        let words = words(&steps);
        let after: Vec<&str> = words
            .iter()
            .skip(9)
            .filter_map(|word| word.to_str())
            .collect();
        let wanted = [
            "overlay",
            "/a b",
            "/c:d",
            "/e,f",
            "/g",
            "bind",
            "/m",
            "/proc/meminfo",
            "--",
        ];
        assert_eq!(after, wanted);
    }
}
