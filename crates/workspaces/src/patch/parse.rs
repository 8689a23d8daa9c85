//! Parses bytes into a [`Patch`].
//!
//! Separates headers, hunks and surrounding prose. A line inside a hunk is never treated as prose:
//! a line that does not fit is an error, so that a mistake cannot silently drop half of a patch.

use super::{
    FilePatch, Hunk, Line, LineKind, MAX_PATCH_BYTES, MAX_PATCH_FILES, MAX_PATCH_HUNKS, Patch,
    PatchError,
    headers::{Name, Section, malformed},
    lines,
};

/// Largest line number in a header.
const MAX_LINE_NUMBER: usize = 1 << 31;

pub(super) fn parse(bytes: &[u8]) -> Result<Patch, PatchError> {
    if bytes.len() > MAX_PATCH_BYTES {
        return Err(PatchError::too_long());
    }
    let mut parser = Parser {
        lines: lines(bytes),
        at: 0,
        section: None,
        files: Vec::new(),
        hunks: 0,
    };
    while parser.at < parser.lines.len() {
        parser.line()?;
    }
    parser.finish_section()?;
    if parser.files.is_empty() {
        return Err(PatchError::Empty);
    }
    Ok(Patch {
        files: parser.files,
    })
}

struct Parser<'a> {
    lines: Vec<&'a [u8]>,
    at: usize,
    section: Option<Section>,
    files: Vec<FilePatch>,
    hunks: usize,
}

impl Parser<'_> {
    /// Handles one line outside of any hunk, and the hunk if it begins one.
    fn line(&mut self) -> Result<(), PatchError> {
        let text = bare(self.lines[self.at]);
        let number = self.at + 1;
        if let Some(names) = text.strip_prefix(b"diff --git ") {
            self.finish_section()?;
            self.section = Some(Section::git(number, names));
        } else if self.is_names(self.at) {
            return self.names();
        } else if text.starts_with(b"@@ ") {
            return self.hunk();
        } else if text == b"GIT binary patch"
            || (text.starts_with(b"Binary files ") && text.ends_with(b" differ"))
        {
            let shown = match &self.section {
                Some(section) => section.shown(),
                None => format!("line {number} of the patch"),
            };
            return Err(PatchError::Binary { path: shown });
        } else if let Some(section) = &mut self.section
            && section.is_git
            && section.hunks.is_empty()
        {
            section.extended(text, number)?;
        }
        self.at += 1;
        Ok(())
    }

    /// Whether a pair of `---` and `+++` lines begins here.
    fn is_names(&self, at: usize) -> bool {
        let starts = |at: usize, with: &[u8]| {
            self.lines
                .get(at)
                .is_some_and(|line| line.starts_with(with))
        };
        starts(at, b"--- ") && starts(at + 1, b"+++ ")
    }

    fn names(&mut self) -> Result<(), PatchError> {
        let number = self.at + 1;
        let read = |line: &[u8], number| {
            Name::read(&bare(line)[4..])
                .ok_or_else(|| malformed(number, "the name of the file cannot be read"))
        };
        let old = read(self.lines[self.at], number)?;
        let new = read(self.lines[self.at + 1], number + 1)?;
        // The pair belongs to the preceding git headers, or begins a new file.
        let open = self
            .section
            .as_ref()
            .is_some_and(|section| section.old.is_none() && section.hunks.is_empty());
        if !open {
            self.finish_section()?;
        }
        let section = self.section.get_or_insert_with(|| Section::plain(number));
        (section.old, section.new) = (Some(old), Some(new));
        self.at += 2;
        Ok(())
    }

    fn finish_section(&mut self) -> Result<(), PatchError> {
        if let Some(section) = self.section.take() {
            if self.files.len() == MAX_PATCH_FILES {
                return Err(PatchError::too_many_files());
            }
            self.files.push(section.finish()?);
        }
        Ok(())
    }

    fn hunk(&mut self) -> Result<(), PatchError> {
        let number = self.at + 1;
        let header = Header::read(bare(self.lines[self.at])).ok_or_else(|| {
            malformed(number, "a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`")
        })?;
        let counted = self.counted(self.at + 1, header.old_lines, header.new_lines);
        let (lines, end) = match counted {
            Some(counted) => counted,
            None => self.recounted(self.at + 1)?,
        };
        self.hunks += 1;
        if self.hunks > MAX_PATCH_HUNKS {
            return Err(PatchError::too_many_hunks());
        }
        let Some(section) = &mut self.section else {
            return Err(malformed(number, "a hunk comes before any file header"));
        };
        let count = |without| lines.iter().filter(|line| line.kind != without).count();
        section.hunks.push(Hunk {
            old_start: header.old_start,
            old_lines: count(LineKind::Add),
            new_start: header.new_start,
            new_lines: count(LineKind::Remove),
            patch_line: number,
            lines,
        });
        self.at = end;
        Ok(())
    }

    /// The lines of a hunk by the counts of its header; `None` if they do not fit.
    fn counted(&self, start: usize, mut old: usize, mut new: usize) -> Option<(Vec<Line>, usize)> {
        let mut lines = Vec::new();
        let mut at = start;
        while old > 0 || new > 0 {
            let line = self.lines.get(at)?;
            at += 1;
            if ends_without_newline(line) {
                cut_newline(&mut lines);
                continue;
            }
            let line = hunk_line(line)?;
            if line.kind != LineKind::Add {
                old = old.checked_sub(1)?;
            }
            if line.kind != LineKind::Remove {
                new = new.checked_sub(1)?;
            }
            lines.push(line);
        }
        if self
            .lines
            .get(at)
            .is_some_and(|line| ends_without_newline(line))
        {
            cut_newline(&mut lines);
            at += 1;
        }
        // A hunk line after the counted end means that the counts are wrong.
        self.is_over(self.after_blanks(at)).then_some((lines, at))
    }

    /// The lines of a hunk with wrong counts: all up to the next header.
    fn recounted(&self, start: usize) -> Result<(Vec<Line>, usize), PatchError> {
        let mut lines = Vec::new();
        let mut at = start;
        while !self.is_over(self.after_blanks(at)) {
            let line = self.lines[at];
            if ends_without_newline(line) {
                cut_newline(&mut lines);
            } else {
                lines.push(hunk_line(line).ok_or_else(|| {
                    malformed(
                        at + 1,
                        "a line of a hunk begins with a space, `+` or `-`, and this one does not",
                    )
                })?);
            }
            at += 1;
        }
        if lines.iter().all(|line| line.kind == LineKind::Context) {
            return Err(malformed(start, "the hunk changes nothing"));
        }
        Ok((lines, at))
    }

    fn after_blanks(&self, at: usize) -> usize {
        let rest = self.lines.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|line| bare(line).is_empty()).count()
    }

    /// Whether this line cannot belong to the hunk before it.
    fn is_over(&self, at: usize) -> bool {
        const AFTER: [&[u8]; 7] = [
            b"@@ ",
            b"diff ",
            b"Index: ",
            b"From ",
            b"Only in ",
            b"===",
            b"```",
        ];
        match self.lines.get(at) {
            None => true,
            Some(_) if self.is_names(at) || self.is_signature(at) => true,
            Some(line) => AFTER.iter().any(|start| line.starts_with(start)),
        }
    }

    /// Whether a mail signature begins here: two dashes, followed only by a version. A removed line
    /// may look the same, but more of its hunk follows.
    fn is_signature(&self, at: usize) -> bool {
        if !matches!(bare(self.lines[at]), b"-- " | b"--") {
            return false;
        }
        let rest = self.lines[at + 1..].iter().map(|line| bare(line));
        let text = rest.filter(|line| !line.is_empty());
        let before_next: Vec<_> = text
            .take(2)
            .take_while(|line| !line.starts_with(b"From "))
            .collect();
        match before_next.as_slice() {
            [] => true,
            [version] => version[0].is_ascii_digit(),
            _ => false,
        }
    }
}

/// A line without its ending.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn ends_without_newline(line: &[u8]) -> bool {
    line.starts_with(b"\\ ")
}

fn cut_newline(lines: &mut [Line]) {
    if let Some(line) = lines.last_mut()
        && line.text.ends_with(b"\n")
    {
        line.text.pop();
    }
}

fn hunk_line(line: &[u8]) -> Option<Line> {
    let (kind, text) = match line {
        [b' ', text @ ..] => (LineKind::Context, text),
        [b'-', text @ ..] => (LineKind::Remove, text),
        [b'+', text @ ..] => (LineKind::Add, text),
        // Editors strip the space of an empty context line.
        text if bare(text).is_empty() => (LineKind::Context, text),
        _ => return None,
    };
    let mut text = text.to_vec();
    // A missing newline at the end of the patch is not one at the end of the file.
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    Some(Line { kind, text })
}

struct Header {
    old_start: usize,
    old_lines: usize,
    new_start: usize,
    new_lines: usize,
}

impl Header {
    fn read(text: &[u8]) -> Option<Header> {
        let text = std::str::from_utf8(text.strip_prefix(b"@@ -")?)
            .or_else(|error| std::str::from_utf8(&text[4..4 + error.valid_up_to()]))
            .ok()?;
        let (old, rest) = text.split_once(" +")?;
        let (new, _) = rest.split_once(" @@")?;
        let (old_start, old_lines) = range(old)?;
        let (new_start, new_lines) = range(new)?;
        Some(Header {
            old_start,
            old_lines,
            new_start,
            new_lines,
        })
    }
}

fn range(text: &str) -> Option<(usize, usize)> {
    let (start, count) = text.split_once(',').unwrap_or((text, "1"));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.filter(|number| *number <= MAX_LINE_NUMBER)
    };
    Some((number(start)?, number(count)?))
}
