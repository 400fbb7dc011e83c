//! The ends of a run, and which run follows which.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::hosts;
use super::link::{Host, Link};
use super::machine::Machine;
use super::peer::Peer;
use super::programs::Place;
use crate::contender;
use crate::contender::program::Program;
use crate::job::name::Name;
use crate::job::{Job, Work};
use crate::measured::Measured;

/// What both ends measured of one connection of a contender.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) contender: Name,
    /// The initiator: the sender of what was moved.
    pub(crate) tx: Measured,
    /// The responder.
    pub(crate) rx: Measured,
}

/// The contenders of round `index`: forwards and backwards by turns (A B B A ..), so that a machine
/// that slows down or speeds up favours none.
pub(crate) fn order(contenders: &[Name], index: u32) -> Vec<Name> {
    let mut order = contenders.to_vec();
    if index % 2 == 1 {
        order.reverse();
    }
    order
}

/// The ends of every run: a responder, and its initiators.
#[derive(Debug)]
pub(crate) struct Ends {
    initiators: Vec<Peer>,
    responder: Peer,
    /// Where the initiators find the responder.
    address: IpAddr,
    /// Where these and other programs run, if all of that is on this machine. Goes last: namespaces outlive
    /// their processes.
    place: Option<Place>,
}

impl Ends {
    /// Ends that run somewhere.
    pub(crate) fn new(initiators: Vec<Peer>, responder: Peer, address: IpAddr) -> Ends {
        Ends {
            initiators,
            responder,
            address,
            place: None,
        }
    }

    /// Both ends on this machine, on a core each, with a directory of files each if files are to be copied.
    pub(crate) fn here(
        link: Link,
        cores: [usize; 2],
        files: Option<[&Path; 2]>,
        interrupt: &Interrupt,
    ) -> Result<Ends> {
        let end = |host, core, files| hosts::end(&link, host, core, files, interrupt);
        let initiator = end(Host::Sender, cores[0], files.map(|it| it[0]))?;
        let responder = end(Host::Receiver, cores[1], files.map(|it| it[1]))?;
        let address = link.address(Host::Receiver);
        Ok(Ends {
            place: Some(Place {
                link,
                cores,
                interrupt: interrupt.clone(),
            }),
            ..Ends::new(vec![initiator], responder, address)
        })
    }

    /// The responder at HOST:PORT, where `bench serve` runs.
    pub(crate) fn to(host: &str, core: usize, interrupt: &Interrupt) -> Result<Ends> {
        let address = hosts::resolve(host)?;
        let here = Link::loopback();
        let initiator = hosts::end(&here, Host::Sender, core, None, interrupt)?;
        let responder = Peer::connect("receiver", address)?;
        Ok(Ends::new(vec![initiator], responder, address.ip()))
    }

    /// The link between them, if both are on this machine.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.place.as_ref().map(|place| &place.link)
    }

    /// Makes sure that the ends speak this protocol; what machines the first initiator and the responder are on.
    pub(crate) fn greet(&mut self) -> Result<[Machine; 2]> {
        let initiator = self.initiators.first_mut().context("no initiator")?;
        let machine = initiator.greet()?;
        Ok([machine, self.responder.greet().context(Exit::Unreachable)?])
    }

    /// The responder's memcpy speed on buffers of so many bytes, Gb/s.
    pub(crate) fn memcpy(&mut self, buffer: usize) -> Result<f64> {
        self.responder.memcpy(buffer)
    }

    /// Whether this contender can do this job here; if not, why.
    pub(crate) fn able(&self, contender: Name, job: &Job) -> Result<(), String> {
        if Program::of(contender).is_some() && self.place.is_none() {
            return Err("not run between machines".into());
        }
        contender::of(contender).able(job)
    }

    /// Has `contender` do the job, over one connection. A wrong byte is an error.
    pub(crate) fn run(&mut self, contender: Name, job: &Job) -> Result<Run> {
        if let Some(program) = Program::of(contender) {
            return self.run_program(contender, program, job);
        }
        self.begin(contender, job)?;
        self.finish(contender)?.pop().context("no run")
    }

    fn run_program(&self, contender: Name, program: Program, job: &Job) -> Result<Run> {
        let place = self.place.as_ref().context("no place for programs")?;
        let Work::Operations(operations) = &job.work else {
            bail!("{} has no such test", program.program())
        };
        Ok(Run {
            contender,
            tx: place.run(program, operations)?,
            rx: Measured::default(),
        })
    }

    /// Has all ends begin: the responder, then all initiators at the same time.
    pub(crate) fn begin(&mut self, contender: Name, job: &Job) -> Result<()> {
        let job = job.by(contender)?;
        let port = self.responder.respond(&job)?;
        let to = SocketAddr::new(self.address, port);
        for initiator in &mut self.initiators {
            initiator.initiate(to, &job)?;
        }
        Ok(())
    }

    /// Waits until all ends have done what they began; a run for each connection.
    pub(crate) fn finish(&mut self, contender: Name) -> Result<Vec<Run>> {
        // The end that found something wrong explains more than the one that was left alone: a responder's word
        // counts first.
        let received = self.responder.done()?;
        let sent = self.initiators.iter_mut().map(Peer::done);
        let sent: Vec<Vec<Measured>> = sent.collect::<Result<_>>()?;
        let sent: Vec<Measured> = sent.into_iter().flatten().collect();
        ensure!(
            sent.len() == received.len(),
            "{} initiators, {} connections",
            sent.len(),
            received.len()
        );
        let pairs = sent.into_iter().zip(received);
        Ok(pairs.map(|(tx, rx)| Run { contender, tx, rx }).collect())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn order__is_ABBA() {
        let (a, b) = (Name::Tcp, Name::Zerolane);
        let all: Vec<Name> = (0..4).flat_map(|round| order(&[a, b], round)).collect();
        assert_eq!(all, [a, b, b, a, a, b, b, a]);
    }
}
