//! Ports that the kernel knows nothing of: those of the protocol's header, where no UDP port stands for them.

use crate::udp;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;

/// Where ports that were not asked for begin: the dynamic ones (RFC 6335).
const FIRST_FREE: u16 = 49_152;
/// Of these, how many are tried.
const TRIES: usize = 64;

/// A port that nothing else on this host listens on, for as long as this is held. The kernel knows no such for raw and
/// packet sockets, so it is a name in its abstract namespace of UNIX sockets, which network namespaces have each their
/// own of.
#[derive(Debug)]
pub(crate) struct Claim(#[allow(dead_code, reason = "held")] Socket);

impl Claim {
    fn of(what: &str, port: u16) -> io::Result<Claim> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        let name = format!("\0zerolane/{what}/{port}");
        socket.bind(&SockAddr::unix(name)?)?;
        Ok(Claim(socket))
    }

    /// Of `port` of `what`, or of any if that is 0; and which it is.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: something listens on it, or no port was found on which nothing does.
    pub(crate) fn any(what: &str, port: u16) -> io::Result<(Claim, u16)> {
        if port != 0 {
            return Ok((Claim::of(what, port)?, port));
        }
        for _ in 0..TRIES {
            let port = FIRST_FREE | udp::entropy()?.port;
            match Claim::of(what, port) {
                Ok(claim) => return Ok((claim, port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}
