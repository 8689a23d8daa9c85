//! The initial file system: an archive in the `newc` format, uncompressed,
//! because unpacking costs more than reading under emulation.

/// An archive being written.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

impl Archive {
    pub(crate) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[], (0, 0));
    }

    pub(crate) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content, (0, 0));
    }

    /// A character device.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, DEVICE, &[], (major, minor));
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let (uid, gid, links, time, check) = (0, 0, 1, 0, 0);
        let fields = [
            self.inode,
            mode,
            uid,
            gid,
            links,
            time,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            check,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_complete() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.program("init", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        let text = String::from_utf8_lossy(&bytes);
        let init = text.find("init\0").unwrap();
        // Header and name end on a multiple of four; the content follows.
        let content = (init + 5).next_multiple_of(4);
        assert_eq!(&bytes[content..content + 5], b"12345");
        assert!(text.contains("TRAILER!!!"));
    }
}
