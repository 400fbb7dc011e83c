//! One end of a benchmark: a process of its own, pinned to its core, that does
//! what the orchestrator asks over its standard input and output.
//!
//! It ends when the orchestrator closes the channel, when its parent dies, and
//! in any case when a request takes longer than its deadline.

use std::ffi::OsStr;
use std::io::{BufReader, Stdin, Stdout};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::channel::Channel;
use super::flow::job::FlowJob;
use super::limits;
use super::mover::{self, Buffer, FileRun, Listener, Run};
use super::pattern::Pattern;
use super::protocol::{
    Job, Machine, Measured, Memory, Payload, Reply, Request, VERSION, run_bytes,
};
use super::watchdog::Watchdog;
use super::{cpu, flow, perftest, watchdog};
use zerolane_cli::exit::Exit;

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

/// Serves requests until the orchestrator closes the channel.
pub(crate) fn run(args: Args) -> Result<()> {
    watchdog::die_with_parent()?;
    let watchdog = Watchdog::start(limits::IDLE)?;
    cpu::pin(args.core)?;
    let mut end = End {
        channel: Channel::new(BufReader::new(std::io::stdin()), std::io::stdout()),
        watchdog,
        bind: args.bind,
        core: args.core,
        files: args.files,
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
    files: Option<PathBuf>,
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
                    machine: Machine::this()?,
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
                let measured = self.send(to, &job)?;
                self.channel.send(&Reply::Done(measured))
            }
            Request::Respond(job) => {
                job.check()?;
                self.watchdog.allow(limits::deadline(job.bytes()));
                let channel = &mut self.channel;
                let seen = perftest::respond(self.bind, &job, |port| {
                    channel.send(&Reply::Listening { port })
                })?;
                self.channel.send(&Reply::Saw(seen))
            }
            Request::Initiate { to, job } => {
                job.check()?;
                self.watchdog.allow(limits::deadline(job.bytes()));
                let seen = perftest::initiate(to, &job)?;
                self.channel.send(&Reply::Saw(seen))
            }
            Request::ReceiveFlows(job) => self.receive_flows(&job),
            Request::SendFlow { to, job } => {
                self.expect_flow(&job)?;
                let sent = flow::send(to, &job)?;
                self.channel.send(&Reply::Sent(sent))
            }
        }
    }

    fn receive_flows(&mut self, job: &FlowJob) -> Result<()> {
        self.expect_flow(job)?;
        let listener = flow::Listener::bind(self.bind, job)?;
        self.channel.send(&Reply::Listening {
            port: listener.port()?,
        })?;
        let flows = listener.receive(job)?;
        self.channel.send(&Reply::Arrived { flows })
    }

    fn expect_flow(&self, job: &FlowJob) -> Result<()> {
        job.check()?;
        self.watchdog.allow(limits::IDLE + job.time());
        Ok(())
    }

    fn receive(&mut self, job: &Job) -> Result<()> {
        job.tcp.check()?;
        let listener = Listener::bind(self.bind, job)?;
        self.channel.send(&Reply::Listening {
            port: listener.port()?,
        })?;
        let measured = match &job.payload {
            &Payload::Laps(laps) => self.with_run(job, laps, |run, buffer| {
                // Nothing of an earlier run may look right.
                buffer.fill(0);
                let measured = listener.receive(run, buffer)?;
                run.pattern
                    .check_all(buffer, laps - 1)
                    .context(Exit::Corrupt)?;
                Ok(measured)
            })?,
            Payload::File { name, bytes } => {
                listener.receive_file(&self.file_run(job, name, *bytes)?)?
            }
        };
        self.channel.send(&Reply::Done(measured))
    }

    fn send(&mut self, to: SocketAddr, job: &Job) -> Result<Measured> {
        job.tcp.check()?;
        match &job.payload {
            &Payload::Laps(laps) => self.with_run(job, laps, |run, buffer| {
                // Takes back the stamps of an earlier run.
                run.pattern.fill(buffer);
                mover::send(to, run, buffer)
            }),
            Payload::File { name, bytes } => {
                mover::send_file(to, &self.file_run(job, name, *bytes)?)
            }
        }
    }

    /// Runs `work` on the prepared memory, within the deadline of the job.
    fn with_run(
        &mut self,
        job: &Job,
        laps: u64,
        work: impl FnOnce(&Run<'_>, &mut Buffer) -> Result<Measured>,
    ) -> Result<Measured> {
        let (memory, buffer) = self.memory.as_mut().context(NOT_PREPARED)?;
        let bytes = run_bytes(laps, memory.buffer)?;
        self.watchdog.allow(limits::deadline(bytes));
        let pattern = Pattern::new(memory.seed, memory.buffer);
        work(
            &Run {
                job,
                laps,
                pattern,
                bytes,
                core: self.core,
            },
            buffer,
        )
    }

    fn file_run<'a>(&self, job: &'a Job, name: &str, bytes: u64) -> Result<FileRun<'a>> {
        let directory = self.files.as_ref().context("this end has no files")?;
        ensure!(
            Path::new(name).file_name() == Some(OsStr::new(name)),
            "{name:?} is not a plain name"
        );
        self.watchdog.allow(limits::deadline(bytes));
        Ok(FileRun {
            job,
            path: directory.join(name),
            bytes,
            core: self.core,
        })
    }
}

const NOT_PREPARED: &str = "no buffer was asked for yet";
