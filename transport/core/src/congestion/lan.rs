//! Sends everything that is granted at once, on a path without other traffic.
//!
//! It observes nothing and decides nothing: the receiver's grants are the flow control. It is in use where the user
//! asked for it, or where [`Auto`](super::Auto) has found a LAN.

use super::{Congestion, Sample};
use crate::time::Instant;
use core::time::Duration;

/// Bytes between two questions. One control operation each way costs next to nothing for this much, and keeps the round
/// trip known.
const QUESTION_INTERVAL: u64 = 4 << 20;

/// No control beyond the receiver's grants: suits a path without other traffic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrantsOnly;

impl Congestion for GrantsOnly {
    fn name(&self) -> &'static str {
        "lan"
    }
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn pace(&self) -> Option<u64> {
        None
    }
    fn quantum(&self) -> u64 {
        u64::MAX
    }
    fn ack_request_interval(&self) -> u64 {
        QUESTION_INTERVAL
    }
    fn on_progress(&mut self, _: Instant, _: &Sample) {}
    fn on_lost(&mut self, _: Instant, _: u64) {}
    fn on_silence(&mut self, _: Instant) {}
    fn on_new_path(&mut self, _: Option<Duration>) {}
}
