//! Ranges of ids of ordinary users: who has none, and the command that gives one.
//!
//! `unshare --map-auto` makes a user namespace of a user's whole range. It reports a user without one by the error number
//! of its last successful call ("no line matching user …: Success"), so its callers ask here first, and hand what it
//! says of other faults through [`plainly`].

use crate::{Need, install};
use std::fmt;
use std::path::Path;

/// Which users have which ids: of users, and of groups.
const FILES: [&str; 2] = ["/etc/subuid", "/etc/subgid"];
/// The first subordinate id on a Debian system.
const FIRST: u64 = 100_000;
/// How many ids a user is given.
const COUNT: u64 = 65_536;
/// The set-uid programs that write the maps.
const HELPERS: [&str; 2] = ["newuidmap", "newgidmap"];
/// Where these are when a daemon's search path leaves them out.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Why a user has no range of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRange {
    /// The program that would map it is not installed.
    Helper { program: &'static str },
    /// A file does not name the user.
    Unlisted {
        user: String,
        file: &'static str,
        /// The first id of an unused range.
        free: u64,
    },
    /// There is one, and the kernel or the program that maps it refuses.
    Refused {
        /// What a trial of it said.
        said: String,
    },
}

impl NoRange {
    /// The command that helps.
    pub fn fix(&self) -> String {
        match self {
            NoRange::Helper { .. } => install(Need::IdMap),
            NoRange::Unlisted { user, free, .. } => {
                let range = format!("{free}-{}", free + COUNT - 1);
                format!("usermod --add-subuids {range} --add-subgids {range} {user}")
            }
            NoRange::Refused { .. } => {
                "the check `namespaces` of `container` says what allows them".into()
            }
        }
    }

    /// The answer to a trial that failed and said this.
    pub fn refused(said: &[u8]) -> NoRange {
        NoRange::Refused {
            said: plainly(&String::from_utf8_lossy(said)),
        }
    }
}

impl fmt::Display for NoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRange::Helper { program } => write!(f, "the program {program} is not installed"),
            NoRange::Unlisted { user, file, .. } => {
                write!(f, "user {user} has no range of subordinate ids in {file}")
            }
            NoRange::Refused { said } => write!(f, "no user namespace can be made of it: {said}"),
        }
    }
}

impl std::error::Error for NoRange {}

/// Whether this user of the host has a range of ids, and the programs that map it.
pub fn check(uid: u32) -> Result<(), NoRange> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in HELPERS {
        let mut places = std::env::split_paths(&path).chain(PLACES.map(Into::into));
        if !places.any(|place| place.join(program).is_file()) {
            return Err(NoRange::Helper { program });
        }
    }
    let read = |file: &str| std::fs::read_to_string(Path::new(file)).unwrap_or_default();
    listed(uid, &read("/etc/passwd"), FILES.map(read))
}

fn listed(uid: u32, passwd: &str, texts: [String; 2]) -> Result<(), NoRange> {
    let user = user_name(passwd, uid).unwrap_or_else(|| uid.to_string());
    for (file, text) in FILES.into_iter().zip(&texts) {
        if !has_range(text, &user, uid) {
            let free = first_free(&texts);
            return Err(NoRange::Unlisted { user, file, free });
        }
    }
    Ok(())
}

/// What `unshare` or a program in its namespaces said, without an error number that is none.
pub fn plainly(said: &str) -> String {
    let lines = said.lines().map(|line| {
        let line = line.trim();
        line.strip_suffix(": Success").unwrap_or(line)
    });
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    })
}

fn has_range(text: &str, user: &str, uid: u32) -> bool {
    let uid = uid.to_string();
    text.lines().any(|line| {
        let mut fields = line.split(':');
        let owner = fields.next();
        let count = fields.nth(1).and_then(|count| count.trim().parse().ok());
        (owner == Some(user) || owner == Some(uid.as_str())) && count.unwrap_or(0_u64) > 0
    })
}

/// The first id above all ranges in these files and all ordinary users.
fn first_free(texts: &[String]) -> u64 {
    let end = |line: &str| {
        let mut fields = line.split(':').skip(1);
        let first: u64 = fields.next()?.trim().parse().ok()?;
        let count: u64 = fields.next()?.trim().parse().ok()?;
        first.checked_add(count)
    };
    let ends = texts.iter().flat_map(|text| text.lines()).filter_map(end);
    ends.fold(FIRST, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ranges_are_found_by_name_or_number() {
        let text = "ann:100000:65536\n1002:165536:65536\nbob:300000:0\n";
        assert!(has_range(text, "ann", 1001));
        assert!(has_range(text, "carl", 1002));
        assert!(!has_range(text, "bob", 1003));
        assert!(!has_range(text, "an", 100));
    }

    #[test]
    fn a_range_that_is_proposed_is_nobodys() {
        let (uids, gids) = (
            "ann:100000:65536\nbob:300000:65536\n",
            "x\n1:165536:65536\n",
        );
        assert_eq!(first_free(&[uids.into(), gids.into()]), 365_536);
        assert_eq!(first_free(&[String::new(), String::new()]), 100_000);
    }

    #[test]
    fn who_has_no_range_is_told_which_file_lacks_it_and_what_gives_one() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\n";
        let text = |text: &str| text.to_string();
        let ann = "ann:100000:65536\n";
        assert_eq!(listed(1001, passwd, [text(ann), text(ann)]), Ok(()));
        let lacks = listed(1001, passwd, [text(ann), text("")]).unwrap_err();
        assert_eq!(
            lacks.to_string(),
            "user ann has no range of subordinate ids in /etc/subgid"
        );
        assert_eq!(
            lacks.fix(),
            "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ann"
        );
        let lacks = listed(7, passwd, [text(ann), text(ann)]).unwrap_err();
        assert!(lacks.to_string().starts_with("user 7 has no"), "{lacks}");
        let helper = NoRange::Helper {
            program: "newuidmap",
        };
        assert_eq!(helper.fix(), install(Need::IdMap));
    }

    #[test]
    fn no_fault_is_worded_as_a_success() {
        assert_eq!(
            plainly("unshare: no line matching user \"ann\" in /etc/subuid: Success\n"),
            "unshare: no line matching user \"ann\" in /etc/subuid"
        );
        assert_eq!(
            plainly("newuidmap: not allowed\n\nunshare: failed: Operation not permitted\n"),
            "newuidmap: not allowed; unshare: failed: Operation not permitted"
        );
        assert_eq!(plainly(" \n"), "");
    }
}
