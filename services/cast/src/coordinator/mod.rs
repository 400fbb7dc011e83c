//! Keeps the membership of a cast, at the source or at the node that takes over from it.
//!
//! The coordinator decides only from whom each node receives; digests decide what a chunk is. Each node reports how many
//! chunks of each stripe it has verified. From these counts the coordinator finds the nodes that hold others back.

mod pace;
mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use crate::limits::{ACCUSERS, HELPERS, MAX_ACCUSATIONS, MAX_MEMBERS, SUCCESSORS};
use crate::manifest::Header;
use crate::message::{Contact, Fault, Message, NodeId, Place};
use crate::options::{Event, Options, Slow};
use crate::topology::Topology;
use pace::{Overall, Verdict, Watch};

/// Number of nodes of a rack, those with the fewest successors, from which helpers are chosen.
const COMPARED: usize = 16;

/// Leads a cast.
#[derive(Debug)]
pub(crate) struct Coordinator {
    own: Contact,
    header: Header,
    options: Options,
    topology: Topology,
    members: BTreeMap<NodeId, Member>,
    successors: Vec<Contact>,
    epoch: u64,
    started: Option<Duration>,
    finished: bool,
    /// Until then nodes are waited for.
    gathers_until: Duration,
    next_review: Duration,
    reviewed: Duration,
    /// Silence before that is not held against members: this node did not run.
    listens_since: Duration,
    /// When the head of a chain goes to its end.
    turns_head_at: Option<Duration>,
    /// The head that went there last.
    turned: Option<NodeId>,
    /// Members that another member could not reach and that have been silent since. They do not become predecessors.
    doubted: BTreeSet<NodeId>,
    /// The last node that was named as a helper.
    last_helper: NodeId,
    messages: Vec<(NodeId, Message)>,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Member {
    contact: Contact,
    rack: u32,
    rate: u64,
    life: Life,
    demoted: bool,
    /// It was demoted because it was silent.
    suspected: bool,
    verified: Vec<u32>,
    /// When it said that.
    said: Duration,
    /// By stripe, how it keeps up with the node above it.
    watches: Vec<Watch>,
    /// How it keeps up with all of them.
    overall: Overall,
    /// When a review last saw progress, and the number of chunks then.
    gained: (Duration, u32),
    /// How long, by reviews, it has made no progress although chunks were available, and its largest number of chunks.
    /// A rejoin resets neither.
    idle: Duration,
    most: u32,
    held_by: Option<NodeId>,
    /// Reviews since it got its place.
    settled: u32,
    /// How often it received nothing at all.
    starved: u32,
    /// Successors that were found slow behind it: with more than chance puts there it is itself.
    lost: Vec<NodeId>,
    /// How often it was found slow.
    times_demoted: u32,
    /// Whether its successors lagged.
    holds: bool,
    /// Reviews since it was demoted, or its trial was over.
    waited: u32,
    /// It is served in turn, though it has no successors.
    in_turn: bool,
    accused_by: BTreeSet<NodeId>,
    accusations: u32,
    /// Reports and searches since the last review.
    complaints: u32,
    seeks: u32,
}

impl Member {
    /// Whether it may be found to lag in a moment.
    fn is_warned(&self) -> bool {
        let active = self.life == Life::Active && !self.demoted;
        active && self.watches.iter().any(Watch::is_warned)
    }

    /// The pace observed so far does not predict the next.
    fn forget_pace(&mut self) {
        self.watches.iter_mut().for_each(Watch::forget);
        self.overall.forget();
    }

    /// Whether it keeps up with its predecessors. With one predecessor there is nothing to add up.
    fn keeps_up(&self) -> Verdict {
        match &self.watches[..] {
            [only] => only.verdict(),
            _ => self.overall.verdict(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Active,
    Done,
    Failed(Fault),
}

/// A node's description of itself when it joins.
pub(crate) struct Joining {
    pub(crate) contact: Contact,
    pub(crate) rack: u32,
    pub(crate) rate: u64,
    /// Chunks of each stripe that it has.
    pub(crate) verified: Vec<u32>,
}

impl Coordinator {
    /// That of the source: it waits for the nodes that are expected.
    pub(crate) fn new(
        now: Duration,
        own: Contact,
        rack: u32,
        header: Header,
        options: Options,
    ) -> Coordinator {
        Coordinator {
            topology: Topology::new(header.arity as usize, own.id, rack),
            own,
            header,
            options,
            members: BTreeMap::new(),
            successors: Vec::new(),
            epoch: 0,
            started: None,
            finished: false,
            gathers_until: now + options.gather,
            next_review: now,
            reviewed: now,
            listens_since: now,
            turns_head_at: None,
            turned: None,
            doubted: BTreeSet::new(),
            last_helper: NodeId(0),
            messages: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The coordinator of a node that takes over from another, whose last change was `epoch`. It accepts nodes as they
    /// join.
    pub(crate) fn following(
        now: Duration,
        own: Contact,
        rack: u32,
        header: Header,
        options: Options,
        epoch: u64,
    ) -> Coordinator {
        let mut coordinator = Coordinator::new(now, own, rack, header, options);
        coordinator.started = Some(now);
        coordinator.epoch = epoch;
        coordinator.options.expected = 0;
        // The members have first waited for the previous leader, and for others in between.
        coordinator.gathers_until = now + options.silence * 10;
        coordinator
    }

    /// Messages and events that wait to be delivered.
    pub(crate) fn take_outputs(&mut self) -> (Vec<(NodeId, Message)>, Vec<Event>) {
        (
            std::mem::take(&mut self.messages),
            std::mem::take(&mut self.events),
        )
    }

    /// Whether no message or event waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.messages.is_empty() && self.events.is_empty()
    }

    /// How many changes of the membership there were.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Chunks of all stripes that are verified at each member.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        self.members
            .iter()
            .map(|(id, it)| (*id, it.verified.iter().sum()))
    }

    /// The predecessor of a member in each stripe.
    pub(crate) fn predecessors(&self, id: NodeId) -> &[Option<NodeId>] {
        self.topology.predecessors(id)
    }

    /// Sets the number of nodes to wait for.
    pub(crate) fn expect(&mut self, now: Duration, nodes: u32) {
        self.options.expected = nodes;
        if self.started.is_none() && nodes > 0 && self.members.len() >= nodes as usize {
            self.begin(now);
        }
    }

    pub(crate) fn on_join(&mut self, now: Duration, joining: Joining) {
        let id = joining.contact.id;
        let known = self.members.get(&id);
        if let Some(Life::Failed(fault)) = known.map(|it| it.life)
            && fault != Fault::Gone
        {
            self.say(id, Message::Dismissed(fault));
            return;
        }
        if known.is_none() && self.members.len() >= MAX_MEMBERS {
            self.say(id, Message::Dismissed(Fault::Flood));
            return;
        }
        let before = self.members.remove(&id);
        let (idle, most, complaints) = before
            .as_ref()
            .map_or_else(Default::default, |it| (it.idle, it.most, it.complaints));
        let (accused_by, accusations) =
            before.map_or_else(Default::default, |it| (it.accused_by, it.accusations));
        let rack = joining.rack;
        let demoted = !accused_by.is_empty();
        let stripes = self.header.arity as usize;
        let member = Member {
            contact: joining.contact,
            rack,
            rate: joining.rate,
            life: Life::Active,
            demoted,
            suspected: false,
            verified: joining.verified,
            said: now,
            watches: vec![Watch::default(); stripes],
            overall: Overall::default(),
            gained: (now, 0),
            idle,
            most,
            held_by: None,
            settled: 0,
            starved: 0,
            lost: Vec::new(),
            times_demoted: 0,
            holds: false,
            waited: 0,
            in_turn: false,
            accused_by,
            accusations,
            // Until then there is no review.
            complaints: if self.started.is_some() {
                complaints
            } else {
                0
            },
            seeks: 0,
        };
        self.members.insert(id, member);
        self.finished = false;
        self.events.push(Event::Joined(id));
        self.say(id, Message::Welcome(self.header));
        if self.started.is_some() {
            let not = self.members[&id].accused_by.clone();
            let changed = self.topology.attach(id, rack, demoted, &not);
            self.name_successors();
            self.epoch += 1;
            self.place_all(changed);
            let helpers = self.helpers_for(id);
            self.place(id, helpers);
        } else if self.all_came() {
            self.begin(now);
        }
    }

    /// Gives all their places.
    fn begin(&mut self, now: Duration) {
        (self.started, self.reviewed) = (Some(now), now);
        self.epoch += 1;
        let mut rates: Vec<u64> = self
            .members
            .values()
            .map(|it| it.rate)
            .filter(|it| *it > 0)
            .collect();
        rates.sort_unstable();
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0);
        let mut order: Vec<NodeId> = Vec::new();
        let mut slow = Vec::new();
        for (id, member) in &mut self.members {
            member.demoted |=
                member.rate > 0 && member.rate < median / 2 && self.options.slow != Slow::Wait;
            match member.demoted {
                true => slow.push((*id, member.rack)),
                false => order.push(*id),
            }
        }
        order.sort_by_key(|it| {
            (
                self.members[it].rack,
                std::cmp::Reverse(self.members[it].rate),
                *it,
            )
        });
        let nodes: Vec<_> = order
            .iter()
            .map(|it| (*it, self.members[it].rack))
            .collect();
        self.topology.build(&nodes);
        for (id, rack) in slow {
            self.topology.attach(id, rack, true, &BTreeSet::new());
            self.events.push(Event::NodeSlow(id));
        }
        let measured = rates.len() == self.members.len();
        let chain = self.header.arity == 1 && order.len() > 2;
        if chain && !measured && self.options.slow != Slow::Wait {
            self.turns_head_at = Some(now + self.options.beat * 8);
        }
        self.name_successors();
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.place(id, Vec::new());
        }
    }

    /// The nodes nearest to the root.
    fn name_successors(&mut self) {
        let stripes = 0..self.header.arity as usize;
        let mut at: Vec<NodeId> = vec![self.own.id];
        let mut named = Vec::new();
        while named.len() < SUCCESSORS && !at.is_empty() {
            let below: Vec<NodeId> = at
                .iter()
                .flat_map(|id| {
                    stripes
                        .clone()
                        .flat_map(|it| self.topology.successors(*id, it))
                })
                .copied()
                .collect();
            at.clear();
            for id in below {
                let usable = self.members.get(&id).is_some_and(|it| !it.demoted);
                if usable && !named.contains(&id) {
                    named.push(id);
                    at.push(id);
                }
            }
        }
        named.truncate(SUCCESSORS);
        self.successors = named
            .iter()
            .map(|it| self.members[it].contact.clone())
            .collect();
    }

    /// Tells a node where it stands.
    fn place(&mut self, id: NodeId, helpers: Vec<Contact>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.settled = 0;
        }
        let predecessors = self.topology.predecessors(id).to_vec();
        let predecessors = predecessors
            .into_iter()
            .map(|it| it.and_then(|it| self.contact(it)))
            .collect();
        let place = Place {
            epoch: self.epoch,
            predecessors,
            helpers,
            successors: self.successors.clone(),
            demoted: self
                .members
                .get(&id)
                .is_some_and(|it| it.demoted && !it.in_turn),
        };
        self.say(id, Message::Place(place));
    }

    fn contact(&self, id: NodeId) -> Option<Contact> {
        match id == self.own.id {
            true => Some(self.own.clone()),
            false => self.members.get(&id).map(|it| it.contact.clone()),
        }
    }

    pub(crate) fn on_progress(
        &mut self,
        now: Duration,
        from: NodeId,
        verified: &[u32],
        done: bool,
        held_by: Option<NodeId>,
    ) {
        let Some(member) = self.members.get_mut(&from) else {
            return;
        };
        if verified.len() != member.verified.len() {
            self.fail(from, Fault::UnknownChunk);
            return;
        }
        for (stripe, count) in verified.iter().enumerate() {
            member.verified[stripe] = (*count).min(self.header.chunks_of(stripe));
        }
        member.said = now;
        self.doubted.remove(&from);
        member.held_by = held_by;
        let suspected = std::mem::take(&mut member.suspected);
        let trusted = member.accused_by.is_empty() && !matches!(member.life, Life::Failed(_));
        if done && member.life == Life::Active {
            member.life = Life::Done;
            self.events.push(Event::NodeDone(from));
        }
        if suspected && trusted {
            // Its lack of progress during its silence says nothing about its pace.
            member.forget_pace();
            self.move_to(from, false);
        }
    }

    /// Handles a pause of this node itself: silence in that time says nothing about its members.
    pub(crate) fn rested(&mut self, now: Duration) {
        (self.listens_since, self.reviewed) = (now, now);
        for member in self.members.values_mut() {
            member.idle = Duration::ZERO;
        }
    }

    /// Moves long-silent members to places without successors until they speak again. The successors of a dead node
    /// thus get another predecessor before the node is known to be dead.
    fn suspect_silent(&mut self, now: Duration) {
        let deadline = now.saturating_sub(self.options.suspicion);
        let silent = |it: &Member| {
            let fails = matches!(it.life, Life::Failed(_));
            !it.demoted && !fails && it.said.max(self.listens_since) < deadline
        };
        let found = self.members.iter().filter(|(_, it)| silent(it));
        for id in found.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(member) = self.members.get_mut(&id) {
                member.suspected = true;
            }
            self.move_to(id, true);
        }
    }

    pub(crate) fn on_report(&mut self, from: NodeId, peer: NodeId, fault: Fault) {
        if self.complains(from) || !self.members.contains_key(&from) {
            return;
        }
        if fault == Fault::Gone {
            if self.members.contains_key(&peer) {
                self.doubted.insert(peer);
            }
            if self.topology.predecessors(from).contains(&Some(peer))
                && self.topology.avoid(from, peer, &self.doubted)
            {
                self.epoch += 1;
                let helpers = self.helpers_for(from);
                self.place(from, helpers);
            }
            return;
        }
        let accuser = self.members.get_mut(&from).expect("it is a member");
        accuser.accusations += 1;
        if accuser.accusations > MAX_ACCUSATIONS {
            self.fail(from, Fault::Accuser);
            return;
        }
        let Some(accused) = self.members.get_mut(&peer) else {
            return;
        };
        if !accused.accused_by.insert(from) {
            return;
        }
        self.events.push(Event::Liar {
            peer,
            by: from,
            fault,
        });
        match accused.accused_by.len() >= ACCUSERS {
            true => self.fail(peer, fault),
            false => self.move_to(peer, true),
        }
    }

    /// The node that leads saw it itself.
    pub(crate) fn on_seen(&mut self, peer: NodeId, fault: Fault) {
        if self
            .members
            .get(&peer)
            .is_some_and(|it| !matches!(it.life, Life::Failed(_)))
        {
            self.fail(peer, fault);
        }
    }

    pub(crate) fn on_seek(&mut self, from: NodeId) {
        if self.complains(from) || !self.members.contains_key(&from) {
            return;
        }
        let helpers = self.helpers_for(from);
        self.say(from, Message::Helpers(helpers));
    }

    /// Counts a complaint of a node. Returns whether it has made so many that it is excluded. An honest node reports each
    /// predecessor once a beat at most. If this node did not run, it hears the reports of a whole silence in one review.
    fn complains(&mut self, from: NodeId) -> bool {
        let beat = self.options.beat.as_nanos().max(1);
        let beats = 2 + self.options.silence.as_nanos().div_ceil(beat);
        let most = u128::from(self.header.arity) * beats + 8;
        let Some(member) = self.members.get_mut(&from) else {
            return false;
        };
        member.complaints += 1;
        let floods = u128::from(member.complaints) > most;
        if floods {
            self.fail(from, Fault::Flood);
        }
        floods
    }

    /// Nodes that can help `id`, different ones each time and from its rack if possible. The root if there are none,
    /// and now and then.
    pub(crate) fn helpers_for(&mut self, id: NodeId) -> Vec<Contact> {
        let after = self.last_helper;
        let mut found: Vec<NodeId> = Vec::new();
        if let Some(member) = self.members.get(&id).filter(|_| self.topology.has_racks()) {
            let near = self.topology.of_rack(member.rack);
            let mut near: Vec<NodeId> = near
                .filter(|it| self.may_help(*it, id))
                .take(COMPARED)
                .collect();
            near.sort_unstable_by_key(|it| (*it <= after, *it));
            found.extend(near.into_iter().take(HELPERS));
        }
        if found.is_empty() {
            let rotated = self
                .members
                .range((Excluded(after), Unbounded))
                .chain(self.members.range(..=after));
            let usable = rotated.map(|it| *it.0).filter(|it| self.may_help(*it, id));
            found.extend(usable.take(HELPERS));
        }
        if let Some(last) = found.last() {
            self.last_helper = *last;
        }
        let mut helpers: Vec<Contact> = found
            .iter()
            .map(|it| self.members[it].contact.clone())
            .collect();
        let member = self.members.get_mut(&id);
        let often = member.is_some_and(|it| {
            it.seeks += 1;
            it.seeks > 2
        });
        if id != self.own.id && (helpers.is_empty() || often) {
            helpers.push(self.own.clone());
        }
        helpers
    }

    /// Whether a node has chunks that another may request.
    fn may_help(&self, it: NodeId, id: NodeId) -> bool {
        self.members.get(&it).is_some_and(|member| {
            let trusted = !matches!(member.life, Life::Failed(_)) && member.accused_by.is_empty();
            it != id && trusted && !member.demoted && member.verified.iter().any(|it| *it > 0)
        })
    }

    /// The connection to a node has ended.
    pub(crate) fn on_left(&mut self, id: NodeId) {
        let Some(member) = self.members.get(&id) else {
            return;
        };
        match member.life {
            Life::Active => self.fail(id, Fault::Gone),
            Life::Done | Life::Failed(_) => self.take_out(id),
        }
    }

    /// Excludes a node, and notifies it.
    fn fail(&mut self, id: NodeId, fault: Fault) {
        if let Some(member) = self.members.get_mut(&id) {
            member.life = Life::Failed(fault);
            self.events.push(Event::NodeFailed(id, fault));
            self.say(id, Message::Dismissed(fault));
            self.take_out(id);
        }
    }

    /// Removes a node from the trees, and gives its successors other predecessors.
    fn take_out(&mut self, id: NodeId) {
        self.doubted.remove(&id);
        let changed = self.topology.remove(id);
        self.epoch += 1;
        if self.successors.iter().any(|it| it.id == id) {
            self.name_successors();
        }
        self.place_all(changed);
    }

    fn place_all(&mut self, changed: Vec<NodeId>) {
        for id in changed {
            self.place(id, Vec::new());
        }
    }

    /// Restores the balance after nodes left or moved: no node sends more than its share, and each stripe enters a rack
    /// once.
    fn even_out(&mut self) {
        let mut changed = self.topology.even_out();
        changed.extend(self.topology.gather());
        self.epoch += u64::from(!changed.is_empty());
        self.place_all(changed);
    }

    /// Gives a node another place: one without successors, or one with.
    fn move_to(&mut self, id: NodeId, demoted: bool) {
        self.take_out(id);
        if let Some(member) = self.members.get_mut(&id) {
            member.demoted = demoted;
            (member.in_turn, member.waited) = (false, 0);
            let changed = self
                .topology
                .attach(id, member.rack, demoted, &member.accused_by);
            self.place_all(changed);
            self.place(id, Vec::new());
        }
    }

    /// Handles what is due at `now`. `done` says whether this node itself has all content.
    pub(crate) fn tick(&mut self, now: Duration, done: bool) {
        if self.started.is_none() && now >= self.gathers_until && !self.members.is_empty() {
            self.begin(now);
        }
        if self.started.is_some() {
            self.suspect_silent(now);
            if now >= self.next_review {
                let since = now.saturating_sub(self.reviewed);
                self.reviewed = now;
                self.next_review = now + self.options.beat * 2;
                self.review(now, since);
                self.even_out();
            }
        }
        self.look_for_end(now, done);
    }

    /// As many have joined as are expected, of which the number is known.
    pub(crate) fn all_came(&self) -> bool {
        let expected = self.options.expected as usize;
        expected > 0 && self.members.len() >= expected
    }

    /// Ends the cast when every member has finished or failed, and this node is `done`.
    pub(crate) fn look_for_end(&mut self, now: Duration, done: bool) {
        let gathered = now >= self.gathers_until || self.options.expected > 0;
        let over = !self.members.values().any(|it| it.life == Life::Active);
        if self.started.is_some() && gathered && over && done && !self.finished {
            self.finished = true;
            self.events.push(Event::Finished);
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                self.say(id, Message::Finished);
            }
        }
    }

    fn say(&mut self, to: NodeId, message: Message) {
        self.messages.push((to, message));
    }
}
