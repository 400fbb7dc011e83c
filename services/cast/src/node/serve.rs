//! Sends chunks to peers, and decides which chunks stay in memory.
//!
//! A verified chunk stays in memory until its place is needed. Its place becomes free when the chunk is written, is not
//! being sent, and, without [`spill`](crate::Options::spill), is not missing at a successor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Link, Node, Peer, Wanted};
use crate::limits::{MAX_REQUESTS, SENDS_AT_ONCE, STORE_SENDS};
use crate::message::{Fault, Message, NodeId};
use crate::options::Action;

/// The chunks in a node's memory, and the peers that wait for them.
#[derive(Debug, Default)]
pub(super) struct Serve {
    resident: BTreeMap<u32, Resident>,
    /// The same, as they came.
    order: VecDeque<u32>,
    /// How many peers wait for a chunk.
    waiting: BTreeMap<u32, u32>,
    /// Waiting peers, in the order of service.
    turns: VecDeque<NodeId>,
    /// Peers that are served when no other could have more.
    demoted: BTreeSet<NodeId>,
    /// Sends from the store on their way.
    reading: BTreeSet<(NodeId, u32)>,
}

#[derive(Debug, Default)]
struct Resident {
    written: bool,
    sends: u32,
}

/// Where a chunk can be sent from.
enum Place {
    Memory,
    Store,
    Nowhere,
}

impl Node {
    pub(super) fn keep(&mut self, chunk: u32) {
        self.serve.resident.insert(chunk, Resident::default());
        self.serve.order.push_back(chunk);
        self.note_window();
    }

    pub(super) fn note_window(&mut self) {
        let used = self.used();
        self.counters.peak_window = self
            .counters
            .peak_window
            .max(used + self.serve.reading.len() as u32);
    }

    fn used(&self) -> u32 {
        self.serve.resident.len() as u32 + self.fetch.outstanding()
    }

    /// Whether there is a place in the window, made if need be.
    pub(super) fn make_room(&mut self) -> bool {
        if self.used() < self.options.window {
            return true;
        }
        let order = &self.serve.order;
        let Some(index) = order.iter().position(|it| self.may_forget(*it)) else {
            return false;
        };
        if let Some(chunk) = self.serve.order.remove(index) {
            self.serve.resident.remove(&chunk);
            self.actions.push_back(Action::Forget(chunk));
        }
        true
    }

    fn may_forget(&self, chunk: u32) -> bool {
        let resident = &self.serve.resident[&chunk];
        let lacking = !self.options.spill && self.peers.keys().any(|it| self.lacks(*it, chunk));
        resident.written && resident.sends == 0 && !lacking
    }

    /// Whether a chunk in memory is missing at a peer that requests chunks in order: it has requested the chunk, or
    /// will as soon as it has room. A peer without requests for some time has another predecessor by now. A peer that
    /// requests chunks that have left memory is being helped with what it missed.
    fn lacks(&self, id: NodeId, chunk: u32) -> bool {
        let peer = &self.peers[&id];
        if self.takes_nothing(peer) {
            return false;
        }
        if peer.queue.contains(&chunk) || self.serve.demoted.contains(&id) {
            return peer.queue.contains(&chunk);
        }
        let arity = self.header.map_or(1, |it| it.arity as usize);
        let stripe = chunk as usize % arity;
        let Some((furthest, asked)) = peer.asked_to.get(&stripe) else {
            return false;
        };
        let mut resident = self.serve.resident.keys();
        let first = resident.find(|it| **it as usize % arity == stripe);
        let is_next = first.is_some_and(|it| furthest + arity as u32 >= *it);
        let waits = !peer.queue.is_empty() || !peer.sending.is_empty();
        let of_late = waits || self.now.saturating_sub(*asked) < self.options.stall * 2;
        is_next && of_late && *furthest < chunk
    }

    /// Whether sends to a peer have made no progress for so long that they would soon make this node stuck.
    fn takes_nothing(&self, peer: &Peer) -> bool {
        let since = self.now.saturating_sub(peer.took);
        !peer.sending.is_empty() && since > self.options.patience / 2
    }

    /// The peer for which this node holds the chunks that fill its window.
    pub(super) fn held_by(&self) -> Option<NodeId> {
        if self.options.spill || self.used() < self.options.window || self.serve.resident.is_empty()
        {
            return None;
        }
        let written = |chunk: &u32| self.serve.resident.get(chunk).is_some_and(|it| it.written);
        let holding = |id: NodeId, peer: &Peer| {
            let lacking = |it: &u32| peer.sending.contains_key(it) || self.lacks(id, *it);
            let resident = self.serve.resident.keys();
            resident.filter(|it| written(it) && lacking(it)).count()
        };
        let found = self
            .peers
            .iter()
            .map(|(id, it)| (holding(*id, it), *id))
            .max();
        let held = |count: usize| 2 * count >= self.serve.resident.len();
        found
            .filter(|(count, _)| *count > 0 && held(*count))
            .map(|(_, id)| id)
    }

    /// Reports that a chunk was written to the store.
    pub fn written_chunk(&mut self, now: Duration, chunk: u32) {
        self.now = now;
        if let Some(resident) = self.serve.resident.get_mut(&chunk) {
            resident.written = true;
            self.written.insert(chunk);
            self.heard_news();
        }
        // Its place may be free. Possible sends do not change.
        self.request_if_blocked();
        self.notice_end();
    }

    /// Reports the end of a send: the peer has the chunk, or the connection to it has.
    pub fn sent(&mut self, now: Duration, to: NodeId, chunk: u32) {
        self.now = now;
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        (peer.heard, peer.took) = (now, now);
        if peer.sending.remove(&chunk).is_some() {
            self.counters.chunks_sent += 1;
            self.end_send(to, chunk);
        }
        self.send_chunks_to(to);
        self.request_if_blocked();
    }

    fn end_send(&mut self, to: NodeId, chunk: u32) {
        if !self.serve.reading.remove(&(to, chunk))
            && let Some(resident) = self.serve.resident.get_mut(&chunk)
        {
            resident.sends -= 1;
        }
    }

    /// A lost peer no longer waits for anything.
    pub(super) fn unserve(&mut self, id: NodeId, peer: Peer) {
        for chunk in &peer.queue {
            self.not_waited_for(*chunk);
        }
        for chunk in peer.sending.into_keys() {
            self.end_send(id, chunk);
        }
        if peer.in_turns {
            self.serve.turns.retain(|it| *it != id);
        }
        self.serve.demoted.remove(&id);
    }

    /// Whether other peers take precedence over this one.
    pub(super) fn set_demoted(&mut self, id: NodeId, demoted: bool) {
        match demoted {
            true => self.serve.demoted.insert(id),
            false => self.serve.demoted.remove(&id),
        };
    }

    fn not_waited_for(&mut self, chunk: u32) {
        if let Some(count) = self.serve.waiting.get_mut(&chunk) {
            *count -= 1;
            if *count == 0 {
                self.serve.waiting.remove(&chunk);
            }
        }
    }

    /// A peer may learn of the content before this node does, over a connection with less loss, and request chunks
    /// early.
    pub(super) fn may_exist(&self, chunk: u32) -> bool {
        self.header.is_none_or(|it| chunk < it.chunks())
    }

    pub(super) fn take_request(&mut self, from: NodeId, chunks: &[u32]) -> Result<(), Fault> {
        if !chunks.iter().all(|it| self.may_exist(*it)) {
            return Err(Fault::UnknownChunk);
        }
        let peer = self.peers.get_mut(&from).expect("it is connected");
        if peer.queue.len() + chunks.len() > MAX_REQUESTS {
            return Err(Fault::Flood);
        }
        let arity = self.header.map_or(1, |it| it.arity as usize);
        for chunk in chunks {
            let (furthest, asked) = peer.asked_to.entry(*chunk as usize % arity).or_default();
            (*furthest, *asked) = ((*furthest).max(*chunk), self.now);
            match peer.sending.get_mut(chunk) {
                Some(wanted) if *wanted != Wanted::Withdrawn => *wanted = Wanted::Yes,
                _ if !peer.queue.contains(chunk) => {
                    peer.queue.push_back(*chunk);
                    *self.serve.waiting.entry(*chunk).or_default() += 1;
                }
                _ => {}
            }
        }
        if !peer.in_turns && !peer.queue.is_empty() {
            peer.in_turns = true;
            self.serve.turns.push_back(from);
        }
        Ok(())
    }

    pub(super) fn take_cancel(&mut self, from: NodeId, chunks: &[u32]) -> Result<(), Fault> {
        let peer = self.peers.get_mut(&from).expect("it is connected");
        let before: Vec<u32> = chunks
            .iter()
            .copied()
            .filter(|it| peer.queue.contains(it))
            .collect();
        peer.queue.retain(|it| !chunks.contains(it));
        // It has another predecessor.
        peer.asked_to.clear();
        for chunk in chunks {
            if let Some(wanted @ Wanted::Yes) = peer.sending.get_mut(chunk) {
                *wanted = Wanted::No;
            }
        }
        // A peer that waits for nothing posts no receives, so a send to it would stay in flight and keep its memory.
        if peer.queue.is_empty() && !peer.sending.values().any(|it| *it == Wanted::Yes) {
            let unwanted = peer.sending.iter_mut().filter(|it| *it.1 == Wanted::No);
            for (chunk, wanted) in unwanted {
                *wanted = Wanted::Withdrawn;
                let (to, chunk) = (from, *chunk);
                self.actions.push_back(Action::Withdraw { to, chunk });
            }
        }
        for chunk in before {
            self.not_waited_for(chunk);
        }
        Ok(())
    }

    /// Sends chunks to a peer that requested or received some, and to other peers whose turn follows.
    pub(super) fn send_chunks_to(&mut self, id: NodeId) {
        if !self.serve.reading.is_empty() || !self.serve.demoted.is_empty() {
            self.send_chunks();
        } else if self.is_connected(id) {
            let most = self.sends_at_once(id);
            while self.peers[&id].sending.len() < most && self.send_next(id) {}
        }
    }

    /// Sends a new chunk to the peers that wait for it.
    pub(super) fn send_new(&mut self, chunk: u32) {
        if self.serve.waiting.contains_key(&chunk) {
            self.send_chunks();
        }
    }

    /// Sends chunks in a round over the waiting peers. Demoted peers get some only when no other peer can take more.
    pub(super) fn send_chunks(&mut self) {
        if !self.send_round(false) && !self.serve.demoted.is_empty() {
            self.send_round(true);
        }
    }

    /// Sends to each peer that waits as much as it may have at once; whether one could have more.
    fn send_round(&mut self, demoted: bool) -> bool {
        let mut more = false;
        for _ in 0..self.serve.turns.len() {
            let Some(id) = self.serve.turns.pop_front() else {
                break;
            };
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            peer.in_turns = peer.link == Link::Up && !peer.queue.is_empty();
            if !peer.in_turns {
                continue;
            }
            if self.serve.demoted.contains(&id) == demoted {
                let most = self.sends_at_once(id);
                while self.peers[&id].sending.len() < most && self.send_next(id) {}
                // Only demoted peers depend on it.
                let asked = (!self.serve.demoted.is_empty()).then(|| &self.peers[&id].queue);
                let mut asked = asked.into_iter().flatten();
                more |= asked.any(|it| self.verified.contains(*it));
            }
            self.serve.turns.push_back(id);
        }
        more
    }

    /// One that comes last has on its way no more than the chunk that no other had a use for.
    fn sends_at_once(&self, id: NodeId) -> usize {
        if self.serve.demoted.contains(&id) {
            1
        } else {
            SENDS_AT_ONCE
        }
    }

    /// Sends a peer its first requested chunk that is present. Returns whether there was one.
    fn send_next(&mut self, to: NodeId) -> bool {
        let queue = &self.peers[&to].queue;
        let sending = &self.peers[&to].sending;
        let here = |it: &u32| self.verified.contains(*it) && !sending.contains_key(it);
        let Some(index) = queue.iter().position(here) else {
            return false;
        };
        let chunk = queue[index];
        let place = self.place_of(chunk);
        if matches!(place, Place::Store) && self.serve.reading.len() >= self.most_reads() {
            return false;
        }
        let peer = self.peers.get_mut(&to).expect("it is connected");
        peer.queue.remove(index);
        self.not_waited_for(chunk);
        match place {
            Place::Nowhere => {
                self.send(to, Message::Missing(vec![chunk]));
                return true;
            }
            Place::Store => {
                self.serve.reading.insert((to, chunk));
                self.counters.chunks_read += 1;
            }
            Place::Memory => {
                let resident = self
                    .serve
                    .resident
                    .get_mut(&chunk)
                    .expect("it is in memory");
                resident.sends += 1;
            }
        }
        let from_store = matches!(place, Place::Store);
        let peer = self.peers.get_mut(&to).expect("it is connected");
        if peer.sending.is_empty() {
            peer.took = self.now;
        }
        peer.sending.insert(chunk, Wanted::Yes);
        peer.said = self.now;
        self.note_window();
        self.actions.push_back(Action::SendChunk {
            to,
            chunk,
            from_store,
        });
        true
    }

    /// The source reads all that it sends: a chunk for each stripe, and some for helpers.
    fn most_reads(&self) -> usize {
        STORE_SENDS + self.header.map_or(0, |it| it.arity as usize)
    }

    fn place_of(&self, chunk: u32) -> Place {
        match (
            self.serve.resident.contains_key(&chunk),
            self.options.readable,
        ) {
            (true, _) => Place::Memory,
            (false, true) => Place::Store,
            (false, false) => Place::Nowhere,
        }
    }
}
