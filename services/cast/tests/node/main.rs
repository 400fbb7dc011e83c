//! Tests that one node asks for the right actions: the test feeds its inputs by hand.

mod complaints;
mod early;
mod end;
mod hashes;
mod held;
mod helpers;
mod idle;
mod lost;
mod orders;
mod withdrawn;
mod zeros;

use zerolane_cast::{Action, Contact, Message, Node, NodeId, Profile};

fn contact(id: NodeId) -> Contact {
    Contact {
        id,
        address: Vec::new(),
    }
}

fn profile(id: NodeId) -> Profile {
    Profile {
        contact: contact(id),
        rack: 0,
        rate: 0,
    }
}

/// A member that has nothing comes.
fn join() -> Message {
    Message::Join {
        address: Vec::new(),
        rack: 0,
        rate: 0,
        root: [0; 32],
        has: Default::default(),
    }
}

/// What it wants done since it was asked last.
fn actions(node: &mut Node) -> Vec<Action> {
    std::iter::from_fn(|| node.poll_action()).collect()
}
