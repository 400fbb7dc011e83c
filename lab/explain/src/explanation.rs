//! Defines the explanation: CPU time by cause, copies, packets and drops.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::activity::Activity;
use crate::hardware::HardwareCounts;
use crate::network::{DriverStatistic, Drop, Interface, Socket};
use crate::reasons::DropReason;
use crate::rules::Cause;
use crate::sampler::Source;

/// Where CPU time, copies and packets went while something ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// Duration of the explanation, seconds.
    pub seconds: f64,
    /// How the CPUs were sampled. `None`: they were not, and `missing` says why.
    pub sampling: Option<Sampling>,
    /// What watching took of the CPU time that was used, from 0 to 1, about: the samples at the cost that was measured
    /// before, times three where each is an interrupt, this process, and tracing. `None`: that cost is not known.
    pub perturbation_fraction: Option<f64>,
    /// CPU time by owner.
    pub cpu: Option<CpuTime>,
    /// CPU time of the program, and of the kernel while no process ran, by cause; the largest first. Of the whole
    /// machine if that was watched. Without what is unexplained, and without idle time.
    pub causes: Vec<CauseTime>,
    /// The share of that time that has a cause, from 0 to 1.
    pub explained_fraction: Option<f64>,
    /// The functions of the rest; the largest first.
    pub unexplained: Vec<Unexplained>,
    /// Bytes carried: the largest of what all interfaces received and sent, and of what IP received and sent.
    pub bytes: u64,
    /// How often each byte carried was copied, by the time that went into copies.
    pub copies_per_byte: Option<f64>,
    /// Between which numbers that is: if all copies were as slow, or as fast, as this machine copies, and by chance.
    pub copies_per_byte_range: Option<[f64; 2]>,
    /// The figures behind that estimate.
    pub copies: Option<Copies>,
    /// Causes and copies of each CPU apart: of each end, where the ends are pinned to CPUs of their own.
    pub by_cpu: Vec<CpuCauses>,
    /// The traffic of each interface.
    pub interfaces: Vec<Interface>,
    /// Packets dropped, by place.
    pub drops: Vec<Drop>,
    /// Why packets were dropped, as the kernel says it, on the whole machine. Empty also if it could not be traced,
    /// which `missing` says.
    pub drop_reasons: Vec<DropReason>,
    /// UDP sockets that lost datagrams; these are among `drops` as well.
    pub lossy_sockets: Vec<Socket>,
    /// What drivers counted of packets dropped, missed or damaged, by their own names: a packet may be in several of these,
    /// and among `drops` as well.
    pub driver_statistics: Vec<DriverStatistic>,
    /// Switches, wake-ups, interrupts.
    pub activity: Activity,
    /// The same for each MiB carried. Empty if less than one was.
    pub per_mib: BTreeMap<String, f64>,
    /// What each CPU counted itself, whatever ran there. `None`: it has no such counters, or this process may not read
    /// them, which `missing` says.
    pub hardware: Option<Vec<HardwareCounts>>,
    /// Missing figures, with the reasons.
    pub missing: Vec<String>,
    /// Folded stacks and their samples, if requested.
    #[serde(skip)]
    pub folded: HashMap<String, u64>,
}

/// How the CPUs were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// The event that triggers samples.
    pub source: Source,
    /// Samples a second of each CPU; by the tick, of each busy one.
    pub frequency_hz: u64,
    /// CPU nanoseconds that one takes here, measured before. `None`: that failed.
    pub sample_ns: Option<f64>,
    /// CPUs sampled.
    pub cpus: usize,
    /// Samples taken.
    pub samples: u64,
    /// Records that the kernel had no room for, samples and others.
    pub lost: u64,
    /// Samples whose stack is not among the folded ones, because there were too many different ones. They are
    /// counted by cause like all.
    pub not_folded: u64,
}

/// CPU seconds of all CPUs, by owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuTime {
    /// The program's and of those it started, in kernel and out of it; with the interrupts that met them.
    pub program: f64,
    /// The kernel's while no process ran: interrupts and softirqs of an idle CPU, and the kernel's threads.
    pub kernel: f64,
    /// Other processes'.
    pub others: f64,
    /// This process's: what explaining itself took.
    pub explaining: f64,
    /// The rest: no work, or a virtual CPU that did not run.
    pub idle: f64,
}

/// The CPU time of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CauseTime {
    /// The cause.
    pub cause: Cause,
    /// CPU seconds.
    pub seconds: f64,
    /// The share of the time to explain, from 0 to 1.
    pub share: f64,
    /// CPU nanoseconds for each KiB carried, if there was any.
    pub ns_per_kib: Option<f64>,
}

/// Where the CPU time of one CPU went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuCauses {
    /// Its number.
    pub cpu: usize,
    /// CPU time of the program, and of the kernel beside it, by cause; the largest first. Shares are of this CPU's.
    pub causes: Vec<CauseTime>,
    /// How often it copied each byte carried, as in [`Explanation::copies_per_byte`].
    pub copies_per_byte: Option<f64>,
    /// As in [`Explanation::copies_per_byte_range`].
    pub copies_per_byte_range: Option<[f64; 2]>,
}

/// A function that no rule explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unexplained {
    /// Its name.
    pub symbol: String,
    /// CPU seconds.
    pub seconds: f64,
    /// The share of the time to explain, from 0 to 1.
    pub share: f64,
}

/// How copies were counted: time in copies, times the rate, by the bytes carried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// CPU seconds in copies within the kernel, and between kernel and program.
    pub kernel_seconds: f64,
    /// CPU seconds in copies that programs made themselves.
    pub user_seconds: f64,
    /// Bytes per second that one CPU copies here out of memory that is not in its own cache, measured before.
    pub bytes_per_second: f64,
    /// The same out of memory that is in no cache into such.
    pub slowest_bytes_per_second: f64,
    /// The same within its own cache.
    pub fastest_bytes_per_second: f64,
}

impl Explanation {
    /// Sets [`per_mib`](Self::per_mib) by [`activity`](Self::activity) and [`bytes`](Self::bytes).
    pub(crate) fn relate_to_bytes(&mut self) {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        if mib < 1.0 {
            return;
        }
        let activity = &self.activity;
        let mut events: Vec<(String, u64)> = vec![
            ("context_switches".into(), activity.context_switches),
            ("interrupts".into(), activity.interrupts),
        ];
        events.extend(activity.system_calls.map(|it| ("system_calls".into(), it)));
        events.extend(activity.wake_ups.map(|it| ("wake_ups".into(), it)));
        let softirqs = activity.softirqs.iter();
        events.extend(
            softirqs.map(|(name, count)| (format!("softirq_{}", name.to_lowercase()), *count)),
        );
        self.per_mib = events
            .into_iter()
            .map(|(name, count)| (name, count as f64 / mib))
            .collect();
    }
}
