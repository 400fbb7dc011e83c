//! Holds the ends of a run, and decides the order of runs.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::failure::together;
use super::hosts;
use super::link::{Host, Link};
use super::machine::Machine;
use super::peer::{Heard, Peer};
use super::programs::Place;
use crate::contender;
use crate::contender::program::Program;
use crate::job::name::Name;
use crate::job::{Job, Work};
use crate::measured::Measured;

/// The measurements of both ends for one connection of a contender.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) contender: Name,
    /// The initiator: the sender of what was moved, but for flows in reverse.
    pub(crate) tx: Measured,
    /// The responder: the receiver.
    pub(crate) rx: Measured,
}

/// The contenders of round `index`: alternately forwards and backwards (A B B A ..), so that a machine that slows down
/// or speeds up favours none.
pub(crate) fn order<T: Clone>(contenders: &[T], index: u32) -> Vec<T> {
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
    /// What they are about.
    started: Option<Job>,
    /// Where these and other programs run, if all of that is on this machine. Goes last: namespaces outlive
    /// their processes.
    place: Option<Place>,
}

/// Refuses samples without a request.
pub(crate) fn out_of_turn(flow: usize, _: u64) -> Result<()> {
    bail!("an end reported progress of flow {flow} without a request")
}

impl Ends {
    /// Ends that run somewhere.
    pub(crate) fn new(initiators: Vec<Peer>, responder: Peer, address: IpAddr) -> Ends {
        Ends {
            initiators,
            responder,
            address,
            started: None,
            place: None,
        }
    }

    /// Both ends on this machine, on a core each, with a directory of files each if the job copies files.
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

    /// So many initiators, each a process of its own, and a responder, on a core each, over a link that outlives them.
    pub(crate) fn several(
        link: &Link,
        cores: [usize; 2],
        initiators: usize,
        interrupt: &Interrupt,
    ) -> Result<Ends> {
        let initiator = |_| hosts::end(link, Host::Sender, cores[0], None, interrupt);
        let initiators = (0..initiators).map(initiator).collect::<Result<_>>()?;
        let responder = hosts::end(link, Host::Receiver, cores[1], None, interrupt)?;
        Ok(Ends::new(
            initiators,
            responder,
            link.address(Host::Receiver),
        ))
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
            return Err("cannot run between two machines".into());
        }
        contender::of(contender).able(job)
    }

    /// Has `contender` do the job, over one connection. A wrong byte is an error.
    pub(crate) fn run(&mut self, contender: Name, job: &Job) -> Result<Run> {
        if let Some(program) = Program::of(contender) {
            return self.run_program(contender, program, job);
        }
        self.begin(contender, job)?;
        self.finish(&mut out_of_turn)?.pop().context("no run")
    }

    fn run_program(&self, contender: Name, program: Program, job: &Job) -> Result<Run> {
        let place = self
            .place
            .as_ref()
            .context("this link cannot run third-party programs")?;
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
        let mut job = job.by(contender)?;
        let (port, hardware) = self.responder.respond(&job)?;
        job.hardware = hardware;
        let to = SocketAddr::new(self.address, port);
        for initiator in &mut self.initiators {
            initiator.initiate(to, &job)?;
        }
        self.started = Some(job);
        Ok(())
    }

    /// Waits until all ends have done what they began; a run for each connection. Meanwhile `heard` gets the samples of
    /// flows whose job has them told.
    pub(crate) fn finish(&mut self, heard: Heard<'_>) -> Result<Vec<Run>> {
        let job = self.started.take().context("nothing was started")?;
        let reverse = matches!(&job.work, Work::Flows(flows) if flows.reverse);
        // All are heard, whichever failed first: the end that found something wrong explains more than the one that was
        // left alone. The receiver's word comes first.
        let (sent, received) = match reverse {
            false => {
                let received = self.responder.done(heard);
                (self.initiators_done(heard), received)
            }
            true => {
                self.responder.rename(Host::Sender.name());
                let received = self.initiators_done(heard);
                (self.responder.done(heard), received)
            }
        };
        let (sent, received) = match (sent, received) {
            (Ok(sent), Ok(received)) => (sent, received),
            (sent, received) => {
                let failed = [received.err(), sent.err()];
                return Err(together(failed.into_iter().flatten().collect()));
            }
        };
        ensure!(
            sent.len() == received.len(),
            "{} initiators, {} connections",
            sent.len(),
            received.len()
        );
        let pairs = sent.into_iter().zip(received);
        let contender = job.contender;
        Ok(pairs.map(|(tx, rx)| Run { contender, tx, rx }).collect())
    }

    fn initiators_done(&mut self, heard: Heard<'_>) -> Result<Vec<Measured>> {
        let (mut measured, mut failed) = (Vec::new(), Vec::new());
        for initiator in &mut self.initiators {
            match initiator.done(heard) {
                Ok(done) => measured.extend(done),
                Err(error) => failed.push(error),
            }
        }
        match failed.is_empty() {
            true => Ok(measured),
            false => Err(together(failed)),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::net::Ipv4Addr;
    use std::process::Command;

    use anyhow::Error;

    use super::super::failure::{Failure, is_giving_up};
    use super::super::protocol::Reply;
    use super::*;
    use crate::job::tests::every_work;

    #[test]
    fn order__is_ABBA() {
        let (a, b) = (Name::Tcp, Name::Zerolane);
        let all: Vec<Name> = (0..4).flat_map(|round| order(&[a, b], round)).collect();
        assert_eq!(all, [a, b, b, a, a, b, b, a]);
    }

    /// An end that is a shell and says `reply`, whatever it is asked.
    fn saying(name: &'static str, reply: &Reply) -> Peer {
        let json = serde_json::to_string(reply).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s\\n' \"$1\"; cat > /dev/null", "sh", &json]);
        Peer::spawn(name, command, &Interrupt::default()).unwrap()
    }

    /// What is said of a run whose ends reply so.
    fn said(responder: &Reply, initiators: &[&Reply], reverse: bool) -> Error {
        let [laps, mut flows, ..] = every_work();
        if let Work::Flows(it) = &mut flows.work {
            it.reverse = true;
        }
        let initiators = initiators.iter().map(|it| saying("sender", it));
        let mut ends = Ends::new(
            initiators.collect(),
            saying("receiver", responder),
            Ipv4Addr::LOCALHOST.into(),
        );
        ends.started = Some(if reverse { flows } else { laps });
        ends.finish(&mut out_of_turn).unwrap_err()
    }

    fn failed(message: &str, failure: Failure) -> Reply {
        Reply::Failed {
            message: message.into(),
            failure,
        }
    }

    /// The end that was left alone is heard first, or last.
    #[test]
    fn finish__wrong_bytes_at_any_end_are_corrupt() {
        let alone = failed("peer gone", Failure::GaveUp);
        let wrong = failed("byte 3 is wrong", Failure::Corrupt);
        let done = Reply::Done { measured: vec![] };
        for reverse in [false, true] {
            for (responder, initiators) in [
                (&alone, &[&wrong][..]),
                (&wrong, &[&alone]),
                (&done, &[&alone, &wrong]),
            ] {
                let error = said(responder, initiators, reverse);
                assert_eq!(Exit::of(&error), Exit::Corrupt, "{error:#}");
                assert!(
                    format!("{error:#}").contains("byte 3 is wrong"),
                    "{error:#}"
                );
            }
        }
    }

    #[test]
    fn finish__tells_what_each_end_says() {
        let gone = failed("gone", Failure::GaveUp);
        let paths = failed("only 1 of 2 paths work", Failure::Other);
        for reverse in [false, true] {
            let error = said(&gone, &[&paths, &paths], reverse);
            assert!(!is_giving_up(&error), "{error:#}");
            assert!(is_giving_up(&said(&gone, &[&gone], reverse)));
            let error = format!("{error:#}");
            assert!(error.contains("gone"), "{error}");
            assert_eq!(
                error.matches("only 1 of 2 paths work").count(),
                1,
                "{error}"
            );
        }
    }
}
