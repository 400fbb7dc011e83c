//! Tests when a source ends a cast.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Manifest, Message, Node, NodeId, Options};

use crate::{actions, join, profile};

const SOURCE: NodeId = NodeId(1);
const MEMBERS: [NodeId; 2] = [NodeId(2), NodeId(3)];
const NOW: Duration = Duration::ZERO;

/// Whether the source has said that it is over.
fn is_over(source: &mut Node) -> bool {
    actions(source).contains(&Action::Tell(Event::Finished))
}

#[test]
fn finished__with_the_last_of_those_expected_before_its_beat() {
    for (expected, at_once) in [(2, true), (0, false), (3, false)] {
        let options = Options {
            expected,
            ..Options::default()
        };
        let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
        let chunks = manifest.header().chunks();
        let mut source = Node::source(NOW, profile(SOURCE), manifest, options);
        for member in MEMBERS {
            source.connected(NOW, member);
            source.message(NOW, member, join());
        }
        if expected != 2 {
            // The others do not come.
            source.timeout(options.gather);
        }
        for member in MEMBERS {
            assert!(!is_over(&mut source), "{expected}: {member} has nothing");
            let done = Message::Progress {
                verified: vec![chunks],
                done: true,
                held_by: None,
            };
            source.message(NOW, member, done);
        }
        assert_eq!(is_over(&mut source), at_once, "{expected}");
        source.timeout(options.gather + options.beat);
        assert_eq!(is_over(&mut source), !at_once, "{expected}");
    }
}
