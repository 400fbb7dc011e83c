//! Computes the one's-complement checksum of RFC 1071, as partial sums that combine.
//!
//! A sum over parts equals the sum over the whole if every part but the last has even length, or if the odd start of a
//! part is accounted for, as [`Sum::join`] does (rows P0.6 and P1.6). Zero in the header means *omitted*. So a computed
//! zero is sent as 0xffff, the same number in one's complement.

/// A partial one's-complement sum and the parity of the bytes it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    folded: u16,
    odd: bool,
}

impl Sum {
    /// The sum over nothing.
    pub const EMPTY: Sum = Sum {
        folded: 0,
        odd: false,
    };

    /// The sum over `bytes`, at most 16 GiB of them.
    pub fn of(bytes: &[u8]) -> Sum {
        // 32-bit words into a 64-bit accumulator. 2^32 of them fit before it overflows, and a one's-complement sum does
        // not depend on the width it is folded from.
        let mut total = 0u64;
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        let mut last = [0; 4];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        total += u64::from(u32::from_be_bytes(last));
        Sum {
            folded: fold(total),
            odd: bytes.len() % 2 == 1,
        }
    }

    /// The sum over `self`'s bytes followed by `next`'s bytes.
    #[must_use]
    pub fn join(self, next: Sum) -> Sum {
        // Bytes after an odd start lie in the other half of each 16-bit word.
        let shifted = if self.odd {
            next.folded.swap_bytes()
        } else {
            next.folded
        };
        Sum {
            folded: fold(u64::from(self.folded) + u64::from(shifted)),
            odd: self.odd ^ next.odd,
        }
    }

    /// The value for the Checksum field: the complement, never 0.
    pub fn finish(self) -> u16 {
        match !self.folded {
            0 => 0xffff,
            sum => sum,
        }
    }

    /// Whether data with this sum matches a received Checksum field (0 matches: omitted).
    ///
    /// Detects every single flipped bit: the flip changes the sum by a power of two, which 0xffff does not divide.
    pub fn matches(self, field: u16) -> bool {
        field == 0 || self.finish() == field
    }
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
