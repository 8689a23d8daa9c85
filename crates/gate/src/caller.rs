//! Who calls, through which face.

use motu_core::account::Account;
use motu_core::audit::AuditId;
use motu_core::scope::Granted;
use motu_core::{Leave, Project};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whoever is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// A user of this host, who could open the private socket in the state directory. The kernel
    /// says which.
    Local { uid: u32 },
    /// Whoever sends this key.
    Key(Arc<Granted>),
    /// Somebody else. What is not known to be local is this.
    Remote,
}

impl Who {
    pub fn is_local(&self) -> bool {
        matches!(self, Who::Local { .. })
    }

    /// The only project that they see; nothing when they see all of the host.
    pub fn project(&self) -> Option<&Project> {
        match self {
            Who::Key(granted) => Some(&granted.project),
            Who::Local { .. } | Who::Remote => None,
        }
    }

    /// Who answers for what they have fetched.
    fn account(&self) -> Account {
        match self {
            Who::Local { .. } => Account::Operator,
            Who::Key(_) | Who::Remote => Account::Other(self.owner()),
        }
    }

    /// Whose the things are that they make, and whose quotas count.
    pub fn owner(&self) -> String {
        match self {
            Who::Key(granted) => granted.project.owner(),
            Who::Local { .. } | Who::Remote => self.to_string(),
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Local { uid } => write!(f, "uid:{uid}"),
            Who::Key(granted) => write!(f, "key:{}@{}", granted.key_id, granted.project),
            Who::Remote => f.write_str("remote"),
        }
    }
}

/// The way a call came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// The daemon's own socket: the command line, MCP on the same host, the Rust client.
    Socket,
    /// REST over the network.
    Http,
    /// gRPC, on the daemon's own socket or over the network.
    Grpc,
}

impl Face {
    pub fn as_str(self) -> &'static str {
        match self {
            Face::Socket => "socket",
            Face::Http => "http",
            Face::Grpc => "grpc",
        }
    }
}

/// Takes the name of a call in the audit log to whoever answers it.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<Mutex<Option<AuditId>>>);

impl Ticket {
    pub(crate) fn write(&self, id: &AuditId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
    }

    /// The name of the last call that was made with this ticket, if it is recorded.
    pub fn read(&self) -> Option<AuditId> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Who asks, how, and which of their requests this is.
#[derive(Clone, Debug)]
pub struct Caller {
    pub who: Who,
    pub face: Face,
    /// Counts the requests of this daemon, to find one in the log.
    pub request: u64,
    pub ticket: Ticket,
    /// Of one that passes on what a model says: all that it may ask for beside what is walled.
    pub leave: Option<Arc<Leave>>,
}

impl Caller {
    pub fn new(who: Who, face: Face) -> Caller {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        Caller {
            who,
            face,
            request: REQUESTS.fetch_add(1, Ordering::Relaxed),
            ticket: Ticket::default(),
            leave: None,
        }
    }

    /// Who answers for what this caller has fetched.
    pub fn account(&self) -> Account {
        match &self.leave {
            Some(leave) if leave.for_others => Account::Other(String::new()),
            _ => self.who.account(),
        }
    }

    /// The same caller, held to this leave.
    #[must_use]
    pub fn held_to(mut self, leave: Option<Arc<Leave>>) -> Caller {
        self.leave = leave;
        self
    }

    /// The same caller, who is told the name of the call by this.
    #[must_use]
    pub fn with_ticket(mut self, ticket: Ticket) -> Caller {
        self.ticket = ticket;
        self
    }

    /// The same caller with the next request.
    #[must_use]
    pub fn again(&self) -> Caller {
        Caller::new(self.who.clone(), self.face).held_to(self.leave.clone())
    }
}
