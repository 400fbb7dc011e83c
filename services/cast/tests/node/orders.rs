//! Tests whom a node believes to lead, and whom it accuses of orders.
#![allow(non_snake_case)]

use std::time::Duration;

use zerolane_cast::{Action, Event, Fault, Manifest, Message, Node, NodeId, Options, Place};

use crate::{actions, contact, profile};

const SOURCE: NodeId = NodeId(1);
const OWN: NodeId = NodeId(2);
const SUCCESSOR: NodeId = NodeId(3);
const OTHER: NodeId = NodeId(4);
const NOW: Duration = Duration::ZERO;

fn place(epoch: u64, successor: NodeId) -> Message {
    Message::Place(Place {
        epoch,
        predecessors: vec![Some(contact(SOURCE))],
        helpers: Vec::new(),
        successors: vec![contact(successor)],
        demoted: false,
    })
}

fn welcome() -> Message {
    Message::Welcome(Manifest::of(&[7; 64], 8, 1).unwrap().header())
}

/// A member of the source's group, with a connection to each of the others.
fn member() -> Node {
    let leaders = vec![contact(SOURCE)];
    let mut node = Node::receiver(NOW, profile(OWN), leaders, Options::default(), None);
    node.connected(NOW, SOURCE);
    node.message(NOW, SOURCE, welcome());
    node.message(NOW, SOURCE, place(1, SUCCESSOR));
    for peer in [SUCCESSOR, OTHER] {
        node.connected(NOW, peer);
    }
    actions(&mut node);
    node
}

fn accused(actions: &[Action], wanted: NodeId) -> bool {
    actions.iter().any(|it| {
        matches!(
            it,
            Action::Tell(Event::Liar { peer, fault: Fault::Order, .. }) if *peer == wanted
        )
    })
}

/// To one part of the group the source was dead, so a successor led that part until it reached the source again. A
/// node that reached the source first hears the successor's last orders when the source has named another successor.
#[test]
fn orders__of_a_node_that_led_meanwhile_are_ignored_without_an_accusation() {
    let mut node = member();
    node.disconnected(NOW, SOURCE);
    node.message(NOW, SUCCESSOR, welcome());
    node.message(NOW, SUCCESSOR, place(2, SUCCESSOR));
    assert!(node.is_led());
    node.connected(NOW, SOURCE);
    node.message(NOW, SOURCE, welcome());
    node.message(NOW, SOURCE, place(3, OTHER));
    actions(&mut node);
    for order in [place(9, SUCCESSOR), Message::Dismissed(Fault::Gone)] {
        node.message(NOW, SUCCESSOR, order);
        assert_eq!(actions(&mut node), []);
    }
    assert!(node.is_connected(SUCCESSOR) && node.is_led());
}

#[test]
fn orders__of_a_node_that_was_never_to_lead_are_an_accusation() {
    let orders = [
        welcome(),
        place(9, OTHER),
        Message::Helpers(Vec::new()),
        Message::Dismissed(Fault::Gone),
        Message::Finished,
    ];
    for order in orders {
        let mut node = member();
        node.message(NOW, OTHER, order.clone());
        let done = actions(&mut node);
        let report = Action::Send {
            to: SOURCE,
            message: Message::Report {
                peer: OTHER,
                fault: Fault::Order,
            },
        };
        assert!(accused(&done, OTHER), "{order:?}: {done:?}");
        assert!(done.contains(&report), "{order:?}: {done:?}");
        assert!(done.contains(&Action::Disconnect(OTHER)), "{order:?}");
        assert!(node.is_led() && !node.is_connected(OTHER));
    }
}

/// A reconnected member's `Join` is on its way when the source gives all their places; the `Welcome` before was lost
/// with the first connection.
#[test]
fn place__before_the_content_is_known_is_not_held_against_the_source() {
    let options = Options {
        expected: 2,
        ..Options::default()
    };
    let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
    let mut source = Node::source(NOW, profile(SOURCE), manifest, options);
    let leaders = vec![contact(SOURCE)];
    let mut node = Node::receiver(NOW, profile(OWN), leaders, options, None);
    let to_other = |all: Vec<Action>| {
        let messages = all.into_iter().filter_map(|it| match it {
            Action::Send { to, message } if to != OTHER => Some(message),
            _ => None,
        });
        messages.collect::<Vec<_>>()
    };
    source.connected(NOW, OWN);
    node.connected(NOW, SOURCE);
    for said in to_other(actions(&mut node)) {
        source.message(NOW, OWN, said);
    }
    let lost = to_other(actions(&mut source));
    assert!(matches!(lost[..], [Message::Welcome(_)]), "{lost:?}");
    node.disconnected(NOW, SOURCE);
    source.connected(NOW, OWN);
    source.connected(NOW, OTHER);
    source.message(NOW, OTHER, crate::join());
    node.connected(NOW, SOURCE);
    let places = to_other(actions(&mut source));
    assert!(matches!(places[..], [Message::Place(_)]), "{places:?}");
    for said in places {
        node.message(NOW, SOURCE, said);
    }
    let done = actions(&mut node);
    assert!(!accused(&done, SOURCE), "{done:?}");
    for said in to_other(done) {
        source.message(NOW, OWN, said);
    }
    for said in to_other(actions(&mut source)) {
        node.message(NOW, SOURCE, said);
    }
    assert!(node.is_led());
}
