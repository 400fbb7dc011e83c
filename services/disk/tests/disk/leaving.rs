//! Tests that an initiator that disappears during a transfer commits no offence.

use std::time::{Duration, Instant};

use zerolane::Options;
use zerolane_disk::target::{ServerEvent, Settings};

use super::support::raw::{Raw, write};
use super::support::{self, Served, memory};

const BYTES: u64 = 1 << 20;

/// A target that misses an initiator soon, but not as one that is slow to log in, and one whose data the target waits for.
fn served() -> (Served, Raw) {
    let options = Options::default().with(|it| it.times.idle = Duration::from_secs(5));
    let served = Served::with(vec![memory(BYTES)], Settings::default(), options);
    let mut raw = Raw::open(served.address, &support::of(&support::identity()));
    raw.settle();
    let unit = raw.unit(&write(0, BYTES / 512), 0, BYTES);
    raw.post(&unit);
    raw.connection.poll().unwrap();
    (served, raw)
}

/// What is told of its end.
fn why(served: &Served) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = served.news.lock().unwrap().iter().find_map(|it| match it {
            ServerEvent::Disconnected(_, why) => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = left {
            return why;
        }
        assert!(Instant::now() < deadline, "{:?}", served.news);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As one that is killed, or whose link is cut.
#[test]
fn leaving__without_a_word_is_no_offence() {
    let (served, raw) = served();
    let why = why(&served);
    assert!(why.contains("stopped answering"), "{why}");
    drop(raw);
    assert_eq!(served.end(), [].into());
}
