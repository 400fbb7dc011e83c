//! Describes the job of the two ends of a run.
//!
//! | module | what it holds |
//! |---|---|
//! | `name` | the contenders' names |
//! | `settings` | protection, paths and the tuning of TCP |
//! | `source_sink` | jobs from a source to a sink |
//! | `operations`, `test` | jobs of single operations, in perftest's words |
//!
//! An end may serve another machine, so every field is checked against [`crate::limits`] before use.

pub(crate) mod name;
pub(crate) mod operations;
pub(crate) mod settings;
pub(crate) mod source_sink;
pub(crate) mod test;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use zerolane::options::MAX_PATHS;
use zerolane_cli::bypass::Bypass;
use zerolane_cli::lane::LaneName;

use self::name::Name;
use self::operations::Operations;
use self::settings::{PathEnds, Protection, TcpTuning};
use self::source_sink::SourceSink;
use crate::content::pattern::{Check, Pattern, WORD};
use crate::content::stage::Stamps;
use crate::limits::{self, BUFFER_MAX_BYTES, BUFFER_MIN_BYTES, FLOW_MAX, FLOWS_MAX, RUN_MAX_BYTES};

/// One run of one contender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) contender: Name,
    pub(crate) work: Work,
    /// Protection of Zerolane's connections.
    pub(crate) security: Protection,
    /// What carries them.
    pub(crate) lane: LaneName,
    /// Over raw Ethernet: whether by AF_XDP.
    pub(crate) bypass: Bypass,
    /// Their paths beside the first.
    pub(crate) links: Vec<PathEnds>,
    /// Whether each of these has a thread of its own, at both ends, on any core.
    pub(crate) path_threads: bool,
    /// Over raw Ethernet, the hardware address of the responder, once it listens.
    pub(crate) hardware: Option<[u8; 6]>,
    pub(crate) tcp: TcpTuning,
    /// First bytes on each connection: the responder takes no other initiator.
    pub(crate) token: u64,
}

/// What is moved, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// From memory to memory, a number of times.
    Laps(Laps),
    /// From memory to memory, for a time.
    Flows(Flows),
    /// From file to file.
    File(FileCopy),
    /// From a source to a sink.
    SourceSink(SourceSink),
    /// Single operations on memory, and messages.
    Operations(Operations),
}

/// A buffer sent over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Laps {
    /// Memory at each end, bytes.
    pub(crate) buffer: usize,
    pub(crate) laps: u64,
    /// What the buffer holds.
    pub(crate) seed: u64,
}

/// Buffers, each sent over and over between an initiator and the one responder, all at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flows {
    /// Memory at each end of each flow, bytes.
    pub(crate) buffer: usize,
    /// The number of initiators for which the responder waits.
    pub(crate) initiators: usize,
    /// Flows of each of them.
    pub(crate) parallel: usize,
    /// Whether the responder sends, and the initiators receive.
    pub(crate) reverse: bool,
    /// How long they flow.
    pub(crate) millis: u64,
    /// Length of an entry of `Measured::samples`; the last one may be shorter.
    pub(crate) sample_millis: u64,
    /// Whether the receivers tell each of those as soon as they have it.
    pub(crate) live: bool,
    /// What the buffers hold.
    pub(crate) seed: u64,
}

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// A file of this name and length, in the directory that the end was started with. An end that was started
/// without one, as for another machine, refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileCopy {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

impl Job {
    /// The job of `work`, without protection and with TCP's best tuning for it.
    pub(crate) fn of(work: Work) -> Job {
        let tcp = match work {
            Work::Laps(_) | Work::Operations(_) => TcpTuning::default(),
            Work::Flows(_) | Work::File(_) => TcpTuning::in_cache(),
            Work::SourceSink(job) => TcpTuning::in_pieces(job.piece),
        };
        Job {
            contender: Name::Tcp,
            work,
            security: Protection::Plain,
            lane: LaneName::Udp,
            bypass: Bypass::Never,
            links: Vec::new(),
            path_threads: false,
            hardware: None,
            tcp,
            token: 0,
        }
    }

    /// The same, to be done by `contender`, with a token of its own.
    pub(crate) fn by(&self, contender: Name) -> Result<Job> {
        Ok(Job {
            contender,
            token: fresh()?,
            ..self.clone()
        })
    }

    /// Refuses jobs that no honest orchestrator sends.
    pub(crate) fn check(&self) -> Result<()> {
        self.tcp.check()?;
        ensure!(
            self.links.len() < usize::from(MAX_PATHS),
            "{} paths besides the first: a connection has at most {MAX_PATHS}",
            self.links.len()
        );
        match &self.work {
            Work::Laps(laps) => laps.check(),
            Work::Flows(flows) => flows.check(),
            Work::File(file) => file.check(),
            Work::SourceSink(job) => job.check(),
            Work::Operations(operations) => operations.check(),
        }
    }

    /// What the buffer of these laps holds, and how much of it is checked at once.
    pub(crate) fn stamps(&self, laps: &Laps) -> Stamps {
        let stamps = laps.stamps();
        match self.contender.lends_memory() {
            true => Stamps {
                pattern: stamps.pattern.fixed(),
                ..stamps
            },
            false => stamps,
        }
    }

    /// Whether a soaker counts what the core has left.
    pub(crate) fn soaks(&self) -> bool {
        matches!(&self.work, Work::SourceSink(job) if job.soak)
    }

    /// How long it may take before the end that does it gives up and exits, whatever it is waiting for.
    pub(crate) fn deadline(&self) -> Duration {
        match &self.work {
            Work::Laps(laps) => limits::deadline(laps.bytes()),
            Work::Flows(flows) => limits::IDLE + flows.time(),
            Work::File(file) => limits::deadline(file.bytes),
            Work::SourceSink(job) => limits::deadline(job.laps().bytes()),
            Work::Operations(operations) => limits::deadline(operations.bytes()),
        }
    }

    /// How long the ends wait for each other to connect.
    pub(crate) fn connect(&self) -> Duration {
        match self.work {
            Work::Flows(_) => limits::FLOW_CONNECT,
            _ => limits::CONNECT,
        }
    }

    /// How long an end hears nothing before its peer counts as gone.
    pub(crate) fn stall(&self) -> Duration {
        match self.work {
            Work::Flows(_) => limits::FLOW_IDLE,
            _ => limits::STALL,
        }
    }
}

impl Laps {
    /// Bytes of all laps.
    pub(crate) fn bytes(&self) -> u64 {
        self.laps.saturating_mul(self.buffer as u64)
    }

    /// What the buffer holds, if it may be changed from lap to lap.
    pub(crate) fn pattern(&self) -> Pattern {
        Pattern::new(self.seed, self.buffer)
    }

    /// That, of which the stamps are checked at once.
    pub(crate) fn stamps(&self) -> Stamps {
        Stamps {
            pattern: self.pattern(),
            check: Check::Stamps,
        }
    }

    /// That, every word of which is checked at once.
    pub(crate) fn every_word(&self) -> Stamps {
        Stamps {
            pattern: self.pattern(),
            check: Check::EveryWord,
        }
    }

    /// Refuses what would exhaust an end, or would never end.
    pub(crate) fn check(&self) -> Result<()> {
        check_buffer(self.buffer)?;
        match self.laps.checked_mul(self.buffer as u64) {
            Some(1..=RUN_MAX_BYTES) => Ok(()),
            _ => bail!(
                "{} laps of {} bytes: a run is 1 to {RUN_MAX_BYTES} bytes",
                self.laps,
                self.buffer
            ),
        }
    }
}

/// Refuses buffers that an end does not make.
pub(crate) fn check_buffer(buffer: usize) -> Result<()> {
    ensure!(
        (BUFFER_MIN_BYTES..=BUFFER_MAX_BYTES).contains(&buffer),
        "a buffer of {buffer} bytes: it must be {BUFFER_MIN_BYTES} to {BUFFER_MAX_BYTES} bytes"
    );
    ensure!(
        buffer.is_multiple_of(WORD),
        "a buffer of {buffer} bytes: it must be a multiple of {WORD}"
    );
    Ok(())
}

impl Flows {
    fn check(&self) -> Result<()> {
        let flows = self.connections(Role::Responder);
        ensure!(
            (1..=FLOWS_MAX).contains(&flows),
            "{flows} flows: 1 to {FLOWS_MAX}"
        );
        let all = self.buffer.saturating_mul(flows);
        ensure!(
            self.buffer >= 1 << 20 && all <= BUFFER_MAX_BYTES && self.buffer.is_multiple_of(WORD),
            "{flows} buffers of {} bytes: each at least 1 MiB, all at most {BUFFER_MAX_BYTES} bytes",
            self.buffer
        );
        ensure!(
            (Duration::from_millis(1)..=FLOW_MAX).contains(&self.time()),
            "a flow of {} ms: 1 ms to {} s",
            self.millis,
            FLOW_MAX.as_secs()
        );
        ensure!(
            self.sample_millis >= 10 && self.samples() <= 1000,
            "intervals of {} ms: at least 10 ms, at most 1000 of them",
            self.sample_millis
        );
        Ok(())
    }

    /// How many connections an end has.
    pub(crate) fn connections(&self, role: Role) -> usize {
        match role {
            Role::Initiator => self.parallel,
            Role::Responder => self.initiators.saturating_mul(self.parallel),
        }
    }

    /// Whether this end sends.
    pub(crate) fn sends(&self, role: Role) -> bool {
        (role == Role::Initiator) != self.reverse
    }

    /// How many samples a receiver takes of each flow.
    pub(crate) fn samples(&self) -> u64 {
        self.millis.div_ceil(self.sample_millis)
    }

    /// When the sample of this number begins and ends, seconds.
    pub(crate) fn sample(&self, index: u64) -> [f64; 2] {
        let edge = |index: u64| index.saturating_mul(self.sample_millis).min(self.millis);
        [edge(index), edge(index + 1)].map(|millis| millis as f64 / 1e3)
    }

    /// Laps without end, to be cut off when the time is over.
    pub(crate) fn laps(&self) -> Laps {
        Laps {
            buffer: self.buffer,
            laps: u64::MAX,
            seed: self.seed,
        }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    pub(crate) fn sample_time(&self) -> Duration {
        Duration::from_millis(self.sample_millis)
    }
}

impl FileCopy {
    fn check(&self) -> Result<()> {
        let name = OsStr::new(&self.name);
        ensure!(
            Path::new(name).file_name() == Some(name),
            "{name:?} is not a plain name"
        );
        Ok(())
    }
}

/// A secret random number from the kernel.
pub(crate) fn fresh() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;

    const LAPS: Laps = Laps {
        buffer: 4096,
        laps: 3,
        seed: 5,
    };

    const FLOWS: Flows = Flows {
        buffer: 32 << 20,
        initiators: 2,
        parallel: 4,
        reverse: false,
        millis: 10_000,
        sample_millis: 1000,
        live: false,
        seed: 1,
    };

    fn file(name: &str) -> FileCopy {
        FileCopy {
            name: name.into(),
            bytes: 1,
        }
    }

    /// A job of each kind of work.
    pub(crate) fn every_work() -> [Job; 5] {
        let operations = operations::tests::operations();
        [
            Work::Laps(LAPS),
            Work::Flows(FLOWS),
            Work::File(file("a")),
            Work::SourceSink(source_sink::tests::JOB),
            Work::Operations(operations),
        ]
        .map(Job::of)
    }

    #[test]
    fn check__takes_a_job_of_every_kind() {
        for job in every_work() {
            job.check().unwrap();
        }
    }

    #[test]
    fn Laps__refuses_what_would_exhaust_the_end() {
        let check = |buffer, laps| {
            Laps {
                buffer,
                laps,
                seed: 0,
            }
            .check()
        };
        check(BUFFER_MIN_BYTES, 1).unwrap();
        check(BUFFER_MAX_BYTES, 1).unwrap();
        for buffer in [
            0,
            BUFFER_MIN_BYTES - WORD,
            BUFFER_MAX_BYTES + WORD,
            4097,
            usize::MAX,
        ] {
            assert!(check(buffer, 1).is_err(), "{buffer}");
        }
        for laps in [0, RUN_MAX_BYTES / 4096 + 1, u64::MAX] {
            assert!(check(4096, laps).is_err(), "{laps}");
        }
    }

    #[test]
    fn Flows__refuses_what_would_exhaust_the_end() {
        let wrong: [fn(&mut Flows); 10] = [
            |flows| flows.initiators = 0,
            |flows| flows.parallel = 0,
            |flows| flows.initiators = FLOWS_MAX / flows.parallel + 1,
            |flows| flows.parallel = usize::MAX,
            |flows| flows.buffer = 0,
            |flows| flows.buffer = usize::MAX,
            |flows| flows.buffer = (32 << 20) + 1,
            |flows| flows.millis = 0,
            |flows| flows.millis = u64::MAX,
            |flows| flows.sample_millis = 1,
        ];
        for spoil in wrong {
            let mut flows = FLOWS;
            spoil(&mut flows);
            assert!(flows.check().is_err(), "{flows:?}");
        }
    }

    #[test]
    fn Flows__the_last_sample_ends_with_the_time() {
        let flows = Flows {
            millis: 2500,
            ..FLOWS
        };
        assert_eq!(flows.samples(), 3);
        let samples = (0..3).map(|index| flows.sample(index));
        assert!(samples.eq([[0.0, 1.0], [1.0, 2.0], [2.0, 2.5]]));
    }

    #[test]
    fn FileCopy__refuses_paths() {
        for name in ["", "/etc/passwd", "../a", "a/b", ".."] {
            assert!(file(name).check().is_err(), "{name}");
        }
    }
}
