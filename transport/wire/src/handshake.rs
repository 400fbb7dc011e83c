//! Parses and emits the messages of the key exchange: a header of the usual shape, and an opaque body.
//!
//! They have their own code point besides those of the operations, and are the only datagrams of a protected connection
//! that are not sealed. See `docs/reference/protocol.md`, "Protection".

use crate::header::{Field, Flags, HEADER_LEN, Header, Op, ParseError, Problem};
use crate::operation::Reason;

/// Code point in the place of Op's: the last of the five bits' values, distinct from the operations.
pub const HANDSHAKE_CODE: u8 = 31;
/// Bytes of the cookie in a Hello; all zero if the Initiator has none.
pub const COOKIE_LEN: usize = 16;
/// The longest handshake message, header included, bytes.
pub const MAX_HANDSHAKE: usize = 320;
/// The longest body.
const MAX_BODY: usize = MAX_HANDSHAKE - HEADER_LEN;

/// A message of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// From the Initiator: begins.
    Hello = 1,
    /// From the Responder: return this cookie first, to prove your address.
    Retry = 2,
    /// From the Responder: its part.
    Answer = 3,
    /// From the Initiator: its part, and the Request_Connection.
    Finish = 4,
    /// From the Responder: refuses, with a reason. Not authenticated.
    Refusal = 5,
}

impl Step {
    const ALL: [Step; 5] = [
        Step::Hello,
        Step::Retry,
        Step::Answer,
        Step::Finish,
        Step::Refusal,
    ];
}

/// What the Initiator proves besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Nothing.
    None = 0,
    /// That it has a pre-shared key.
    PreSharedKey = 1,
    /// That it knows a one-time code.
    Code = 2,
}

impl Proof {
    const ALL: [Proof; 3] = [Proof::None, Proof::PreSharedKey, Proof::Code];

    fn parse(flags: Flags) -> Result<Proof, ParseError> {
        let bits = flags.bits() & PROOF_MASK;
        let proof = Proof::ALL.into_iter().find(|&it| it as u16 == bits);
        proof.ok_or(ParseError::new(
            Field::Flags,
            Problem::Unassigned(u32::from(bits)),
        ))
    }
}

/// Bits of Flags that hold a [`Proof`].
const PROOF_MASK: u16 = 0x003;

/// A message of the key exchange, with the fields that all messages of one exchange share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandshakeMessage<'a> {
    /// The kind of message.
    pub step: Step,
    /// Hello, Finish: what the Initiator proves.
    pub proof: Proof,
    /// Refusal: the reason.
    pub reason: Reason,
    /// Port of the receiver.
    pub d_port: u16,
    /// Port of the sender.
    pub s_port: u16,
    /// The receiver's key; 0 in Hello.
    pub d_key: u32,
    /// The sender's key.
    pub s_key: u32,
    /// Chosen by the Initiator; the same in all messages of one exchange.
    pub sync: u32,
    /// The bytes behind the header, at most [`MAX_HANDSHAKE`] less the header.
    pub body: &'a [u8],
}

impl<'a> HandshakeMessage<'a> {
    /// Whether `datagram` has the code of a handshake message. Reads five bits.
    pub fn is(datagram: &[u8]) -> bool {
        datagram
            .first()
            .is_some_and(|first| first >> 3 == HANDSHAKE_CODE)
    }

    /// Parses a whole datagram.
    ///
    /// # Errors
    /// Names the field: a truncated header, another operation's code, an unassigned step or reason, a body that is too
    /// long.
    pub fn parse(datagram: &'a [u8]) -> Result<HandshakeMessage<'a>, ParseError> {
        if datagram.len() < HEADER_LEN {
            let problem = Problem::Truncated(datagram.len());
            return Err(ParseError::new(Field::Header, problem));
        }
        if !Self::is(datagram) {
            let code = u32::from(datagram[0] >> 3);
            return Err(ParseError::new(Field::Op, Problem::Unassigned(code)));
        }
        let (head, body) = datagram.split_at(HEADER_LEN);
        if body.len() > MAX_BODY {
            let problem = Problem::TooLong(body.len());
            return Err(ParseError::new(Field::Options, problem));
        }
        // Except for the code, this is an operation's header.
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(head);
        bytes[0] = (Op::Nop as u8) << 3 | bytes[0] & 0b111;
        let header = Header::parse(&bytes)?;
        let step = Step::ALL
            .into_iter()
            .find(|&step| step as u16 == header.param)
            .ok_or(ParseError::new(
                Field::Param,
                Problem::Unassigned(u32::from(header.param)),
            ))?;
        Ok(HandshakeMessage {
            step,
            proof: Proof::parse(header.flags)?,
            reason: Reason::parse(header.b_id)?,
            d_port: header.d_port,
            s_port: header.s_port,
            d_key: header.d_key,
            s_key: header.s_id,
            sync: header.sync,
            body,
        })
    }

    /// The bytes on the wire, and their count.
    ///
    /// # Panics
    /// The body is longer than [`MAX_HANDSHAKE`] less the header: only possible in a message of our own making.
    pub fn emit(&self) -> ([u8; MAX_HANDSHAKE], usize) {
        let header = Header {
            flags: Flags::from_bits(self.proof as u16),
            param: self.step as u16,
            b_id: self.reason as u16,
            d_port: self.d_port,
            s_port: self.s_port,
            d_key: self.d_key,
            s_id: self.s_key,
            sync: self.sync,
            ..Header::new(Op::Nop)
        };
        let len = HEADER_LEN + self.body.len();
        let mut bytes = [0; MAX_HANDSHAKE];
        bytes[..HEADER_LEN].copy_from_slice(&header.emit());
        bytes[0] = HANDSHAKE_CODE << 3 | bytes[0] & 0b111;
        bytes[HEADER_LEN..len].copy_from_slice(self.body);
        (bytes, len)
    }
}

const _: () = assert!(Op::ALL.len() < HANDSHAKE_CODE as usize);

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const HELLO: HandshakeMessage<'_> = HandshakeMessage {
        step: Step::Hello,
        proof: Proof::PreSharedKey,
        reason: Reason::Normal,
        d_port: 1,
        s_port: 2,
        d_key: 0,
        s_key: 0x0102_0304,
        sync: 5,
        body: &[7; 96],
    };

    #[test]
    fn parse__what_was_emitted() {
        for step in Step::ALL {
            let message = HandshakeMessage { step, ..HELLO };
            let (bytes, len) = message.emit();
            assert!(HandshakeMessage::is(&bytes));
            assert_eq!(HandshakeMessage::parse(&bytes[..len]), Ok(message));
        }
        for proof in Proof::ALL {
            let message = HandshakeMessage { proof, ..HELLO };
            let (bytes, len) = message.emit();
            assert_eq!(HandshakeMessage::parse(&bytes[..len]), Ok(message));
        }
    }

    #[test]
    fn parse__each_broken_field_is_named() {
        let (good, len) = HELLO.emit();
        let broken = |change: &dyn Fn(&mut [u8; MAX_HANDSHAKE])| {
            let mut bytes = good;
            change(&mut bytes);
            let parsed = HandshakeMessage::parse(&bytes[..len]);
            parsed.map(|_| ()).map_err(|error| error.field)
        };
        assert_eq!(broken(&|bytes| bytes[0] = 20 << 3), Err(Field::Op));
        assert_eq!(broken(&|bytes| bytes[1] |= 3), Err(Field::Flags));
        assert_eq!(broken(&|bytes| bytes[3] = 0), Err(Field::Param));
        assert_eq!(broken(&|bytes| bytes[3] = 6), Err(Field::Param));
        assert_eq!(broken(&|bytes| bytes[14] = 0xff), Err(Field::Param));
        let short = HandshakeMessage::parse(&good[..HEADER_LEN - 1]);
        assert_eq!(short.map_err(|error| error.field), Err(Field::Header));
        let mut long = [0; MAX_HANDSHAKE + 1];
        long[..len].copy_from_slice(&good[..len]);
        let long = HandshakeMessage::parse(&long);
        assert_eq!(long.map_err(|error| error.field), Err(Field::Options));
    }

    #[test]
    fn parse__no_operation_of_the_connection_is_one() {
        let (bytes, len) = HELLO.emit();
        assert!(crate::Packet::parse(&bytes[..len]).is_err());
        assert!(!HandshakeMessage::is(&Header::new(Op::Data).emit()));
        assert!(!HandshakeMessage::is(&[]));
    }
}
