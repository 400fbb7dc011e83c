//! `zerolane bench put_lat` and its like: latencies, rates and bandwidths in perftest's words,
//! beside raw UDP, raw TCP, and UCX and libfabric over TCP where they are installed.
//!
//! | module | what it does |
//! |---|---|
//! | `test` | which tests there are |
//! | `command` | arguments, and what they ask for |
//! | `measure` | which run follows which |
//! | `job`, `run` | what an end is asked; one run at one end |
//! | `rounds` | one operation at a time, over a socket |
//! | `pipe`, `udp`, `tcp` | the sockets |
//! | `zl` | Zerolane's side |
//! | `content`, `times` | what is sent; how long it took |
//! | `tool` | other people's programs |
//! | `report`, `table` | figures; for people |

mod command;
mod content;
mod job;
mod measure;
mod pipe;
mod report;
mod rounds;
mod run;
mod table;
mod tcp;
mod test;
pub(crate) mod times;
mod tool;
mod udp;
mod zl;

pub(crate) use command::{Command, run};
pub(crate) use job::{Job, Seen};
pub(crate) use run::{initiate, respond};
