//! Defines the operations that announce, grant and abort Transfers.

use super::connection::MAX_BUFFER_LOG2;
use super::{OPTIONS_LEN, Options, Place, Reason, be32, be64, need, not_zero, out_of_range};
use crate::header::{Field, Flags, Header, Op, ParseError};

/// Destination of an announced Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The next posted receive.
    Receive,
    /// The Read with this Transfer identifier of the reader, not 0.
    Read(u32),
    /// A persistent memory region (a Put too long for one operation), with an optional immediate.
    Region(Place, Option<Immediate>),
    /// The payload of the message with this operation number.
    Message(u32),
}

impl Target {
    /// The flag of this kind of target, and D_id.
    const fn named(self) -> (Flags, u32) {
        match self {
            Target::Receive => (Flags::NONE, 0),
            Target::Read(reader) => (Flags::READ, reader),
            Target::Region(place, None) => (Flags::MEMORY, place.handle),
            Target::Region(place, Some(_)) => (Flags::MEMORY.with(Flags::INTERRUPT), place.handle),
            Target::Message(number) => (Flags::MESSAGE, number),
        }
    }
}

/// A number shown to the Responder's user once its Put, and everything that the Initiator posted before, is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Immediate {
    /// The number.
    pub value: u32,
    /// It follows all numbered operations below this.
    pub after: u32,
}

/// Announces a Transfer. Answered by [`ClearToSend`] or [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestToSend {
    /// Length of the Transfer, bytes.
    pub length: u64,
    /// The sender's Transfer identifier, not 0.
    pub s_id: u32,
    /// The destination.
    pub target: Target,
    /// Number of this announcement on the connection, from 0: receives match in this order.
    pub sequence: u32,
    /// Asks for a State when the Transfer is complete.
    pub send_state: bool,
}

impl RequestToSend {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let (flag, d_id) = self.target.named();
        let mx = match self.target {
            Target::Region(place, _) => place.mx,
            _ => 0,
        };
        let header = Header {
            flags: flag.with_if(Flags::SEND_STATE, self.send_state),
            b_id: mx,
            d_id,
            s_id: self.s_id,
            sync: self.sequence,
            ..header
        };
        let options = match self.target {
            Target::Region(place, immediate) => Some(emit_region(place, immediate)),
            _ => None,
        };
        (header.with_wide(self.length), options)
    }

    pub(super) fn parse(
        header: &Header,
        options: Option<&Options>,
    ) -> Result<RequestToSend, ParseError> {
        let kinds = [Flags::READ, Flags::MEMORY, Flags::MESSAGE];
        let target = match kinds.map(|flag| header.flags.contains(flag)) {
            [false, false, false] => Target::Receive,
            [true, false, false] => Target::Read(not_zero(Field::DId, header.d_id)?),
            [false, true, false] => parse_region(header, need(options)?),
            [false, false, true] => Target::Message(header.d_id),
            _ => return Err(out_of_range(Field::Flags, u64::from(header.flags.bits()))),
        };
        Ok(RequestToSend {
            length: header.wide(),
            s_id: not_zero(Field::SId, header.s_id)?,
            target,
            sequence: header.sync,
            send_state: header.flags.contains(Flags::SEND_STATE),
        })
    }
}

/// Eager Data: payload that announces its own Transfer.
impl RequestToSend {
    /// The header of eager Data that states the same, for the byte `offset` of the Transfer. The caller fills in ports,
    /// key and burst number. The length must be less than 2^32, and the target must be no region.
    pub const fn eager(&self, offset: u32) -> Header {
        let (flag, d_id) = self.target.named();
        Header {
            flags: Flags::EAGER.with(flag),
            bufx: self.length as u32,
            offset,
            b_num: self.sequence,
            d_id,
            s_id: self.s_id,
            ..Header::new(Op::Data)
        }
    }

    /// The announcement in a header of eager Data with `len` bytes of payload. Requests an answer to SEND_STATE, like
    /// every announcement.
    ///
    /// # Errors
    /// Names the field: the payload is empty or outside the Transfer, or the target is ambiguous.
    pub fn of_eager(header: &Header, len: u32) -> Result<RequestToSend, ParseError> {
        let kinds = [Flags::READ, Flags::MESSAGE, Flags::MEMORY];
        let target = match kinds.map(|flag| header.flags.contains(flag)) {
            [false, false, false] => Target::Receive,
            [true, false, false] => Target::Read(not_zero(Field::DId, header.d_id)?),
            // With MEMORY the Data is the message, too.
            [false, true, _] => Target::Message(header.d_id),
            _ => return Err(out_of_range(Field::Flags, u64::from(header.flags.bits()))),
        };
        let end = u64::from(header.offset) + u64::from(len);
        if len == 0 || end > u64::from(header.bufx) {
            return Err(out_of_range(Field::Offset, end));
        }
        Ok(RequestToSend {
            length: u64::from(header.bufx),
            s_id: not_zero(Field::SId, header.s_id)?,
            target,
            sequence: header.b_num,
            send_state: true,
        })
    }
}

fn emit_region(place: Place, immediate: Option<Immediate>) -> Options {
    let mut options = place.emit();
    if let Some(immediate) = immediate {
        options[8..12].copy_from_slice(&immediate.value.to_be_bytes());
        options[12..16].copy_from_slice(&immediate.after.to_be_bytes());
    }
    options
}

fn parse_region(header: &Header, options: &Options) -> Target {
    let shown = header.flags.contains(Flags::INTERRUPT);
    let immediate = shown.then(|| Immediate {
        value: be32(options, 8),
        after: be32(options, 12),
    });
    Target::Region(Place::parse(header, options), immediate)
}

/// Asks the peer to announce a Transfer (Read sequence). Answered by [`RequestToSend`] or [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestToReceive {
    /// Room of the reader, bytes.
    pub capacity: u64,
    /// The reader's Transfer identifier, not 0.
    pub s_id: u32,
    /// Number of this request on the connection, from 0: offers match in this order.
    pub sequence: u32,
}

/// The content of a [`RequestAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Deferred: the request stays in its slot, to be granted later.
    Later(Reason),
    /// Refused permanently.
    Refused(Reason),
}

/// Answers a request that cannot be granted now, or ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestAnswer {
    /// Deferred or refused.
    pub answer: Answer,
    /// The requester's Transfer identifier, not 0.
    pub d_id: u32,
    /// With [`Reason::MessageTooLarge`]: the room of the receive, bytes.
    pub room: u64,
    /// Answers a numbered operation on persistent memory; all earlier ones were executed.
    pub numbered: bool,
}

impl RequestAnswer {
    pub(super) fn emit(&self, header: Header) -> Header {
        let (flags, reason) = match self.answer {
            Answer::Later(reason) => (Flags::NONE, reason),
            Answer::Refused(reason) => (Flags::REJECT, reason),
        };
        Header {
            flags: flags.with_if(Flags::MEMORY, self.numbered),
            param: reason as u16,
            d_id: self.d_id,
            ..header
        }
        .with_wide(self.room)
    }

    pub(super) fn parse(header: &Header) -> Result<RequestAnswer, ParseError> {
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
            numbered: header.flags.contains(Flags::MEMORY),
        })
    }
}

/// The subject of an advance grant. The grant is void unless everything from the contained number up to that in D_id
/// matches receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advance {
    /// D_id is the number of an announcement that the receiver has not heard. It has heard all below the contained
    /// number.
    Announcement(u32),
    /// D_id is the number of an operation that will be a message, whose payload is granted. All operations below the
    /// contained number were executed.
    Message(u32),
}

impl Advance {
    fn number(self) -> u32 {
        match self {
            Advance::Announcement(number) | Advance::Message(number) => number,
        }
    }
}

/// The extended profile's additions to a Clear_To_Send, in its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Where the Block starts within the Transfer, bytes.
    pub transfer_offset: u64,
    /// Length of the Block, bytes, not 0; the Block ends below 2^64.
    pub length: u32,
    /// Blocks of the Transfer below this number are complete.
    pub blocks_complete: u32,
    /// The Block may come as trains.
    pub trains: bool,
    /// Set for an advance grant: its subject. Then no Block is complete.
    pub advance: Option<Advance>,
}

impl Grant {
    pub(super) fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.transfer_offset.to_be_bytes());
        options[8..12].copy_from_slice(&self.length.to_be_bytes());
        let last = self.advance.map_or(self.blocks_complete, Advance::number);
        options[12..16].copy_from_slice(&last.to_be_bytes());
        options
    }

    fn parse(header: &Header, options: &Options) -> Result<Grant, ParseError> {
        let last = be32(options, 12);
        let advance = match header.flags.contains(Flags::MESSAGE) {
            true => Advance::Message(last),
            false => Advance::Announcement(last),
        };
        let advance = header.flags.contains(Flags::ADVANCE).then_some(advance);
        let grant = Grant {
            transfer_offset: be64(options, 0),
            length: not_zero(Field::Options, be32(options, 8))?,
            blocks_complete: advance.map_or(last, |_| 0),
            trains: header.flags.contains(Flags::TRAIN),
            advance,
        };
        match grant.transfer_offset.checked_add(u64::from(grant.length)) {
            Some(_) => Ok(grant),
            None => Err(out_of_range(Field::Options, grant.transfer_offset)),
        }
    }
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
    /// The sender's Transfer identifier, not 0; for an advance grant, the number of the announcement or message.
    pub d_id: u32,
    /// The receiver's Transfer identifier, not 0.
    pub s_id: u32,
    /// Extended profile only.
    pub grant: Option<Grant>,
}

impl ClearToSend {
    /// The subject of an advance grant.
    pub fn advance(&self) -> Option<Advance> {
        self.grant?.advance
    }

    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let trains = self.grant.is_some_and(|grant| grant.trains);
        let to_message = matches!(self.advance(), Some(Advance::Message(_)));
        let header = Header {
            flags: header
                .flags
                .with_if(Flags::TRAIN, trains)
                .with_if(Flags::ADVANCE, self.advance().is_some())
                .with_if(Flags::MESSAGE, to_message),
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

    pub(super) fn parse(
        header: &Header,
        options: Option<&Options>,
    ) -> Result<ClearToSend, ParseError> {
        if header.param > u16::from(MAX_BUFFER_LOG2) {
            return Err(out_of_range(Field::Param, u64::from(header.param)));
        }
        let grant = match options {
            None => None,
            Some(options) => Some(Grant::parse(header, options)?),
        };
        Ok(ClearToSend {
            block_log2: header.param as u8,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            sequence: header.sync,
            b_num: header.b_num,
            d_id: match grant {
                Some(Grant {
                    advance: Some(_), ..
                }) => header.d_id,
                _ => not_zero(Field::DId, header.d_id)?,
            },
            s_id: not_zero(Field::SId, header.s_id)?,
            grant,
        })
    }
}

/// Aborts a Transfer (End), or confirms that (End_Ack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// Why.
    pub reason: Reason,
    /// Sent by the source of the Transfer's data (End_Ack: copied from the End).
    pub from_source: bool,
    /// Number of the Transfer's announcement or request, for an end that never heard it.
    pub sequence: u32,
    /// The receiver's Transfer identifier, 0 if not known.
    pub d_id: u32,
    /// The sender's Transfer identifier.
    pub s_id: u32,
}

impl End {
    pub(super) fn emit(&self, header: Header) -> Header {
        Header {
            flags: Flags::NONE.with_if(Flags::FROM_SOURCE, self.from_source),
            param: self.reason as u16,
            sync: self.sequence,
            d_id: self.d_id,
            s_id: self.s_id,
            ..header
        }
    }

    pub(super) fn parse(header: &Header) -> Result<End, ParseError> {
        Ok(End {
            reason: Reason::parse(header.param)?,
            sequence: header.sync,
            from_source: header.flags.contains(Flags::FROM_SOURCE),
            d_id: header.d_id,
            s_id: header.s_id,
        })
    }
}
