//! One file per command.

pub mod backup;
pub mod completions;
pub mod cp;
pub mod create;
pub mod demo;
pub mod doctor;
pub mod env;
pub mod exec;
pub mod fork;
pub mod man;
pub mod mcp;
pub mod pause;
pub mod process;
pub mod ps;
pub mod recover;
pub mod rm;
pub mod run;
pub mod serve;
pub mod shape;
pub mod stop;
pub mod terminal;
pub mod version;
pub mod volume;
pub mod workspace;
