//! Claims a port of the protocol's header that has no UDP port behind it, so the kernel does not reserve it.

use crate::entropy;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;

/// First port to try when the caller asks for none: the dynamic ports (RFC 6335).
const FIRST_FREE: u16 = 49_152;
/// How many of these are tried.
const TRIES: usize = 64;

/// A port that no other listener of this host uses while this is held. The kernel reserves no ports for raw and packet
/// sockets. The claim is therefore a name in the abstract namespace of UNIX sockets, of which each network namespace
/// has its own.
#[derive(Debug)]
pub(crate) struct Claim(#[allow(dead_code, reason = "held")] Socket);

impl Claim {
    fn of(what: &str, port: u16) -> io::Result<Claim> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        let name = format!("\0zerolane/{what}/{port}");
        socket.bind(&SockAddr::unix(name)?)?;
        Ok(Claim(socket))
    }

    /// Claims `port` of `what`, or a free port if that is 0. Returns the claim and the port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another listener has the port, or no free port was found.
    pub(crate) fn any(what: &str, port: u16) -> io::Result<(Claim, u16)> {
        if port != 0 {
            return Ok((Claim::of(what, port)?, port));
        }
        for _ in 0..TRIES {
            let port = FIRST_FREE | entropy::draw()?.port;
            match Claim::of(what, port) {
                Ok(claim) => return Ok((claim, port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}
