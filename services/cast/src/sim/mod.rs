//! Simulates a cast in virtual time: runs the real engine over a model of a network.
//!
//! A network is ports with a rate, a latency and, with racks, uplinks that the nodes of a rack share. A chunk occupies its
//! sender's port, the uplinks and its receiver's port for as long as its bytes need; messages take the latency alone. The
//! content is small and stands for a large one: each of its bytes counts as `scale` bytes on the wire. Its bytes are real,
//! so each node's result is compared with the source's.

mod network;
pub mod table;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::options::{Event, Options, window_for};
pub use crate::sim::world::run;

/// The setup of a simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes besides the source, whose number is 0.
    pub nodes: u32,
    /// The content.
    pub content: Vec<u8>,
    /// Bytes of a chunk of it.
    pub chunk_bytes: u32,
    /// Bytes on the wire and in memory that each byte of it stands for.
    pub scale: u64,
    /// 1 is a chain.
    pub arity: u32,
    /// Bytes a second of each port, in each direction.
    pub port: u64,
    /// One-way latency between two nodes.
    pub latency: Duration,
    /// Bytes/s of each node's disk; 0 if it is never the limit.
    pub disk: u64,
    /// The same for the source, which reads.
    pub source_disk: u64,
    /// Racks, if the network has two levels.
    pub racks: Option<Racks>,
    /// Options of the nodes.
    pub options: Options,
    /// Seed of all random choices.
    pub seed: u64,
    /// The disturbances, with their times.
    pub disturbances: Vec<(Duration, Disturbance)>,
    /// Time limit of the simulation.
    pub until: Duration,
    /// Whether the simulation also waits for the slow nodes.
    pub awaits_slow: bool,
    /// Whether each message is encoded and parsed.
    pub wire: bool,
}

/// A network of two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Racks {
    /// Nodes of a rack.
    pub nodes: u32,
    /// Bytes a second of a rack's uplink, in each direction.
    pub uplink: u64,
}

/// A large group with faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Nodes besides the source.
    pub nodes: u32,
    /// Bytes of the content.
    pub bytes: u64,
    /// Bytes a second of each port.
    pub port: u64,
    /// 1 is a chain.
    pub arity: u32,
    /// Racks, if the network has two levels.
    pub racks: Option<Racks>,
    /// Share of the nodes that die, each at a random moment, 0 to 1. At least one node unless 0.
    pub dying: f64,
    /// Share of the nodes that are slow from the start, 0 to 1. At least one node unless 0.
    pub slow: f64,
    /// The factor by which they are slow.
    pub slow_by: u32,
    /// Seed of all random choices in the group.
    pub seed: u64,
}

/// Chunks that all nodes of a large group receive together: what a simulation costs, some microseconds each.
const ARRIVALS: u64 = 400_000;

/// Chunks of a large content in a simulation. Few are coarser than any that is cast: the trees fill the more slowly, and slow
/// nodes are found the later.
const CHUNKS: std::ops::RangeInclusive<u64> = 400..=1500;

/// Bytes of the smallest chunk.
const LEAST_CHUNK: u64 = 1 << 20;

/// A disturbance of the planned course.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// A node dies without a word.
    Kill(u32),
    /// A node starts: one that was killed, with what it had written; or one that comes late, if it did not start before.
    Start(u32),
    /// A node that was killed starts with an empty store: it is another machine, or has another disk.
    Replace(u32),
    /// A node's port has so many times less than its rate.
    Slow(u32, u32),
    /// A node damages each chunk that it sends.
    Lie(u32),
    /// A node takes what it is sent, and sends no chunk.
    Mute(u32),
    /// A node says that it is there, and takes nothing.
    Idle(u32),
    /// A node says that its predecessors sent wrong chunks.
    Accuse(u32),
    /// A node does not run for so long, and then finds all that came meanwhile.
    Rest(u32, Duration),
    /// These nodes and the others do not reach each other.
    Split(Vec<u32>),
    /// All reach each other again.
    Heal,
}

/// The outcome of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOutcome {
    /// When it started last.
    pub started: Duration,
    /// Whether it runs at the end.
    pub alive: bool,
    /// When it had all content, equal to the source's.
    pub done: Option<Duration>,
    /// It finished with content that differs from the source's.
    pub wrong: bool,
    /// Bytes on the wire of chunks that it sent.
    pub sent: u64,
    /// Bytes on the wire of chunks that it received.
    pub received: u64,
    /// The most chunks in memory.
    pub peak_window: u32,
}

/// One life of a node, from a start to its death or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Which node.
    pub node: u32,
    /// When it started.
    pub started: Duration,
    /// When it had all.
    pub done: Option<Duration>,
    /// When it died; `None` if it lived at the end.
    pub died: Option<Duration>,
}

/// Bytes of chunks that a rack's uplink carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    /// Out of the rack.
    pub sent: u64,
    /// Into the rack.
    pub received: u64,
}

/// How a simulation ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By number; the source first.
    pub nodes: Vec<NodeOutcome>,
    /// In order of death, followed by those that lived at the end.
    pub lives: Vec<Life>,
    /// By rack, the source's first; empty without racks.
    pub uplinks: Vec<Uplink>,
    /// Events of all nodes, including the coordinator's.
    pub events: Vec<(Duration, u32, Event)>,
    /// When the simulation ended.
    pub ended: Duration,
    /// Events of the model.
    pub steps: u64,
}

impl Setup {
    /// A chain of `nodes` nodes on ports of `port` bytes a second, for a content of `chunks` chunks of `bytes` bytes.
    #[must_use]
    pub fn new(nodes: u32, chunks: u32, bytes: u64, port: u64) -> Setup {
        const BYTES: u32 = 8;
        let content = (0..u64::from(chunks))
            .flat_map(|it| it.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Setup {
            nodes,
            content: content.collect(),
            chunk_bytes: BYTES,
            scale: (bytes / u64::from(BYTES)).max(1),
            arity: 1,
            port,
            latency: Duration::from_micros(50),
            disk: 0,
            source_disk: 0,
            racks: None,
            options: Options {
                expected: nodes,
                ..Options::default()
            },
            seed: 1,
            disturbances: Vec::new(),
            until: Duration::from_secs(3600),
            awaits_slow: true,
            wire: true,
        }
    }

    /// A large group in which some nodes die and some are slow. Coarse chunks and long beats make the simulation fast.
    #[must_use]
    pub fn group(group: &Group) -> Setup {
        let chunks =
            (ARRIVALS / u64::from(group.nodes.max(1))).clamp(*CHUNKS.start(), *CHUNKS.end());
        let chunk = (group.bytes / chunks).max(LEAST_CHUNK);
        let chunks = u32::try_from(group.bytes.div_ceil(chunk))
            .unwrap_or(u32::MAX)
            .max(1);
        let mut setup = Setup::new(group.nodes, chunks, chunk, group.port).with_arity(group.arity);
        let ideal = setup.ideal();
        setup.seed = group.seed;
        setup.racks = group.racks;
        setup.wire = false;
        setup.awaits_slow = false;
        // The coordinator hears of each node at each beat: 2,500 times a second, and some more where there are very many.
        let beat = Duration::from_micros(400) * group.nodes;
        let options = &mut setup.options;
        options.beat = beat.clamp(options.beat, Duration::from_millis(600));
        options.suspicion = options.suspicion.max(options.beat * 5 / 2);
        options.silence = options.silence.max(options.beat * 4);
        options.stall = options.stall.max(options.beat * 5);
        setup.until = ideal * 20 + Duration::from_secs(600);
        let mut random = Random::new(group.seed);
        let mut nodes: Vec<u32> = (1..=group.nodes).collect();
        let mut pick = |share: f64| {
            let least = usize::from(share > 0.0);
            let count = ((f64::from(group.nodes) * share).round() as usize).max(least);
            let picked = (0..count.min(nodes.len()))
                .map(|_| nodes.swap_remove(random.below(nodes.len() as u64) as usize));
            picked.collect::<Vec<_>>()
        };
        let (dying, slow) = (pick(group.dying), pick(group.slow));
        let deaths = dying
            .into_iter()
            .map(|it| (random.before(ideal), Disturbance::Kill(it)));
        let slow = slow
            .into_iter()
            .map(|it| (Duration::ZERO, Disturbance::Slow(it, group.slow_by)));
        setup.disturbances = deaths.chain(slow).collect();
        setup
    }

    /// The nodes that neither die nor are slow.
    #[must_use]
    pub fn sound(&self) -> Vec<u32> {
        let mut sound: BTreeSet<u32> = (1..=self.nodes).collect();
        for (_, what) in &self.disturbances {
            if let Disturbance::Kill(node) | Disturbance::Slow(node, _) = what {
                sound.remove(node);
            }
        }
        sound.into_iter().collect()
    }

    fn slow(&self) -> BTreeSet<u32> {
        let slow = self.disturbances.iter().filter_map(|(_, what)| match what {
            Disturbance::Slow(node, _) => Some(*node),
            _ => None,
        });
        slow.collect()
    }

    /// The same by trees of `arity` stripes, with the memory that they need.
    #[must_use]
    pub fn with_arity(mut self, arity: u32) -> Setup {
        self.arity = arity;
        self.options.window = window_for(arity);
        self
    }

    /// Bytes that the content stands for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.len() as u64 * self.scale
    }

    /// The time in which a port passes the content once: no cast is faster.
    #[must_use]
    pub fn ideal(&self) -> Duration {
        Duration::from_secs_f64(self.bytes() as f64 / self.port as f64)
    }
}

impl Outcome {
    /// When the last of these nodes finished; `None` if one did not.
    #[must_use]
    pub fn done(&self, nodes: impl IntoIterator<Item = u32>) -> Option<Duration> {
        let mut last = Duration::ZERO;
        for node in nodes {
            last = last.max(self.nodes[node as usize].done?);
        }
        Some(last)
    }

    /// Whether any node reported such an event.
    #[must_use]
    pub fn told(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, _, event)| wanted(event))
    }
}

/// A pseudo-random sequence from a seed: SplitMix64, the same in every release.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// A time before `limit`.
    pub fn before(&mut self, limit: Duration) -> Duration {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanos.max(1)))
    }
}
