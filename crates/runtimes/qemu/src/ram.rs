//! A machine's memory as a file nobody can change.
//!
//! Saved memory lives in an anonymous file that is sealed against writing, and
//! every machine maps it privately: pages are shared until a machine writes
//! them. QEMU insists on opening it for writing, and a sealed file is the one
//! that lets it do that in vain. On disk the same bytes are a sparse file with
//! a checksum over every page that is not zero.

use crate::error::QemuError;
use motu_pages::Sum;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(crate) const PAGE: usize = 4096;
const CHUNK: usize = 256 * PAGE;

/// An empty memory of a given size.
pub(crate) fn empty(bytes: u64) -> Result<File, QemuError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    let file = memfd_create("motu-ram", flags)
        .or_else(|_| memfd_create("motu-ram", flags - MemfdFlags::NOEXEC_SEAL))
        .map_err(QemuError::errno("cannot reserve memory"))?;
    let file = File::from(file);
    // Machines run as users of their own and open the file by its descriptor.
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o666))
        .map_err(QemuError::errno("cannot share memory"))?;
    file.set_len(bytes)
        .map_err(QemuError::io("cannot reserve memory"))?;
    Ok(file)
}

/// Makes a file unchangeable, for everybody and for ever.
pub(crate) fn seal(file: &File) -> Result<(), QemuError> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(file, seals).map_err(QemuError::errno("cannot seal memory"))
}

/// Copies every page that is not zero; returns their checksum.
pub(crate) fn copy(from: &File, to: &File) -> Result<Sum, QemuError> {
    let mut sum = Sum::default();
    copy_pages(from, to, |number, page| sum.page(number, page))?;
    Ok(sum)
}

/// Copies every page that is not zero between two files in memory, which need no checksum.
pub(crate) fn duplicate(from: &File, to: &File) -> Result<(), QemuError> {
    copy_pages(from, to, |_, _| ())
}

fn copy_pages(from: &File, to: &File, mut seen: impl FnMut(u64, &[u8])) -> Result<(), QemuError> {
    let failed = || QemuError::io("cannot copy a machine's memory");
    let mut buffer = vec![0u8; CHUNK];
    let mut at = 0u64;
    while let Some((start, end)) = next_data(from, at).map_err(failed())? {
        at = start - start % PAGE as u64;
        while at < end {
            let wanted = (end - at).min(CHUNK as u64) as usize;
            let piece = &mut buffer[..wanted.next_multiple_of(PAGE)];
            let got = read_full(from, piece, at).map_err(failed())?;
            piece[got..].fill(0);
            put(piece, at, to, &mut seen).map_err(failed())?;
            at += piece.len() as u64;
        }
    }
    Ok(())
}

/// Writes the runs of pages that are not zero.
fn put(piece: &[u8], at: u64, to: &File, seen: &mut impl FnMut(u64, &[u8])) -> io::Result<()> {
    let mut run: Option<usize> = None;
    for (number, page) in piece.chunks(PAGE).enumerate() {
        if is_zero(page) {
            if let Some(start) = run.take() {
                to.write_all_at(
                    &piece[start * PAGE..number * PAGE],
                    at + (start * PAGE) as u64,
                )?;
            }
        } else {
            seen(at / PAGE as u64 + number as u64, page);
            run.get_or_insert(number);
        }
    }
    match run {
        Some(start) => to.write_all_at(&piece[start * PAGE..], at + (start * PAGE) as u64),
        None => Ok(()),
    }
}

fn is_zero(page: &[u8]) -> bool {
    static ZERO: [u8; PAGE] = [0; PAGE];
    page == &ZERO[..page.len()]
}

/// The next range of a sparse file that may hold something.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

fn read_full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_sparse_equal_and_summed() {
        let from = empty(4 << 20).unwrap();
        from.write_all_at(b"here", 3 * PAGE as u64 + 5).unwrap();
        from.write_all_at(&[0; PAGE], 1 << 20).unwrap();
        from.write_all_at(b"there", (4 << 20) - 5).unwrap();
        let to = empty(4 << 20).unwrap();
        let sum = copy(&from, &to).unwrap();
        let mut seen = [0; 4];
        to.read_exact_at(&mut seen, 3 * PAGE as u64 + 5).unwrap();
        assert_eq!(&seen, b"here");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(to.metadata().unwrap().blocks() * 512, 2 * PAGE as u64);
        assert_eq!(copy(&to, &empty(4 << 20).unwrap()).unwrap(), sum);

        to.write_all_at(b"x", 7).unwrap();
        assert_ne!(copy(&to, &empty(4 << 20).unwrap()).unwrap(), sum);
    }

    #[test]
    fn sealed_memory_takes_no_writes() {
        let file = empty(1 << 20).unwrap();
        seal(&file).unwrap();
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
    }
}
