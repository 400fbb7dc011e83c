//! Limits how many log lines clients can cause.

use std::time::Instant;

/// Kinds of lines, each with its own limit, so that none crowds out another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requests of clients that were let in, and their outcomes.
    Request,
    /// Clients that were refused.
    Refusal,
    /// Files that were not copied.
    File,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Request, Kind::Refusal, Kind::File];

    /// The noun for the number of lines left out.
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Request => "requests and their ends",
            Kind::Refusal => "refusals",
            Kind::File => "files that were not copied",
        }
    }

    /// Burst and lines a second. Admitted clients may ask often. One line is enough to show that unauthenticated peers
    /// knock; the limit is 3600 an hour, 0.5 MB.
    fn limit(self) -> (f64, f64) {
        match self {
            Kind::Request => (1000.0, 100.0),
            Kind::Refusal => (20.0, 1.0),
            Kind::File => (100.0, 10.0),
        }
    }
}

/// The remaining allowance of each kind.
#[derive(Debug)]
pub(super) struct Pace([Bucket; Kind::ALL.len()]);

#[derive(Debug)]
struct Bucket {
    room: f64,
    at: Instant,
    left_out: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace(Kind::ALL.map(|kind| Bucket {
            room: kind.limit().0,
            at: now,
            left_out: 0,
        }))
    }

    /// Whether to write a line: `None` if not, otherwise the number of lines left out since the last one.
    pub(super) fn admit(&mut self, kind: Kind, now: Instant) -> Option<u64> {
        let bucket = &mut self.0[kind as usize];
        let (most, a_second) = kind.limit();
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.room = (bucket.room + passed * a_second).min(most);
        bucket.at = now;
        if bucket.room < 1.0 {
            bucket.left_out += 1;
            return None;
        }
        bucket.room -= 1.0;
        Some(std::mem::take(&mut bucket.left_out))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn admit__so_many_at_once_then_so_many_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let admitted = (0..1000).filter(|_| pace.admit(Kind::Refusal, start).is_some());
        assert_eq!(admitted.count(), 20);
        assert_eq!(pace.admit(Kind::Request, start), Some(0), "has its own");
        let later = start + Duration::from_millis(2500);
        assert_eq!(pace.admit(Kind::Refusal, later), Some(980));
        assert_eq!(pace.admit(Kind::Refusal, later), Some(0));
        assert_eq!(pace.admit(Kind::Refusal, later), None);
        let much_later = start + Duration::from_secs(3600);
        let admitted = (0..1000).filter(|_| pace.admit(Kind::Refusal, much_later).is_some());
        assert_eq!(admitted.count(), 20, "no more for a long silence");
    }
}
