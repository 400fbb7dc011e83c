//! What the orchestrator and an end say to each other, one JSON line each.
//!
//! ```text
//! orchestrator            receiver                 sender
//!   Prepare ------------>  allocates its buffer
//!   Prepare -------------------------------------->  allocates its buffer
//!   Receive ------------>  listens
//!           <-- Listening
//!   Send ----------------------------------------->  connects, sends
//!           <----------------------------------------- Done
//!           <------- Done  after checking every byte
//! ```
//!
//! An end may serve another machine, so every field is checked against
//! [`super::limits`] before it is used.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use zerolane::Security;
use zerolane::security::Cipher;

use super::cpu::CpuTime;
use super::flow::job::{Arrived, FlowJob, Sent};
use super::limits::{BUFFER_MAX_BYTES, BUFFER_MIN_BYTES, RUN_MAX_BYTES};
use super::pattern::WORD;
use super::perftest;

/// Changes with every incompatible change of these types.
pub(crate) const VERSION: u32 = 5;

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mover {
    /// The kernel's TCP, send and recv.
    Tcp,
    /// TLS 1.3 over TCP: rustls, AES-128-GCM.
    Tls,
    /// QUIC: quinn, AES-128-GCM.
    Quinn,
    /// Zerolane.
    Zerolane,
}

/// How the TCP ends use their sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TcpTuning {
    /// Most bytes handed to one send.
    pub(crate) send_bytes: usize,
    /// Most bytes asked of one recv.
    pub(crate) recv_bytes: usize,
    /// SO_SNDBUF, bytes; `None` leaves the kernel's autotuning on.
    pub(crate) send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes; `None` leaves the kernel's autotuning on.
    pub(crate) recv_buffer: Option<usize>,
    /// Whether recv waits until all it asked for is there (MSG_WAITALL).
    pub(crate) wait_all: bool,
    /// TCP_CONGESTION; `None`: the baseline where it may be had, see [`super::congestion`].
    pub(crate) congestion: Option<String>,
}

/// What a run moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payload {
    /// The buffer, this many times.
    Laps(u64),
    /// A file of this name and length, in the directory the end was started
    /// with. An end that was started without one, as for another machine,
    /// refuses.
    File { name: String, bytes: u64 },
}

/// One run by one mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) mover: Mover,
    pub(crate) payload: Payload,
    /// First bytes on the data connection: the receiver takes no other sender.
    pub(crate) token: u64,
    pub(crate) tcp: TcpTuning,
    pub(crate) security: Protection,
}

/// How Zerolane's connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protection {
    /// Encrypted and authenticated, with keys made for the run, by the best cipher that both ends have.
    Encrypted,
    /// The same, by the cipher of TLS's and quinn's runs.
    #[value(name = "aes-128-gcm")]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// Authenticated, not hidden, with keys made for the run.
    Authenticated,
    /// Not at all, as kernel TCP is not.
    #[default]
    Plain,
}

impl Protection {
    /// As the reports say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protection::Encrypted => "encrypted",
            Protection::Aes128Gcm => "encrypted by AES-128-GCM",
            Protection::Authenticated => "authenticated",
            Protection::Plain => "plain",
        }
    }

    /// What it means to an end: neither knows the other, whose key is made for the run.
    pub(crate) fn security(self) -> Security {
        match self {
            Protection::Encrypted => Security::default(),
            Protection::Aes128Gcm => Security {
                cipher: Some(Cipher::Aes128Gcm),
                ..Security::default()
            },
            Protection::Authenticated => Security::authenticated(),
            Protection::Plain => Security::plain(),
        }
    }
}

/// The memory both movers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Bytes of the buffer.
    pub(crate) buffer: usize,
    pub(crate) seed: u64,
}

/// To an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Say who you are.
    Hello { version: u32 },
    /// Allocate the buffer.
    Prepare(Memory),
    /// Measure this core's memcpy on such a buffer.
    Memcpy,
    /// Wait for the sender of this job, then receive.
    Receive(Job),
    /// Connect to the receiver of this job, then send.
    Send { to: SocketAddr, job: Job },
    /// Wait for the initiator of this job, then respond.
    Respond(perftest::Job),
    /// Connect to the responder of this job, then do what it says.
    Initiate { to: SocketAddr, job: perftest::Job },
    /// Wait for the senders of these flows, then receive for their time.
    ReceiveFlows(FlowJob),
    /// Connect to the receiver of this flow, then send until it ends it.
    SendFlow { to: SocketAddr, job: FlowJob },
}

/// From an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello {
        version: u32,
        machine: Machine,
    },
    Prepared,
    Memcpy {
        gbps: f64,
    },
    /// The port to send the job's data to.
    Listening {
        port: u16,
    },
    Done(Measured),
    Saw(perftest::Seen),
    /// What arrived, flow by flow.
    Arrived {
        flows: Vec<Arrived>,
    },
    /// What a flow's sender counted.
    Sent(Sent),
    /// The request failed; the end takes no further ones.
    Failed {
        message: String,
        corrupt: bool,
    },
}

/// The machine an end runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The congestion control that TCP runs with here unless another one is asked for.
    pub(crate) tcp_baseline: String,
}

/// What one end of one run measured, between the receiver's *go* and its
/// *done*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Payload bytes; at the receiver, bytes in place.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu: CpuTime,
    /// System calls that carried data.
    pub(crate) syscalls: u64,
    /// Bytes that the kernel's own copy put into their final place.
    pub(crate) placed_bytes: u64,
    /// Bytes copied again in user space.
    pub(crate) moved_bytes: u64,
    /// Packets that did not land in their final place at once.
    pub(crate) misplaced: u64,
    /// Packets dropped, wherever this end could see it.
    pub(crate) drops: u64,
}

impl Memory {
    /// Refuses what no honest orchestrator asks for.
    pub(crate) fn check(&self) -> Result<()> {
        let Memory { buffer, .. } = *self;
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
}

/// Bytes of `laps` times `buffer` bytes, if a run may be that long.
pub(crate) fn run_bytes(laps: u64, buffer: usize) -> Result<u64> {
    match laps.checked_mul(buffer as u64) {
        Some(bytes @ 1..=RUN_MAX_BYTES) => Ok(bytes),
        _ => bail!("{laps} laps of {buffer} bytes: a run is 1 to {RUN_MAX_BYTES} bytes"),
    }
}

impl Measured {
    /// What a mover without misplaced packets measured.
    pub(crate) fn new(bytes: u64, seconds: f64, cpu: CpuTime, syscalls: u64) -> Measured {
        Measured {
            bytes,
            seconds,
            cpu,
            syscalls,
            ..Measured::default()
        }
    }
}

impl Default for TcpTuning {
    /// The best that was found; see [`super::tcp`].
    fn default() -> TcpTuning {
        TcpTuning {
            send_bytes: 1 << 20,
            recv_bytes: 1 << 20,
            send_buffer: None,
            recv_buffer: None,
            wait_all: false,
            congestion: None,
        }
    }
}

impl TcpTuning {
    /// Refuses what a socket or the pattern cannot do.
    pub(crate) fn check(&self) -> Result<()> {
        for bytes in [self.send_bytes, self.recv_bytes] {
            ensure!(
                (1..=BUFFER_MAX_BYTES).contains(&bytes) && bytes.is_multiple_of(WORD),
                "a TCP chunk of {bytes} bytes: it must be a multiple of {WORD} up to {BUFFER_MAX_BYTES}"
            );
        }
        Ok(())
    }
}

impl Machine {
    /// This machine, as far as it says.
    ///
    /// # Errors
    /// It has no TCP.
    pub(crate) fn this() -> Result<Machine> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned());
        Ok(Machine {
            cpu,
            cores: super::cpu::cores(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            tcp_baseline: super::congestion::baseline()?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::flow::contender::Contender;

    fn job(laps: u64) -> Job {
        let (payload, tcp) = (Payload::Laps(laps), TcpTuning::default());
        Job {
            mover: Mover::Tcp,
            payload,
            token: u64::MAX,
            tcp,
            security: Protection::Encrypted,
        }
    }

    fn flow() -> FlowJob {
        FlowJob {
            contender: Contender::Bbr,
            security: Protection::Plain,
            flows: 1,
            millis: 2,
            sample_millis: 3,
            buffer: 4,
            seed: 5,
            token: u64::MAX,
        }
    }

    #[test]
    fn Request__survives_its_json() {
        let to = "[::1]:9".parse().unwrap();
        for request in [
            Request::Hello { version: VERSION },
            Request::Prepare(Memory {
                buffer: 4096,
                seed: 3,
            }),
            Request::Memcpy,
            Request::Receive(job(2)),
            Request::Receive(Job {
                payload: Payload::File {
                    name: "a".into(),
                    bytes: 1,
                },
                ..job(2)
            }),
            Request::Send { to, job: job(2) },
            Request::SendFlow { to, job: flow() },
            Request::ReceiveFlows(flow()),
        ] {
            let json = serde_json::to_string(&request).unwrap();
            assert_eq!(
                serde_json::from_str::<Request>(&json).unwrap(),
                request,
                "{json}"
            );
        }
    }

    #[test]
    fn Memory__refuses_what_would_exhaust_the_end() {
        let check = |buffer| Memory { buffer, seed: 0 }.check();
        check(BUFFER_MIN_BYTES).unwrap();
        check(BUFFER_MAX_BYTES).unwrap();
        for buffer in [
            0,
            BUFFER_MIN_BYTES - WORD,
            BUFFER_MAX_BYTES + WORD,
            4097,
            usize::MAX,
        ] {
            assert!(check(buffer).is_err(), "{buffer}");
        }
    }

    #[test]
    fn run_bytes__refuses_endless_runs() {
        assert_eq!(run_bytes(3, 4096).unwrap(), 12288);
        for laps in [0, RUN_MAX_BYTES / 4096 + 1, u64::MAX] {
            assert!(run_bytes(laps, 4096).is_err(), "{laps}");
        }
    }

    #[test]
    fn TcpTuning__refuses_chunks_that_split_words() {
        TcpTuning::default().check().unwrap();
        assert!(
            TcpTuning {
                send_bytes: 12,
                ..TcpTuning::default()
            }
            .check()
            .is_err()
        );
        assert!(
            TcpTuning {
                recv_bytes: 0,
                ..TcpTuning::default()
            }
            .check()
            .is_err()
        );
    }
}
