//! Tests that a node informs its helpers, and returns to its predecessor.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{
    Action, Bitmap, Contact, Header, Manifest, Message, Node, NodeId, Options, Place,
};

use crate::{actions, contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const PREDECESSOR: NodeId = NodeId(3);
const HELPER: NodeId = NodeId(4);

/// What is said to a peer.
fn said(actions: &[Action], peer: NodeId) -> Vec<&Message> {
    let of = |it| match it {
        &Action::Send { to, ref message } if to == peer => Some(message),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn requests(actions: &[Action], peer: NodeId) -> Vec<u32> {
    let of = |it: &Message| match it {
        Message::Request(chunks) => chunks.clone(),
        _ => Vec::new(),
    };
    said(actions, peer).into_iter().flat_map(of).collect()
}

/// A node of a content of so many stripes and chunks, which knows its predecessor and its helpers.
fn placed(options: Options, arity: u32, chunks: usize, helpers: Vec<Contact>) -> (Node, Header) {
    let now = Duration::ZERO;
    let mut node = Node::receiver(now, profile(OWN), vec![contact(SOURCE)], options, None);
    node.connected(now, SOURCE);
    let manifest = Manifest::of(&vec![7; chunks * 8], 8, arity).unwrap();
    let header = manifest.header();
    node.message(now, SOURCE, Message::Welcome(header));
    let hashes = manifest.hashes().to_vec();
    node.message(now, SOURCE, Message::Hashes { first: 0, hashes });
    let place = Place {
        epoch: 1,
        predecessors: vec![Some(contact(PREDECESSOR)); arity as usize],
        helpers,
        successors: Vec::new(),
        demoted: false,
    };
    node.message(now, SOURCE, Message::Place(place));
    (node, header)
}

/// A node with a predecessor in so many stripes and a helper that has the first four chunks, and what it did until then.
fn helped(arity: u32) -> (Node, Vec<Action>) {
    let now = Duration::ZERO;
    let (mut node, header) = placed(Options::default(), arity, 8, vec![contact(HELPER)]);
    let mut all = actions(&mut node);
    node.connected(now, HELPER);
    let mut has = Bitmap::empty(header.chunks());
    for chunk in 0..4 {
        has.insert(chunk);
    }
    let hello = Message::Hello {
        root: header.root,
        has,
        answer: false,
        demoted: false,
    };
    node.message(now, HELPER, hello);
    node.connected(now, PREDECESSOR);
    all.extend(actions(&mut node));
    (node, all)
}

/// Many of a rack ask the node that has most. What it passes on comes first, or all behind it wait.
#[test]
fn helper__serves_its_successors_first() {
    let (_, actions) = helped(2);
    let demoted = |peer| {
        let of = |it: &Message| match it {
            Message::Hello { demoted, .. } => Some(*demoted),
            _ => None,
        };
        said(&actions, peer).into_iter().find_map(of)
    };
    assert_eq!(demoted(HELPER), Some(true));
    assert_eq!(demoted(PREDECESSOR), Some(false));
}

#[test]
fn helper__is_not_asked_any_more_for_what_the_predecessor_has_passed() {
    let (mut node, before) = helped(1);
    let (of_helper, of_predecessor) = (requests(&before, HELPER), requests(&before, PREDECESSOR));
    let first = *of_helper.first().expect("the helper is asked");
    let after = of_predecessor.iter().find(|it| **it > first);
    let after = *after.expect("the predecessor is asked for a later one");
    let now = Duration::from_millis(10);
    node.chunk(now, PREDECESSOR, after, true);
    let actions = actions(&mut node);
    let taken_back =
        |it: &Message| matches!(it, Message::Cancel(chunks) if chunks.contains(&first));
    assert!(said(&actions, HELPER).into_iter().any(taken_back));
    assert!(requests(&actions, PREDECESSOR).contains(&first));
}

#[test]
fn helper__that_sends_nothing_in_its_time_is_asked_no_more() {
    let (mut node, before) = helped(1);
    let first = requests(&before, HELPER)[0];
    let options = Options::default();
    let mut all = Vec::new();
    while node.next_timeout() < options.stall * 4 {
        let now = node.next_timeout();
        for peer in [SOURCE, PREDECESSOR, HELPER] {
            node.message(now, peer, Message::Alive);
        }
        node.timeout(now);
        all.extend(actions(&mut node));
    }
    let taken_back =
        |it: &Message| matches!(it, Message::Cancel(chunks) if chunks.contains(&first));
    assert!(said(&all, HELPER).into_iter().any(taken_back));
}

/// How many stripes there are a node learns with the digests: each has to have chunks on the way.
#[test]
fn window__that_is_widened_has_chunks_of_all_stripes_on_the_way() {
    let now = Duration::ZERO;
    let options = Options {
        window: 4,
        ..Options::default()
    };
    let (mut node, _) = placed(options, 8, 64, Vec::new());
    node.connected(now, PREDECESSOR);
    let mut asked = requests(&actions(&mut node), PREDECESSOR);
    assert_eq!(asked.len(), 4);
    node.widen(now, zerolane_cast::window_for(8));
    asked.extend(requests(&actions(&mut node), PREDECESSOR));
    asked.sort_unstable();
    assert_eq!(asked, (0..16).collect::<Vec<_>>(), "two of each stripe");
    node.widen(now, 1);
    assert_eq!(node.counters().peak_window, 16);
}
