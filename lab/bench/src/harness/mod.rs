//! Orchestrates runs: starts the ends, and sends them their jobs.
//!
//! | module | what it does |
//! |---|---|
//! | `runs` | the ends of a run, and the order of runs |
//! | `end` | one end, in a process of its own |
//! | `peer` | the orchestrator's handle to an end |
//! | `failure` | why a run failed |
//! | `protocol`, `channel` | the messages, and their transport |
//! | `machine` | an end's machine |
//! | `watchdog` | ends an abandoned end |
//! | `link`, `hosts` | two hosts, and an end on each |
//! | `network` | several hosts, and a bad link between them |
//! | `sampling` | samples of the CPUs during a run |
//! | `programs` | third-party programs between two hosts |
//! | `serve` | an end for other machines |

mod channel;
pub(crate) mod end;
pub(crate) mod failure;
pub(crate) mod hosts;
pub(crate) mod link;
pub(crate) mod machine;
pub(crate) mod network;
mod peer;
mod programs;
mod protocol;
pub(crate) mod runs;
pub(crate) mod sampling;
pub(crate) mod serve;
mod watchdog;
