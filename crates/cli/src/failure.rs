//! Errors on their way to a person or a program.

use crate::show;
use crate::wording::Commands;
use motu_api::wire::ErrorBody;
use motu_core::{Error, ErrorKind};
use std::process::ExitCode;

/// Who reads the answers of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Person,
    Program,
}

impl Reader {
    pub fn of(json: bool) -> Reader {
        if json {
            Reader::Program
        } else {
            Reader::Person
        }
    }
}

/// Tells an error and gives the exit code of its kind.
pub fn tell(error: Error, reader: Reader) -> ExitCode {
    let code = exit_code(error.kind);
    let error = error.worded(&Commands);
    match reader {
        Reader::Program => show::json(&ErrorBody { error }),
        Reader::Person => {
            let red = show::style(show::RED);
            let mut text = format!("{red}error:{red:#} {}\n", show::safe(&error.message));
            if let Some(hint) = &error.hint {
                let cyan = show::style(show::CYAN);
                text.push_str(&format!("{cyan}hint:{cyan:#} {}\n", show::safe(hint)));
            }
            show::note(&text);
        }
    }
    code
}

pub fn exit_code(kind: ErrorKind) -> ExitCode {
    ExitCode::from(kind.exit_code())
}
