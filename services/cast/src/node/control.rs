//! Exchanges control messages between a node and its coordinator, also where both are the same node.

use std::time::Duration;

use super::{Link, Node};
use crate::bitmap::Bitmap;
use crate::coordinator::{Coordinator, Joining};
use crate::limits::{HELPERS, MAX_CONTACTS, MAX_PEERS};
use crate::manifest::{Header, Manifest};
use crate::message::{Contact, Fault, Message, NodeId, Place};
use crate::options::{Action, Event};

impl Node {
    /// The node that leads, if it is another and connected.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let leader = self.leaders.get(self.leader)?.id;
        (self.coordinator.is_none() && self.is_connected(leader)).then_some(leader)
    }

    pub(super) fn connect_to_leader(&mut self) {
        if let Some(contact) = self.leaders.get(self.leader).cloned()
            && self.connect(&contact)
        {
            self.join(contact.id);
        }
    }

    /// A connection is there: it may be to the one that leads, or to one that should.
    pub(super) fn meet_leader(&mut self, id: NodeId) {
        let Some(index) = self.leaders.iter().position(|it| it.id == id) else {
            return;
        };
        // An earlier leader is back, so this node's own leadership is over.
        let earlier =
            index < self.leader || (self.coordinator.is_some() && index < self.own_rank());
        if earlier {
            self.coordinator = None;
            self.epoch = 0;
        }
        if self.coordinator.is_none() && (earlier || index == self.leader) {
            self.leader = index;
            self.join(id);
        }
    }

    /// Whether `from` is the source, and has given this node no place: it waits for others, and nothing can come
    /// before. Of one that follows the source this is not believed, for it may not lead at all.
    pub(super) fn waits_to_begin(&self, from: NodeId) -> bool {
        self.epoch == 0 && self.leader == 0 && self.leader() == Some(from)
    }

    /// This node's rank among the possible leaders; after all of them if it may not lead.
    fn own_rank(&self) -> usize {
        let own = self.id();
        self.leaders
            .iter()
            .position(|it| it.id == own)
            .unwrap_or(self.leaders.len())
    }

    fn join(&mut self, leader: NodeId) {
        self.followed.retain(|it| *it != leader);
        self.followed.push_back(leader);
        if self.followed.len() > MAX_CONTACTS {
            self.followed.pop_front();
        }
        let stored = self.stored.as_ref();
        let (root, has) = match (self.header, stored) {
            (Some(header), _) => (header.root, self.verified.clone()),
            (None, Some(stored)) => (stored.root, stored.has.clone()),
            (None, None) => Default::default(),
        };
        let address = self.profile.contact.address.clone();
        let (rack, rate) = (self.profile.rack, self.profile.rate);
        self.send(
            leader,
            Message::Join {
                address,
                rack,
                rate,
                root,
                has,
            },
        );
    }

    /// The connection to a node is lost: if it led, the next one is asked to.
    pub(super) fn lose_leader(&mut self, id: NodeId) {
        let led = self.coordinator.is_none()
            && self.leaders.get(self.leader).is_some_and(|it| it.id == id);
        if led && !self.ended {
            self.epoch = 0;
            self.try_next_leader();
            // The connection may have failed while its ends are there: the one that led is tried again at once.
            self.retry_at = self.now + self.options.beat;
        }
    }

    /// Reports that the source is alive and accepts this node again, as the driver learned in another way. Connects to
    /// it unless connected.
    pub fn reach_source(&mut self, now: Duration) {
        self.now = now;
        if let Some(source) = self.leaders.first().filter(|_| !self.ended).cloned() {
            self.connect(&source);
        }
        self.settle();
    }

    fn try_next_leader(&mut self) {
        self.leader = (self.leader + 1) % self.leaders.len();
        self.retry_at = self.now + self.options.silence * 2;
        if self.leaders[self.leader].id == self.id() {
            self.lead();
        } else if self.leader > 0 {
            self.connect_to_leader();
        }
    }

    /// This node leads from now on, and receives from any node that has its missing chunks.
    fn lead(&mut self) {
        let Some(header) = self.header else {
            return;
        };
        let contact = self.profile.contact.clone();
        self.coordinator = Some(Coordinator::following(
            self.now,
            contact,
            self.profile.rack,
            header,
            self.options,
            self.epoch,
        ));
        self.leave_predecessors();
        self.tell(Event::Leads);
        for (from, message) in std::mem::take(&mut self.early) {
            if self.is_connected(from) {
                // Keep only the messages that every member may send.
                let _ = self.take_member(from, message);
            }
        }
    }

    /// At each beat: connects to the one that leads, and now and then to one that should.
    pub(super) fn look_for_leader(&mut self) {
        if self.leaders.is_empty() || self.now < self.retry_at {
            return;
        }
        self.retry_at = self.now + self.options.silence * 2;
        // One that is connected and gives no place may not know yet that it leads.
        let placed = self.coordinator.is_some() || (self.leader().is_some() && self.epoch > 0);
        if !placed
            && self
                .peers
                .get(&self.leaders[self.leader].id)
                .is_none_or(|it| it.link != Link::Connecting)
        {
            self.connect_to_leader();
        }
        let earlier = match self.coordinator.is_some() {
            true => self.own_rank(),
            false => self.leader,
        };
        for index in 0..earlier {
            let contact = self.leaders[index].clone();
            self.connect(&contact);
        }
    }

    /// Handles a member's message to its coordinator.
    pub(super) fn take_member(&mut self, from: NodeId, message: Message) -> Result<(), Fault> {
        self.lead_if_asked(from, &message);
        let own_done = self.is_done();
        let (Some(coordinator), Some(header)) = (&mut self.coordinator, self.header) else {
            return Ok(());
        };
        match message {
            Message::Join {
                address,
                rack,
                rate,
                root,
                has,
            } => {
                let known = root == header.root && has.len() == header.chunks();
                let has = if known {
                    has
                } else {
                    Bitmap::empty(header.chunks())
                };
                let contact = Contact { id: from, address };
                let verified = count_by_stripe(&has, &header);
                coordinator.on_join(
                    self.now,
                    Joining {
                        contact,
                        rack,
                        rate,
                        verified,
                    },
                );
                self.use_as_helper(from, has);
            }
            Message::Progress {
                verified,
                done,
                held_by,
            } => {
                coordinator.on_progress(self.now, from, &verified, done, held_by);
                // It may be the last expected node. The next beat would come too late.
                if coordinator.all_came() {
                    coordinator.look_for_end(self.now, own_done);
                }
            }
            Message::Report { peer, fault } => coordinator.on_report(from, peer, fault),
            _ => coordinator.on_seek(from),
        }
        Ok(())
    }

    /// Makes this node lead if another asks it to and all earlier leaders are gone. Until it sees that they are, it
    /// remembers who asked.
    fn lead_if_asked(&mut self, from: NodeId, message: &Message) {
        let rank = self.own_rank();
        let may = self.coordinator.is_none() && rank < self.leaders.len();
        if !may || !matches!(message, Message::Join { .. }) {
            return;
        }
        if self.leaders[..rank]
            .iter()
            .any(|it| self.is_connected(it.id))
        {
            self.early.retain(|it| it.0 != from);
            self.early.truncate(MAX_PEERS);
            self.early.push((from, message.clone()));
            return;
        }
        self.leader = rank;
        self.lead();
    }

    /// Handles a coordinator's message to its members.
    pub(super) fn take_order(&mut self, from: NodeId, message: Message) -> Result<(), Fault> {
        if self.leader() != Some(from) {
            // A node that may lead, or led this node before, may not know yet that another leads. Who leads now may have
            // named other successors since.
            let may_lead = self.leaders.iter().any(|it| it.id == from);
            return match may_lead || self.followed.contains(&from) {
                true => Ok(()),
                false => Err(Fault::Order),
            };
        }
        match message {
            Message::Welcome(header) => self.take_header(from, header),
            Message::Place(place) => self.take_place(place),
            Message::Helpers(contacts) => {
                self.take_helpers(&contacts);
                Ok(())
            }
            Message::Dismissed(fault) => {
                self.end(Event::Dismissed(fault));
                Ok(())
            }
            _ => {
                if self.is_done() {
                    self.end(Event::Finished);
                }
                Ok(())
            }
        }
    }

    fn take_header(&mut self, from: NodeId, header: Header) -> Result<(), Fault> {
        if self.header.is_some_and(|it| it != header) {
            return Err(Fault::WrongHashes);
        }
        if self.header.is_none() {
            self.header = Some(header);
            let stored = self
                .stored
                .take()
                .filter(|it| it.root == header.root && it.has.len() == header.chunks());
            self.verified = stored.map_or_else(|| Bitmap::empty(header.chunks()), |it| it.has);
            self.written = self.verified.clone();
            self.begin_fetch(&header);
            if header.chunks() == 0 {
                // Empty content has no digests to request.
                let manifest = Manifest::covered(header, Vec::new());
                self.manifest = Some(manifest.map_err(|_| Fault::WrongHashes)?);
            }
            self.take_early();
        }
        self.ask_hashes(from);
        Ok(())
    }

    /// Checks the messages that peers sent before this node knew the content.
    fn take_early(&mut self) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            let hello = peer.early_hello.take();
            let taken = match self.peers[&id].queue.iter().all(|it| self.may_exist(*it)) {
                true => hello.map_or(Ok(()), |it| self.take(id, it)),
                false => Err(Fault::UnknownChunk),
            };
            if let Err(fault) = taken {
                self.refuse(id, fault);
            }
        }
    }

    fn take_place(&mut self, place: Place) -> Result<(), Fault> {
        // The `Welcome` before was lost with another connection, and comes again in answer to this one's `Join`.
        let Some(header) = self.header else {
            return Ok(());
        };
        if place.predecessors.len() != header.arity as usize {
            return Err(Fault::Order);
        }
        if place.epoch < self.epoch {
            return Ok(());
        }
        self.epoch = place.epoch;
        let was_demoted = std::mem::replace(&mut self.demoted, place.demoted);
        // The list of those who may lead is the source's to make: a follower keeps it.
        if self.leader == 0 {
            self.leaders.truncate(1);
            self.leaders.extend(place.successors);
        }
        self.follow(&place.predecessors, was_demoted);
        self.take_helpers(&place.helpers);
        Ok(())
    }

    fn take_helpers(&mut self, contacts: &[Contact]) {
        for contact in contacts.iter().take(HELPERS + 1) {
            if contact.id == self.id() {
                continue;
            }
            let up = self.connect(contact);
            if self.peers.contains_key(&contact.id) {
                self.fetch.helpers.insert(contact.id);
            }
            if up {
                self.hello(contact.id, true);
            }
        }
    }

    /// Uses a new member as helper if this node leads without all chunks.
    fn use_as_helper(&mut self, id: NodeId, has: Bitmap) {
        let useful = has.first_beyond(&self.verified, 0).is_some();
        if let Some(peer) = self.peers.get_mut(&id).filter(|_| useful) {
            peer.has = has;
            self.fetch.helpers.insert(id);
        }
    }

    /// Asks for nodes that have the missing chunks.
    pub(super) fn seek(&mut self) {
        let own = self.id();
        if let Some(leader) = self.leader() {
            self.send(leader, Message::Seek);
        } else if let Some(coordinator) = &mut self.coordinator {
            let helpers = coordinator.helpers_for(own);
            self.take_helpers(&helpers);
        }
    }

    /// Tells the coordinator of a peer; of one that is gone once a beat, or the reports themselves would be a flood.
    pub(super) fn report(&mut self, peer: NodeId, fault: Fault) {
        if fault == Fault::Gone && !self.reported.insert(peer) {
            return;
        }
        if let Some(leader) = self.leader() {
            self.send(leader, Message::Report { peer, fault });
        } else if let Some(coordinator) = &mut self.coordinator
            && fault != Fault::Gone
        {
            coordinator.on_seen(peer, fault);
        }
    }

    /// Tells the coordinator how far this node is.
    pub(super) fn tell_progress(&mut self) {
        let Some(header) = self.header else {
            return;
        };
        if let Some(leader) = self.leader() {
            let verified = self.fetch.counts(&header);
            let (done, held_by) = (self.is_done(), self.held_by());
            self.send(
                leader,
                Message::Progress {
                    verified,
                    done,
                    held_by,
                },
            );
        }
    }

    /// Executes the actions of this node's coordinator.
    pub(super) fn drain_coordinator(&mut self) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let (messages, events) = coordinator.take_outputs();
        self.epoch = coordinator.epoch();
        for (to, message) in messages {
            let dismissed = matches!(message, Message::Dismissed(_));
            self.send(to, message);
            if dismissed && self.is_connected(to) {
                self.disconnect(to);
            }
        }
        for event in events {
            if event == Event::Finished && !self.leaders.is_empty() {
                // The source may come back to nodes that this one does not know; it has done its own part.
                self.ended = true;
            }
            self.tell(event);
        }
    }

    fn end(&mut self, event: Event) {
        self.ended = true;
        self.tell(event);
        let linked = self.peers.iter().filter(|(_, it)| it.link != Link::None);
        for id in linked.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.actions.push_back(Action::Disconnect(id));
        }
        self.peers.clear();
        self.fetch.helpers.clear();
    }
}

/// How many chunks of each stripe are in a bitmap.
pub(super) fn count_by_stripe(has: &Bitmap, header: &Header) -> Vec<u32> {
    let mut counts = vec![0; header.arity as usize];
    let mut next = 0;
    let none = Bitmap::default();
    while let Some(chunk) = has.first_beyond(&none, next) {
        counts[header.stripe_of(chunk)] += 1;
        next = chunk + 1;
    }
    counts
}
