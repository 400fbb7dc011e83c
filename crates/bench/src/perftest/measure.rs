//! Which run follows which, and who is told what.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};

use super::command::{INITIATOR, Plan, RESPONDER, Side};
use super::job::{Carrier, Job, Seen};
use super::report::Outcome;
use super::test::Metric;
use super::tool::{Stage, Tool};
use super::udp;
use crate::hosts;
use crate::link::Link;
use crate::mover::Token;
use crate::orchestrate::order;
use crate::peer::Peer;
use crate::protocol::{Machine, Request};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

/// The two ends of every run.
pub(crate) struct Hosts<'a> {
    initiator: Peer,
    responder: Peer,
    address: IpAddr,
    /// Where other people's programs run; not on another machine.
    stage: Option<Stage<'a>>,
}

/// Everything that came out.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// By size, in the order of the plan.
    pub(crate) sizes: Vec<Outcomes>,
    pub(crate) skipped: Vec<Skipped>,
}

/// The runs of one size.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) size: usize,
    pub(crate) iters: u64,
    pub(crate) depth: usize,
    /// In the order they were run.
    pub(crate) runs: Vec<(Side, Outcome)>,
}

/// A side that was not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Skipped {
    pub(crate) side: Side,
    /// `None` if it is so for all sizes.
    pub(crate) size: Option<usize>,
    pub(crate) why: String,
}

impl<'a> Hosts<'a> {
    /// Both ends on this machine.
    pub(crate) fn here(
        link: Option<&'a Link>,
        cores: [usize; 2],
        interrupt: &'a Interrupt,
    ) -> Result<Hosts<'a>> {
        let link = link.context("no link to measure over")?;
        Ok(Hosts {
            initiator: hosts::end(link, INITIATOR, cores[0], interrupt)?,
            responder: hosts::end(link, RESPONDER, cores[1], interrupt)?,
            address: link.address(RESPONDER),
            stage: Some(Stage {
                link,
                cores,
                interrupt,
            }),
        })
    }

    /// The responder on another machine.
    pub(crate) fn to(to: SocketAddr, core: usize, interrupt: &Interrupt) -> Result<Hosts<'a>> {
        Ok(Hosts {
            initiator: hosts::end(&Link::loopback(), INITIATOR, core, interrupt)?,
            responder: Peer::connect("responder", to)?,
            address: to.ip(),
            stage: None,
        })
    }

    /// What machines the initiator and the responder are on.
    pub(crate) fn greet(&mut self) -> Result<[Machine; 2]> {
        Ok([
            self.initiator.greet()?,
            self.responder.greet().context(Exit::Unreachable)?,
        ])
    }

    /// One run of a carrier.
    fn carry(&mut self, job: &Job, carrier: Carrier) -> Result<Seen> {
        let job = Job {
            carrier,
            token: Token::new()?.0,
            ..job.clone()
        };
        let port = self.responder.listen(&Request::Respond(job.clone()))?;
        let to = SocketAddr::new(self.address, port);
        self.initiator.tell(&Request::Initiate { to, job })?;
        // The end that found something wrong explains more than the one left alone.
        let initiator = self.initiator.saw();
        let responder = self.responder.saw()?;
        let initiator = initiator?;
        Ok(Seen {
            latency: initiator.latency,
            stream: initiator.stream.or(responder.stream),
        })
    }
}

/// Runs the plan: each size for itself, in each all sides by turns.
pub(crate) fn measure(plan: &Plan, hosts: &mut Hosts<'_>) -> Result<Measured> {
    let mut measured = Measured::default();
    let sides: Vec<Side> = plan
        .sides
        .iter()
        .copied()
        .filter(|&side| {
            skip(
                &mut measured.skipped,
                side,
                None,
                runnable(plan, hosts, side),
            )
        })
        .collect();
    for job in &plan.jobs {
        let here: Vec<Side> = sides
            .iter()
            .copied()
            .filter(|&side| skip(&mut measured.skipped, side, Some(job.size), fits(job, side)))
            .collect();
        let mut outcomes = Outcomes {
            size: job.size,
            iters: job.iters,
            depth: job.depth,
            runs: Vec::new(),
        };
        for rep in 0..plan.reps {
            for side in order(&here, rep) {
                outcomes.runs.push((side, once(hosts, job, side)?));
            }
        }
        if plan.jobs.len() > 1 {
            console::note(format_args!("{} bytes: done", job.size));
        }
        measured.sizes.push(outcomes);
    }
    Ok(measured)
}

/// Whether a side is run; remembers why not.
fn skip(
    skipped: &mut Vec<Skipped>,
    side: Side,
    size: Option<usize>,
    able: Result<(), String>,
) -> bool {
    match able {
        Ok(()) => true,
        Err(why) => {
            skipped.push(Skipped { side, size, why });
            false
        }
    }
}

/// Whether a side can do this test at all.
fn runnable(plan: &Plan, hosts: &Hosts<'_>, side: Side) -> Result<(), String> {
    match (tool(side), &hosts.stage) {
        (None, _) => Ok(()),
        (Some(_), None) => Err("not run between machines".into()),
        (Some(tool), Some(_)) => tool.runnable(plan.test, plan.wait),
    }
}

/// Whether a side can have messages of this size.
fn fits(job: &Job, side: Side) -> Result<(), String> {
    let too_large =
        side == Side::Udp && job.test.metric() == Metric::Latency && job.size > udp::MESSAGE_MAX;
    match too_large {
        true => Err(format!(
            "raw UDP has no flow control: no ping-pong above {} bytes",
            udp::MESSAGE_MAX
        )),
        false => Ok(()),
    }
}

fn tool(side: Side) -> Option<Tool> {
    match side {
        Side::Ucx => Some(Tool::Ucx),
        Side::Libfabric => Some(Tool::Libfabric),
        Side::Udp | Side::Tcp | Side::Zerolane => None,
    }
}

fn once(hosts: &mut Hosts<'_>, job: &Job, side: Side) -> Result<Outcome> {
    let carrier = match side {
        Side::Udp => Carrier::Udp,
        Side::Tcp => Carrier::Tcp,
        Side::Zerolane => Carrier::Zerolane,
        Side::Ucx | Side::Libfabric => {
            let tool = tool(side).context("no such tool")?;
            let stage = hosts.stage.as_ref().context("no stage for tools")?;
            return stage.run(tool, job);
        }
    };
    let seen = hosts.carry(job, carrier).with_context(|| {
        format!(
            "{} of {} bytes over {}",
            job.test.name(),
            job.size,
            side.name()
        )
    })?;
    Outcome::of(job, &seen)
}
