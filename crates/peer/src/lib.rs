//! Shared code of the runtimes that use foreign services.
//!
//! ```text
//!   address      the address of a service
//!   connection   calls to it, bounded in time and size
//!   trust        trusted certificates
//!   error        errors of calls
//!   answer       outcomes of requests on the link
//!   fate         notifications of a machine's end
//!   record       persistent records of machines
//! ```
//!
//! The service is not trusted: it may hang, lie or be another program. Nothing here depends on
//! the protocol of a service.

pub mod address;
pub mod answer;
pub mod connection;
pub mod error;
pub mod fate;
pub mod record;
pub mod trust;

pub use address::{Address, encoded};
pub use connection::{Answer, Ask, Body, Connections, Key, Patience, feed};
pub use error::{PeerError, Refusal};
pub use fate::Fates;
