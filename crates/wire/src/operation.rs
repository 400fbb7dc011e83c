//! Typed operations: each one's fields, and where they sit in the header and options.
//!
//! `docs/protocol.md` is the prose of this file. Fields an operation does not
//! use are sent as zero and ignored on receipt.

use crate::checksum::Sum;
use crate::header::{Field, Flags, HEADER_LEN, Header, Op, ParseError, Problem};

/// Bytes of options on a control operation that carries any.
pub const OPTIONS_LEN: usize = 32;
/// Ranges that fit in the options of one State.
pub const MAX_RANGES: usize = 4;
/// Newest protocol version this library speaks.
pub const VERSION: u8 = 1;
/// Oldest protocol version this library speaks.
pub const VERSION_MIN: u8 = 1;
/// Opens the options of every Request_Connection, so that a stranger is told from a peer.
const MAGIC: [u8; 8] = *b"Zerolane";

type Options = [u8; OPTIONS_LEN];

/// Who an operation is for and from: ports and the destination's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    /// The receiver's port.
    pub d_port: u16,
    /// The sender's port.
    pub s_port: u16,
    /// The receiver's key (0 in Request_Connection, which has none yet).
    pub d_key: u32,
}

/// How the two ends behave: see `DESIGN.md`, "Two profiles".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// As the thesis describes: power-of-two STUs, one grant at a time, whole-Block repair.
    Classic,
    /// Any STU size, several Blocks granted ahead, selective repair.
    Extended,
}

/// A set of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profiles {
    /// Speaks the classic profile.
    pub classic: bool,
    /// Speaks the extended profile.
    pub extended: bool,
}

impl Profiles {
    /// Both profiles.
    pub const BOTH: Profiles = Profiles {
        classic: true,
        extended: true,
    };
    /// Only `profile`.
    pub const fn only(profile: Profile) -> Profiles {
        Profiles {
            classic: matches!(profile, Profile::Classic),
            extended: matches!(profile, Profile::Extended),
        }
    }
    /// The better profile both sets hold, if any: extended before classic.
    pub const fn common(self, other: Profiles) -> Option<Profile> {
        if self.extended && other.extended {
            Some(Profile::Extended)
        } else if self.classic && other.classic {
            Some(Profile::Classic)
        } else {
            None
        }
    }
}

/// What an end can do, told at connection set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Profiles spoken (exactly one in an accepting Connection_Answer).
    pub profiles: Profiles,
    /// Asks for payload checksums on Data.
    pub checksum: bool,
    /// Takes Blocks in any order.
    pub out_of_order: bool,
    /// Offers persistent memory regions.
    pub persistent: bool,
    /// Unanswered requests this end can hold, 1 to 65535.
    pub slots: u16,
    /// Largest STU payload this end takes, bytes, at least 1.
    pub max_stu: u32,
    /// log2 of this end's buffer size in bytes, at most 32. STUs never cross a buffer boundary.
    pub buffer_log2: u8,
}

/// Largest `buffer_log2`: Offset has 32 bits.
const MAX_BUFFER_LOG2: u8 = 32;

impl Capabilities {
    fn emit(&self, header: &mut Header) {
        header.flags = header
            .flags
            .with_if(Flags::CAP_CLASSIC, self.profiles.classic)
            .with_if(Flags::CAP_EXTENDED, self.profiles.extended)
            .with_if(Flags::CAP_CHECKSUM, self.checksum)
            .with_if(Flags::CAP_OUT_OF_ORDER, self.out_of_order)
            .with_if(Flags::CAP_PERSISTENT, self.persistent);
        header.b_id = self.slots;
        header.bufx = self.max_stu;
        header.offset = u32::from(self.buffer_log2);
    }

    fn parse(header: &Header) -> Result<Capabilities, ParseError> {
        if header.b_id == 0 {
            return Err(out_of_range(Field::BId, 0));
        }
        if header.bufx == 0 {
            return Err(out_of_range(Field::Bufx, 0));
        }
        if header.offset > u32::from(MAX_BUFFER_LOG2) {
            return Err(out_of_range(Field::Offset, u64::from(header.offset)));
        }
        let flags = header.flags;
        Ok(Capabilities {
            profiles: Profiles {
                classic: flags.contains(Flags::CAP_CLASSIC),
                extended: flags.contains(Flags::CAP_EXTENDED),
            },
            checksum: flags.contains(Flags::CAP_CHECKSUM),
            out_of_order: flags.contains(Flags::CAP_OUT_OF_ORDER),
            persistent: flags.contains(Flags::CAP_PERSISTENT),
            slots: header.b_id,
            max_stu: header.bufx,
            buffer_log2: header.offset as u8,
        })
    }
}

/// Why something was refused or ended. Code points in `docs/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Reason {
    /// The user asked for it; nothing went wrong.
    Normal = 0,
    /// No protocol version in common.
    VersionMismatch = 1,
    /// No profile in common.
    NoCommonProfile = 2,
    /// Nobody listens on that port.
    NoListener = 3,
    /// A limit of the refusing end is reached.
    Busy = 4,
    /// No receive posted yet: the requester is woken when there is.
    NotReady = 5,
    /// The Transfer is larger than the receive it met ("message too large").
    MessageTooLarge = 6,
    /// Cancelled by the user of the end that says so.
    Cancelled = 7,
    /// The Transfer, region or connection named does not exist.
    Unknown = 8,
    /// Not allowed.
    Denied = 9,
    /// The other end broke the protocol.
    ProtocolViolation = 10,
    /// The sender of this gave up waiting.
    TimedOut = 11,
    /// The process that held this end is going away.
    GoingAway = 12,
    /// The memory named could not be read or written.
    MemoryFault = 13,
    /// The other end asked for a connection without protection, and this one gives none.
    ProtectionRequired = 14,
    /// The other end asked for a protected connection, and this one gives none.
    PlainOnly = 15,
}

impl Reason {
    /// All reasons, in order of their code points.
    pub const ALL: [Reason; 16] = [
        Reason::Normal,
        Reason::VersionMismatch,
        Reason::NoCommonProfile,
        Reason::NoListener,
        Reason::Busy,
        Reason::NotReady,
        Reason::MessageTooLarge,
        Reason::Cancelled,
        Reason::Unknown,
        Reason::Denied,
        Reason::ProtocolViolation,
        Reason::TimedOut,
        Reason::GoingAway,
        Reason::MemoryFault,
        Reason::ProtectionRequired,
        Reason::PlainOnly,
    ];

    pub(crate) fn parse(param: u16) -> Result<Reason, ParseError> {
        Self::ALL
            .get(usize::from(param))
            .copied()
            .ok_or(ParseError::new(
                Field::Param,
                Problem::Unassigned(u32::from(param)),
            ))
    }

    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Normal => "closed normally",
            Reason::VersionMismatch => "no protocol version in common",
            Reason::NoCommonProfile => "no profile in common",
            Reason::NoListener => "nobody listens on that port",
            Reason::Busy => "the peer is at its limit",
            Reason::NotReady => "the receiver is not ready",
            Reason::MessageTooLarge => "message too large",
            Reason::Cancelled => "cancelled",
            Reason::Unknown => "no such transfer, region or connection",
            Reason::Denied => "not allowed",
            Reason::ProtocolViolation => "the protocol was violated",
            Reason::TimedOut => "timed out",
            Reason::GoingAway => "the peer is going away",
            Reason::MemoryFault => "the memory could not be accessed",
            Reason::ProtectionRequired => "the peer refuses connections without protection",
            Reason::PlainOnly => "the peer gives no protection: both ends must ask for plain",
        }
    }
}

/// Opens a virtual connection. Answered by [`ConnectionAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestConnection {
    /// Oldest version the Initiator speaks.
    pub version_min: u8,
    /// Newest version the Initiator speaks, at least `version_min`.
    pub version_max: u8,
    /// What the Initiator can do.
    pub capabilities: Capabilities,
    /// The Initiator's key: goes into D_Key of everything sent to it.
    pub s_key: u32,
    /// Echoed in the answer.
    pub sync: u32,
}

/// Whether a connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionVerdict {
    /// Accepted, in this version, with the Responder's capabilities and key.
    Accept {
        /// The version both ends use.
        version: u8,
        /// What the Responder can do; exactly one profile: the chosen one.
        capabilities: Capabilities,
        /// The Responder's key.
        s_key: u32,
    },
    /// Rejected. The options say the Responder's versions.
    Reject {
        /// Why.
        reason: Reason,
        /// Oldest version the Responder speaks.
        version_min: u8,
        /// Newest version the Responder speaks.
        version_max: u8,
    },
}

/// Answers [`RequestConnection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionAnswer {
    /// Accepted or not.
    pub verdict: ConnectionVerdict,
    /// Sync of the request.
    pub sync: u32,
}

/// Any of the three steps of the disconnect handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disconnect {
    /// Why.
    pub reason: Reason,
}

/// Announces a Transfer. Answered by [`ClearToSend`] or [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestToSend {
    /// Length of the Transfer, bytes.
    pub length: u64,
    /// The sender's Transfer identifier, not 0.
    pub s_id: u32,
    /// The reader's Transfer identifier, not 0, when this answers a Request_To_Receive.
    pub reader: Option<u32>,
    /// Number of this announcement on the connection, from 0: receives match in this order.
    pub sequence: u32,
    /// Asks for a State when the Transfer is complete.
    pub send_state: bool,
}

/// Asks the peer to announce a Transfer (Read sequence). Answered by [`RequestToSend`] or [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestToReceive {
    /// Bytes the reader has room for.
    pub capacity: u64,
    /// The reader's Transfer identifier, not 0.
    pub s_id: u32,
    /// Number of this request on the connection, from 0: offers match in this order.
    pub sequence: u32,
}

/// What a [`RequestAnswer`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Not now: the request is kept in its slot and granted later.
    Later(Reason),
    /// Never.
    Refused(Reason),
}

/// Answers a request that cannot be granted now, or ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestAnswer {
    /// Not now, or never.
    pub answer: Answer,
    /// The requester's Transfer identifier, not 0.
    pub d_id: u32,
    /// With [`Reason::MessageTooLarge`]: the room there was, bytes.
    pub room: u64,
}

/// What the extended profile adds to a Clear_To_Send, in its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Where the Block starts within the Transfer, bytes.
    pub transfer_offset: u64,
    /// Length of the Block, bytes, not 0; the Block ends below 2^64.
    pub length: u32,
    /// Blocks of the Transfer below this number are complete.
    pub blocks_complete: u32,
}

/// Grants one Block. Answered by Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClearToSend {
    /// log2 of the Block size (classic; the first and last Block may be short), at most 32.
    pub block_log2: u8,
    /// Memory index to put into B_id of the Data.
    pub mx: u16,
    /// Buffer the Block starts in.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
    /// Number of this grant on the connection: Blocks are sent in this order.
    pub sequence: u32,
    /// Number of the Block within the Transfer.
    pub b_num: u32,
    /// The sender's Transfer identifier, not 0.
    pub d_id: u32,
    /// The receiver's Transfer identifier, not 0.
    pub s_id: u32,
    /// Extended profile only.
    pub grant: Option<Grant>,
}

/// A range of bytes within a Block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte, from the start of the Block.
    pub start: u32,
    /// Length in bytes, not 0; `start + len` fits 32 bits.
    pub len: u32,
}

/// Up to [`MAX_RANGES`] ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges {
    list: [Range; MAX_RANGES],
    count: u8,
}

impl Ranges {
    /// No range.
    pub const EMPTY: Ranges = Ranges {
        list: [Range { start: 0, len: 0 }; MAX_RANGES],
        count: 0,
    };

    /// Adds `range`; false if full, or if `range` is empty or ends beyond 2^32 - 1.
    pub fn push(&mut self, range: Range) -> bool {
        let valid = range.len != 0 && range.start.checked_add(range.len).is_some();
        let Some(place) = self.list.get_mut(usize::from(self.count)).filter(|_| valid) else {
            return false;
        };
        *place = range;
        self.count += 1;
        true
    }

    /// The ranges.
    pub fn as_slice(&self) -> &[Range] {
        &self.list[..usize::from(self.count)]
    }

    fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        for (place, range) in options.chunks_exact_mut(8).zip(self.as_slice()) {
            place[..4].copy_from_slice(&range.start.to_be_bytes());
            place[4..].copy_from_slice(&range.len.to_be_bytes());
        }
        options
    }

    fn parse(options: &Options) -> Result<Ranges, ParseError> {
        let mut ranges = Ranges::EMPTY;
        for chunk in options.chunks_exact(8) {
            let range = Range {
                start: be32(chunk, 0),
                len: be32(chunk, 4),
            };
            if range.len == 0 {
                break;
            }
            if !ranges.push(range) {
                return Err(out_of_range(Field::Options, u64::from(range.start)));
            }
        }
        Ok(ranges)
    }
}

/// Asks for a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestState {
    /// Block asked about.
    pub b_num: u32,
    /// The receiver's Transfer identifier, 0 if not known yet.
    pub d_id: u32,
    /// The sender's Transfer identifier.
    pub s_id: u32,
    /// Echoed in the State.
    pub sync: u32,
}

/// Reports what has been received of a Transfer, and what is missing of one Block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Answers a Request_State or a Send_State with this Sync; unsolicited if `None`.
    pub reply_to: Option<u32>,
    /// All Blocks complete.
    pub complete: bool,
    /// No such Transfer here.
    pub unknown: bool,
    /// Blocks below this number are complete.
    pub blocks_complete: u32,
    /// The Block reported.
    pub b_num: u32,
    /// End of the last byte received of that Block, from its start.
    pub reached: u32,
    /// The Data sender's Transfer identifier.
    pub d_id: u32,
    /// The Data receiver's Transfer identifier.
    pub s_id: u32,
    /// Missing ranges of that Block, to be sent again. Empty: nothing is asked for.
    pub missing: Ranges,
}

/// Aborts a Transfer (End) or confirms that (End_Ack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// Why.
    pub reason: Reason,
    /// Sent by the source of the Transfer's data (End_Ack: copied from the End).
    pub from_source: bool,
    /// Number of the Transfer's announcement or request, for an end that never saw it.
    pub sequence: u32,
    /// The receiver's Transfer identifier, 0 if not known.
    pub d_id: u32,
    /// The sender's Transfer identifier.
    pub s_id: u32,
}

/// What the holder of a region handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Get.
    pub read: bool,
    /// Put.
    pub write: bool,
    /// FetchOp.
    pub atomic: bool,
}

impl Rights {
    const fn bits(self) -> u16 {
        self.read as u16 | (self.write as u16) << 1 | (self.atomic as u16) << 2
    }

    const fn parse(param: u16) -> Result<Rights, ParseError> {
        if param > 7 {
            return Err(out_of_range(Field::Param, param as u64));
        }
        Ok(Rights {
            read: param & 1 != 0,
            write: param & 2 != 0,
            atomic: param & 4 != 0,
        })
    }
}

/// Asks for a persistent memory region. Answered by [`MemoryRegionAvailable`] or [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestMemoryRegion {
    /// Rights wanted.
    pub rights: Rights,
    /// Bytes wanted, 0 for the whole region.
    pub length: u64,
    /// The requester's identifier of this request, not 0.
    pub s_id: u32,
    /// Name of the region, padded with zeros.
    pub name: [u8; OPTIONS_LEN],
}

/// Grants a persistent memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryRegionAvailable {
    /// Rights granted.
    pub rights: Rights,
    /// Memory index to put into B_id of Data, Get and FetchOp.
    pub mx: u16,
    /// Buffer the region starts in.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
    /// The requester's identifier of the request this answers, not 0.
    pub d_id: u32,
    /// Handle: identifies region and generation, goes into D_id of Data, Get and FetchOp.
    pub handle: u32,
    /// Length of the region, bytes.
    pub length: u64,
}

/// Asks for bytes of a persistent memory region. Answered by Data to the place named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Get {
    /// Memory index of the region read.
    pub mx: u16,
    /// Buffer read from.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
    /// Handle of the region read.
    pub handle: u32,
    /// The Initiator's identifier, not 0, echoed in D_id of the Data.
    pub s_id: u32,
    /// Memory index of the Initiator's landing place.
    pub return_mx: u16,
    /// Buffer of the landing place.
    pub return_bufx: u32,
    /// Offset within that buffer.
    pub return_offset: u32,
    /// Bytes wanted, not 0.
    pub length: u32,
}

/// An atomic operation on a 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchOpKind {
    /// Adds the operand, wrapping.
    Add,
    /// Adds one, wrapping.
    Increment,
    /// Subtracts one, wrapping.
    Decrement,
    /// Stores zero.
    Clear,
    /// Stores the operand.
    Swap,
    /// Stores the operand if the word equals the comparand.
    CompareAndSwap,
}

impl FetchOpKind {
    /// All kinds, in order of their code points (from 0).
    pub const ALL: [FetchOpKind; 6] = [
        FetchOpKind::Add,
        FetchOpKind::Increment,
        FetchOpKind::Decrement,
        FetchOpKind::Clear,
        FetchOpKind::Swap,
        FetchOpKind::CompareAndSwap,
    ];
}

/// Asks for an atomic operation on a 64-bit word. Answered by Data of 8 bytes (big-endian), then [`Operation::FetchOpComplete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FetchOp {
    /// Which operation.
    pub kind: FetchOpKind,
    /// Memory index of the region.
    pub mx: u16,
    /// Buffer of the word.
    pub bufx: u32,
    /// Offset of the word, a multiple of 8.
    pub offset: u32,
    /// Handle of the region.
    pub handle: u32,
    /// The Initiator's identifier, not 0, echoed in D_id of the Data.
    pub s_id: u32,
    /// Number of this FetchOp on the connection: a repeat is answered with the same value, once executed.
    pub sync: u32,
    /// Operand.
    pub operand: u64,
    /// Comparand of [`FetchOpKind::CompareAndSwap`].
    pub comparand: u64,
}

/// Keep-alive, path probe, or options for an upper layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nop {
    /// Asks for an answer with the same `sync`.
    pub send_state: bool,
    /// Is an answer.
    pub reply: bool,
    /// The datagram was padded to this many bytes, header included, to probe the path (0: no
    /// probe). The answer repeats the number, not the padding. Whether that many bytes arrived
    /// is for the receiver to compare.
    pub probe: u32,
    /// Chosen by the sender, echoed.
    pub sync: u32,
    /// Options for an upper layer. A probe has none: what follows its header is padding.
    pub options: Option<[u8; OPTIONS_LEN]>,
}

/// A control operation with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// See [`RequestConnection`].
    RequestConnection(RequestConnection),
    /// See [`ConnectionAnswer`].
    ConnectionAnswer(ConnectionAnswer),
    /// First step of the disconnect handshake.
    RequestDisconnect(Disconnect),
    /// Second step.
    DisconnectAnswer(Disconnect),
    /// Third step.
    DisconnectComplete(Disconnect),
    /// See [`RequestMemoryRegion`].
    RequestMemoryRegion(RequestMemoryRegion),
    /// See [`MemoryRegionAvailable`].
    MemoryRegionAvailable(MemoryRegionAvailable),
    /// See [`Get`].
    Get(Get),
    /// See [`FetchOp`].
    FetchOp(FetchOp),
    /// The Initiator has the value of the FetchOp numbered so.
    FetchOpComplete {
        /// Sync of the FetchOp.
        sync: u32,
        /// The Initiator's identifier of the FetchOp.
        s_id: u32,
    },
    /// See [`RequestToSend`].
    RequestToSend(RequestToSend),
    /// See [`RequestAnswer`].
    RequestAnswer(RequestAnswer),
    /// See [`ClearToSend`].
    ClearToSend(ClearToSend),
    /// See [`RequestToReceive`].
    RequestToReceive(RequestToReceive),
    /// See [`RequestState`].
    RequestState(RequestState),
    /// See [`State`].
    State(State),
    /// Aborts a Transfer.
    End(End),
    /// Confirms that.
    EndAck(End),
    /// See [`Nop`].
    Nop(Nop),
}

/// A control datagram: route, operation, and padding that only a probe has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Ports and key.
    pub route: Route,
    /// The operation.
    pub operation: Operation,
}

const fn out_of_range(field: Field, value: u64) -> ParseError {
    ParseError::new(field, Problem::OutOfRange(value))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

fn need(options: Option<&Options>) -> Result<&Options, ParseError> {
    options.ok_or(ParseError::new(Field::Options, Problem::Truncated(0)))
}

fn not_zero(field: Field, value: u32) -> Result<u32, ParseError> {
    if value == 0 {
        Err(out_of_range(field, 0))
    } else {
        Ok(value)
    }
}

impl Packet {
    /// Reads a whole control datagram.
    ///
    /// # Errors
    /// Names the field: a truncated header, an unassigned operation, Data (which
    /// is not a control operation), options that are neither absent nor 32
    /// bytes, a checksum that is neither omitted nor right, or a value outside
    /// its range.
    pub fn parse(datagram: &[u8]) -> Result<Packet, ParseError> {
        let header = Header::parse(datagram)?;
        let rest = &datagram[HEADER_LEN..];
        let padded = header.op == Op::Nop && header.flags.contains(Flags::PROBE);
        let options = match rest.len() {
            _ if padded => None,
            0 => None,
            OPTIONS_LEN => rest.first_chunk::<OPTIONS_LEN>(),
            len if len < OPTIONS_LEN => {
                return Err(ParseError::new(Field::Options, Problem::Truncated(len)));
            }
            len => return Err(ParseError::new(Field::Options, Problem::TooLong(len))),
        };
        header.verify(Sum::of(rest))?;
        let route = Route {
            d_port: header.d_port,
            s_port: header.s_port,
            d_key: header.d_key,
        };
        Ok(Packet {
            route,
            operation: Operation::parse(&header, options)?,
        })
    }

    /// Header and options on the wire; returns the bytes and how many of them count
    /// (40 or 72). A probe's padding is the lane's to add.
    ///
    /// Values outside the ranges the fields document make a datagram that every receiver
    /// refuses; debug builds stop here instead.
    pub fn emit(&self) -> ([u8; HEADER_LEN + OPTIONS_LEN], usize) {
        let (mut header, options) = self.operation.emit();
        header.d_port = self.route.d_port;
        header.s_port = self.route.s_port;
        header.d_key = self.route.d_key;
        let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&header.emit());
        let len = match options {
            None => HEADER_LEN,
            Some(options) => {
                bytes[HEADER_LEN..].copy_from_slice(&options);
                HEADER_LEN + OPTIONS_LEN
            }
        };
        debug_assert_eq!(
            Packet::parse(&bytes[..len]),
            Ok(*self),
            "a value outside its range"
        );
        (bytes, len)
    }
}

impl Operation {
    /// The operation's code.
    pub const fn op(&self) -> Op {
        match self {
            Operation::RequestConnection(_) => Op::RequestConnection,
            Operation::ConnectionAnswer(_) => Op::ConnectionAnswer,
            Operation::RequestDisconnect(_) => Op::RequestDisconnect,
            Operation::DisconnectAnswer(_) => Op::DisconnectAnswer,
            Operation::DisconnectComplete(_) => Op::DisconnectComplete,
            Operation::RequestMemoryRegion(_) => Op::RequestMemoryRegion,
            Operation::MemoryRegionAvailable(_) => Op::MemoryRegionAvailable,
            Operation::Get(_) => Op::Get,
            Operation::FetchOp(_) => Op::FetchOp,
            Operation::FetchOpComplete { .. } => Op::FetchOpComplete,
            Operation::RequestToSend(_) => Op::RequestToSend,
            Operation::RequestAnswer(_) => Op::RequestAnswer,
            Operation::ClearToSend(_) => Op::ClearToSend,
            Operation::RequestToReceive(_) => Op::RequestToReceive,
            Operation::RequestState(_) => Op::RequestState,
            Operation::State(_) => Op::State,
            Operation::End(_) => Op::End,
            Operation::EndAck(_) => Op::EndAck,
            Operation::Nop(_) => Op::Nop,
        }
    }

    fn emit(&self) -> (Header, Option<Options>) {
        let header = Header::new(self.op());
        match self {
            Operation::RequestConnection(it) => it.emit(header),
            Operation::ConnectionAnswer(it) => it.emit(header),
            Operation::RequestDisconnect(it)
            | Operation::DisconnectAnswer(it)
            | Operation::DisconnectComplete(it) => (
                Header {
                    param: it.reason as u16,
                    ..header
                },
                None,
            ),
            Operation::RequestMemoryRegion(it) => it.emit(header),
            Operation::MemoryRegionAvailable(it) => it.emit(header),
            Operation::Get(it) => it.emit(header),
            Operation::FetchOp(it) => it.emit(header),
            Operation::FetchOpComplete { sync, s_id } => (
                Header {
                    sync: *sync,
                    s_id: *s_id,
                    ..header
                },
                None,
            ),
            Operation::RequestToSend(it) => (it.emit(header), None),
            Operation::RequestAnswer(it) => (it.emit(header), None),
            Operation::ClearToSend(it) => it.emit(header),
            Operation::RequestToReceive(it) => {
                let header = Header {
                    s_id: it.s_id,
                    sync: it.sequence,
                    ..header
                };
                (header.with_wide(it.capacity), None)
            }
            Operation::RequestState(it) => {
                let RequestState {
                    b_num,
                    d_id,
                    s_id,
                    sync,
                } = *it;
                (
                    Header {
                        b_num,
                        d_id,
                        s_id,
                        sync,
                        ..header
                    },
                    None,
                )
            }
            Operation::State(it) => it.emit(header),
            Operation::End(it) | Operation::EndAck(it) => (it.emit(header), None),
            Operation::Nop(it) => it.emit(header),
        }
    }

    fn parse(header: &Header, options: Option<&Options>) -> Result<Operation, ParseError> {
        let disconnect = || Reason::parse(header.param).map(|reason| Disconnect { reason });
        Ok(match header.op {
            Op::RequestConnection => {
                Operation::RequestConnection(RequestConnection::parse(header, need(options)?)?)
            }
            Op::ConnectionAnswer => {
                Operation::ConnectionAnswer(ConnectionAnswer::parse(header, need(options)?)?)
            }
            Op::RequestDisconnect => Operation::RequestDisconnect(disconnect()?),
            Op::DisconnectAnswer => Operation::DisconnectAnswer(disconnect()?),
            Op::DisconnectComplete => Operation::DisconnectComplete(disconnect()?),
            Op::RequestMemoryRegion => {
                Operation::RequestMemoryRegion(RequestMemoryRegion::parse(header, need(options)?)?)
            }
            Op::MemoryRegionAvailable => Operation::MemoryRegionAvailable(
                MemoryRegionAvailable::parse(header, need(options)?)?,
            ),
            Op::Get => Operation::Get(Get::parse(header, need(options)?)?),
            Op::FetchOp => Operation::FetchOp(FetchOp::parse(header, need(options)?)?),
            Op::FetchOpComplete => Operation::FetchOpComplete {
                sync: header.sync,
                s_id: header.s_id,
            },
            Op::RequestToSend => Operation::RequestToSend(RequestToSend::parse(header)?),
            Op::RequestAnswer => Operation::RequestAnswer(RequestAnswer::parse(header)?),
            Op::ClearToSend => Operation::ClearToSend(ClearToSend::parse(header, options)?),
            Op::RequestToReceive => Operation::RequestToReceive(RequestToReceive {
                capacity: header.wide(),
                s_id: not_zero(Field::SId, header.s_id)?,
                sequence: header.sync,
            }),
            Op::Data => {
                return Err(ParseError::new(
                    Field::Op,
                    Problem::Unassigned(Op::Data as u32),
                ));
            }
            Op::RequestState => Operation::RequestState(RequestState {
                b_num: header.b_num,
                d_id: header.d_id,
                s_id: header.s_id,
                sync: header.sync,
            }),
            Op::State => Operation::State(State::parse(header, need(options)?)?),
            Op::End => Operation::End(End::parse(header)?),
            Op::EndAck => Operation::EndAck(End::parse(header)?),
            Op::Nop => Operation::Nop(Nop::parse(header, options)?),
        })
    }
}

impl RequestConnection {
    fn emit(&self, mut header: Header) -> (Header, Option<Options>) {
        self.capabilities.emit(&mut header);
        header.param = u16::from(self.version_min) << 8 | u16::from(self.version_max);
        header.s_id = self.s_key;
        header.sync = self.sync;
        let mut options = [0; OPTIONS_LEN];
        options[..MAGIC.len()].copy_from_slice(&MAGIC);
        (header, Some(options))
    }

    fn parse(header: &Header, options: &Options) -> Result<RequestConnection, ParseError> {
        if options[..MAGIC.len()] != MAGIC {
            return Err(ParseError::new(Field::Options, Problem::Mismatch));
        }
        let [version_min, version_max] = header.param.to_be_bytes();
        if version_min > version_max {
            return Err(out_of_range(Field::Param, u64::from(header.param)));
        }
        Ok(RequestConnection {
            version_min,
            version_max,
            capabilities: Capabilities::parse(header)?,
            s_key: header.s_id,
            sync: header.sync,
        })
    }
}

impl ConnectionAnswer {
    fn emit(&self, mut header: Header) -> (Header, Option<Options>) {
        header.sync = self.sync;
        let mut options = [0; OPTIONS_LEN];
        match &self.verdict {
            ConnectionVerdict::Accept {
                version,
                capabilities,
                s_key,
            } => {
                capabilities.emit(&mut header);
                header.param = u16::from(*version);
                header.s_id = *s_key;
            }
            ConnectionVerdict::Reject {
                reason,
                version_min,
                version_max,
            } => {
                header.flags = Flags::REJECT;
                header.param = *reason as u16;
                options[..2].copy_from_slice(&[*version_min, *version_max]);
            }
        }
        (header, Some(options))
    }

    fn parse(header: &Header, options: &Options) -> Result<ConnectionAnswer, ParseError> {
        let verdict = if header.flags.contains(Flags::REJECT) {
            ConnectionVerdict::Reject {
                reason: Reason::parse(header.param)?,
                version_min: options[0],
                version_max: options[1],
            }
        } else {
            let [0, version] = header.param.to_be_bytes() else {
                return Err(out_of_range(Field::Param, u64::from(header.param)));
            };
            let capabilities = Capabilities::parse(header)?;
            if capabilities.profiles.classic == capabilities.profiles.extended {
                return Err(out_of_range(Field::Flags, u64::from(header.flags.bits())));
            }
            ConnectionVerdict::Accept {
                version,
                capabilities,
                s_key: header.s_id,
            }
        };
        Ok(ConnectionAnswer {
            verdict,
            sync: header.sync,
        })
    }
}

impl RequestToSend {
    fn emit(&self, header: Header) -> Header {
        Header {
            flags: Flags::NONE
                .with_if(Flags::READ, self.reader.is_some())
                .with_if(Flags::SEND_STATE, self.send_state),
            d_id: self.reader.unwrap_or(0),
            s_id: self.s_id,
            sync: self.sequence,
            ..header
        }
        .with_wide(self.length)
    }

    fn parse(header: &Header) -> Result<RequestToSend, ParseError> {
        let read = header.flags.contains(Flags::READ);
        Ok(RequestToSend {
            length: header.wide(),
            s_id: not_zero(Field::SId, header.s_id)?,
            reader: if read {
                Some(not_zero(Field::DId, header.d_id)?)
            } else {
                None
            },
            sequence: header.sync,
            send_state: header.flags.contains(Flags::SEND_STATE),
        })
    }
}

impl RequestAnswer {
    fn emit(&self, header: Header) -> Header {
        let (flags, reason) = match self.answer {
            Answer::Later(reason) => (Flags::NONE, reason),
            Answer::Refused(reason) => (Flags::REJECT, reason),
        };
        Header {
            flags,
            param: reason as u16,
            d_id: self.d_id,
            ..header
        }
        .with_wide(self.room)
    }

    fn parse(header: &Header) -> Result<RequestAnswer, ParseError> {
        let reason = Reason::parse(header.param)?;
        let refused = header.flags.contains(Flags::REJECT);
        Ok(RequestAnswer {
            answer: if refused {
                Answer::Refused(reason)
            } else {
                Answer::Later(reason)
            },
            d_id: not_zero(Field::DId, header.d_id)?,
            room: header.wide(),
        })
    }
}

impl ClearToSend {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            param: u16::from(self.block_log2),
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            sync: self.sequence,
            b_num: self.b_num,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        };
        (header, self.grant.map(|grant| grant.emit()))
    }

    fn parse(header: &Header, options: Option<&Options>) -> Result<ClearToSend, ParseError> {
        if header.param > u16::from(MAX_BUFFER_LOG2) {
            return Err(out_of_range(Field::Param, u64::from(header.param)));
        }
        let grant = match options {
            None => None,
            Some(options) => Some(Grant::parse(options)?),
        };
        Ok(ClearToSend {
            block_log2: header.param as u8,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            sequence: header.sync,
            b_num: header.b_num,
            d_id: not_zero(Field::DId, header.d_id)?,
            s_id: not_zero(Field::SId, header.s_id)?,
            grant,
        })
    }
}

impl Grant {
    fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.transfer_offset.to_be_bytes());
        options[8..12].copy_from_slice(&self.length.to_be_bytes());
        options[12..16].copy_from_slice(&self.blocks_complete.to_be_bytes());
        options
    }

    fn parse(options: &Options) -> Result<Grant, ParseError> {
        let grant = Grant {
            transfer_offset: be64(options, 0),
            length: not_zero(Field::Options, be32(options, 8))?,
            blocks_complete: be32(options, 12),
        };
        match grant.transfer_offset.checked_add(u64::from(grant.length)) {
            Some(_) => Ok(grant),
            None => Err(out_of_range(Field::Options, grant.transfer_offset)),
        }
    }
}

impl State {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            flags: Flags::NONE
                .with_if(Flags::REPLY, self.reply_to.is_some())
                .with_if(Flags::COMPLETE, self.complete)
                .with_if(Flags::UNKNOWN, self.unknown),
            sync: self.reply_to.unwrap_or(0),
            bufx: self.blocks_complete,
            offset: self.reached,
            b_num: self.b_num,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        };
        (header, Some(self.missing.emit()))
    }

    fn parse(header: &Header, options: &Options) -> Result<State, ParseError> {
        Ok(State {
            reply_to: header.flags.contains(Flags::REPLY).then_some(header.sync),
            complete: header.flags.contains(Flags::COMPLETE),
            unknown: header.flags.contains(Flags::UNKNOWN),
            blocks_complete: header.bufx,
            reached: header.offset,
            b_num: header.b_num,
            d_id: header.d_id,
            s_id: header.s_id,
            missing: Ranges::parse(options)?,
        })
    }
}

impl End {
    fn emit(&self, header: Header) -> Header {
        Header {
            flags: Flags::NONE.with_if(Flags::FROM_SOURCE, self.from_source),
            param: self.reason as u16,
            sync: self.sequence,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        }
    }

    fn parse(header: &Header) -> Result<End, ParseError> {
        Ok(End {
            reason: Reason::parse(header.param)?,
            sequence: header.sync,
            from_source: header.flags.contains(Flags::FROM_SOURCE),
            d_id: header.d_id,
            s_id: header.s_id,
        })
    }
}

impl RequestMemoryRegion {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            param: self.rights.bits(),
            s_id: self.s_id,
            ..header
        };
        (header.with_wide(self.length), Some(self.name))
    }

    fn parse(header: &Header, options: &Options) -> Result<RequestMemoryRegion, ParseError> {
        Ok(RequestMemoryRegion {
            rights: Rights::parse(header.param)?,
            length: header.wide(),
            s_id: not_zero(Field::SId, header.s_id)?,
            name: *options,
        })
    }
}

impl MemoryRegionAvailable {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.length.to_be_bytes());
        let header = Header {
            param: self.rights.bits(),
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.d_id,
            s_id: self.handle,
            ..header
        };
        (header, Some(options))
    }

    fn parse(header: &Header, options: &Options) -> Result<MemoryRegionAvailable, ParseError> {
        Ok(MemoryRegionAvailable {
            rights: Rights::parse(header.param)?,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            d_id: not_zero(Field::DId, header.d_id)?,
            handle: header.s_id,
            length: be64(options, 0),
        })
    }
}

impl Get {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..4].copy_from_slice(&self.return_bufx.to_be_bytes());
        options[4..8].copy_from_slice(&self.return_offset.to_be_bytes());
        options[8..12].copy_from_slice(&self.length.to_be_bytes());
        options[12..14].copy_from_slice(&self.return_mx.to_be_bytes());
        let header = Header {
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.handle,
            s_id: self.s_id,
            ..header
        };
        (header, Some(options))
    }

    fn parse(header: &Header, options: &Options) -> Result<Get, ParseError> {
        Ok(Get {
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            handle: header.d_id,
            s_id: not_zero(Field::SId, header.s_id)?,
            return_mx: u16::from_be_bytes([options[12], options[13]]),
            return_bufx: be32(options, 0),
            return_offset: be32(options, 4),
            length: not_zero(Field::Options, be32(options, 8))?,
        })
    }
}

impl FetchOp {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.operand.to_be_bytes());
        options[8..16].copy_from_slice(&self.comparand.to_be_bytes());
        let header = Header {
            param: self.kind as u16,
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.handle,
            s_id: self.s_id,
            sync: self.sync,
            ..header
        };
        (header, Some(options))
    }

    fn parse(header: &Header, options: &Options) -> Result<FetchOp, ParseError> {
        let kind = *FetchOpKind::ALL
            .get(usize::from(header.param))
            .ok_or(ParseError::new(
                Field::Param,
                Problem::Unassigned(u32::from(header.param)),
            ))?;
        if !header.offset.is_multiple_of(8) {
            return Err(out_of_range(Field::Offset, u64::from(header.offset)));
        }
        Ok(FetchOp {
            kind,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            handle: header.d_id,
            s_id: not_zero(Field::SId, header.s_id)?,
            sync: header.sync,
            operand: be64(options, 0),
            comparand: be64(options, 8),
        })
    }
}

impl Nop {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            flags: Flags::NONE
                .with_if(Flags::SEND_STATE, self.send_state)
                .with_if(Flags::REPLY, self.reply)
                .with_if(Flags::PROBE, self.probe != 0),
            offset: self.probe,
            sync: self.sync,
            ..header
        };
        (header, self.options)
    }

    fn parse(header: &Header, options: Option<&Options>) -> Result<Nop, ParseError> {
        let probe = header.flags.contains(Flags::PROBE);
        Ok(Nop {
            send_state: header.flags.contains(Flags::SEND_STATE),
            reply: header.flags.contains(Flags::REPLY),
            probe: if probe {
                not_zero(Field::Offset, header.offset)?
            } else {
                0
            },
            sync: header.sync,
            options: options.copied(),
        })
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
