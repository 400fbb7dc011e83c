//! The benchmarks: from the command line to jobs, and from what was measured to a report.
//!
//! | module | what it measures |
//! |---|---|
//! | `bulk` | memory to memory |
//! | `stream` | from every source to every sink |
//! | `fan` | many to one, one to many, both at once |
//! | `ladder` | what each overhead costs |
//! | `costs` | what single things cost |
//! | `model` | what follows from that, beside what is measured |
//! | `flows` | what two hosts move in a time, as iperf3 has it |
//! | `latency` | one-way times by size, and where they go |
//! | `operations` | latencies, rates and bandwidths, in perftest's words |
//! | `sweep` | flows over one emulated link after the other |
//! | `incast`, `share` | several flows at the same time |
//! | `handshake` | connections set up and torn down |
//! | `echo` | requests of many connections to one thread |
//! | `siege` | a transfer under attack |
//! | `arguments` | what several of them are told |

mod arguments;
pub(crate) mod bulk;
pub(crate) mod costs;
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
pub(crate) mod stream;
pub(crate) mod sweep;
