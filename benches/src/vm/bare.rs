//! The lower bound of a cold boot: the same kernel and CPU, with an init that only sends one word.

use super::Fallible;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INIT: &str = include_str!("ping.c");

/// Everything a bare boot needs.
pub struct Bare {
    kernel: PathBuf,
    dir: TempDir,
}

impl Bare {
    /// Uses the kernel that motu fetched.
    pub fn prepare(home: &Path) -> Fallible<Bare> {
        let kernels = std::fs::read_dir(home.join("cache/kernels"))?.flatten();
        let is_current = |name: &str| name.starts_with("current-") && !name.ends_with("-virt");
        let current = kernels.map(|entry| entry.path()).find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_current)
        });
        let place = current
            .ok_or("motu has fetched no kernel")?
            .canonicalize()?;
        let dir = tempfile::tempdir()?;
        let source = dir.path().join("ping.c");
        std::fs::write(&source, INIT)?;
        let init = dir.path().join("init");
        let mut compile = Command::new("cc");
        compile
            .args(["-static", "-O2", "-o"])
            .arg(&init)
            .arg(source);
        if !compile.status()?.success() {
            return Err("cc failed".into());
        }
        let mut archive = Vec::new();
        for directory in ["dev", "modules"] {
            entry(&mut archive, directory, 0o040_755, &[]);
        }
        entry(&mut archive, "init", 0o100_755, &std::fs::read(init)?);
        for found in std::fs::read_dir(place.join("modules"))? {
            let path = found?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            // A prefix number gives the order of loading.
            let name = name.split_once('-').map_or(name, |(_, name)| name);
            entry(
                &mut archive,
                &format!("modules/{name}"),
                0o100_644,
                &std::fs::read(&path)?,
            );
        }
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        std::fs::write(dir.path().join("initramfs"), archive)?;
        Ok(Bare {
            kernel: place.join("vmlinux"),
            dir,
        })
    }

    /// The time from the start of QEMU to the first word.
    pub fn boot(&self) -> Fallible<Duration> {
        let socket = self.dir.path().join("port");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        let chardev = format!("socket,id=port,path={}", socket.display());
        let begun = Instant::now();
        let mut qemu = Command::new("qemu-system-x86_64")
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-nic",
                "none",
            ])
            .args([
                "-machine",
                "q35,hpet=off,smbus=off,sata=off,vmport=off,i8042=off,usb=off,graphics=off",
            ])
            .args(["-accel", "tcg,tb-size=64", "-smp", "1", "-m", "512"])
            .args([
                "-cpu",
                "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+rdrand",
            ])
            .args(["-bios", "qboot.rom"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(self.dir.path().join("initramfs"))
            .args([
                "-append",
                "quiet panic=-1 mitigations=off no_timer_check cryptomgr.notests \
                    random.trust_cpu=on audit=0 nowatchdog",
            ])
            .args([
                "-chardev",
                &chardev,
                "-device",
                "virtio-serial-pci,disable-legacy=on",
            ])
            .args(["-device", "virtserialport,chardev=port"])
            .stdin(Stdio::null())
            .spawn()?;
        let heard = listener.accept().and_then(|(mut port, _)| {
            port.set_read_timeout(Some(Duration::from_secs(60)))?;
            port.read_exact(&mut [0; 5])
        });
        let took = begun.elapsed();
        qemu.kill()?;
        qemu.wait()?;
        heard?;
        Ok(took)
    }
}

/// One file of an archive in the `newc` format.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let number = archive.len() as u32 + 1;
    let size = content.len() as u32;
    let fields = [
        number,
        mode,
        0,
        0,
        1,
        0,
        size,
        0,
        0,
        0,
        0,
        name.len() as u32 + 1,
        0,
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
