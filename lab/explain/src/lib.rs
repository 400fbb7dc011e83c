//! Explains where a program's CPU time, copies and packets go on the local machine.
//!
//! An [`Explainer`] samples every CPU with the stacks of kernel and program, and reads the kernel's counters in each network
//! namespace of the program. The [`Explanation`] has CPU time by [`Cause`](rules::Cause), the number of copies of each byte,
//! the packets of each interface, and where packets were dropped. `docs/guide/explain.md` says which figures are estimates,
//! and how they are made.
//!
//! | module | what it does |
//! |---|---|
//! | `explainer` | watches from start to finish |
//! | `program` | runs a program and explains it until it ends |
//! | `sampler`, `tick`, `refused` | samples of every CPU; by which timer; why there are none |
//! | `cost` | the cost of a sample |
//! | `tracing`, `system_calls`, `reasons` | the kernel's tracepoints, and counts from them |
//! | `processes` | the process of each sample, and the files that its code is from |
//! | `symbols`, `chosen`, [`stack`] | addresses to names |
//! | [`rules`] | names to causes, by the table `causes.txt` |
//! | `profile` | sums of samples |
//! | `network` | interfaces, drops, namespaces |
//! | `activity` | context switches, wake-ups, interrupts, softirqs |
//! | `hardware` | cycles, instructions, cache misses of each CPU |
//! | `copy_rate` | how fast this machine copies |
//! | `account`, `explanation` | the explanation, from all of these |
//!
//! The crate knows nothing of Zerolane's protocol and can explain any program.

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
pub use explanation::{CauseTime, Copies, CpuCauses, CpuTime, Explanation, Sampling, Unexplained};
pub use hardware::HardwareCounts;
pub use network::{DriverStatistic, Drop, Interface, Socket};
pub use program::{Error, Stop, explain_for, explain_process, explain_program};
pub use reasons::DropReason;
pub use sampler::Source;
