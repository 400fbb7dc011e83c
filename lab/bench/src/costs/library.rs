//! Measures the library's own cost of a Transfer and of a train: both ends in one thread, in turn.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use zerolane::{Completion, Connection, Endpoint, Region};
use zerolane_model::{Cost, LibraryCosts, MemoryCosts, TRAIN, TrainCosts};

use super::place::{Host, Place};
use super::samples::{Effort, nanoseconds};
use super::udp;
use crate::contender::zerolane::connection::options;
use crate::cpu;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};

/// Trains of the Transfers, short and long.
const TRAINS: [usize; 2] = [1, 9];
/// Transfers of each length in a sample.
const TRANSFERS: usize = 100;

/// What its parts take by themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// On memory in the cache.
    pub(super) memory: MemoryCosts,
    /// Both ends on one core.
    pub(super) trains: TrainCosts,
}

/// The parts, of which only trains are measured here, over a path that carries so many bytes of a datagram.
pub(super) fn parts(
    effort: Effort,
    place: &Place<'_>,
    datagram: usize,
    memory: MemoryCosts,
) -> Result<Parts> {
    let here = Place {
        link: place.link,
        cores: [place.cores[0]; 2],
    };
    let trains = udp::measure(effort, &here, TRAINS[1] * TRAIN, datagram)?;
    Ok(Parts { memory, trains })
}

/// Of Transfers that are protected so, between two hosts, on the sender's core.
pub(super) fn measure(
    effort: Effort,
    place: &Place<'_>,
    parts: &Parts,
    protection: Protection,
) -> Result<LibraryCosts> {
    let mut ends = connect(place, protection)?;
    let core = place.cores[0];
    let (ends, pinned) = (&mut ends, move || cpu::pin(core));
    let measured = thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            pinned()?;
            samples(effort, ends)
        });
        let measured = measuring.join();
        measured.unwrap_or_else(|_| anyhow::bail!("a thread of an experiment panicked"))
    })?;
    let account = ends[0].account();
    let given = account.bytes_sent_zerocopy as f64 / (account.bytes_sent as f64).max(1.0);
    // Nanoseconds of a train's parts at either end.
    let (memory, trains) = (&parts.memory, &parts.trains);
    let kernel = |copied: Cost, lent: Cost| copied.median * (1.0 - given) + lent.median * given;
    let (prepared, checked) = match protection {
        Protection::Plain => (memory.digest, memory.digest),
        _ => (memory.seal, memory.open),
    };
    let payload = |cost: Cost| cost.median * TRAIN as f64 / 1024.0;
    let known = [
        kernel(trains.copied, trains.given) + payload(prepared),
        kernel(trains.received, trains.received_given) + payload(checked),
    ];
    // Of two lengths: what each train adds, and what is the same for both.
    let train = |[short, long]: [f64; 2]| (long - short) / (TRAINS[1] - TRAINS[0]) as f64;
    let transfer = |of: [f64; 2]| (of[0] - train(of) * TRAINS[0] as f64).max(0.0);
    let cost = |end: usize, what: &dyn Fn([f64; 2]) -> f64| {
        nanoseconds(measured.iter().map(|sample| what(sample[end])))
    };
    let rest = |end: usize| move |of: [f64; 2]| (train(of) - known[end] / 1e9).max(0.0);
    Ok(LibraryCosts {
        send_transfer: cost(0, &transfer)?,
        receive_transfer: cost(1, &transfer)?,
        send_train: cost(0, &rest(0))?,
        receive_train: cost(1, &rest(1))?,
    })
}

/// The ends of a connection, each made in the namespace of its sockets.
fn connect(place: &Place<'_>, protection: Protection) -> Result<[Connection; 2]> {
    let options = options(protection);
    let at = SocketAddr::new(place.address(Host::Receiver), 0);
    let mut endpoint = place.within(Host::Receiver, || Ok(Endpoint::bind(at, options.clone())?))?;
    let at = endpoint.local_addr();
    let (sent, accepted) = thread::scope(|scope| {
        let endpoint = &mut endpoint;
        let accept = move || Ok(endpoint.accept(Some(CONNECT))?);
        let accepting = scope.spawn(move || place.within(Host::Receiver, accept));
        let connect = || Ok(Connection::connect(at, &options)?);
        let sent = place.within(Host::Sender, connect);
        let accepted = accepting.join();
        let failed = |_| Err(anyhow!("a thread of an experiment panicked"));
        (sent, accepted.unwrap_or_else(failed))
    });
    Ok([sent?, accepted?.context("no sender connected")?])
}

/// Of each sample and end: seconds of a Transfer of either length.
fn samples(effort: Effort, ends: &mut [Connection; 2]) -> Result<Vec<[[f64; 2]; 2]>> {
    let mut samples = Vec::new();
    for sample in 0..=effort.samples {
        let mut seconds = [[0.0; 2]; 2];
        for (length, trains) in TRAINS.into_iter().enumerate() {
            let mut memory = [
                Region::anonymous(trains * TRAIN)?,
                Region::anonymous(trains * TRAIN)?,
            ];
            memory[0].fill(1);
            memory[1].fill(2);
            for _ in 0..TRANSFERS {
                let took = transfer(ends, &mut memory)?;
                for end in 0..2 {
                    seconds[end][length] += took[end] / TRANSFERS as f64;
                }
            }
        }
        if sample > 0 {
            samples.push(seconds);
        }
    }
    Ok(samples)
}

/// One Transfer alone: what the turns of either end took.
fn transfer(ends: &mut [Connection; 2], memory: &mut [Region; 2]) -> Result<[f64; 2]> {
    let [sender, receiver] = ends;
    let mut seconds = [0.0; 2];
    let [from, to] = [0, 1].map(|end| std::mem::replace(&mut memory[end], Region::empty()));
    let began = Instant::now();
    receiver.post_recv(to)?;
    let posted = Instant::now();
    sender.post_send(from)?;
    seconds[1] += (posted - began).as_secs_f64();
    seconds[0] += posted.elapsed().as_secs_f64();
    let mut done: [Option<Completion>; 2] = [None, None];
    while done.iter().any(Option::is_none) {
        for (end, connection) in [&mut *sender, &mut *receiver].into_iter().enumerate() {
            let turn = Instant::now();
            let completion = connection.poll()?;
            seconds[end] += turn.elapsed().as_secs_f64();
            if let Some(completion) = completion {
                done[end] = Some(completion);
            }
        }
        ensure!(began.elapsed() < STALL, "a Transfer does not end");
    }
    for (end, done) in done.into_iter().enumerate() {
        let done = done.context("no completion")?;
        done.result?;
        memory[end] = done.into_region()?;
    }
    Ok(seconds)
}
