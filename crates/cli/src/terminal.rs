//! The terminal this program runs on.

use motu_core::exec::TtySize;
use motu_core::{Error, Result};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize,
    tcsetattr,
};

const USUAL: TtySize = TtySize { cols: 80, rows: 24 };

/// The size of the terminal.
pub fn size() -> Result<TtySize> {
    let size = tcgetwinsize(rustix::stdio::stdin())
        .or_else(|_| tcgetwinsize(rustix::stdio::stdout()))
        .map_err(|_| {
            Error::invalid("--tty needs a terminal").hint("leave --tty out, or use --stdin alone")
        })?;
    // A terminal of unknown size reports 0: use the default size.
    let or = |told: u16, usual: u16| if told == 0 { usual } else { told };
    Ok(TtySize {
        cols: or(size.ws_col, USUAL.cols),
        rows: or(size.ws_row, USUAL.rows),
    })
}

/// Throws away what was typed, or answered by the terminal itself, and nobody has read.
pub fn forget_input() {
    let _ = tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
}

/// A terminal that is itself again when this is dropped.
#[derive(Debug)]
struct Changed {
    before: Termios,
}

impl Changed {
    fn by(change: impl FnOnce(&mut Termios)) -> Result<Changed> {
        let apply = || {
            let before = tcgetattr(rustix::stdio::stdin())?;
            let mut after = before.clone();
            change(&mut after);
            tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &after)?;
            Ok(Changed { before })
        };
        apply().map_err(|error: rustix::io::Errno| Error::io("set the terminal up", &error.into()))
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The terminal passes every key on while this lives, and is itself again afterwards.
#[derive(Debug)]
pub struct Raw {
    _changed: Changed,
}

impl Raw {
    pub fn enter() -> Result<Raw> {
        let _changed = Changed::by(Termios::make_raw)?;
        Ok(Raw { _changed })
    }
}

/// The terminal does not show what is typed while this lives.
#[derive(Debug)]
pub struct Hidden {
    _changed: Changed,
}

impl Hidden {
    pub fn enter() -> Result<Hidden> {
        let _changed = Changed::by(|modes| modes.local_modes.remove(LocalModes::ECHO))?;
        Ok(Hidden { _changed })
    }
}
