//! Answers a SOCKS5 client (RFC 1928), without IO: bytes in, bytes out, and where it wants to go. CONNECT only, without
//! authentication, as `ssh -D`.

use super::request::Target;
use std::net::{Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// What a client gets for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is connected.
    Succeeded = 0,
    /// It failed for another reason.
    Failed = 1,
    /// Forbidden by a rule.
    NotAllowed = 2,
    /// The host did not answer, or refused.
    Unreachable = 5,
    /// BIND and UDP ASSOCIATE.
    NoCommand = 7,
    /// An address of no known kind.
    NoAddress = 8,
}

/// What to do next with a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more bytes.
    More,
    /// Connect.
    Connect(Target),
    /// Close: it is no SOCKS5 client, or wants what is not there.
    Close,
}

/// The negotiation of one client.
#[derive(Debug, Default)]
pub struct Negotiation {
    input: Vec<u8>,
    greeted: bool,
}

/// Longest request: its head, a name of 255 bytes, and a port.
const MAX_INPUT: usize = 4 + 1 + 255 + 2;

impl Negotiation {
    /// Bytes that may be read for it.
    pub fn room(&self) -> usize {
        MAX_INPUT - self.input.len()
    }

    /// Takes bytes of the client, at most [`Self::room`], and appends the answer to `out`. A client sends nothing
    /// behind its request before the answer, except one that is sure of success; then [`Self::rest`] has it.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Step {
        self.input.extend(bytes);
        if !self.greeted {
            match self.greet(out) {
                Some(true) => {}
                Some(false) => return Step::Close,
                None => return Step::More,
            }
        }
        match self.request() {
            Some(Ok(target)) => Step::Connect(target),
            Some(Err(reply)) => {
                answer(reply, out);
                Step::Close
            }
            None if self.room() == 0 => Step::Close,
            None => Step::More,
        }
    }

    /// What came behind the request.
    pub fn rest(&self) -> &[u8] {
        &self.input
    }

    fn greet(&mut self, out: &mut Vec<u8>) -> Option<bool> {
        let &version = self.input.first()?;
        if version != VERSION {
            return Some(false);
        }
        let &methods = self.input.get(1)?;
        let end = 2 + usize::from(methods);
        let offered = self.input.get(2..end)?;
        self.greeted = offered.contains(&NO_AUTHENTICATION);
        let method = if self.greeted {
            NO_AUTHENTICATION
        } else {
            NO_METHOD
        };
        out.extend([VERSION, method]);
        self.input.drain(..end);
        Some(self.greeted)
    }

    fn request(&mut self) -> Option<Result<Target, Reply>> {
        let &[version, command, _, kind] = self.input.get(..4)?.first_chunk()?;
        if version != VERSION {
            return Some(Err(Reply::Failed));
        }
        if command != CONNECT {
            return Some(Err(Reply::NoCommand));
        }
        let rest = &self.input[4..];
        let (host, end) = match kind {
            1 => (Ipv4Addr::from(*rest.first_chunk::<4>()?).to_string(), 4),
            4 => (Ipv6Addr::from(*rest.first_chunk::<16>()?).to_string(), 16),
            3 => {
                let end = 1 + usize::from(*rest.first()?);
                let name = std::str::from_utf8(rest.get(1..end)?);
                (name.unwrap_or_default().to_owned(), end)
            }
            _ => return Some(Err(Reply::NoAddress)),
        };
        let port = u16::from_be_bytes(*rest.get(end..)?.first_chunk()?);
        self.input.drain(..4 + end + 2);
        Some(Target::new(&host, port).ok_or(Reply::NoAddress))
    }
}

/// Appends the answer to a request. Its address is unspecified, because that of the other end's socket means nothing
/// here.
pub fn answer(reply: Reply, out: &mut Vec<u8>) {
    out.extend([VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]);
}

#[cfg(test)]
#[path = "socks_tests.rs"]
mod tests;
