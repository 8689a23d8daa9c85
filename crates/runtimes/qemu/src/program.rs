//! QEMU on this host: which version it is, and where its firmware lies.
//!
//! Both are asked of the program itself, once for each program: what is installed over it is
//! asked again.

use crate::arguments::Build;
use crate::board::Board;
use crate::error::QemuError;
use crate::version::{FIRMWARE, OLDEST, Version, version};
use crate::{identity, tool};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where distributions put firmware besides the directories QEMU names itself.
const PLACES: [&str; 6] = [
    "/usr/share/qemu",
    "/usr/share/seabios",
    "/usr/share/qemu-kvm",
    "/usr/share/qboot",
    "/usr/lib/qemu",
    "/usr/local/share/qemu",
];

/// A QEMU that machines can be made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    /// By name where QEMU finds it itself, else by its path.
    pub(crate) firmware: String,
    pub(crate) board: Board,
}

impl Program {
    /// What a machine of this name is built as.
    pub(crate) fn build<'a>(&'a self, name: &'a str) -> Build<'a> {
        Build {
            name,
            board: self.board,
            firmware: &self.firmware,
        }
    }
}

/// The QEMU of this host, remembered as long as it is the same file.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The one the operator names.
    named: Option<PathBuf>,
    board: Board,
    known: Mutex<Option<(String, Program)>>,
}

impl Programs {
    pub(crate) fn new(named: Option<PathBuf>, board: Board) -> Programs {
        Programs {
            named,
            board,
            known: Mutex::default(),
        }
    }

    pub(crate) fn find(&self) -> Result<PathBuf, QemuError> {
        match &self.named {
            None => tool::find(self.board.program()),
            Some(named) if named.is_file() => Ok(named.clone()),
            Some(named) => Err(QemuError::Tool {
                tool: named.display().to_string(),
            }),
        }
    }

    /// Blocks for the time QEMU takes to say its version, the first time.
    pub(crate) fn get(&self) -> Result<Program, QemuError> {
        let path = self.find()?;
        let identity = identity::file_identity(&path);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, program)) = &*known
            && *seen == identity
        {
            return Ok(program.clone());
        }
        let program = ask(path, self.board)?;
        *known = Some((identity, program.clone()));
        Ok(program)
    }
}

fn ask(path: PathBuf, board: Board) -> Result<Program, QemuError> {
    let said = say(&path, &["--version"])?;
    let found = version(&said).ok_or_else(|| QemuError::Failed {
        tool: board.program().into(),
        tail: format!("its version is not to be read in {:?}", tool::tail(&said)),
    })?;
    if found < OLDEST {
        return Err(QemuError::Old { found });
    }
    // One that does not name its directories has its firmware in a usual place.
    let own = say(&path, &["-L", "help"]).unwrap_or_default();
    let own: Vec<PathBuf> = own.lines().map(PathBuf::from).collect();
    let firmware = match board {
        Board::Q35 => firmware(&own, Path::is_file).ok_or(QemuError::Firmware)?,
        Board::Virt => String::new(),
    };
    Ok(Program {
        path,
        version: found,
        firmware,
        board,
    })
}

fn say(path: &Path, arguments: &[&str]) -> Result<String, QemuError> {
    let mut command = tool::command_at(path);
    command.args(arguments);
    tool::run(command)
}

/// How QEMU is told of its firmware, given the directories it looks into itself.
fn firmware(own: &[PathBuf], is_file: impl Fn(&Path) -> bool) -> Option<String> {
    if own.iter().any(|dir| is_file(&dir.join(FIRMWARE))) {
        return Some(FIRMWARE.to_string());
    }
    let elsewhere = PLACES.iter().map(|dir| Path::new(dir).join(FIRMWARE));
    let found = elsewhere.into_iter().find(|path| is_file(path))?;
    Some(found.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_is_found_where_distributions_put_it() {
        let own = [PathBuf::from("/usr/share/qemu")];
        let there = |wanted: &'static str| move |path: &Path| path == Path::new(wanted);
        assert_eq!(
            firmware(&own, there("/usr/share/qemu/qboot.rom")).as_deref(),
            Some("qboot.rom")
        );
        // Not one of its own directories: named in full.
        assert_eq!(
            firmware(&[], there("/usr/local/share/qemu/qboot.rom")).as_deref(),
            Some("/usr/local/share/qemu/qboot.rom")
        );
        assert_eq!(firmware(&own, there("/elsewhere/qboot.rom")), None);
    }
}
