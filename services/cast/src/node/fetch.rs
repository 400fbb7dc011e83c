//! Requests chunks from peers, and handles what arrives.
//!
//! A node requests the next chunks of a stripe from its predecessor, also chunks that the predecessor does not have yet: it
//! sends each as soon as it has verified it. From helpers, a node requests only chunks that they announced. Every request
//! holds a place in the window, so a full node requests nothing: that is the back-pressure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::control::count_by_stripe;
use super::{Link, Node};
use crate::bitmap::Bitmap;
use crate::limits::{HASHES_PER_MESSAGE, MAX_UNSOLICITED};
use crate::manifest::{Hash, Header, Manifest};
use crate::message::{Contact, Fault, Message, NodeId};
use crate::options::Action;

/// The chunks that a node waits for.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    /// By stripe.
    pub(super) predecessors: Vec<Option<NodeId>>,
    /// The same, and where they are.
    contacts: Vec<Contact>,
    stripes: Vec<Stripe>,
    /// Chunks that are asked for.
    asked: BTreeMap<u32, Asked>,
    /// How many of each.
    asked_of: BTreeMap<NodeId, u32>,
    /// Chunks of zeros that the driver puts in the store: no peer is asked for them.
    filling: Bitmap,
    /// Peers that are asked for whatever they have.
    pub(super) helpers: BTreeSet<NodeId>,
    /// Whether a request had no room in the window.
    blocked: bool,
    /// When the last search for helpers began, and the number of searches since the last progress.
    sought: Duration,
    searches: u32,
    /// Since when the next digests are waited for.
    hashes_since: Duration,
}

/// Of whom a chunk is asked, and since when.
#[derive(Clone, Copy, Debug)]
struct Asked {
    of: NodeId,
    since: Duration,
}

#[derive(Debug, Default)]
struct Stripe {
    /// All chunks of the stripe before this one are verified or asked for.
    next: u32,
    verified: u32,
    /// When a chunk of it was last verified.
    progressed: Duration,
    /// The time from one chunk to the next, of late.
    pace: Duration,
    /// Chunks of it that its predecessor is asked for.
    asked: u32,
}

impl Stripe {
    /// A chunk is verified.
    fn advance(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.progressed);
        self.pace = match self.verified {
            0 => gap,
            _ => (self.pace * 7 + gap) / 8,
        };
        self.verified += 1;
        self.progressed = now;
    }
}

/// Multiple of the pace after which a stripe counts as stalled. On a slow link a chunk takes long although it is in
/// flight.
const STALLED_PACES: u32 = 4;

impl Fetch {
    pub(super) fn counts(&self, header: &Header) -> Vec<u32> {
        match self.stripes.is_empty() {
            true => vec![0; header.arity as usize],
            false => self.stripes.iter().map(|it| it.verified).collect(),
        }
    }

    /// Chunks on the way.
    pub(super) fn outstanding(&self) -> u32 {
        self.asked.len() as u32
    }

    /// Whether a chunk comes without being asked for again.
    fn is_coming(&self, chunk: u32) -> bool {
        self.asked.contains_key(&chunk) || self.filling.contains(chunk)
    }

    fn unask(&mut self, chunk: u32) -> Option<NodeId> {
        let Asked { of, .. } = self.asked.remove(&chunk)?;
        if let Some(count) = self.asked_of.get_mut(&of) {
            *count -= 1;
        }
        let stripe = self.stripe_of(chunk);
        if self.predecessors[stripe] == Some(of) {
            self.stripes[stripe].asked -= 1;
        }
        Some(of)
    }

    fn stripe_of(&self, chunk: u32) -> usize {
        chunk as usize % self.stripes.len()
    }

    /// Another node is the predecessor in a stripe; it may have been asked for some of it as a helper.
    fn recount(&mut self, stripe: usize) {
        let above = self.predecessors[stripe];
        let asked = self
            .asked
            .iter()
            .filter(|(chunk, it)| self.stripe_of(**chunk) == stripe && Some(it.of) == above);
        self.stripes[stripe].asked = asked.count() as u32;
    }

    fn lacks(&mut self, chunk: u32) {
        let arity = self.stripes.len() as u32;
        let stripe = &mut self.stripes[(chunk % arity) as usize];
        stripe.next = stripe.next.min(chunk);
    }
}

impl Node {
    pub(super) fn begin_fetch(&mut self, header: &Header) {
        let counts = count_by_stripe(&self.verified, header);
        let stripes = (0..header.arity)
            .zip(counts)
            .map(|(next, verified)| Stripe {
                next,
                verified,
                progressed: self.now,
                pace: Duration::ZERO,
                asked: 0,
            });
        self.fetch.stripes = stripes.collect();
        self.fetch.predecessors = vec![None; header.arity as usize];
    }

    /// Takes the predecessors that the coordinator gave.
    pub(super) fn follow(&mut self, predecessors: &[Option<Contact>], was_demoted: bool) {
        for (stripe, contact) in predecessors.iter().enumerate() {
            let id = contact.as_ref().map(|it| it.id);
            let before = std::mem::replace(&mut self.fetch.predecessors[stripe], id);
            if let Some(before) = before.filter(|it| Some(*it) != id) {
                self.cancel_stripe(before, stripe);
            }
            self.fetch.recount(stripe);
            if let Some(contact) = contact
                && self.connect(contact)
                && (before != id || self.demoted != was_demoted)
            {
                self.hello(contact.id, false);
            }
        }
        self.fetch.contacts = predecessors.iter().flatten().cloned().collect();
        self.ask_hashes_anywhere();
    }

    /// At each beat: the connection to a predecessor may have failed while it is there.
    pub(super) fn reconnect(&mut self) {
        for contact in self.fetch.contacts.clone() {
            self.connect(&contact);
        }
    }

    /// Drops the predecessors of a node that leads, which receives only from helpers.
    pub(super) fn leave_predecessors(&mut self) {
        for stripe in 0..self.fetch.predecessors.len() {
            if let Some(before) = self.fetch.predecessors[stripe].take() {
                self.cancel_stripe(before, stripe);
                self.fetch.recount(stripe);
            }
        }
        self.fetch.contacts.clear();
    }

    fn cancel_stripe(&mut self, of: NodeId, stripe: usize) {
        let arity = self.fetch.stripes.len() as u32;
        let all = self
            .fetch
            .asked
            .iter()
            .filter(|(chunk, it)| it.of == of && **chunk % arity == stripe as u32);
        let chunks: Vec<u32> = all.map(|(chunk, _)| *chunk).collect();
        for chunk in &chunks {
            self.fetch.unask(*chunk);
            self.fetch.lacks(*chunk);
        }
        if !chunks.is_empty() {
            self.send(of, Message::Cancel(chunks));
        }
    }

    /// Marks the requests to a lost peer as missing again.
    pub(super) fn mark_missing(&mut self, of: NodeId) {
        let all = self.fetch.asked.iter().filter(|(_, it)| it.of == of);
        for chunk in all.map(|(chunk, _)| *chunk).collect::<Vec<_>>() {
            self.fetch.unask(chunk);
            self.fetch.lacks(chunk);
        }
        self.fetch.asked_of.remove(&of);
    }

    /// Requests chunks that had no room before, when a place in the window may be free.
    pub(super) fn request_if_blocked(&mut self) {
        if self.fetch.blocked {
            self.request_chunks();
        }
    }

    /// Asks for as much as the window has room for.
    pub(super) fn request_chunks(&mut self) {
        if self.manifest.is_none() || self.verified.is_full() || self.ended {
            return;
        }
        self.fetch.blocked = false;
        let arity = self.fetch.stripes.len() as u32;
        let each = (self.options.window / 2 / arity).max(2);
        let mut wanted: Vec<(NodeId, Vec<u32>)> = Vec::new();
        // Of a predecessor that gives nothing, others are not to be left the rest alone: it may never give it.
        if !self.fetch.helpers.is_empty() && (0..arity).any(|it| self.stands_still(it)) {
            self.ask_helpers(each, &mut wanted);
        }
        'all: for stripe in 0..arity {
            if self.fetch.stripes[stripe as usize].asked >= each {
                continue;
            }
            let Some(of) =
                self.fetch.predecessors[stripe as usize].filter(|it| self.is_connected(*it))
            else {
                continue;
            };
            let mut chunks = Vec::new();
            while self.fetch.stripes[stripe as usize].asked < each {
                let Some(chunk) = self.next_lacking(stripe, arity) else {
                    break;
                };
                if !self.ask(of, chunk) {
                    wanted.push((of, chunks));
                    break 'all;
                }
                chunks.push(chunk);
            }
            wanted.push((of, chunks));
        }
        self.ask_helpers(each, &mut wanted);
        for (of, chunks) in wanted {
            if !chunks.is_empty() {
                self.send(of, Message::Request(chunks));
            }
        }
    }

    fn next_lacking(&mut self, stripe: u32, arity: u32) -> Option<u32> {
        let mut next = self.fetch.stripes[stripe as usize].next;
        while next < self.verified.len()
            && (self.verified.contains(next) || self.fetch.is_coming(next))
        {
            next += arity;
        }
        self.fetch.stripes[stripe as usize].next = next;
        (next < self.verified.len()).then_some(next)
    }

    fn ask_helpers(&mut self, each: u32, wanted: &mut Vec<(NodeId, Vec<u32>)>) {
        if self.fetch.helpers.is_empty() {
            return;
        }
        let helpers = self.fetch.helpers.iter().copied().filter(|it| {
            let peer = self.peers.get(it);
            peer.is_some_and(|it| it.link == Link::Up && !it.has.is_empty())
        });
        for of in helpers.collect::<Vec<_>>() {
            if self.peers[&of]
                .has
                .first_beyond(&self.verified, 0)
                .is_none()
            {
                // All that it had is here.
                self.fetch.helpers.remove(&of);
                continue;
            }
            let mut chunks = Vec::new();
            // Helpers start at different chunks, so that they do not all send the same.
            let len = self.verified.len();
            let start = (of.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % len;
            let mut next = start;
            let mut wrapped = false;
            while self.fetch.asked_of.get(&of).copied().unwrap_or(0) < each.min(2) {
                let found = self.peers[&of].has.first_beyond(&self.verified, next);
                match found.filter(|it| !wrapped || *it < start) {
                    Some(chunk) if self.fetch.is_coming(chunk) => next = chunk + 1,
                    Some(chunk) if self.ask(of, chunk) => {
                        chunks.push(chunk);
                        next = chunk + 1;
                    }
                    None if !wrapped => (next, wrapped) = (0, true),
                    _ => break,
                }
            }
            wanted.push((of, chunks));
        }
    }

    /// Takes a place in the window for a chunk; whether there is one.
    fn ask(&mut self, of: NodeId, chunk: u32) -> bool {
        if !self.make_room() {
            self.fetch.blocked = true;
            return false;
        }
        let stripe = self.fetch.stripe_of(chunk);
        if self.fetch.predecessors[stripe] == Some(of) {
            self.fetch.stripes[stripe].asked += 1;
        }
        let since = self.now;
        self.fetch.asked.insert(chunk, Asked { of, since });
        *self.fetch.asked_of.entry(of).or_default() += 1;
        self.note_window();
        true
    }

    /// Handles a received chunk; `right` says whether it has the digest of the [`manifest`](Self::manifest). True: the
    /// driver keeps it in memory until [`Forget`](crate::Action::Forget). False: the driver drops it at once.
    pub fn chunk(&mut self, now: Duration, from: NodeId, chunk: u32, right: bool) -> bool {
        self.now = now;
        let Some(peer) = self.peers.get_mut(&from).filter(|it| it.link == Link::Up) else {
            return false;
        };
        peer.heard = now;
        self.counters.chunks_received += 1;
        if self.verified.contains(chunk) {
            self.counters.chunks_doubled += 1;
            return self.count_unsolicited(from);
        }
        if !right {
            self.counters.chunks_wrong += 1;
            self.blame(from, Fault::WrongChunk);
            self.settle();
            return false;
        }
        match self.fetch.unask(chunk) {
            Some(asked) if asked == from => {
                let peer = self.peers.get_mut(&from).expect("it is connected");
                peer.unsolicited = peer.unsolicited.saturating_sub(1);
            }
            Some(asked) => self.send(asked, Message::Cancel(vec![chunk])),
            // A request that was taken back while its chunk was on the way.
            None if self.manifest.is_some() && chunk < self.verified.len() && self.make_room() => {}
            None => {
                self.counters.chunks_unsolicited += 1;
                return self.count_unsolicited(from);
            }
        }
        self.verified.insert(chunk);
        let arity = self.fetch.stripes.len() as u32;
        self.fetch.stripes[(chunk % arity) as usize].advance(now);
        self.fetch.searches = 0;
        self.take_back_before(from, chunk);
        self.heard_news();
        self.keep(chunk);
        self.actions.push_back(Action::Write(chunk));
        self.send_new(chunk);
        self.request_chunks();
        true
    }

    /// Fills chunks of zeros locally: their digests determine their content.
    fn fill(&mut self, zeros: &Bitmap) {
        self.fetch.filling = Bitmap::empty(zeros.len());
        let mut next = 0;
        while let Some(chunk) = zeros.first_beyond(&self.verified, next) {
            self.fetch.filling.insert(chunk);
            self.actions.push_back(Action::Fill(chunk));
            next = chunk + 1;
        }
    }

    /// Reports that a chunk of zeros was written to the store.
    pub fn filled(&mut self, now: Duration, chunk: u32) {
        self.now = now;
        // A peer may have sent it all the same.
        if self.fetch.filling.contains(chunk) && !self.verified.contains(chunk) {
            let stripe = self.fetch.stripe_of(chunk);
            // How fast its predecessor is, it does not tell.
            self.fetch.stripes[stripe].verified += 1;
            self.fetch.stripes[stripe].progressed = now;
            self.verified.insert(chunk);
            self.written.insert(chunk);
            self.heard_news();
            self.send_new(chunk);
        }
        self.notice_end();
    }

    /// The predecessor sends again, in order. Helpers are no longer asked for earlier chunks. They serve it when they
    /// have nothing else to do, and all behind this node wait for it.
    fn take_back_before(&mut self, from: NodeId, chunk: u32) {
        let stripe = self.fetch.stripe_of(chunk);
        if self.fetch.predecessors[stripe] != Some(from) {
            return;
        }
        let before = self.fetch.asked.range(..chunk);
        let of_helpers =
            before.filter(|(chunk, it)| self.fetch.stripe_of(**chunk) == stripe && it.of != from);
        for (chunk, of) in of_helpers
            .map(|(chunk, it)| (*chunk, it.of))
            .collect::<Vec<_>>()
        {
            self.take_back(chunk, of);
        }
    }

    /// Counts an unrequested chunk that is dropped because it is present already or has no room. A peer that sends many
    /// more of these than requested ones is disconnected.
    fn count_unsolicited(&mut self, from: NodeId) -> bool {
        let peer = self.peers.get_mut(&from).expect("it is connected");
        peer.unsolicited += 1;
        if peer.unsolicited > MAX_UNSOLICITED {
            self.blame(from, Fault::Flood);
            self.settle();
        }
        false
    }

    pub(super) fn take_missing(&mut self, from: NodeId, chunks: &[u32]) -> Result<(), Fault> {
        let mut asked = false;
        for chunk in chunks {
            if self.fetch.asked.get(chunk).is_some_and(|it| it.of == from) {
                asked = true;
                self.fetch.unask(*chunk);
                self.fetch.lacks(*chunk);
            }
        }
        if !asked {
            return Ok(());
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.has = Bitmap::default();
        }
        self.fetch.helpers.remove(&from);
        // As good as no predecessor: others are found.
        self.report(from, Fault::Gone);
        Ok(())
    }

    /// At each beat, looks for other sources of stalled stripes.
    pub(super) fn search(&mut self) {
        if self.header.is_none() {
            return;
        }
        if self.manifest.is_none() {
            self.ask_another_for_hashes();
            return;
        }
        if self.verified.is_full() {
            return;
        }
        self.take_back_from_helpers();
        let stalled = (0..self.fetch.stripes.len() as u32).any(|it| self.stands_still(it));
        let since = self.now.saturating_sub(self.fetch.sought);
        if stalled && since >= self.time_of_search() {
            self.fetch.sought = self.now;
            self.fetch.searches += 1;
            self.free_for_helpers(true);
            self.seek();
        }
    }

    /// How long helpers may take to send requested chunks; doubled after each search without result. Otherwise, on a
    /// slow link or machine, chunks would be requested and taken back without end.
    fn time_of_search(&self) -> Duration {
        let doubled = self.options.stall * (1 << self.fetch.searches.min(8));
        doubled
            .min(self.options.patience / 4)
            .max(self.options.stall)
    }

    /// A chunk that was asked of a peer may be asked of another.
    fn take_back(&mut self, chunk: u32, of: NodeId) {
        self.fetch.unask(chunk);
        self.fetch.lacks(chunk);
        self.send(of, Message::Cancel(vec![chunk]));
    }

    /// Takes back late requests from helpers, to request the chunks from others, first from the predecessor.
    fn take_back_from_helpers(&mut self) {
        let time = self.time_of_search();
        let over = self.fetch.asked.iter().filter(|(chunk, it)| {
            let stripe = self.fetch.stripe_of(**chunk);
            let paces = self.fetch.stripes[stripe].pace * STALLED_PACES;
            self.fetch.predecessors[stripe] != Some(it.of)
                && self.now.saturating_sub(it.since) > time.max(paces)
        });
        for (chunk, of) in over.map(|(chunk, it)| (*chunk, it.of)).collect::<Vec<_>>() {
            self.take_back(chunk, of);
            if let Some(peer) = self.peers.get_mut(&of) {
                peer.has = Bitmap::default();
            }
            self.fetch.helpers.remove(&of);
        }
    }

    fn stands_still(&self, stripe: u32) -> bool {
        let state = &self.fetch.stripes[stripe as usize];
        let total = self.header.map_or(0, |it| it.chunks_of(stripe as usize));
        // Nothing came of it yet: the trees fill, for as long as they are deep. That another holds it up, the coordinator sees.
        let paces = match state.verified {
            0 => self.options.stall * STALLED_PACES,
            _ => (state.pace * STALLED_PACES).min(self.options.patience / 2),
        };
        let still = self.now.saturating_sub(state.progressed);
        state.verified < total && still > self.options.stall.max(paces)
    }

    /// Of what a silent predecessor was asked for in a stripe, helpers may be asked, if they have it; and others of what the
    /// helpers were asked for whose time is over.
    fn free_for_helpers(&mut self, their_time_is_over: bool) {
        let arity = self.fetch.stripes.len() as u32;
        let stalled: Vec<u32> = (0..arity).filter(|it| self.stands_still(*it)).collect();
        let held: Vec<(u32, NodeId)> = self
            .fetch
            .asked
            .iter()
            .map(|(chunk, it)| (*chunk, it.of))
            .collect();
        for (chunk, of) in held {
            let elsewhere = self.fetch.helpers.iter().any(|id| {
                let peer = self.peers.get(id);
                *id != of && peer.is_some_and(|it| it.has.contains(chunk))
            });
            let helper = !self.fetch.predecessors.contains(&Some(of));
            let free = if helper {
                their_time_is_over
            } else {
                elsewhere
            };
            if free && stalled.contains(&(chunk % arity)) {
                self.take_back(chunk, of);
                if let Some(peer) = self.peers.get_mut(&of).filter(|_| helper) {
                    // It had its time.
                    peer.has = Bitmap::default();
                    self.fetch.helpers.remove(&of);
                }
            }
        }
    }

    /// Announces this node's chunks to a new peer.
    pub(super) fn greet(&mut self, id: NodeId) {
        let helper = self.fetch.helpers.contains(&id);
        let useful = helper || self.fetch.predecessors.contains(&Some(id));
        if useful && self.header.is_some() {
            self.hello(id, helper);
            self.ask_hashes_anywhere();
        }
    }

    pub(super) fn hello(&mut self, to: NodeId, answer: bool) {
        let Some(header) = self.header else {
            return;
        };
        // In trees what a helper passes on comes before what it helps with: many ask the one that has most, and behind it are more. In a
        // chain it is the one above, and as far ahead as the chain is late.
        let helper = header.arity > 1 && !self.fetch.predecessors.contains(&Some(to));
        let (has, demoted) = (self.verified.clone(), self.demoted || helper);
        self.send(
            to,
            Message::Hello {
                root: header.root,
                has,
                answer,
                demoted,
            },
        );
    }

    pub(super) fn take_hello(
        &mut self,
        from: NodeId,
        root: Hash,
        has: Bitmap,
        answer: bool,
        demoted: bool,
    ) -> Result<(), Fault> {
        let peer = self.peers.get_mut(&from).expect("it is connected");
        let Some(header) = self.header else {
            peer.early_hello = Some(Message::Hello {
                root,
                has,
                answer,
                demoted,
            });
            return Ok(());
        };
        if root != header.root || has.len() != header.chunks() {
            return Err(Fault::UnknownChunk);
        }
        peer.has = has;
        // What is new comes from the one that leads alone: those that it helps wait until its successors have that.
        let own = Some(self.id());
        let leads = self.coordinator.as_ref();
        let helps = leads.is_some_and(|it| !it.predecessors(from).contains(&own));
        self.set_demoted(from, demoted || helps);
        if self.fetch.helpers.contains(&from) {
            self.free_for_helpers(false);
        }
        if answer {
            self.hello(from, false);
        }
        Ok(())
    }

    /// Asks a peer for the digests, unless another is asked.
    pub(super) fn ask_hashes(&mut self, of: NodeId) {
        if self.manifest.is_none()
            && self.hashes_from.is_none()
            && self.header.is_some()
            && self.is_connected(of)
        {
            self.hashes.clear();
            self.hashes_from = Some(of);
            self.fetch.hashes_since = self.now;
            self.send(of, Message::AskHashes { first: 0 });
        }
    }

    /// Requests the digests from the predecessor, or from the leader if there is no predecessor.
    fn ask_hashes_anywhere(&mut self) {
        let above = self.fetch.predecessors.iter().flatten().copied();
        let leader = self.leaders.get(self.leader).map(|it| it.id);
        let found = above.chain(leader).find(|it| self.is_connected(*it));
        if let Some(of) = found {
            self.ask_hashes(of);
        }
    }

    /// Requests the digests from the leader if the peer asked before does not answer.
    fn ask_another_for_hashes(&mut self) {
        let waited = self.now.saturating_sub(self.fetch.hashes_since);
        if waited > self.options.stall {
            self.hashes_from = None;
            if let Some(leader) = self.leaders.get(self.leader).map(|it| it.id) {
                self.ask_hashes(leader);
            }
        }
        self.ask_hashes_anywhere();
    }

    pub(super) fn lose_hashes(&mut self, of: NodeId) {
        if self.hashes_from == Some(of) {
            self.hashes_from = None;
            self.ask_hashes_anywhere();
        }
    }

    pub(super) fn take_ask_hashes(&mut self, from: NodeId, first: u32) -> Result<(), Fault> {
        if self.header.is_some_and(|it| first >= it.chunks()) {
            return Err(Fault::UnknownChunk);
        }
        let Some(manifest) = &self.manifest else {
            let peer = self.peers.get_mut(&from).expect("it is connected");
            peer.wants_hashes = Some(first);
            return Ok(());
        };
        let all = &manifest.hashes()[first as usize..];
        let hashes = all[..all.len().min(HASHES_PER_MESSAGE)].to_vec();
        self.send(from, Message::Hashes { first, hashes });
        Ok(())
    }

    pub(super) fn take_hashes(
        &mut self,
        from: NodeId,
        first: u32,
        hashes: Vec<Hash>,
    ) -> Result<(), Fault> {
        let Some(header) = self.header.filter(|_| self.hashes_from == Some(from)) else {
            return Ok(());
        };
        if first as usize != self.hashes.len() {
            // A slow peer answers each time that it was asked.
            return Ok(());
        }
        // Each answer resets the wait, so a peer must not answer in small parts.
        let lacking = header.chunks() as usize - self.hashes.len();
        if hashes.len() != lacking.min(HASHES_PER_MESSAGE) {
            return Err(Fault::WrongHashes);
        }
        self.fetch.hashes_since = self.now;
        self.heard_news();
        self.hashes.extend(hashes);
        if self.hashes.len() < header.chunks() as usize {
            let first = self.hashes.len() as u32;
            self.send(from, Message::AskHashes { first });
            return Ok(());
        }
        self.hashes_from = None;
        let hashes = std::mem::take(&mut self.hashes);
        let manifest = Manifest::covered(header, hashes).map_err(|_| Fault::WrongHashes)?;
        if self.options.fills {
            self.fill(&manifest.zeros());
        }
        self.manifest = Some(manifest);
        let waiting = self
            .peers
            .iter_mut()
            .filter_map(|(id, it)| it.wants_hashes.take().map(|first| (*id, first)));
        for (id, first) in waiting.collect::<Vec<_>>() {
            if first < header.chunks() {
                self.take_ask_hashes(id, first)?;
            }
        }
        Ok(())
    }
}
