//! Lets Transfers take turns on a few regions: one region is filled or checked while the others are in flight.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use zerolane::failure::PostError;
use zerolane::{Completion, Connection, Error, Region, RequestId};

/// What the regions carry.
pub(crate) trait Content {
    /// Whether filling a region takes so long that grants must be used after each region.
    const SLOW: bool = false;

    /// Makes `region` what is sent in this turn.
    fn fill(&mut self, turn: u64, region: &mut Region) -> Result<()>;

    /// Takes what came in this turn.
    fn take(&mut self, turn: u64, bytes: &[u8]) -> Result<()>;
}

/// Which way the content goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

/// The regions. Both ends post them in turn, so that the n-th receive gets the n-th send; a region that is back before
/// its turn waits.
pub(crate) struct Turns<C> {
    pub(crate) content: C,
    direction: Direction,
    /// `None` while it is posted.
    regions: Vec<Option<Region>>,
    /// Whose turn each Transfer in flight is.
    posted: HashMap<RequestId, u64>,
    next: u64,
    end: u64,
    /// Small datagrams to send between the Transfers, and how many left.
    between: u64,
    between_sent: u64,
}

/// A small datagram of the program, as an interfering packet.
const SMALL: [u8; 64] = [0; 64];

impl<C: Content> Turns<C> {
    /// So many turns on these regions.
    pub(crate) fn new(
        direction: Direction,
        content: C,
        regions: Vec<Region>,
        end: u64,
    ) -> Turns<C> {
        Turns {
            content,
            direction,
            regions: regions.into_iter().map(Some).collect(),
            posted: HashMap::new(),
            next: 0,
            end,
            between: 0,
            between_sent: 0,
        }
    }

    /// The same, with so many small datagrams sent between the Transfers, evenly.
    pub(crate) fn with_between(self, between: u64) -> Turns<C> {
        Turns { between, ..self }
    }

    /// Sends the datagrams that are due before the next Transfer.
    fn send_between(&mut self, connection: &mut Connection) -> Result<()> {
        let due = u128::from(self.between) * u128::from(self.next) / u128::from(self.end.max(1));
        while u128::from(self.between_sent) < due {
            match connection.send_datagram(SMALL) {
                // Those that wait leave first: this one is due still.
                Err(Error::Post(PostError::Full)) => break,
                sent => sent?,
            }
            self.between_sent += 1;
        }
        Ok(())
    }

    /// The content, and the regions that are not in flight.
    pub(crate) fn into_parts(self) -> (C, Vec<Region>) {
        (self.content, self.regions.into_iter().flatten().collect())
    }

    /// Ends when each region has had as many turns as any other.
    pub(crate) fn end_with_this_round(&mut self) {
        self.end = self.next.next_multiple_of(self.regions.len() as u64);
    }

    /// Whether no Transfer is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }

    fn region(&mut self, turn: u64) -> &mut Option<Region> {
        let count = self.regions.len() as u64;
        &mut self.regions[(turn % count) as usize]
    }

    /// Posts the next region, if it is here and has a turn left; whether it did.
    fn post(&mut self, connection: &mut Connection) -> Result<bool> {
        let turn = self.next;
        if turn == self.end {
            return Ok(false);
        }
        let Some(mut region) = self.region(turn).take() else {
            return Ok(false);
        };
        let id = match self.direction {
            Direction::Send => {
                self.content.fill(turn, &mut region)?;
                connection.post_send(region)?
            }
            Direction::Receive => match connection.post_recv(region) {
                Ok(id) => id,
                Err(refused) => {
                    *self.region(turn) = Some(refused.memory);
                    return Err(refused.error.into());
                }
            },
        };
        self.posted.insert(id, turn);
        self.next += 1;
        self.send_between(connection)?;
        Ok(true)
    }

    /// Posts all regions that can be posted.
    pub(crate) fn post_all(&mut self, connection: &mut Connection) -> Result<()> {
        while self.post(connection)? {
            if C::SLOW
                && let Some(completion) = connection.poll()?
            {
                self.take_back(completion)?;
            }
        }
        Ok(())
    }

    /// Takes back the region of a Transfer that is over, and what came of it.
    pub(crate) fn take_back(&mut self, completion: Completion) -> Result<()> {
        let turn = self.posted.remove(&completion.id);
        let turn = turn.context("a completion without a Transfer")?;
        let result = completion.result;
        let region = completion.into_region()?;
        let taken = match (self.direction, result) {
            (_, Err(error)) => Err(error.into()),
            (Direction::Send, Ok(_)) => Ok(()),
            (Direction::Receive, Ok(got)) => self.content.take(turn, &region[..got]),
        };
        *self.region(turn) = Some(region);
        taken
    }

    /// Goes on until no Transfer is in flight. The peer is gone if none ends for `stall`.
    pub(crate) fn run(&mut self, connection: &mut Connection, stall: Duration) -> Result<()> {
        loop {
            self.post_all(connection)?;
            if self.is_idle() {
                return Ok(());
            }
            let completion = connection.wait(Some(stall))?.got();
            self.take_back(completion.context("the peer stalled")?)?;
        }
    }

    /// Goes on for as long as `left` says how long to wait at most; it is asked before each wait.
    pub(crate) fn run_while(
        &mut self,
        connection: &mut Connection,
        mut left: impl FnMut(&Connection) -> Option<Duration>,
    ) -> Result<()> {
        while let Some(left) = left(connection) {
            self.post_all(connection)?;
            if let Some(completion) = connection.wait(Some(left))?.got() {
                self.take_back(completion)?;
            }
        }
        Ok(())
    }
}
