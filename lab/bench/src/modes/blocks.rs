//! Runs `bench blocks`: scattered blocks to scattered places, with one notification for all, for some, or for each.
//!
//! Zerolane writes them by vectored puts with an immediate, in shared memory and between two hosts. TCP writes a small
//! header for each notification and gathers by `writev`; its receiver scatters by `readv`, with the next header in the same
//! call. In each round all blocks go, and the receiver answers when it has been notified of all.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytesize::ByteSize;
use serde::Serialize;
use socket2::SockRef;
use zerolane::failure::PostError;
use zerolane::memory::Memory;
use zerolane::options::LaneChoice;
use zerolane::request::{Message, PutPieces, ReceiveMessage, WorkKind};
use zerolane::{
    Completion, Connection, Endpoint, Error, ExportedRegion, Options, Region, RegionKey, RequestId,
    Rights,
};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{CoreArgs, Rounds, size};
use crate::contender::zerolane::connection::{await_word, options};
use crate::content::message::Content;
use crate::cpu;
use crate::harness::failure::together;
use crate::harness::hosts::{self, MTU};
use crate::harness::link::{Host, Link};
use crate::harness::runs::order;
use crate::job::fresh;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};
use crate::report::{self, Report, Spread, cell, compared, mtu, table};

/// Blocks for which there is one notification, in the order of the report; `None`: for all.
const NOTIFIED: [Option<usize>; 3] = [None, Some(64), Some(1)];
/// Most slices of one system call (IOV_MAX).
const SLICES_MAX: usize = 1024;
/// Bytes that TCP writes for each notification: the first of its blocks, and how many there are.
const HEADER: usize = 16;
/// Bytes of all blocks at each end.
const MEMORY_MAX: usize = 1 << 30;
/// Bytes of a run, and its rounds.
const RUN_BYTES: usize = 2 << 30;
const ROUNDS: std::ops::RangeInclusive<u64> = 3..=200;
const QUICK_ROUNDS: u64 = 2;
/// The name of the receiver's memory.
const NAME: &str = "blocks";
/// What the receiver says when it can be written to, and when it has been notified of all blocks.
const READY: u8 = b'r';
const ALL: u8 = b'a';

/// Arguments of `zerolane bench blocks`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Blocks of a round
    #[arg(long, short = 'n', default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    blocks: u32,
    /// Bytes of a block, 16 B to 16 MiB
    #[arg(
        long,
        short,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "64KiB,16KiB"
    )]
    size: Vec<ByteSize>,
    /// One short run of each contender, to see that it works
    #[arg(long, conflicts_with = "reps")]
    quick: bool,
    /// Protection of Zerolane's connection between the hosts; in shared memory there is none
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    cores: CoreArgs,
}

/// What carries the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Tcp,
    Udp,
    Shm,
}

impl Side {
    const ALL: [Side; 3] = [Side::Tcp, Side::Udp, Side::Shm];

    fn title(self) -> &'static str {
        match self {
            Side::Tcp => "TCP, writev and readv",
            Side::Udp => "Zerolane, UDP",
            Side::Shm => "Zerolane, shared memory",
        }
    }
}

/// The report of `bench blocks`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct BlocksReport {
    bench: &'static str,
    /// The path of TCP and UDP, in words, and its MTU; `None` where it was not set.
    path: String,
    mtu: Option<u32>,
    blocks: usize,
    reps: u32,
    /// Of Zerolane's connection over UDP.
    security: Protection,
    /// Every block was the right one in its place. A wrong one ends the command.
    verified: bool,
    rows: Vec<Row>,
}

/// The figures of one size of blocks and one number of notifications.
#[derive(Debug, Serialize)]
struct Row {
    size: usize,
    blocks_per_notification: usize,
    rounds: u64,
    gb_per_s: BTreeMap<Side, Spread>,
    /// Zerolane's rate over TCP's, run by run: the median.
    ratio_vs_tcp: BTreeMap<Side, f64>,
}

/// What both ends do.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    blocks: usize,
    size: usize,
    /// Blocks for which there is one notification.
    notified: usize,
    /// Timed rounds; there is one before them.
    rounds: u64,
    seed: u64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = fresh()?;
    let mut scatters = Vec::new();
    for &asked in &args.size {
        for notified in NOTIFIED {
            scatters.push(scatter(args, size(asked)?, notified, seed).context(Exit::Usage)?);
        }
    }
    report::present(args.json, |interrupt| measure(args, &scatters, interrupt))
}

fn scatter(args: &Args, size: usize, notified: Option<usize>, seed: u64) -> Result<Scatter> {
    let blocks = args.blocks as usize;
    ensure!(
        (16..=16 << 20).contains(&size) && size * blocks <= MEMORY_MAX,
        "{blocks} blocks of {size} bytes: each must be 16 B to 16 MiB, all at most {MEMORY_MAX} bytes"
    );
    let usual = (RUN_BYTES / (blocks * size)) as u64;
    Ok(Scatter {
        blocks,
        size,
        notified: notified.unwrap_or(blocks).min(blocks),
        rounds: match args.quick {
            true => QUICK_ROUNDS,
            false => usual.clamp(*ROUNDS.start(), *ROUNDS.end()),
        },
        seed,
    })
}

fn measure(args: &Args, scatters: &[Scatter], interrupt: &Interrupt) -> Result<BlocksReport> {
    let link = hosts::link(None, None)?;
    let cores = [args.cores.tx_core, args.cores.responder()];
    let reps = if args.quick { 1 } else { args.rounds.reps };
    let mut rows = Vec::new();
    for scatter in scatters {
        let mut rates: BTreeMap<Side, Vec<f64>> = BTreeMap::new();
        for rep in 0..reps {
            for side in order(&Side::ALL, rep) {
                interrupt.check()?;
                let rate = run_side(scatter, side, args.security, &link, cores);
                let rate = rate.with_context(|| {
                    let Scatter { size, notified, .. } = scatter;
                    format!(
                        "{size} bytes, {notified} blocks a notification: {}",
                        side.title()
                    )
                })?;
                rates.entry(side).or_default().push(rate);
            }
        }
        rows.push(Row::of(scatter, &rates)?);
        console::note(format_args!(
            "{}, {} blocks a notification: done",
            ByteSize(scatter.size as u64),
            scatter.notified
        ));
    }
    Ok(BlocksReport {
        bench: "blocks",
        path: link.describe().to_owned(),
        mtu: link.is_shaped().then_some(MTU),
        blocks: args.blocks as usize,
        reps,
        security: args.security,
        verified: true,
        rows,
    })
}

/// GB/s of one run.
fn run_side(
    scatter: &Scatter,
    side: Side,
    security: Protection,
    link: &Link,
    cores: [usize; 2],
) -> Result<f64> {
    let here = Link::loopback();
    let with = |lane| options(security).with(|it| it.lane.choice = lane);
    let seconds = match side {
        Side::Tcp => on_two_hosts(
            link,
            cores,
            |on, tell| receive_tcp(scatter, on, tell),
            |to| send_tcp(scatter, to),
        ),
        Side::Udp => over_zerolane(scatter, link, cores, &with(LaneChoice::Udp)),
        Side::Shm => over_zerolane(scatter, &here, cores, &with(LaneChoice::SharedMemory)),
    };
    Ok(scatter.bytes() as f64 / seconds? / 1e9)
}

fn over_zerolane(
    scatter: &Scatter,
    link: &Link,
    cores: [usize; 2],
    options: &Options,
) -> Result<f64> {
    on_two_hosts(
        link,
        cores,
        |on, tell| receive_zerolane(scatter, on, options, tell),
        |to| send_zerolane(scatter, to, options),
    )
}

/// Runs both ends, each in a thread on its host and core; the receiver tells where it listens. Seconds of the sender.
fn on_two_hosts(
    link: &Link,
    cores: [usize; 2],
    receive: impl FnOnce(IpAddr, &Sender<SocketAddr>) -> Result<()> + Send,
    send: impl FnOnce(SocketAddr) -> Result<f64> + Send,
) -> Result<f64> {
    let (tell, told) = channel();
    let on = link.address(Host::Receiver);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            link.within(Host::Receiver, move || {
                cpu::pin(cores[1]).and_then(|()| receive(on, &tell))
            })
        });
        let sender = scope.spawn(move || {
            let to = told.recv().context("the receiver does not listen")?;
            link.within(Host::Sender, move || {
                cpu::pin(cores[0]).and_then(|()| send(to))
            })
        });
        let sent = sender.join().map_err(|_| anyhow!("the sender panicked"));
        let received = receiver.join();
        let received = received.map_err(|_| anyhow!("the receiver panicked"));
        match (sent?, received?) {
            (Ok(seconds), Ok(())) => Ok(seconds),
            (sent, received) => {
                let failed = [received.err(), sent.err()];
                Err(together(failed.into_iter().flatten().collect()))
            }
        }
    })
}

impl Row {
    fn of(scatter: &Scatter, rates: &BTreeMap<Side, Vec<f64>>) -> Result<Row> {
        let (gb_per_s, ratio_vs_tcp) = compared(rates, Side::Tcp).context("no runs")?;
        Ok(Row {
            size: scatter.size,
            blocks_per_notification: scatter.notified,
            rounds: scatter.rounds,
            gb_per_s,
            ratio_vs_tcp,
        })
    }
}

impl Scatter {
    /// Of the timed rounds.
    fn bytes(&self) -> u64 {
        self.rounds * (self.blocks * self.size) as u64
    }

    fn content(&self) -> Content {
        Content::new(self.seed, self.size)
    }

    /// The blocks of each notification, in the order in which they go.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Scatter {
            blocks, notified, ..
        } = *self;
        let starts = (0..blocks).step_by(notified);
        starts.map(move |first| first..(first + notified).min(blocks))
    }

    /// Where the block that goes as number `block` is: all over the memory, at the sender and the receiver.
    fn source(&self, block: usize) -> usize {
        self.place(block, self.blocks / 3)
    }

    fn target(&self, block: usize) -> usize {
        self.place(block, self.blocks * 3 / 5)
    }

    /// The place of a block if each is at least so many blocks behind the one before, around the memory.
    fn place(&self, block: usize, least: usize) -> usize {
        let has_common = |mut a: usize, mut b: usize| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a > 1
        };
        let mut step = least.max(1);
        while has_common(step, self.blocks) {
            step += 1;
        }
        block * step % self.blocks
    }

    /// The number of a block's content.
    fn number(&self, round: u64, block: usize) -> u64 {
        round * self.blocks as u64 + block as u64
    }
}

/// The times of the rounds behind the first one, seconds.
fn timed(scatter: &Scatter, mut round: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    round(0)?;
    let started = Instant::now();
    for index in 1..=scatter.rounds {
        round(index)?;
    }
    Ok(started.elapsed().as_secs_f64())
}

fn bounded(socket: &TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(STALL))?;
    Ok(socket.set_write_timeout(Some(STALL))?)
}

fn header(blocks: &Range<usize>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&(blocks.start as u64).to_le_bytes());
    header[8..].copy_from_slice(&(blocks.len() as u64).to_le_bytes());
    header
}

fn send_tcp(scatter: &Scatter, to: SocketAddr) -> Result<f64> {
    let mut socket = TcpStream::connect_timeout(&to, CONNECT)?;
    bounded(&socket)?;
    let content = scatter.content();
    let mut memory = Region::anonymous(scatter.blocks * scatter.size)?;
    let blocks = memory.chunks_mut(scatter.size);
    blocks.for_each(|block| content.fill(block));
    let headers: Vec<_> = scatter.groups().map(|it| header(&it)).collect();
    let sources: Vec<_> = (0..scatter.blocks).map(|it| scatter.source(it)).collect();
    timed(scatter, |round| {
        for (block, source) in sources.iter().enumerate() {
            let place = &mut memory[source * scatter.size..][..scatter.size];
            content.stamp(place, scatter.number(round, block));
        }
        let groups = scatter.groups().zip(&headers);
        let mut slices: Vec<_> = groups
            .flat_map(|(blocks, header)| {
                let sources = sources[blocks].iter();
                let place = |&source| &memory[source * scatter.size..][..scatter.size];
                let blocks = sources.map(move |it| IoSlice::new(place(it)));
                std::iter::once(IoSlice::new(header)).chain(blocks)
            })
            .collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(SLICES_MAX);
            let count = retried(|| socket.write_vectored(&rest[..most]))?;
            IoSlice::advance_slices(&mut rest, count);
        }
        let mut answer = [0];
        socket.read_exact(&mut answer)?;
        ensure!(answer == [ALL], "the receiver said {answer:?}");
        Ok(())
    })
}

/// How many bytes a call moved, if it is not interrupted.
fn retried(mut call: impl FnMut() -> std::io::Result<usize>) -> Result<usize> {
    loop {
        match call() {
            Ok(0) => bail!("the peer closed the stream"),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive_tcp(scatter: &Scatter, on: IpAddr, tell: &Sender<SocketAddr>) -> Result<()> {
    let listener = TcpListener::bind((on, 0))?;
    SockRef::from(&listener).set_read_timeout(Some(CONNECT))?;
    let mut memory = Region::anonymous(scatter.blocks * scatter.size)?;
    // Every page is touched before the clock runs.
    memory.fill(0);
    tell.send(listener.local_addr()?)?;
    let (mut socket, _) = listener.accept().context("no sender connected")?;
    bounded(&socket)?;
    let content = scatter.content();
    for round in 0..=scatter.rounds {
        receive_round(scatter, &mut socket, &mut memory, &content, round)?;
        if round == 0 {
            check_all(scatter, &content, round, |at, block| {
                block.copy_from_slice(&memory[at..at + block.len()]);
            })?;
        }
        socket.write_all(&[ALL])?;
    }
    check_all(scatter, &content, scatter.rounds, |at, block| {
        block.copy_from_slice(&memory[at..at + block.len()]);
    })
}

/// Takes the blocks of a round, each into its place, as their headers say.
fn receive_round(
    scatter: &Scatter,
    socket: &mut TcpStream,
    memory: &mut [u8],
    content: &Content,
    round: u64,
) -> Result<()> {
    let mut places: Vec<_> = memory.chunks_mut(scatter.size).map(Some).collect();
    let mut next = [0; HEADER];
    socket.read_exact(&mut next)?;
    let mut first = 0;
    while first < scatter.blocks {
        let word = |at: usize| -> Result<usize> {
            let word = next[at..at + 8].try_into()?;
            Ok(usize::try_from(u64::from_le_bytes(word))?)
        };
        let (start, count) = (word(0)?, word(8)?);
        ensure!(
            start == first && (1..=scatter.blocks - first).contains(&count),
            "a header of {count} blocks from block {start}"
        );
        let group = first..first + count;
        let take = |block| places[scatter.target(block)].take();
        let mut blocks: Vec<_> = group
            .clone()
            .map(take)
            .collect::<Option<_>>()
            .context(TWICE)?;
        first += count;
        let mut slices: Vec<_> = blocks.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        if first < scatter.blocks {
            slices.push(IoSliceMut::new(&mut next));
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(SLICES_MAX);
            let count = retried(|| socket.read_vectored(&mut rest[..most]))?;
            IoSliceMut::advance_slices(&mut rest, count);
        }
        for (block, place) in group.zip(&blocks) {
            content.check(place, scatter.number(round, block))?;
        }
    }
    Ok(())
}

const TWICE: &str = "two blocks have one place";

/// Checks every byte of all blocks, which `read` reads from a place.
fn check_all(
    scatter: &Scatter,
    content: &Content,
    round: u64,
    read: impl Fn(usize, &mut [u8]),
) -> Result<()> {
    let mut here = vec![0; scatter.size];
    for block in 0..scatter.blocks {
        read(scatter.target(block) * scatter.size, &mut here);
        content.check_all(&here, scatter.number(round, block))?;
    }
    Ok(())
}

/// The sender's end over Zerolane.
struct Putter<'a> {
    scatter: &'a Scatter,
    connection: Connection,
    key: RegionKey,
    content: Content,
    /// By place; `None` while it is posted.
    blocks: Vec<Option<Region>>,
    /// The blocks of each request.
    posted: HashMap<RequestId, Range<usize>>,
    answered: bool,
}

fn send_zerolane(scatter: &Scatter, to: SocketAddr, options: &Options) -> Result<f64> {
    let mut connection = Connection::connect(to, options)?;
    await_word(&mut connection, READY)?;
    let key = connection.open_region(NAME, Rights::ALL)?;
    let content = scatter.content();
    let mut rest = Region::anonymous(scatter.blocks * scatter.size)?;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let next = rest.split_off(scatter.size);
        let mut block = std::mem::replace(&mut rest, next);
        content.fill(&mut block);
        blocks.push(Some(block));
    }
    let mut putter = Putter {
        scatter,
        connection,
        key,
        content,
        blocks,
        posted: HashMap::new(),
        answered: false,
    };
    let seconds = timed(scatter, |round| putter.put(round))?;
    putter.connection.close()?;
    Ok(seconds)
}

impl Putter<'_> {
    /// Puts all blocks, and waits for the answer.
    fn put(&mut self, round: u64) -> Result<()> {
        self.answered = false;
        self.connection.post(ReceiveMessage::new())?;
        for (number, group) in self.scatter.groups().enumerate() {
            let mut pieces = self.pieces(round, &group)?;
            loop {
                let put = PutPieces::new(&self.key, pieces).immediate(number as u32);
                match self.connection.post(put) {
                    Ok(id) => {
                        self.posted.insert(id, group);
                        break;
                    }
                    Err(refused) if matches!(refused.error, Error::Post(PostError::Full)) => {
                        pieces = refused.memory;
                        self.wait()?;
                    }
                    Err(refused) => return Err(refused.error.into()),
                }
            }
        }
        while !self.answered || !self.posted.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// The blocks of a group with their places at the receiver.
    fn pieces(&mut self, round: u64, group: &Range<usize>) -> Result<Vec<(u64, Memory)>> {
        let piece = |block| {
            let mut region = self.blocks[self.scatter.source(block)]
                .take()
                .context(TWICE)?;
            let number = self.scatter.number(round, block);
            self.content.stamp(&mut region, number);
            let offset = self.scatter.target(block) * self.scatter.size;
            Ok((offset as u64, region.into()))
        };
        group.clone().map(piece).collect()
    }

    /// Takes a completion, and those that are there with it.
    fn wait(&mut self) -> Result<()> {
        let first = self.connection.wait(Some(STALL))?.got();
        let mut next = Some(first.context("the receiver stalled")?);
        while let Some(completion) = next {
            self.take(completion)?;
            next = self.connection.poll()?;
        }
        Ok(())
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        if completion.kind() == WorkKind::MessageReceived {
            let said = completion.control().unwrap_or_default();
            ensure!(said == [ALL], "the receiver said {said:?}");
            self.answered = true;
            return Ok(());
        }
        let group = self.posted.remove(&completion.id);
        let group = group.context("a completion without a request")?;
        completion.result?;
        for (block, memory) in group.zip(completion.into_pieces()) {
            self.blocks[self.scatter.source(block)] = memory.into_region();
        }
        Ok(())
    }
}

fn receive_zerolane(
    scatter: &Scatter,
    on: IpAddr,
    options: &Options,
    tell: &Sender<SocketAddr>,
) -> Result<()> {
    let mut endpoint = Endpoint::bind(SocketAddr::new(on, 0), options.clone())?;
    let mut memory = Region::memfd(scatter.blocks * scatter.size)?;
    // Every page is touched before the clock runs.
    memory.fill(0);
    let Ok(exported) = ExportedRegion::new(memory) else {
        bail!("fresh memory is not aligned");
    };
    tell.send(endpoint.local_addr())?;
    let accepted = endpoint.accept(Some(CONNECT))?;
    let mut connection = accepted.context("no sender connected")?;
    connection.export_named(NAME, &exported, Rights::ALL)?;
    connection.send(&[READY])?;
    let content = scatter.content();
    let groups: Vec<_> = scatter.groups().collect();
    for round in 0..=scatter.rounds {
        let mut missing = groups.len();
        while missing > 0 {
            let told = connection.wait(Some(STALL))?.got();
            let told = told.context("the sender stalled")?;
            let Some(immediate) = told.immediate() else {
                // The answer of the round before has come.
                told.result?;
                continue;
            };
            let group = groups.get(immediate.number as usize);
            for block in group.context("a notification of no blocks")?.clone() {
                check_stamp(scatter, &content, &exported, round, block)?;
            }
            missing -= 1;
        }
        if round == 0 {
            check_all(scatter, &content, round, |at, it| exported.read(at, it))?;
        }
        connection.post(Message::new(&[ALL]).signalled(false))?;
    }
    // The sender closes the connection; nothing drives it during the check.
    while connection
        .wait(Some(STALL))
        .is_ok_and(|it| it.got().is_some())
    {}
    check_all(scatter, &content, scatter.rounds, |at, it| {
        exported.read(at, it)
    })
}

/// Checks the two ends of a block in its place, where its number is.
fn check_stamp(
    scatter: &Scatter,
    content: &Content,
    exported: &ExportedRegion,
    round: u64,
    block: usize,
) -> Result<()> {
    let at = scatter.target(block) * scatter.size;
    let mut ends = [0; 16];
    exported.read(at, &mut ends[..8]);
    exported.read(at + scatter.size - 8, &mut ends[8..]);
    content.check(&ends, scatter.number(round, block))
}

impl Report for BlocksReport {
    fn text(&self) -> String {
        let header = [
            "bytes",
            "contender",
            "blocks a notification",
            "GB/s: median (min to max)",
            "/ TCP",
        ];
        let mut rows = table(header, 2);
        for row in &self.rows {
            for (side, rate) in &row.gb_per_s {
                rows.add_row([
                    row.size.to_string(),
                    side.title().to_owned(),
                    row.blocks_per_notification.to_string(),
                    rate.text(2),
                    cell(row.ratio_vs_tcp.get(side), |it| format!("{it:.2}")),
                ]);
            }
        }
        format!(
            "{rows}\n{} blocks a round; TCP and UDP over {}, MTU {}; {} runs; Zerolane over UDP {}; every block checked.",
            self.blocks,
            self.path,
            mtu(self.mtu),
            self.reps,
            self.security.name()
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn scatter() -> Scatter {
        Scatter {
            blocks: 50,
            size: 5000,
            notified: 16,
            rounds: 2,
            seed: 1,
        }
    }

    #[test]
    fn run_side__every_block_comes_to_its_place() {
        let link = Link::loopback();
        for side in Side::ALL {
            for notified in [50, 16, 1] {
                let scatter = Scatter {
                    notified,
                    ..scatter()
                };
                let rate = run_side(&scatter, side, Protection::Encrypted, &link, [0, 0]);
                assert!(rate.unwrap() > 0.0, "{side:?}, {notified}");
            }
        }
    }

    #[test]
    fn place__each_block_has_its_own_and_its_neighbours_are_elsewhere() {
        for blocks in [1, 2, 3, 50, 2000, 2003] {
            let scatter = Scatter {
                blocks,
                ..scatter()
            };
            for place in [Scatter::source, Scatter::target] {
                let mut places: Vec<_> = (0..blocks).map(|it| place(&scatter, it)).collect();
                if blocks > 3 {
                    assert!(places.windows(2).all(|it| it[0].abs_diff(it[1]) > 1));
                }
                places.sort_unstable();
                assert!(places.into_iter().eq(0..blocks), "{blocks}");
            }
        }
    }

    #[test]
    fn receive__a_wrong_block_is_corrupt() {
        let link = Link::loopback();
        let other = Scatter {
            seed: 2,
            ..scatter()
        };
        let options = options(Protection::Encrypted).with(|it| it.lane.choice = LaneChoice::Udp);
        let zerolane = on_two_hosts(
            &link,
            [0, 0],
            |on, tell| receive_zerolane(&scatter(), on, &options, tell),
            |to| send_zerolane(&other, to, &options),
        );
        let tcp = on_two_hosts(
            &link,
            [0, 0],
            |on, tell| receive_tcp(&scatter(), on, tell),
            |to| send_tcp(&other, to),
        );
        for wrong in [zerolane, tcp] {
            assert_eq!(Exit::of(&wrong.unwrap_err()), Exit::Corrupt);
        }
    }
}
