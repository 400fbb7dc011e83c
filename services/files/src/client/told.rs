//! Reports each difference of a sync once, although repeated comparisons find it again.

use crate::error::{Cause, Error, Failure};
use crate::observe::Observer;
use crate::sync::options::{Change, SyncObserver};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Passes on events, without repeating differences after an outage.
pub(super) struct Told<'a> {
    observer: &'a dyn SyncObserver,
    /// Seconds by which times may differ.
    window: u32,
    /// Changes found by this comparison, and the most that any comparison found.
    found: AtomicU64,
    told: AtomicU64,
    /// The number of all changes, known after the first complete comparison.
    all: AtomicU64,
}

impl Told<'_> {
    pub(super) fn new(observer: &dyn SyncObserver, window: u32) -> Told<'_> {
        Told {
            observer,
            window,
            found: AtomicU64::new(0),
            told: AtomicU64::new(0),
            all: AtomicU64::new(u64::MAX),
        }
    }

    /// Starts another comparison.
    pub(super) fn begin(&self) {
        self.found.store(0, Ordering::Relaxed);
    }

    /// Records that a comparison was completed.
    pub(super) fn compared(&self) {
        self.all
            .fetch_min(self.told.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Observer for Told<'_> {
    fn counted(&self, files: u64, bytes: u64) {
        self.observer.counted(files, bytes);
    }

    fn file_started(&self, path: &[u8], size: u64) {
        self.observer.file_started(path, size);
    }

    fn advanced(&self, bytes: u64) {
        self.observer.advanced(bytes);
    }

    fn skipped(&self, path: &[u8]) {
        self.observer.skipped(path);
    }

    fn failed(&self, failure: &Failure) {
        self.observer.failed(failure);
    }

    fn failed_remotely(&self, failure: &Failure) {
        self.observer.failed_remotely(failure);
    }

    fn not_kept(&self, failure: &Failure, there: bool) {
        if matches!(failure.cause, Cause::TimeNotKept(off) if off <= self.window.into()) {
            return;
        }
        self.observer.not_kept(failure, there);
    }

    fn interrupted(&self, why: &Error, left: Duration) {
        self.observer.interrupted(why, left);
    }

    fn waiting(&self, left: Duration) {
        self.observer.waiting(left);
    }

    fn reconnected(&self, outage: Duration, bytes: u64) {
        self.observer.reconnected(outage, bytes);
    }
}

impl SyncObserver for Told<'_> {
    fn change(&self, change: &Change<'_>) {
        let number = self.found.fetch_add(1, Ordering::Relaxed);
        let told = self.told.load(Ordering::Relaxed);
        if number >= told && number < self.all.load(Ordering::Relaxed) {
            self.told.store(number + 1, Ordering::Relaxed);
            self.observer.change(change);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::message::EntryKind;
    use crate::sync::options::Action;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Seen(Mutex<Vec<Vec<u8>>>);

    impl Observer for Seen {
        fn not_kept(&self, failure: &Failure, _there: bool) {
            self.0.lock().unwrap().push(failure.path.clone());
        }
    }

    impl SyncObserver for Seen {
        fn change(&self, change: &Change<'_>) {
            self.0.lock().unwrap().push(change.path.to_vec());
        }
    }

    #[test]
    fn not_kept__is_told_of_times_beyond_the_window() {
        for (window, off, is_told) in [
            (0, 1, true),
            (1, 1, false),
            (1, 2, true),
            (2, 4_967_614_465, true),
        ] {
            let seen = Seen::default();
            let failure = Failure::new(b"a", Cause::TimeNotKept(off));
            Told::new(&seen, window).not_kept(&failure, true);
            let told = seen.0.lock().unwrap().len();
            assert_eq!(told, usize::from(is_told), "{off} s, {window} allowed");
        }
    }

    #[test]
    fn change__is_told_once_over_all_comparisons() {
        let seen = Seen::default();
        let told = Told::new(&seen, 0);
        let compare = |paths: &[&str]| {
            told.begin();
            for path in paths {
                told.change(&Change {
                    path: path.as_bytes(),
                    kind: EntryKind::File,
                    size: 0,
                    action: Action::Create,
                });
            }
        };
        // The first two comparisons are cut short.
        compare(&["a", "b"]);
        compare(&["a", "b", "c"]);
        compare(&["a", "b", "c", "d"]);
        told.compared();
        compare(&["c", "d"]);
        told.compared();
        compare(&["a", "b", "c", "d", "e"]);
        let seen = seen.0.into_inner().unwrap();
        assert_eq!(seen, ["a", "b", "c", "d"].map(|it| it.as_bytes().to_vec()));
    }
}
