//! Hosts of a cast, as the program names them.

use std::net::SocketAddr;

use zerolane::Security;

/// A host to be called.
#[derive(Clone, Debug)]
pub struct Host {
    /// As the user named it.
    pub name: String,
    /// Where it may wait, or why that is not known: each is tried in turn.
    pub addresses: Result<Vec<SocketAddr>, String>,
    /// How the connection to it is protected. Without an identity, one is made for the cast.
    pub security: Security,
}
