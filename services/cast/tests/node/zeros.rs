//! Tests that chunks of zeros are not sent, and that empty content works.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Manifest, Message, Node, NodeId, Options, Place};

use crate::{actions, contact, join, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const NOW: Duration = Duration::ZERO;

/// A node that knows the digests, and what it wants done since.
fn node_of(manifest: &Manifest, options: Options) -> (Node, Vec<Action>) {
    let mut node = Node::receiver(NOW, profile(OWN), vec![contact(SOURCE)], options, None);
    node.connected(NOW, SOURCE);
    node.message(NOW, SOURCE, Message::Welcome(manifest.header()));
    let place = Place {
        epoch: 1,
        predecessors: vec![Some(contact(SOURCE))],
        helpers: Vec::new(),
        successors: Vec::new(),
        demoted: false,
    };
    node.message(NOW, SOURCE, Message::Place(place));
    let hashes = manifest.hashes().to_vec();
    if !hashes.is_empty() {
        node.message(NOW, SOURCE, Message::Hashes { first: 0, hashes });
    }
    let done = actions(&mut node);
    (node, done)
}

/// Chunks to request, and chunks to fill.
fn wanted(actions: &[Action]) -> (Vec<u32>, Vec<u32>) {
    let (mut asked, mut filled) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            Action::Send {
                message: Message::Request(chunks),
                ..
            } => asked.extend(chunks),
            Action::Fill(chunk) => filled.push(*chunk),
            _ => {}
        }
    }
    (asked, filled)
}

fn is_done(node: &mut Node) -> bool {
    actions(node).contains(&Action::Tell(Event::Done))
}

#[test]
fn zeros__are_filled_and_not_asked_for() {
    // Chunks 0 and 2 have a byte that is not zero, the last chunk is shorter.
    let mut content = [0; 30];
    (content[3], content[20]) = (1, 1);
    let manifest = Manifest::of(&content, 8, 1).unwrap();
    let options = Options {
        fills: true,
        ..Options::default()
    };
    let (mut node, done) = node_of(&manifest, options);
    assert_eq!(wanted(&done), (vec![0, 2], vec![1, 3]));
    for chunk in [0, 2] {
        assert!(node.chunk(NOW, SOURCE, chunk, true));
        node.written_chunk(NOW, chunk);
    }
    node.filled(NOW, 3);
    assert!(!is_done(&mut node), "one is not in the store yet");
    node.filled(NOW, 1);
    assert!(is_done(&mut node) && node.is_done());
    // Without, they are chunks as any other.
    let (_, done) = node_of(&manifest, Options::default());
    assert_eq!(wanted(&done), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn zeros__that_a_peer_sends_all_the_same_are_taken_once() {
    let manifest = Manifest::of(&[0; 16], 8, 1).unwrap();
    let options = Options {
        fills: true,
        ..Options::default()
    };
    let (mut node, _) = node_of(&manifest, options);
    assert!(node.chunk(NOW, SOURCE, 0, true));
    node.filled(NOW, 0);
    node.filled(NOW, 1);
    assert!(!is_done(&mut node), "the first is not written");
    node.written_chunk(NOW, 0);
    assert!(is_done(&mut node));
}

#[test]
fn content__without_bytes_is_done_as_soon_as_it_is_known() {
    let manifest = Manifest::of(&[], 8, 1).unwrap();
    let (node, done) = node_of(&manifest, Options::default());
    assert!(done.contains(&Action::Tell(Event::Done)), "{done:?}");
    assert!(node.is_done());
    let options = Options {
        expected: 1,
        ..Options::default()
    };
    let mut source = Node::source(NOW, profile(SOURCE), manifest, options);
    source.connected(NOW, OWN);
    source.message(NOW, OWN, join());
    let progress = Message::Progress {
        verified: vec![0],
        done: true,
        held_by: None,
    };
    source.message(NOW, OWN, progress);
    let told = actions(&mut source);
    assert!(
        told.contains(&Action::Tell(Event::NodeDone(OWN))),
        "{told:?}"
    );
    assert!(told.contains(&Action::Tell(Event::Finished)), "{told:?}");
}
