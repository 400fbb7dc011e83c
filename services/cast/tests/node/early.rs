//! Tests that a node handles messages from peers before the source's description of the content arrives.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{
    Action, Bitmap, Event, Fault, Manifest, Message, Node, NodeId, Options, Place, Stored,
};

use crate::{actions, contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const PEER: NodeId = NodeId(3);
const NOW: Duration = Duration::ZERO;

fn manifest() -> Manifest {
    Manifest::of(&[7; 64], 8, 1).unwrap()
}

fn all_of(manifest: &Manifest) -> Bitmap {
    let mut has = Bitmap::empty(manifest.header().chunks());
    for chunk in 0..has.len() {
        has.insert(chunk);
    }
    has
}

/// A node that had all before, is connected to the source and a peer, and was told nothing.
fn uninformed() -> Node {
    uninformed_with(Options::default())
}

fn uninformed_with(options: Options) -> Node {
    let stored = Stored {
        root: manifest().header().root,
        has: all_of(&manifest()),
    };
    let source = vec![contact(SOURCE)];
    let mut node = Node::receiver(NOW, profile(OWN), source, options, Some(stored));
    node.connected(NOW, SOURCE);
    node.connected(NOW, PEER);
    actions(&mut node);
    node
}

fn welcome(node: &mut Node) -> Vec<Action> {
    let header = manifest().header();
    node.message(NOW, SOURCE, Message::Welcome(header));
    actions(node)
}

fn hello(root: [u8; 32]) -> Message {
    Message::Hello {
        root,
        has: all_of(&manifest()),
        answer: true,
        demoted: false,
    }
}

#[test]
fn request__is_answered_when_the_content_is_known() {
    let mut node = uninformed();
    node.message(NOW, PEER, Message::Request(vec![3]));
    assert_eq!(actions(&mut node), []);
    let sends = |it: &Action| {
        matches!(
            it,
            Action::SendChunk {
                to: PEER,
                chunk: 3,
                ..
            }
        )
    };
    assert!(welcome(&mut node).iter().any(sends));
}

#[test]
fn request__of_a_chunk_that_does_not_exist_is_judged_when_the_content_is_known() {
    let mut node = uninformed();
    node.message(NOW, PEER, Message::Request(vec![8]));
    assert_eq!(actions(&mut node), []);
    let liar = Action::Tell(Event::Liar {
        peer: PEER,
        by: OWN,
        fault: Fault::UnknownChunk,
    });
    let done = welcome(&mut node);
    assert!(done.contains(&liar) && done.contains(&Action::Disconnect(PEER)));
}

#[test]
fn hello__is_answered_when_the_content_is_known() {
    let mut node = uninformed();
    node.message(NOW, PEER, hello(manifest().header().root));
    assert_eq!(actions(&mut node), []);
    let answers = |it: &Action| {
        matches!(
            it,
            Action::Send {
                to: PEER,
                message: Message::Hello { answer: false, .. }
            }
        )
    };
    assert!(welcome(&mut node).iter().any(answers));
}

#[test]
fn hello__of_another_content_is_judged_when_the_content_is_known() {
    let mut node = uninformed();
    node.message(NOW, PEER, hello([0; 32]));
    assert_eq!(actions(&mut node), []);
    assert!(welcome(&mut node).contains(&Action::Disconnect(PEER)));
}

/// A driver that is told that all is there puts it in its place, and the coordinator ends the cast.
#[test]
fn done__is_told_when_the_digests_are_here_though_all_was_there_before() {
    let mut node = uninformed();
    let done = Action::Tell(Event::Done);
    assert!(!welcome(&mut node).contains(&done));
    let hashes = manifest().hashes().to_vec();
    node.message(NOW, SOURCE, Message::Hashes { first: 0, hashes });
    assert!(actions(&mut node).contains(&done));
}

#[test]
fn hashes__that_do_not_come_are_asked_for_again_though_all_was_there_before() {
    let mut node = uninformed();
    welcome(&mut node);
    let asks = Action::Send {
        to: SOURCE,
        message: Message::AskHashes { first: 0 },
    };
    let mut again = false;
    while !again && node.next_timeout() < Options::default().stall * 3 {
        let now = node.next_timeout();
        node.message(now, SOURCE, Message::Alive);
        node.timeout(now);
        again = actions(&mut node).contains(&asks);
    }
    assert!(again);
}

/// Only the digests are missing, and the source is gone: the node leads, and no peer can supply them. It is not done.
#[test]
fn leader__that_has_all_and_no_digests_says_that_it_is_stuck() {
    let options = Options {
        // Longer than it waits for members.
        patience: Options::default().silence * 20,
        ..Options::default()
    };
    let mut node = uninformed_with(options);
    welcome(&mut node);
    let place = Place {
        epoch: 1,
        predecessors: vec![Some(contact(SOURCE))],
        helpers: Vec::new(),
        successors: vec![contact(OWN)],
        demoted: false,
    };
    node.message(NOW, SOURCE, Message::Place(place));
    node.disconnected(NOW, SOURCE);
    let mut told = actions(&mut node);
    assert!(node.leads());
    while node.next_timeout() < options.patience * 2 {
        node.timeout(node.next_timeout());
        told.extend(actions(&mut node));
    }
    assert!(!told.contains(&Action::Tell(Event::Finished)));
    assert!(told.contains(&Action::Tell(Event::Stuck { lacking: 0 })));
}
