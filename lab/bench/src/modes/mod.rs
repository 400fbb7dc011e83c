//! Implements the benchmarks: turns arguments into jobs, and measurements into reports.
//!
//! | module | what it measures |
//! |---|---|
//! | `bulk` | memory to memory |
//! | `stream` | from every source to every sink |
//! | `fan` | many to one, one to many, both at once |
//! | `ladder` | the cost of each overhead |
//! | `speculation` | right, wrong and no prediction |
//! | `costs` | unit costs |
//! | `model` | predictions from unit costs, beside measurements |
//! | `flows` | throughput between two hosts in a given time, as in iperf3 |
//! | `latency` | one-way times by size and module |
//! | `curve` | goodput, latency and CPU time by message size |
//! | `operations` | latencies, rates and bandwidths, in perftest's words |
//! | `sweep` | flows over one emulated link after the other |
//! | `incast`, `share` | several flows at the same time |
//! | `chain` | data along a chain of nodes |
//! | `handshake` | connection setup and close |
//! | `echo` | requests of many connections to one thread |
//! | `alltoall` | blocks from every rank to every other |
//! | `blocks` | scattered blocks with notifications |
//! | `siege` | a transfer under attack |
//! | `arguments` | shared arguments |

pub(crate) mod alltoall;
mod arguments;
pub(crate) mod blocks;
pub(crate) mod bulk;
pub(crate) mod chain;
pub(crate) mod costs;
pub(crate) mod curve;
pub(crate) mod echo;
pub(crate) mod fan;
pub(crate) mod flows;
pub(crate) mod handshake;
pub(crate) mod incast;
pub(crate) mod ladder;
pub(crate) mod latency;
pub(crate) mod model;
pub(crate) mod operations;
pub(crate) mod share;
pub(crate) mod siege;
pub(crate) mod speculation;
pub(crate) mod stream;
pub(crate) mod sweep;
