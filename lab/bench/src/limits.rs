//! Defines every limit of the benchmark, with its unit and its reason.

use std::time::Duration;

/// Smallest buffer, bytes: below a page the numbers say nothing about placement.
pub(crate) const BUFFER_MIN_BYTES: usize = 4 << 10;

/// Largest buffer, bytes. An end allocates what a request asks for, and a
/// request may come from another machine: this is all it can be made to take.
pub(crate) const BUFFER_MAX_BYTES: usize = 1 << 30;

/// Most bytes one run moves: an hour at 2.4 Gb/s.
pub(crate) const RUN_MAX_BYTES: u64 = 1 << 40;

/// Most repetitions of a pair of runs.
pub(crate) const REPS_MAX: u32 = 1000;

/// Largest line of the control protocol, bytes. The longest real one is a
/// measurement of [`FLOWS_MAX`] flows with a thousand samples each.
pub(crate) const LINE_MAX_BYTES: usize = 1 << 20;

/// Most flows of one receiver: each has a thread.
pub(crate) const FLOWS_MAX: usize = 64;

/// How long the ends of a flow wait for each other to connect: longer than
/// [`CONNECT`], for the first packets may be lost, and many ends share a core.
pub(crate) const FLOW_CONNECT: Duration = Duration::from_secs(30);

/// Longest time of a flow.
pub(crate) const FLOW_MAX: Duration = Duration::from_secs(600);

/// How long a sender goes on after its flow's time, in case the receiver's end
/// of the connection is lost.
pub(crate) const FLOW_GRACE: Duration = Duration::from_secs(5);

/// How long an end of a flow hears nothing before its peer counts as gone. A
/// flow may be nearly stopped by losses.
pub(crate) const FLOW_IDLE: Duration = Duration::from_secs(30);

/// How long one system call on a data connection may wait for the peer before
/// the peer counts as gone.
pub(crate) const STALL: Duration = Duration::from_secs(10);

/// How long the receiver waits for the sender to connect.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// How long an end waits for its next request before it ends by itself. An unoptimised program on a busy machine measures
/// the costs of single things for minutes between two requests.
pub(crate) const IDLE: Duration = Duration::from_secs(600);

/// How long a run may take beside the time that its bytes take.
const RUN: Duration = Duration::from_secs(120);

/// The slowest rate at which a run is still worth waiting for, bytes a second:
/// gives each run its deadline.
pub(crate) const SLOWEST_BYTES_PER_SECOND: u64 = 20 << 20;

/// How long a run of `bytes` may take before the end that runs it gives up and
/// exits, whatever it is waiting for.
pub(crate) fn deadline(bytes: u64) -> Duration {
    RUN + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}
