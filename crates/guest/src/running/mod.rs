//! Records of processes, running and ended.

mod input;
mod record;
mod ring;
mod table;

pub use input::Stdin;
pub use record::{Channel, Exit, Facts, LINGER, Process};
pub use ring::{DEFAULT_BYTES, Found};
pub use table::Table;
