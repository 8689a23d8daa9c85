//! Output may be anything, cut anywhere: what is shown is the same as of the whole, and nothing
//! is held back for longer than it is allowed to be.

use motu_redaction::{Forms, Known, Patterns, Redactor};

pub fn redaction(data: &[u8]) {
    let Some((&[cut, length], text)) = data.split_first_chunk::<2>() else {
        return;
    };
    // A value that is a part of the text, one that is not, and every kind of credential.
    let value = &text[..text.len().min(usize::from(length))];
    let known = |value| Known {
        name: Some("V"),
        value,
        forms: Forms::All,
    };
    let redactor = Redactor::new([known(value), known(b"hunter22")], &Patterns::all());
    let mut shown = Vec::new();
    let mut stream = redactor.stream();
    for piece in text.chunks(usize::from(cut).max(1)) {
        stream.push(piece, &mut |bytes| shown.extend_from_slice(bytes));
        assert!(stream.waiting() <= 2 * redactor.longest());
    }
    stream.finish(&mut |bytes| shown.extend_from_slice(bytes));
    assert_eq!(shown, redactor.redact(text));
}
