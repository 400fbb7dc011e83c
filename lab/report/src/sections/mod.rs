//! Builds charts and tables from the results of each experiment, beside the papers' own figures.
//!
//! | module | experiments |
//! |---|---|
//! | `bulk` | memory to memory; offloads and socket buffers |
//! | `curve` | goodput, latency and CPU time by message size |
//! | `stream` | MTU, sizes of Transfers and STUs, what touching the data costs |
//! | `links` | round trips, losses, several senders |
//! | `latency` | one way, by size and operation; by module |
//! | `time` | where the receiver's time goes |
//! | `ladder` | overheads taken away one after the other |
//! | `forecast` | right, wrong and no prediction; the second copy |
//! | `fan` | several streams |
//! | `chain` | a chain of nodes |
//! | `model` | what is predicted |
//! | `memory` | memory traffic |
//! | `trace` | speculation on captures |

mod bulk;
mod chain;
pub mod curve;
mod fan;
mod forecast;
mod ladder;
mod latency;
mod links;
mod memory;
mod model;
mod stream;
mod time;
mod trace;

use crate::figure::Section;
use crate::results::Results;

/// All sections, in the order of the page.
pub fn all(results: &Results) -> Vec<Section> {
    let make: [fn(&Results) -> Section; 22] = [
        bulk::memory_to_memory,
        curve::curve,
        stream::mtu,
        time::receiver,
        latency::one_way,
        stream::protocols,
        stream::transfer_size,
        stream::stu_size,
        time::interrupts,
        links::round_trip,
        links::loss,
        forecast::forecast,
        bulk::offloads,
        trace::interference,
        ladder::ladder,
        latency::operations,
        latency::modules,
        bulk::socket_buffers,
        memory::memory_traffic,
        fan::streams,
        links::incast,
        chain::chain,
    ];
    let sections = make.iter().map(|make| make(results));
    sections.chain([model::prediction(results)]).collect()
}

/// What is shown of a contender, by its key in the JSON.
fn contender(key: &str) -> &str {
    match key {
        "zerolane" | "extended" => "Zerolane",
        "zerolane_plain" => "Zerolane, plain",
        "classic" => "Zerolane, classic profile",
        "tcp" => "TCP",
        "tcp_splice" => "TCP, splice",
        "tcp_sendfile" => "TCP, sendfile",
        "cubic" => "TCP, CUBIC",
        "bbr" => "TCP, BBR",
        "tls" => "TLS over TCP",
        "quinn" => "QUIC (quinn)",
        "udp" => "UDP",
        other => other,
    }
}
