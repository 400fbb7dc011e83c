//! Which run follows which, and who is told what.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::mover::Token;
use super::peer::Peer;
use super::protocol::{Job, Measured, Memory, Mover, Payload, Protection, Request, TcpTuning};

/// What is moved, and by what.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) payload: Payload,
    /// The movers of a pair, first the one that goes first in the first pair.
    pub(crate) movers: Vec<Mover>,
    pub(crate) tcp: TcpTuning,
    pub(crate) security: Protection,
}

/// The two ends of every run.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) sender: Peer,
    pub(crate) receiver: Peer,
    /// Where the sender finds the receiver.
    pub(crate) receiver_address: IpAddr,
}

/// What both ends measured of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunResult {
    pub(crate) mover: Mover,
    pub(crate) tx: Measured,
    pub(crate) rx: Measured,
}

/// The movers of pair `index`: forwards and backwards by turns (A B B A ..),
/// so that a machine that slows down or speeds up favours neither.
pub(crate) fn order<M: Clone>(movers: &[M], index: u32) -> Vec<M> {
    let mut order = movers.to_vec();
    if index % 2 == 1 {
        order.reverse();
    }
    order
}

impl Ends {
    /// Has both ends allocate their buffers.
    pub(crate) fn prepare(&mut self, memory: Memory) -> Result<()> {
        self.sender.prepare(&Request::Prepare(memory))?;
        self.receiver.prepare(&Request::Prepare(memory))
    }

    /// Runs each mover once, in the order of pair `index`; `after` hears of
    /// each run before the next one starts. A wrong byte is an error.
    pub(crate) fn pair(
        &mut self,
        plan: &Plan,
        index: u32,
        mut after: impl FnMut(&RunResult) -> Result<()>,
    ) -> Result<Vec<RunResult>> {
        let mut results = Vec::new();
        for mover in order(&plan.movers, index) {
            let result = self.once(plan, mover)?;
            after(&result)?;
            results.push(result);
        }
        Ok(results)
    }

    fn once(&mut self, plan: &Plan, mover: Mover) -> Result<RunResult> {
        let job = Job {
            mover,
            payload: plan.payload.clone(),
            token: Token::new()?.0,
            tcp: plan.tcp.clone(),
            security: plan.security,
        };
        let port = self.receiver.listen(&Request::Receive(job.clone()))?;
        let to = SocketAddr::new(self.receiver_address, port);
        self.sender.tell(&Request::Send { to, job })?;
        // The end that found something wrong explains more than the one that
        // was left alone: a receiver's word counts first.
        let tx = self.sender.done();
        let rx = self.receiver.done()?;
        Ok(RunResult { mover, tx: tx?, rx })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn order__is_ABBA() {
        let movers = [Mover::Tcp, Mover::Zerolane];
        let all: Vec<Mover> = (0..4).flat_map(|pair| order(&movers, pair)).collect();
        let (a, b) = (Mover::Tcp, Mover::Zerolane);
        assert_eq!(all, [a, b, b, a, a, b, b, a]);
    }
}
