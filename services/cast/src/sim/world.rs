//! Orders the events of a simulation, and delivers each to its node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::network::{Nanos, Network};
use super::{Disturbance, Life, NodeOutcome, Outcome, Random, Setup};
use crate::manifest::Manifest;
use crate::message::{Contact, Fault, Message, NodeId};
use crate::node::{Node, Profile, Stored};
use crate::options::{Action, Event};

/// Time after which a connection attempt without an answer fails.
const CONNECT_TIMEOUT: Nanos = 1_000_000_000;

/// Runs a simulation until all live nodes have all content, or until its time limit.
#[must_use]
pub fn run(setup: &Setup) -> Outcome {
    let mut world = World::new(setup);
    world.run();
    world.outcome()
}

type Payload = Rc<[u8]>;

enum What {
    Beat(u32),
    /// A node says to several peers that it is alive: most of what is said, and one entry for all of them.
    Alive {
        from: u32,
        to: Vec<u32>,
    },
    Link {
        ends: [u32; 2],
    },
    Unreached {
        node: u32,
        peer: u32,
    },
    Closed {
        node: u32,
        peer: u32,
    },
    Message {
        from: u32,
        to: u32,
        message: Box<Message>,
    },
    PortFree(u32),
    Read {
        node: u32,
        to: u32,
        chunk: u32,
    },
    Arrived {
        from: u32,
        to: u32,
        chunk: u32,
        payload: Payload,
    },
    Written {
        node: u32,
        chunk: u32,
    },
    Disturbed(usize),
}

struct Entry {
    /// How often the nodes that it is about had started when it was made.
    lives: [u32; 2],
    what: What,
}

/// Future events in order of time; simultaneous ones in order of entry.
#[derive(Default)]
struct Agenda {
    /// Time, order, and index in `entries`, packed into one number, because a large simulation spends most of its time
    /// sorting.
    keys: BinaryHeap<Reverse<u128>>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    order: u64,
}

/// Bits of a key for a place, and for the order.
const PLACE_BITS: u32 = 24;
const ORDER_BITS: u32 = 40;

impl Agenda {
    fn enter(&mut self, at: Nanos, entry: Entry) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        self.entries[place as usize] = Some(entry);
        self.order += 1;
        let low = u128::from(self.order) << PLACE_BITS | u128::from(place);
        let key = u128::from(at) << (PLACE_BITS + ORDER_BITS) | low;
        self.keys.push(Reverse(key));
    }

    fn next(&mut self) -> Option<(Nanos, Entry)> {
        let Reverse(key) = self.keys.pop()?;
        let place = key as u32 & ((1 << PLACE_BITS) - 1);
        self.free.push(place);
        let entry = self.entries[place as usize].take()?;
        Some(((key >> (PLACE_BITS + ORDER_BITS)) as Nanos, entry))
    }
}

/// A machine: the node on it, its memory, its store, its port.
struct Machine {
    node: Option<Node>,
    memory: BTreeMap<u32, Payload>,
    store: Vec<u8>,
    stored: Option<Stored>,
    leaders: Vec<Contact>,
    /// What waits for its port.
    queue: VecDeque<(u32, u32, Payload)>,
    port_busy: bool,
    side: bool,
    lies: bool,
    mute: bool,
    idle: bool,
    gone: bool,
    /// Until then it does not run.
    rests_until: Nanos,
    outcome: NodeOutcome,
}

struct World<'a> {
    setup: &'a Setup,
    manifest: Manifest,
    network: Network,
    machines: Vec<Machine>,
    /// How often each node has started or died.
    lives: Vec<u32>,
    /// Nodes that run, are waited for, and are not done.
    waiting: BTreeSet<u32>,
    slow: BTreeSet<u32>,
    ended_lives: Vec<Life>,
    agenda: Agenda,
    now: Nanos,
    events: Vec<(Duration, u32, Event)>,
    random: Random,
    /// Disturbances that are still to come, and machines that are not done.
    to_come: usize,
    steps: u64,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup) -> World<'a> {
        let manifest = Manifest::of(&setup.content, setup.chunk_bytes, setup.arity)
            .expect("a content that can be cast");
        let machine = |source: bool| Machine {
            node: None,
            memory: BTreeMap::new(),
            store: match source {
                true => setup.content.clone(),
                false => vec![0; setup.content.len()],
            },
            stored: None,
            leaders: vec![contact(0)],
            queue: VecDeque::new(),
            port_busy: false,
            side: false,
            lies: false,
            mute: false,
            idle: false,
            gone: false,
            rests_until: 0,
            outcome: NodeOutcome::default(),
        };
        let mut world = World {
            setup,
            manifest,
            network: Network::new(setup),
            machines: (0..=setup.nodes).map(|it| machine(it == 0)).collect(),
            lives: vec![0; setup.nodes as usize + 1],
            waiting: BTreeSet::new(),
            slow: setup.slow(),
            ended_lives: Vec::new(),
            agenda: Agenda::default(),
            now: 0,
            events: Vec::new(),
            random: Random::new(setup.seed),
            to_come: setup.disturbances.len(),
            steps: 0,
        };
        for (index, (at, _)) in setup.disturbances.iter().enumerate() {
            world.at(at.as_nanos() as Nanos, What::Disturbed(index));
        }
        for node in 0..=setup.nodes {
            if !world.comes_late(node) {
                world.start(node);
            }
        }
        world
    }

    /// Whether the first that happens to a node is that it starts.
    fn comes_late(&self, node: u32) -> bool {
        let first = self
            .setup
            .disturbances
            .iter()
            .filter_map(|(at, what)| match what {
                Disturbance::Kill(it) if *it == node => Some((at, false)),
                Disturbance::Start(it) if *it == node => Some((at, true)),
                _ => None,
            });
        first.min().is_some_and(|(_, starts)| starts)
    }

    fn run(&mut self) {
        let until = self.setup.until.as_nanos() as Nanos;
        while let Some((at, entry)) = self.agenda.next() {
            if at > until {
                break;
            }
            self.now = at;
            self.steps += 1;
            if self.lives_of(&entry.what) == entry.lives {
                self.happen(entry.what);
            }
            if self.steps.is_multiple_of(256) && self.to_come == 0 && self.waiting.is_empty() {
                break;
            }
        }
    }

    /// A node has started, died, is done or was put out.
    fn note(&mut self, node: u32) {
        let machine = &self.machines[node as usize];
        let runs = node > 0 && machine.node.is_some() && !machine.gone;
        match runs && machine.outcome.done.is_none() && self.is_awaited(node) {
            true => self.waiting.insert(node),
            false => self.waiting.remove(&node),
        };
    }

    fn time(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// How often the nodes have started that an entry is about.
    fn lives_of(&self, what: &What) -> [u32; 2] {
        let life = |it: u32| self.lives[it as usize];
        match what {
            What::Beat(node) | What::PortFree(node) => [life(*node), 0],
            What::Alive { from, .. } => [life(*from), 0],
            What::Unreached { node, .. }
            | What::Closed { node, .. }
            | What::Written { node, .. } => [life(*node), 0],
            What::Link { ends: [a, b] } => [life(*a), life(*b)],
            What::Read { node, to, .. } => [life(*node), life(*to)],
            What::Message { from, to, .. } | What::Arrived { from, to, .. } => {
                [life(*from), life(*to)]
            }
            What::Disturbed(_) => [0, 0],
        }
    }

    fn at(&mut self, at: Nanos, what: What) {
        let lives = self.lives_of(&what);
        self.agenda.enter(at, Entry { lives, what });
    }

    fn start(&mut self, node: u32) {
        let now = self.time();
        let profile = Profile {
            contact: contact(node),
            rack: self.network.rack_of(node),
            rate: 0,
        };
        let options = self.setup.options;
        self.lives[node as usize] += 1;
        let machine = &mut self.machines[node as usize];
        machine.outcome.started = now;
        machine.outcome.alive = true;
        machine.gone = false;
        machine.node = Some(match node {
            0 => Node::source(now, profile, self.manifest.clone(), options),
            _ => Node::receiver(
                now,
                profile,
                machine.leaders.clone(),
                options,
                machine.stored.clone(),
            ),
        });
        // Beats of different nodes do not fall together.
        let first = self.now + self.random.before(options.beat).as_nanos() as Nanos;
        self.at(first, What::Beat(node));
        self.note(node);
        self.act(node);
    }

    fn kill(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        let Some(killed) = machine.node.take() else {
            return;
        };
        self.lives[node as usize] += 1;
        self.ended_lives.push(Life {
            node,
            started: machine.outcome.started,
            done: machine.outcome.done,
            died: Some(Duration::from_nanos(self.now)),
        });
        machine.outcome.alive = false;
        machine.outcome.done = None;
        machine.memory.clear();
        machine.queue.clear();
        machine.port_busy = false;
        machine.leaders = killed.leaders().to_vec();
        if let Some(manifest) = killed.manifest() {
            let (root, has) = (manifest.header().root, killed.written().clone());
            machine.stored = Some(Stored { root, has });
        }
        self.note(node);
    }

    fn is_awaited(&self, node: u32) -> bool {
        self.setup.awaits_slow || !self.slow.contains(&node)
    }

    /// Whether what one sends reaches the other.
    fn reach(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.machines[a as usize], &self.machines[b as usize]);
        a.node.is_some() && b.node.is_some() && a.side == b.side
    }

    fn with(&mut self, node: u32, input: impl FnOnce(&mut Node, Duration)) {
        let now = self.time();
        if let Some(there) = &mut self.machines[node as usize].node {
            input(there, now);
            self.act(node);
        }
    }

    /// Until when the node rests to which this happens, if it does.
    fn rests(&self, what: &What) -> Option<Nanos> {
        let node = match what {
            What::Beat(node)
            | What::Unreached { node, .. }
            | What::Closed { node, .. }
            | What::Read { node, .. }
            | What::Written { node, .. } => *node,
            What::Message { to, .. } | What::Arrived { to, .. } => *to,
            What::Link { ends } => ends.iter().copied().max_by_key(|it| self.wakes(*it))?,
            What::Alive { .. } | What::PortFree(_) | What::Disturbed(_) => return None,
        };
        Some(self.wakes(node)).filter(|it| *it > self.now)
    }

    fn wakes(&self, node: u32) -> Nanos {
        self.machines[node as usize].rests_until
    }

    fn happen(&mut self, what: What) {
        if let Some(wakes) = self.rests(&what) {
            // The clock is looked at before all that came is read: the harder case.
            let later = Nanos::from(!matches!(what, What::Beat(_)));
            self.at(wakes + later, what);
            return;
        }
        match what {
            What::Beat(node) => {
                self.with(node, |it, now| it.timeout(now));
                if let Some(there) = &self.machines[node as usize].node {
                    let next = (there.next_timeout().as_nanos() as Nanos).max(self.now + 1);
                    self.at(next, What::Beat(node));
                }
            }
            What::Alive { from, to } => {
                for to in to {
                    if self.wakes(to) > self.now {
                        let message = Box::new(Message::Alive);
                        self.at(self.wakes(to), What::Message { from, to, message });
                    } else if self.reach(from, to) {
                        self.with(to, |it, now| it.message(now, id(from), Message::Alive));
                    }
                }
            }
            What::Link { ends: [a, b] } => {
                let has = |a: u32, b: u32| {
                    self.machines[a as usize]
                        .node
                        .as_ref()
                        .is_some_and(|it| it.is_connected(id(b)))
                };
                if !has(a, b) || !has(b, a) {
                    self.with(b, |it, now| it.connected(now, id(a)));
                    self.with(a, |it, now| it.connected(now, id(b)));
                }
            }
            What::Unreached { node, peer } | What::Closed { node, peer } => {
                self.with(node, |it, now| it.disconnected(now, id(peer)));
            }
            What::Message { from, to, message } => {
                self.with(to, |it, now| it.message(now, id(from), *message))
            }
            What::PortFree(node) => {
                self.machines[node as usize].port_busy = false;
                self.use_port(node);
            }
            What::Read { node, to, chunk } => {
                let payload = self.payload(node, chunk, true);
                self.queue(node, to, chunk, payload);
            }
            What::Arrived {
                from,
                to,
                chunk,
                payload,
            } => self.arrive(from, to, chunk, payload),
            What::Written { node, chunk } => {
                self.with(node, |it, now| it.written_chunk(now, chunk))
            }
            What::Disturbed(index) => self.disturb(index),
        }
    }

    fn arrive(&mut self, from: u32, to: u32, chunk: u32, payload: Payload) {
        let bytes = payload.len() as u64 * self.setup.scale;
        if !self.reach(from, to) || self.machines[to as usize].idle {
            return;
        }
        let machine = &mut self.machines[to as usize];
        machine.outcome.received += bytes;
        let now = Duration::from_nanos(self.now);
        let Some(node) = &mut machine.node else {
            return;
        };
        let right = node
            .manifest()
            .is_some_and(|it| it.check(chunk, &payload).is_ok());
        if node.chunk(now, id(from), chunk, right) {
            machine.memory.insert(chunk, payload);
        }
        self.act(to);
        self.with(from, |it, now| it.sent(now, id(to), chunk));
    }

    /// Does what a node asks for.
    fn act(&mut self, node: u32) {
        let mut alive = Vec::new();
        while let Some(action) = self.machines[node as usize]
            .node
            .as_mut()
            .and_then(Node::poll_action)
        {
            match action {
                Action::Send {
                    to,
                    message: Message::Alive,
                } if !self.setup.wire => alive.push(to.0 as u32),
                _ => self.do_one(node, action),
            }
        }
        if !alive.is_empty() {
            let (at, from) = (self.now + self.network.latency(), node);
            self.at(at, What::Alive { from, to: alive });
        }
    }

    fn do_one(&mut self, node: u32, action: Action) {
        let (now, latency) = (self.now, self.network.latency());
        match action {
            Action::Connect(to) => {
                let peer = to.id.0 as u32;
                match self.reach(node, peer) {
                    true => self.at(now + 2 * latency, What::Link { ends: [node, peer] }),
                    false => self.at(now + CONNECT_TIMEOUT, What::Unreached { node, peer }),
                }
            }
            Action::Disconnect(peer) => {
                let peer = peer.0 as u32;
                self.machines[node as usize].queue.retain(|it| it.0 != peer);
                if self.reach(node, peer) {
                    self.at(
                        now + latency,
                        What::Closed {
                            node: peer,
                            peer: node,
                        },
                    );
                }
            }
            Action::Send { to, message } => {
                let to = to.0 as u32;
                if self.reach(node, to) {
                    let message = match self.setup.wire {
                        true => {
                            Message::parse(&message.encode()).expect("what nodes say is a message")
                        }
                        false => message,
                    };
                    self.at(
                        now + latency,
                        What::Message {
                            from: node,
                            to,
                            message: Box::new(message),
                        },
                    );
                }
            }
            Action::SendChunk {
                to,
                chunk,
                from_store,
            } => self.send_chunk(node, to.0 as u32, chunk, from_store),
            // It is at the port already, and arrives.
            Action::Withdraw { .. } => {}
            Action::Write(chunk) => self.write(node, chunk),
            Action::Fill(_) => unreachable!("options.fills is off: here each chunk takes its time"),
            Action::Forget(chunk) => drop(self.machines[node as usize].memory.remove(&chunk)),
            Action::Tell(event) => self.tell(node, event),
        }
    }

    fn tell(&mut self, node: u32, event: Event) {
        let machine = &mut self.machines[node as usize];
        match event {
            Event::Done => match machine.store == self.setup.content {
                true => machine.outcome.done = Some(Duration::from_nanos(self.now)),
                false => machine.outcome.wrong = true,
            },
            Event::Dismissed(_) => machine.gone = true,
            _ => {}
        }
        self.note(node);
        self.events.push((self.time(), node, event));
    }

    fn range(&self, chunk: u32) -> std::ops::Range<usize> {
        let begin = chunk as usize * self.setup.chunk_bytes as usize;
        begin..begin + self.manifest.header().bytes_of(chunk)
    }

    fn payload(&self, node: u32, chunk: u32, from_store: bool) -> Payload {
        let machine = &self.machines[node as usize];
        let payload = match from_store {
            true => Payload::from(&machine.store[self.range(chunk)]),
            false => machine.memory[&chunk].clone(),
        };
        match machine.lies {
            true => payload.iter().map(|it| !it).collect(),
            false => payload,
        }
    }

    fn send_chunk(&mut self, node: u32, to: u32, chunk: u32, from_store: bool) {
        if self.machines[node as usize].mute {
            return;
        }
        if from_store {
            let bytes = self.range(chunk).len() as u64 * self.setup.scale;
            let at = self.network.disk(self.now, node, bytes);
            if at > self.now {
                self.at(at, What::Read { node, to, chunk });
                return;
            }
        }
        let payload = self.payload(node, chunk, from_store);
        self.queue(node, to, chunk, payload);
    }

    fn queue(&mut self, node: u32, to: u32, chunk: u32, payload: Payload) {
        self.machines[node as usize]
            .queue
            .push_back((to, chunk, payload));
        self.use_port(node);
    }

    fn use_port(&mut self, node: u32) {
        while !self.machines[node as usize].port_busy {
            let Some((to, chunk, payload)) = self.machines[node as usize].queue.pop_front() else {
                return;
            };
            if !self.reach(node, to) {
                continue;
            }
            let bytes = payload.len() as u64 * self.setup.scale;
            let machine = &mut self.machines[node as usize];
            machine.port_busy = true;
            machine.outcome.sent += bytes;
            let (free, arrives) = self.network.send(self.now, node, to, bytes);
            self.at(free, What::PortFree(node));
            self.at(
                arrives,
                What::Arrived {
                    from: node,
                    to,
                    chunk,
                    payload,
                },
            );
        }
    }

    fn write(&mut self, node: u32, chunk: u32) {
        let range = self.range(chunk);
        let bytes = range.len() as u64 * self.setup.scale;
        let at = self.network.disk(self.now, node, bytes);
        let machine = &mut self.machines[node as usize];
        let payload = &machine.memory[&chunk];
        machine.store[range].copy_from_slice(payload);
        match at > self.now {
            true => self.at(at, What::Written { node, chunk }),
            false => self.with(node, |it, now| it.written_chunk(now, chunk)),
        }
    }

    fn disturb(&mut self, index: usize) {
        self.to_come -= 1;
        match self.setup.disturbances[index].1.clone() {
            Disturbance::Kill(node) => self.kill(node),
            Disturbance::Start(node) => {
                if self.machines[node as usize].node.is_none() {
                    self.start(node);
                }
            }
            Disturbance::Replace(node) => {
                let machine = &mut self.machines[node as usize];
                if machine.node.is_none() {
                    machine.store.fill(0);
                    machine.stored = None;
                    machine.leaders = vec![contact(0)];
                    self.start(node);
                }
            }
            Disturbance::Slow(node, factor) => self.network.slow_down(node, factor),
            Disturbance::Lie(node) => self.machines[node as usize].lies = true,
            Disturbance::Mute(node) => self.machines[node as usize].mute = true,
            Disturbance::Idle(node) => self.machines[node as usize].idle = true,
            Disturbance::Accuse(node) => {
                for peer in 1..=self.setup.nodes {
                    let fault = Fault::WrongChunk;
                    let message = Box::new(Message::Report {
                        peer: id(peer),
                        fault,
                    });
                    self.at(
                        self.now,
                        What::Message {
                            from: node,
                            to: 0,
                            message,
                        },
                    );
                }
            }
            Disturbance::Rest(node, time) => {
                self.machines[node as usize].rests_until = self.now + time.as_nanos() as Nanos;
            }
            Disturbance::Split(nodes) => {
                for node in nodes {
                    self.machines[node as usize].side = true;
                }
            }
            Disturbance::Heal => {
                for machine in &mut self.machines {
                    machine.side = false;
                }
            }
        }
    }

    fn outcome(self) -> Outcome {
        let ended = self.time();
        let mut lives = self.ended_lives;
        let living = self.machines.iter().zip(0..);
        lives.extend(
            living
                .skip(1)
                .filter(|(it, _)| it.outcome.alive)
                .map(|(it, node)| Life {
                    node,
                    started: it.outcome.started,
                    done: it.outcome.done,
                    died: None,
                }),
        );
        let nodes = self.machines.into_iter().map(|mut it| {
            if let Some(node) = &it.node {
                it.outcome.peak_window = it.outcome.peak_window.max(node.counters().peak_window);
            }
            it.outcome
        });
        Outcome {
            nodes: nodes.collect(),
            lives,
            uplinks: self.network.carried(),
            events: self.events,
            ended,
            steps: self.steps,
        }
    }
}

fn id(node: u32) -> NodeId {
    NodeId(u64::from(node))
}

fn contact(node: u32) -> Contact {
    Contact {
        id: id(node),
        address: Vec::new(),
    }
}
