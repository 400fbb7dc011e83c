//! Implements a node as a state machine: it receives, verifies, writes and forwards chunks, and can lead the cast.
//!
//! Inputs are methods. [`Node::poll_action`] returns the next action, and [`Node::next_timeout`] the time of the next
//! call of [`Node::timeout`]. The driver supplies the time: a duration since any fixed start.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the state, connections, the beat |
//! | `control` | what passes between a node and its coordinator |
//! | `fetch` | which chunk is asked of which peer, and what comes |
//! | `serve` | which chunk is sent to which peer, and what memory is free for |

mod control;
mod fetch;
mod serve;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::coordinator::Coordinator;
use crate::limits::{MAX_PEERS, MESSAGES_PER_BEAT};
use crate::manifest::{Hash, Header, Manifest};
use crate::message::{Contact, Fault, Message, NodeId};
use crate::options::{Action, Event, Options};
use fetch::Fetch;
use serve::Serve;

/// The chunks of an earlier attempt in a node's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The content's root.
    pub root: Hash,
    /// The chunks that were verified and written.
    pub has: Bitmap,
}

/// A node's description of itself for the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its number and address.
    pub contact: Contact,
    /// The label of its rack.
    pub rack: u32,
    /// Measured bandwidth, bytes a second; 0 if unknown.
    pub rate: u64,
}

/// The counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received chunks.
    pub chunks_received: u64,
    /// Received chunks that were present already.
    pub chunks_doubled: u64,
    /// Received chunks without a request.
    pub chunks_unsolicited: u64,
    /// Received chunks with a wrong digest.
    pub chunks_wrong: u64,
    /// Sent chunks.
    pub chunks_sent: u64,
    /// Sent chunks that were read from the store.
    pub chunks_read: u64,
    /// Refused messages.
    pub messages_refused: u64,
    /// Most chunks in memory at once, including those in flight to this node.
    pub peak_window: u32,
}

/// A node of a cast.
#[derive(Debug)]
pub struct Node {
    profile: Profile,
    options: Options,
    now: Duration,
    header: Option<Header>,
    manifest: Option<Manifest>,
    /// Digests on their way, and from whom.
    hashes: Vec<Hash>,
    hashes_from: Option<NodeId>,
    stored: Option<Stored>,
    verified: Bitmap,
    written: Bitmap,
    peers: BTreeMap<NodeId, Peer>,
    /// Peers that were caught lying.
    banned: BTreeSet<NodeId>,
    /// Peers that were reported as gone since the last beat.
    reported: BTreeSet<NodeId>,
    fetch: Fetch,
    serve: Serve,
    coordinator: Option<Coordinator>,
    /// Who may lead, in order: the source first.
    leaders: Vec<Contact>,
    /// Which of them leads, or is tried.
    leader: usize,
    /// The last nodes that this one asked to lead it.
    followed: VecDeque<NodeId>,
    /// When an earlier one is tried again.
    retry_at: Duration,
    epoch: u64,
    demoted: bool,
    next_beat: Duration,
    told_done: bool,
    ended: bool,
    /// When progress was made last; `patience` counts from then.
    news: Duration,
    stuck_told: bool,
    /// Members that came before this node knew that it leads.
    early: Vec<(NodeId, Message)>,
    counters: Counters,
    actions: VecDeque<Action>,
}

/// Another node, as this one knows it.
#[derive(Debug, Default)]
struct Peer {
    link: Link,
    /// The chunks that it announced.
    has: Bitmap,
    /// When it was last heard, and when this node last sent it something.
    heard: Duration,
    said: Duration,
    messages: u32,
    unsolicited: u32,
    /// Its announcement, if it came before this node knew the content.
    early_hello: Option<Message>,
    /// The first digest that it waits for.
    wants_hashes: Option<u32>,
    /// The chunks that it requested.
    queue: VecDeque<u32>,
    /// Chunks on their way to it.
    sending: BTreeMap<u32, Wanted>,
    /// When it last received a chunk, or when the first chunk in flight left.
    took: Duration,
    /// By stripe, the furthest chunk that it asked for of late, and when.
    asked_to: BTreeMap<usize, (u32, Duration)>,
    /// Whether it is in the queue of peers served in turn.
    in_turns: bool,
}

/// Whether a peer still waits for a chunk that is on its way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Yes,
    /// It cancelled its request; the chunk may still arrive if the peer has room.
    No,
    /// The peer has no room for it any longer, and the driver was asked to cancel the send.
    Withdrawn,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    None,
    Connecting,
    Up,
}

impl Node {
    /// Creates the source, which has all chunks and leads.
    #[must_use]
    pub fn source(now: Duration, profile: Profile, manifest: Manifest, options: Options) -> Node {
        let header = manifest.header();
        let mut node = Node::new(now, profile, options, None);
        node.coordinator = Some(Coordinator::new(
            now,
            node.profile.contact.clone(),
            node.profile.rack,
            header,
            node.options,
        ));
        node.verified = Bitmap::full(header.chunks());
        node.written = node.verified.clone();
        node.header = Some(header);
        node.manifest = Some(manifest);
        node.told_done = true;
        node
    }

    /// Creates a node that receives from the source, the first of `leaders`. The others are the leaders that an earlier
    /// attempt of this node knew.
    #[must_use]
    pub fn receiver(
        now: Duration,
        profile: Profile,
        leaders: Vec<Contact>,
        options: Options,
        stored: Option<Stored>,
    ) -> Node {
        let mut node = Node::new(now, profile, options, stored);
        node.leaders = leaders;
        node.connect_to_leader();
        node
    }

    fn new(now: Duration, profile: Profile, options: Options, stored: Option<Stored>) -> Node {
        let options = options.bounded();
        Node {
            profile,
            options,
            now,
            header: None,
            manifest: None,
            hashes: Vec::new(),
            hashes_from: None,
            stored,
            verified: Bitmap::default(),
            written: Bitmap::default(),
            peers: BTreeMap::new(),
            banned: BTreeSet::new(),
            reported: BTreeSet::new(),
            fetch: Fetch::default(),
            serve: Serve::default(),
            coordinator: None,
            leaders: Vec::new(),
            leader: 0,
            followed: VecDeque::new(),
            retry_at: now,
            epoch: 0,
            demoted: false,
            next_beat: now + options.beat,
            told_done: false,
            ended: false,
            news: now,
            stuck_told: false,
            early: Vec::new(),
            counters: Counters::default(),
            actions: VecDeque::new(),
        }
    }

    /// The number of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.profile.contact.id
    }

    /// The description of the content, with which the driver checks chunks. `None` until all digests have arrived.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The verified and written chunks.
    #[must_use]
    pub fn written(&self) -> &Bitmap {
        &self.written
    }

    /// Whether all chunks are verified and written, and all digests are known. A node with a complete store needs the
    /// digests, too.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.manifest.is_some() && self.written.is_full()
    }

    /// The possible leaders in order, the source first. A restarted node begins with them.
    #[must_use]
    pub fn leaders(&self) -> &[Contact] {
        &self.leaders
    }

    /// Whether this node is the source: it leads, and none led before it.
    #[must_use]
    pub fn is_source(&self) -> bool {
        self.leaders.is_empty()
    }

    /// Whether this node leads the group.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Whether another node leads, is connected, and has given this one a place.
    #[must_use]
    pub fn is_led(&self) -> bool {
        self.epoch > 0 && self.leader().is_some()
    }

    /// The members and their numbers of verified chunks over all stripes, if this node leads.
    pub fn progress(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        self.coordinator.iter().flat_map(Coordinator::progress)
    }

    /// The predecessor of a member in each stripe, if this node leads.
    #[must_use]
    pub fn predecessors(&self, id: NodeId) -> &[Option<NodeId>] {
        let coordinator = self.coordinator.as_ref();
        coordinator.map_or(&[], |it| it.predecessors(id))
    }

    /// Sets the number of nodes to wait for before the cast begins, if this node leads. It excludes nodes that do not
    /// take part.
    pub fn expect(&mut self, now: Duration, nodes: u32) {
        self.now = now;
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.expect(now, nodes);
        }
        self.settle();
    }

    /// Raises the limit on chunks in memory to `window`. A node learns the number of stripes, and so its need, with the
    /// digests.
    pub fn widen(&mut self, now: Duration, window: u32) {
        self.now = now;
        self.options.window = self.options.window.max(window);
        self.settle();
    }

    /// Whether this node has a connection to a peer.
    #[must_use]
    pub fn is_connected(&self, id: NodeId) -> bool {
        self.peers.get(&id).is_some_and(|it| it.link == Link::Up)
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next action for the driver. `None`: nothing to do now.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The time at which the driver must call [`timeout`](Self::timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Duration {
        self.next_beat
    }

    /// Reports a connection to a peer, whichever end opened it. If both ends opened one at the same time, the driver
    /// keeps one and reports one. A second report for a connected peer means a new connection.
    pub fn connected(&mut self, now: Duration, id: NodeId) {
        self.now = now;
        let leads = self.leads() || self.leaders.iter().any(|it| it.id == id);
        let known = self.peers.contains_key(&id);
        // As a member of its own group, the node would be its own descendant.
        if self.ended
            || id == self.id()
            || self.banned.contains(&id)
            || (!known && !leads && self.peers.len() >= MAX_PEERS)
        {
            self.actions.push_back(Action::Disconnect(id));
            return;
        }
        if self.is_connected(id) {
            // The other end reconnected before this end noticed the loss. Everything in flight is lost.
            let before = self.peers.remove(&id).unwrap_or_default();
            self.unserve(id, before);
            self.mark_missing(id);
            self.lose_hashes(id);
        }
        let peer = self.peers.entry(id).or_default();
        (peer.link, peer.heard, peer.said) = (Link::Up, now, now);
        self.meet_leader(id);
        self.greet(id);
        self.settle();
    }

    /// Reports that a connection ended, or could not be made.
    pub fn disconnected(&mut self, now: Duration, id: NodeId) {
        self.now = now;
        self.lose(id);
        self.settle();
    }

    /// Handles a message. For bytes that do not parse, call [`fault`](Self::fault).
    pub fn message(&mut self, now: Duration, from: NodeId, message: Message) {
        self.now = now;
        let Some(peer) = self.peers.get_mut(&from).filter(|it| it.link == Link::Up) else {
            return;
        };
        peer.heard = now;
        peer.messages += 1;
        let floods = peer.messages > MESSAGES_PER_BEAT;
        if self.waits_to_begin(from) {
            self.heard_news();
        }
        let beats = matches!(message, Message::Alive | Message::Progress { .. });
        let asks = matches!(message, Message::Request(_));
        if floods {
            self.blame(from, Fault::Flood);
        } else if let Err(fault) = self.take(from, message) {
            self.refuse(from, fault);
        } else if beats && self.coordinator.as_ref().is_none_or(Coordinator::is_quiet) {
            // It has no consequences, so the most frequent message costs least.
            return;
        } else if asks {
            self.send_chunks_to(from);
            return;
        }
        self.settle();
    }

    /// Reports a protocol violation that the driver detected, such as a malformed message.
    pub fn fault(&mut self, now: Duration, from: NodeId, fault: Fault) {
        self.now = now;
        self.refuse(from, fault);
        self.settle();
    }

    /// Handles the time of [`next_timeout`](Self::next_timeout).
    pub fn timeout(&mut self, now: Duration) {
        self.now = now;
        if now < self.next_beat {
            return;
        }
        self.rested(now.saturating_sub(self.next_beat));
        self.next_beat = now + self.options.beat;
        self.reported.clear();
        if self.ended {
            return;
        }
        self.drop_silent_peers();
        self.look_for_leader();
        self.reconnect();
        self.search();
        self.notice_stuck();
        let done = self.is_done();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.tick(now, done);
        }
        self.tell_progress();
        self.say_alive();
        self.settle();
    }

    fn take(&mut self, from: NodeId, message: Message) -> Result<(), Fault> {
        match message {
            Message::Join { .. }
            | Message::Progress { .. }
            | Message::Report { .. }
            | Message::Seek => self.take_member(from, message),
            Message::Welcome(_) | Message::Place(_) | Message::Helpers(_) => {
                self.take_order(from, message)
            }
            Message::Dismissed(_) | Message::Finished => self.take_order(from, message),
            Message::Hello {
                root,
                has,
                answer,
                demoted,
            } => self.take_hello(from, root, has, answer, demoted),
            Message::AskHashes { first } => self.take_ask_hashes(from, first),
            Message::Hashes { first, hashes } => self.take_hashes(from, first, hashes),
            Message::Request(chunks) => self.take_request(from, &chunks),
            Message::Cancel(chunks) => self.take_cancel(from, &chunks),
            Message::Missing(chunks) => self.take_missing(from, &chunks),
            Message::Alive => Ok(()),
        }
    }

    /// Handles the consequences of every input.
    fn settle(&mut self) {
        self.drain_coordinator();
        self.send_chunks();
        self.request_chunks();
        self.notice_end();
    }

    fn send(&mut self, to: NodeId, message: Message) {
        if let Some(peer) = self.peers.get_mut(&to).filter(|it| it.link == Link::Up) {
            peer.said = self.now;
            self.actions.push_back(Action::Send { to, message });
        }
    }

    fn tell(&mut self, event: Event) {
        self.actions.push_back(Action::Tell(event));
    }

    /// Connects to a node unless there is a connection; whether there is one.
    fn connect(&mut self, contact: &Contact) -> bool {
        if self.banned.contains(&contact.id) || contact.id == self.id() {
            return false;
        }
        let peer = self.peers.entry(contact.id).or_default();
        if peer.link == Link::None {
            peer.link = Link::Connecting;
            peer.heard = self.now;
            // A leader may not know its own reachable address. This node was told it, or is connected already.
            let known = self.leaders.iter().find(|it| it.id == contact.id);
            let contact = known.unwrap_or(contact).clone();
            self.actions.push_back(Action::Connect(contact));
        }
        peer.link == Link::Up
    }

    /// Closes a connection, and forgets transfers in flight.
    fn disconnect(&mut self, id: NodeId) {
        if self.peers.get(&id).is_some_and(|it| it.link != Link::None) {
            self.actions.push_back(Action::Disconnect(id));
        }
        self.lose(id);
    }

    fn lose(&mut self, id: NodeId) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        self.unserve(id, peer);
        self.mark_missing(id);
        self.fetch.helpers.remove(&id);
        self.lose_hashes(id);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.on_left(id);
        }
        self.lose_leader(id);
        // One that has all needs no other.
        if self.fetch.predecessors.contains(&Some(id)) && !self.verified.is_full() {
            self.report(id, Fault::Gone);
        }
    }

    /// Blames a peer for its message.
    fn refuse(&mut self, peer: NodeId, fault: Fault) {
        self.counters.messages_refused += 1;
        self.blame(peer, fault);
    }

    /// Reports a peer, disconnects it and ignores it from then on.
    fn blame(&mut self, peer: NodeId, fault: Fault) {
        let by = self.id();
        self.tell(Event::Liar { peer, by, fault });
        self.banned.insert(peer);
        self.report(peer, fault);
        self.disconnect(peer);
    }

    fn drop_silent_peers(&mut self) {
        let deadline = self.now.saturating_sub(self.options.silence);
        let silent = self.peers.iter_mut().filter_map(|(id, peer)| {
            peer.messages = 0;
            (peer.link != Link::None && peer.heard < deadline).then_some(*id)
        });
        for id in silent.collect::<Vec<_>>() {
            self.disconnect(id);
        }
    }

    /// Handles a late beat. If it is late by several beats, this node hardly ran, and silence in that time says nothing
    /// about its peers. The node then continues as if the time had not passed.
    fn rested(&mut self, late: Duration) {
        if late < self.options.beat * 2 {
            return;
        }
        self.news = (self.news + late).min(self.now);
        for peer in self.peers.values_mut() {
            peer.heard = (peer.heard + late).min(self.now);
        }
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.rested(self.now);
        }
    }

    /// Records progress.
    fn heard_news(&mut self) {
        (self.news, self.stuck_told) = (self.now, false);
    }

    /// Reports that the node is stuck, after its patience without progress.
    fn notice_stuck(&mut self) {
        let still = self.now.saturating_sub(self.news);
        if self.stuck_told || self.is_done() || still <= self.options.patience {
            return;
        }
        self.stuck_told = true;
        let lacking = self.written.len() - self.written.count();
        self.tell(Event::Stuck { lacking });
    }

    fn say_alive(&mut self) {
        let due = self.now.saturating_sub(self.options.beat);
        let quiet = self
            .peers
            .iter()
            .filter(|(_, it)| it.link == Link::Up && it.said <= due);
        for id in quiet.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send(id, Message::Alive);
        }
    }

    fn notice_end(&mut self) {
        if self.is_done() && !self.told_done {
            self.told_done = true;
            self.tell(Event::Done);
            self.tell_progress();
        }
    }
}
