//! Writes grants into memory that connections share with the program, by plain stores, without a system call.

use super::layout::{AREA_HEAD, AREA_WORDS, GRANT_WORDS, GRANTS};
use crate::memory::Mapping;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The areas of all connections of a program.
#[derive(Debug)]
pub(super) struct Areas {
    memory: Mapping,
    count: usize,
}

impl Areas {
    /// The areas of a map with `count` entries.
    pub(super) fn map(map: BorrowedFd<'_>, count: u32) -> io::Result<Areas> {
        let count = count as usize;
        let bytes = count * AREA_WORDS * size_of::<u32>();
        let memory = Mapping::new(bytes, libc::MAP_SHARED, Some((map, 0)))?;
        Ok(Areas { memory, count })
    }

    /// The words of area `index`, which must exist.
    fn words(&self, index: u32) -> &[AtomicU32] {
        let index = index as usize;
        assert!(index < self.count);
        // SAFETY: within the mapping, which lives as long as this. A page's start is aligned for it, and the kernel's
        // side only loads.
        unsafe {
            let start = self.memory.start().cast::<AtomicU32>().as_ptr();
            std::slice::from_raw_parts(start.add(index * AREA_WORDS), AREA_WORDS)
        }
    }

    /// Clears the grants of area `index`.
    pub(super) fn clear(&self, index: u32) {
        self.words(index)
            .iter()
            .for_each(|it| it.store(0, Ordering::Relaxed));
    }

    /// Sets whether Data is checked against area `index`, and the buffer size.
    pub(super) fn set_judged(&self, index: u32, judged: bool, buffer_log2: u8) {
        let words = self.words(index);
        words[2].store(buffer_log2.into(), Ordering::Relaxed);
        words[0].store(judged.into(), Ordering::Release);
    }

    /// Sets the port by which the peer addresses the connection of area `index`.
    pub(super) fn set_port(&self, index: u32, port: u16) {
        self.words(index)[3].store(port.into(), Ordering::Release);
    }

    /// Sets whether answers are expected that no grant names.
    pub(super) fn await_answers(&self, index: u32, awaited: bool) {
        self.words(index)[1].store(awaited.into(), Ordering::Release);
    }

    /// Writes a grant into area `index`, in place of the earlier one at its position in the table.
    pub(super) fn set(&self, index: u32, grant: &Granted) {
        let at = AREA_HEAD + usize::from(grant.mx) % GRANTS * GRANT_WORDS;
        let words = &self.words(index)[at..at + GRANT_WORDS];
        let address = grant.address.to_ne_bytes();
        let [a, b, c, d, e, f, g, h] = address;
        let fields = [
            grant.d_id,
            grant.b_num,
            grant.mx.into(),
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
            grant.length,
        ];
        // The peer sends nothing for this grant before the grant leaves, so a frame that meets it half written is late
        // or forged.
        words[0].store(0, Ordering::Release);
        for (word, field) in words[1..].iter().zip(fields) {
            word.store(field, Ordering::Relaxed);
        }
        words[0].store(1, Ordering::Release);
    }
}

/// A Block as the program knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) mx: u16,
    /// This end's Transfer.
    pub(super) d_id: u32,
    pub(super) b_num: u32,
    /// Its start: Bufx and Offset joined.
    pub(super) address: u64,
    /// Length in bytes.
    pub(super) length: u32,
}

impl Granted {
    /// Joins two parts of one Block.
    pub(super) fn joined(self, other: Granted) -> Granted {
        let end = |it: Granted| it.address + u64::from(it.length);
        let address = self.address.min(other.address);
        let length = end(self).max(end(other)) - address;
        Granted {
            address,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// Whether `other` is a part of the same Block.
    pub(super) fn is_of(&self, other: &Granted) -> bool {
        (self.mx, self.d_id, self.b_num) == (other.mx, other.d_id, other.b_num)
    }
}
