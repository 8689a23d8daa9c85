//! The terminal this program runs on.

use motu_core::exec::TtySize;
use motu_core::{Error, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

const USUAL: TtySize = TtySize { cols: 80, rows: 24 };

/// The size of the terminal.
pub fn size() -> Result<TtySize> {
    let size = tcgetwinsize(rustix::stdio::stdin())
        .or_else(|_| tcgetwinsize(rustix::stdio::stdout()))
        .map_err(|_| {
            Error::invalid("--tty needs a terminal").hint("leave --tty out, or use --stdin alone")
        })?;
    // A terminal that does not know its size says 0, and is taken for one of the usual size.
    let or = |told: u16, usual: u16| if told == 0 { usual } else { told };
    Ok(TtySize {
        cols: or(size.ws_col, USUAL.cols),
        rows: or(size.ws_row, USUAL.rows),
    })
}

/// The terminal passes every key on while this lives, and is itself again afterwards.
#[derive(Debug)]
pub struct Raw {
    before: Termios,
}

impl Raw {
    pub fn enter() -> Result<Raw> {
        let change = || {
            let before = tcgetattr(rustix::stdio::stdin())?;
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
            Ok(Raw { before })
        };
        change().map_err(|error: rustix::io::Errno| Error::io("set the terminal up", &error.into()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
