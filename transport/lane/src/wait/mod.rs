//! Waits for descriptors, threads and the clock, and wakes those that wait.

mod clock;
mod doorbell;
pub(crate) mod poll;
pub mod spin;
mod waited;
pub(crate) mod waker;

pub(crate) use clock::Clock;
pub use waited::Waited;
pub use waker::Waker;
