//! A trial of KVM: one virtual processor runs a few 64-bit instructions.
//!
//! Where KVM is only partly there (nested, without hardware support) it
//! emulates kernel code one instruction at a time: simple ones work, slowly,
//! and those of the vector unit end the machine. The trial has both: vector
//! and bit-counting instructions, and a loop that must run at full speed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(crate) const DEVICE: &str = "/dev/kvm";
/// The verdict where there is no device at all.
pub(crate) const ABSENT: &str = "there is no /dev/kvm";

const API_VERSION: libc::c_int = 12;
const GET_API_VERSION: u32 = 0xae00;
const CREATE_VM: u32 = 0xae01;
const GET_VCPU_MMAP_SIZE: u32 = 0xae04;
const GET_SUPPORTED_CPUID: u32 = 0xc008_ae05;
const CREATE_VCPU: u32 = 0xae41;
const SET_USER_MEMORY_REGION: u32 = 0x4020_ae46;
const SET_TSS_ADDR: u32 = 0xae47;
const RUN: u32 = 0xae80;
const SET_REGS: u32 = 0x4090_ae82;
const GET_SREGS: u32 = 0x8138_ae83;
const SET_SREGS: u32 = 0x4138_ae84;
const SET_CPUID2: u32 = 0x4008_ae90;
const EXIT_IO: u32 = 2;
const EXIT_INTERNAL_ERROR: u32 = 17;

/// Guest memory: code, then three levels of page tables.
const MEMORY: usize = 2 << 20;
const CODE: usize = 0x1000;
const TABLES: usize = 0x2000;
const CPUID_ENTRIES: usize = 256;
/// A working processor needs a fraction of a millisecond for the loop.
const LOOP_TIME: Duration = Duration::from_millis(250);

const PROGRAM: [u8; 22] = [
    0xf3, 0x0f, 0xb8, 0xc1, // popcnt eax, ecx
    0x66, 0x0f, 0xef, 0xc0, // pxor xmm0, xmm0
    0xb9, 0x40, 0x42, 0x0f, 0x00, // mov ecx, 1000000
    0xff, 0xc9, // dec ecx
    0x75, 0xfc, // jnz to dec
    0xb0, 0x2a, // mov al, 42
    0xe6, 0x10, // out 0x10, al
    0xf4, // hlt
];

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Segment {
    base: u64,
    limit: u32,
    selector: u16,
    kind: u8,
    present: u8,
    dpl: u8,
    db: u8,
    s: u8,
    l: u8,
    g: u8,
    avl: u8,
    unusable: u8,
    padding: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Table {
    base: u64,
    limit: u16,
    padding: [u16; 3],
}

/// `struct kvm_sregs` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Special {
    cs: Segment,
    data: [Segment; 5],
    tr: Segment,
    ldt: Segment,
    gdt: Table,
    idt: Table,
    cr0: u64,
    cr2: u64,
    cr3: u64,
    cr4: u64,
    cr8: u64,
    efer: u64,
    apic_base: u64,
    interrupts: [u64; 4],
}

/// `struct kvm_regs` of the kernel: sixteen registers, then these two.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct General {
    registers: [u64; 16],
    rip: u64,
    rflags: u64,
}

/// `struct kvm_userspace_memory_region` of the kernel.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest_address: u64,
    bytes: u64,
    address: u64,
}

/// `struct kvm_cpuid2` of the kernel with room for its entries.
#[repr(C)]
struct Features {
    count: u32,
    padding: u32,
    entries: [[u32; 10]; CPUID_ENTRIES],
}

/// Memory shared with the kernel, unmapped at the end.
struct Mapping {
    address: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, fd: Option<RawFd>) -> io::Result<Mapping> {
        let anonymous = if fd.is_none() { libc::MAP_ANONYMOUS } else { 0 };
        // SAFETY: a new mapping at an address the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | anonymous,
                fd.unwrap_or(-1),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            address: address.cast(),
            bytes,
        })
    }

    fn write(&mut self, at: usize, content: &[u8]) {
        assert!(at + content.len() <= self.bytes);
        // SAFETY: within the mapping, as just checked; nothing else writes to it now.
        unsafe {
            std::ptr::copy_nonoverlapping(content.as_ptr(), self.address.add(at), content.len());
        }
    }

    fn number(&self, at: usize) -> u32 {
        assert!(at + 4 <= self.bytes && at.is_multiple_of(4));
        // SAFETY: within the page-aligned mapping and aligned, as just checked; the kernel may change it.
        unsafe { self.address.add(at).cast::<u32>().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

/// What is wrong with KVM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error(
        "it emulates instructions instead of running them ({} ms for what takes one)",
        .0.as_millis()
    )]
    Slow(Duration),
    #[error("{0}")]
    Wrong(String),
}

impl Fault {
    fn wrong(what: impl Into<String>) -> Fault {
        Fault::Wrong(what.into())
    }
}

fn open() -> Result<OwnedFd, Fault> {
    match std::fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(OwnedFd::from(device)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Fault::wrong(ABSENT)),
        Err(error) => Err(Fault::wrong(format!("{DEVICE} cannot be opened: {error}"))),
    }
}

/// Runs the trial.
pub(crate) fn trial() -> Result<(), Fault> {
    if !cfg!(target_arch = "x86_64") {
        let cause = "its trial is a program for x86_64, and nothing is believed untried";
        return Err(Fault::wrong(cause));
    }
    match run(&open()?) {
        Ok(verdict) => verdict,
        Err(error) => Err(Fault::wrong(format!(
            "a trial machine cannot be made: {error}"
        ))),
    }
}

/// One line of what KVM can show a machine: function, index, flags, then `eax` to `edx`.
pub(crate) type Entry = [u32; 7];

/// Everything KVM can show a machine of this host's processor; empty where it cannot be asked.
pub(crate) fn supported() -> Vec<Entry> {
    let Ok(device) = open() else {
        return Vec::new();
    };
    let Ok(features) = features(&device) else {
        return Vec::new();
    };
    let count = (features.count as usize).min(CPUID_ENTRIES);
    let entries = features.entries[..count].iter();
    entries
        .map(|entry| {
            let mut short = Entry::default();
            short.copy_from_slice(&entry[..7]);
            short
        })
        .collect()
}

fn features(device: &OwnedFd) -> io::Result<Box<Features>> {
    let mut features = Box::new(Features {
        count: CPUID_ENTRIES as u32,
        padding: 0,
        entries: [[0; 10]; CPUID_ENTRIES],
    });
    call(device, GET_SUPPORTED_CPUID, (&raw mut *features) as u64)?;
    Ok(features)
}

fn run(device: &OwnedFd) -> io::Result<Result<(), Fault>> {
    if call(device, GET_API_VERSION, 0)? != API_VERSION {
        let other = "it speaks another version of its interface";
        return Ok(Err(Fault::wrong(other)));
    }
    let machine = descriptor(call(device, CREATE_VM, 0)?);
    call(&machine, SET_TSS_ADDR, 0xfffb_d000)?;
    let mut memory = Mapping::new(MEMORY, None)?;
    fill(&mut memory);
    let region = Region {
        slot: 0,
        flags: 0,
        guest_address: 0,
        bytes: MEMORY as u64,
        address: memory.address as u64,
    };
    call(&machine, SET_USER_MEMORY_REGION, (&raw const region) as u64)?;
    let cpu = descriptor(call(&machine, CREATE_VCPU, 0)?);
    let shared = call(device, GET_VCPU_MMAP_SIZE, 0)? as usize;
    let state = Mapping::new(shared, Some(cpu.as_raw_fd()))?;
    prepare(device, &cpu)?;
    let begun = Instant::now();
    call(&cpu, RUN, 0)?;
    Ok(judge(&state, begun.elapsed()))
}

fn judge(state: &Mapping, took: Duration) -> Result<(), Fault> {
    const EXIT_REASON: usize = 8;
    const SUBERROR: usize = 32;
    match state.number(EXIT_REASON) {
        EXIT_IO if took > LOOP_TIME => Err(Fault::Slow(took)),
        EXIT_IO => Ok(()),
        EXIT_INTERNAL_ERROR => Err(Fault::wrong(format!(
            "ordinary instructions end a machine with an internal error ({}); \
             this is usual for nested virtualisation without hardware support",
            state.number(SUBERROR)
        ))),
        other => Err(Fault::wrong(format!(
            "a trial machine ended in an unexpected way ({other})"
        ))),
    }
}

/// The program, and page tables that map the first 2 MiB to themselves.
fn fill(memory: &mut Mapping) {
    memory.write(CODE, &PROGRAM);
    let (present, large) = (0x3u64, 0x80u64);
    let second = TABLES as u64 + 0x1000;
    let third = TABLES as u64 + 0x2000;
    memory.write(TABLES, &(second | present).to_le_bytes());
    memory.write(TABLES + 0x1000, &(third | present).to_le_bytes());
    memory.write(TABLES + 0x2000, &(present | large).to_le_bytes());
}

/// Puts the processor into 64-bit mode at the program's first instruction.
fn prepare(device: &OwnedFd, cpu: &OwnedFd) -> io::Result<()> {
    let features = features(device)?;
    call(cpu, SET_CPUID2, (&raw const *features) as u64)?;
    let mut special = Special::default();
    call(cpu, GET_SREGS, (&raw mut special) as u64)?;
    let data = Segment {
        limit: u32::MAX,
        selector: 16,
        kind: 3,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..Segment::default()
    };
    special.data = [data; 5];
    special.cs = Segment {
        selector: 8,
        kind: 11,
        db: 0,
        l: 1,
        ..data
    };
    special.cr0 = 0x8000_0033;
    special.cr3 = TABLES as u64;
    // Physical addresses beyond 4 GiB, and the vector unit.
    special.cr4 = 0x620;
    special.efer = 0x500;
    call(cpu, SET_SREGS, (&raw const special) as u64)?;
    let general = General {
        rip: CODE as u64,
        rflags: 2,
        ..General::default()
    };
    call(cpu, SET_REGS, (&raw const general) as u64).map(drop)
}

fn call(fd: &OwnedFd, request: u32, argument: u64) -> io::Result<libc::c_int> {
    uninterrupted(|| {
        // SAFETY: the argument is an integer or points to a live structure of the type the request names.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, argument) };
        match result {
            0.. => Ok(result),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

/// A signal that comes in the middle of a call says nothing about KVM: the call is made again.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn descriptor(fd: RawFd) -> OwnedFd {
    // SAFETY: the number is a new descriptor that the kernel has just returned.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Special>(), 312);
        assert_eq!(size_of::<General>(), 144);
        assert_eq!(size_of::<Region>(), 32);
    }

    #[test]
    fn a_signal_in_a_call_is_no_answer() {
        let made = |answers: &[i32]| {
            let mut answers = answers.iter();
            let done = uninterrupted(|| match answers.next() {
                Some(0) => Ok("done"),
                Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
                None => panic!("called again after its answer"),
            });
            (done.map_err(|error| error.raw_os_error()), answers.len())
        };
        assert_eq!(made(&[0, 0]), (Ok("done"), 1));
        assert_eq!(made(&[libc::EINTR, libc::EINTR, 0]), (Ok("done"), 0));
        let refused = (Err(Some(libc::EACCES)), 1);
        assert_eq!(made(&[libc::EINTR, libc::EACCES, 0]), refused);
        // The kernel has another word for "not now", which is an answer.
        let busy = (Err(Some(libc::EAGAIN)), 1);
        assert_eq!(made(&[libc::EAGAIN, 0]), busy);
    }

    #[test]
    fn a_trial_is_quick() {
        let begun = Instant::now();
        let verdict = trial();
        assert!(begun.elapsed() < Duration::from_secs(3), "{verdict:?}");
    }
}
