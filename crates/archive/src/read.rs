//! Reading an archive of a stranger, entry by entry.
//!
//! Everything an archive can make us keep in memory is bounded, which the general library for
//! tar does not promise.

use crate::field::text;
use crate::header::{Header, Type};
use crate::records::Records;
use crate::sparse::{MAX_READ_PARTS, MapReader, Part, check, push_continued};
use crate::{BLOCK, TarError, padding};
use std::io::{self, Read};

/// Largest record block of one entry. Real ones hold a path and a few attributes.
const MAX_RECORDS_BYTES: u64 = 1 << 20;
/// Longest name in an extension of its own: a path, or too long to be one.
const MAX_LONG_NAME_BYTES: u64 = 8 << 10;

/// An archive; reading from it gives the contents of the entry last returned.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Stored bytes of the current entry that were not read yet.
    stored: u64,
    padding: u64,
    holes: Option<Holes>,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            stored: 0,
            padding: 0,
            holes: None,
        }
    }

    /// The next entry, or `None` at the end of the archive. Its size is that of the contents,
    /// holes included; only files and what is of an unknown kind have any.
    pub fn next_entry(&mut self) -> io::Result<Option<Header>> {
        let mut records = Records::default();
        loop {
            self.skip(self.stored.saturating_add(self.padding))?;
            (self.stored, self.padding, self.holes) = (0, 0, None);
            let Some((block, header)) = self.header()? else {
                return Ok(None);
            };
            match header.kind {
                Type::Pax => records.read(&self.extension(header.size, MAX_RECORDS_BYTES)?)?,
                Type::LongName => {
                    let name = self.extension(header.size, MAX_LONG_NAME_BYTES)?;
                    records.path = Some(text(&name).to_vec());
                }
                Type::LongLink => {
                    let name = self.extension(header.size, MAX_LONG_NAME_BYTES)?;
                    records.link = Some(text(&name).to_vec());
                }
                // Records for all entries are comments in practice, and volume labels are
                // nothing else.
                Type::PaxGlobal | Type::Other(b'V') => self.begin(header.size),
                Type::Other(b'M') => return Err(TarError::Volume.into()),
                _ => return self.entry(&block, header, records).map(Some),
            }
        }
    }

    /// Whether the current entry has holes, and so its contents are not stored as they are.
    pub fn is_sparse(&self) -> bool {
        self.holes.is_some()
    }

    /// The input, which stands at the contents of the current entry.
    pub fn get_ref(&self) -> &R {
        &self.input
    }

    /// Reads what follows the last entry, so that all of the stream was seen.
    pub fn drain(mut self) -> io::Result<()> {
        io::copy(&mut self.input, &mut io::sink()).map(drop)
    }

    fn entry(
        &mut self,
        block: &[u8; BLOCK],
        mut header: Header,
        records: Records,
    ) -> io::Result<Header> {
        let listed = header.kind == Type::Sparse;
        header.extend(records)?;
        if listed {
            let mut more = Header::list_continues(block);
            while more {
                let mut next = [0; BLOCK];
                self.input.read_exact(&mut next)?;
                more = push_continued(&mut header.parts, &next)?;
            }
        }
        // Before there was a type, a slash at the end said the same.
        if header.kind == Type::File && header.path.ends_with(b"/") {
            header.kind = Type::Directory;
        }
        match header.kind {
            Type::File | Type::Sparse => self.begin_file(&mut header)?,
            Type::Other(b'3' | b'4' | b'6') => header.size = 0,
            Type::Other(_) => self.begin(header.size),
            // Other kinds have no contents, whatever their header says.
            _ => header.size = 0,
        }
        (header.real_size, header.parts) = (None, Vec::new());
        Ok(header)
    }

    fn begin_file(&mut self, header: &mut Header) -> io::Result<()> {
        self.begin(header.size);
        let Some(size) = header.real_size else {
            return Ok(());
        };
        let parts = match header.kind {
            Type::Sparse => std::mem::take(&mut header.parts),
            _ => self.map()?,
        };
        if check(&parts, size)? != self.stored {
            return Err(TarError::Unfit.into());
        }
        self.holes = Some(Holes::new(parts, size));
        (header.kind, header.size) = (Type::File, size);
        Ok(())
    }

    /// The list of parts that begins a body.
    fn map(&mut self) -> io::Result<Vec<Part>> {
        let mut reader = MapReader::new(MAX_READ_PARTS);
        loop {
            let mut block = [0; BLOCK];
            self.stored = match self.stored.checked_sub(BLOCK as u64) {
                Some(left) => left,
                None => return Err(TarError::EndlessMap.into()),
            };
            self.input.read_exact(&mut block)?;
            if let Some(parts) = reader.block(&block)? {
                return Ok(parts);
            }
        }
    }

    /// The next header; `None` at the end, which some writers leave unmarked.
    fn header(&mut self) -> io::Result<Option<([u8; BLOCK], Header)>> {
        let mut block = [0; BLOCK];
        if !self.block(&mut block)? {
            return Ok(None);
        }
        match Header::parse(&block)? {
            Some(header) => Ok(Some((block, header))),
            None => {
                if self.block(&mut block)? && block.iter().any(|byte| *byte != 0) {
                    return Err(TarError::AfterEnd.into());
                }
                Ok(None)
            }
        }
    }

    /// Fills a block; false when the input ends before it.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn begin(&mut self, stored: u64) {
        self.stored = stored;
        self.padding = padding(stored) as u64;
    }

    fn extension(&mut self, size: u64, limit: u64) -> io::Result<Vec<u8>> {
        if size > limit {
            return Err(TarError::LargeExtension.into());
        }
        self.begin(size);
        let mut bytes = Vec::new();
        self.input.by_ref().take(size).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stored = 0;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.input.by_ref().take(count), &mut io::sink())?;
        if skipped < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stored = self.input.by_ref().take(self.stored);
        let count = match &mut self.holes {
            Some(holes) => holes.read(&mut stored, buffer)?,
            None => stored.read(buffer)?,
        };
        self.stored = stored.limit();
        Ok(count)
    }
}

/// A file whose data is read with its holes as zeros.
#[derive(Debug)]
struct Holes {
    parts: Vec<Part>,
    size: u64,
    position: u64,
    current: usize,
}

impl Holes {
    /// Parts that [`check`] has passed.
    fn new(parts: Vec<Part>, size: u64) -> Holes {
        Holes {
            parts,
            size,
            position: 0,
            current: 0,
        }
    }

    fn read(&mut self, input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some((start, length)) = self.parts.get(self.current)
            && self.position == start + length
        {
            self.current += 1;
        }
        let (until, is_data) = match self.parts.get(self.current) {
            Some((start, length)) if self.position >= *start => (start + length, true),
            Some((start, _)) => (*start, false),
            None => (self.size, false),
        };
        let wanted = usize::try_from(until - self.position).unwrap_or(usize::MAX);
        let wanted = wanted.min(buffer.len());
        let count = if is_data {
            input.read(&mut buffer[..wanted])?
        } else {
            buffer[..wanted].fill(0);
            wanted
        };
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body as long as numbers go ends where the archive does.
    #[test]
    fn the_longest_body_is_no_overflow() {
        let header = Header {
            path: b"a".to_vec(),
            size: u64::MAX,
            ..Header::default()
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes.extend_from_slice(b"short");
        let mut archive = Reader::new(&bytes[..]);
        assert_eq!(archive.next_entry().unwrap().unwrap().size, u64::MAX);
        let error = archive.next_entry().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
