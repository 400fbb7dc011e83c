//! A node: it receives, verifies, writes and forwards; at the source, and where the source is lost, it leads too.
//!
//! Inputs are methods; what is to be done is asked for by [`Node::poll_action`], and the next time at which the node wants
//! to be asked by [`Node::next_timeout`]. Time is what the driver says: a duration since any fixed start.
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

/// What a node found of an earlier try in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Of which content.
    pub root: Hash,
    /// The chunks that were verified and written.
    pub has: Bitmap,
}

/// What a node says of itself to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which it is, and where it listens.
    pub contact: Contact,
    /// The label of its place in the network.
    pub rack: u32,
    /// Measured bandwidth, bytes a second; 0 if unknown.
    pub rate: u64,
}

/// What is counted at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chunks that came.
    pub chunks_received: u64,
    /// Those of them that were there already.
    pub chunks_doubled: u64,
    /// Those that nothing had asked for.
    pub chunks_unasked: u64,
    /// Those that did not have their digest.
    pub chunks_wrong: u64,
    /// Chunks that were sent.
    pub chunks_sent: u64,
    /// Those of them that had to be read from the store.
    pub chunks_read: u64,
    /// Messages that were refused.
    pub messages_refused: u64,
    /// The most chunks in memory at once, those on the way here included.
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
    fetch: Fetch,
    serve: Serve,
    coordinator: Option<Coordinator>,
    /// Who may lead, in order: the source first.
    leaders: Vec<Contact>,
    /// Which of them leads, or is tried.
    leader: usize,
    /// When an earlier one is tried again.
    retry_at: Duration,
    epoch: u64,
    apart: bool,
    next_beat: Duration,
    told_done: bool,
    ended: bool,
    /// When anything new came: what `patience` is counted from.
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
    /// What it said that it has.
    has: Bitmap,
    /// When it was last heard of, and last told something.
    heard: Duration,
    said: Duration,
    messages: u32,
    unasked: u32,
    /// What it said of itself before this node knew the content.
    early_hello: Option<Message>,
    /// The first digest that it waits for.
    wants_hashes: Option<u32>,
    /// What it asked for.
    queue: VecDeque<u32>,
    /// Chunks on their way to it.
    sending: BTreeMap<u32, Wanted>,
    /// When it took a chunk last, or the first of those on their way left.
    took: Duration,
    /// By stripe, the furthest chunk that it asked for of late, and when.
    asked_to: BTreeMap<usize, (u32, Duration)>,
    /// It stands among those that are served in turn.
    in_turns: bool,
}

/// Whether a peer still waits for a chunk that is on its way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Yes,
    /// It cancelled its request: what it has room for may arrive all the same.
    No,
    /// It has room for none any more, and the driver was asked to give the send up.
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
    /// The source: it has all, and leads.
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

    /// A node that takes part in what the first of `leaders` casts, the source; the others are those that an earlier try of
    /// this node knew, if there was one.
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
            fetch: Fetch::default(),
            serve: Serve::default(),
            coordinator: None,
            leaders: Vec::new(),
            leader: 0,
            retry_at: now,
            epoch: 0,
            apart: false,
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

    /// Which node this is.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.profile.contact.id
    }

    /// What is cast, as soon as its digests are here: what chunks are checked by.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The chunks that are verified and written.
    #[must_use]
    pub fn written(&self) -> &Bitmap {
        &self.written
    }

    /// Whether all is verified and written, and the digests are here: one that had all before has to know them, too.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.manifest.is_some() && self.written.is_full()
    }

    /// Who may lead, in order, the source first: what a node that is started again begins with.
    #[must_use]
    pub fn leaders(&self) -> &[Contact] {
        &self.leaders
    }

    /// Whether this node is the source: what it leads, no other led before.
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

    /// Members and how many chunks of all stripes are verified at each, if this node leads.
    pub fn progress(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        self.coordinator.iter().flat_map(Coordinator::progress)
    }

    /// By stripe, from which node a member is to receive, if this node leads.
    #[must_use]
    pub fn predecessors(&self, id: NodeId) -> &[Option<NodeId>] {
        let coordinator = self.coordinator.as_ref();
        coordinator.map_or(&[], |it| it.predecessors(id))
    }

    /// So many nodes are waited for before a cast begins, if this node leads: one that does not take part is not.
    pub fn expect(&mut self, now: Duration, nodes: u32) {
        self.now = now;
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.expect(now, nodes);
        }
        self.settle();
    }

    /// From now on it may hold so many chunks in memory, if that is more than before: in how many stripes the content comes,
    /// a node knows with its digests.
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

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`timeout`](Self::timeout) is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Duration {
        self.next_beat
    }

    /// A connection to a peer is there, whichever end began. Where both began at once, the driver keeps one and says so once;
    /// another connection to a connected peer is a new one.
    pub fn connected(&mut self, now: Duration, id: NodeId) {
        self.now = now;
        let leads = self.leads() || self.leaders.iter().any(|it| it.id == id);
        let known = self.peers.contains_key(&id);
        // As a member of its own group it would be below itself.
        if self.ended
            || id == self.id()
            || self.banned.contains(&id)
            || (!known && !leads && self.peers.len() >= MAX_PEERS)
        {
            self.actions.push_back(Action::Disconnect(id));
            return;
        }
        if self.is_connected(id) {
            // The other end began anew before this one missed it: what was on its way is lost.
            let before = self.peers.remove(&id).unwrap_or_default();
            self.unserve(id, before);
            self.unasked(id);
            self.lose_hashes(id);
        }
        let peer = self.peers.entry(id).or_default();
        (peer.link, peer.heard, peer.said) = (Link::Up, now, now);
        self.meet_leader(id);
        self.greet(id);
        self.settle();
    }

    /// A connection has ended, or could not be made.
    pub fn disconnected(&mut self, now: Duration, id: NodeId) {
        self.now = now;
        self.lose(id);
        self.settle();
    }

    /// A message has come. Bytes that are none are a [`fault`](Self::fault).
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
            // Nothing follows from it: the most frequent message costs least.
            return;
        } else if asks {
            self.send_chunks_to(from);
            return;
        }
        self.settle();
    }

    /// A peer did what no honest one does, as the driver saw: it sent what is no message.
    pub fn fault(&mut self, now: Duration, from: NodeId, fault: Fault) {
        self.now = now;
        self.refuse(from, fault);
        self.settle();
    }

    /// The time of [`next_timeout`](Self::next_timeout) has come.
    pub fn timeout(&mut self, now: Duration) {
        self.now = now;
        if now < self.next_beat {
            return;
        }
        self.rested(now.saturating_sub(self.next_beat));
        self.next_beat = now + self.options.beat;
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
                apart,
            } => self.take_hello(from, root, has, answer, apart),
            Message::AskHashes { first } => self.take_ask_hashes(from, first),
            Message::Hashes { first, hashes } => self.take_hashes(from, first, hashes),
            Message::Request(chunks) => self.take_request(from, &chunks),
            Message::Cancel(chunks) => self.take_cancel(from, &chunks),
            Message::Missing(chunks) => self.take_missing(from, &chunks),
            Message::Alive => Ok(()),
        }
    }

    /// After every input: what follows from it.
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
            // A leader may not know where others reach it: this node was told, or is connected to it already.
            let known = self.leaders.iter().find(|it| it.id == contact.id);
            let contact = known.unwrap_or(contact).clone();
            self.actions.push_back(Action::Connect(contact));
        }
        peer.link == Link::Up
    }

    /// Closes a connection and forgets what was on its way.
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
        self.unasked(id);
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

    /// Blames a peer for what it said.
    fn refuse(&mut self, peer: NodeId, fault: Fault) {
        self.counters.messages_refused += 1;
        self.blame(peer, fault);
    }

    /// Names a peer, cuts it off and has nothing to do with it any more.
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

    /// The beat is late by so much. By several beats: this node did not run, or hardly, and what it did not hear
    /// meanwhile says nothing of its peers. It goes on as if that time had not been.
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

    /// Anything new has come.
    fn heard_news(&mut self) {
        (self.news, self.stuck_told) = (self.now, false);
    }

    /// For as long as nothing new came as this node has patience.
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
