//! Reasons of the agent.

/// The outcome of a request to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    Signed,
    /// The connection is bound to no session of a host.
    NotBound,
    /// The connection comes from a host that the agent was forwarded to.
    Forwarded,
    /// The host did not sign the id of the session.
    BadProof,
    /// The connection is bound to a session already.
    BoundTwice,
    /// No key is bound to a host with this host key.
    UnknownHostKey,
    /// A key that the agent does not have.
    UnknownKey,
    /// The data is no request to log in.
    NotALogin,
    /// The data is for another session or another host than the connection.
    OtherSession,
    /// An algorithm that is not one of this key, SHA-1 among them.
    Algorithm,
    /// A request that this agent does not know.
    Unsupported,
    Malformed,
}
