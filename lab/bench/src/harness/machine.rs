//! Describes an end's machine: its kernel, CPU and settings.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::contender::congestion;

/// The machine an end runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    /// That its end may run on.
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The congestion control that TCP runs with here unless another one is asked for.
    pub(crate) tcp_baseline: String,
}

impl Machine {
    /// This machine, as far as it says, where so many cores may be used.
    ///
    /// # Errors
    /// It has no TCP.
    pub(crate) fn this(cores: usize) -> Result<Machine> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned());
        Ok(Machine {
            cpu,
            cores,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            tcp_baseline: congestion::baseline()?,
        })
    }
}
