//! A member that has all verified, and never says that it is written.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Fault, Manifest, Message, Node, NodeId, Options};

use crate::{actions, profile};

const OWN: NodeId = NodeId(1);
const MEMBER: NodeId = NodeId(2);

/// Each chunk in its memory may take its disk as long as it has patience.
#[test]
fn idle__one_that_never_writes_what_it_verified_is_put_out() {
    let now = Duration::ZERO;
    let options = Options {
        expected: 1,
        patience: Duration::from_secs(2),
        ..Options::default()
    };
    let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
    let chunks = manifest.header().chunks();
    let mut source = Node::source(now, profile(OWN), manifest, options);
    source.connected(now, MEMBER);
    let join = Message::Join {
        address: Vec::new(),
        rack: 0,
        rate: 0,
        root: [0; 32],
        has: Default::default(),
    };
    source.message(now, MEMBER, join);
    let most = options.patience * options.window;
    let failed = Action::Tell(Event::NodeFailed(MEMBER, Fault::Idle));
    let mut when = None;
    while when.is_none() && source.next_timeout() < most * 2 {
        let now = source.next_timeout();
        let progress = Message::Progress {
            verified: vec![chunks],
            done: false,
            held_by: None,
        };
        source.message(now, MEMBER, progress);
        source.timeout(now);
        when = actions(&mut source).contains(&failed).then_some(now);
    }
    let when = when.expect("it is put out");
    assert!(when > most, "{when:?}: it may be at its disk");
}
