//! Fuzzes messages of a cast, at a receiver and at a source: no panic; an accepted message is the same when sent again.

use std::time::Duration;

use zerolane_cast::{Contact, Fault, Manifest, Message, Node, NodeId, Options, Profile};

fn profile(id: u64) -> Profile {
    let contact = Contact {
        id: NodeId(id),
        address: Vec::new(),
    };
    Profile {
        contact,
        rack: 0,
        rate: 0,
    }
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let now = Duration::ZERO;
    let source = profile(0).contact;
    let manifest = Manifest::of(&[7; 100], 10, 2).expect("ten chunks");
    let mut nodes = [
        Node::source(now, profile(0), manifest, Options::default()),
        Node::receiver(now, profile(1), vec![source], Options::default(), None),
    ];
    for node in &mut nodes {
        for peer in [0, 1, 2, 3] {
            if node.id() != NodeId(peer) {
                node.connected(now, NodeId(peer));
            }
        }
    }
    // One message, or several, each behind its length in a byte.
    let mut rest = input;
    let mut at = 0u64;
    while let Some((len, behind)) = rest.split_first() {
        let (bytes, left) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = left;
        at += 1;
        let now = Duration::from_millis(at * 40);
        for node in &mut nodes {
            match Message::parse(bytes) {
                Ok(message) => {
                    assert_eq!(Message::parse(&message.encode()).as_ref(), Ok(&message));
                    node.message(now, NodeId(at % 4), message);
                }
                Err(_) => node.fault(now, NodeId(at % 4), Fault::Garbage),
            }
            node.timeout(now);
            while node.poll_action().is_some() {}
        }
    }
    let _ = Message::parse(input);
}
