//! Cuts Transfers into Blocks, and grants the Blocks in order.

use super::{Inbound, Inbox};
use crate::limits::MAX_STUS_PER_BLOCK;
use crate::profile::Conduct;
use crate::receiving::placement::GrantedBlock;
use crate::tiling;
use crate::time::Instant;
use crate::transfer::TransferId;
use crate::transmit::{longest_train, split};
use zerolane_wire::{ClearToSend, Grant, Profile, encapsulation};

/// How to cut Blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) profile: Profile,
    pub(crate) window: u32,
    /// Target length (extended profile).
    pub(crate) block: u32,
    pub(crate) block_log2: u8,
    pub(crate) buffer_log2: u8,
    /// The sender's STU, as far as known.
    pub(crate) stu: u32,
    pub(crate) burst_segments: u32,
    /// Bytes around the payload of a datagram.
    pub(crate) around: u32,
    /// Bytes around the payload of a train.
    pub(crate) train_around: u32,
    /// Blocks may come as trains.
    pub(crate) trains: bool,
    /// Trains are on trial: only one Block may come as trains.
    pub(crate) trial: bool,
}

impl Geometry {
    /// Length of a Block of whole bursts, so that no STU within it is short.
    fn block_len(&self) -> u64 {
        let datagram = self.stu + self.around;
        let most = encapsulation::MAX_UDP_PAYLOAD_V4 as u32 / datagram;
        let most = most.clamp(1, self.burst_segments.max(1));
        let burst = match self.trains {
            // One datagram of one byte is no train.
            true => longest_train(most, datagram, self.train_around).max(1),
            false => self.stu * most,
        };
        let target = self
            .block
            .min(self.window / 2)
            .min(self.stu.saturating_mul(MAX_STUS_PER_BLOCK));
        let whole = target / burst * burst;
        u64::from(if whole > 0 {
            whole
        } else {
            (target / self.stu).max(1) * self.stu
        })
    }

    /// Length of the Block that begins at `at`, of a Transfer with `rest` ungranted bytes. It crosses no buffer
    /// boundary.
    pub(super) fn next_len(&self, at: u64, rest: u64) -> u64 {
        let to_boundary = (1u64 << self.buffer_log2) - (at & ((1 << self.buffer_log2) - 1));
        self.block_len().min(rest).min(to_boundary)
    }
}

/// A new grant.
pub(crate) struct Granted {
    pub(crate) sequence: u32,
    pub(crate) transfer: TransferId,
}

impl Inbox {
    /// Grants the next Block, if the window has room.
    pub(crate) fn grant_next(&mut self, now: Instant, geometry: &Geometry) -> Option<Granted> {
        let &id = self.granting.front()?;
        let transfer = self.transfers.get_mut(&id)?;
        let at = transfer.span.offset + transfer.granted;
        let rest = transfer.span.len - transfer.granted;
        let len = match geometry.profile.has_any_lengths() {
            true => geometry.next_len(at, rest) as u32,
            false => tiling::classic_block(
                transfer.span.offset,
                transfer.granted,
                transfer.span.len,
                geometry.block_log2,
            ),
        };
        let held = self.grants.outstanding() + self.grants.reserved_bytes();
        let fits = held + u64::from(len) <= u64::from(geometry.window);
        let room = self.grants.is_idle() || geometry.profile.grants_ahead() && fits;
        if !room || !self.grants.has_room() {
            return None;
        }
        let span = transfer.span.part(transfer.granted, u64::from(len));
        let sequence = self
            .grants
            .grant(now, id, transfer.next_b_num, span, transfer.granted);
        transfer.granted += u64::from(len);
        self.ungranted -= u64::from(len);
        transfer.next_b_num += 1;
        if transfer.granted == transfer.span.len {
            self.granting.pop_front();
        }
        self.offer_trains(sequence, geometry);
        Some(Granted {
            sequence,
            transfer: id,
        })
    }

    /// Lets the Block just granted come as trains, unless trains are on trial and another Block already may.
    pub(super) fn offer_trains(&mut self, sequence: u32, geometry: &Geometry) {
        if geometry.trains && !(geometry.trial && self.grants.expects_trains()) {
            self.grants.offer_trains(sequence);
        }
    }

    /// Grants a Block anew from its start (classic repair), and forgets what had arrived.
    pub(crate) fn regrant(&mut self, now: Instant, sequence: u32) -> Option<Granted> {
        let block = self.grants.get(sequence)?;
        let (id, b_num, span) = (block.transfer, block.b_num, block.span);
        let (had, offset) = (
            span.len - u64::from(block.gaps.missing()),
            block.transfer_offset,
        );
        self.transfers.get_mut(&id)?.received -= had;
        self.grants.revoke(sequence);
        Some(Granted {
            sequence: self.grants.grant(now, id, b_num, span, offset),
            transfer: id,
        })
    }

    /// The Clear_To_Send of a live Block.
    pub(crate) fn clear_to_send(&self, sequence: u32, geometry: &Geometry) -> Option<ClearToSend> {
        let block = self.grants.get(sequence)?;
        let transfer = self.transfers.get(&block.transfer);
        let (d_id, advance) = match transfer {
            Some(transfer) => (transfer.peer, None),
            None => {
                let (number, advance) = self.granted_to(block.transfer)?;
                (number, Some(advance))
            }
        };
        let complete = |it| self.blocks_complete(block.transfer, it);
        let (bufx, offset) = split(block.address, geometry.buffer_log2);
        let names_bytes = geometry.profile.has_any_lengths();
        Some(ClearToSend {
            block_log2: if names_bytes { 0 } else { geometry.block_log2 },
            mx: block.mx,
            bufx,
            offset,
            sequence,
            b_num: block.b_num,
            d_id,
            s_id: block.transfer,
            grant: names_bytes.then(|| Grant {
                transfer_offset: block.transfer_offset,
                length: block.len(),
                blocks_complete: transfer.map_or(0, complete),
                trains: block.trains,
                advance,
            }),
        })
    }

    /// Blocks of a Transfer below this number are complete.
    pub(crate) fn blocks_complete(&self, id: TransferId, transfer: &Inbound) -> u32 {
        let of_it = |(_, block): &(u32, &GrantedBlock)| block.transfer == id;
        let lowest = self
            .grants
            .iter()
            .filter(of_it)
            .map(|(_, block)| block.b_num)
            .min();
        lowest.unwrap_or(transfer.next_b_num)
    }
}
