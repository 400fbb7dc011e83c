//! Tests that a connection with one path enforces the rules of several paths.

use super::peer::Peer;
use super::rule::{Rule, rule};
use zerolane::counters::DropReason::{Malformed, Unexpected};
use zerolane_wire::{Flags, Header, MAX_PATHS, Op};

pub(super) const RULES: &[Rule] =
    &[rule("path_that_there_is", path_that_there_is).drops(&[(Unexpected, 22), (Malformed, 9)])];

/// Asks for, answers for and leaves paths that do not exist, and leaves the first.
fn path_that_there_is(peer: &mut Peer) {
    let beyond = [MAX_PATHS.into(), 0x100, 0xffff];
    for param in (0..MAX_PATHS.into()).chain(beyond) {
        for flags in [Flags::SEND_STATE, Flags::REPLY, Flags::LEAVES] {
            if param == 0 && flags != Flags::LEAVES {
                continue;
            }
            let nop = Header {
                flags,
                param,
                sync: 4711,
                ..peer.header(Op::Nop)
            };
            peer.say_raw(&nop, &[]);
        }
    }
}
