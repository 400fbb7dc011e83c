//! Fills and checks buffers: every word depends on its position, and sampled words on the lap in which they are sent.
//!
//! A run sends one buffer over and over, once per *lap*. Refilling it for every lap would measure the filling; without any
//! change, a packet of an earlier lap would look right. So word `i` is `mix(seed, i)` in every lap, except for one *stamp*
//! in each stride of 256 KiB: a word whose position and value depend on the lap. Writing the stamps of a lap (and restoring
//! those of the lap before) costs two stores per 256 KiB, and checking them one load: about a thousandth of a run's time,
//! the same for every contender. After the timed part all words of the last lap are checked.
//!
//! A contender whose memory the kernel reads after a send must not change it. Its pattern is *fixed*: every lap is the first
//! one, and checked like it.

use std::fmt;
use std::ops::Range;

/// Bytes a word of the pattern takes; offsets and lengths are multiples of it.
pub(crate) const WORD: usize = 8;

/// One stamp for each stride of this many bytes.
const STRIDE: usize = 256 << 10;

/// How much of a buffer is checked while the clock runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Stamps,
    EveryWord,
}

/// The content of one buffer, in every lap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    seed: u64,
    len: usize,
    is_fixed: bool,
}

/// The first word that was not what the sender sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Which lap, from 0.
    pub(crate) lap: u64,
    /// Where in the buffer, bytes.
    pub(crate) offset: usize,
    expected: u64,
    found: u64,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lap {}, byte {}: expected {:#018x}, found {:#018x}",
            self.lap, self.offset, self.expected, self.found
        )
    }
}

impl std::error::Error for Wrong {}

impl Pattern {
    /// The pattern of a buffer of `len` bytes, a multiple of [`WORD`].
    pub(crate) fn new(seed: u64, len: usize) -> Pattern {
        debug_assert!(len.is_multiple_of(WORD));
        Pattern {
            seed,
            len,
            is_fixed: false,
        }
    }

    /// The same for a buffer that stays as it is in lap 0.
    pub(crate) fn fixed(self) -> Pattern {
        Pattern {
            is_fixed: true,
            ..self
        }
    }

    /// Fills the whole buffer as it is before lap 0 is stamped.
    pub(crate) fn fill(&self, buffer: &mut [u8]) {
        for (index, word) in buffer.chunks_exact_mut(WORD).enumerate() {
            word.copy_from_slice(&self.word(index * WORD).to_le_bytes());
        }
    }

    /// Turns `piece`, which starts at byte `base` of the buffer and holds lap
    /// `lap - 1`, into lap `lap`. Laps must be stamped in order, from 0.
    pub(crate) fn stamp(&self, piece: &mut [u8], base: usize, lap: u64) {
        let range = base..base + piece.len();
        if self.is_fixed && lap > 0 {
            return;
        }
        if let Some(previous) = lap.checked_sub(1) {
            for (offset, _) in self.stamps(previous, range.clone()) {
                write(piece, offset - base, self.word(offset));
            }
        }
        for (offset, value) in self.stamps(lap, range) {
            write(piece, offset - base, value);
        }
    }

    /// Checks so much of `piece`, which starts at byte `base`, as it is after `lap`.
    pub(crate) fn check_by(
        &self,
        check: Check,
        piece: &[u8],
        base: usize,
        lap: u64,
    ) -> Result<(), Wrong> {
        match check {
            Check::Stamps => self.check_stamps(piece, base, lap),
            Check::EveryWord => self.check(piece, base, lap),
        }
    }

    /// Checks the stamps of `lap` in `piece`, which starts at byte `base`.
    pub(crate) fn check_stamps(&self, piece: &[u8], base: usize, lap: u64) -> Result<(), Wrong> {
        self.stamps(lap, base..base + piece.len())
            .try_for_each(|(offset, value)| same(piece, base, offset, value, lap))
    }

    /// Checks every word of the whole buffer, as it is after `lap`.
    pub(crate) fn check_all(&self, buffer: &[u8], lap: u64) -> Result<(), Wrong> {
        self.check(buffer, 0, lap)
    }

    /// Checks every word of `piece`, which starts at byte `base`, as it is
    /// after `lap`.
    pub(crate) fn check(&self, piece: &[u8], base: usize, lap: u64) -> Result<(), Wrong> {
        let range = base..base + piece.len();
        let mut stamps = self.stamps(lap, range.clone()).peekable();
        for offset in range.step_by(WORD) {
            let value = match stamps.next_if(|&(at, _)| at == offset) {
                Some((_, value)) => value,
                None => self.word(offset),
            };
            same(piece, base, offset, value, lap)?;
        }
        Ok(())
    }

    /// Where the stamps of `lap` within `range` are, and what they say.
    fn stamps(&self, lap: u64, range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let lap = if self.is_fixed { 0 } else { lap };
        let seed = mix(self.seed, lap);
        let len = self.len;
        (range.start / STRIDE..range.end.div_ceil(STRIDE))
            .map(move |stride| {
                let words = STRIDE.min(len - stride * STRIDE) / WORD;
                let hash = mix(seed, stride as u64);
                let word = (hash % words as u64) as usize;
                (stride * STRIDE + word * WORD, mix(hash, lap))
            })
            .filter(move |(offset, _)| range.contains(offset))
    }

    fn word(&self, offset: usize) -> u64 {
        mix(self.seed, (offset / WORD) as u64)
    }
}

fn same(piece: &[u8], base: usize, offset: usize, expected: u64, lap: u64) -> Result<(), Wrong> {
    let found = read(piece, offset - base);
    if found == expected {
        Ok(())
    } else {
        Err(Wrong {
            lap,
            offset,
            expected,
            found,
        })
    }
}

fn read(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

fn write(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + WORD].copy_from_slice(&value.to_le_bytes());
}

/// SplitMix64 of the `index`-th step from `seed`: each bit of the result
/// depends on all bits of both.
pub(crate) fn mix(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const LEN: usize = 2 * STRIDE + 4096;

    fn lap(pattern: &Pattern, laps: u64) -> Vec<u8> {
        let mut buffer = vec![0; LEN];
        pattern.fill(&mut buffer);
        for lap in 0..=laps {
            pattern.stamp(&mut buffer, 0, lap);
        }
        buffer
    }

    #[test]
    fn check_all__accepts_every_lap_it_stamped() {
        let pattern = Pattern::new(7, LEN);
        for laps in 0..5 {
            pattern.check_all(&lap(&pattern, laps), laps).unwrap();
        }
    }

    #[test]
    fn check_all__finds_any_single_wrong_byte() {
        let pattern = Pattern::new(7, LEN);
        let good = lap(&pattern, 3);
        for at in (0..LEN).step_by(4093) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let wrong = pattern.check_all(&bad, 3).unwrap_err();
            assert_eq!(wrong.offset, at / WORD * WORD);
        }
    }

    #[test]
    fn check_stamps__tells_a_lap_from_its_neighbours() {
        let pattern = Pattern::new(9, LEN);
        let second = lap(&pattern, 2);
        pattern.check_stamps(&second, 0, 2).unwrap();
        assert!(pattern.check_stamps(&second, 0, 1).is_err());
        assert!(pattern.check_stamps(&second, 0, 3).is_err());
    }

    #[test]
    fn stamp__in_pieces_is_the_same_as_at_once() {
        let pattern = Pattern::new(1, LEN);
        let mut pieces = vec![0; LEN];
        pattern.fill(&mut pieces);
        for lap in 0..4 {
            for (index, piece) in pieces.chunks_mut(40_000).enumerate() {
                pattern.stamp(piece, index * 40_000, lap);
            }
        }
        assert_eq!(pieces, lap(&pattern, 3));
    }

    #[test]
    fn fixed__every_lap_is_the_first() {
        let changing = Pattern::new(9, LEN);
        let fixed = changing.fixed();
        let buffer = lap(&fixed, 2);
        assert_eq!(buffer, lap(&changing, 0));
        fixed.check_stamps(&buffer, 0, 1).unwrap();
        fixed.check_all(&buffer, 2).unwrap();
        assert!(fixed.check_all(&lap(&changing, 2), 2).is_err());
    }

    #[test]
    fn stamps__one_in_each_stride_of_each_lap() {
        let pattern = Pattern::new(3, LEN);
        for lap in 0..10 {
            let strides: Vec<usize> = pattern
                .stamps(lap, 0..LEN)
                .map(|(offset, _)| offset / STRIDE)
                .collect();
            assert_eq!(strides, [0, 1, 2]);
        }
    }
}
