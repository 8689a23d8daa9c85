//! What kernels and their packages are compressed with, told apart by the first bytes.

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Cursor, Read};

const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Memory a decoder may take; packages of kernels ask for 64 MiB and less.
const DECODER_KIB: u32 = 256 << 10;
/// The longest start that decides.
const START: usize = 6;

/// The bytes behind a compressed stream, or the stream itself if it is plain.
pub(crate) fn reader<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::with_capacity(START);
    source.by_ref().take(START as u64).read_to_end(&mut start)?;
    let whole = Cursor::new(start.clone()).chain(source);
    Ok(match &*start {
        _ if start.starts_with(XZ) => Box::new(XzReader::new_mem_limit(whole, true, DECODER_KIB)),
        _ if start.starts_with(ZSTD) => {
            Box::new(StreamingDecoder::new(whole).map_err(io::Error::other)?)
        }
        _ if start.starts_with(GZIP) => Box::new(MultiGzDecoder::new(whole)),
        _ => Box::new(whole),
    })
}

/// All of it, at most `limit` bytes.
pub(crate) fn unpacked(bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    reader(bytes)?.take(limit + 1).read_to_end(&mut plain)?;
    if plain.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(plain)
}

/// A name without the ending that compression has added.
pub(crate) fn plain_name(name: &str) -> &str {
    let endings = [".xz", ".zst", ".gz"];
    let plain = endings.iter().find_map(|ending| name.strip_suffix(ending));
    plain.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Stdio;

    fn packed(program: &str, text: &[u8]) -> Vec<u8> {
        let mut child = motu_needs::command(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success());
        done.stdout
    }

    #[test]
    fn every_way_of_packing_is_undone() {
        let text = b"a kernel's module, over and over ".repeat(2000);
        for program in ["xz", "gzip", "zstd"] {
            let bytes = packed(program, &text);
            assert!(bytes.len() < text.len() / 4, "{program} packs");
            assert!(unpacked(&bytes, 1 << 20).unwrap() == text, "{program}");
            let error = unpacked(&bytes, 1000).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{program}");
            let half = unpacked(&bytes[..bytes.len() / 2], 1 << 20);
            assert!(half.is_err(), "half of what {program} made");
        }
        assert!(unpacked(&text, 1 << 20).unwrap() == text);
        assert!(unpacked(b"", 8).unwrap().is_empty());
        assert_eq!(plain_name("virtio.ko.xz"), "virtio.ko");
        assert_eq!(plain_name("virtio.ko"), "virtio.ko");
    }
}
