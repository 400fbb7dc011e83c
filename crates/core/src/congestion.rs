//! How much may be sent now, beyond what was granted.
//!
//! Grants are the flow control; a congestion controller may only hold payload back.

use crate::Instant;

/// Decides how many granted bytes may leave.
pub trait Congestion: Send {
    /// Bytes that may be sent at `now`.
    fn allowance(&self, now: Instant) -> u64;
    /// `bytes` of payload were handed to the lane.
    fn on_sent(&mut self, now: Instant, bytes: u64);
    /// The receiver reported `bytes` missing.
    fn on_missing(&mut self, now: Instant, bytes: u64);
}

/// No control beyond the receiver's grants: right on a path of one's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantsOnly;

impl Congestion for GrantsOnly {
    fn allowance(&self, _: Instant) -> u64 {
        u64::MAX
    }
    fn on_sent(&mut self, _: Instant, _: u64) {}
    fn on_missing(&mut self, _: Instant, _: u64) {}
}
