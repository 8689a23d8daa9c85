//! Users and groups from the machine's `/etc/passwd` and `/etc/group`, parsed leniently and within
//! bounds. The files are never changed.

use crate::answer::{Failed, Quoted};
use crate::lock::locked;
use motu_link::message::Failure;
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

/// How much of each file is read.
const MAX_FILE: u64 = 1024 * 1024;
/// Supplementary groups of one user (the kernel's own limit is 65536).
const MAX_GROUPS: usize = 256;

/// A user as a process sees itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub name: String,
    pub home: Vec<u8>,
    pub shell: Vec<u8>,
}

#[derive(Debug, Default)]
struct Database {
    users: Vec<Account>,
    groups: Vec<Group>,
    user_names: HashMap<u32, String>,
    group_names: HashMap<u32, String>,
}

#[derive(Debug)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
    home: Vec<u8>,
    shell: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// The parsed files, read again when they change.
#[derive(Debug, Default)]
pub struct Users {
    cached: Mutex<Option<(Version, Arc<Database>)>>,
}

/// Metadata of both files; unequal after a change.
type Version = [(u64, i64, i64, i64); 2];

/// User and group names for one listing.
#[derive(Debug)]
pub struct Names(Arc<Database>);

impl Names {
    pub fn user(&self, uid: u32) -> String {
        self.0.user_names.get(&uid).cloned().unwrap_or_default()
    }

    pub fn group(&self, gid: u32) -> String {
        self.0.group_names.get(&gid).cloned().unwrap_or_default()
    }
}

impl Users {
    /// Finds a user: a name, a uid, `name:group` or `uid:gid`. Empty: whoever the guest is.
    pub fn find(&self, wanted: &str) -> Result<Identity, Failed> {
        let database = self.database();
        if wanted.is_empty() {
            return Ok(database.by_uid(rustix::process::geteuid().as_raw(), None));
        }
        let (user, group) = match wanted.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (wanted, None),
        };
        let gid = group.map(|group| database.gid(group)).transpose()?;
        if let Some(account) = database.users.iter().find(|account| account.name == user) {
            return Ok(database.identity(account, gid));
        }
        match user.parse::<u32>() {
            // The id -1 means "no change" to the kernel.
            Ok(uid) if uid != u32::MAX => Ok(database.by_uid(uid, gid)),
            _ if user == "root" => Ok(database.by_uid(0, gid)),
            _ => Err(Failed::new(
                Failure::NoUser,
                format!("no user {} in this machine", Quoted(user.as_bytes())),
            )),
        }
    }

    pub fn names(&self) -> Names {
        Names(self.database())
    }

    fn database(&self) -> Arc<Database> {
        let version = [version("/etc/passwd"), version("/etc/group")];
        let mut cached = locked(&self.cached);
        if let Some((known, database)) = &*cached
            && *known == version
        {
            return database.clone();
        }
        let database = Arc::new(Database::parse(&read("/etc/passwd"), &read("/etc/group")));
        *cached = Some((version, database.clone()));
        database
    }
}

impl Database {
    fn parse(passwd: &[u8], group: &[u8]) -> Database {
        let mut database = Database::default();
        for line in passwd.split(|byte| *byte == b'\n') {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
            let [name, _, uid, gid, _, home, rest @ ..] = &fields[..] else {
                continue;
            };
            let (Some(name), Some(uid), Some(gid)) = (text(name), number(uid), number(gid)) else {
                continue;
            };
            database
                .user_names
                .entry(uid)
                .or_insert_with(|| name.clone());
            let shell = rest.first().copied().unwrap_or_default().to_vec();
            database.users.push(Account {
                name,
                uid,
                gid,
                home: home.to_vec(),
                shell,
            });
        }
        for line in group.split(|byte| *byte == b'\n') {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
            let [name, _, gid, rest @ ..] = &fields[..] else {
                continue;
            };
            let (Some(name), Some(gid)) = (text(name), number(gid)) else {
                continue;
            };
            database
                .group_names
                .entry(gid)
                .or_insert_with(|| name.clone());
            let members = rest.first().copied().unwrap_or_default();
            let members = members
                .split(|byte| *byte == b',')
                .filter_map(text)
                .collect();
            database.groups.push(Group { name, gid, members });
        }
        database
    }

    fn gid(&self, group: &str) -> Result<u32, Failed> {
        if let Some(found) = self.groups.iter().find(|known| known.name == group) {
            return Ok(found.gid);
        }
        match group.parse::<u32>() {
            Ok(gid) if gid != u32::MAX => Ok(gid),
            _ => Err(Failed::new(
                Failure::NoUser,
                format!("no group {} in this machine", Quoted(group.as_bytes())),
            )),
        }
    }

    fn by_uid(&self, uid: u32, gid: Option<u32>) -> Identity {
        match self.users.iter().find(|account| account.uid == uid) {
            Some(account) => self.identity(account, gid),
            None => Identity {
                uid,
                gid: gid.unwrap_or(uid),
                groups: Vec::new(),
                name: if uid == 0 {
                    "root".into()
                } else {
                    uid.to_string()
                },
                home: if uid == 0 {
                    b"/root".to_vec()
                } else {
                    b"/".to_vec()
                },
                shell: b"/bin/sh".to_vec(),
            },
        }
    }

    fn identity(&self, account: &Account, gid: Option<u32>) -> Identity {
        let gid = gid.unwrap_or(account.gid);
        let mut groups: Vec<u32> = self
            .groups
            .iter()
            .filter(|group| group.members.contains(&account.name))
            .map(|group| group.gid)
            .chain([gid])
            .take(MAX_GROUPS)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        let or = |value: &[u8], default: &[u8]| {
            if value.is_empty() {
                default.to_vec()
            } else {
                value.to_vec()
            }
        };
        Identity {
            uid: account.uid,
            gid,
            groups,
            name: account.name.clone(),
            home: or(&account.home, b"/"),
            shell: or(&account.shell, b"/bin/sh"),
        }
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty()).then(|| text.to_string())
}

fn number(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn version(path: &str) -> (u64, i64, i64, i64) {
    match rustix::fs::stat(path) {
        Ok(stat) => (
            stat.st_ino,
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec as i64,
        ),
        Err(_) => (0, 0, 0, 0),
    }
}

/// Reads a file that the sandbox may have replaced by anything (FIFO, device, huge file).
fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let Ok(fd) = rustix::fs::open(path, flags, Mode::empty()) else {
        return bytes;
    };
    let stat = rustix::fs::fstat(&fd)
        .ok()
        .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    // Allocate once, if the size is right.
    let size = stat.map_or(0, |stat| stat.st_size as u64);
    bytes.reserve_exact(size.min(MAX_FILE) as usize + 1);
    if stat.is_some()
        && std::fs::File::from(fd)
            .take(MAX_FILE)
            .read_to_end(&mut bytes)
            .is_err()
    {
        bytes.clear();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_accounts_are_skipped() {
        let passwd = b"\n#x\nroot:x:0:0:root:/root:/bin/bash\nbad:x:no:0::/:\ndev:x:1000:1000:,,,:/home/dev\n\xff:x:1:1::/:/\n";
        let group = b"docker:x:999:dev,other\nroot:x:0:\nbroken\ndev:x:1000:\n";
        let database = Database::parse(passwd, group);
        assert_eq!(database.users.len(), 2);
        let dev = database.by_uid(1000, None);
        assert_eq!(
            (dev.name.as_str(), &dev.home[..], &dev.shell[..]),
            ("dev", &b"/home/dev"[..], &b"/bin/sh"[..])
        );
        assert_eq!(dev.groups, [999, 1000]);
        assert_eq!(database.by_uid(7, None).gid, 7);
        assert_eq!(database.gid("docker").unwrap(), 999);
        assert!(database.gid("nobody-here").is_err());
    }

    #[test]
    fn numbers_need_no_account() {
        let users = Users::default();
        let found = users.find("12345:54321").unwrap();
        assert_eq!((found.uid, found.gid), (12345, 54321));
        assert!(users.find("4294967295").is_err());
        assert!(users.find("no such user").is_err());
        assert_eq!(users.find("0").unwrap().uid, 0);
    }
}
