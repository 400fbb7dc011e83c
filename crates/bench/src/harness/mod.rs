//! Who is told what, and when.
//!
//! | module | what it does |
//! |---|---|
//! | `runs` | the ends of a run, and which run follows which |
//! | `end` | one end, in a process of its own |
//! | `peer` | the orchestrator's handle to an end |
//! | `failure` | why a run failed |
//! | `protocol`, `channel` | what they say, and how |
//! | `machine` | what an end's machine is |
//! | `watchdog` | ends an end that nobody waits for any more |
//! | `link`, `hosts` | two hosts, and an end on each |
//! | `network` | several hosts, and a bad link between them |
//! | `sampling` | samples of the CPUs meanwhile |
//! | `programs` | other people's programs between two hosts |
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
