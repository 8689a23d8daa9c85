//! A root of its own for QEMU, in namespaces of its own.
//!
//! ```text
//!   /usr (and what else programs are made of)  the host's, read-only
//!   /proc      its own processes and nothing else
//!   /machine   the machine's directory, where it works
//!   /dev/kvm   a private node, where the machine uses KVM
//! ```
//!
//! An ordinary user's QEMU has the same in a user namespace in which it is still that user, with two differences: only the
//! host shows processes there (a `/proc` of its own needs a process namespace), and the node of KVM is the host's.
//!
//! Made between fork and exec, by system calls alone: every name is prepared before. The new
//! root is put together on top of `/dev`, which every host has and nobody looks into meanwhile.
//! QEMU has no process namespace: the first process of one cannot be ended by its leash.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Where the new root is put together.
const ROOT: &CStr = c"/dev";
const ROOT_OPTIONS: &CStr = c"size=256k,nr_inodes=128,mode=0755";
const PROC_OPTIONS: &CStr = c"hidepid=2,subset=pid";
/// `/dev/kvm`.
const KVM: (u32, u32) = (10, 232);
/// What programs are made of: shown, or linked as on the host.
const PARTS: [&str; 7] = [
    "/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin",
];
/// Where the loader looks libraries up.
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// Capabilities by number: without them there is no jail.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_MKNOD: u32 = 27;

/// Something in the new root.
#[derive(Debug)]
enum Item {
    Directory(CString),
    /// A directory of the host, read-only.
    Shown(CString, CString),
    /// A file of the host, read-only.
    File(CString, CString),
    Link(CString, CString),
}

/// The number under which an ordinary user's QEMU holds the node of KVM while its root is made.
const KVM_FD: libc::c_int = 198;
const KVM_HELD: &CStr = c"/proc/self/fd/198";
const KVM_PLACE: &CStr = c"/dev/dev/kvm";

/// The node of KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kvm {
    Without,
    /// A private one, and whose it is. Only root makes one.
    Private((u32, u32)),
    /// The host's.
    Shown,
}

/// A root to be.
#[derive(Debug)]
pub(crate) struct Jail {
    items: Vec<Item>,
    kvm: Kvm,
    /// The id maps of an ordinary user, who stays who they are.
    maps: Option<[CString; 2]>,
}

/// Whether this process may make a jail.
pub(crate) fn possible() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let needed = 1u64 << CAP_SYS_ADMIN | 1u64 << CAP_MKNOD;
    rustix::process::geteuid().is_root() && held.is_some_and(|held| held & needed == needed)
}

/// Whether this process may make a node of its own in it: root of a rootless engine's container has the capability, and
/// makes none.
pub(crate) fn makes_nodes() -> bool {
    possible() && !motu_local::nested::is_rootless()
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The place of a path of the host in the new root.
fn inside(path: &Path) -> io::Result<CString> {
    let below = path.strip_prefix("/").unwrap_or(path);
    text(&Path::new("/dev").join(below))
}

impl Jail {
    /// What a program of an ordinary user needs.
    pub(crate) fn of_user(program: &Path, kvm: Kvm) -> io::Result<Jail> {
        let same = |id: u32| CString::new(format!("{id} {id} 1\n"));
        let maps = [
            same(rustix::process::geteuid().as_raw())?,
            same(rustix::process::getegid().as_raw())?,
        ];
        Ok(Jail {
            maps: Some(maps),
            ..Jail::new(program, kvm)?
        })
    }

    /// What a program needs.
    pub(crate) fn new(program: &Path, kvm: Kvm) -> io::Result<Jail> {
        let mut items = Vec::new();
        for name in ["/proc", "/machine", "/dev", "/etc"] {
            items.push(Item::Directory(inside(Path::new(name))?));
        }
        let cache = Path::new(LOADER_CACHE);
        if cache.is_file() {
            items.push(Item::File(text(cache)?, inside(cache)?));
        }
        for part in PARTS.map(Path::new) {
            if let Ok(target) = std::fs::read_link(part) {
                items.push(Item::Link(text(&target)?, inside(part)?));
            } else if part.is_dir() {
                items.push(Item::Shown(text(part)?, inside(part)?));
            }
        }
        // A program from elsewhere, such as /opt/qemu/bin, brings what is beside it.
        let real = program.canonicalize()?;
        if !PARTS.iter().any(|part| real.starts_with(part)) {
            let prefix = real
                .ancestors()
                .nth(2)
                .filter(|path| path.components().count() > 1);
            let prefix = prefix.ok_or(io::ErrorKind::NotFound)?;
            let mut above: Vec<&Path> = prefix.ancestors().skip(1).collect();
            above.pop();
            for directory in above.into_iter().rev() {
                items.push(Item::Directory(inside(directory)?));
            }
            items.push(Item::Shown(text(prefix)?, inside(prefix)?));
        }
        Ok(Jail {
            items,
            kvm,
            maps: None,
        })
    }

    /// Enters it; the working directory becomes `/machine`. Only makes system calls.
    pub(super) fn enter(&self) -> io::Result<()> {
        if let Some(maps) = &self.maps {
            become_alone(maps)?;
        }
        if self.kvm == Kvm::Shown {
            hold_kvm()?;
        }
        let namespaces =
            libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        // SAFETY: an integer.
        check(unsafe { libc::unshare(namespaces) })?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
        let plain = libc::MS_NOSUID | libc::MS_NOEXEC;
        let tmpfs = Some(c"tmpfs");
        mount(tmpfs, ROOT, tmpfs, plain, Some(ROOT_OPTIONS))?;
        for item in &self.items {
            item.make()?;
        }
        let closed = plain | libc::MS_NODEV;
        let proc = Some(c"proc");
        match self.maps {
            None => mount(proc, c"/dev/proc", proc, closed, Some(PROC_OPTIONS))?,
            Some(_) => {
                let whole = libc::MS_BIND | libc::MS_REC;
                mount(Some(c"/proc"), c"/dev/proc", None, whole, None)?;
            }
        }
        mount(Some(c"."), c"/dev/machine", None, libc::MS_BIND, None)?;
        remount(c"/dev/machine", closed)?;
        match self.kvm {
            Kvm::Without => {}
            Kvm::Private(owner) => private_kvm(owner)?,
            Kvm::Shown => {
                file(KVM_PLACE)?;
                mount(Some(KVM_HELD), KVM_PLACE, None, libc::MS_BIND, None)?;
            }
        }
        let here = c".".as_ptr();
        // SAFETY: constant names and integers. The old root is put on top of the new one and
        // taken away from there.
        unsafe {
            check(libc::chdir(ROOT.as_ptr()))?;
            check(libc::syscall(libc::SYS_pivot_root, here, here) as libc::c_int)?;
            check(libc::umount2(here, libc::MNT_DETACH))?;
        }
        remount(c"/", plain | libc::MS_RDONLY)?;
        // SAFETY: a constant name.
        check(unsafe { libc::chdir(c"/machine".as_ptr()) })
    }
}

/// A user namespace in which this process is who it was, and may mount.
fn become_alone(maps: &[CString; 2]) -> io::Result<()> {
    // SAFETY: an integer.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
    // Whoever is not root gives up groups before the map of groups counts.
    write_to(c"/proc/self/setgroups", c"deny")?;
    write_to(c"/proc/self/uid_map", &maps[0])?;
    write_to(c"/proc/self/gid_map", &maps[1])
}

fn write_to(path: &CStr, text: &CStr) -> io::Result<()> {
    // SAFETY: a live name; the bytes of a live text; the descriptor is closed at once.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(fd)?;
        let bytes = text.count_bytes();
        let written = check(libc::write(fd, text.as_ptr().cast(), bytes) as libc::c_int);
        libc::close(fd);
        written
    }
}

/// Opens the host's node of KVM before the new root hides it.
fn hold_kvm() -> io::Result<()> {
    // SAFETY: a constant name and integers.
    unsafe {
        let fd = libc::open(c"/dev/kvm".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        check(fd)?;
        check(libc::dup3(fd, KVM_FD, libc::O_CLOEXEC))
    }
}

fn private_kvm((user, group): (u32, u32)) -> io::Result<()> {
    let node = KVM_PLACE.as_ptr();
    // SAFETY: a constant name and integers.
    unsafe {
        let device = libc::makedev(KVM.0, KVM.1);
        check(libc::mknod(node, libc::S_IFCHR | 0o600, device))?;
        check(libc::chown(node, user, group))
    }
}

/// An empty file, to mount something on.
fn file(path: &CStr) -> io::Result<()> {
    // SAFETY: a live name and integers.
    check(unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o444, 0) })
}

impl Item {
    fn make(&self) -> io::Result<()> {
        let read_only = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        match self {
            Item::Directory(path) => directory(path),
            Item::Shown(from, to) => {
                directory(to)?;
                mount(Some(from), to, None, libc::MS_BIND | libc::MS_REC, None)?;
                remount(to, read_only)
            }
            Item::File(from, to) => {
                file(to)?;
                mount(Some(from), to, None, libc::MS_BIND, None)?;
                remount(to, read_only)
            }
            Item::Link(target, path) => {
                // SAFETY: live names.
                check(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) })
            }
        }
    }
}

fn directory(path: &CStr) -> io::Result<()> {
    // SAFETY: a live name and an integer.
    check(unsafe { libc::mkdir(path.as_ptr(), 0o755) })
}

fn remount(path: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let flags = libc::MS_REMOUNT | libc::MS_BIND | flags;
    mount(None, path, None, flags, None)
}

fn mount(
    from: Option<&CStr>,
    to: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    // SAFETY: live names or null, which the kernel ignores where there is nothing to say.
    check(unsafe {
        libc::mount(
            pointer(from),
            to.as_ptr(),
            pointer(kind),
            flags,
            pointer(options).cast(),
        )
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
