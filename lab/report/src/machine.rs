//! Describes the measured machine.

use std::fs;
use std::thread;

use bytesize::ByteSize;
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

/// The properties of a machine on which figures depend. A report never mixes runs of two machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as the kernel names it.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory, with its unit.
    pub memory: String,
    /// The kernel's release.
    pub kernel: String,
    /// Whether this process is root: without, there are no namespaces of its own.
    pub root: bool,
}

impl Machine {
    /// Describes this machine.
    pub fn here() -> Machine {
        Machine {
            cpu: value_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: thread::available_parallelism().map_or(1, Into::into),
            memory: value_of("/proc/meminfo", "MemTotal")
                .and_then(|it| it.split_whitespace().next()?.parse().ok())
                .map_or_else(|| "unknown".into(), |kib| ByteSize::kib(kib).to_string()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".into(), |it| it.trim().to_owned()),
            root: Uid::effective().is_root(),
        }
    }
}

/// The value of a line `key : value`.
fn value_of(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
