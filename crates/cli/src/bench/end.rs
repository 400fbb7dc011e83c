//! One end of a benchmark: a process of its own, pinned to its core, that does
//! what the orchestrator asks over its standard input and output.
//!
//! It ends when the orchestrator closes the channel, when its parent dies, and
//! in any case when a request takes longer than its deadline.

use std::io::{BufReader, Stdin, Stdout};
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};

use super::channel::Channel;
use super::limits;
use super::mover::{self, Buffer, Listener, Run};
use super::pattern::Pattern;
use super::protocol::{Job, Machine, Measured, Memory, Reply, Request, VERSION};
use super::watchdog::Watchdog;
use super::{cpu, watchdog};
use crate::exit::Exit;

/// Arguments of the hidden `zerolane bench end`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on for data
    #[arg(long)]
    bind: IpAddr,
    /// Core to run on
    #[arg(long)]
    core: usize,
}

/// Serves requests until the orchestrator closes the channel.
pub(crate) fn run(args: &Args) -> Result<()> {
    watchdog::die_with_parent()?;
    let watchdog = Watchdog::start(limits::IDLE)?;
    cpu::pin(args.core)?;
    let mut end = End {
        channel: Channel::new(BufReader::new(std::io::stdin()), std::io::stdout()),
        watchdog,
        bind: args.bind,
        core: args.core,
        memory: None,
    };
    while let Some(request) = end.channel.receive()? {
        if let Err(error) = end.answer(request) {
            // An orchestrator that is gone cannot be told.
            let _ = end.channel.send(&Reply::Failed {
                message: format!("{error:#}"),
                corrupt: Exit::of(&error) == Exit::Corrupt,
            });
            return Ok(());
        }
        end.watchdog.allow(limits::IDLE);
    }
    Ok(())
}

struct End {
    channel: Channel<BufReader<Stdin>, Stdout>,
    watchdog: Watchdog,
    bind: IpAddr,
    core: usize,
    memory: Option<(Memory, Buffer)>,
}

impl End {
    fn answer(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Hello { version } => {
                ensure!(
                    version == VERSION,
                    "bench protocol {version} asked for, {VERSION} spoken here: use the same zerolane at both ends"
                );
                self.channel.send(&Reply::Hello {
                    version: VERSION,
                    machine: Machine::this(),
                })
            }
            Request::Prepare(memory) => {
                self.memory = None;
                memory.check()?;
                self.memory = Some((memory, mover::buffer(memory.buffer)?));
                self.channel.send(&Reply::Prepared)
            }
            Request::Memcpy => {
                let (memory, buffer) = self.memory.as_ref().context(NOT_PREPARED)?;
                let mut copy = mover::buffer(memory.buffer)?;
                let gbps = cpu::memcpy_gbps(buffer, &mut copy);
                self.channel.send(&Reply::Memcpy { gbps })
            }
            Request::Receive(job) => self.receive(&job),
            Request::Send { to, job } => {
                let measured = self.with_run(&job, |run, buffer| {
                    // Takes back the stamps of an earlier run.
                    run.pattern.fill(buffer);
                    mover::send(to, run, buffer)
                })?;
                self.channel.send(&Reply::Done(measured))
            }
        }
    }

    fn receive(&mut self, job: &Job) -> Result<()> {
        job.tcp.check()?;
        let listener = Listener::bind(self.bind, job)?;
        self.channel.send(&Reply::Listening {
            port: listener.port()?,
        })?;
        let measured = self.with_run(job, |run, buffer| {
            // Nothing of an earlier run may look right.
            buffer.fill(0);
            let measured = listener.receive(run, buffer)?;
            run.pattern
                .check_all(buffer, job.laps - 1)
                .context(Exit::Corrupt)?;
            Ok(measured)
        })?;
        self.channel.send(&Reply::Done(measured))
    }

    /// Runs `work` on the prepared memory, within the deadline of the job.
    fn with_run(
        &mut self,
        job: &Job,
        work: impl FnOnce(&Run<'_>, &mut Buffer) -> Result<Measured>,
    ) -> Result<Measured> {
        job.tcp.check()?;
        let Some((memory, buffer)) = &mut self.memory else {
            bail!(NOT_PREPARED)
        };
        let bytes = job.bytes(memory.buffer)?;
        self.watchdog.allow(limits::deadline(bytes));
        let pattern = Pattern::new(memory.seed, memory.buffer);
        work(
            &Run {
                job,
                pattern,
                bytes,
                core: self.core,
            },
            buffer,
        )
    }
}

const NOT_PREPARED: &str = "no buffer was asked for yet";
