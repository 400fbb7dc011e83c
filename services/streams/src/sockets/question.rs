//! Writes and reads the question whether a host carries TCP connections by Zerolane, and its answer.
//!
//! A client asks the UDP port of the same number as the TCP port, before it connects. An answer is no longer than its
//! question, so a server amplifies no traffic. It repeats the question's nonce, so only a host that saw the question can
//! answer. It says yes or nothing: a host that carries nothing has no socket there.
//!
//! Numbers are little-endian, IPv4 addresses mapped; the rest of the 96 bytes is 0.
//!
//! ```text
//! question   "ZLsock1?" | nonce 16 | to 2 | from 2 | source port 2 | source address 16
//! answer     "ZLsock1!" | nonce 16 | port 2 | key 32 | token 16
//! stream     purpose: "socket " | token 16; then "g", then the bytes of the program
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a nonce, and of a token.
pub const NONCE_BYTES: usize = 16;
/// Bytes of a question, and of an answer.
pub const PACKET_BYTES: usize = 96;

const QUESTION: &[u8; 8] = b"ZLsock1?";
const ANSWER: &[u8; 8] = b"ZLsock1!";

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// What the answer repeats.
    pub nonce: [u8; NONCE_BYTES],
    /// The TCP port that the client will connect to.
    pub to: u16,
    /// The TCP port that it will come from.
    pub from: u16,
    /// The address that this question comes from, as the client knows it. If the server sees another one, a translator
    /// is between, and it will see another TCP port, too.
    pub source: SocketAddr,
}

/// A yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yes {
    /// That of the question.
    pub nonce: [u8; NONCE_BYTES],
    /// The UDP port of Zerolane on the server.
    pub port: u16,
    /// The server's key.
    pub key: [u8; 32],
    /// What the client must show there. It is good for one connection.
    pub token: [u8; NONCE_BYTES],
}

impl Question {
    /// Its packet.
    pub fn write(&self) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[..8].copy_from_slice(QUESTION);
        packet[8..24].copy_from_slice(&self.nonce);
        packet[24..26].copy_from_slice(&self.to.to_le_bytes());
        packet[26..28].copy_from_slice(&self.from.to_le_bytes());
        packet[28..30].copy_from_slice(&self.source.port().to_le_bytes());
        let ip = match self.source.ip() {
            IpAddr::V4(it) => it.to_ipv6_mapped(),
            IpAddr::V6(it) => it,
        };
        packet[30..46].copy_from_slice(&ip.octets());
        packet
    }

    /// Reads a packet.
    pub fn read(packet: &[u8]) -> Option<Question> {
        let packet: &[u8; PACKET_BYTES] = packet.try_into().ok()?;
        if &packet[..8] != QUESTION {
            return None;
        }
        let number = |at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
        let ip: [u8; 16] = packet[30..46].try_into().ok()?;
        let ip = Ipv6Addr::from(ip).to_canonical();
        Some(Question {
            nonce: packet[8..24].try_into().ok()?,
            to: number(24),
            from: number(26),
            source: SocketAddr::new(ip, number(28)),
        })
    }
}

impl Yes {
    /// Its packet.
    pub fn write(&self) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[..8].copy_from_slice(ANSWER);
        packet[8..24].copy_from_slice(&self.nonce);
        packet[24..26].copy_from_slice(&self.port.to_le_bytes());
        packet[26..58].copy_from_slice(&self.key);
        packet[58..74].copy_from_slice(&self.token);
        packet
    }

    /// Reads a packet.
    pub fn read(packet: &[u8]) -> Option<Yes> {
        let packet: &[u8; PACKET_BYTES] = packet.try_into().ok()?;
        if &packet[..8] != ANSWER {
            return None;
        }
        Some(Yes {
            nonce: packet[8..24].try_into().ok()?,
            port: u16::from_le_bytes([packet[24], packet[25]]),
            key: packet[26..58].try_into().ok()?,
            token: packet[58..74].try_into().ok()?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn packets__are_read_as_written() {
        let question = Question {
            nonce: [1; 16],
            to: 80,
            from: 40_000,
            source: "10.0.0.1:5000".parse().unwrap(),
        };
        assert_eq!(Question::read(&question.write()), Some(question));
        let yes = Yes {
            nonce: [2; 16],
            port: 9,
            key: [3; 32],
            token: [4; 16],
        };
        assert_eq!(Yes::read(&yes.write()), Some(yes));
        assert_eq!(Yes::read(&question.write()), None);
        assert_eq!(Question::read(&yes.write()), None);
        assert_eq!(Question::read(&question.write()[1..]), None);
    }
}
