//! Detects whether other threads compete for the core of this thread.

use std::thread;
use std::time::{Duration, Instant};

/// How often that is asked: the question offers the core to all others, which may keep it for a while.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// An offer that no other thread takes is over sooner.
const REFUSED: Duration = Duration::from_micros(3);

/// The last result of the question, and its time.
#[derive(Default)]
pub(super) struct Contention {
    asked: Option<Instant>,
    is_wanted: bool,
}

impl Contention {
    /// Whether other threads wait for it. To be asked when one was just woken that may be among them.
    pub(super) fn is_wanted(&mut self, now: Instant) -> bool {
        if self.asked.is_none_or(|at| now - at > ASK_EVERY) {
            let offered = Instant::now();
            thread::yield_now();
            let back = Instant::now();
            self.is_wanted = back - offered > REFUSED;
            self.asked = Some(back);
        }
        self.is_wanted
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn core__is_offered_seldom_and_what_came_of_it_remembered() {
        let mut contention = Contention::default();
        let first = contention.is_wanted(Instant::now());
        let asked = contention.asked.expect("it was offered");
        assert_eq!(contention.is_wanted(asked + ASK_EVERY), first);
        assert_eq!(contention.asked, Some(asked));
        contention.is_wanted(asked + 2 * ASK_EVERY);
        assert!(contention.asked > Some(asked));
    }
}
