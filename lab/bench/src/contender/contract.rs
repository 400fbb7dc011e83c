//! Defines the contract of all contenders, and what they share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Error, Result, bail, ensure};
use zerolane::Region;

use crate::cpu::{self, Core, Meter, Soaker};
use crate::job::{FileCopy, Flows, Job, Laps};
use crate::measured::Measured;

/// A way to do a [`Job`] between two processes.
pub(crate) trait Contender: Sync {
    /// Whether it can do this job; if not, why.
    fn able(&self, job: &Job) -> Result<(), String>;

    /// Waits for the initiators of the job on any free port of `bind`.
    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>>;

    /// Connects to the responder and does the initiator's part: sends the content, or does the operations. The clock
    /// runs from the responder's *go* until its *done* has come back.
    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>>;
}

/// A responder that waits for its initiators.
pub(crate) trait Listener {
    /// The port to which the initiators connect.
    fn port(&self) -> Result<u16>;

    /// The hardware address to which they connect over raw Ethernet.
    fn hardware(&self) -> Option<[u8; 6]> {
        None
    }

    /// Does the responder's part: receives the content and checks it, or answers. The clock runs from this end's *go*,
    /// said when all connections stand and the memory is ready, until the last byte is in place.
    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>>;
}

/// Called with a flow's number and the bytes of one of its samples, while the flow runs.
pub(crate) type Tell<'a> = &'a (dyn Fn(usize, u64) + Sync);

/// The resources that one end brings to a job.
pub(crate) struct Part<'a> {
    pub(crate) job: &'a Job,
    /// The core this end is pinned to, and then the others that its flows may run on.
    pub(crate) cores: &'a [usize],
    pub(crate) memory: &'a mut Memory,
    /// Directory whose files may be sent and written.
    pub(crate) files: Option<&'a Path>,
    /// On that core, if the job wants one.
    pub(crate) soaker: Option<&'a Soaker>,
    pub(crate) tell: Tell<'a>,
}

impl Part<'_> {
    /// The core this end is pinned to.
    pub(super) fn core(&self) -> Core<'_> {
        Core {
            number: self.cores[0],
            soaker: self.soaker,
        }
    }

    /// Where the file is, or its copy goes.
    pub(super) fn path(&self, file: &FileCopy) -> Result<PathBuf> {
        let directory = self.files.context("this end has no directory for files")?;
        Ok(directory.join(&file.name))
    }

    /// A buffer as its pattern has it before the first lap.
    pub(super) fn filled(&mut self, laps: &Laps) -> Result<Region> {
        let mut buffer = self.memory.take(laps.buffer)?;
        laps.pattern().fill(&mut buffer);
        Ok(buffer)
    }
}

/// The buffers of an end. They outlive a run, so the next run does not wait for the kernel.
#[derive(Debug, Default)]
pub(crate) struct Memory(Vec<Region>);

impl Memory {
    /// A buffer of `len` zero bytes in huge pages where the system gives them, every page touched.
    pub(crate) fn take(&mut self, len: usize) -> Result<Region> {
        let same = self.0.iter().position(|it| it.len() == len);
        let mut buffer = match same {
            Some(at) => self.0.swap_remove(at),
            None => {
                self.0.clear();
                Region::anonymous(len)?
            }
        };
        buffer.fill(0);
        Ok(buffer)
    }

    /// Keeps a buffer for the next run. It is the end's own memory: no file's.
    pub(super) fn give_back(&mut self, buffer: Region) {
        self.0.push(buffer);
    }
}

/// What the responder says when its clock starts, and when the last byte is in place.
pub(super) const GO: u8 = b'g';
pub(super) const DONE: u8 = b'd';

/// Fails unless the word that was `heard` is the one that was expected.
pub(super) fn expect_word(heard: u8, word: u8) -> Result<()> {
    ensure!(
        heard == word,
        "the peer said {:?} instead of {:?}",
        heard as char,
        word as char
    );
    Ok(())
}

/// Where flows wait until all are ready.
#[derive(Debug)]
pub(super) struct Gate {
    /// Flows that are not ready yet; `None` once one has ended, because the others would otherwise wait without end.
    missing: Mutex<Option<usize>>,
    changed: Condvar,
}

/// Another flow ended before it was ready; what it says explains it.
#[derive(Debug)]
struct LeftAlone;

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another flow ended before all were ready")
    }
}

impl std::error::Error for LeftAlone {}

impl Gate {
    fn new(flows: usize) -> Gate {
        Gate {
            missing: Mutex::new(Some(flows)),
            changed: Condvar::new(),
        }
    }

    /// This flow is ready: waits for the others.
    pub(super) fn pass(&self) -> Result<()> {
        let mut missing = self.missing();
        *missing = missing.map(|it| it - 1);
        self.changed.notify_all();
        let waits = |missing: &mut Option<usize>| missing.is_some_and(|it| it > 0);
        let missing = self.changed.wait_while(missing, waits);
        let missing = missing.unwrap_or_else(PoisonError::into_inner);
        Ok(missing.map(drop).ok_or(LeftAlone)?)
    }

    fn missing(&self) -> MutexGuard<'_, Option<usize>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flow's right to pass the gate, which goes with the flow.
struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut missing = self.0.missing();
        // Those that have passed already wait no more.
        if *missing != Some(0) {
            *missing = None;
        }
        self.0.changed.notify_all();
    }
}

/// One of the flows that start together.
pub(super) struct Flow<'a> {
    pub(super) ready: &'a Gate,
    /// Told the bytes of each sample.
    pub(super) tell: &'a dyn Fn(u64),
}

/// How a flow's sender ended, which began then. The receiver ends the connection when the time is over, or when
/// something is wrong, and says which it was: that is no error here, and afterwards nothing is. What ends it earlier is
/// the sender's own failure.
pub(super) fn sender_ended(
    sent: Result<()>,
    flows: &Flows,
    began: Instant,
    by_receiver: impl Fn(&Error) -> bool,
) -> Result<()> {
    match sent {
        Err(error) if began.elapsed() < flows.time() && !by_receiver(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Sends or receives over all connections, each in a thread of its own. The flows of one initiator go round the cores.
/// CPU time is the process's: that of all flows together stands with the first.
pub(super) fn at_once<C: Send>(
    part: &Part<'_>,
    parallel: usize,
    connections: Vec<C>,
    act: impl Fn(C, &Flow<'_>) -> Result<Measured> + Sync,
) -> Result<Vec<Measured>> {
    let ready = Gate::new(connections.len());
    let (ready, act, tell) = (&ready, &act, part.tell);
    let meter = Meter::start(part.core());
    let measured: Result<Vec<Measured>> = thread::scope(|scope| {
        let flows: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(index, connection)| {
                let core = part.cores[index % parallel % part.cores.len()];
                scope.spawn(move || {
                    let _pass = Pass(ready);
                    cpu::pin(core)?;
                    let tell = |bytes| tell(index, bytes);
                    act(connection, &Flow { ready, tell: &tell })
                })
            })
            .collect();
        let joined = flows.into_iter().map(|flow| flow.join());
        let joined = joined.map(|flow| flow.unwrap_or_else(|_| bail!("a flow's thread panicked")));
        let (mut measured, mut failed) = (Vec::new(), Vec::new());
        for flow in joined {
            match flow {
                Ok(flow) => measured.push(flow),
                Err(error) => failed.push(error),
            }
        }
        let explains = failed.iter().position(|it| !it.is::<LeftAlone>());
        match failed.is_empty() {
            true => Ok(measured),
            false => Err(failed.swap_remove(explains.unwrap_or(0))),
        }
    });
    let mut measured = measured?;
    if let Some(first) = measured.first_mut() {
        (_, first.cpu) = meter.stop();
    }
    Ok(measured)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::tests::every_work;

    /// What comes of flows that act so, over connections that are their numbers.
    fn flows(act: impl Fn(usize, &Flow<'_>) -> Result<Measured> + Sync) -> Result<Vec<Measured>> {
        let [_, job, ..] = every_work();
        let part = Part {
            job: &job,
            cores: &[0],
            memory: &mut Memory::default(),
            files: None,
            soaker: None,
            tell: &|_, _| {},
        };
        at_once(&part, 1, (0..4).collect(), act)
    }

    #[test]
    fn at_once__all_are_ready_before_one_goes_on() {
        let ready = Mutex::new(0);
        let measured = flows(|flow, it| {
            *ready.lock().unwrap() += 1;
            it.ready.pass()?;
            assert_eq!(*ready.lock().unwrap(), 4, "{flow}");
            Ok(Measured::default())
        });
        assert_eq!(measured.unwrap().len(), 4);
    }

    /// The others are not left waiting for it, and its error is told, not theirs.
    #[test]
    fn at_once__a_flow_that_fails_before_it_is_ready_ends_all() {
        for fails in 0..4 {
            let failed = flows(|flow, it| {
                match flow == fails {
                    true => bail!("no memory"),
                    false => it.ready.pass()?,
                }
                Ok(Measured::default())
            });
            assert_eq!(failed.unwrap_err().to_string(), "no memory");
        }
    }
}
