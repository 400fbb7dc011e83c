//! Where a program's CPU time, copies and packets go, on the machine it runs on.
//!
//! An [`Explainer`] watches from start to finish: it samples every CPU with the stacks of kernel and program, and
//! reads the kernel's counters in each network namespace that the program is in. The [`Explanation`] has CPU time by
//! [`Cause`](rules::Cause), how often each byte was copied, what passed each interface, and where packets were dropped.
//! What is estimated, and how, is in `docs/guide/explain.md`.
//!
//! | module | what it does |
//! |---|---|
//! | `explainer` | from start to finish |
//! | `program` | a program that is run and explained, until it ends |
//! | `sampler`, `tick`, `refused` | samples of every CPU; by what; why there are none |
//! | `cost` | what a sample takes |
//! | `tracing`, `system_calls`, `reasons` | the kernel's tracepoints, and what is counted by them |
//! | `processes` | whose samples these are, and which files their code is from |
//! | `symbols`, `chosen`, [`stack`] | addresses to names |
//! | [`rules`] | names to causes, by the table `causes.txt` |
//! | `profile` | samples added up |
//! | `network` | interfaces, drops, namespaces |
//! | `activity` | switches, wake-ups, interrupts, softirqs |
//! | `hardware` | cycles, instructions, cache misses of each CPU |
//! | `copy_rate` | how fast this machine copies |
//! | `account`, `explanation` | what is said of all that |
//!
//! It knows nothing of Zerolane's protocol: any program can be explained.

#![forbid(unsafe_code)]

mod account;
mod activity;
mod chosen;
mod copy_rate;
mod cost;
mod explainer;
mod explanation;
mod hardware;
mod network;
mod processes;
mod profile;
mod program;
mod reasons;
mod refused;
pub mod rules;
mod sampler;
pub mod stack;
mod symbols;
mod system_calls;
mod tick;
mod tracing;

pub use activity::Activity;
pub use explainer::{Explainer, Options, Rate, Subject};
pub use explanation::{CauseTime, Copies, CpuTime, Explanation, Sampling, Unexplained};
pub use hardware::HardwareCounts;
pub use network::{DriverStatistic, Drop, Interface, Socket};
pub use program::{Error, Stop, explain_for, explain_process, explain_program};
pub use reasons::DropReason;
pub use sampler::Source;
