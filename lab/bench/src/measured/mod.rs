//! Holds the measurements of an end.
//!
//! | module | what it holds |
//! |---|---|
//! | `times` | times of single operations |
//! | `progress` | bytes over time |

pub(crate) mod progress;
pub(crate) mod times;

use serde::{Deserialize, Serialize};

use crate::cpu::CpuTime;
use times::Quantiles;

/// What one end measured of one connection. What it could not see, or was not asked for, is zero or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    /// Payload bytes; at the receiver, bytes in place.
    pub(crate) bytes: u64,
    /// From the receiver's *go* to the last byte in place, or to the receiver's *done*.
    pub(crate) seconds: f64,
    /// Over that time.
    pub(crate) cpu: CpuTime,
    /// System calls that carried data.
    pub(crate) syscalls: u64,
    /// Bytes that the kernel's own copy put into their final place.
    pub(crate) placed_bytes: u64,
    /// Bytes copied again in user space.
    pub(crate) moved_bytes: u64,
    /// What sealed the payload, as Zerolane names it; `None`: nothing did, or who sent it does not say.
    pub(crate) cipher: Option<String>,
    /// Packets that did not land in their final place at once.
    pub(crate) misplaced: u64,
    /// Packets dropped, wherever this end could see it.
    pub(crate) drops: u64,
    /// Datagrams of the program that came among the payload.
    pub(crate) between: u64,
    /// Payload sent that never arrived, bytes.
    pub(crate) lost_bytes: u64,
    /// Bytes in place in each part of a flow's time; their sum is `bytes`.
    pub(crate) samples: Vec<u64>,
    /// Payload bytes that came by each path, where there are several.
    pub(crate) path_bytes: Vec<u64>,
    /// Payload bytes that came though they were there already, as far as the receiver counts them.
    pub(crate) repeated_bytes: u64,
    /// Payload bytes sent again.
    pub(crate) resent_bytes: u64,
    /// Payload bytes that the sender's peer reported to have had already.
    pub(crate) reported_repeats_bytes: u64,
    /// Of single operations.
    pub(crate) latency: Option<Quantiles>,
}

impl Measured {
    /// Of an end that times each operation.
    pub(crate) fn latency(latency: Quantiles) -> Measured {
        Measured {
            latency: Some(latency),
            ..Measured::default()
        }
    }

    /// Of an end that times many operations at once.
    pub(crate) fn stream(bytes: u64, seconds: f64) -> Measured {
        Measured {
            bytes,
            seconds,
            ..Measured::default()
        }
    }
}
