//! Tests that a chunk in flight to a peer that no longer wants it is handled.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Manifest, Message, Node, NodeId, Options};

use crate::{actions, profile};

const OWN: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const NOW: Duration = Duration::ZERO;

/// A source of eight chunks, to which a peer is connected.
fn source() -> Node {
    let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
    let mut node = Node::source(NOW, profile(OWN), manifest, Options::default());
    node.connected(NOW, PEER);
    tell(&mut node, Message::Request(Vec::new()));
    node
}

/// Chunks whose sends begin, and chunks whose sends must be cancelled.
fn tell(node: &mut Node, message: Message) -> [Vec<u32>; 2] {
    node.message(NOW, PEER, message);
    done(node)
}

fn sent(node: &mut Node, chunk: u32) -> [Vec<u32>; 2] {
    node.sent(NOW, PEER, chunk);
    done(node)
}

fn done(node: &mut Node) -> [Vec<u32>; 2] {
    let [mut started, mut given_up] = [Vec::new(), Vec::new()];
    for action in actions(node) {
        match action {
            Action::SendChunk {
                to: PEER, chunk, ..
            } => started.push(chunk),
            Action::Withdraw { to: PEER, chunk } => given_up.push(chunk),
            _ => {}
        }
    }
    [started, given_up]
}

/// Such a peer has no memory for them: they would be on their way for good, and keep the places of others.
#[test]
fn send__is_given_up_when_its_peer_waits_for_nothing_any_more() {
    let mut node = source();
    let [started, _] = tell(&mut node, Message::Request(vec![0, 1, 2]));
    assert_eq!(started, [0, 1]);
    let [_, given_up] = tell(&mut node, Message::Cancel(vec![0, 1]));
    assert!(
        given_up.is_empty(),
        "it has room for one more: {given_up:?}"
    );
    let [started, given_up] = tell(&mut node, Message::Cancel(vec![2]));
    assert_eq!((started, given_up), (vec![], vec![0, 1]));
    let [_, again] = tell(&mut node, Message::Cancel(vec![0, 1, 2]));
    assert!(again.is_empty(), "once");
}

#[test]
fn send__that_was_given_up_and_is_asked_for_again_begins_anew_when_it_is_over() {
    let mut node = source();
    tell(&mut node, Message::Request(vec![0]));
    tell(&mut node, Message::Cancel(vec![0]));
    let [started, _] = tell(&mut node, Message::Request(vec![0]));
    assert!(started.is_empty(), "it is on its way, or will be told of");
    assert_eq!(sent(&mut node, 0), [vec![0], vec![]]);
    // One that is wanted again before that just goes on.
    tell(&mut node, Message::Request(vec![1]));
    tell(&mut node, Message::Cancel(vec![0]));
    let [started, given_up] = tell(&mut node, Message::Request(vec![0]));
    assert!(started.is_empty() && given_up.is_empty());
    assert_eq!(sent(&mut node, 0), [vec![], vec![]]);
}
