//! Ends a copy's previous connection before a new one takes over.
//!
//! The previous connection may not have noticed yet that it is lost, and holds the file that it was writing.

use crate::digest::Digester;
use crate::error::Error;
use crate::limits::TURN_SECONDS;
use crate::stop::Stop;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zerolane::security::PublicKey;

/// The copies being served, with one connection each. As many as a server has connections.
#[derive(Debug, Default)]
pub(super) struct Turns {
    served: Mutex<Vec<Served>>,
    ended: Condvar,
}

/// Identifies a copy: its client's key, if that is the same in every connection, and the key of its digests, which is
/// new for each copy.
type Copy = (Option<PublicKey>, [u8; 32]);

#[derive(Debug)]
struct Served {
    copy: Copy,
    stop: Stop,
}

/// The right of a connection to serve a copy; released when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    copy: Copy,
    stop: Stop,
}

impl Turns {
    /// Ends the connection that serves this copy, if there is one, and takes its place.
    ///
    /// # Errors
    /// [`Error::Stalled`]: it did not end within [`TURN_SECONDS`]. [`Error::Stopped`].
    pub(super) fn take<'a>(
        &'a self,
        key: Option<PublicKey>,
        digester: &Digester,
        stop: &Stop,
    ) -> Result<Turn<'a>, Error> {
        let copy = (key, *digester.key());
        let deadline = Instant::now() + Duration::from_secs(TURN_SECONDS);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(before) = served.iter().find(|it| it.copy == copy) {
            before.stop.request();
            stop.check()?;
            if Instant::now() > deadline {
                return Err(Error::Stalled);
            }
            let waited = self.ended.wait_timeout(served, LOOK);
            served = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let stop = stop.of_part();
        served.push(Served {
            copy,
            stop: stop.clone(),
        });
        Ok(Turn {
            turns: self,
            copy,
            stop,
        })
    }
}

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

impl Turn<'_> {
    /// Requested when this connection must stop serving the copy.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let served = &self.turns.served;
        let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
        served.retain(|it| it.copy != self.copy);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__ends_the_connection_before_and_no_other() {
        let (turns, stop) = (Turns::default(), Stop::default());
        let copy = Digester::fixed();
        let first = turns.take(None, &copy, &stop).unwrap();
        let other = turns
            .take(None, &Digester::offer().unwrap(), &stop)
            .unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turns.take(None, &copy, &stop).map(drop));
            while !first.stop().requested() {
                std::thread::yield_now();
            }
            assert!(!other.stop().requested() && !stop.requested());
            drop(first);
            next.join().unwrap().unwrap();
        });
        stop.request();
        assert!(other.stop().requested());
    }
}
