//! Hands out the memory slots into which chunks are received and from which they are forwarded.
//!
//! A slot returns to the pool when the disk, all connections and the node have released it.

use zerolane::{Region, Result, SharedRegion};

/// Slots of one length.
#[derive(Debug)]
pub(crate) struct Pool {
    slot: usize,
    free: Vec<Region>,
    /// Given back by the node; others may still read them.
    retired: Vec<SharedRegion>,
}

/// A chunk in memory: a whole slot, and how many bytes of it are the chunk.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    whole: SharedRegion,
    len: usize,
}

impl Chunk {
    pub(crate) fn new(slot: Region, len: usize) -> Chunk {
        let len = len.min(slot.len());
        Chunk {
            whole: slot.share(),
            len,
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> SharedRegion {
        self.whole.slice(0, self.len)
    }
}

impl Pool {
    pub(crate) fn new(slot: usize) -> Pool {
        Pool {
            slot,
            free: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// A slot, made if none is free.
    pub(crate) fn take(&mut self) -> Result<Region> {
        for index in (0..self.retired.len()).rev() {
            match self.retired.swap_remove(index).try_unique() {
                Ok(region) => self.free.push(region),
                Err(shared) => self.retired.push(shared),
            }
        }
        match self.free.pop() {
            Some(slot) => Ok(slot),
            None => Ok(Region::anonymous(self.slot)?),
        }
    }

    /// Takes a slot back.
    pub(crate) fn give(&mut self, slot: Region) {
        if slot.len() == self.slot {
            self.free.push(slot);
        }
    }

    /// Takes a chunk's slot back, as soon as nothing else uses it.
    pub(crate) fn retire(&mut self, chunk: Chunk) {
        if chunk.whole.len() == self.slot {
            self.retired.push(chunk.whole);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__a_slot_again_as_soon_as_nothing_has_it() {
        let mut pool = Pool::new(64);
        let slot = pool.take().unwrap();
        let at = slot.as_ptr();
        let chunk = Chunk::new(slot, 10);
        let lent = chunk.bytes();
        assert_eq!(lent.len(), 10);
        pool.retire(chunk);
        assert_ne!(pool.take().unwrap().as_ptr(), at, "it is lent");
        drop(lent);
        let again = pool.take().unwrap();
        assert_eq!((again.as_ptr(), again.len()), (at, 64));
    }
}
