//! Predicts the kernel's TCP.
//!
//! Let s and r be the time per byte at the sender and at the receiver:
//!
//! - *r < s*: the receiver sleeps whenever its queue is empty. A wake-up takes L until the receiver runs; meanwhile
//!   super-packets of P bytes keep arriving, and the receiver gains (s - r) P on each. It sleeps once per n = 1 + L / ((s -
//!   r) P) of them, and the sender pays for a wake-up per n P bytes. (So a slower receiver can make a sender faster.)
//! - *r > s*: the sender waits for a share f of the time. What it sends then is queued, because the receiver has no room. It
//!   leaves when an acknowledgement makes room: on the receiver's core. With q and c the time per byte at either end if all
//!   bytes leave like this: s' = s + f (q - s), r' = r + f (c - r), f = 1 - s' / r'.

use crate::costs::{Cost, KIB, UnitCosts, Way, at};
use crate::memory::{shared, sink, source};
use crate::row::{Carrier, Row};
use crate::stage::{End, Stage, Work};

/// Most bytes that pass the veth as one packet.
const SUPER_PACKET: f64 = 65_536.0;
/// Turns in which a share of time that depends on itself is found; each brings it closer by half and more.
const TURNS: usize = 40;

/// What the ends take for each byte of this row.
pub(crate) fn work(row: &Row, costs: &UnitCosts) -> Work {
    let way = |it: &crate::costs::TcpCosts| match row.carrier {
        Carrier::TcpSplice => it.splice,
        Carrier::TcpSendfile => it.sendfile,
        _ => it.send,
    };
    let cost = |overlap: f64, cost: fn(&Way) -> Cost| {
        shared(costs, row.buffer, overlap, |bytes| {
            at(&costs.tcp, bytes, |it| cost(&way(it))) / KIB
        })
    };
    let (source, sink) = (source(row, costs), sink(row, costs));
    let before = source.map_or(0.0, |it| it.ns_per_byte);
    let behind = sink.map_or(0.0, |it| it.ns_per_byte);
    // The end that has less to do hinders the other one for as long as it works.
    let alone = [
        before + cost(0.0, |it| it.send),
        behind + cost(0.0, |it| it.receive),
    ];
    let overlap = alone[0].min(alone[1]) / alone[0].max(alone[1]).max(f64::MIN_POSITIVE);
    let [send, receive] = [cost(overlap, |it| it.send), cost(overlap, |it| it.receive)];
    let stage = |end, what, ns_per_byte| Stage {
        end,
        what,
        ns_per_byte,
    };
    let (mut stages, mut waits) = (Vec::new(), 0.0);
    if before + send >= receive + behind {
        let wakes = wake_ups(before + send, receive + behind, costs);
        stages.push(stage(End::Sender, "sending", send));
        stages.push(stage(
            End::Sender,
            "waking the receiver",
            wakes * costs.wake.waker.median,
        ));
        stages.push(stage(End::Receiver, "receiving", receive));
        waits = wakes * costs.wake.woken.median;
    } else {
        let queue = cost(overlap, |it| it.queue).min(send);
        let clocked = cost(overlap, |it| it.receive_clocked).max(receive);
        let share = clocked_share(
            [before + send, before + queue],
            [receive + behind, clocked + behind],
        );
        stages.push(stage(End::Sender, "sending", send + share * (queue - send)));
        stages.push(stage(
            End::Receiver,
            "receiving, and sending what was queued",
            receive + share * (clocked - receive),
        ));
    }
    stages.extend(source);
    stages.extend(sink);
    Work {
        stages,
        tx_waits: 0.0,
        rx_waits: waits,
    }
}

/// Wake-ups a byte, where the sender takes so much for a byte without them, and the receiver less.
fn wake_ups(send: f64, receive: f64, costs: &UnitCosts) -> f64 {
    let (latency, waker) = (costs.wake.latency.median, costs.wake.waker.median);
    let mut wakes = 1.0 / SUPER_PACKET;
    for _ in 0..TURNS {
        let gained = (send + wakes * waker - receive) * SUPER_PACKET;
        let packets = 1.0 + latency / gained.max(f64::MIN_POSITIVE);
        // Half of the way, for what is found makes the next one larger and smaller by turns.
        wakes = f64::midpoint(wakes, 1.0 / (packets * SUPER_PACKET));
    }
    wakes
}

/// The share of the time that the sender waits, of what either end takes where nothing is queued and where all is.
fn clocked_share(send: [f64; 2], receive: [f64; 2]) -> f64 {
    let mut share = 0.0;
    for _ in 0..TURNS {
        let between = |[none, all]: [f64; 2]| none + share * (all - none);
        let waits = 1.0 - between(send) / between(receive).max(f64::MIN_POSITIVE);
        share = f64::midpoint(share, waits.clamp(0.0, 1.0));
    }
    share
}
