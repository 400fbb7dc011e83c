//! Tests that the ring of short payloads keeps each operation's bytes until it ends.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

/// Identifiers run from 1 to this and then start again.
const LAST_ID: TransferId = (1 << 31) - 1;

/// A payload in the ring.
struct Kept {
    id: TransferId,
    span: Span,
    bytes: Vec<u8>,
}

/// A ring and its expected content: byte strings in the order of the copies, dropped from the front as operations end.
struct Ring {
    inline: Inline,
    registry: Registry,
    kept: VecDeque<Kept>,
    next_id: TransferId,
    fill: u8,
    /// The newest bytes belong to no operation: there is less room than `kept` suggests.
    wasted: bool,
}

impl Ring {
    fn new(first_id: TransferId) -> Ring {
        Ring {
            inline: Inline::default(),
            registry: Registry::default(),
            kept: VecDeque::new(),
            next_id: first_id,
            fill: 0,
            wasted: false,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.fill = self.fill.wrapping_add(1);
        vec![self.fill; len]
    }

    fn copied(&mut self, bytes: &[u8]) -> Option<Span> {
        let oldest = self.kept.front().map(|it| it.id);
        let span = self.inline.copy(bytes, &mut self.registry, oldest);
        span.expect("memory")
    }

    /// Posts `len` bytes; false if the ring is full.
    fn post(&mut self, len: usize) -> bool {
        let bytes = self.bytes(len);
        let fits = self.fits(len);
        let Some(span) = self.copied(&bytes) else {
            assert!(!fits || self.wasted, "{len} bytes fit");
            return false;
        };
        assert!(fits, "{len} bytes do not fit");
        assert_eq!(span.len, len as u64);
        assert!(span.end() <= ROOM as u64, "{span:?}");
        let id = self.next_id;
        self.next_id = id % LAST_ID + 1;
        self.inline.take(id, span);
        self.kept.push_back(Kept { id, span, bytes });
        self.wasted &= len == 0;
        self.check();
        true
    }

    /// Makes a copy and does not take it, as when the post is refused.
    fn waste(&mut self, len: usize) {
        let bytes = self.bytes(len);
        self.wasted |= self.copied(&bytes).is_some();
        self.check();
    }

    /// Ends the oldest operation.
    fn end(&mut self) {
        self.kept.pop_front();
    }

    /// Whether `len` bytes fit in one piece: after the newest up to the end of the ring, or before the oldest, where
    /// one byte always stays free.
    fn fits(&self, len: usize) -> bool {
        let mut full = self.kept.iter().filter(|it| !it.bytes.is_empty());
        let Some(oldest) = full.next() else {
            return true;
        };
        let newest = full.next_back().unwrap_or(oldest);
        let (oldest, head) = (oldest.span.offset as usize, newest.span.end() as usize);
        match newest.span.offset as usize >= oldest {
            true => head + len <= ROOM || len < oldest,
            false => head + len < oldest,
        }
    }

    /// Checks that each operation's bytes are as posted.
    fn check(&self) {
        for it in &self.kept {
            let mut bytes = vec![0; it.bytes.len()];
            assert!(self.registry.read(it.span, &mut bytes));
            assert_eq!(bytes, it.bytes, "{}: {:?}", it.id, it.span);
        }
    }

    fn fill_with(&mut self, len: usize) -> usize {
        (0..).take_while(|_| self.post(len)).count()
    }
}

#[test]
fn copy__fills_the_ring_to_its_last_byte_and_no_further() {
    let mut ring = Ring::new(1);
    assert_eq!(ring.fill_with(MAX_INLINE), ROOM / MAX_INLINE);
    assert_eq!(ring.kept.back().expect("full").span.end(), ROOM as u64);
    assert!(!ring.post(1));
    assert!(ring.post(0), "nothing always fits");
}

#[test]
fn copy__of_nothing_takes_no_room() {
    let mut ring = Ring::new(1);
    assert!((0..10).all(|_| ring.post(0)));
    assert_eq!(ring.fill_with(MAX_INLINE), ROOM / MAX_INLINE);
}

#[test]
fn copy__into_an_empty_ring_starts_at_its_start() {
    let mut ring = Ring::new(1);
    ring.fill_with(MAX_INLINE);
    while !ring.kept.is_empty() {
        ring.end();
    }
    assert!(ring.post(1));
    assert_eq!(ring.kept[0].span.offset, 0);
}

#[test]
fn copy__wraps_when_the_oldest_is_over_and_leaves_a_byte_in_front_of_the_next() {
    let mut ring = Ring::new(1);
    ring.fill_with(MAX_INLINE);
    ring.end();
    assert!(!ring.post(MAX_INLINE), "an exact fit is one byte too much");
    assert!(ring.post(MAX_INLINE - 1));
    assert_eq!(ring.kept.back().expect("posted").span.offset, 0);
    assert!(!ring.post(1));
}

#[test]
fn copy__does_not_cut_a_payload_at_the_end_of_the_ring() {
    let mut ring = Ring::new(1);
    ring.fill_with(100);
    let free = ROOM % 100;
    (0..3).for_each(|_| ring.end());
    assert!(ring.post(free + 1));
    assert_eq!(ring.kept.back().expect("posted").span.offset, 0);
}

#[test]
fn copy__room_comes_back_in_the_order_of_the_operations() {
    let mut ring = Ring::new(1);
    ring.fill_with(MAX_INLINE);
    // A later operation that ends frees nothing while the oldest is in progress.
    assert!(!ring.post(MAX_INLINE));
    (0..2).for_each(|_| ring.end());
    assert!(ring.post(MAX_INLINE), "the room of the first two");
    assert!(!ring.post(MAX_INLINE));
}

#[test]
fn copy__identifiers_wrap() {
    let mut ring = Ring::new(LAST_ID - 2);
    for _ in 0..3 * ROOM / MAX_INLINE {
        while !ring.post(MAX_INLINE) {
            ring.end();
        }
    }
    assert!(ring.next_id < LAST_ID - 2);
}

#[test]
fn copy__what_was_not_taken_costs_room_until_the_ring_is_empty() {
    let mut ring = Ring::new(1);
    assert!(ring.post(MAX_INLINE));
    for _ in 1..ROOM / MAX_INLINE {
        ring.waste(MAX_INLINE);
    }
    assert!(!ring.post(1));
    ring.end();
    assert_eq!(ring.fill_with(MAX_INLINE), ROOM / MAX_INLINE);
}

#[derive(Clone, Debug)]
enum Step {
    Post(usize),
    Waste(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len =
        || prop_oneof![4 => 0..=MAX_INLINE, 2 => Just(MAX_INLINE), 1 => Just(1), 1 => Just(0)];
    prop_oneof![
        30 => len().prop_map(Step::Post),
        1 => len().prop_map(Step::Waste),
        6 => (1..6usize).prop_map(Step::End),
    ]
}

proptest! {
    #[test]
    fn ring__agrees_with_a_queue_of_byte_strings(
        first_id in prop_oneof![Just(1), LAST_ID - 100..=LAST_ID],
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut ring = Ring::new(first_id);
        for step in steps {
            match step {
                Step::Post(len) => {
                    // As a user does: retry after the oldest operation ends.
                    while !ring.post(len) {
                        ring.end();
                    }
                }
                Step::Waste(len) => ring.waste(len),
                Step::End(count) => (0..count).for_each(|_| ring.end()),
            }
        }
    }
}
