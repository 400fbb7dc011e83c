//! Describes the hosts of a cast as the calling program names them.

use std::net::SocketAddr;

use zerolane::Security;

/// A host to call.
#[derive(Clone, Debug)]
pub struct Host {
    /// As the user named it.
    pub name: String,
    /// Its possible addresses, tried in order, or why none is known.
    pub addresses: Result<Vec<SocketAddr>, String>,
    /// Protection of the connection. Without an identity, the cast makes one.
    pub security: Security,
}
