//! Tries to escape from a machine, one way after another, from inside.
//!
//! Prints one line per attempt: a name, and `ok` or the errno. The tests run it in a machine and
//! expect no `ok` at all. On a host it does nothing lasting, but most attempts succeed there.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step ends the program, and should"
)]

use std::ffi::CString;
use std::os::fd::AsRawFd;

/// Makes a system call with plain numbers and pointers to live, static data.
fn call(number: i64, args: &[u64]) -> Result<i64, i32> {
    let arg = |index: usize| args.get(index).copied().unwrap_or(0);
    // SAFETY: every pointer passed here is null or to data that lives for the whole program.
    let result = unsafe { libc::syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    if result < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(result)
    }
}

/// A leaked C string.
fn text(text: &str) -> u64 {
    CString::new(text).unwrap().into_raw() as u64
}

fn say(name: &str, result: Result<i64, i32>) {
    match result {
        Ok(_) => println!("{name} ok"),
        Err(errno) => println!("{name} {errno}"),
    }
}

const ZEROES: [u64; 64] = [0; 64];

fn zeroes() -> u64 {
    ZEROES.as_ptr() as u64
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("inotify") {
        return use_up_inotify();
    }
    if std::env::args().nth(1).as_deref() == Some("aio") {
        return use_up_asynchronous_files();
    }
    if let [_, what, path] = &std::env::args().collect::<Vec<_>>()[..]
        && what == "directory"
    {
        return write_to_directory(path);
    }
    mounts();
    namespaces();
    kernel();
    processes();
    devices();
    sockets();
    other_abis();
    host_wide();
    chroot_and_back();
}

/// A directory that is to be read only: ways to change it and to be rid of its mount.
fn write_to_directory(path: &str) {
    reach_what_listens(std::path::Path::new(path));
    let (at, file, new) = (
        text(path),
        text(&format!("{path}/plain")),
        text(&format!("{path}/new")),
    );
    let (cwd, away) = (libc::AT_FDCWD as u64, text("/tmp/away"));
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_TRUNC] {
        say("open", call(libc::SYS_openat, &[cwd, file, flags as u64]));
    }
    let unnamed = (libc::O_RDWR | libc::O_TMPFILE) as u64;
    let (rmdir, detach) = (libc::AT_REMOVEDIR as u64, libc::MNT_DETACH as u64);
    let writable = libc::MS_REMOUNT | libc::MS_BIND;
    let clear = Box::leak(Box::new([0u64, libc::MOUNT_ATTR_RDONLY, 0, 0]));
    let clear = clear.as_ptr() as u64;
    let copy = u64::from(libc::OPEN_TREE_CLONE);
    let attempts: [(&str, i64, &[u64]); 16] = [
        ("unnamed", libc::SYS_openat, &[cwd, at, unnamed, 0o600]),
        ("truncate", libc::SYS_truncate, &[file, 0]),
        ("chmod", libc::SYS_fchmodat, &[cwd, file, 0o777]),
        ("chown", libc::SYS_fchownat, &[cwd, file, 0, 0, 0]),
        ("utimens", libc::SYS_utimensat, &[cwd, file, 0, 0]),
        (
            "setxattr",
            libc::SYS_setxattr,
            &[file, text("user.x"), at, 1, 0],
        ),
        ("unlink", libc::SYS_unlinkat, &[cwd, file, 0]),
        ("rename", libc::SYS_renameat, &[cwd, file, cwd, new]),
        ("link", libc::SYS_linkat, &[cwd, file, cwd, new, 0]),
        ("mkdir", libc::SYS_mkdirat, &[cwd, new, 0o755]),
        ("rmdir", libc::SYS_unlinkat, &[cwd, at, rmdir]),
        ("move_place", libc::SYS_renameat, &[cwd, at, cwd, away]),
        ("umount", libc::SYS_umount2, &[at, detach]),
        (
            "remount",
            libc::SYS_mount,
            &[zeroes(), at, zeroes(), writable, 0],
        ),
        ("setattr", libc::SYS_mount_setattr, &[cwd, at, 0, clear, 32]),
        ("open_tree", libc::SYS_open_tree, &[cwd, at, copy]),
    ];
    for (name, number, args) in attempts {
        say(name, call(number, args));
    }
    lease(file);
}

/// A lease makes everybody wait who opens the file on the host, for as long as it is taken again.
fn lease(file: u64) {
    const F_SETDELEG: u64 = 1040;
    let cwd = libc::AT_FDCWD as u64;
    let open = call(libc::SYS_openat, &[cwd, file, libc::O_RDONLY as u64]);
    let Ok(fd) = open else {
        return say("lease_open", open);
    };
    for (name, command) in [("lease", libc::F_SETLEASE as u64), ("deleg", F_SETDELEG)] {
        let arguments = [fd as u64, command, libc::F_WRLCK as u64];
        say(name, call(libc::SYS_fcntl, &arguments));
    }
}

/// Sockets and a pipe in a directory, which a read-only mount does not close.
fn reach_what_listens(at: &std::path::Path) {
    use std::os::unix::net::{UnixDatagram, UnixStream};
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or_default();
    let stream = UnixStream::connect(at.join("socket"));
    say("connect", stream.map(|_| 0).map_err(errno));
    let from = UnixDatagram::unbound();
    let sent = from.and_then(|from| from.send_to(b"x", at.join("socket")));
    say("send_to", sent.map(|_| 0).map_err(errno));
    let fifo = std::fs::File::options().write(true).open(at.join("fifo"));
    say("open_fifo", fifo.map(|_| 0).map_err(errno));
}

/// Host-wide resources, and ways around the machine's limits.
fn host_wide() {
    starve_the_guest();
    // More than the half of the host's pool that machines may have.
    say("io_setup", begin_context(1 << 30).map(|_| 0));
    let (all, flags) = (
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_NORESERVE) as u64,
    );
    let nowhere = -1i64 as u64;
    let huge = [0, 1 << 21, all, flags, nowhere];
    say("mmap_huge", call(libc::SYS_mmap, &huge));
    let huge = [text("x"), u64::from(libc::MFD_HUGETLB)];
    say("memfd_huge", call(libc::SYS_memfd_create, &huge));
    let huge = [0, 1 << 21, (libc::SHM_HUGETLB | libc::IPC_CREAT) as u64];
    say("shm_huge", call(libc::SYS_shmget, &huge));
}

/// Limits and priorities of whoever keeps the time of commands: the guest, by each of its threads,
/// and the shim above this program.
fn starve_the_guest() {
    const LAST_THREAD: u64 = 16;
    const WITHOUT_LOWER_HALF: u64 = 1 << 32;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let nowhere = -1i64 as u64;
    let page = [WITHOUT_LOWER_HALF, 4096, 3, flags as u64, nowhere, 0];
    let placed = call(libc::SYS_mmap, &page).is_ok();
    // SAFETY: getppid takes nothing and cannot fail.
    let shim = unsafe { libc::getppid() } as u64;
    for task in (1..=LAST_THREAD).chain([shim]) {
        let limit = |new| [task, libc::RLIMIT_NOFILE as u64, new];
        say("prlimit", call(libc::SYS_prlimit64, &limit(zeroes())));
        if placed {
            let new = limit(WITHOUT_LOWER_HALF);
            say("prlimit_placed", call(libc::SYS_prlimit64, &new));
        }
    }
    let idle = [1, libc::SCHED_IDLE as u64, zeroes()];
    say("sched_idle", call(libc::SYS_sched_setscheduler, &idle));
    say(
        "sched_param",
        call(libc::SYS_sched_setparam, &[1, zeroes()]),
    );
    let one_cpu = Box::leak(Box::new([1u64])).as_ptr() as u64;
    say(
        "affinity",
        call(libc::SYS_sched_setaffinity, &[1, 8, one_cpu]),
    );
    // Size 48, SCHED_IDLE.
    let attributes = Box::leak(Box::new([48 | 5 << 32, 0u64, 0, 0, 0, 0]));
    let attributes = [1, attributes.as_ptr() as u64];
    say("sched_attr", call(libc::SYS_sched_setattr, &attributes));
    for (which, who) in [(0, 1), (1, 1), (2, 0)] {
        say("nice", call(libc::SYS_setpriority, &[which, who, 19]));
        say(
            "ioprio",
            call(libc::SYS_ioprio_set, &[which + 1, who, 3 << 13]),
        );
    }
}

/// Creates inotify instances until it fails, prints their number, and keeps them.
fn use_up_inotify() {
    let mut count = 0;
    let error = loop {
        match call(libc::SYS_inotify_init1, &[0]) {
            Ok(_) => count += 1,
            Err(errno) => break errno,
        }
    };
    println!("{count} {error}");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

/// A context of asynchronous file operations, which stays.
fn begin_context(operations: u64) -> Result<u64, i32> {
    let context = Box::leak(Box::new(0u64));
    let place = std::ptr::from_mut(context) as u64;
    call(libc::SYS_io_setup, &[operations, place]).map(|_| *context)
}

/// Reads a file by libaio's calls, then makes contexts until it fails, prints their number, and keeps them.
fn use_up_asynchronous_files() {
    const READ: u64 = 0;
    let path = "/tmp/asynchronous";
    std::fs::write(path, "read asynchronously").unwrap();
    let file = std::fs::File::open(path).unwrap();
    let context = begin_context(8).unwrap();
    let buffer = Box::leak(Box::new([0u8; 4]));
    // Of 64 bytes: data, key and flags, operation and priority and file, address, length, offset, and three that are unused.
    let what = READ | (file.as_raw_fd() as u64) << 32;
    let address = buffer.as_ptr() as u64;
    let order = Box::leak(Box::new([7, 0, what, address, 4, 0, 0, 0u64]));
    let orders = Box::leak(Box::new([order.as_ptr() as u64]));
    let submitted = call(libc::SYS_io_submit, &[context, 1, orders.as_ptr() as u64]);
    assert_eq!(submitted, Ok(1));
    let event = Box::leak(Box::new([0u64; 4]));
    let place = std::ptr::from_mut(event) as u64;
    assert_eq!(
        call(libc::SYS_io_getevents, &[context, 1, 1, place, 0]),
        Ok(1)
    );
    // SAFETY: the kernel has written there since; the buffer is leaked and so lives on.
    let read = unsafe { std::ptr::read_volatile(buffer.as_ptr().cast::<[u8; 4]>()) };
    let mut count = 0;
    let error = loop {
        match begin_context(1024) {
            Ok(_) => count += 1,
            Err(errno) => break errno,
        }
    };
    println!("{} {count} {error}", String::from_utf8_lossy(&read));
    std::thread::sleep(std::time::Duration::from_secs(600));
}

fn mounts() {
    let here = -100i64 as u64;
    let (none, tmp, dot) = (text("none"), text("/tmp"), text("."));
    let tmpfs = text("tmpfs");
    say("mount", call(libc::SYS_mount, &[none, tmp, tmpfs]));
    let remount = libc::MS_REMOUNT | libc::MS_BIND;
    let sys = text("/proc/sys");
    say("remount", call(libc::SYS_mount, &[none, sys, 0, remount]));
    say("umount", call(libc::SYS_umount2, &[sys, 2]));
    say("pivot_root", call(libc::SYS_pivot_root, &[dot, dot]));
    say(
        "open_tree",
        call(libc::SYS_open_tree, &[here, text("/"), 1]),
    );
    say(
        "move_mount",
        call(libc::SYS_move_mount, &[here, tmp, here, tmp]),
    );
    say("fsopen", call(libc::SYS_fsopen, &[tmpfs]));
    let setattr = [here, text("/"), 0, zeroes(), 32];
    say("mount_setattr", call(libc::SYS_mount_setattr, &setattr));
    let cgroup = text("cgroup");
    let memory = text("memory");
    say(
        "mount_cgroup",
        call(libc::SYS_mount, &[none, tmp, cgroup, 0, memory]),
    );
}

fn namespaces() {
    for (name, flag) in [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("net", libc::CLONE_NEWNET),
    ] {
        let unshared = call(libc::SYS_unshare, &[flag as u64]);
        say(&format!("unshare_{name}"), unshared);
        let cloned = call(libc::SYS_clone, &[(flag | libc::SIGCHLD) as u64]);
        if cloned == Ok(0) {
            std::process::exit(0);
        }
        say(&format!("clone_{name}"), cloned);
    }
    let mut args = [0u64; 8];
    args[0] = libc::CLONE_NEWUSER as u64;
    let args = Box::leak(Box::new(args));
    let cloned = call(libc::SYS_clone3, &[args.as_ptr() as u64, 64]);
    if cloned == Ok(0) {
        std::process::exit(0);
    }
    say("clone3", cloned);
    if let Ok(file) = std::fs::File::open("/proc/self/ns/user") {
        say(
            "setns",
            call(libc::SYS_setns, &[file.as_raw_fd() as u64, 0]),
        );
    }
}

fn kernel() {
    let (name, here) = (text("x"), -100i64 as u64);
    say("bpf", call(libc::SYS_bpf, &[5, zeroes(), 64]));
    say("keyctl", call(libc::SYS_keyctl, &[0, -3i64 as u64, 1]));
    let user = text("user");
    say(
        "add_key",
        call(libc::SYS_add_key, &[user, name, name, 1, -3i64 as u64]),
    );
    say("request_key", call(libc::SYS_request_key, &[user, name]));
    say("userfaultfd", call(libc::SYS_userfaultfd, &[1]));
    say(
        "io_uring",
        call(
            libc::SYS_io_uring_setup,
            &[4, Box::leak(Box::new([0u64; 32])).as_mut_ptr() as u64],
        ),
    );
    say(
        "perf",
        call(
            libc::SYS_perf_event_open,
            &[zeroes(), 0, -1i64 as u64, -1i64 as u64],
        ),
    );
    let mut handle = Box::new([0u32; 40]);
    handle[0] = 128;
    let handle = Box::leak(handle).as_mut_ptr() as u64;
    let id = Box::leak(Box::new(0u64)) as *mut u64 as u64;
    say(
        "name_to_handle",
        call(libc::SYS_name_to_handle_at, &[here, text("/"), handle, id]),
    );
    say(
        "open_by_handle",
        call(libc::SYS_open_by_handle_at, &[here, handle, 0]),
    );
    say(
        "init_module",
        call(libc::SYS_init_module, &[zeroes(), 8, name]),
    );
    say("finit_module", call(libc::SYS_finit_module, &[0, name]));
    say("delete_module", call(libc::SYS_delete_module, &[name]));
    say("kexec", call(libc::SYS_kexec_load, &[0, 0, 0]));
    // The harmless command: makes Ctrl-Alt-Del send a signal instead of rebooting.
    say(
        "reboot",
        call(libc::SYS_reboot, &[0xfee1_dead, 672_274_793, 0]),
    );
    say("swapon", call(libc::SYS_swapon, &[text("/tmp/none")]));
    say("acct", call(libc::SYS_acct, &[text("/tmp/none")]));
    say("syslog", call(libc::SYS_syslog, &[3, zeroes(), 0]));
    say(
        "quotactl",
        call(libc::SYS_quotactl, &[0x80_0004 << 8, name]),
    );
    say("sethostname", call(libc::SYS_sethostname, &[name, 1]));
    say("settimeofday", call(libc::SYS_settimeofday, &[zeroes(), 0]));
    #[cfg(target_arch = "x86_64")]
    {
        say("iopl", call(libc::SYS_iopl, &[3]));
        say("ioperm", call(libc::SYS_ioperm, &[0x80, 1, 1]));
    }
}

fn processes() {
    const SEIZE: u64 = 0x4206;
    say("ptrace_init", call(libc::SYS_ptrace, &[SEIZE, 1, 0, 0]));
    let buffer = Box::leak(Box::new([0u64; 2])) as *mut [u64; 2] as u64;
    let local = Box::leak(Box::new([buffer, 16])).as_ptr() as u64;
    let remote = Box::leak(Box::new([0x1000u64, 16])).as_ptr() as u64;
    say(
        "read_init",
        call(libc::SYS_process_vm_readv, &[1, local, 1, remote, 1]),
    );
    if let Ok(pidfd) = call(libc::SYS_pidfd_open, &[1]) {
        say(
            "pidfd_getfd",
            call(libc::SYS_pidfd_getfd, &[pidfd as u64, 0]),
        );
    }
    say("kcmp", call(libc::SYS_kcmp, &[1, 1, 0, 0, 0]));
    for file in [
        "mem", "environ", "root/etc", "cwd/etc", "fd/0", "maps", "stack",
    ] {
        let opened = std::fs::File::open(format!("/proc/1/{file}"));
        let result = opened.map(|_| 0).map_err(|e| e.raw_os_error().unwrap_or(0));
        say(&format!("open_init_{}", file.replace('/', "_")), result);
    }
    let exe = std::fs::File::options().write(true).open("/proc/1/exe");
    let result = exe.map(|_| 0).map_err(|e| e.raw_os_error().unwrap_or(0));
    say("write_init_exe", result);
}

fn devices() {
    for (name, kind, major, minor) in [
        ("mknod_disk", libc::S_IFBLK, 254, 0),
        ("mknod_mem", libc::S_IFCHR, 1, 1),
        ("mknod_null", libc::S_IFCHR, 1, 3),
    ] {
        let path = text(&format!("/tmp/{name}"));
        let device = libc::makedev(major, minor);
        let args = [-100i64 as u64, path, u64::from(kind | 0o600), device];
        say(name, call(libc::SYS_mknodat, &args));
    }
    if let Ok(terminal) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/ptmx")
    {
        const TIOCSTI: u64 = 0x5412;
        const TIOCLINUX: u64 = 0x541c;
        let fd = terminal.as_raw_fd() as u64;
        say("tiocsti", call(libc::SYS_ioctl, &[fd, TIOCSTI, text("x")]));
        // The kernel uses only the lower 32 bits; so must the filter.
        say(
            "tiocsti_high",
            call(libc::SYS_ioctl, &[fd, TIOCSTI | 1 << 32, text("x")]),
        );
        say(
            "tioclinux",
            call(libc::SYS_ioctl, &[fd, TIOCLINUX, text("\u{2}")]),
        );
    }
}

fn sockets() {
    const RAW: u64 = 3;
    const STREAM: u64 = 1;
    for (name, family, kind, protocol) in [
        ("packet", 17, RAW, 0),
        ("vsock", 40, STREAM, 0),
        ("alg", 38, 5, 0),
        ("bluetooth", 31, RAW, 1),
        ("raw_ip", 2, RAW, 1),
        ("netfilter", 16, RAW, 12),
        ("xfrm", 16, RAW, 6),
        ("connector", 16, 2, 11),
    ] {
        let result = call(libc::SYS_socket, &[family, kind, protocol]);
        say(&format!("socket_{name}"), result);
    }
}

fn other_abis() {
    const X32: i64 = 0x4000_0000;
    say("x32", call(X32 | libc::SYS_getpid, &[]));
    #[cfg(target_arch = "x86_64")]
    say("i386", i386());
}

/// A 32-bit system call in a child, which must be killed by it.
#[cfg(target_arch = "x86_64")]
fn i386() -> Result<i64, i32> {
    let child = call(libc::SYS_fork, &[])?;
    if child == 0 {
        let mut result: u32 = 20;
        // SAFETY: getpid through the old gate touches nothing but its result.
        unsafe { std::arch::asm!("int 0x80", inout("eax") result) };
        std::process::exit(i32::from(result == 0));
    }
    let status = Box::leak(Box::new(0i32));
    call(
        libc::SYS_wait4,
        &[child as u64, std::ptr::from_mut(status) as u64],
    )?;
    if libc::WIFSIGNALED(*status) {
        Err(libc::WTERMSIG(*status))
    } else {
        Ok(0)
    }
}

/// The classic escape: keep a descriptor of the old root across a chroot and walk up from it.
fn chroot_and_back() {
    let Ok(root) = std::fs::File::open("/") else {
        return;
    };
    let _ = std::fs::create_dir("/tmp/jail");
    if let Err(errno) = call(libc::SYS_chroot, &[text("/tmp/jail")]) {
        return say("chroot_escape", Err(errno));
    }
    let _ = call(libc::SYS_fchdir, &[root.as_raw_fd() as u64]);
    for _ in 0..32 {
        let _ = call(libc::SYS_chdir, &[text("..")]);
    }
    let _ = call(libc::SYS_chroot, &[text(".")]);
    let marker = std::env::args().nth(1).unwrap_or("/etc/shadow".into());
    let opened = std::fs::File::open(marker);
    let result = opened.map(|_| 0).map_err(|e| e.raw_os_error().unwrap_or(0));
    say("chroot_escape", result);
}
