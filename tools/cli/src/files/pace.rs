//! How many lines clients may make a server write.

use std::time::Instant;

/// Kinds of lines, each with a limit of its own: none takes the room of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What clients that were let in asked for, and what became of it.
    Request,
    /// Clients that were not let in.
    Refusal,
    /// Files that were not copied.
    File,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Request, Kind::Refusal, Kind::File];

    /// What is counted of it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Request => "requests and their ends",
            Kind::Refusal => "refusals",
            Kind::File => "files that were not copied",
        }
    }

    /// Lines at once, and a second. Clients that were let in and ask often are normal; strangers at the door are not,
    /// and that they are there is said by the first of them: 3600 an hour, 0.5 MB.
    fn limit(self) -> (f64, f64) {
        match self {
            Kind::Request => (1000.0, 100.0),
            Kind::Refusal => (20.0, 1.0),
            Kind::File => (100.0, 10.0),
        }
    }
}

/// The room that is left.
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

    /// Whether a line may be written: `None` if not. Else how many were left out since the last one.
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
