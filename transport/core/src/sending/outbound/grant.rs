//! Validates grants when they arrive: which bytes each covers, and whether it is allowed.

use super::transfer::{Held, Outbound};
use super::{LossReport, Lost, OutboundEvent, Outbox};
use crate::counters::DropReason;
use crate::limits::{BLACK_HOLE_REPAIRS, MAX_HELD_GRANTS};
use crate::profile::Conduct;
use crate::tiling;
use crate::transfer::TransferId;
use crate::transmit::join;
use zerolane_wire::{ClearToSend, Profile};

impl Outbox {
    /// Takes a grant. `buffer_log2` is the receiver's.
    pub(crate) fn grant(
        &mut self,
        cts: &ClearToSend,
        profile: Profile,
        buffer_log2: u8,
    ) -> Result<LossReport, DropReason> {
        self.forget_void(cts);
        let transfer = self
            .transfers
            .get_mut(&cts.d_id)
            .ok_or(DropReason::NoGrant)?;
        if transfer.peer != 0 && transfer.peer != cts.s_id {
            return Err(DropReason::NoGrant);
        }
        let mut held = granted(transfer, cts, profile, buffer_log2)?;
        let complete = match cts.grant {
            Some(grant) => grant.blocks_complete,
            // One Block at a time: this grant means that earlier Blocks are complete.
            None => cts.b_num,
        };
        self.held -= transfer.forget_below(complete);
        if cts.b_num < transfer.first_open {
            return Err(DropReason::Duplicate);
        }
        let old = transfer.held.get(&cts.b_num);
        if old.is_some_and(|old| cts.sequence.wrapping_sub(old.sequence) as i32 <= 0) {
            return Err(DropReason::Duplicate);
        }
        if old.is_none() && self.held >= MAX_HELD_GRANTS {
            return Err(DropReason::Limit);
        }
        transfer.state = transfer
            .state
            .step(OutboundEvent::Granted)
            .ok_or(DropReason::Unexpected)?;
        (transfer.peer, transfer.in_advance) = (cts.s_id, false);
        let mut missing = LossReport::default();
        if let Some(eager) = transfer.eager.take() {
            // Granted after all: the eager payload found no place.
            missing.lost[0] = Lost::datagrams(eager.sent.into());
            transfer.sent = 0;
            self.eager.retain(|&id| id != cts.d_id);
            self.repairs.retain(|repair| repair.id != cts.d_id);
        }
        if let Some(old) = old {
            // Granted anew (classic repair): the whole Block must be sent again.
            missing.lost[0] = Lost::datagrams(old.sent.into());
            let resends = old.sent > 0;
            held.regrants = old.regrants.saturating_add(resends.into());
            missing.black_hole = resends && held.regrants.is_multiple_of(BLACK_HOLE_REPAIRS);
            transfer.sent -= u64::from(old.sent);
            self.ready
                .retain(|entry| (entry.1, entry.2) != (cts.d_id, cts.b_num));
            self.repairs
                .retain(|r| (r.id, r.b_num) != (cts.d_id, cts.b_num));
        } else {
            self.held += 1;
        }
        transfer.held.insert(cts.b_num, held);
        self.make_ready(cts.sequence, cts.d_id, cts.b_num);
        Ok(missing)
    }

    pub(super) fn make_ready(&mut self, sequence: u32, id: TransferId, b_num: u32) {
        let after = |entry: &(u32, TransferId, u32)| sequence.wrapping_sub(entry.0) as i32 >= 0;
        let place = self
            .ready
            .iter()
            .rposition(after)
            .map_or(0, |index| index + 1);
        self.ready.insert(place, (sequence, id, b_num));
    }
}

/// The Block that a grant creates, if it lies in the Transfer and in the address space.
pub(super) fn granted(
    transfer: &mut Outbound,
    cts: &ClearToSend,
    profile: Profile,
    buffer_log2: u8,
) -> Result<Held, DropReason> {
    let address = join(cts.bufx, cts.offset, buffer_log2);
    let (transfer_offset, len) =
        granted_range(transfer, cts, profile, address).ok_or(DropReason::OutOfBounds)?;
    // Later address arithmetic must not overflow, and every address needs a valid Bufx.
    let end = address.checked_add(u64::from(len));
    let last = end.map(|end| end.saturating_sub(1) >> buffer_log2);
    if last.is_none_or(|bufx| bufx > u64::from(u32::MAX)) {
        return Err(DropReason::OutOfBounds);
    }
    Ok(Held {
        mx: cts.mx,
        address,
        transfer_offset,
        len,
        sent: 0,
        sequence: cts.sequence,
        trains: cts.grant.is_some_and(|grant| grant.trains),
        longest_train: 0,
        regrants: 0,
    })
}

/// The bytes of the Transfer that a grant covers; `None` if they do not exist.
fn granted_range(
    transfer: &mut Outbound,
    cts: &ClearToSend,
    profile: Profile,
    address: u64,
) -> Option<(u64, u32)> {
    let length = transfer.span.len;
    match (profile.has_any_lengths(), cts.grant) {
        (true, Some(grant)) => {
            let end = grant.transfer_offset.checked_add(u64::from(grant.length))?;
            (end <= length).then_some((grant.transfer_offset, grant.length))
        }
        // Options in the wrong profile.
        (true, None) | (false, Some(_)) => None,
        (false, None) => {
            if cts.b_num == 0 {
                transfer.classic_start = Some(address);
            }
            let start = transfer.classic_start?;
            let first = u64::from(tiling::classic_block(start, 0, length, cts.block_log2));
            let offset = match cts.b_num {
                0 => 0,
                n => first.checked_add(u64::from(n - 1) << cts.block_log2)?,
            };
            (offset < length && address == start.checked_add(offset)?).then(|| {
                (
                    offset,
                    tiling::classic_block(start, offset, length, cts.block_log2),
                )
            })
        }
    }
}
