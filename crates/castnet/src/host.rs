//! Hosts of a cast, as the program names them.

use std::net::SocketAddr;

use zerolane::Security;

/// A host to be called.
#[derive(Clone, Debug)]
pub struct Host {
    /// As the user named it.
    pub name: String,
    /// Where it waits, or why that is not known.
    pub address: Result<SocketAddr, String>,
    /// How the connection to it is protected.
    pub security: Security,
}
