//! The command line of QEMU, as data.
//!
//! A machine that is booted and one that is restored have the same devices in
//! the same order; only where memory and state come from differs. All names
//! are relative to the machine's directory, and everything that must not be
//! found by name is handed over as a descriptor.

use crate::accel::Accelerator;
use crate::board::Board;
use crate::disks::{BASELINE, DISKS, disk_file, disk_node};
use crate::record::Shape;
use std::os::fd::RawFd;

pub(crate) const LINK_FD: RawFd = 100;
pub(crate) const TURN_FD: RawFd = 101;
pub(crate) const QMP_FD: RawFd = 102;
pub(crate) const RAM_FD: RawFd = 103;
pub(crate) const STATE_FD: RawFd = 104;
/// The reading end of the pipe for messages: with it QEMU never writes into a closed one.
pub(crate) const MESSAGES_FD: RawFd = 105;
/// The directory of disks that are kept.
pub(crate) const KEPT_FD: RawFd = 106;
pub(crate) const NEWS_FD: RawFd = 107;
/// What a machine holds that must not outlive us.
pub(crate) const LEASH_FD: RawFd = 108;
/// The machine's frames.
pub(crate) const NETWORK_FD: RawFd = 109;

pub(crate) const KERNEL: &str = "vmlinux";
pub(crate) const INITRAMFS: &str = "initramfs";
pub(crate) const CONSOLE: &str = "console.log";

/// What a machine of one owner can do without, whatever it runs on.
const COMMAND_LINE: &str = "panic=-1 \
     cryptomgr.notests random.trust_cpu=on audit=0 nowatchdog \
     lsm=landlock,yama psi=0 noautogroup cgroup.memory=nokmem,nosocket \
     transparent_hugepage=madvise";
/// What QEMU exits with when a machine's kernel has given up.
pub(crate) const PANICKED: i32 = 1;
const Q35: &str = "q35,hpet=off,smbus=off,sata=off,vmport=off,i8042=off,usb=off,\
     graphics=off,smm=off,suppress-vmdesc=on,memory-backend=ram";
/// Of an emulated aarch64: no host of that kind has made one yet.
const VIRT: &str = "virt,gic-version=max,suppress-vmdesc=on,memory-backend=ram";
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

impl Board {
    fn machine(self) -> &'static str {
        match self {
            Board::Q35 => Q35,
            Board::Virt => VIRT,
        }
    }

    fn console(self) -> &'static str {
        match self {
            Board::Q35 => "ttyS0",
            Board::Virt => "ttyAMA0",
        }
    }

    /// What the kernel is told for one accelerator. A word that a kernel does not know it hands to the guest, as an
    /// argument, so each architecture has its own.
    ///
    /// Emulation speculates about nothing, so mitigations guard nothing there, and every piece of kernel code that a copy
    /// meets for the first time is translated first, at about 10 µs each. Its timers and its TSC are QEMU's own: testing
    /// them takes time, and fails on a host that is busy.
    ///
    /// Under KVM the processor is a real one. The guest's kernel knows its errata, and guards users of the machine from
    /// each other. It knows KVM as well: it leaves out the test of the timer by itself, and takes the clock that KVM keeps
    /// right across a pause, a restore and a move between processors, instead of a TSC that it was told to trust.
    fn words(self, accel: Accelerator) -> &'static str {
        match (self, accel) {
            (Board::Q35, Accelerator::Tcg) => " mitigations=off no_timer_check tsc=reliable",
            (Board::Virt, Accelerator::Tcg) => " mitigations=off",
            (Board::Q35 | Board::Virt, Accelerator::Kvm) => "",
        }
    }

    /// The processor a machine sees. With KVM: the host's, without virtual machines of its own
    /// (nested ones are a door to the host's kernel) and without counters of events, which some
    /// hosts cannot restore. Under emulation on x86_64: what common programs are compiled for
    /// (x86-64-v2) and a random source, and nothing slower than that.
    fn processor(self, accel: Accelerator) -> &'static str {
        match (self, accel) {
            (Board::Q35, Accelerator::Kvm) => "host,-vmx,-svm,pmu=off",
            (Board::Q35, Accelerator::Tcg) => "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+rdrand",
            (Board::Virt, Accelerator::Kvm) => "host,pmu=off",
            (Board::Virt, Accelerator::Tcg) => "cortex-a72,pmu=off",
        }
    }
}

/// What a machine is besides its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    pub(crate) name: &'a str,
    pub(crate) board: Board,
    /// The name of the firmware, or its path.
    pub(crate) firmware: &'a str,
}

/// Where a machine's first instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The kernel, with memory that others will see.
    Boot,
    /// A saved state, with a private view of saved memory.
    Restore,
}

/// The whole command line.
pub(crate) fn arguments(
    build: Build<'_>,
    shape: &Shape,
    layer: u32,
    origin: Origin,
) -> Vec<String> {
    let mut line = Line::default();
    line.flags(&["-nodefaults", "-no-user-config"]);
    line.pair("-action", "reboot=shutdown,panic=exit-failure");
    line.pair("-display", "none");
    line.pair("-nic", "none");
    line.pair("-name", build.name);
    line.pair("-sandbox", SANDBOX);
    processor(&mut line, build, shape);
    memory(&mut line, shape, origin);
    match origin {
        Origin::Boot => {
            line.pair("-kernel", KERNEL);
            line.pair("-initrd", INITRAMFS);
            line.pair("-append", command_line(build.board, shape));
            line.pair("-chardev", format!("file,id=console,path={CONSOLE}"));
        }
        Origin::Restore => {
            // The state of the devices alone: memory is mapped, not loaded.
            line.pair("-global", "migration.send-configuration=off");
            line.pair("-incoming", format!("fd:{STATE_FD}"));
            line.pair("-chardev", "ringbuf,id=console,size=65536");
        }
    }
    match build.board {
        Board::Q35 => {
            line.pair("-device", "isa-serial,chardev=console");
            line.pair("-device", "pvpanic");
        }
        Board::Virt => {
            line.pair("-serial", "chardev:console");
            line.pair("-device", "pvpanic-pci");
        }
    }
    for disk in DISKS {
        writable(&mut line, disk, layer, shape);
    }
    if shape.kept {
        let file = disk_file(BASELINE, 0);
        let node = disk_node(BASELINE, 0);
        line.pair(
            "-blockdev",
            format!(
                "driver=qcow2,node-name={node},read-only=on,file.driver=file,file.filename={file}"
            ),
        );
        attach(&mut line, BASELINE, &node);
    }
    line.pair("-device", "virtio-serial-pci,id=serial,disable-legacy=on");
    port(&mut line, "link", motu_boot::LINK_PORT, LINK_FD);
    port(&mut line, "turn", motu_boot::TURN_PORT, TURN_FD);
    port(&mut line, "news", motu_boot::NEWS_PORT, NEWS_FD);
    if shape.network {
        network(&mut line);
    }
    let control = format!("socket,id=control,fd={QMP_FD},server=on,wait=off");
    line.pair("-chardev", control);
    line.pair("-mon", "chardev=control,mode=control");
    line.0
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(ToString::to_string));
    }

    fn pair(&mut self, flag: &str, value: impl Into<String>) {
        self.0.push(flag.to_string());
        self.0.push(value.into());
    }
}

fn processor(line: &mut Line, build: Build<'_>, shape: &Shape) {
    line.pair("-machine", build.board.machine());
    let accel = match shape.accel {
        Accelerator::Kvm => "kvm".to_string(),
        // The default cache of translated code is a gigabyte of address space per machine. Code for
        // one processor needs no care for others.
        Accelerator::Tcg if shape.vcpu_count == 1 => "tcg,tb-size=64,thread=single".to_string(),
        Accelerator::Tcg => "tcg,tb-size=64".to_string(),
    };
    line.pair("-accel", accel);
    line.pair("-cpu", build.board.processor(shape.accel));
    line.pair("-smp", shape.vcpu_count.to_string());
    if build.board == Board::Q35 {
        line.pair("-bios", build.firmware);
    }
}

fn memory(line: &mut Line, shape: &Shape, origin: Origin) {
    let share = match origin {
        Origin::Boot => "on",
        Origin::Restore => "off",
    };
    let mem = shape.mem_mib;
    line.pair("-m", mem.to_string());
    line.pair(
        "-object",
        format!(
            "memory-backend-file,id=ram,size={mem}M,mem-path=/proc/self/fd/{RAM_FD},share={share}"
        ),
    );
}

/// The path by which QEMU finds the file of a disk's generation.
pub(crate) fn disk_path(disk: &str, layer: u32, shape: &Shape) -> String {
    let file = disk_file(disk, layer);
    match shape.kept {
        true => kept_path(&file),
        false => file,
    }
}

/// A file beside the kept disks, as QEMU finds it.
pub(crate) fn kept_path(file: &str) -> String {
    format!("/proc/self/fd/{KEPT_FD}/{file}")
}

fn command_line(board: Board, shape: &Shape) -> String {
    let (console, words) = (board.console(), board.words(shape.accel));
    let mut text = format!("quiet console={console} {COMMAND_LINE}{words} -- init");
    let words = [
        (shape.kept, motu_boot::KEPT),
        (shape.network, motu_boot::NETWORK),
    ];
    for (_, word) in words.into_iter().filter(|(wanted, _)| *wanted) {
        text.push(' ');
        text.push_str(word);
    }
    text
}

fn writable(line: &mut Line, disk: &str, layer: u32, shape: &Shape) {
    let node = disk_node(disk, layer);
    let file = disk_path(disk, layer, shape);
    // Flushing is for what survives the machine; only kept disks do.
    let flush = match shape.kept {
        true => "",
        false => ",cache.no-flush=on",
    };
    line.pair(
        "-blockdev",
        format!("driver=qcow2,node-name={node}{flush},file.driver=file,file.filename={file}"),
    );
    attach(line, disk, &node);
}

fn attach(line: &mut Line, disk: &str, node: &str) {
    line.pair(
        "-device",
        format!("virtio-blk-pci,id={disk},drive={node},disable-legacy=on"),
    );
}

/// A device whose frames are messages of a socket: QEMU itself reaches nothing.
fn network(line: &mut Line) {
    let socket = format!("dgram,id=net,local.type=fd,local.str={NETWORK_FD}");
    line.pair("-netdev", socket);
    // Without a program of its own for booting from the network.
    line.pair(
        "-device",
        "virtio-net-pci,id=nic,netdev=net,disable-legacy=on,romfile=",
    );
}

fn port(line: &mut Line, name: &str, number: u32, fd: RawFd) {
    line.pair(
        "-chardev",
        format!("socket,id={name},fd={fd},server=on,wait=off"),
    );
    line.pair(
        "-device",
        format!("virtserialport,bus=serial.0,nr={number},chardev={name},name=motu.{name}"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(accel: Accelerator, kept: bool) -> Shape {
        Shape {
            accel,
            mem_mib: 256,
            vcpu_count: 2,
            disk_mib: 64,
            root_bytes: 1 << 30,
            kept,
            network: kept,
        }
    }

    fn build(board: Board) -> Build<'static> {
        Build {
            name: "x",
            board,
            firmware: "qboot.rom",
        }
    }

    /// One option and its value in a line.
    fn lines(board: Board, shape: &Shape, origin: Origin) -> String {
        let line = arguments(build(board), shape, 1, origin).join(" ");
        line.replace(" -", "\n-")
    }

    fn devices(origin: Origin, kept: bool) -> Vec<String> {
        let line = arguments(build(Board::Q35), &shape(Accelerator::Tcg, kept), 1, origin);
        let pairs = line.windows(2).filter(|pair| pair[0] == "-device");
        pairs.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn a_restored_machine_has_the_devices_of_the_booted_one() {
        for kept in [false, true] {
            assert_eq!(devices(Origin::Boot, kept), devices(Origin::Restore, kept));
            let network = devices(Origin::Boot, kept);
            assert_eq!(network.iter().any(|d| d.contains("net")), kept);
        }
    }

    /// What KVM hosts and hosts of another architecture would run: seen here, run there.
    #[test]
    fn command_lines_are_what_they_were() {
        let boards = [("q35", Board::Q35), ("virt", Board::Virt)];
        let accels = [Accelerator::Kvm, Accelerator::Tcg];
        for (name, board) in boards {
            for accel in accels {
                let boot = lines(board, &shape(accel, false), Origin::Boot);
                let restore = lines(board, &shape(accel, true), Origin::Restore);
                insta::assert_snapshot!(
                    format!("{name}_{}", accel.name()),
                    format!("{boot}\n\n{restore}")
                );
            }
        }
    }
}
