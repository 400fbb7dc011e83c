//! Writes and reads the calls that the preloaded library makes to the runner, each one packet of a local socket.
//!
//! A call is the runner's secret, a kind, a number and two addresses; an answer has no secret. Nothing here allocates,
//! because the library may run in a signal handler, or between `vfork` and `exec`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The environment variable that names the runner: see [`Runner`].
pub const VARIABLE: &str = "ZEROLANE_SOCKETS";

/// Bytes of a call.
pub const CALL_BYTES: usize = SECRET_BYTES + ANSWER_BYTES;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 1 + 4 + 2 * ADDRESS_BYTES;
/// Bytes of the secret.
pub const SECRET_BYTES: usize = 16;
/// Bytes of the abstract name that the runner listens on.
pub const NAME_BYTES: usize = PREFIX.len() + 2 * NUMBER_BYTES;

/// How the name begins, for people who read `ss -x`.
const PREFIX: &[u8] = b"zerolane-run/";
/// Random bytes of the name.
const NUMBER_BYTES: usize = 16;
/// Family, port, address, scope.
const ADDRESS_BYTES: usize = 1 + 2 + 16 + 4;

/// How a program reaches its runner, as in [`VARIABLE`]: `NAME SECRET PORT STRICT`, each in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    number: [u8; NUMBER_BYTES],
    /// What calls must begin with.
    pub secret: [u8; SECRET_BYTES],
    /// The port on the loopback address that programs' sockets are connected to instead of the peer.
    pub port: u16,
    /// Connections that Zerolane cannot carry must fail.
    pub strict: bool,
}

impl Runner {
    /// A runner named by random `numbers`.
    pub fn new(numbers: [u8; 32], port: u16, strict: bool) -> Runner {
        let (mut number, mut secret) = ([0; NUMBER_BYTES], [0; SECRET_BYTES]);
        number.copy_from_slice(&numbers[..16]);
        secret.copy_from_slice(&numbers[16..]);
        Runner {
            number,
            secret,
            port,
            strict,
        }
    }

    /// The abstract name of its socket.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut name = [0; NAME_BYTES];
        name[..PREFIX.len()].copy_from_slice(PREFIX);
        for (index, byte) in self.number.iter().enumerate() {
            name[PREFIX.len() + 2 * index] = DIGITS[usize::from(byte >> 4)];
            name[PREFIX.len() + 2 * index + 1] = DIGITS[usize::from(byte & 15)];
        }
        name
    }

    /// Reads the variable.
    pub fn parse(text: &[u8]) -> Option<Runner> {
        let mut words = text.split(|it| *it == b' ');
        let number = hex(words.next()?)?;
        let secret = hex(words.next()?)?;
        let port = u16::from_be_bytes(hex(words.next()?)?);
        let [strict] = hex(words.next()?)?;
        words.next().is_none().then_some(Runner {
            number,
            secret,
            port,
            strict: strict != 0,
        })
    }
}

impl std::fmt::Display for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let write = |f: &mut std::fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|it| write!(f, "{it:02x}"))
        };
        write(f, &self.number)?;
        f.write_str(" ")?;
        write(f, &self.secret)?;
        write!(f, " {:04x} {:02x}", self.port, u8::from(self.strict))
    }
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |it: u8| char::from(it).to_digit(16).map(|it| it as u8);
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// What a program's library says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The library was loaded.
    Hello,
    /// A TCP socket listens.
    Listen {
        /// Where.
        on: SocketAddr,
        /// An IPv6 socket that takes no IPv4.
        only_v6: bool,
    },
    /// The program wants this UDP port.
    Release(u16),
    /// The program connects. [`Answer::Go`]: say the port next.
    Connect(SocketAddr),
    /// Its socket is bound to this port. [`Answer::Go`]: connect now, then say how long it took.
    From(u16),
    /// TCP is connected, after so many microseconds.
    Connected(u32),
    /// The program accepted a connection.
    Accepted {
        /// The own address.
        local: SocketAddr,
        /// The client's.
        peer: SocketAddr,
    },
    /// The program's own end is connected to the runner from this port; the TCP socket comes with the call.
    Take(u16),
    /// Whose connection is the program's end on this port?
    Names(u16),
    /// List the connections: answered by lines, one a packet.
    Show,
}

/// What the runner answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This connection stays what it is.
    Plain,
    /// Go on.
    Go,
    /// Zerolane carries this connection: take it.
    Carried,
    /// This connection must not stay what it is.
    Refused,
    /// The addresses of a connection.
    Names {
        /// The own address.
        local: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
    },
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Call {
    /// The packet of a call.
    pub fn write(&self, secret: &[u8; SECRET_BYTES]) -> [u8; CALL_BYTES] {
        let mut packet = [0; CALL_BYTES];
        packet[..SECRET_BYTES].copy_from_slice(secret);
        let parts = match *self {
            Call::Hello => (1, 0, NOWHERE, NOWHERE),
            Call::Listen { on, only_v6 } => (2, u32::from(only_v6), on, NOWHERE),
            Call::Release(port) => (3, port.into(), NOWHERE, NOWHERE),
            Call::Connect(to) => (4, 0, to, NOWHERE),
            Call::From(port) => (5, port.into(), NOWHERE, NOWHERE),
            Call::Connected(micros) => (6, micros, NOWHERE, NOWHERE),
            Call::Accepted { local, peer } => (7, 0, local, peer),
            Call::Take(port) => (8, port.into(), NOWHERE, NOWHERE),
            Call::Names(port) => (9, port.into(), NOWHERE, NOWHERE),
            Call::Show => (10, 0, NOWHERE, NOWHERE),
        };
        packet[SECRET_BYTES..].copy_from_slice(&write(parts));
        packet
    }

    /// Reads a packet, if its secret is the right one.
    pub fn read(packet: &[u8], secret: &[u8; SECRET_BYTES]) -> Option<Call> {
        let (theirs, rest) = packet.split_first_chunk::<SECRET_BYTES>()?;
        // No early end: time does not tell how many bytes were right.
        let differs = theirs.iter().zip(secret).fold(0, |all, (a, b)| all | a ^ b);
        if differs != 0 {
            return None;
        }
        let (kind, number, one, other) = read(rest)?;
        let port = u16::try_from(number);
        Some(match kind {
            1 => Call::Hello,
            2 => Call::Listen {
                on: one,
                only_v6: number != 0,
            },
            3 => Call::Release(port.ok()?),
            4 => Call::Connect(one),
            5 => Call::From(port.ok()?),
            6 => Call::Connected(number),
            7 => Call::Accepted {
                local: one,
                peer: other,
            },
            8 => Call::Take(port.ok()?),
            9 => Call::Names(port.ok()?),
            10 => Call::Show,
            _ => return None,
        })
    }
}

impl Answer {
    /// The packet of an answer.
    pub fn write(&self) -> [u8; ANSWER_BYTES] {
        write(match *self {
            Answer::Plain => (1, 0, NOWHERE, NOWHERE),
            Answer::Go => (2, 0, NOWHERE, NOWHERE),
            Answer::Carried => (3, 0, NOWHERE, NOWHERE),
            Answer::Refused => (4, 0, NOWHERE, NOWHERE),
            Answer::Names { local, peer } => (5, 0, local, peer),
        })
    }

    /// Reads a packet.
    pub fn read(packet: &[u8]) -> Option<Answer> {
        let (kind, _, local, peer) = read(packet)?;
        Some(match kind {
            1 => Answer::Plain,
            2 => Answer::Go,
            3 => Answer::Carried,
            4 => Answer::Refused,
            5 => Answer::Names { local, peer },
            _ => return None,
        })
    }
}

fn write((kind, number, one, other): (u8, u32, SocketAddr, SocketAddr)) -> [u8; ANSWER_BYTES] {
    let mut packet = [0; ANSWER_BYTES];
    packet[0] = kind;
    packet[1..5].copy_from_slice(&number.to_le_bytes());
    let (_, addresses) = packet.split_at_mut(5);
    for (place, address) in addresses.chunks_exact_mut(ADDRESS_BYTES).zip([one, other]) {
        place[1..3].copy_from_slice(&address.port().to_le_bytes());
        match address {
            SocketAddr::V4(it) => {
                place[0] = 4;
                place[3..7].copy_from_slice(&it.ip().octets());
            }
            SocketAddr::V6(it) => {
                place[0] = 6;
                place[3..19].copy_from_slice(&it.ip().octets());
                place[19..23].copy_from_slice(&it.scope_id().to_le_bytes());
            }
        }
    }
    packet
}

fn read(packet: &[u8]) -> Option<(u8, u32, SocketAddr, SocketAddr)> {
    let packet: &[u8; ANSWER_BYTES] = packet.try_into().ok()?;
    let number = u32::from_le_bytes(packet[1..5].try_into().ok()?);
    let address = |place: &[u8]| {
        let port = u16::from_le_bytes(place[1..3].try_into().ok()?);
        Some(match place[0] {
            4 => {
                let octets: [u8; 4] = place[3..7].try_into().ok()?;
                SocketAddr::V4(SocketAddrV4::new(octets.into(), port))
            }
            6 => {
                let octets: [u8; 16] = place[3..19].try_into().ok()?;
                let scope = u32::from_le_bytes(place[19..23].try_into().ok()?);
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope))
            }
            _ => return None,
        })
    };
    let one = address(&packet[5..5 + ADDRESS_BYTES])?;
    let other = address(&packet[5 + ADDRESS_BYTES..])?;
    Some((packet[0], number, one, other))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 2] {
        let scoped = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 443, 0, 7);
        ["10.0.0.1:80".parse().unwrap(), scoped.into()]
    }

    #[test]
    fn Call__is_read_as_written() {
        let [one, other] = addresses();
        let secret = [7; SECRET_BYTES];
        for call in [
            Call::Hello,
            Call::Listen {
                on: other,
                only_v6: true,
            },
            Call::Release(53),
            Call::Connect(one),
            Call::From(u16::MAX),
            Call::Connected(u32::MAX),
            Call::Accepted {
                local: one,
                peer: other,
            },
            Call::Take(1),
            Call::Names(2),
            Call::Show,
        ] {
            let packet = call.write(&secret);
            assert_eq!(Call::read(&packet, &secret), Some(call));
            assert_eq!(Call::read(&packet, &[8; SECRET_BYTES]), None);
            assert_eq!(Call::read(&packet[1..], &secret), None);
        }
    }

    #[test]
    fn Answer__is_read_as_written() {
        let [local, peer] = addresses();
        for answer in [
            Answer::Plain,
            Answer::Go,
            Answer::Carried,
            Answer::Refused,
            Answer::Names { local, peer },
        ] {
            assert_eq!(Answer::read(&answer.write()), Some(answer));
        }
        assert_eq!(Answer::read(&[9; ANSWER_BYTES]), None);
        assert_eq!(Answer::read(&[]), None);
    }

    #[test]
    fn Runner__is_read_as_written() {
        let numbers = std::array::from_fn(|it| it as u8 * 7);
        let runner = Runner::new(numbers, 40_001, true);
        let text = runner.to_string();
        assert_eq!(Runner::parse(text.as_bytes()), Some(runner));
        for wrong in [
            "",
            "a",
            &text[1..],
            &format!("{text} 00"),
            &text.replace('0', "g"),
        ] {
            assert_eq!(Runner::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(runner.name().starts_with(b"zerolane-run/00070e"));
    }
}
