//! Selects the payload of the next burst (repairs, then eager, then granted), and builds its header.

use super::Outbox;
use super::repair::Repair;
use super::transfer::{Announcement, Held, Outbound};
use crate::limits::{LARGE_TRAIN, MIN_TRAIN, PAGE};
use crate::profile::Conduct;
use crate::tiling;
use crate::time::Instant;
use crate::transfer::{Delivery, TransferId};
use crate::transmit::{BurstLimit, DataBurst, longest_train, split, train_of};
use zerolane_wire::{Flags, Header, Op, Profile, RequestToSend, Route, Train};

/// The present form of a connection's Data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) route: Route,
    pub(crate) stu: u32,
    pub(crate) profile: Profile,
    /// The receiver's buffer size.
    pub(crate) buffer_log2: u8,
    pub(crate) limit: BurstLimit,
    /// Bytes around the payload of a datagram.
    pub(crate) around: u32,
    /// Bytes around the payload of a train.
    pub(crate) train_around: u32,
    /// The burst asks the receiver for its progress (extended profile).
    pub(crate) ask: bool,
}

impl Shape {
    /// Cuts a burst of at most `rest` bytes at `address`; as a train, if permitted and worthwhile.
    pub(crate) fn cut(&self, address: u64, rest: u32, buffer_log2: u8, trains: bool) -> Cut {
        let datagram = self.stu + self.around;
        let segments = self.limit.segments.min(self.limit.bytes / datagram).max(1);
        let may_be_train = trains && self.limit.train > 0 && self.profile.carries_trains();
        if may_be_train && (segments >= MIN_TRAIN || datagram > LARGE_TRAIN) {
            let most = longest_train(segments, datagram, self.train_around).min(self.limit.train);
            let (bytes, _) = tiling::burst(address, even(rest, most), most, buffer_log2, 1);
            let total = bytes + self.train_around;
            if total > MIN_TRAIN * datagram || bytes >= LARGE_TRAIN {
                let (train, segments) = train_of(bytes, self.train_around, datagram);
                return Cut {
                    bytes,
                    stu: datagram,
                    segments,
                    train: Some(train),
                };
            }
        }
        let (bytes, segments) = tiling::burst(address, rest, self.stu, buffer_log2, segments);
        Cut {
            bytes,
            stu: self.stu,
            segments,
            train: None,
        }
    }
}

/// Length of the first of the fewest trains of at most `most` bytes that hold `rest`. All have about the same length,
/// in whole pages where possible, so that no short train remains.
fn even(rest: u32, most: u32) -> u32 {
    let trains = rest.div_ceil(most.max(1)).max(1);
    rest.div_ceil(trains).next_multiple_of(PAGE).min(rest)
}

/// The size of a burst, as in [`DataBurst`].
pub(crate) struct Cut {
    pub(crate) bytes: u32,
    pub(crate) stu: u32,
    pub(crate) segments: u32,
    pub(crate) train: Option<Train>,
}

/// A bare message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareMessage {
    pub(crate) id: TransferId,
    /// Low half of the number of the peer's next operation.
    pub(crate) executed: u16,
    /// A caller waits for its end.
    pub(crate) awaited: bool,
}

/// A selected burst, with what the counters need.
pub(crate) struct NextBurst {
    pub(crate) burst: DataBurst,
    pub(crate) repair: bool,
    piece: Piece,
}

impl NextBurst {
    /// The Transfer that it belongs to.
    pub(crate) fn transfer(&self) -> TransferId {
        self.piece.id
    }

    /// Makes the burst announce its Transfer, if it is a suitable train.
    pub(crate) fn announce(&mut self, announcement: Announcement) -> bool {
        let Piece { id, b_num, start } = self.piece;
        let is_first = self.burst.train.is_some() && (b_num, start) == (0, 0);
        let may = is_first && announcement == Announcement::ByTrain;
        if may {
            self.burst.announces = Some(id);
        }
        may
    }
}

/// The start of a burst.
#[derive(Clone, Copy, Debug)]
struct Piece {
    id: TransferId,
    b_num: u32,
    start: u32,
}

impl Outbox {
    /// The next burst: repairs first, then eager payload, then fresh payload in the order of the grants.
    pub(crate) fn next_burst(
        &mut self,
        now: Instant,
        path: usize,
        shape: &Shape,
    ) -> Option<NextBurst> {
        let mut next = self
            .next_repair(shape)
            .or_else(|| self.next_eager(shape))
            .or_else(|| self.next_fresh(shape))?;
        if shape.profile.numbers_bursts() {
            self.number(now, path, &mut next);
        }
        Some(next)
    }

    /// The first burst of a message's eager payload, as a bare message. `None` if other Data must leave before.
    pub(crate) fn next_message(
        &mut self,
        now: Instant,
        path: usize,
        shape: &Shape,
        message: &BareMessage,
    ) -> Option<NextBurst> {
        let mut next = self.next_eager(shape)?;
        next.burst.first.b_id = message.executed;
        for flags in [&mut next.burst.first.flags, &mut next.burst.last_flags] {
            *flags = flags
                .with(Flags::MEMORY)
                .with_if(Flags::AWAITED, message.awaited);
        }
        self.number(now, path, &mut next);
        Some(next)
    }

    /// Assigns the burst a number of `path`.
    fn number(&mut self, now: Instant, path: usize, next: &mut NextBurst) {
        let Piece { id, b_num, start } = next.piece;
        let len = next.burst.span.len as u32;
        let sent_log = &mut self.sent_logs[path];
        next.burst.first.sync = sent_log.next_number();
        sent_log.on_sent(now, id, b_num, start, len);
    }

    fn next_repair(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(repair) = self.repairs.front_mut() {
            let &mut Repair {
                id, b_num, start, ..
            } = repair;
            let transfer = self.transfers.get(&id);
            let Some((transfer, held)) = transfer.and_then(|it| Some((it, it.block(b_num)?)))
            else {
                self.repairs.pop_front();
                continue;
            };
            let piece = Piece { id, b_num, start };
            // Lost payload is repeated with a header in each datagram.
            let burst = cut(transfer, held, piece, repair.len, shape, false);
            repair.start += burst.span.len as u32;
            repair.len -= burst.span.len as u32;
            if repair.len == 0 {
                self.repairs.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: true,
                piece,
            });
        }
        None
    }

    fn next_eager(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(&id) = self.eager.front() {
            let transfer = self.transfers.get_mut(&id);
            let next = transfer.and_then(|it| it.next_fresh(id, 0, shape));
            if next.as_ref().is_none_or(|&(_, rest)| rest == 0) {
                self.eager.pop_front();
            }
            if let Some((next, _)) = next {
                return Some(next);
            }
        }
        None
    }

    fn next_fresh(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(&(_, id, b_num)) = self.ready.front() {
            let transfer = self.transfers.get_mut(&id);
            let next = transfer.and_then(|it| it.next_fresh(id, b_num, shape));
            if next.as_ref().is_none_or(|&(_, rest)| rest == 0) {
                self.ready.pop_front();
            }
            if let Some((next, _)) = next {
                return Some(next);
            }
        }
        None
    }
}

impl Outbound {
    /// The next burst of unsent bytes of a Block, marked as sent, and how many bytes remain.
    fn next_fresh(
        &mut self,
        id: TransferId,
        b_num: u32,
        shape: &Shape,
    ) -> Option<(NextBurst, u32)> {
        let held = self.block(b_num)?;
        let (start, rest) = (held.sent, held.len - held.sent);
        if rest == 0 {
            return None;
        }
        let piece = Piece { id, b_num, start };
        let burst = cut(self, held, piece, rest, shape, held.trains);
        let held = self.block_mut(b_num)?;
        held.sent += burst.span.len as u32;
        if let Some(train) = burst.train {
            held.longest_train = held.longest_train.max(train.len);
        }
        self.sent += burst.span.len;
        let next = NextBurst {
            burst,
            repair: false,
            piece,
        };
        Some((next, rest - burst.span.len as u32))
    }
}

/// A burst from `piece` of the Block `held` on, of at most `rest` bytes, as a train if permitted.
fn cut(
    transfer: &Outbound,
    held: &Held,
    Piece { id, b_num, start }: Piece,
    rest: u32,
    shape: &Shape,
    trains: bool,
) -> DataBurst {
    let Shape { route, profile, .. } = *shape;
    let (bare, address, buffer_log2) = match transfer.is_eager() {
        true => eager(id, transfer, start),
        false => granted(transfer, held, b_num, start, shape.buffer_log2),
    };
    let Cut {
        bytes,
        stu,
        segments,
        train,
    } = shape.cut(address, rest, buffer_log2, trains);
    let ends_block = start + bytes == held.len;
    let ends_transfer =
        ends_block && held.transfer_offset + u64::from(held.len) == transfer.span.len;
    let first = Header {
        flags: bare.flags.with(Flags::SILENT),
        param: (start / stu) as u16,
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        ..bare
    };
    let last_flags = match (ends_transfer, ends_block) {
        (true, _) => ending_flags(transfer.delivery),
        (_, true) if profile.confirms_blocks() => Flags::SEND_STATE,
        (_, true) => Flags::NONE,
        _ => Flags::SILENT,
    }
    .with(bare.flags)
    .with_if(Flags::SEND_STATE, shape.ask);
    DataBurst {
        span: transfer
            .span
            .part(held.transfer_offset + u64::from(start), u64::from(bytes)),
        stu,
        segments,
        train,
        dscp: 0,
        first,
        announces: None,
        address,
        buffer_log2,
        last_flags,
    }
}

/// Header, address and buffer size of granted payload.
fn granted(
    transfer: &Outbound,
    held: &Held,
    b_num: u32,
    start: u32,
    buffer_log2: u8,
) -> (Header, u64, u8) {
    let address = held.address + u64::from(start);
    let (bufx, offset) = split(address, buffer_log2);
    let header = Header {
        b_id: held.mx,
        bufx,
        offset,
        b_num,
        d_id: transfer.peer,
        ..Header::new(Op::Data)
    };
    (header, address, buffer_log2)
}

/// Header, address and buffer size of eager payload: Bufx is the Transfer's length and Offset the byte within it, as in
/// one buffer of 4 GiB.
fn eager(id: TransferId, transfer: &Outbound, start: u32) -> (Header, u64, u8) {
    let announcement = RequestToSend {
        length: transfer.span.len,
        s_id: id,
        target: transfer.target,
        sequence: transfer.sequence,
        send_state: true,
    };
    let header = announcement.eager(start);
    (header, header.wide(), EAGER_BUFFER_LOG2)
}

/// log2 of the virtual buffer of eager Transfers: all of Offset.
const EAGER_BUFFER_LOG2: u8 = 32;

/// Flags of the last STU of a Transfer.
fn ending_flags(delivery: Delivery) -> Flags {
    Flags::SEND_STATE.with(match delivery {
        Delivery::Silent => Flags::SILENT,
        Delivery::Polled => Flags::NONE,
        Delivery::Interrupt => Flags::INTERRUPT,
    })
}

impl Outbox {
    /// Unsent bytes that may leave, counted up to `most`.
    pub(crate) fn unsent(&self, most: u64) -> u64 {
        let repairs = self.repairs.iter().map(|it| u64::from(it.len));
        let granted = self.ready.iter().map(|&(_, id, b_num)| (id, b_num));
        let eager = self.eager.iter().map(|&id| (id, 0));
        let fresh = granted.chain(eager).filter_map(|(id, b_num)| {
            let held = self.transfers.get(&id)?.block(b_num)?;
            Some(u64::from(held.len - held.sent))
        });
        let mut left = 0;
        for bytes in repairs.chain(fresh) {
            left += bytes;
            if left >= most {
                break;
            }
        }
        left
    }
}
