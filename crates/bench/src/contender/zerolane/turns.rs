//! Transfers that take turns on a few regions of memory.

use std::time::Duration;

use anyhow::{Context, Result};
use zerolane::{Completion, Connection};

/// Regions of memory that are posted in turn, one Transfer each, and again when they are back.
pub(crate) trait Turns {
    /// Whether what was granted is to leave while the next region is made ready, which takes long.
    const POLLS: bool = false;

    /// Posts the next region, if it is here and has a turn left; whether it did.
    fn post(&mut self, connection: &mut Connection) -> Result<bool>;

    /// Takes back the region of a Transfer that is over, and what came of it.
    fn take_back(&mut self, completion: Completion) -> Result<()>;

    /// Whether no Transfer is in flight.
    fn is_idle(&self) -> bool;
}

/// Posts all regions that can be posted.
pub(crate) fn post_all(connection: &mut Connection, turns: &mut impl Turns) -> Result<()> {
    while turns.post(connection)? {}
    Ok(())
}

/// Goes on until no Transfer is in flight. The peer is gone if none ends for `stall`.
pub(crate) fn run<T: Turns>(
    connection: &mut Connection,
    turns: &mut T,
    stall: Duration,
) -> Result<()> {
    loop {
        while turns.post(connection)? {
            if T::POLLS
                && let Some(completion) = connection.poll()?
            {
                turns.take_back(completion)?;
            }
        }
        if turns.is_idle() {
            return Ok(());
        }
        let completion = connection.wait(Some(stall))?;
        turns.take_back(completion.context("the peer stalled")?)?;
    }
}

/// Goes on for as long as `left` says how long to wait at most; it is asked before each wait.
pub(crate) fn run_while(
    connection: &mut Connection,
    turns: &mut impl Turns,
    mut left: impl FnMut(&Connection) -> Option<Duration>,
) -> Result<()> {
    while let Some(left) = left(connection) {
        post_all(connection, turns)?;
        if let Some(completion) = connection.wait(Some(left))? {
            turns.take_back(completion)?;
        }
    }
    Ok(())
}
