//! Defines the typed operations: the fields of each, and their positions in the header and options.
//!
//! `docs/reference/protocol.md` describes this file in prose. Unused fields of an operation are sent as zero and
//! ignored on receipt.

mod connection;
mod memory;
mod private;
mod reason;
mod state;
mod transfer;

pub use connection::{
    Capabilities, ConnectionAnswer, ConnectionVerdict, Delivered, Disconnect, Eager, MAX_EAGER,
    MAX_PATHS, Profile, Profiles, RequestConnection, RequestDisconnect, VERSION, VERSION_MIN,
};
pub use memory::{
    FetchOp, FetchOpKind, Get, MemoryRegionAvailable, MemoryState, Place, RequestMemoryRegion,
    Rights, Word,
};
pub use private::{MAX_CONTROL, MAX_PRIVATE_DATA, PrivateData, PrivateDataTooLong};
pub use reason::Reason;
pub use state::{MAX_RANGES, Occasion, Progress, Range, Ranges, Report, RequestState, State};
pub use transfer::{
    Advance, Answer, ClearToSend, End, Grant, Immediate, RequestAnswer, RequestToReceive,
    RequestToSend, Target,
};

use crate::checksum::Sum;
use crate::header::{Field, Flags, HEADER_LEN, Header, Op, ParseError, Problem};

/// Bytes of options on a control operation that carries any.
pub const OPTIONS_LEN: usize = 32;

type Options = [u8; OPTIONS_LEN];

/// Addressing of an operation: ports and the destination's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    /// The receiver's port.
    pub d_port: u16,
    /// The sender's port.
    pub s_port: u16,
    /// The receiver's key (0 in Request_Connection, which has none yet).
    pub d_key: u32,
}

/// Keep-alive, path probe, or options for an upper layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nop {
    /// Requests an answer with the same `sync`.
    pub send_state: bool,
    /// Is an answer.
    pub reply: bool,
    /// The datagram was padded to this many bytes, header included, to probe the path (0: no probe). The answer repeats
    /// the number, not the padding. The receiver checks that this many bytes arrived.
    pub probe: u32,
    /// The path that it concerns, 0 for the first. Its answer returns by the same path.
    pub path: u8,
    /// That path is closed.
    pub leaves: bool,
    /// Chosen by the sender, echoed by the answer.
    pub sync: u32,
    /// Options for an upper layer. A probe has none: padding follows its header.
    pub options: Option<[u8; OPTIONS_LEN]>,
}

/// A control operation with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// See [`RequestConnection`].
    RequestConnection(RequestConnection),
    /// See [`ConnectionAnswer`].
    ConnectionAnswer(ConnectionAnswer),
    /// See [`RequestDisconnect`].
    RequestDisconnect(RequestDisconnect),
    /// Second step of the disconnect handshake.
    DisconnectAnswer(Disconnect),
    /// Third step of the disconnect handshake.
    DisconnectComplete(Disconnect),
    /// See [`RequestMemoryRegion`].
    RequestMemoryRegion(RequestMemoryRegion),
    /// See [`MemoryRegionAvailable`].
    MemoryRegionAvailable(MemoryRegionAvailable),
    /// See [`Get`].
    Get(Get),
    /// See [`FetchOp`].
    FetchOp(FetchOp),
    /// Confirms the value of the FetchOp, or the refusal of the operation, with this number.
    FetchOpComplete {
        /// Number of the operation.
        sync: u32,
        /// The Initiator's identifier of it.
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
    /// See [`MemoryState`].
    MemoryState(MemoryState),
    /// Aborts a Transfer.
    End(End),
    /// Confirms that a Transfer was aborted.
    EndAck(End),
    /// See [`Nop`].
    Nop(Nop),
}

/// A control datagram: route and operation. Only a probe has padding.
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
    /// Parses a whole control datagram.
    ///
    /// # Errors
    /// Names the field: a truncated header, an unassigned operation, Data (which is not a control operation), options
    /// that are neither absent nor 32 bytes, private data that is not as long as they say, a checksum that is neither
    /// omitted nor correct, or a value outside its range.
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
            len if HEADER_LEN + len == MAX_CONTROL && PrivateData::fits(header.op) => {
                rest.first_chunk::<OPTIONS_LEN>()
            }
            len => return Err(ParseError::new(Field::Options, Problem::TooLong(len))),
        };
        if options.is_some() {
            PrivateData::parse(&header, rest)?;
        }
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

    /// Header and options on the wire, and their length (40 or 72). The lane adds a probe's padding.
    ///
    /// Values outside the documented ranges make a datagram that every receiver refuses; debug builds panic instead.
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
            Operation::State(_) | Operation::MemoryState(_) => Op::State,
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
            Operation::RequestDisconnect(it) => it.emit(header),
            Operation::DisconnectAnswer(it) | Operation::DisconnectComplete(it) => (
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
            Operation::RequestToSend(it) => it.emit(header),
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
            Operation::MemoryState(it) => (it.emit(header), None),
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
            Op::RequestDisconnect => {
                Operation::RequestDisconnect(RequestDisconnect::parse(header, options)?)
            }
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
            Op::RequestToSend => Operation::RequestToSend(RequestToSend::parse(header, options)?),
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
            Op::State if header.flags.contains(Flags::MEMORY) => {
                Operation::MemoryState(MemoryState::parse(header))
            }
            Op::State => Operation::State(State::parse(header, need(options)?)?),
            Op::End => Operation::End(End::parse(header)?),
            Op::EndAck => Operation::EndAck(End::parse(header)?),
            Op::Nop => Operation::Nop(Nop::parse(header, options)?),
        })
    }
}

impl Nop {
    fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            flags: Flags::NONE
                .with_if(Flags::SEND_STATE, self.send_state)
                .with_if(Flags::REPLY, self.reply)
                .with_if(Flags::PROBE, self.probe != 0)
                .with_if(Flags::LEAVES, self.leaves),
            param: self.path.into(),
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
            path: u8::try_from(header.param)
                .ok()
                .filter(|&path| path < MAX_PATHS)
                .ok_or(out_of_range(Field::Param, header.param.into()))?,
            leaves: header.flags.contains(Flags::LEAVES),
            sync: header.sync,
            options: options.copied(),
        })
    }
}

#[cfg(test)]
mod tests;
