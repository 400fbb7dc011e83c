//! Stamps each piece of a buffer before it is sent, and checks it after it arrives.

use anyhow::{Context, Result};
use zerolane_cli::exit::Exit;

use super::pattern::{Check, Pattern};

/// What is done with the pieces of a buffer.
pub(crate) trait Stage {
    /// Of what has come, a multiple of so many bytes is taken at a time, counted from the start of the buffer.
    const GRAIN: usize;

    /// Makes `piece`, which starts at byte `base` of the buffer, what is sent in this lap.
    fn fill(&mut self, piece: &mut [u8], base: usize, lap: u64) -> Result<()>;

    /// Takes `piece`, which came to byte `base` of the buffer in this lap.
    fn take(&mut self, piece: &[u8], base: usize, lap: u64) -> Result<()>;

    /// System calls that it made until now.
    fn syscalls(&self) -> u64 {
        0
    }
}

/// The words of a pattern: stamped, and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    pub(crate) pattern: Pattern,
    pub(crate) check: Check,
}

impl Stage for Stamps {
    const GRAIN: usize = super::pattern::WORD;

    fn fill(&mut self, piece: &mut [u8], base: usize, lap: u64) -> Result<()> {
        self.pattern.stamp(piece, base, lap);
        Ok(())
    }

    fn take(&mut self, piece: &[u8], base: usize, lap: u64) -> Result<()> {
        let checked = self.pattern.check_by(self.check, piece, base, lap);
        checked.context(Exit::Corrupt)
    }
}
