//! What every command has besides its arguments.

use crate::connect;
use crate::home::Place;
use motu_api::Client;

#[derive(Debug)]
pub struct Context {
    pub place: Place,
    /// Makes the description of all commands, for those that explain the others.
    pub grammar: fn() -> clap::Command,
    /// The daemon of another host, where one is named.
    pub remote: Option<Client>,
}

impl Context {
    /// The daemon: that of another host, or of this one, which is found or started by the first
    /// call.
    pub fn client(&self) -> Client {
        match &self.remote {
            Some(remote) => remote.clone(),
            None => connect::client(&self.place),
        }
    }
}
