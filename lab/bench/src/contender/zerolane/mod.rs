//! Runs Zerolane as a user of the library would.
//!
//! | module | what it holds |
//! |---|---|
//! | `connection` | connection setup |
//! | `turns` | Transfers that take turns on a few regions of memory |
//! | `memory`, `file` | the regions: the pieces of a buffer, a ring before a file |
//! | `flows` | several connections for a given time |
//! | `operations` | remote memory and messages |

pub(crate) mod connection;
mod file;
mod flows;
pub(crate) mod memory;
mod operations;
pub(crate) mod turns;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Result, bail};
use zerolane::counters::Account;
use zerolane::options::{EthernetAddress, Profile, Profiles};
use zerolane::{Connection, Endpoint, Options, Region};
use zerolane_cli::lane::LaneName;

use self::connection::{await_word, connect, ethernet_of, ethernet_to, options, with_device};
use self::memory::Pieces;
use self::turns::{Content, Direction, Turns};
use super::contract::{Contender, DONE, GO, Listener, Part};
use super::gave_up::GaveUp;
use super::source_sink::{self, FromSource, ToSink};
use crate::content::stage::{Stage, Stamps};
use crate::cpu::{Core, Meter};
use crate::job::settings::{PathEnds, Protection};
use crate::job::source_sink::{STUS_OF_BLOCK, Source, Speculation};
use crate::job::{Job, Laps, Role, Work};
use crate::limits::STALL;
use crate::measured::Measured;

/// Pieces of a buffer that is sent a number of times.
const PIECES_OF_LAPS: usize = 2;

/// Zerolane.
#[derive(Debug)]
pub(super) struct Zerolane {
    /// Its profile; `None`: as both ends have it by default.
    pub(super) profile: Option<Profile>,
    /// Its protection; `None`: as the job says.
    pub(super) protection: Option<Protection>,
}

impl Contender for Zerolane {
    fn able(&self, job: &Job) -> Result<(), String> {
        match &job.work {
            Work::SourceSink(it) if matches!(it.source, Source::Sendfile | Source::Splice) => {
                Err("Zerolane sends only memory, mapped files included".into())
            }
            _ => Ok(()),
        }
    }

    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        let on = match job.lane {
            LaneName::Ethernet => ethernet_of(bind)?,
            // Of several paths each is called at an address of its own.
            _ if !job.links.is_empty() => any_of(bind),
            _ => SocketAddr::new(bind, 0),
        };
        let options = with_device(self.options(job), on, job)?;
        let endpoint = Endpoint::bind(on, options)?;
        Ok(Box::new(Listening(endpoint)))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        let to = match (job.lane, job.hardware) {
            (LaneName::Ethernet, Some(hardware)) => ethernet_to(to, hardware)?,
            (LaneName::Ethernet, None) => bail!("the receiver has no hardware address"),
            _ => to,
        };
        let options = with_device(self.options(job), to, job)?
            .with(|it| it.paths.links = job.links.iter().map(|&it| it.into()).collect());
        let connect = || connect(to, job.token, &options);
        match &job.work {
            Work::Laps(laps) => {
                let mut pieces = pieces_of(job, Direction::Send, part.filled(laps)?, laps);
                let measured = send(connect()?, &mut pieces, laps.bytes(), part.core())?;
                part.memory.give_back(pieces.join()?);
                Ok(vec![measured])
            }
            Work::Flows(flows) => flows::flow(Role::Initiator, part, flows, connect),
            Work::File(file) => {
                let from = File::open(part.path(file)?)?;
                let mut pieces = file::Pieces::of(Direction::Send, from, file.bytes)?;
                let mut measured = send(connect()?, &mut pieces, file.bytes, part.core())?;
                measured.syscalls += pieces.content.syscalls;
                Ok(vec![measured])
            }
            Work::SourceSink(it) => {
                let memory = part.memory.take(it.laps().buffer)?;
                let (stage, memory) = FromSource::new(it, memory)?;
                let (laps, piece) = (it.laps(), it.piece);
                let mut pieces = Pieces::of_length(Direction::Send, memory, piece, &laps, stage)
                    .with_between(it.overheads.between);
                let mut measured = send(connect()?, &mut pieces, laps.bytes(), part.core())?;
                measured.syscalls += pieces.content.stage.syscalls();
                if it.source.is_memory() {
                    part.memory.give_back(pieces.join()?);
                }
                Ok(vec![measured])
            }
            Work::Operations(it) => Ok(vec![operations::initiate(connect()?, it, part.core())?]),
        }
    }
}

/// Any address of the family of `own`, at any port.
fn any_of(own: IpAddr) -> SocketAddr {
    match own {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn pieces_of(
    job: &Job,
    direction: Direction,
    buffer: Region,
    laps: &Laps,
) -> Turns<Pieces<Stamps>> {
    Pieces::cut(direction, buffer, PIECES_OF_LAPS, laps, job.stamps(laps))
}

impl Zerolane {
    /// As the job has it.
    pub(super) const DEFAULT: Zerolane = Zerolane {
        profile: None,
        protection: None,
    };

    /// A connection of this job; one that polls spins in its blocking calls, one that sleeps does not.
    fn options(&self, job: &Job) -> Options {
        let mut options = options(self.protection.unwrap_or(job.security)).with(|it| {
            it.times.idle = job.stall();
            it.times.connect = job.connect();
            it.lane.choice = job.lane.into();
            it.paths.most = job.links.len() as u8 + 1;
            it.paths.ethernet = job.links.iter().any(PathEnds::is_ethernet);
            it.paths.udp = !job.links.iter().all(PathEnds::is_ethernet);
            it.paths.threads = job.path_threads.into();
        });
        if let Some(profile) = self.profile {
            options.profiles = Profiles::only(profile);
        }
        match &job.work {
            Work::Operations(operations) => options.times.spin = operations::spin(operations),
            Work::SourceSink(it) => {
                options.datagrams.gso = !it.overheads.no_gso;
                options.datagrams.gro = !it.overheads.no_gro;
                options.datagrams.checksum = it.overheads.checksum;
                options.datagrams.trains = !it.overheads.no_trains;
                if let Some(stu) = it.overheads.stu {
                    options.datagrams.stu = stu;
                    options.flow.classic_block = stu * STUS_OF_BLOCK;
                }
                options.datagrams.forecast = it.overheads.speculation != Speculation::None;
                options.datagrams.swap = it.overheads.speculation == Speculation::Wrong;
            }
            _ => {}
        }
        options
    }
}

/// A port waiting for the initiators.
#[derive(Debug)]
struct Listening(Endpoint);

impl Listening {
    /// The next connection that knows the token.
    fn accept(&mut self, job: &Job) -> Result<Connection> {
        let deadline = Instant::now() + job.connect();
        while Instant::now() < deadline {
            let accepted = self.0.accept(Some(job.connect()))?;
            let mut connection = accepted.ok_or(GaveUp("no sender connected"))?;
            let mut told = [0; 8];
            if connection.recv_into(&mut told).is_ok() && told == job.token.to_le_bytes() {
                return Ok(connection);
            }
        }
        Err(GaveUp("no sender with the right token connected").into())
    }
}

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr().port())
    }

    fn hardware(&self) -> Option<[u8; 6]> {
        let address = EthernetAddress::of(self.0.local_addr());
        address.ok()?.hardware()
    }

    fn respond(mut self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        match &job.work {
            Work::Laps(laps) => {
                let buffer = part.memory.take(laps.buffer)?;
                let mut pieces = pieces_of(job, Direction::Receive, buffer, laps);
                let measured = receive(self.accept(job)?, &mut pieces, laps.bytes(), part.core())?;
                let pattern = pieces.content.stage.pattern;
                part.memory.give_back(pieces.check_last_lap(&pattern)?);
                Ok(vec![measured])
            }
            Work::Flows(flows) => flows::flow(Role::Responder, part, flows, || self.accept(job)),
            Work::File(file) => {
                let to = File::create_new(part.path(file)?)?;
                let mut pieces = file::Pieces::of(Direction::Receive, to, file.bytes)?;
                let mut measured =
                    receive(self.accept(job)?, &mut pieces, file.bytes, part.core())?;
                measured.syscalls += pieces.content.syscalls;
                Ok(vec![measured])
            }
            Work::SourceSink(it) => {
                let (laps, piece) = (it.laps(), it.piece);
                let (buffer, stage) = (part.memory.take(laps.buffer)?, ToSink::new(it)?);
                let mut pieces = Pieces::of_length(Direction::Receive, buffer, piece, &laps, stage);
                let bytes = laps.bytes();
                let mut measured = receive(self.accept(job)?, &mut pieces, bytes, part.core())?;
                measured.syscalls += pieces.content.stage.syscalls();
                pieces.content.stage.check()?;
                let pattern = source_sink::pattern(it);
                part.memory.give_back(pieces.check_last_lap(&pattern)?);
                Ok(vec![measured])
            }
            Work::Operations(it) => Ok(vec![operations::respond(
                self.accept(job)?,
                it,
                part.core(),
            )?]),
        }
    }
}

fn send(
    mut connection: Connection,
    turns: &mut Turns<impl Content>,
    bytes: u64,
    core: Core<'_>,
) -> Result<Measured> {
    await_word(&mut connection, GO)?;
    let before = connection.account();
    let meter = Meter::start(core);
    turns.run(&mut connection, STALL)?;
    // What is still in flight costs this core too: wait until it is there.
    await_word(&mut connection, DONE)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.close()?;
    Ok(Measured {
        bytes,
        seconds,
        cpu,
        ..cost(&before, &after)
    })
}

fn receive(
    mut connection: Connection,
    turns: &mut Turns<impl Content>,
    bytes: u64,
    core: Core<'_>,
) -> Result<Measured> {
    turns.post_all(&mut connection)?;
    connection.send(&[GO])?;
    let before = connection.account();
    let meter = Meter::start(core);
    turns.run(&mut connection, STALL)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.send(&[DONE])?;
    connection.close()?;
    Ok(Measured {
        bytes,
        seconds,
        cpu,
        ..cost(&before, &after)
    })
}

/// What a run cost, from the accounts before and after it.
fn cost(before: &Account, after: &Account) -> Measured {
    let syscalls = |it: &Account| it.tx_data_syscalls + it.rx_data_syscalls;
    let drops = |it: &Account| {
        it.dropped_socket_buffer
            + it.dropped_truncated
            + it.dropped_on_send
            + it.protocol.dropped_total()
    };
    let moved_bytes = after.bytes_moved() - before.bytes_moved();
    Measured {
        syscalls: syscalls(after) - syscalls(before),
        placed_bytes: after.bytes_placed - before.bytes_placed,
        moved_bytes,
        misplaced: moved_bytes.div_ceil(u64::from(after.stu.max(1))),
        drops: drops(after) - drops(before),
        between: after.protocol.unreliable_received - before.protocol.unreliable_received,
        cipher: after.cipher.map(|it| it.name().to_owned()),
        ..Measured::default()
    }
}
