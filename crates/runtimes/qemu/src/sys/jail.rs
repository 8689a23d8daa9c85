//! A root of its own for QEMU, in namespaces of its own.
//!
//! ```text
//!   /usr (and what else programs are made of)  the host's, read-only
//!   /proc      its own processes and nothing else
//!   /machine   the machine's directory, where it works
//!   /dev/kvm   a private node, where the machine uses KVM
//! ```
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

/// A root to be.
#[derive(Debug)]
pub(crate) struct Jail {
    items: Vec<Item>,
    /// Whose the node of KVM is.
    kvm: Option<(u32, u32)>,
}

/// Whether this process may make a jail.
pub(crate) fn possible() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let needed = 1u64 << CAP_SYS_ADMIN | 1u64 << CAP_MKNOD;
    rustix::process::geteuid().is_root() && held.is_some_and(|held| held & needed == needed)
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
    /// What a program needs; `kvm` gets a node of KVM.
    pub(crate) fn new(program: &Path, kvm: Option<(u32, u32)>) -> io::Result<Jail> {
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
        Ok(Jail { items, kvm })
    }

    /// Enters it; the working directory becomes `/machine`. Only makes system calls.
    pub(super) fn enter(&self) -> io::Result<()> {
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
        mount(proc, c"/dev/proc", proc, closed, Some(PROC_OPTIONS))?;
        mount(Some(c"."), c"/dev/machine", None, libc::MS_BIND, None)?;
        remount(c"/dev/machine", closed)?;
        if let Some((user, group)) = self.kvm {
            let node = c"/dev/dev/kvm".as_ptr();
            // SAFETY: a constant name and integers.
            unsafe {
                let device = libc::makedev(KVM.0, KVM.1);
                check(libc::mknod(node, libc::S_IFCHR | 0o600, device))?;
                check(libc::chown(node, user, group))?;
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
                // SAFETY: a live name and integers.
                check(unsafe { libc::mknod(to.as_ptr(), libc::S_IFREG | 0o444, 0) })?;
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
