//! Parses and emits the 40-byte header (thesis, Figure 9): big-endian words, total accessors after one length check.

use core::fmt;

use crate::checksum::Sum;

/// Bytes of the header, on every operation.
pub const HEADER_LEN: usize = 40;

/// Operation codes. Zerolane's own numbers: see `docs/reference/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Opens a virtual connection.
    RequestConnection = 1,
    /// Accepts or rejects a virtual connection.
    ConnectionAnswer = 2,
    /// Asks to end the connection.
    RequestDisconnect = 3,
    /// Agrees to end the connection.
    DisconnectAnswer = 4,
    /// Third step of the disconnect handshake.
    DisconnectComplete = 5,
    /// Asks for a persistent memory region.
    RequestMemoryRegion = 6,
    /// Grants a persistent memory region.
    MemoryRegionAvailable = 7,
    /// Asks for bytes of a persistent memory region.
    Get = 8,
    /// Asks for an atomic operation on a 64-bit word of a persistent memory region.
    FetchOp = 9,
    /// Acknowledges the value that a FetchOp returned.
    FetchOpComplete = 10,
    /// Announces a Transfer from the sender of this operation.
    RequestToSend = 11,
    /// Answers a request that cannot be granted now, or ever.
    RequestAnswer = 12,
    /// Grants one Block.
    ClearToSend = 13,
    /// Asks the peer to announce a Transfer (Read sequence).
    RequestToReceive = 14,
    /// Carries payload of a granted Block or of a persistent memory region.
    Data = 15,
    /// Asks for a State.
    RequestState = 16,
    /// Reports what has been received (Request_State_Response).
    State = 17,
    /// Aborts a Transfer.
    End = 18,
    /// Confirms that a Transfer was aborted.
    EndAck = 19,
    /// Keep-alive, path probe, or options for an upper layer.
    Nop = 20,
}

impl Op {
    /// All operations, in order of their code points.
    pub const ALL: [Op; 20] = [
        Op::RequestConnection,
        Op::ConnectionAnswer,
        Op::RequestDisconnect,
        Op::DisconnectAnswer,
        Op::DisconnectComplete,
        Op::RequestMemoryRegion,
        Op::MemoryRegionAvailable,
        Op::Get,
        Op::FetchOp,
        Op::FetchOpComplete,
        Op::RequestToSend,
        Op::RequestAnswer,
        Op::ClearToSend,
        Op::RequestToReceive,
        Op::Data,
        Op::RequestState,
        Op::State,
        Op::End,
        Op::EndAck,
        Op::Nop,
    ];

    const fn from_code(code: u8) -> Option<Op> {
        if code >= 1 && code as usize <= Self::ALL.len() {
            Some(Self::ALL[code as usize - 1])
        } else {
            None
        }
    }
}

/// The 11-bit Flags field. The meaning of a bit depends on the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Data: do not deliver the header to the upper layer.
    pub const SILENT: Flags = Flags(0x001);
    /// Data: wake the receiver's upper layer.
    pub const INTERRUPT: Flags = Flags(0x002);
    /// Data: continues the put of the previous numbered operation.
    pub const CONTINUES: Flags = Flags(0x008);
    /// Request_To_Send, Data, Nop: asks the receiver to answer, matched by Sync.
    pub const SEND_STATE: Flags = Flags(0x004);
    /// Nop, State: this is an answer.
    pub const REPLY: Flags = Flags(0x008);
    /// Nop: padded to the length in Offset to probe the path.
    pub const PROBE: Flags = Flags(0x010);
    /// Request_To_Send, eager Data: answers a Request_To_Receive named by D_id.
    pub const READ: Flags = Flags(0x020);
    /// Data that is not eager: part of a datagram, or a datagram that is a train.
    pub const DATAGRAM: Flags = Flags(0x020);
    /// State: every Block of the Transfer is complete.
    pub const COMPLETE: Flags = Flags(0x040);
    /// State: the sender of this State has no such Transfer.
    pub const UNKNOWN: Flags = Flags(0x080);
    /// Nop: the path that it names is closed.
    pub const LEAVES: Flags = Flags(0x020);
    /// End: sent by the source of the Transfer's data.
    pub const FROM_SOURCE: Flags = Flags(0x100);
    /// Request_To_Send: for a persistent memory region. State, Request_Answer: about numbered operations on such a
    /// region. Data: the value of one; eager, with [`Flags::MESSAGE`]: the message itself.
    pub const MEMORY: Flags = Flags(0x010);
    /// Request_To_Send, eager Data: the payload of a message. Clear_To_Send, in advance: for the payload of a message.
    pub const MESSAGE: Flags = Flags(0x100);
    /// Data: announces its own Transfer, which has no grant.
    pub const EAGER: Flags = Flags(0x040);
    /// Eager Data that is its message: the source waits for the confirmation of the payload.
    pub const AWAITED: Flags = Flags(0x200);
    /// Data: frames follow, each a numbered operation.
    pub const FRAMES: Flags = Flags(0x080);
    /// Data: a train, with the header behind the payload. Clear_To_Send, Get: the Block may come as trains. State about
    /// numbered operations: they may.
    pub const TRAIN: Flags = Flags(0x400);
    /// Clear_To_Send: an advance grant, for a Transfer that is not yet announced.
    pub const ADVANCE: Flags = Flags(0x200);
    /// Data that is a train: announces its Transfer, which was granted in advance.
    pub const ANNOUNCES: Flags = Flags(0x200);
    /// Get: number the bursts of the answer, like those of a Transfer.
    pub const NUMBERED: Flags = Flags(0x001);
    /// FetchOp: the word has 32 bits.
    pub const HALF_WORD: Flags = Flags(0x001);
    /// Get: repeats an earlier request, which was not answered.
    pub const REPEATED: Flags = Flags(0x002);
    /// State: the options hold the connection's progress, not ranges.
    pub const PROGRESS: Flags = Flags(0x200);
    /// Connection_Answer, Request_Answer: refused permanently.
    pub const REJECT: Flags = Flags(0x400);
    /// Request_Connection, Connection_Answer: speaks the classic profile.
    pub const CAP_CLASSIC: Flags = Flags(0x001);
    /// Request_Connection, Connection_Answer: speaks the extended profile.
    pub const CAP_EXTENDED: Flags = Flags(0x002);
    /// Request_Connection, Connection_Answer: wants payload checksums.
    pub const CAP_CHECKSUM: Flags = Flags(0x004);
    /// Request_Connection, Connection_Answer: accepts Blocks in any order.
    pub const CAP_OUT_OF_ORDER: Flags = Flags(0x008);
    /// Request_Connection, Connection_Answer: offers persistent memory.
    pub const CAP_PERSISTENT: Flags = Flags(0x010);
    /// Request_Connection, Connection_Answer: accepts eager Data, within the limits in the options.
    pub const CAP_EAGER: Flags = Flags(0x020);
    /// Request_Connection, Connection_Answer: accepts frames.
    pub const CAP_FRAMES: Flags = Flags(0x040);
    /// Request_Connection, Connection_Answer: accepts advance grants.
    pub const CAP_ADVANCE: Flags = Flags(0x080);
    /// Request_Connection, Connection_Answer: accepts advance grants for the payload of messages.
    pub const CAP_ADVANCE_MESSAGES: Flags = Flags(0x100);
    /// Request_Connection, Connection_Answer: accepts datagrams.
    pub const CAP_DATAGRAMS: Flags = Flags(0x200);

    const MASK: u16 = 0x7ff;

    /// Flags from the low 11 bits of `bits`.
    pub const fn from_bits(bits: u16) -> Flags {
        Flags(bits & Self::MASK)
    }

    /// The 11 bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// `self` without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// `other` if `condition`, joined to `self`.
    #[must_use]
    pub const fn with_if(self, other: Flags, condition: bool) -> Flags {
        if condition { self.with(other) } else { self }
    }
}

/// The Scheduled Transfer header (thesis, Figure 9), in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Operation, 5 bits.
    pub op: Op,
    /// Flags, 11 bits.
    pub flags: Flags,
    /// Operation-specific parameter.
    pub param: u16,
    /// The receiver's port.
    pub d_port: u16,
    /// The sender's port.
    pub s_port: u16,
    /// The receiver's key.
    pub d_key: u32,
    /// One's-complement checksum, 0 when omitted.
    pub checksum: u16,
    /// B_id: the memory index Mx, or operation-specific.
    pub b_id: u16,
    /// Buffer index.
    pub bufx: u32,
    /// Offset within the buffer, bytes.
    pub offset: u32,
    /// Chosen by the sender, echoed by the answer.
    pub sync: u32,
    /// Block number within the Transfer.
    pub b_num: u32,
    /// The receiver's Transfer identifier.
    pub d_id: u32,
    /// The sender's Transfer identifier.
    pub s_id: u32,
}

impl Header {
    /// A header of `op` with every other field zero.
    pub const fn new(op: Op) -> Header {
        Header {
            op,
            flags: Flags::NONE,
            param: 0,
            d_port: 0,
            s_port: 0,
            d_key: 0,
            checksum: 0,
            b_id: 0,
            bufx: 0,
            offset: 0,
            sync: 0,
            b_num: 0,
            d_id: 0,
            s_id: 0,
        }
    }

    /// Parses a header from the first 40 bytes of `bytes`.
    ///
    /// # Errors
    /// Fewer than 40 bytes, or an unassigned operation code.
    pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::new(
                Field::Header,
                Problem::Truncated(bytes.len()),
            ));
        };
        let word = |n: usize| {
            u32::from_be_bytes([
                bytes[4 * n],
                bytes[4 * n + 1],
                bytes[4 * n + 2],
                bytes[4 * n + 3],
            ])
        };
        let (first, ports, check) = (word(0), word(1), word(3));
        let code = (first >> 27) as u8;
        let Some(op) = Op::from_code(code) else {
            return Err(ParseError::new(
                Field::Op,
                Problem::Unassigned(u32::from(code)),
            ));
        };
        Ok(Header {
            op,
            flags: Flags::from_bits((first >> 16) as u16),
            param: first as u16,
            d_port: (ports >> 16) as u16,
            s_port: ports as u16,
            d_key: word(2),
            checksum: (check >> 16) as u16,
            b_id: check as u16,
            bufx: word(4),
            offset: word(5),
            sync: word(6),
            b_num: word(7),
            d_id: word(8),
            s_id: word(9),
        })
    }

    /// The 40 bytes on the wire.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        self.emit_into(&mut bytes);
        bytes
    }

    /// Writes the 40 bytes into `bytes`.
    pub fn emit_into(&self, bytes: &mut [u8; HEADER_LEN]) {
        let words = [
            (self.op as u32) << 27 | u32::from(self.flags.bits()) << 16 | u32::from(self.param),
            u32::from(self.d_port) << 16 | u32::from(self.s_port),
            self.d_key,
            u32::from(self.checksum) << 16 | u32::from(self.b_id),
            self.bufx,
            self.offset,
            self.sync,
            self.b_num,
            self.d_id,
            self.s_id,
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Changes the fields that differ between the Data headers of a burst, in emitted bytes: the STU's number and its
    /// place.
    pub fn repoint(bytes: &mut [u8; HEADER_LEN], param: u16, bufx: u32, offset: u32) {
        bytes[2..4].copy_from_slice(&param.to_be_bytes());
        bytes[16..20].copy_from_slice(&bufx.to_be_bytes());
        bytes[20..24].copy_from_slice(&offset.to_be_bytes());
    }

    /// Sets `flags` in emitted bytes.
    pub fn add_flags(bytes: &mut [u8; HEADER_LEN], flags: Flags) {
        bytes[0] |= (flags.bits() >> 8) as u8;
        bytes[1] |= flags.bits() as u8;
    }

    /// Whether the header in `bytes` is Data's. Reads five bits.
    pub const fn is_data(bytes: &[u8; HEADER_LEN]) -> bool {
        bytes[0] >> 3 == Op::Data as u8
    }

    /// Whether `next` is the Data header that follows `last` and its `len` bytes of payload: same Block, same flags, no
    /// checksum, next place in the same buffer. Works on raw bytes, for lanes that check every header of a burst.
    pub fn continues(last: &[u8; HEADER_LEN], len: u32, next: &[u8; HEADER_LEN]) -> bool {
        const OFFSET: usize = 20;
        let offset = |bytes: &[u8; HEADER_LEN]| {
            u32::from_be_bytes([
                bytes[OFFSET],
                bytes[OFFSET + 1],
                bytes[OFFSET + 2],
                bytes[OFFSET + 3],
            ])
        };
        // Besides Offset, only Param, the STU's number, may differ.
        offset(last).checked_add(len) == Some(offset(next))
            && last[..2] == next[..2]
            && last[4..OFFSET] == next[4..OFFSET]
            && last[OFFSET + 4..] == next[OFFSET + 4..]
            && last[12..14] == [0, 0]
            && Header::is_data(last)
    }

    /// The sum over the 40 bytes, with the Checksum field as zero.
    pub fn sum(&self) -> Sum {
        let bare = Header {
            checksum: 0,
            ..*self
        };
        Sum::of(&bare.emit())
    }

    /// The same header with a Checksum over itself and the following bytes, whose sum is `rest`.
    #[must_use]
    pub fn sealed(self, rest: Sum) -> Header {
        Header {
            checksum: self.sum().join(rest).finish(),
            ..self
        }
    }

    /// Checks the Checksum field against this header and the following bytes, whose sum is `rest`. An omitted checksum
    /// passes: the connection decides whether it may be omitted.
    ///
    /// # Errors
    /// [`Field::Checksum`], [`Problem::Mismatch`].
    pub fn verify(&self, rest: Sum) -> Result<(), ParseError> {
        if self.checksum == 0 || self.sum().join(rest).matches(self.checksum) {
            Ok(())
        } else {
            Err(ParseError::new(Field::Checksum, Problem::Mismatch))
        }
    }

    /// Bufx and Offset as one 64-bit number (Bufx is the high half), for operations that carry a length there.
    pub const fn wide(&self) -> u64 {
        (self.bufx as u64) << 32 | self.offset as u64
    }

    /// Stores a 64-bit number in Bufx and Offset.
    #[must_use]
    pub const fn with_wide(mut self, value: u64) -> Header {
        self.bufx = (value >> 32) as u32;
        self.offset = value as u32;
        self
    }
}

/// The invalid part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The header as a whole.
    Header,
    /// The operation code.
    Op,
    /// The Flags field.
    Flags,
    /// The Param field.
    Param,
    /// The checksum over header and payload.
    Checksum,
    /// The B_id field.
    BId,
    /// The Bufx field.
    Bufx,
    /// The Offset field.
    Offset,
    /// The B_num field.
    BNum,
    /// The D_id field.
    DId,
    /// The S_id field.
    SId,
    /// The 32 bytes of options.
    Options,
    /// A frame, of several in a Data datagram.
    Frame,
    /// The encapsulation around the header.
    Encapsulation,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// Too short; the value is the length in bytes.
    Truncated(usize),
    /// Longer than the operation allows; the value is the length in bytes.
    TooLong(usize),
    /// An unassigned code.
    Unassigned(u32),
    /// A value outside its range.
    OutOfRange(u64),
    /// A checksum mismatch.
    Mismatch,
}

/// Why a datagram was refused: the field and the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParseError {
    /// The invalid field.
    pub field: Field,
    /// What is wrong with it.
    pub problem: Problem,
}

impl ParseError {
    pub(crate) const fn new(field: Field, problem: Problem) -> ParseError {
        ParseError { field, problem }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: ", self.field)?;
        match self.problem {
            Problem::Truncated(len) => write!(f, "truncated, {len} bytes"),
            Problem::TooLong(len) => write!(f, "too long, {len} bytes"),
            Problem::Unassigned(code) => write!(f, "code {code} is not assigned"),
            Problem::OutOfRange(value) => write!(f, "{value} is out of range"),
            Problem::Mismatch => write!(f, "does not match"),
        }
    }
}

impl core::error::Error for ParseError {}

const _: () = assert!(Op::ALL.len() < 32, "the operation code has five bits");

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
