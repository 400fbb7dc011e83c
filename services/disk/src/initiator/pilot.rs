//! Lets a thread drive the connection while it also watches its own descriptors, as a single-threaded door does.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Queue;
use super::drive::Driver;
use super::driver_slot::{Driving, Shared};

/// The exclusive right of a thread to drive a queue's connection, until it is dropped. Requests of other threads
/// complete only in [`turn`](DriverSlot::turn).
pub struct DriverSlot<'a> {
    // Left before the driver slot is free again.
    driving: Option<Driving<'a, Driver>>,
    shared: &'a Shared<Driver>,
}

impl Queue {
    /// Takes the driver slot. `None`: there is no connection now, or another thread drives it and will leave after its
    /// turn. The caller must try again soon: after the first call, the queue's own thread only reconnects and does not
    /// drive.
    pub fn take_driver_slot(&self) -> Option<DriverSlot<'_>> {
        let shared = &*self.shared;
        let driving = Some(shared.reserve()?);
        Some(DriverSlot { driving, shared })
    }
}

impl DriverSlot<'_> {
    /// Accepts new requests, sends commands as far as there is room, and completes finished requests. Does not wait.
    /// False: the connection broke; drop the driver slot, so that the queue can reconnect.
    pub fn turn(&mut self) -> bool {
        let driving = self.driving.as_mut();
        driving.is_some_and(|it| it.turn_by(Driver::look_once))
    }

    /// How long the thread may sleep unless the descriptor becomes ready; `None`: without limit. Zero: the last turn
    /// made progress, and there may be more. Call it before each sleep.
    pub fn next_timeout(&mut self) -> Option<Duration> {
        let driver = self.driving.as_mut().and_then(Driving::driver)?;
        driver.connection()?.next_timeout()
    }

    /// The descriptor to watch for reading, and whether to watch it for writing, too.
    pub fn watched(&mut self) -> Option<(BorrowedFd<'_>, bool)> {
        use std::os::fd::AsFd;
        let driver = self.driving.as_mut().and_then(Driving::driver)?;
        let connection = driver.connection()?;
        Some((connection.as_fd(), connection.wants_write()))
    }
}

impl Drop for DriverSlot<'_> {
    fn drop(&mut self) {
        self.driving = None;
        self.shared.release();
    }
}
