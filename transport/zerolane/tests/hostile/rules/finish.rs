//! Tests that ends enforce the rules of state queries, and of the end of a connection.

use super::data::{announced, granted};
use super::grant::grant;
use super::peer::Peer;
use super::rule::{Outcome, Rule, rule};
use zerolane::counters::DropReason::Malformed;
use zerolane_wire::{Flags, Header, Op};

pub(super) const RULES: &[Rule] = &[
    rule("probe_as_long_as_it_says", probe_as_long_as_it_says).drops(&[(Malformed, 10)]),
    rule("nop_no_flood", nop_no_flood),
    rule("state_no_flood", state_no_flood),
    rule("disconnect_in_order", disconnect_out_of_order),
    rule("disconnect_is_the_end", disconnect_is_the_end).outcome(Outcome::Ended),
];

fn probe_as_long_as_it_says(peer: &mut Peer) {
    let probe = |peer: &Peer, offset| Header {
        flags: Flags::PROBE.with(Flags::SEND_STATE),
        offset,
        sync: 8080,
        ..peer.header(Op::Nop)
    };
    for offset in [41, 1000, 9000, 65_535, u32::MAX] {
        let header = probe(peer, offset);
        peer.say_raw(&header, &[]);
        peer.say_raw(&header, &[0; 500]);
    }
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(|it| it.op == Op::Nop && it.sync == 8080));
}

fn nop_no_flood(peer: &mut Peer) {
    for sync in 0..1500 {
        let header = Header {
            flags: Flags::SEND_STATE,
            sync,
            ..peer.header(Op::Nop)
        };
        peer.say_raw(&header, &[]);
    }
    let heard = peer.listen_for_a_while();
    assert!(
        heard.len() <= 1600,
        "{} answers to 1500 questions",
        heard.len()
    );
}

fn disconnect_out_of_order(peer: &mut Peer) {
    for op in [Op::DisconnectAnswer, Op::DisconnectComplete] {
        let header = peer.header(op);
        peer.say_raw(&header, &[]);
        peer.say_raw(&header, &[0xff; 32]);
    }
    // The connection continues.
    granted(peer, 1000);
}

fn disconnect_is_the_end(peer: &mut Peer) {
    let id = announced(peer).s_id;
    let data = granted(peer, 5000);
    // Ends a Transfer that was never announced.
    let end = Header {
        sync: 1 << 31,
        b_num: 1 << 31,
        ..peer.header(Op::RequestDisconnect)
    };
    peer.say_raw(&end, &[0xff; 32]);
    // And continues to send.
    let (header, options) = grant(peer, id, 0, 0, 1000);
    for _ in 0..20 {
        peer.say_raw(&data, &[0xee; 1000]);
        peer.say_raw(&header, &options);
        peer.say_raw(&end, &[0; 32]);
    }
}

/// Asks repeatedly about a Transfer being received, and about one that never existed.
fn state_no_flood(peer: &mut Peer) {
    let data = granted(peer, 50_000);
    let said = 500;
    for n in 0..said {
        let question = Header {
            sync: n,
            s_id: 2 + n % 2,
            d_id: data.d_id,
            ..peer.header(Op::RequestState)
        };
        peer.say_raw(&question, &[]);
    }
    let heard = peer.listen_for_a_while().len();
    // An answer, with at most eight repeated grants.
    assert!(
        heard <= 9 * said as usize,
        "{heard} answers to {said} questions"
    );
}
