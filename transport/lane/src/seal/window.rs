//! Tracks which numbers were seen: the newest, and one bit for each number before it (RFC 6479).

/// Numbers before the newest that are tracked. Older ones count as seen. Datagrams overtake each other by a few bursts
/// at most.
const WINDOW: u64 = 8192;
const BITS: u64 = u64::BITS as u64;
/// One word more than the window, so that a word can be cleared as a whole.
const WORDS: u64 = WINDOW / BITS + 1;

#[derive(Debug)]
pub(super) struct ReplayWindow {
    /// The newest number seen, plus one.
    end: u64,
    words: Box<[u64; WORDS as usize]>,
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow {
            end: 0,
            words: Box::new([0; WORDS as usize]),
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let word = (number / BITS) % WORDS;
    (word as usize, 1 << (number % BITS))
}

impl ReplayWindow {
    /// Whether `number` was not seen and is not too old to tell.
    pub(super) fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return number < u64::MAX;
        }
        let (word, bit) = place(number);
        self.end - number <= WINDOW && self.words[word] & bit == 0
    }

    /// Records `number`, which must be new.
    pub(super) fn mark(&mut self, number: u64) {
        if number >= self.end {
            let from = self.end.div_ceil(BITS);
            let words = (number / BITS + 1).saturating_sub(from).min(WORDS);
            for word in 0..words {
                self.words[((number / BITS - word) % WORDS) as usize] = 0;
            }
            self.end = number + 1;
        }
        let (word, bit) = place(number);
        self.words[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn is_new__once_and_not_when_too_old() {
        let mut window = ReplayWindow::default();
        assert!(window.is_new(0));
        window.mark(0);
        assert!(!window.is_new(0) && window.is_new(1));
        window.mark(WINDOW);
        assert!(!window.is_new(0), "too old");
        assert!(window.is_new(1), "the oldest that is told apart");
        assert!(!window.is_new(u64::MAX), "there is no number behind it");
    }

    proptest! {
        /// Compares with a set of all numbers seen.
        #[test]
        fn is_new__agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..20_000), 1..400)) {
            let mut window = ReplayWindow::default();
            let mut seen = HashSet::new();
            let mut newest = 0;
            for (ahead, by) in steps {
                let number = if ahead { newest + by } else { u64::saturating_sub(newest, by) };
                let old = newest >= WINDOW && number <= newest - WINDOW;
                let new = !seen.contains(&number) && !old;
                prop_assert_eq!(window.is_new(number), new, "{}", number);
                if new {
                    window.mark(number);
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }
}
