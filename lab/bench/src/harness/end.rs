//! Runs one end of a benchmark: a process pinned to its core that executes the orchestrator's requests.
//!
//! It ends when the orchestrator closes the channel, when its parent dies, and in any case when a request exceeds its
//! deadline.

use std::io::{BufReader, Stdin, Stdout};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow, ensure};

use super::channel::Channel;
use super::failure::Failure;
use super::machine::Machine;
use super::protocol::{Reply, Request, VERSION};
use super::watchdog::{self, Watchdog};
use crate::contender;
use crate::contender::contract::{Contender, Memory, Part};
use crate::cpu::Soaker;
use crate::job::{Job, Work, check_buffer};
use crate::measured::Measured;
use crate::{cpu, limits};

/// Arguments of the hidden `zerolane bench end`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on for data
    #[arg(long)]
    bind: IpAddr,
    /// Core to run on
    #[arg(long)]
    core: usize,
    /// Directory whose files may be sent and written
    #[arg(long)]
    files: Option<PathBuf>,
}

/// Turns `command`, this program, into an end.
pub(super) fn arguments(command: &mut Command, bind: IpAddr, core: usize, files: Option<&Path>) {
    command.args(["bench", "end", "--bind", &bind.to_string()]);
    command.args(["--core", &core.to_string()]);
    if let Some(files) = files {
        command.arg("--files").arg(files);
    }
}

/// Serves requests until the orchestrator closes the channel.
pub(crate) fn run(args: Args) -> Result<()> {
    watchdog::die_with_parent()?;
    let watchdog = Watchdog::start(limits::IDLE)?;
    // Before it is pinned, which leaves it one core.
    let cores = cpu::circle(args.core)?;
    cpu::pin(args.core)?;
    let mut end = End {
        channel: Channel::new(BufReader::new(std::io::stdin()), std::io::stdout()),
        watchdog,
        bind: args.bind,
        cores,
        files: args.files,
        memory: Memory::default(),
    };
    while let Some(request) = end.channel.receive()? {
        if let Err(error) = end.answer(request) {
            // An orchestrator that is gone cannot be told.
            let _ = end.channel.send(&Reply::Failed {
                message: format!("{error:#}"),
                failure: Failure::of(&error),
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
    cores: Vec<usize>,
    files: Option<PathBuf>,
    memory: Memory,
}

impl End {
    fn answer(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Hello { version } => {
                ensure!(
                    version == VERSION,
                    "the peer speaks bench protocol {version}, this end {VERSION}: use the same zerolane at both ends"
                );
                self.channel.send(&Reply::Hello {
                    version: VERSION,
                    machine: Machine::this(self.cores.len())?,
                })
            }
            Request::Memcpy { buffer } => {
                check_buffer(buffer)?;
                let (from, mut to) = (self.memory.take(buffer)?, Memory::default().take(buffer)?);
                let gbps = cpu::memcpy_gbps(&from, &mut to);
                self.channel.send(&Reply::Memcpy { gbps })
            }
            Request::Respond(job) => {
                let listener = self.contender(&job)?.listen(self.bind, &job)?;
                let (port, hardware) = (listener.port()?, listener.hardware());
                self.channel.send(&Reply::Listening { port, hardware })?;
                let measured = self.act(&job, |part| listener.respond(part))?;
                self.channel.send(&Reply::Done { measured })
            }
            Request::Initiate { to, job } => {
                let contender = self.contender(&job)?;
                let measured = self.act(&job, |part| contender.initiate(to, part))?;
                self.channel.send(&Reply::Done { measured })
            }
        }
    }

    /// The contender for the job, after checking the job and starting its deadline.
    fn contender(&self, job: &Job) -> Result<&'static dyn Contender> {
        job.check()?;
        let contender = contender::of(job.contender);
        contender.able(job).map_err(|why| anyhow!(why))?;
        self.watchdog.allow(job.deadline());
        // What has more threads than one has more cores, if there are.
        match job.path_threads {
            true => cpu::spread(&self.cores)?,
            false => cpu::pin(self.cores[0])?,
        }
        Ok(contender)
    }

    /// Does this end's part of the job.
    fn act(
        &mut self,
        job: &Job,
        act: impl FnOnce(&mut Part<'_>) -> Result<Vec<Measured>>,
    ) -> Result<Vec<Measured>> {
        let live = matches!(&job.work, Work::Flows(flows) if flows.live);
        let channel = Mutex::new(&mut self.channel);
        let tell = |flow, bytes| {
            if live {
                let mut channel = channel.lock().unwrap_or_else(PoisonError::into_inner);
                // An orchestrator that is gone cannot be told.
                let _ = channel.send(&Reply::Sample { flow, bytes });
            }
        };
        let soaker = match job.soaks() {
            true => Some(Soaker::start()?),
            false => None,
        };
        act(&mut Part {
            job,
            cores: &self.cores,
            memory: &mut self.memory,
            files: self.files.as_deref(),
            soaker: soaker.as_ref(),
            tell: &tell,
        })
    }
}
