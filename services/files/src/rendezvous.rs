//! Connects a client with the server that a login starts for it.
//!
//! Each writes one line to the login's channel (ssh), which is trusted. Both keys are made for this connection only,
//! and no secret is sent.
//!
//! ```text
//! client  zerolane-call VERSION PROGRAM KEY SECONDS LISTEN|-
//! server  zerolane-answer VERSION PROGRAM KEY ADDRESS
//! ```
//!
//! For a copy from one host to another, the program that a login starts at the source prints its key, with which it
//! then connects to the target. After that the source is told what to copy, in the program's own format.
//!
//! ```text
//! client  zerolane-order VERSION PROGRAM
//! source  zerolane-answer VERSION PROGRAM KEY
//! ```
//!
//! VERSION is that of the file service ([`FILE_PROTOCOL_VERSION`]), PROGRAM that of the program, for display. The place
//! of these two never changes; the rest is read only if VERSION is the same.

use crate::limits::{FILE_PROTOCOL_VERSION, RENDEZVOUS_LINE_BYTES};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane::security::PublicKey;

/// The client's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The only key to admit.
    pub key: PublicKey,
    /// How long the server waits for this client when it is away. Fractions of a second are dropped.
    pub patience: Duration,
    /// Where to listen, in the program's own format, without spaces; `None`: where the login came in.
    pub listen: Option<String>,
}

/// The line of a client to the program that it starts at the source of a copy from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order;

/// The answer to an [`Order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The key that the target must admit.
    pub key: PublicKey,
}

/// The line of the server, once it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The server's key.
    pub key: PublicKey,
    /// The server's address, as it sees itself.
    pub address: SocketAddr,
}

/// Why a line is not a [`Call`] or [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The other end uses another version of the file service.
    #[error(
        "zerolane {program} there speaks version {version} of the file service, zerolane {} here version \
         {FILE_PROTOCOL_VERSION}: install the same at both ends",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The other end's version.
        version: u16,
        /// The version of its program.
        program: String,
    },
    /// The line is malformed.
    #[error("the line is not one of zerolane's")]
    Malformed,
}

const ORDER: &str = "zerolane-order";
const CALL: &str = "zerolane-call";
const ANSWER: &str = "zerolane-answer";

impl Call {
    /// Parses a line without its line break.
    ///
    /// # Errors
    /// It is malformed, or of another version.
    pub fn parse(line: &[u8]) -> Result<Call, LineError> {
        let [key, seconds, listen] = words(CALL, line)?;
        let seconds = number(seconds).ok_or(LineError::Malformed)?;
        Ok(Call {
            key: key.parse().map_err(|_| LineError::Malformed)?,
            patience: Duration::from_secs(u64::from(seconds)),
            listen: (listen != "-").then(|| listen.to_owned()),
        })
    }
}

impl Order {
    /// Parses a line without its line break.
    ///
    /// # Errors
    /// It is malformed, or of another version.
    pub fn parse(line: &[u8]) -> Result<Order, LineError> {
        words(ORDER, line).map(|[]| Order)
    }
}

impl Ready {
    /// Parses a line without its line break.
    ///
    /// # Errors
    /// It is malformed, or of another version.
    pub fn parse(line: &[u8]) -> Result<Ready, LineError> {
        let [key] = words(ANSWER, line)?;
        let key = key.parse().map_err(|_| LineError::Malformed)?;
        Ok(Ready { key })
    }
}

impl Answer {
    /// Whether `line` looks like an answer: a login may print other lines before.
    pub fn begins(line: &[u8]) -> bool {
        line.strip_prefix(ANSWER.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&b' '))
    }

    /// The first words, which are the same in every version, for a client of another version.
    pub fn of_version() -> String {
        opening(ANSWER)
    }

    /// Parses a line without its line break.
    ///
    /// # Errors
    /// It is malformed, or of another version.
    pub fn parse(line: &[u8]) -> Result<Answer, LineError> {
        let [key, address] = words(ANSWER, line)?;
        Ok(Answer {
            key: key.parse().map_err(|_| LineError::Malformed)?,
            address: address.parse().map_err(|_| LineError::Malformed)?,
        })
    }
}

/// The line, without its line break.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call {
            key,
            patience,
            listen,
        } = self;
        let seconds = patience.as_secs().min(u64::from(u32::MAX));
        let listen = listen.as_deref().unwrap_or("-");
        write!(f, "{} {key} {seconds} {listen}", opening(CALL))
    }
}

/// The line, without its line break.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&opening(ORDER))
    }
}

/// The line, without its line break.
impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", opening(ANSWER), self.key)
    }
}

/// The line, without its line break.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", opening(ANSWER), self.key, self.address)
    }
}

fn opening(word: &str) -> String {
    format!(
        "{word} {FILE_PROTOCOL_VERSION} {}",
        env!("CARGO_PKG_VERSION")
    )
}

/// The `N` words of a line after `first` and our version, each after one space.
fn words<'l, const N: usize>(first: &str, line: &'l [u8]) -> Result<[&'l str; N], LineError> {
    let malformed = LineError::Malformed;
    let line = Some(line).filter(|line| line.len() <= RENDEZVOUS_LINE_BYTES);
    let line = line.filter(|line| line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.ok_or(malformed.clone())?.split(' ');
    if words.next() != Some(first) {
        return Err(malformed);
    }
    let version = words.next().and_then(number);
    let version = version.and_then(|it| u16::try_from(it).ok());
    let version = version.ok_or(malformed.clone())?;
    let program = words.next().ok_or(malformed.clone())?;
    if version != FILE_PROTOCOL_VERSION {
        let program = program.to_owned();
        return Err(LineError::Version { version, program });
    }
    let rest: Vec<_> = words.collect();
    rest.try_into().map_err(|_| malformed)
}

/// A number of digits only.
fn number(word: &str) -> Option<u32> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| digits)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use zerolane::security::Identity;

    fn key() -> PublicKey {
        Identity::from_secret([7; 32]).public()
    }

    #[test]
    fn lines__are_read_as_they_are_written() {
        for listen in [None, Some("[::1]:60000-60010".to_owned())] {
            let call = Call {
                key: key(),
                patience: Duration::from_secs(300),
                listen,
            };
            assert_eq!(Call::parse(call.to_string().as_bytes()), Ok(call));
        }
        for address in ["192.0.2.7:9181", "[2001:db8::1]:1", "[::]:65535"] {
            let (key, address) = (key(), address.parse().unwrap());
            let line = Answer { key, address }.to_string();
            assert!(Answer::begins(line.as_bytes()));
            assert_eq!(Answer::parse(line.as_bytes()), Ok(Answer { key, address }));
            assert!(Ready::parse(line.as_bytes()).is_err());
        }
        assert_eq!(Order::parse(Order.to_string().as_bytes()), Ok(Order));
        let ready = Ready { key: key() }.to_string();
        assert!(Answer::begins(ready.as_bytes()));
        assert_eq!(Ready::parse(ready.as_bytes()), Ok(Ready { key: key() }));
    }

    #[test]
    fn lines__of_another_version_say_so_whatever_follows() {
        for rest in ["", " what comes later"] {
            let line = format!("zerolane-answer 999 9.9.9{rest}");
            let (version, program) = (999, "9.9.9".to_owned());
            let expected = LineError::Version { version, program };
            assert_eq!(Answer::parse(line.as_bytes()), Err(expected));
        }
        let ours = Answer::of_version();
        assert_eq!(Answer::parse(ours.as_bytes()), Err(LineError::Malformed));
    }

    #[test]
    fn lines__anything_else_is_malformed() {
        let (key, address) = (key(), "192.0.2.7:9181".parse().unwrap());
        let line = Answer { key, address }.to_string();
        let long = format!("{line}{}", " ".repeat(RENDEZVOUS_LINE_BYTES));
        for bad in [
            String::new(),
            "zerolane-answer".into(),
            format!(" {line}"),
            format!("{line} "),
            format!("{line} more"),
            format!("{line}\r"),
            format!("{line}\0"),
            line.replace(' ', "  "),
            line.replace("zl:", ""),
            line.replace("9181", "x"),
            line.replace("9181", "70000"),
            line.replace("192.0.2.7", "host"),
            line.replacen("answer ", "answer +", 1),
            line.replace("answer", "call"),
            long,
        ] {
            assert_eq!(
                Answer::parse(bad.as_bytes()),
                Err(LineError::Malformed),
                "{bad:?}"
            );
        }
        assert!(!Answer::begins(b"zerolane-answers 4"));
        assert_eq!(
            Answer::parse(b"zerolane-answer 4 0.1.0 \xff"),
            Err(LineError::Malformed)
        );
        let call = Call {
            key,
            patience: Duration::from_secs(3),
            listen: None,
        };
        let call = call.to_string();
        assert!(Call::parse(call.as_bytes()).is_ok());
        assert!(Call::parse(call.replace(" 3 ", " -3 ").as_bytes()).is_err());
        assert!(Call::parse(call.replace(" 3 ", " 99999999999 ").as_bytes()).is_err());
    }
}
