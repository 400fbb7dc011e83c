//! Reports failures once that several shares of a copy meet, because each share enters every directory.

use crate::error::{Cause, Failure};
use crate::limits::{REPORT_PATH_BYTES, REPORTED_FAILURES};
use std::collections::HashMap;

/// The failures reported so far.
#[derive(Default)]
pub(super) struct Repeated {
    told: HashMap<[u8; 32], Told>,
}

/// The shares that reported a path.
struct Told {
    /// The first share that reported it.
    first: usize,
    /// How often each share reported it, by index.
    times: Vec<u32>,
    /// Whether the cause was that the file vanished.
    vanished: bool,
}

impl Repeated {
    /// Records a failure of `share`; returns whether to pass it on. `there`: it failed at the other end.
    pub(super) fn is_news(&mut self, share: usize, failure: &Failure, there: bool) -> bool {
        // A path that was cut may stand for several paths.
        let cut = failure.path.len() >= REPORT_PATH_BYTES;
        let key = key(&failure.path, there);
        if cut || self.told.len() >= REPORTED_FAILURES && !self.told.contains_key(&key) {
            return true;
        }
        let told = self.told.entry(key).or_insert_with(|| Told {
            first: share,
            times: Vec::new(),
            vanished: failure.cause == Cause::Vanished,
        });
        told.times.resize(told.times.len().max(share + 1), 0);
        told.times[share] += 1;
        told.first == share
    }

    /// How many failures other shares repeated, and how many of these files had vanished.
    pub(super) fn count(&self) -> (u64, u64) {
        let again = self.told.values().map(|told| {
            let again = told.again();
            (again, if told.vanished { again } else { 0 })
        });
        again.fold((0, 0), |(all, gone), it| (all + it.0, gone + it.1))
    }
}

impl Told {
    /// One share may report a path several times: two sources with one name, or an outage in between.
    fn again(&self) -> u64 {
        let times = self.times.iter().copied().map(u64::from);
        times.clone().sum::<u64>() - times.max().unwrap_or(0)
    }
}

fn key(path: &[u8], there: bool) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[there.into()]).update(path);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn failure(path: &str) -> Failure {
        Failure::new(path.as_bytes(), Cause::NotFound)
    }

    #[test]
    fn Repeated__a_path_is_told_by_the_first_share_that_meets_it() {
        let mut repeated = Repeated::default();
        assert!(repeated.is_news(1, &failure("a"), true));
        assert!(!repeated.is_news(0, &failure("a"), true));
        assert!(!repeated.is_news(2, &failure("a"), true));
        assert_eq!(repeated.count(), (2, 0));
        // Another path, and the other end.
        assert!(repeated.is_news(0, &failure("b"), true));
        assert!(repeated.is_news(0, &failure("a"), false));
        assert_eq!(repeated.count(), (2, 0));
        // Two sources with that name, in two shares.
        assert!(repeated.is_news(0, &failure("b"), true));
        assert!(!repeated.is_news(1, &failure("b"), true));
        assert!(!repeated.is_news(1, &failure("b"), true));
        assert_eq!(repeated.count(), (4, 0));
        let gone = Failure::new(b"gone", Cause::Vanished);
        assert!(repeated.is_news(0, &gone, true) && !repeated.is_news(1, &gone, true));
        assert_eq!(repeated.count(), (5, 1));
    }

    #[test]
    fn Repeated__nothing_is_kept_back_that_may_be_another() {
        let mut repeated = Repeated::default();
        let long = "x".repeat(REPORT_PATH_BYTES);
        assert!(repeated.is_news(0, &failure(&long), false));
        assert!(repeated.is_news(1, &failure(&long), false));
        for number in 0..REPORTED_FAILURES {
            assert!(repeated.is_news(0, &failure(&number.to_string()), false));
        }
        for share in 0..2 {
            assert!(repeated.is_news(share, &failure("one more"), false));
        }
        assert_eq!(repeated.count(), (0, 0));
        assert_eq!(repeated.told.len(), REPORTED_FAILURES);
        assert!(!repeated.is_news(1, &failure("7"), false));
    }
}
