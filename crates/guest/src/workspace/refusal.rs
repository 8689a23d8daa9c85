//! Why a change cannot be made.

use super::inside::Inside;
use crate::answer::{Failed, Quoted};
use motu_link::message::{Failure, RefusedWhy};
use rustix::io::Errno;

/// Why a step cannot be done, beside the failure itself.
pub type Refusal = (RefusedWhy, Failed);

pub fn kernel(path: &Inside, errno: Errno) -> Refusal {
    let why = match errno {
        Errno::NOENT => RefusedWhy::Absent,
        Errno::NOTDIR | Errno::LOOP | Errno::ISDIR => RefusedWhy::NotAFile,
        _ => RefusedWhy::Failed,
    };
    (why, path.failed(errno))
}

fn refuse(path: &Inside, kind: Failure, why: RefusedWhy, text: &str) -> Refusal {
    let message = format!("{} {text}", Quoted(path.as_bytes()));
    (why, Failed::new(kind, message))
}

pub fn present(path: &Inside) -> Refusal {
    refuse(
        path,
        Failure::Exists,
        RefusedWhy::Present,
        "is there already",
    )
}

pub fn absent(path: &Inside) -> Refusal {
    refuse(path, Failure::NotFound, RefusedWhy::Absent, "is not there")
}

pub fn differs(path: &Inside) -> Refusal {
    let text = "does not have the expected content";
    refuse(path, Failure::Exists, RefusedWhy::Differs, text)
}

pub fn not_a_file(path: &Inside) -> Refusal {
    let text = "is not a regular file";
    refuse(path, Failure::Invalid, RefusedWhy::NotAFile, text)
}
