//! Encodes and decodes what two endpoints tell each other in the private data of a connection.
//!
//! A request says the version of this layout and the address of its end: in shared memory, and with several addresses
//! of a host, the address of the packets is not the one that the program knows. An answer says whether the
//! program accepted, because the library's refusal carries no data of the program.

use crate::errno::{Errno, Outcome};
use std::net::{IpAddr, SocketAddr};
use zerolane::options::{MAX_PRIVATE_DATA, PrivateData};

const VERSION: u8 = 1;
/// Family, address and port.
const ADDRESS: usize = 1 + 16 + 2;
const HEAD: usize = 1 + ADDRESS;
/// Bytes that a program may send with a request or an answer (`FI_OPT_CM_DATA_SIZE`).
pub(crate) const MOST: usize = MAX_PRIVATE_DATA - HEAD;
const _: () = assert!(MOST >= 24, "as ofi_rxm needs");

const ACCEPTED: u8 = 1;
const REJECTED: u8 = 2;

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The address of the asking end, if it has one.
    pub(crate) from: Option<SocketAddr>,
    pub(crate) data: Vec<u8>,
}

impl Ask {
    /// # Errors
    /// The data are too long.
    pub(crate) fn encode(&self) -> Outcome<PrivateData> {
        let mut bytes = vec![VERSION];
        let (family, ip) = match self.from.map(|it| it.ip()) {
            None => (0, [0; 16]),
            Some(IpAddr::V4(ip)) => {
                let mut room = [0; 16];
                room[..4].copy_from_slice(&ip.octets());
                (4, room)
            }
            Some(IpAddr::V6(ip)) => (6, ip.octets()),
        };
        bytes.push(family);
        bytes.extend(ip);
        bytes.extend(self.from.map_or(0, |it| it.port()).to_be_bytes());
        bytes.extend(&self.data);
        PrivateData::new(&bytes).map_err(|_| Errno::INVALID)
    }

    /// # Errors
    /// Why the peer is none that this end can talk to.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Ask, &'static str> {
        let Some((head, data)) = bytes.split_at_checked(HEAD) else {
            return Err("it is no libfabric provider");
        };
        if head[0] != VERSION {
            return Err("its provider has another version");
        }
        let address = &head[1..];
        let mut ip = [0; 16];
        ip.copy_from_slice(&address[1..17]);
        let port = u16::from_be_bytes([address[17], address[18]]);
        let from = match address[0] {
            0 => None,
            4 => Some(IpAddr::from([ip[0], ip[1], ip[2], ip[3]])),
            6 => Some(IpAddr::from(ip)),
            _ => return Err("its address is of an unknown family"),
        };
        Ok(Ask {
            from: from.map(|ip| SocketAddr::new(ip, port)),
            data: data.to_vec(),
        })
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted(Vec<u8>),
    Rejected(Vec<u8>),
}

impl Answer {
    /// # Errors
    /// The data are too long.
    pub(crate) fn encode(&self) -> Outcome<PrivateData> {
        let (kind, data) = match self {
            Answer::Accepted(data) => (ACCEPTED, data),
            Answer::Rejected(data) => (REJECTED, data),
        };
        if data.len() > MOST {
            return Err(Errno::INVALID);
        }
        let bytes: Vec<u8> = std::iter::once(kind).chain(data.iter().copied()).collect();
        PrivateData::new(&bytes).map_err(|_| Errno::INVALID)
    }

    /// None: the peer is no provider.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Answer> {
        let (kind, data) = bytes.split_first()?;
        match *kind {
            ACCEPTED => Some(Answer::Accepted(data.to_vec())),
            REJECTED => Some(Answer::Rejected(data.to_vec())),
            _ => None,
        }
    }
}
