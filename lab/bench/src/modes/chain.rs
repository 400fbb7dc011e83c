//! Runs `zerolane bench chain`: data streamed along a chain of nodes, as by the paper's Dolly, with and without copies (P2.8).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use zerolane::{Completion, Connection, Endpoint, Options, Region};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{Rounds, size};
use crate::contender::zerolane::connection::options;
use crate::cpu::{self, Core, Meter};
use crate::harness::machine::Machine;
use crate::harness::runs::order;
use crate::job::settings::Protection;
use crate::limits::{BUFFER_MAX_BYTES, CONNECT, RUN_MAX_BYTES, STALL};
use crate::report;
use crate::report::chain::{ChainReport, Run, Setup, Way};

/// Arguments of `zerolane bench chain`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
All nodes are threads of one process on loopback and share its cores, so the figure of a node is the rate that one CPU carries: bytes over the CPU time of receiving, of the copies, and of sending on.")]
pub(crate) struct Args {
    /// Nodes behind the source
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    nodes: u8,
    /// Bytes that a node receives and sends at a time
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    size: ByteSize,
    /// Bytes that one run moves along the chain, rounded up
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    bytes: ByteSize,
    #[command(flatten)]
    rounds: Rounds,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Pieces in the memory of each node: some come, some leave.
const WINDOW: usize = 8;
/// A word of each so many bytes is checked at the last node.
const STRIDE: usize = 4096;

const WAYS: [Way; 3] = [Way::Tcp, Way::Copies, Way::ZeroCopy];

/// What goes along the chain.
#[derive(Clone, Copy, Debug)]
struct Stream {
    pieces: u64,
    size: usize,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let piece = size(args.size)?;
    ensure!(
        (STRIDE..=BUFFER_MAX_BYTES / WINDOW).contains(&piece) && piece.is_multiple_of(8),
        anyhow!(
            "--size is a multiple of 8 from {STRIDE} to {}",
            BUFFER_MAX_BYTES / WINDOW
        )
        .context(Exit::Usage)
    );
    ensure!(
        (1..=RUN_MAX_BYTES).contains(&args.bytes.as_u64()),
        anyhow!("--bytes is 1 to {RUN_MAX_BYTES}").context(Exit::Usage)
    );
    let stream = Stream {
        pieces: args.bytes.as_u64().div_ceil(piece as u64),
        size: piece,
    };
    report::present(args.json, |interrupt| measure(args, stream, interrupt))
}

fn measure(args: &Args, stream: Stream, interrupt: &Interrupt) -> Result<ChainReport> {
    let nodes = usize::from(args.nodes);
    let mut runs = Vec::new();
    for round in 0..args.rounds.reps {
        for way in order(&WAYS, round) {
            interrupt.check()?;
            let run = match way {
                Way::Tcp => over_tcp(nodes, stream),
                Way::Copies | Way::ZeroCopy => over_zerolane(way, nodes, stream),
            };
            let run = run.with_context(|| format!("a chain by {}", way.name()))?;
            console::note(format_args!("{}: {:.2} s", way.name(), run.seconds));
            runs.push(run);
        }
    }
    // Memory that no cache holds between two copies of a piece, as in a node.
    let buffer = stream.size * WINDOW;
    let (from, mut to) = (vec![1; buffer], vec![2; buffer]);
    let setup = Setup {
        machine: Machine::this(cpu::cores())?,
        reps: args.rounds.reps,
        nodes,
        size: stream.size,
        bytes: stream.pieces * stream.size as u64,
        copy_gb_per_s: cpu::memcpy_gbps(&from, &mut to) / 8.0,
    };
    Ok(ChainReport::new(setup, &runs))
}

/// Times `all`, which ends with the run.
fn timed(way: Way, stream: Stream, nodes: usize, all: impl FnOnce() -> Result<()>) -> Result<Run> {
    let meter = Meter::start(Core {
        number: 0,
        soaker: None,
    });
    all()?;
    let (seconds, cpu) = meter.stop();
    Ok(Run {
        way,
        bytes: stream.pieces * stream.size as u64,
        links: nodes,
        seconds,
        cpu_s: cpu.total_s(),
    })
}

/// The content of a piece: its number in each word.
fn stamp(piece: &mut [u8], number: u64) {
    let words = piece.chunks_exact_mut(STRIDE);
    words.for_each(|it| it[..8].copy_from_slice(&number.to_le_bytes()));
}

/// The number of a piece, which all its words have.
fn number_of(piece: &[u8]) -> Result<u64> {
    let mut numbers = piece.chunks_exact(STRIDE).map(|it| {
        let word = it.first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(word)
    });
    let first = numbers.next().context("no word")?;
    let same = numbers.all(|it| it == first);
    ensure!(
        same,
        anyhow!("a piece is of several").context(Exit::Corrupt)
    );
    Ok(first)
}

/// The pieces that came to the last node: each once.
#[derive(Debug)]
struct Came(Vec<bool>);

impl Came {
    fn none(stream: Stream) -> Came {
        Came(vec![false; stream.pieces as usize])
    }

    fn take(&mut self, piece: &[u8]) -> Result<()> {
        let number = number_of(piece)?;
        let came = usize::try_from(number)
            .ok()
            .and_then(|it| self.0.get_mut(it));
        match came {
            Some(came) if !*came => *came = true,
            _ => {
                return Err(anyhow!("piece {number} came twice, or is none").context(Exit::Corrupt));
            }
        }
        Ok(())
    }
}

/// Waits for all threads; the first error.
fn join<'scope>(threads: Vec<ScopedJoinHandle<'scope, Result<()>>>) -> Result<()> {
    let mut ended = Ok(());
    for thread in threads {
        let result = thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("a node panicked")));
        ended = ended.and(result);
    }
    ended
}

fn over_tcp(nodes: usize, stream: Stream) -> Result<Run> {
    let mut links = Vec::new();
    for _ in 0..nodes {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let out = TcpStream::connect(listener.local_addr()?)?;
        let (into, _) = listener.accept()?;
        for end in [&out, &into] {
            end.set_read_timeout(Some(STALL))?;
            end.set_write_timeout(Some(STALL))?;
        }
        links.push((out, into));
    }
    let (mut outs, ins): (Vec<_>, Vec<_>) = links.into_iter().unzip();
    let mut first = outs.remove(0);
    timed(Way::Tcp, stream, nodes, || {
        thread::scope(|scope| {
            let nexts = outs.into_iter().map(Some).chain([None]);
            let relays = ins.into_iter().zip(nexts);
            let mut threads: Vec<_> = relays
                .map(|(into, next)| scope.spawn(move || relay_tcp(into, next, stream)))
                .collect();
            threads.push(scope.spawn(move || {
                let mut piece = vec![0; stream.size];
                for number in 0..stream.pieces {
                    stamp(&mut piece, number);
                    first.write_all(&piece)?;
                }
                Ok(())
            }));
            join(threads)
        })
    })
}

fn relay_tcp(mut from: TcpStream, mut next: Option<TcpStream>, stream: Stream) -> Result<()> {
    let (mut piece, mut came) = (vec![0; stream.size], Came::none(stream));
    for _ in 0..stream.pieces {
        from.read_exact(&mut piece)
            .context("the node before stalled")?;
        match &mut next {
            Some(next) => next.write_all(&piece).context("the next node stalled")?,
            None => came.take(&piece)?,
        }
    }
    Ok(())
}

/// Plain connections whose datagrams have headers. A thread that has nothing to do sleeps: its CPU time is not the stream's.
fn settings(way: Way) -> Options {
    options(Protection::Plain).with(|it| {
        it.datagrams.trains = false;
        it.datagrams.forecast = way == Way::ZeroCopy;
        it.times.spin = Duration::ZERO;
    })
}

fn over_zerolane(way: Way, nodes: usize, stream: Stream) -> Result<Run> {
    let (mut links, mut endpoints) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let mut endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), settings(way))?;
        let out = Connection::connect(endpoint.local_addr(), &settings(way))?;
        let into = endpoint.accept(Some(CONNECT))?;
        links.push((out, into.context("no node connected")?));
        endpoints.push(endpoint);
    }
    let (mut outs, ins): (Vec<_>, Vec<_>) = links.into_iter().unzip();
    let first = outs.remove(0);
    let mut memory = Vec::new();
    for _ in 0..=nodes {
        memory.push(regions(stream)?);
    }
    let own = memory.pop().unwrap_or_default();
    timed(way, stream, nodes, || {
        thread::scope(|scope| {
            let nexts = outs.into_iter().map(Some).chain([None]);
            let (mut threads, hop) = (Vec::new(), Hop::to(first, stream));
            let (sender, hop) = hop;
            threads.push(scope.spawn(sender));
            threads.push(scope.spawn(move || source(own, &hop, stream)));
            for ((into, next), memory) in ins.into_iter().zip(nexts).zip(memory) {
                let hop = next.map(|next| {
                    let (sender, hop) = Hop::to(next, stream);
                    threads.push(scope.spawn(sender));
                    hop
                });
                let copies = way == Way::Copies;
                threads.push(spawn_node(scope, into, (memory, copies), hop, stream));
            }
            join(threads)
        })
    })
}

fn spawn_node<'scope>(
    scope: &'scope Scope<'scope, '_>,
    from: Connection,
    (memory, copies): (Vec<Region>, bool),
    hop: Option<Hop>,
    stream: Stream,
) -> ScopedJoinHandle<'scope, Result<()>> {
    scope.spawn(move || {
        let spare = if copies { regions(stream)? } else { Vec::new() };
        receive(from, memory, (spare, copies), hop.as_ref(), stream)
    })
}

fn regions(stream: Stream) -> Result<Vec<Region>> {
    let regions = (0..WINDOW).map(|_| Region::anonymous(stream.size));
    Ok(regions.collect::<std::io::Result<_>>()?)
}

/// The way to the next node: pieces go there, and their memory comes back.
struct Hop {
    forward: Sender<Region>,
    back: Receiver<Region>,
}

impl Hop {
    /// A hop, and what its thread does.
    fn to(next: Connection, stream: Stream) -> (impl FnOnce() -> Result<()> + Send, Hop) {
        let ((forward, pieces), (give, back)) = (channel(), channel());
        let send = move || send(next, &pieces, &give, stream);
        (send, Hop { forward, back })
    }

    /// Memory that came back; waits for it.
    fn wait(&self) -> Result<Region> {
        let back = self.back.recv_timeout(STALL);
        back.context("the next node stalled")
    }

    fn pass(&self, piece: Region) -> Result<()> {
        let passed = self.forward.send(piece);
        passed.map_err(|_| anyhow!("the way to the next node ended"))
    }
}

fn source(mut idle: Vec<Region>, hop: &Hop, stream: Stream) -> Result<()> {
    for number in 0..stream.pieces {
        let mut piece = idle.pop().map_or_else(|| hop.wait(), Ok)?;
        stamp(&mut piece, number);
        hop.pass(piece)?;
    }
    Ok(())
}

fn done(connection: &mut Connection) -> Result<Completion> {
    let completion = connection.wait(Some(STALL))?.got();
    completion.context("the peer stalled")
}

/// Sends all pieces that come, and gives their memory back.
fn send(
    mut next: Connection,
    pieces: &Receiver<Region>,
    back: &Sender<Region>,
    stream: Stream,
) -> Result<()> {
    let (mut posted, mut sent) = (0, 0);
    while sent < stream.pieces {
        if posted == sent {
            let piece = pieces.recv_timeout(STALL);
            next.post_send(piece.context("the node has nothing to send")?)?;
            posted += 1;
        }
        for piece in pieces.try_iter() {
            next.post_send(piece)?;
            posted += 1;
        }
        let completion = done(&mut next)?;
        completion.result?;
        sent += 1;
        // A node that has sent all needs none back.
        let _ = back.send(completion.into_region()?);
    }
    // The peer may have closed it already: it has all.
    let _ = next.close();
    Ok(())
}

/// Receives all pieces, and passes them on: the memory that was received into, or a copy.
fn receive(
    mut from: Connection,
    mut idle: Vec<Region>,
    (mut spare, copies): (Vec<Region>, bool),
    hop: Option<&Hop>,
    stream: Stream,
) -> Result<()> {
    let (mut posted, mut got, mut came) = (0, 0, Came::none(stream));
    while got < stream.pieces {
        while posted < stream.pieces
            && let Some(region) = idle.pop()
        {
            from.post_recv(region).map_err(|refused| refused.error)?;
            posted += 1;
        }
        if let (Some(hop), true) = (hop, posted == got) {
            idle.push(hop.wait()?);
            continue;
        }
        let completion = done(&mut from)?;
        completion.result?;
        let mut piece = completion.into_region()?;
        got += 1;
        if copies {
            let mut copy = match (spare.pop(), hop) {
                (Some(copy), _) => copy,
                (None, Some(hop)) => hop.wait()?,
                (None, None) => Region::anonymous(stream.size)?,
            };
            copy.copy_from_slice(&piece);
            idle.push(std::mem::replace(&mut piece, copy));
        }
        match hop {
            Some(hop) => hop.pass(piece)?,
            None => {
                came.take(&piece)?;
                if copies { &mut spare } else { &mut idle }.push(piece);
            }
        }
        if let Some(hop) = hop {
            let back = if copies { &mut spare } else { &mut idle };
            back.extend(hop.back.try_iter());
        }
    }
    let _ = from.close();
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream {
        pieces: 40,
        size: 64 << 10,
    };

    #[test]
    fn chain__every_piece_comes_to_the_last_node_by_every_way() {
        for nodes in [1, 3] {
            for way in WAYS {
                let run = match way {
                    Way::Tcp => over_tcp(nodes, STREAM),
                    _ => over_zerolane(way, nodes, STREAM),
                };
                let run = run.unwrap();
                assert_eq!(run.bytes, STREAM.pieces * STREAM.size as u64, "{way:?}");
                assert!(run.seconds > 0.0 && run.cpu_s > 0.0, "{run:?}");
            }
        }
    }

    #[test]
    fn Came__refuses_what_came_twice_and_what_is_of_several() {
        let mut came = Came::none(STREAM);
        let mut piece = vec![0; 4 * STRIDE];
        stamp(&mut piece, 7);
        came.take(&piece).unwrap();
        assert!(came.take(&piece).is_err());
        stamp(&mut piece[STRIDE..], 8);
        assert_eq!(Exit::of(&came.take(&piece).unwrap_err()), Exit::Corrupt);
        stamp(&mut piece, STREAM.pieces);
        assert!(came.take(&piece).is_err());
    }
}
