//! Tests which chunks a node without spilling keeps for a peer, and for how long.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Manifest, Message, Node, NodeId, Options, Place};

use crate::{contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const PREDECESSOR: NodeId = NodeId(3);
const PEER: NodeId = NodeId(4);
const CHUNKS: u32 = 32;

/// A node that does not spill. Its predecessor sends what it is asked for at once, its disk writes as fast.
struct Held {
    node: Node,
    /// What it told.
    told: Vec<Event>,
    /// Chunks on their way to the peer.
    sent: Vec<u32>,
}

impl Held {
    fn new(options: Options) -> Held {
        let now = Duration::ZERO;
        let mut node = Node::receiver(now, profile(OWN), vec![contact(SOURCE)], options, None);
        node.connected(now, SOURCE);
        let manifest = Manifest::of(&[7; CHUNKS as usize * 8], 8, 1).unwrap();
        node.message(now, SOURCE, Message::Welcome(manifest.header()));
        let hashes = manifest.hashes().to_vec();
        node.message(now, SOURCE, Message::Hashes { first: 0, hashes });
        let place = Place {
            epoch: 1,
            predecessors: vec![Some(contact(PREDECESSOR))],
            helpers: Vec::new(),
            successors: Vec::new(),
            demoted: false,
        };
        node.message(now, SOURCE, Message::Place(place));
        node.connected(now, PEER);
        let all = (0..CHUNKS).collect();
        node.message(now, PEER, Message::Request(all));
        node.connected(now, PREDECESSOR);
        Held {
            node,
            told: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Executes all pending actions.
    fn act(&mut self, now: Duration) {
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::Send {
                    to: PREDECESSOR,
                    message: Message::Request(chunks),
                } => {
                    for chunk in chunks {
                        self.node.chunk(now, PREDECESSOR, chunk, true);
                    }
                }
                Action::Write(chunk) => self.node.written_chunk(now, chunk),
                Action::SendChunk {
                    to: PEER, chunk, ..
                } => self.sent.push(chunk),
                Action::Tell(event) => self.told.push(event),
                _ => {}
            }
        }
    }

    /// Beats until then; `take` says at each which of the chunks on their way the peer takes.
    fn run(&mut self, until: Duration, mut take: impl FnMut(Duration) -> bool) {
        self.act(Duration::ZERO);
        while self.node.next_timeout() < until {
            let now = self.node.next_timeout();
            for peer in [SOURCE, PREDECESSOR, PEER] {
                self.node.message(now, peer, Message::Alive);
            }
            if take(now) && !self.sent.is_empty() {
                let chunk = self.sent.remove(0);
                self.node.sent(now, PEER, chunk);
            }
            self.node.timeout(now);
            self.act(now);
        }
    }
}

fn options() -> Options {
    Options {
        spill: false,
        window: 8,
        patience: Duration::from_secs(10),
        ..Options::default()
    }
}

/// It asks for chunks and has no room for them.
#[test]
fn peer__that_takes_nothing_holds_nothing_before_the_node_is_stuck() {
    let options = options();
    let mut held = Held::new(options);
    held.run(options.patience / 2, |_| false);
    let written = held.node.written().count();
    assert!(
        written <= options.window,
        "{written}: it is held up for a time"
    );
    held.run(options.patience * 3, |_| false);
    assert!(held.node.is_done(), "{}", held.node.written().count());
    assert!(!held.told.iter().any(|it| matches!(it, Event::Stuck { .. })));
}

#[test]
fn peer__that_is_slow_holds_all_that_it_lacks() {
    let options = options();
    let mut held = Held::new(options);
    let (each, mut taken) = (options.patience / 3, 0);
    held.run(each * (CHUNKS - options.window), |now| {
        let takes = now >= each * (taken + 1);
        taken += u32::from(takes);
        takes
    });
    let written = held.node.written().count();
    assert!(written < CHUNKS, "{written}, {taken} taken");
    assert_eq!(held.node.counters().chunks_read, 0);
}
