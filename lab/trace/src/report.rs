//! Defines the report of a replay.

use crate::flow::{Counts, Host};
use crate::packet::FlowKey;
use crate::reader::Format;
use crate::tally::Tally;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The caller's name for it.
    pub name: String,
    /// Its kind.
    pub format: Format,
    /// Packets in it.
    pub packets: u64,
    /// Why the reading ended before the end of the file: it is cut off, or damaged. What came before is counted.
    pub ended: Option<String>,
}

/// Packets of all files, and those that belong to no flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seen {
    /// All of them.
    pub packets: u64,
    /// Their length on the wire, bytes.
    pub bytes: u64,
    /// From the first to the last, seconds.
    pub seconds: f64,
    /// Not IP.
    pub not_ip: u64,
    /// Recorded with fewer bytes than their headers need.
    pub cut: u64,
    /// With headers that contradict each other.
    pub malformed: u64,
    /// From an unsupported link type.
    pub unknown_link: u64,
    /// The number of that kind, in the LINKTYPE registry; of the last if there were several.
    pub link: Option<i32>,
    /// Fragments whose datagram's first fragment did not come before them.
    pub lone_fragments: u64,
    /// Longer than a frame can be: merged by the host that recorded them.
    pub merged: u64,
}

/// The report of one flow: one direction between two sockets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowReport {
    /// Which.
    #[serde(serialize_with = "as_text")]
    pub flow: FlowKey,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A host as a receiver: a column of the paper's Table 2.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostReport {
    /// Its address.
    pub address: IpAddr,
    /// Received bytes on the wire.
    pub bytes: u64,
    /// Frames in all.
    pub frames: u64,
    /// Of those, large ones: data.
    pub large: u64,
    /// Small ones: control.
    pub small: u64,
    /// Pages, in one list of descriptors.
    pub pages: Tally,
    /// Pages, with a list for each stream.
    pub pages_per_stream: Tally,
}

/// Flows that were folded together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Others {
    /// Number of flows. A flow that returns counts again.
    pub flows: u64,
    /// Their counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How often speculation would have hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The files.
    pub inputs: Vec<Input>,
    /// All packets.
    pub seen: Seen,
    /// All flows together, folded ones included.
    pub sum: Counts,
    /// Flows, by bytes.
    pub flows: Vec<FlowReport>,
    /// The folded flows, if there were more than can be followed at a time.
    pub folded: Option<Others>,
    /// Hosts, by bytes.
    pub hosts: Vec<HostReport>,
    /// Hosts that were forgotten with the last of their flows.
    pub hosts_folded: u64,
}

impl HostReport {
    pub(crate) fn of((address, host): (IpAddr, Host)) -> HostReport {
        HostReport {
            address,
            bytes: host.bytes,
            frames: host.seen.packets(),
            large: host.seen.large,
            small: host.seen.small,
            pages: host.rules.pages,
            pages_per_stream: host.rules.pages_per_stream,
        }
    }
}

fn as_text<S: serde::Serializer>(key: &FlowKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

/// An end of a flow.
struct End(IpAddr, u16);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (address, 0) => address.fmt(f),
            (IpAddr::V4(address), port) => write!(f, "{address}:{port}"),
            (IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
        }
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            6 => f.write_str("tcp")?,
            17 => f.write_str("udp")?,
            other => write!(f, "ip-{other}")?,
        }
        let (from, to) = (
            End(self.source, self.source_port),
            End(self.destination, self.destination_port),
        );
        write!(f, " {from} > {to}")
    }
}
