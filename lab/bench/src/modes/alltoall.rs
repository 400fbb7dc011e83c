//! Runs `bench alltoall`: in each round every rank sends a block to every other rank and receives one from each.
//!
//! Ranks are threads on this machine. It compares TCP, a stream for each pair and epoll, with Zerolane's worker in shared
//! memory and over UDP. Both have two blocks of memory for each direction of a pair, so that a round needs no word of the
//! one before.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytesize::ByteSize;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::Serialize;
use zerolane::options::LaneChoice;
use zerolane::request::{Message, ReceiveMessage, WorkKind};
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{Completion, Options, Region, RequestId};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{Rounds, size};
use crate::contender::zerolane::connection::options;
use crate::content::message::Content;
use crate::cpu;
use crate::harness::failure::together as all_of;
use crate::harness::runs::order;
use crate::job::fresh;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};
use crate::report::{self, Report, Spread, cell, compared, table};

/// Blocks of memory for each direction of a pair.
const BLOCKS: u64 = 2;
/// Longest sleep of a rank: it looks then whether another has failed.
const BEAT: Duration = Duration::from_millis(10);
/// How long each of two workers is driven by turns, while a connection between them is made.
const TURN: Duration = Duration::from_millis(1);
/// Largest block, bytes: all ranks together take at most 16 GiB.
const SIZE_MAX: usize = 16 << 20;
/// Bytes of a run, and its rounds.
const RUN_BYTES: usize = 2 << 30;
const ROUNDS: std::ops::RangeInclusive<u64> = 20..=5000;
const QUICK_ROUNDS: u64 = 5;

/// Arguments of `zerolane bench alltoall`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ranks, each a thread
    #[arg(long, short = 'n', default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=16))]
    ranks: u8,
    /// Bytes of a block, 16 B to 16 MiB
    #[arg(
        long,
        short,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "16KiB,64KiB,1MiB"
    )]
    size: Vec<ByteSize>,
    /// One short run of each contender, to see that it works
    #[arg(long, conflicts_with = "reps")]
    quick: bool,
    /// Protection of Zerolane's connections over UDP; over shared memory there is none
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounds: Rounds,
}

/// What carries the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Tcp,
    Shm,
    Udp,
}

impl Side {
    const ALL: [Side; 3] = [Side::Tcp, Side::Shm, Side::Udp];

    fn title(self) -> &'static str {
        match self {
            Side::Tcp => "TCP, epoll",
            Side::Shm => "Zerolane, shared memory",
            Side::Udp => "Zerolane, UDP",
        }
    }
}

/// The report of `bench alltoall`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct AllToAllReport {
    bench: &'static str,
    path: &'static str,
    ranks: u8,
    reps: u32,
    /// Of Zerolane's connections over UDP.
    security: Protection,
    /// Every block was the right one. A wrong one ends the command.
    verified: bool,
    sizes: Vec<SizeReport>,
}

/// The figures of one size of blocks.
#[derive(Debug, Serialize)]
struct SizeReport {
    size: usize,
    rounds: u64,
    /// Milliseconds a round.
    ms: BTreeMap<Side, Spread>,
    /// Zerolane's time over TCP's, run by run: the median.
    ratio_vs_tcp: BTreeMap<Side, f64>,
}

/// What every rank does.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    ranks: usize,
    size: usize,
    /// Rounds before the timed ones.
    warm_up: u64,
    rounds: u64,
    seed: u64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = fresh()?;
    let exchanges = args.size.iter().map(|&it| exchange(args, size(it)?, seed));
    let exchanges = exchanges.collect::<Result<Vec<_>>>().context(Exit::Usage)?;
    report::present(args.json, |interrupt| measure(args, &exchanges, interrupt))
}

fn exchange(args: &Args, size: usize, seed: u64) -> Result<Exchange> {
    ensure!(
        (16..=SIZE_MAX).contains(&size),
        "a block of {size} bytes: it must be 16 to {SIZE_MAX} bytes"
    );
    let ranks = usize::from(args.ranks);
    let a_round = ranks * (ranks - 1) * size;
    let usual = (RUN_BYTES / a_round) as u64;
    let rounds = match args.quick {
        true => QUICK_ROUNDS,
        false => usual.clamp(*ROUNDS.start(), *ROUNDS.end()),
    };
    Ok(Exchange {
        ranks,
        size,
        warm_up: rounds / 10 + 1,
        rounds,
        seed,
    })
}

fn measure(args: &Args, exchanges: &[Exchange], interrupt: &Interrupt) -> Result<AllToAllReport> {
    let reps = if args.quick { 1 } else { args.rounds.reps };
    let mut sizes = Vec::new();
    for exchange in exchanges {
        let mut ms: BTreeMap<Side, Vec<f64>> = BTreeMap::new();
        for rep in 0..reps {
            for side in order(&Side::ALL, rep) {
                interrupt.check()?;
                let of = || format!("blocks of {} bytes: {}", exchange.size, side.title());
                let took = match side {
                    Side::Tcp => over_tcp(exchange),
                    Side::Shm => over_zerolane(exchange, LaneChoice::SharedMemory, args.security),
                    Side::Udp => over_zerolane(exchange, LaneChoice::Udp, args.security),
                };
                ms.entry(side).or_default().push(took.with_context(of)?);
            }
        }
        sizes.push(SizeReport::of(exchange, &ms)?);
        console::note(format_args!("{}: done", ByteSize(exchange.size as u64)));
    }
    Ok(AllToAllReport {
        bench: "alltoall",
        path: "loopback",
        ranks: args.ranks,
        reps,
        security: args.security,
        verified: true,
        sizes,
    })
}

impl SizeReport {
    fn of(exchange: &Exchange, ms: &BTreeMap<Side, Vec<f64>>) -> Result<SizeReport> {
        let (ms, ratio_vs_tcp) = compared(ms, Side::Tcp).context("no runs")?;
        Ok(SizeReport {
            size: exchange.size,
            rounds: exchange.rounds,
            ms,
            ratio_vs_tcp,
        })
    }
}

impl Exchange {
    fn all_rounds(&self) -> u64 {
        self.warm_up + self.rounds
    }

    /// What one rank sends another.
    fn content(&self, from: usize, to: usize) -> Content {
        let pair = (from * self.ranks + to) as u64;
        Content::new(self.seed.wrapping_add(pair), self.size)
    }
}

/// The ranks that are done, and whether one has failed.
#[derive(Debug, Default)]
struct Together {
    done: AtomicUsize,
    failed: AtomicBool,
}

impl Together {
    /// Fails if another rank has, or if nothing has happened since then for too long.
    fn check(&self, since: Instant) -> Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "another rank failed");
        ensure!(since.elapsed() < STALL, "the other ranks sent nothing");
        Ok(())
    }
}

/// Has each rank act in a thread of its own, the ranks by turns on the cores; milliseconds a round of the slowest.
fn at_once<R: Send>(
    exchange: &Exchange,
    ranks: Vec<R>,
    act: impl Fn(R, &Together) -> Result<Duration> + Sync,
) -> Result<f64> {
    let cores = cpu::circle(0)?;
    let (act, together) = (&act, &Together::default());
    let took: Vec<Result<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .zip(cores.iter().cycle())
            .map(|(rank, &core)| {
                scope.spawn(move || {
                    let took = cpu::pin(core).and_then(|()| act(rank, together));
                    if took.is_err() {
                        together.failed.store(true, Ordering::Relaxed);
                    }
                    took
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|took| took.unwrap_or_else(|_| Err(anyhow!("a rank panicked"))))
            .collect()
    });
    let (took, failed): (Vec<_>, Vec<_>) = took.into_iter().partition(Result::is_ok);
    if !failed.is_empty() {
        return Err(all_of(failed.into_iter().filter_map(Result::err).collect()));
    }
    let slowest = took.into_iter().flatten().max().context("no ranks")?;
    Ok(slowest.as_secs_f64() * 1e3 / exchange.rounds as f64)
}

/// A pair's blocks at one rank, over TCP.
struct Stream {
    socket: TcpStream,
    out: Content,
    sent: [Vec<u8>; BLOCKS as usize],
    awaited: Content,
    got: [Vec<u8>; BLOCKS as usize],
    /// What the last block comes to, of which every byte is checked.
    last: Vec<u8>,
    /// Bytes of this round that have left and come.
    left: usize,
    come: usize,
}

fn over_tcp(exchange: &Exchange) -> Result<f64> {
    let listen = |_| Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    let listeners: Vec<_> = (0..exchange.ranks).map(listen).collect::<Result<_>>()?;
    let mut ranks: Vec<Vec<Stream>> = listeners.iter().map(|_| Vec::new()).collect();
    for (rank, listener) in listeners.iter().enumerate() {
        let to = listener.local_addr()?;
        for other in rank + 1..exchange.ranks {
            let there = TcpStream::connect_timeout(&to, CONNECT)?;
            let (here, _) = listener.accept()?;
            ranks[rank].push(Stream::new(exchange, here, [rank, other])?);
            ranks[other].push(Stream::new(exchange, there, [other, rank])?);
        }
    }
    at_once(exchange, ranks, |mut streams, together| {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for stream in &streams {
            let edges = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            epoll.add(stream.socket.as_fd(), EpollEvent::new(edges, 0))?;
        }
        timed(exchange, |round| {
            streams_exchange(exchange, &epoll, &mut streams, together, round)
        })
    })
}

/// How long the rounds behind the warm-up take. The first round waits for all ranks.
fn timed(exchange: &Exchange, mut round: impl FnMut(u64) -> Result<()>) -> Result<Duration> {
    let mut started = Instant::now();
    for index in 0..exchange.all_rounds() {
        if index == exchange.warm_up {
            started = Instant::now();
        }
        round(index)?;
    }
    Ok(started.elapsed())
}

fn streams_exchange(
    exchange: &Exchange,
    epoll: &Epoll,
    streams: &mut [Stream],
    together: &Together,
    round: u64,
) -> Result<()> {
    let is_last = round + 1 == exchange.all_rounds();
    for stream in streams.iter_mut() {
        let block = &mut stream.sent[(round % BLOCKS) as usize];
        stream.out.stamp(block, round);
        (stream.left, stream.come) = (0, 0);
    }
    let mut events = [EpollEvent::empty(); 16];
    let mut since = Instant::now();
    loop {
        let (mut moved, mut missing) = (false, false);
        for stream in streams.iter_mut() {
            moved |= stream.go_on(round, is_last)?;
            missing |= stream.left < exchange.size || stream.come < exchange.size;
        }
        if !missing {
            break;
        }
        if moved {
            since = Instant::now();
            continue;
        }
        together.check(since)?;
        match epoll.wait(&mut events, EpollTimeout::try_from(BEAT)?) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for stream in streams {
        match is_last {
            true => stream.awaited.check_all(&stream.last, round)?,
            false => {
                let block = &stream.got[(round % BLOCKS) as usize];
                stream.awaited.check(block, round)?;
            }
        }
    }
    Ok(())
}

impl Stream {
    /// Of the first of two ranks to the second.
    fn new(exchange: &Exchange, socket: TcpStream, [from, to]: [usize; 2]) -> Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let out = exchange.content(from, to);
        let block = || vec![0; exchange.size];
        let filled = || {
            let mut block = block();
            out.fill(&mut block);
            block
        };
        Ok(Stream {
            socket,
            sent: [filled(), filled()],
            out,
            awaited: exchange.content(to, from),
            got: [block(), block()],
            last: block(),
            left: 0,
            come: 0,
        })
    }

    /// Sends and receives what there is room and data for; whether there was any.
    fn go_on(&mut self, round: u64, is_last: bool) -> Result<bool> {
        let block = (round % BLOCKS) as usize;
        let rest = &self.sent[block][self.left..];
        let got = match is_last {
            true => &mut self.last,
            false => &mut self.got[block],
        };
        let mut moved = false;
        if !rest.is_empty()
            && let Some(count) = now(self.socket.write(rest))?
        {
            self.left += count;
            moved = true;
        }
        let space = &mut got[self.come..];
        if !space.is_empty()
            && let Some(count) = now(self.socket.read(space))?
        {
            self.come += count;
            moved = true;
        }
        Ok(moved)
    }
}

/// How many bytes a call moved, if any.
fn now(moved: std::io::Result<usize>) -> Result<Option<usize>> {
    match moved {
        Ok(0) => bail!("another rank closed its stream"),
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A pair's blocks at one rank, over Zerolane.
struct Peer {
    connection: ConnectionId,
    out: Content,
    /// Those that are not being sent.
    spare: Vec<Region>,
    awaited: Content,
    /// What the last block comes to, of which every byte is checked.
    last: Option<Region>,
    /// The round of the block that each receive is for.
    posted: HashMap<RequestId, u64>,
    /// Receives posted, and blocks that came.
    expected: u64,
    come: u64,
}

/// A worker and its connections to the other ranks.
struct Rank {
    worker: Worker,
    peers: Vec<Peer>,
}

fn over_zerolane(exchange: &Exchange, lane: LaneChoice, security: Protection) -> Result<f64> {
    let options = options(security).with(|it| it.lane.choice = lane);
    let mut ranks = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..exchange.ranks {
        let mut worker = Worker::new()?;
        let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = worker.listen(on, options.clone())?;
        let endpoint = worker.endpoint(endpoint).context("it listens")?;
        addresses.push(endpoint.local_addr());
        let peers = Vec::new();
        ranks.push(Rank { worker, peers });
    }
    for (rank, &to) in addresses.iter().enumerate() {
        for other in rank + 1..exchange.ranks {
            let [here, there] = ranks
                .get_disjoint_mut([rank, other])
                .map_err(|_| anyhow!("two ranks are one"))?;
            let [accepted, connected] = connect(here, there, to, &options)?;
            here.peers
                .push(Peer::new(exchange, accepted, [rank, other])?);
            there
                .peers
                .push(Peer::new(exchange, connected, [other, rank])?);
        }
    }
    at_once(exchange, ranks, |mut rank, together| {
        let took = timed(exchange, |round| rank.exchange(exchange, round, together))?;
        rank.end(exchange, together)?;
        Ok(took)
    })
}

/// A connection from `there` to the endpoint of `here`: its names at the acceptor and at the other.
fn connect(
    here: &mut Rank,
    there: &mut Rank,
    to: SocketAddr,
    options: &Options,
) -> Result<[ConnectionId; 2]> {
    there.worker.connect(to, options)?;
    let (mut accepted, mut connected) = (None, None);
    let deadline = Instant::now() + CONNECT;
    loop {
        if let (Some(accepted), Some(connected)) = (accepted, connected) {
            return Ok([accepted, connected]);
        }
        ensure!(Instant::now() < deadline, "two ranks cannot connect");
        for worker in [&mut here.worker, &mut there.worker] {
            worker.wait(Some(TURN))?;
            while let Some(event) = worker.next_event() {
                match event {
                    Event::Accepted { connection, .. } => accepted = Some(connection),
                    Event::Connected { connection } => connected = Some(connection),
                    Event::Closed { reason, .. } => return Err(reason.into()),
                    Event::EndpointFailed { error, .. } => return Err(error.into()),
                    _ => {}
                }
            }
        }
    }
}

impl Peer {
    /// Of the first of two ranks to the second.
    fn new(exchange: &Exchange, connection: ConnectionId, [from, to]: [usize; 2]) -> Result<Peer> {
        let out = exchange.content(from, to);
        let filled = |_| {
            let mut block = Region::anonymous(exchange.size)?;
            out.fill(&mut block);
            Ok(block)
        };
        Ok(Peer {
            connection,
            spare: (0..BLOCKS).map(filled).collect::<Result<_>>()?,
            out,
            awaited: exchange.content(to, from),
            last: Some(touched(exchange.size)?),
            posted: HashMap::new(),
            expected: 0,
            come: 0,
        })
    }

    /// Posts the receive of the next block into `space`, or into memory of its own if it is the last one.
    fn expect(
        &mut self,
        worker: &mut Worker,
        exchange: &Exchange,
        space: Option<Region>,
    ) -> Result<()> {
        if self.expected == exchange.all_rounds() {
            return Ok(());
        }
        let is_last = self.expected + 1 == exchange.all_rounds();
        let space = if is_last { self.last.take() } else { space };
        let connection = worker.connection(self.connection).context(CLOSED)?;
        let id = connection.post(ReceiveMessage::new().payload(space))?;
        self.posted.insert(id, self.expected);
        self.expected += 1;
        Ok(())
    }

    /// Checks a block that came, and posts a receive for another one.
    fn take(
        &mut self,
        worker: &mut Worker,
        exchange: &Exchange,
        completion: Completion,
    ) -> Result<()> {
        let round = self.posted.remove(&completion.id);
        let round = round.context("a receive that was not posted")?;
        completion.result?;
        let block = completion.into_region()?;
        match round + 1 == exchange.all_rounds() {
            true => self.awaited.check_all(&block, round)?,
            false => self.awaited.check(&block, round)?,
        }
        self.come += 1;
        self.expect(worker, exchange, Some(block))
    }
}

/// So many bytes of 0, every page of them touched before the clock runs.
fn touched(len: usize) -> Result<Region> {
    let mut region = Region::anonymous(len)?;
    region.fill(0);
    Ok(region)
}

const CLOSED: &str = "a connection between two ranks is closed";

impl Rank {
    fn exchange(&mut self, exchange: &Exchange, round: u64, together: &Together) -> Result<()> {
        if round == 0 {
            for peer in &mut self.peers {
                for _ in 0..BLOCKS {
                    let space = touched(exchange.size)?;
                    peer.expect(&mut self.worker, exchange, Some(space))?;
                }
            }
        }
        for at in 0..self.peers.len() {
            self.until(exchange, together, |peers| !peers[at].spare.is_empty())?;
            let peer = &mut self.peers[at];
            let mut block = peer.spare.pop().context("no block is left")?;
            peer.out.stamp(&mut block, round);
            let connection = self.worker.connection(peer.connection).context(CLOSED)?;
            connection.post(Message::new(&[]).payload(block))?;
        }
        self.until(exchange, together, |peers| {
            peers.iter().all(|it| it.come > round)
        })
    }

    /// Drives the worker until `is_so`.
    fn until(
        &mut self,
        exchange: &Exchange,
        together: &Together,
        is_so: impl Fn(&[Peer]) -> bool,
    ) -> Result<()> {
        let mut since = Instant::now();
        while !is_so(&self.peers) {
            self.worker.wait(Some(BEAT))?;
            let mut moved = false;
            while let Some(event) = self.worker.next_event() {
                moved = true;
                self.handle(exchange, event)?;
            }
            match moved {
                true => since = Instant::now(),
                false => together.check(since)?,
            }
        }
        Ok(())
    }

    fn handle(&mut self, exchange: &Exchange, event: Event) -> Result<()> {
        match event {
            Event::Completed {
                connection,
                completion,
            } => {
                let mut peers = self.peers.iter_mut();
                let peer = peers.find(|it| it.connection == connection);
                let peer = peer.context("an unknown connection")?;
                if completion.kind() == WorkKind::MessageReceived {
                    return peer.take(&mut self.worker, exchange, completion);
                }
                completion.result?;
                peer.spare.push(completion.into_region()?);
                Ok(())
            }
            Event::Closed { reason, .. } => Err(reason.into()),
            Event::EndpointFailed { error, .. } => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits until all that this rank sent is confirmed, and confirms what others sent until they are as far.
    fn end(&mut self, exchange: &Exchange, together: &Together) -> Result<()> {
        self.until(exchange, together, |peers| {
            peers.iter().all(|it| it.spare.len() as u64 == BLOCKS)
        })?;
        together.done.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while together.done.load(Ordering::Relaxed) < exchange.ranks {
            together.check(since)?;
            self.worker.wait(Some(TURN))?;
            // Others that are done may have closed their connections.
            while self.worker.next_event().is_some() {}
        }
        Ok(())
    }
}

impl Report for AllToAllReport {
    fn text(&self) -> String {
        let header = [
            "bytes",
            "contender",
            "ms a round: median (min to max)",
            "/ TCP",
        ];
        let mut rows = table(header, 2);
        for size in &self.sizes {
            for (side, ms) in &size.ms {
                rows.add_row([
                    size.size.to_string(),
                    side.title().to_owned(),
                    ms.text(3),
                    cell(size.ratio_vs_tcp.get(side), |it| format!("{it:.2}")),
                ]);
            }
        }
        format!(
            "{rows}\n{} ranks, a thread each, over {}; {} runs; Zerolane over UDP {}; every block checked.",
            self.ranks,
            self.path,
            self.reps,
            self.security.name()
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        Exchange {
            ranks: 3,
            size: 5000,
            warm_up: 1,
            rounds: 4,
            seed: 1,
        }
    }

    #[test]
    fn over__every_contender_brings_every_block_to_its_rank() {
        assert!(over_tcp(&exchange()).unwrap() > 0.0);
        for lane in [LaneChoice::SharedMemory, LaneChoice::Udp] {
            for security in [Protection::Encrypted, Protection::Plain] {
                assert!(over_zerolane(&exchange(), lane, security).unwrap() > 0.0);
            }
        }
    }

    /// Two ranks that disagree about the content, as if a block had come to the wrong one.
    #[test]
    fn streams_exchange__a_wrong_block_is_corrupt() {
        let exchange = Exchange {
            ranks: 2,
            ..exchange()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let mut other = Stream::new(&exchange, there, [1, 0]).unwrap();
        other.out = exchange.content(0, 1);
        other.sent.iter_mut().for_each(|it| other.out.fill(it));
        let ranks = vec![
            vec![Stream::new(&exchange, here, [0, 1]).unwrap()],
            vec![other],
        ];
        let wrong = at_once(&exchange, ranks, |mut streams, together| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            timed(&exchange, |round| {
                streams_exchange(&exchange, &epoll, &mut streams, together, round)
            })
        });
        assert_eq!(Exit::of(&wrong.unwrap_err()), Exit::Corrupt);
    }
}
