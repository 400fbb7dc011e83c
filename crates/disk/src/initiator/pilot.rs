//! The seat of a thread that watches descriptors of its own beside the connection: of a door in one thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Queue;
use super::drive::Driver;
use super::seat::{Seated, Shared};

/// The right to drive a queue's connection, which its thread has until it drops it. Meanwhile no other thread drives:
/// requests that other threads wait for are over when this one turns.
pub struct Seat<'a> {
    // Left before the seat is free again.
    seated: Option<Seated<'a, Driver>>,
    shared: &'a Shared<Driver>,
}

impl Queue {
    /// Takes the seat. `None`: there is no connection at present, or another thread drives it, which leaves when its turn
    /// is over. The caller asks again soon, for from the first question on no thread of the queue's drives but to connect
    /// again.
    pub fn sit(&self) -> Option<Seat<'_>> {
        let shared = &*self.shared;
        let seated = Some(shared.reserve()?);
        Some(Seat { seated, shared })
    }
}

impl Seat<'_> {
    /// Takes what was asked for, sends what there is room for, and ends what is over. Does not wait. False: the
    /// connection broke; the seat is to be dropped, so that the queue connects again.
    pub fn turn(&mut self) -> bool {
        let seated = self.seated.as_mut();
        seated.is_some_and(|it| it.turn_by(Driver::look_once))
    }

    /// How long there is nothing to do unless the descriptor is ready; `None`: without end. Zero: the last turn moved
    /// something, and there may be more. To be asked before each sleep.
    pub fn next_timeout(&mut self) -> Option<Duration> {
        let driver = self.seated.as_mut().and_then(Seated::driver)?;
        driver.connection()?.next_timeout()
    }

    /// What is to be watched, and whether for room to write as well.
    pub fn watched(&mut self) -> Option<(BorrowedFd<'_>, bool)> {
        use std::os::fd::AsFd;
        let driver = self.seated.as_mut().and_then(Seated::driver)?;
        let connection = driver.connection()?;
        Some((connection.as_fd(), connection.wants_write()))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.seated = None;
        self.shared.release();
    }
}
