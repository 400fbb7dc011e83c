//! Bursts of payload: what leaves next, and the header it has.

use super::Outbox;
use super::transfer::Outbound;
use crate::transmit::{BurstLimit, DataBurst, split};
use crate::{Delivery, Instant, TransferId, tiling};
use zerolane_wire::{Flags, Header, Op, Profile, Route};

/// How Data of a connection looks at present.
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
    /// The burst asks the receiver how it gets on (extended profile).
    pub(crate) ask: bool,
}

impl Shape {
    pub(crate) fn segments(&self) -> u32 {
        self.limit
            .segments
            .min(self.limit.bytes / (self.stu + self.around))
            .max(1)
    }
}

/// What a burst is made of, and for the counters.
pub(crate) struct NextBurst {
    pub(crate) burst: DataBurst,
    pub(crate) repair: bool,
    piece: Piece,
}

/// Where a burst starts.
#[derive(Clone, Copy, Debug)]
struct Piece {
    id: TransferId,
    b_num: u32,
    start: u32,
}

impl Outbox {
    /// The next burst: repairs first, then fresh data in the order of the grants.
    pub(crate) fn next_burst(&mut self, now: Instant, shape: &Shape) -> Option<NextBurst> {
        let mut next = self.next_repair(shape).or_else(|| self.next_fresh(shape))?;
        if shape.profile == Profile::Extended {
            let Piece { id, b_num, start } = next.piece;
            let len = next.burst.span.len as u32;
            next.burst.first.sync = self.sent_log.next_number();
            self.sent_log.on_sent(now, id, b_num, start, len);
        }
        Some(next)
    }

    fn next_repair(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(repair) = self.repairs.front_mut() {
            let Some(transfer) = self.transfers.get(&repair.id) else {
                self.repairs.pop_front();
                continue;
            };
            let Some(burst) = cut(transfer, repair.b_num, repair.start, repair.len, shape) else {
                self.repairs.pop_front();
                continue;
            };
            let piece = Piece {
                id: repair.id,
                b_num: repair.b_num,
                start: repair.start,
            };
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

    fn next_fresh(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(&(_, id, b_num)) = self.ready.front() {
            let transfer = self.transfers.get_mut(&id);
            let Some((burst, start, rest)) = transfer.and_then(|t| t.next_fresh(b_num, shape))
            else {
                self.ready.pop_front();
                continue;
            };
            if rest == 0 {
                self.ready.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: false,
                piece: Piece { id, b_num, start },
            });
        }
        None
    }
}

impl Outbound {
    /// The next burst of bytes never sent of a Block, marked as sent; where it starts, and how many
    /// bytes are left.
    fn next_fresh(&mut self, b_num: u32, shape: &Shape) -> Option<(DataBurst, u32, u32)> {
        let held = self.held.get(&b_num)?;
        let (start, rest) = (held.sent, held.len - held.sent);
        if rest == 0 {
            return None;
        }
        let burst = cut(self, b_num, start, rest, shape)?;
        self.held.get_mut(&b_num)?.sent += burst.span.len as u32;
        self.sent += burst.span.len;
        Some((burst, start, rest - burst.span.len as u32))
    }
}

/// A burst from `start` of a Block, of at most `rest` bytes; `None` if the Block is not held.
fn cut(transfer: &Outbound, b_num: u32, start: u32, rest: u32, shape: &Shape) -> Option<DataBurst> {
    let held = transfer.held.get(&b_num)?;
    let Shape {
        route,
        stu,
        profile,
        buffer_log2,
        ..
    } = *shape;
    let address = held.address + u64::from(start);
    let (bytes, segments) = tiling::burst(address, rest, stu, buffer_log2, shape.segments());
    let (bufx, offset) = split(address, buffer_log2);
    let ends_block = start + bytes == held.len;
    let ends_transfer =
        ends_block && held.transfer_offset + u64::from(held.len) == transfer.span.len;
    let first = Header {
        flags: Flags::SILENT,
        param: (start / stu) as u16,
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        b_id: held.mx,
        bufx,
        offset,
        b_num,
        d_id: transfer.peer,
        ..Header::new(Op::Data)
    };
    let last_flags = match (ends_transfer, ends_block) {
        (true, _) => ending_flags(transfer.delivery),
        (_, true) if profile == Profile::Classic => Flags::SEND_STATE,
        (_, true) => Flags::NONE,
        _ => Flags::SILENT,
    }
    .with_if(Flags::SEND_STATE, shape.ask);
    Some(DataBurst {
        span: transfer
            .span
            .part(held.transfer_offset + u64::from(start), u64::from(bytes)),
        stu,
        segments,
        first,
        address,
        buffer_log2,
        last_flags,
    })
}

/// Flags of the STU that ends a Transfer.
fn ending_flags(delivery: Delivery) -> Flags {
    Flags::SEND_STATE.with(match delivery {
        Delivery::Silent => Flags::SILENT,
        Delivery::Polled => Flags::NONE,
        Delivery::Interrupt => Flags::INTERRUPT,
    })
}
