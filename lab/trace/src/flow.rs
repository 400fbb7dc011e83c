//! Tracks one flow, and the host that receives it.

use crate::limits::LARGE_BYTES;
use crate::packet::{Packet, Piece};
use crate::rules::{Rules, Tallies};
use crate::stream::{Arrival, Order, Stream};
use crate::tally::Cause;
use serde::Serialize;

/// The counts of one or more flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets, those without payload included.
    pub packets: u64,
    /// Their length on the wire, bytes.
    pub bytes: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Payload, bytes.
    pub payload_bytes: u64,
    /// Packets with payload between which and the one before, at the same host, there was a large one of another flow.
    pub interleaved: u64,
    /// The same for small ones alone.
    pub control_between: u64,
    /// How often the predictions held.
    #[serde(flatten)]
    pub rules: Tallies,
}

impl Counts {
    /// Adds what other flows had.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.data_packets += other.data_packets;
        self.payload_bytes += other.payload_bytes;
        self.interleaved += other.interleaved;
        self.control_between += other.control_between;
        self.rules.add(&other.rules);
    }
}

/// What a host received, as its card sees it: all in one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host {
    pub(crate) bytes: u64,
    pub(crate) seen: Seen,
    /// The predictions at flows that are over.
    pub(crate) rules: Tallies,
}

/// Packets so far, by the two kinds of the paper's Table 2.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) large: u64,
    pub(crate) small: u64,
}

impl Seen {
    pub(crate) fn packets(&self) -> u64 {
        self.large + self.small
    }
}

/// A flow that is followed.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) counts: Counts,
    /// When its last packet came: number among all packets.
    pub(crate) last: u64,
    stream: Stream,
    rules: Rules,
    /// What its host had seen behind its last packet with payload.
    seen: Seen,
    /// A packet without payload came since.
    after_control: bool,
}

impl Flow {
    pub(crate) fn new(pause: u64) -> Flow {
        Flow {
            counts: Counts::default(),
            last: 0,
            stream: Stream::default(),
            rules: Rules::new(pause),
            seen: Seen::default(),
            after_control: false,
        }
    }

    /// Takes a packet that comes at `host`; `at`: where it belongs, if an earlier fragment said so. Where it belongs.
    pub(crate) fn take(&mut self, packet: &Packet, host: &mut Host, at: Option<u64>) -> u64 {
        self.counts.packets += 1;
        self.counts.bytes += u64::from(packet.len);
        let before = host.seen;
        host.bytes += u64::from(packet.len);
        let large = packet.above_ip >= LARGE_BYTES;
        match large {
            true => host.seen.large += 1,
            false => host.seen.small += 1,
        }
        if packet.payload == 0 {
            self.after_control = true;
            self.stream.note_control(packet.position);
            return 0;
        }
        let (position, begins) = match at {
            Some(position) => (position, false),
            None => self.stream.locate(packet.position),
        };
        let between = match self.counts.data_packets {
            0 => None,
            _ => self.between(before),
        };
        self.note(packet.payload, between);
        let arrival = Arrival {
            time: packet.time,
            at_host: host.seen.packets(),
            position,
            len: packet.payload,
            header: packet.header,
            large,
            piece: packet.fragment.map_or(Piece::Whole, |it| it.piece),
            begins,
            order: Order::Next,
            between,
            after_control: std::mem::take(&mut self.after_control),
        };
        self.seen = host.seen;
        let rules = &mut self.rules;
        self.stream.take(arrival, |it| rules.take(&it));
        position
    }

    /// What came at the host since the last packet of this flow with payload.
    fn between(&self, host: Seen) -> Option<Cause> {
        if host.large > self.seen.large {
            Some(Cause::Interleaved)
        } else if host.small > self.seen.small {
            Some(Cause::Control)
        } else {
            None
        }
    }

    fn note(&mut self, payload: u32, between: Option<Cause>) {
        self.counts.data_packets += 1;
        self.counts.payload_bytes += u64::from(payload);
        match between {
            Some(Cause::Interleaved) => self.counts.interleaved += 1,
            Some(_) => self.counts.control_between += 1,
            None => {}
        }
    }

    /// No more comes. All that was counted.
    pub(crate) fn finish(mut self) -> Counts {
        let rules = &mut self.rules;
        self.stream.flush(|it| rules.take(&it));
        self.counts.rules = rules.finish();
        self.counts
    }
}
