//! Tests that a node handles a failed connection to its source, and a connection that it refuses.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::limits::MAX_PEERS;
use zerolane_cast::{Action, Contact, Manifest, Message, Node, NodeId, Options, Place};

use crate::{actions, contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const SUCCESSOR: NodeId = NodeId(3);

fn connects_to_source(actions: &[Action]) -> bool {
    actions.contains(&Action::Connect(contact(SOURCE)))
}

/// A node that receives from the source, whose connection has just failed.
fn cut_off(options: Options) -> Node {
    let now = Duration::ZERO;
    let mut node = Node::receiver(now, profile(OWN), vec![contact(SOURCE)], options, None);
    node.connected(now, SOURCE);
    let header = Manifest::of(&[7; 64], 8, 1).unwrap().header();
    node.message(now, SOURCE, Message::Welcome(header));
    let place = Place {
        epoch: 1,
        predecessors: vec![Some(contact(SUCCESSOR))],
        helpers: Vec::new(),
        successors: vec![contact(SUCCESSOR)],
        demoted: false,
    };
    node.message(now, SOURCE, Message::Place(place));
    node.connected(now, SUCCESSOR);
    actions(&mut node);
    node.disconnected(now, SOURCE);
    assert!(!connects_to_source(&actions(&mut node)));
    node
}

/// The source waits a few seconds for a node that it lost when all others are done.
#[test]
fn source__that_is_lost_is_tried_again_at_the_next_beat() {
    let options = Options::default();
    let mut node = cut_off(options);
    let now = node.next_timeout();
    assert!(now <= options.beat * 2);
    node.timeout(now);
    assert!(connects_to_source(&actions(&mut node)));
}

/// It was called: the source misses it, and is there.
#[test]
fn source__that_calls_is_reached_at_once() {
    let mut node = cut_off(Options::default());
    node.reach_source(Duration::ZERO);
    assert!(connects_to_source(&actions(&mut node)));
    // There is one on its way.
    node.reach_source(Duration::ZERO);
    assert!(!connects_to_source(&actions(&mut node)));
    let now = Duration::from_millis(1);
    node.connected(now, SOURCE);
    let joins = |it: &Action| {
        matches!(
            it,
            Action::Send {
                to: SOURCE,
                message: Message::Join { .. }
            }
        )
    };
    assert!(actions(&mut node).iter().any(joins));
}

/// A source that listens on the wildcard address announces that address: a node that dials it reaches itself.
#[test]
fn source__is_reached_where_it_was_and_not_where_it_says() {
    let mut node = cut_off(Options::default());
    let now = Duration::ZERO;
    node.connected(now, SOURCE);
    let place = Place {
        epoch: 2,
        predecessors: vec![Some(Contact {
            id: SOURCE,
            address: b"0.0.0.0:7".to_vec(),
        })],
        helpers: Vec::new(),
        successors: vec![contact(SUCCESSOR)],
        demoted: false,
    };
    node.message(now, SOURCE, Message::Place(place));
    node.disconnected(now, SOURCE);
    let mut dials = 0;
    for _ in 0..10 {
        let now = node.next_timeout();
        node.message(now, SUCCESSOR, Message::Alive);
        node.timeout(now);
        for action in actions(&mut node) {
            if matches!(&action, Action::Connect(to) if to.id == SOURCE) {
                assert_eq!(action, Action::Connect(contact(SOURCE)));
                dials += 1;
                node.disconnected(now, SOURCE);
            }
        }
    }
    assert!(dials > 1, "{dials}");
}

/// A host cannot know which keys the source invited, so any peer that proves the group's secret may connect.
#[test]
fn peers__beyond_the_most_are_not_taken() {
    let mut node = cut_off(Options::default());
    node.connected(Duration::ZERO, SOURCE);
    for peer in 100..100 + 2 * MAX_PEERS as u64 {
        node.connected(Duration::ZERO, NodeId(peer));
    }
    let refused = |it: &Action| matches!(it, Action::Disconnect(_));
    let refused = actions(&mut node).iter().filter(|it| refused(it)).count();
    assert!(refused >= MAX_PEERS, "{refused}");
    assert!(node.is_connected(SOURCE) && node.is_connected(SUCCESSOR));
}

/// A peer that has this node's own identity would be a member below itself, in a tree that never ends.
#[test]
fn own__identity_is_no_peer() {
    let now = Duration::ZERO;
    let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
    let mut source = Node::source(now, profile(SOURCE), manifest, Options::default());
    source.connected(now, SOURCE);
    assert!(actions(&mut source).contains(&Action::Disconnect(SOURCE)));
}
