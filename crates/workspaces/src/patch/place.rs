//! Finds the lines of a hunk in a file.

use super::{MAX_OFFSET_LINES, PatchError};

/// Most line comparisons for one patch. Ordinary ones need a few per hunk; a hostile one could make
/// the search quadratic.
const MAX_COMPARISONS: usize = 50_000_000;

/// The search for hunks, with its remaining budget.
#[derive(Debug)]
pub(super) struct Search {
    left: usize,
}

impl Search {
    pub fn new() -> Self {
        Self {
            left: MAX_COMPARISONS,
        }
    }

    /// The position of `wanted` nearest to `expected`, not before `floor`.
    pub fn find(
        &mut self,
        file: &[&[u8]],
        wanted: &[&[u8]],
        expected: usize,
        floor: usize,
    ) -> Result<Option<usize>, PatchError> {
        // Without lines to search for, only the header tells the position.
        if wanted.is_empty() {
            return Ok((floor..=file.len()).contains(&expected).then_some(expected));
        }
        let Some(last) = file.len().checked_sub(wanted.len()) else {
            return Ok(None);
        };
        for offset in 0..=MAX_OFFSET_LINES {
            let after = expected.checked_add(offset);
            let before = expected.checked_sub(offset).filter(|_| offset > 0);
            let places = [after, before];
            for place in places.into_iter().flatten() {
                if (floor..=last).contains(&place)
                    && self.agreeing(&file[place..], wanted)? == wanted.len()
                {
                    return Ok(Some(place));
                }
            }
        }
        Ok(None)
    }

    /// The position most similar to `wanted`, and the number of equal lines.
    pub fn closest(&mut self, file: &[&[u8]], wanted: &[&[u8]]) -> Option<(usize, usize)> {
        let mut best = None;
        let mut most = 0;
        for place in 0..file.len() {
            let pairs = file[place..].iter().zip(wanted);
            self.left = self.left.checked_sub(wanted.len())?;
            let same = pairs.filter(|(a, b)| a == b && !a.trim_ascii().is_empty());
            let same = same.count();
            if same > most {
                (best, most) = (Some((place, same)), same);
            }
        }
        best
    }

    /// How many lines are equal before the first difference.
    fn agreeing(&mut self, file: &[&[u8]], wanted: &[&[u8]]) -> Result<usize, PatchError> {
        let pairs = file.iter().zip(wanted);
        let same = pairs.take_while(|(a, b)| a == b).count();
        self.left = self.left.checked_sub(same + 1).ok_or(PatchError::Limit {
            what: "the number of line comparisons",
            limit: MAX_COMPARISONS,
        })?;
        Ok(same)
    }
}
