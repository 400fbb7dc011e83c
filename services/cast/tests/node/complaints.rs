//! Tests that complaints of honest nodes are no flood, whatever the source or a hostile peer does.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Fault, Manifest, Message, Node, NodeId, Options, Place};

use crate::{actions, contact, join, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const PREDECESSOR: NodeId = NodeId(3);
const CHUNKS: u32 = 8;

fn manifest() -> Manifest {
    Manifest::of(&[7; 8 * CHUNKS as usize], 8, 1).unwrap()
}

fn options() -> Options {
    Options {
        expected: 1,
        silence: Duration::from_secs(2),
        ..Options::default()
    }
}

/// A node with a place below its predecessor, which knows the digests.
fn placed() -> Node {
    let now = Duration::ZERO;
    let leaders = vec![contact(SOURCE)];
    let mut node = Node::receiver(now, profile(OWN), leaders, options(), None);
    node.connected(now, SOURCE);
    node.message(now, SOURCE, Message::Welcome(manifest().header()));
    let hashes = manifest().hashes().to_vec();
    node.message(now, SOURCE, Message::Hashes { first: 0, hashes });
    let place = Place {
        epoch: 1,
        predecessors: vec![Some(contact(PREDECESSOR))],
        helpers: Vec::new(),
        successors: Vec::new(),
        demoted: false,
    };
    node.message(now, SOURCE, Message::Place(place));
    node.connected(now, PREDECESSOR);
    actions(&mut node);
    node
}

fn complaints(actions: &[Action]) -> Vec<Message> {
    let of = |it: &Action| match it {
        Action::Send {
            to: SOURCE,
            message: message @ (Message::Report { .. } | Message::Seek),
        } => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// The predecessor refuses each connection, and the source hears nothing of it until its processor is free.
#[test]
fn complaints__that_a_busy_source_hears_together_are_no_flood() {
    let options = options();
    for clock_first in [false, true] {
        let mut node = placed();
        let mut source = Node::source(Duration::ZERO, profile(SOURCE), manifest(), options);
        source.connected(Duration::ZERO, OWN);
        source.message(Duration::ZERO, OWN, join());
        while source.next_timeout() < Duration::from_secs(1) {
            source.message(source.next_timeout(), OWN, Message::Alive);
            source.timeout(source.next_timeout());
        }
        actions(&mut source);
        let mut said = Vec::new();
        while node.next_timeout() < options.silence {
            let now = node.next_timeout();
            node.message(now, SOURCE, Message::Alive);
            node.timeout(now);
            node.disconnected(now, PREDECESSOR);
            said.extend(complaints(&actions(&mut node)));
        }
        assert!(said.len() > 15, "{said:?}");
        let now = source.next_timeout() + options.silence;
        if clock_first {
            source.timeout(now);
        }
        for complaint in said {
            source.message(now, OWN, complaint);
        }
        source.timeout(now);
        let done = actions(&mut source);
        let failed = |it: &Action| matches!(it, Action::Tell(Event::NodeFailed(..)));
        assert!(!done.iter().any(failed), "{done:?}");
    }
}

/// It says again and again that it lacks what was asked of it, so that the node seems to flood the source.
#[test]
fn missing__said_again_and_again_makes_no_flood_of_reports() {
    let mut node = placed();
    let mut said = Vec::new();
    for round in 0..100 {
        let chunks = (0..CHUNKS).collect();
        node.message(Duration::ZERO, PREDECESSOR, Message::Missing(chunks));
        if round % 2 == 0 {
            node.message(Duration::ZERO, PREDECESSOR, Message::Missing(Vec::new()));
        }
        said.extend(complaints(&actions(&mut node)));
    }
    let gone = Message::Report {
        peer: PREDECESSOR,
        fault: Fault::Gone,
    };
    assert_eq!(said, [gone]);
}
