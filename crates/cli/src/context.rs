//! What every command has besides its arguments.

use crate::connect;
use crate::home::Place;
use motu_api::Client;

#[derive(Debug)]
pub struct Context {
    pub place: Place,
    /// Makes the description of all commands, for those that explain the others.
    pub grammar: fn() -> clap::Command,
}

impl Context {
    /// The daemon, which is found or started by the first call.
    pub fn client(&self) -> Client {
        connect::client(&self.place)
    }
}
