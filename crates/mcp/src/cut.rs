//! Text cut to a budget, with its beginning and its end kept.

/// Text that was cut, and how much is missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    pub text: String,
    /// Bytes that were left out; 0 when it is whole.
    pub missing: usize,
}

/// The first third and the last two thirds of what is allowed, at the borders of lines where
/// there are some: a command says at its end what went wrong.
pub fn middle(text: &str, budget: usize) -> Cut {
    if text.len() <= budget {
        return Cut {
            text: text.to_string(),
            missing: 0,
        };
    }
    let head = border(text, budget / 3);
    let head = text[..head].rfind('\n').map_or(head, |at| at + 1);
    let tail = border(text, text.len() - (budget - budget / 3));
    let tail = match text[tail..].find('\n') {
        // Start the tail at a whole line, unless that would leave nothing.
        Some(at) if tail + at + 1 < text.len() => tail + at + 1,
        _ => tail,
    };
    let tail = tail.max(head);
    let missing = tail - head;
    let mut cut = text[..head].to_string();
    if !cut.is_empty() && !cut.ends_with('\n') {
        cut.push('\n');
    }
    cut.push_str(&format!("[… {missing} bytes left out …]\n"));
    cut.push_str(&text[tail..]);
    Cut { text: cut, missing }
}

/// The beginning alone.
pub fn head(text: &str, budget: usize) -> Cut {
    let end = border(text, budget.min(text.len()));
    Cut {
        text: text[..end].to_string(),
        missing: text.len() - end,
    }
}

/// The nearest border between characters at or before `at`.
pub fn border(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_left_alone() {
        assert_eq!(
            middle("abc", 3),
            Cut {
                text: "abc".to_string(),
                missing: 0
            }
        );
    }

    #[test]
    fn the_beginning_and_the_end_stay() {
        let text: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let cut = middle(&text, 600);
        assert!(cut.text.starts_with("line 0\n"), "{}", cut.text);
        assert!(cut.text.ends_with("line 999\n"), "{}", cut.text);
        assert!(cut.text.len() < 700);
        assert!(cut.missing > text.len() - 700);
    }

    #[test]
    fn characters_stay_whole() {
        for budget in 0..40 {
            let cut = middle(&"é€😀".repeat(20), budget);
            assert!(cut.text.len() < budget + 60);
            assert_eq!(
                head("é€😀", budget).text.len() + head("é€😀", budget).missing,
                9
            );
        }
    }
}
