//! Tests that idle members do not hold up a cast: those that request nothing, or never report the end.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::limits::IDLE_PATIENCES;
use zerolane_cast::{Action, Event, Fault, Manifest, Message, Node, NodeId, Options};

use crate::{actions, join, profile};

const OWN: NodeId = NodeId(1);
const MEMBER: NodeId = NodeId(2);

fn source(options: Options) -> Node {
    let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
    Node::source(Duration::ZERO, profile(OWN), manifest, options)
}

/// When the source puts a member out that says at each beat, after what is done `before`, that it has verified so many chunks.
fn put_out(
    source: &mut Node,
    verified: u32,
    until: Duration,
    mut before: impl FnMut(&mut Node, Duration),
) -> Duration {
    let failed = Action::Tell(Event::NodeFailed(MEMBER, Fault::Idle));
    let mut when = None;
    while when.is_none() && source.next_timeout() < until {
        let now = source.next_timeout();
        before(source, now);
        let progress = Message::Progress {
            verified: vec![verified],
            done: false,
            held_by: None,
        };
        source.message(now, MEMBER, progress);
        source.timeout(now);
        when = actions(source).contains(&failed).then_some(now);
    }
    when.expect("it is put out")
}

/// Each chunk in its memory may take its disk as long as it has patience.
#[test]
fn idle__one_that_never_writes_what_it_verified_is_put_out() {
    let now = Duration::ZERO;
    let options = Options {
        expected: 1,
        patience: Duration::from_secs(2),
        ..Options::default()
    };
    let chunks = 8;
    let mut source = source(options);
    source.connected(now, MEMBER);
    source.message(now, MEMBER, join());
    let most = options.patience * options.window;
    let when = put_out(&mut source, chunks, most * 2, |_, _| {});
    assert!(when > most, "{when:?}: it may be at its disk");
}

/// It begins anew each second, on the same connection or on another, and says again what it has.
#[test]
fn idle__one_that_joins_again_and_again_is_put_out() {
    for reconnects in [false, true] {
        let options = Options {
            expected: 1,
            patience: Duration::from_secs(2),
            ..Options::default()
        };
        let most = options.patience * IDLE_PATIENCES;
        let mut source = source(options);
        let mut joins_at = Duration::ZERO;
        let when = put_out(&mut source, 1, most * 4, |source, now| {
            if now >= joins_at {
                joins_at = now + Duration::from_secs(1);
                if reconnects {
                    source.disconnected(now, MEMBER);
                }
                if !source.is_connected(MEMBER) {
                    source.connected(now, MEMBER);
                }
                source.message(now, MEMBER, join());
            }
        });
        assert!(when > most, "{when:?}: it may be slow");
    }
}

#[test]
fn complaints__of_one_that_joins_again_and_again_are_a_flood() {
    let mut source = source(Options {
        expected: 1,
        ..Options::default()
    });
    source.connected(Duration::ZERO, MEMBER);
    for _ in 0..20 {
        source.message(Duration::ZERO, MEMBER, join());
        source.message(Duration::ZERO, MEMBER, Message::Seek);
    }
    let failed = Action::Tell(Event::NodeFailed(MEMBER, Fault::Flood));
    assert!(actions(&mut source).contains(&failed));
}
