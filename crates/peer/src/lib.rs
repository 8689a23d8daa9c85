//! What the runtimes on foreign services share.
//!
//! ```text
//!   address      where a service is
//!   connection   calls to it: bounded in time and size
//!   trust        whose certificates are believed
//!   error        how a call fails
//!   answer       how a request on the link ends
//!   fate         who has heard of a machine's end
//!   record       what is remembered of a machine
//! ```
//!
//! The service is somebody else's: it may hang, lie or be something else altogether. Nothing here
//! knows what is asked of it.

pub mod address;
pub mod answer;
pub mod connection;
pub mod error;
pub mod fate;
pub mod record;
mod trust;

pub use address::{Address, encoded};
pub use connection::{Answer, Ask, Body, Connections, Key, Patience, feed};
pub use error::{PeerError, Refusal};
pub use fate::Fates;
