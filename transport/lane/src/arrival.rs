//! Delivers datagrams in the lane's own memory: shows them to the core, then copies payload to its place.

use crate::account::MoveCause;
use crate::lane::Turn;
use zerolane_core::{DropReason, Placement, RegionId, Span};
use zerolane_wire::{Flags, Frames, HEADER_LEN, Header, MAX_CONTROL, Op, checksum::Sum};

/// Most bytes of a control operation that are ever read: one more than the longest has.
pub(crate) const CONTROL_DATAGRAM: usize = MAX_CONTROL + 1;

/// What became of payload that lay outside its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Bytes of it that were granted, and moved to their place.
    pub(crate) moved: u64,
    /// A region whose memory is gone.
    pub(crate) fault: Option<RegionId>,
}

impl Delivered {
    /// The outcome of both.
    pub(crate) fn and(self, next: Delivered) -> Delivered {
        Delivered {
            moved: self.moved + next.moved,
            fault: self.fault.or(next.fault),
        }
    }

    fn of(moved: u64, outcome: Result<(), RegionId>) -> Delivered {
        let fault = outcome.err();
        Delivered { moved, fault }
    }
}

/// Whether frames follow the header.
pub(crate) fn is_of_frames(header: &Header, turn: &Turn<'_>) -> bool {
    header.flags.contains(Flags::FRAMES) && turn.core.takes_frames()
}

/// Whether the checksum is there and matches, if checksums were agreed.
pub(crate) fn checksum_holds(header: &Header, rest: Sum) -> bool {
    header.checksum != 0 && header.verify(rest).is_ok()
}

/// Shows the core a control operation, and carries out the atomic operation that it may order.
pub(crate) fn deliver_operation(turn: &mut Turn<'_>, bytes: &[u8], len: usize) {
    turn.core.on_control(turn.now, bytes, len);
    if let Some(order) = turn.core.pending_atomic() {
        let before = turn.memory.atomic(order);
        turn.core.on_atomic_done(turn.now, before);
    }
}

/// Carries out, at once and in order, a put or a value that came without announcement.
///
/// # Errors
/// The region whose memory is gone.
pub(crate) fn deliver_small(
    placement: Placement,
    payload: &[u8],
    turn: &mut Turn<'_>,
) -> Result<(), RegionId> {
    match placement {
        Placement::Store(_) if payload.is_empty() => {}
        Placement::Store(span) => {
            turn.account.count_moved(MoveCause::Unannounced, span.len);
            if !turn.memory.store(span, payload) {
                return Err(span.region);
            }
        }
        Placement::Value { number, id } => {
            if let Ok(bytes) = payload.try_into() {
                let value = u64::from_be_bytes(bytes);
                turn.core.on_value(turn.now, number, id, value);
            }
        }
        Placement::Hold(hold) => {
            let len = payload.len() as u64;
            turn.account.count_moved(MoveCause::Eager, len);
            turn.holds.store(hold, payload);
        }
        Placement::Datagram(slot) => turn.datagrams.store(slot, payload, turn.account),
        Placement::InPlace
        | Placement::Move(_)
        | Placement::Unannounced(_)
        | Placement::Eager(_)
        | Placement::Drop(_) => {}
    }
    Ok(())
}

/// Takes an unsealed datagram, and copies its payload to its place before returning. Granted payload is counted as
/// moved for `cause`.
pub(crate) fn deliver_now(datagram: &[u8], cause: MoveCause, turn: &mut Turn<'_>) -> Delivered {
    let header = match Header::parse(datagram) {
        Ok(header) if header.op == Op::Data => header,
        _ => {
            let shown = &datagram[..datagram.len().min(CONTROL_DATAGRAM)];
            deliver_operation(turn, shown, datagram.len());
            return Delivered::default();
        }
    };
    let payload = &datagram[HEADER_LEN..];
    if turn.core.uses_checksums() && !checksum_holds(&header, Sum::of(payload)) {
        turn.core.on_dropped(DropReason::Checksum);
        return Delivered::default();
    }
    if !is_of_frames(&header, turn) {
        return deliver_data(&header, payload, payload.len() as u32, cause, turn);
    }
    let Ok(frames) = Frames::parse(&header, payload) else {
        turn.core.on_dropped(DropReason::Malformed);
        return Delivered::default();
    };
    frames
        .map(|(header, payload)| deliver_data(&header, payload, payload.len() as u32, cause, turn))
        .fold(Delivered::default(), Delivered::and)
}

/// Takes payload in STUs of `stu` bytes, as [`deliver_now`] does.
pub(crate) fn deliver_data(
    header: &Header,
    payload: &[u8],
    stu: u32,
    cause: MoveCause,
    turn: &mut Turn<'_>,
) -> Delivered {
    let len = payload.len() as u32;
    let (span, cause, moved) = match turn.on_data(header, len, stu, None) {
        Placement::Move(span) => (span, cause, span.len),
        Placement::Unannounced(span) => (span, MoveCause::Unannounced, 0),
        Placement::Eager(span) => (span, MoveCause::Eager, 0),
        other => return Delivered::of(0, deliver_small(other, payload, turn)),
    };
    Delivered::of(moved, fill(span, payload, cause, turn))
}

fn fill(span: Span, payload: &[u8], cause: MoveCause, turn: &mut Turn<'_>) -> Result<(), RegionId> {
    turn.account.count_moved(cause, span.len);
    // A repair does not rewrite the part that had already arrived and was handed out.
    let settled = turn.memory.settled(span);
    let rest = span.part(settled, span.len - settled);
    let bytes = payload.get(settled as usize..).unwrap_or_default();
    turn.memory.fill(rest, bytes).map_err(|_| span.region)
}
