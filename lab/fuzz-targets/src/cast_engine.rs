//! Fuzzes the engine of a cast with events in any order: connections, chunks (requested or not, right or wrong), silence,
//! and answers of its own driver. No panic; no more chunks in memory than the window and the reads in progress.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use zerolane_cast::{Action, Contact, Manifest, Message, Node, NodeId, Options, Place, Profile};

fn contact(id: u8) -> Contact {
    Contact {
        id: NodeId(u64::from(id)),
        address: Vec::new(),
    }
}

fn profile(id: u8) -> Profile {
    Profile {
        contact: contact(id),
        rack: u32::from(id / 3),
        rate: 0,
    }
}

/// What the driver owes a node.
#[derive(Default)]
struct Driver {
    memory: BTreeSet<u32>,
    fills: VecDeque<u32>,
    writes: VecDeque<u32>,
    sends: VecDeque<(NodeId, u32)>,
}

impl Driver {
    fn act(&mut self, node: &mut Node) {
        while let Some(action) = node.poll_action() {
            match action {
                Action::Fill(chunk) => self.fills.push_back(chunk),
                Action::Write(chunk) => self.writes.push_back(chunk),
                Action::SendChunk {
                    to,
                    chunk,
                    from_store,
                } => {
                    assert!(from_store || self.memory.contains(&chunk));
                    self.sends.push_back((to, chunk));
                }
                Action::Forget(chunk) => assert!(self.memory.remove(&chunk)),
                _ => {}
            }
        }
    }
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let mut now = Duration::ZERO;
    let mut content = [7; 400];
    content[..50].fill(0);
    let manifest = Manifest::of(&content, 10, 2).expect("forty chunks");
    let options = Options {
        window: 6,
        fills: true,
        ..Options::default()
    };
    let header = manifest.header();
    let hashes = manifest.hashes().to_vec();
    let mut source = Node::source(now, profile(0), manifest, options);
    let mut node = Node::receiver(now, profile(1), vec![contact(0)], options, None);
    let (mut of_source, mut driver) = (Driver::default(), Driver::default());
    for pair in input.chunks_exact(2) {
        let (peer, number) = (NodeId(u64::from(pair[1] % 6)), u32::from(pair[1]) % 40);
        let predecessor = |it: u8| (!it.is_multiple_of(7)).then(|| contact(it % 7));
        let message = match pair[0] % 24 {
            0 => Some(Message::Welcome(header)),
            1 => Some(Message::Hashes {
                first: 0,
                hashes: hashes.clone(),
            }),
            2 => Some(Message::Place(Place {
                epoch: u64::from(pair[1] / 16),
                predecessors: vec![predecessor(pair[1]), predecessor(pair[1] / 7)],
                helpers: vec![contact(pair[1] % 5)],
                successors: vec![contact(pair[1] % 3)],
                demoted: pair[1] > 127,
            })),
            3 => Some(Message::Request(vec![number, (number + 2) % 40])),
            4 => Some(Message::Cancel(vec![number])),
            5 => Some(Message::Missing(vec![number])),
            6 => Some(Message::Hello {
                root: header.root,
                has: zerolane_cast::Bitmap::full(40),
                answer: pair[1] > 127,
                demoted: pair[1] % 2 > 0,
            }),
            7 => Some(Message::Helpers(vec![contact(pair[1] % 6)])),
            8 => Some(Message::Progress {
                verified: vec![number / 2, number / 3],
                done: pair[1] > 250,
                held_by: (pair[1] > 200).then_some(peer),
            }),
            9 => Some(Message::Join {
                address: Vec::new(),
                rack: number % 3,
                rate: u64::from(pair[1]),
                root: header.root,
                has: zerolane_cast::Bitmap::empty(40),
            }),
            10 => Some(Message::Seek),
            11 => Some(Message::Report {
                peer: NodeId(u64::from(pair[1] / 6)),
                fault: zerolane_cast::Fault::Gone,
            }),
            _ => None,
        };
        match (message, pair[0] % 24) {
            (Some(message), _) => {
                source.message(now, peer, message.clone());
                node.message(now, peer, message);
            }
            (None, 12 | 13) => {
                source.connected(now, peer);
                node.connected(now, peer);
            }
            (None, 14) => {
                source.disconnected(now, peer);
                node.disconnected(now, peer);
                driver.sends.retain(|it| it.0 != peer);
                of_source.sends.retain(|it| it.0 != peer);
            }
            (None, 15..=18) => {
                if node.chunk(now, peer, number, pair[0] > 15) {
                    assert!(driver.memory.insert(number), "kept twice");
                }
            }
            (None, 19) => {
                if let Some(chunk) = driver.writes.pop_front() {
                    node.written_chunk(now, chunk);
                }
            }
            (None, 20) => {
                if let Some((to, chunk)) = driver.sends.pop_front() {
                    node.sent(now, to, chunk);
                }
                if let Some((to, chunk)) = of_source.sends.pop_front() {
                    source.sent(now, to, chunk);
                }
            }
            (None, 21) => {
                if let Some(chunk) = driver.fills.pop_front() {
                    node.filled(now, chunk);
                }
            }
            _ => {
                now += Duration::from_millis(u64::from(pair[1]) * 4);
                source.timeout(now);
                node.timeout(now);
            }
        }
        of_source.act(&mut source);
        driver.act(&mut node);
        assert!(driver.memory.len() <= 6, "more than the window");
    }
}
