//! Output of a command as a foreign service sends it: any bytes, in pieces of any size.

use motu_http::lines::Lines;

pub fn http_lines(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let mut lines = Lines::new(1024);
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        lines.feed(piece);
        loop {
            match lines.line() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = lines.last();
}
