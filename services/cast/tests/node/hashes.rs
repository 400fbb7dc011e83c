//! Tests that a node takes the digests of a slow peer, which come late, twice, or in many parts.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::limits::HASHES_PER_MESSAGE;
use zerolane_cast::{Action, Event, Fault, Hash, Manifest, Message, Node, NodeId, Options};

use crate::{actions, contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);

/// Parts of the digests.
const PARTS: usize = 4;

fn manifest() -> Manifest {
    let chunks = HASHES_PER_MESSAGE * PARTS;
    Manifest::of(&vec![7; chunks * 8], 8, 1).unwrap()
}

/// A node that asked the source for the digests.
fn asking(manifest: &Manifest) -> Node {
    let now = Duration::ZERO;
    let leaders = vec![contact(SOURCE)];
    let mut node = Node::receiver(now, profile(OWN), leaders, Options::default(), None);
    node.connected(now, SOURCE);
    node.message(now, SOURCE, Message::Welcome(manifest.header()));
    node
}

fn answer(manifest: &Manifest, first: u32) -> Message {
    let of = first as usize..first as usize + HASHES_PER_MESSAGE;
    let hashes: Vec<Hash> = manifest.hashes()[of].to_vec();
    Message::Hashes { first, hashes }
}

fn asked(actions: &[Action]) -> Vec<u32> {
    let of = |it: &Action| match it {
        Action::Send {
            to: SOURCE,
            message: Message::AskHashes { first },
        } => Some(*first),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn accuses(actions: &[Action]) -> bool {
    let liar = |it: &Action| matches!(it, Action::Tell(Event::Liar { .. }));
    actions.iter().any(liar)
}

/// Lets time pass until `until`, in which the source is there; what the node asks for then.
fn wait(node: &mut Node, until: Duration) -> Vec<u32> {
    let mut all = Vec::new();
    while node.next_timeout() < until {
        let now = node.next_timeout();
        node.message(now, SOURCE, Message::Alive);
        node.timeout(now);
        let done = actions(node);
        assert!(!accuses(&done), "{done:?}");
        all.extend(asked(&done));
    }
    all
}

/// The node asked again because the answer took long: both come.
#[test]
fn hashes__that_come_twice_because_the_source_is_slow_are_no_fault() {
    let manifest = manifest();
    let mut node = asking(&manifest);
    let mut asks = asked(&actions(&mut node));
    asks.extend(wait(&mut node, Options::default().stall * 3));
    assert!(asks.len() > 1 && asks.iter().all(|it| *it == 0), "{asks:?}");
    let now = Options::default().stall * 3;
    while !asks.is_empty() {
        node.message(now, SOURCE, answer(&manifest, asks.remove(0)));
        let done = actions(&mut node);
        assert!(!accuses(&done), "{done:?}");
        asks.extend(asked(&done));
    }
    assert!(node.manifest().is_some());
}

/// Each part takes less time than a peer has, and all of them more.
#[test]
fn hashes__in_parts_that_each_come_in_time_are_asked_for_once() {
    let manifest = manifest();
    let mut node = asking(&manifest);
    let each = Options::default().stall / 2;
    let mut asks = asked(&actions(&mut node));
    for part in 1..=PARTS as u32 {
        let now = each * part;
        asks.extend(wait(&mut node, now));
        assert_eq!(asks.len(), 1, "part {part}: {asks:?}");
        node.message(now, SOURCE, answer(&manifest, asks.remove(0)));
        asks.extend(asked(&actions(&mut node)));
    }
    assert!(node.manifest().is_some());
}

#[test]
fn hashes__that_are_none_or_too_few_or_too_many_are_an_accusation() {
    let manifest = manifest();
    for count in [0, 1, HASHES_PER_MESSAGE - 1, HASHES_PER_MESSAGE + 1] {
        let mut node = asking(&manifest);
        let hashes = vec![[0; 32]; count];
        let first = 0;
        node.message(Duration::ZERO, SOURCE, Message::Hashes { first, hashes });
        let liar = Action::Tell(Event::Liar {
            peer: SOURCE,
            by: OWN,
            fault: Fault::WrongHashes,
        });
        assert!(actions(&mut node).contains(&liar));
    }
}
