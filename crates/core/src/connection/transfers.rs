//! Transfers posted, and matched with what the peer announces, offers and reads.

use super::{Connection, PostError};
use crate::inbound::Posted;
use crate::offers::Offer;
use crate::{Delivery, Instant, Life, Span, TransferId, limits};
use alloc::vec::Vec;
use zerolane_wire::Target;

impl Connection {
    /// Sends `span` as one Transfer. Its bytes must stay as they are until the Transfer is over.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_send(
        &mut self,
        now: Instant,
        span: Span,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.outbox.len())?;
        let id = self.new_id();
        self.outbox.post(id, span, delivery, Target::Receive);
        self.announce(now);
        Ok(id)
    }

    /// Receives the next Transfer that no earlier receive takes into `span`. Its bytes are undefined
    /// until the Transfer is over.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_receive(&mut self, now: Instant, span: Span) -> Result<TransferId, PostError> {
        self.can_post(self.inbox.len())?;
        let id = self.new_id();
        self.inbox.posted.push_back(Posted { id, span });
        self.match_announcements(now);
        self.expect_peer(now);
        Ok(id)
    }

    /// Offers `span` to the peer's next Read (Request_To_Receive).
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_offer(
        &mut self,
        now: Instant,
        span: Span,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.outbox.len() + self.offers.queue.len())?;
        let id = self.new_id();
        self.offers.queue.push_back(Offer { id, span, delivery });
        self.match_offers(now);
        self.expect_peer(now);
        Ok(id)
    }

    /// Reads what the peer offers into `span` (Read sequence: Request_To_Receive first).
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_read(&mut self, now: Instant, span: Span) -> Result<TransferId, PostError> {
        self.can_post(self.inbox.len())?;
        let id = self.new_id();
        self.inbox.reads.post(id, span);
        self.ask_reads(now);
        self.expect_peer(now);
        Ok(id)
    }

    pub(super) fn can_post(&self, posted: usize) -> Result<(), PostError> {
        match self.life {
            Life::Connecting | Life::Answered | Life::Established => {}
            Life::Disconnecting | Life::Answering | Life::Closed => return Err(PostError::Closed),
        }
        if posted >= limits::MAX_POSTED {
            Err(PostError::Full)
        } else {
            Ok(())
        }
    }

    pub(super) fn new_id(&mut self) -> TransferId {
        let id = self.next_id;
        self.next_id = self.next_id % (crate::exports::HANDLE - 1) + 1;
        id
    }

    /// All posted Transfers that are not over.
    pub fn transfers(&self) -> Vec<TransferId> {
        let offers = self.offers.queue.iter().map(|offer| offer.id);
        offers
            .chain(self.outbox.ids())
            .chain(self.inbox.ids())
            .chain(
                self.memory
                    .ids()
                    .filter(|&id| self.outbox.get(id).is_none()),
            )
            .collect()
    }

    /// Announces queued Transfers as far as the peer's slots allow.
    pub(super) fn announce(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        self.end_withdrawn(now);
        let slots = self.peer_slots();
        while let Some(id) = self.outbox.announce_next(slots) {
            self.send_announcement(now, id);
        }
    }

    /// Asks for queued Reads as far as the peer's slots allow.
    pub(super) fn ask_reads(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let slots = self.peer_slots();
        while let Some(id) = self.inbox.reads.ask_next(slots) {
            self.send_read(now, id);
        }
    }

    /// Matches announcements with posted receives, and grants.
    pub(super) fn match_announcements(&mut self, now: Instant) {
        while let Some(matched) = self.inbox.match_next() {
            self.matched(now, matched);
        }
        self.grant(now);
    }

    /// Matches the peer's Reads with offers.
    pub(super) fn match_offers(&mut self, now: Instant) {
        while let Some((wanted, offer)) = self.offers.match_next() {
            let target = Target::Read(wanted.s_id);
            self.outbox
                .post(offer.id, offer.span, offer.delivery, target);
        }
        self.announce(now);
    }
}
