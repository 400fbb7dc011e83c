//! Measures rates over two veth pairs by the clock: one path, two by one thread, two by a thread each.
//!
//! Printed, and judged only by losses. `--ignored --nocapture`.

use super::{PATIENCE, accept, between, options, two_pairs, usable};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::request::{Receive, Transfer};
use zerolane::{Connection, Endpoint, Region, Security};

const LEN: usize = 32 << 20;
const LAPS: usize = 48;
/// Transfers in flight.
const AHEAD: usize = 2;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    OnePath,
    OneThread,
    ThreadEach,
}

const HOW: [How; 3] = [How::OnePath, How::OneThread, How::ThreadEach];

/// The results of one end: elapsed time, and CPU seconds of the thread that drove it.
struct End {
    took: Duration,
    cpu: f64,
    bytes_by_path: Vec<u64>,
}

fn cpu(who: UsageWho) -> f64 {
    let usage = getrusage(who).expect("asked");
    let of = |it: fn(&Usage) -> nix::sys::time::TimeVal| it(&usage).num_microseconds() as f64 / 1e6;
    of(Usage::user_time) + of(Usage::system_time)
}

fn byte(at: usize) -> u8 {
    (at >> 9) as u8 ^ (at as u8).wrapping_mul(29)
}

fn memory() -> Vec<Region> {
    let region = || {
        let mut region = Region::anonymous(LEN).expect("memory");
        // Touches the pages.
        region.fill(1);
        region
    };
    (0..AHEAD).map(|_| region()).collect()
}

/// Lets `post` post each region again when it comes back, [`LAPS`] times in all.
fn lap(
    connection: &mut Connection,
    regions: Vec<Region>,
    mut post: impl FnMut(&mut Connection, Region),
) -> (End, Vec<Region>) {
    let (start, before) = (Instant::now(), cpu(UsageWho::RUSAGE_THREAD));
    let mut posted = 0;
    for region in regions {
        post(connection, region);
        posted += 1;
    }
    let mut back = Vec::new();
    while back.len() < AHEAD {
        let done = connection
            .wait(Some(PATIENCE))
            .expect("alive")
            .got()
            .expect("in time");
        assert_eq!(done.result, Ok(LEN));
        let region = done.into_region().expect("a region");
        if posted < LAPS {
            post(connection, region);
            posted += 1;
        } else {
            back.push(region);
        }
    }
    let paths = connection.paths().into_iter();
    let end = End {
        took: start.elapsed(),
        cpu: cpu(UsageWho::RUSAGE_THREAD) - before,
        bytes_by_path: paths.map(|it| it.1.bytes_received).collect(),
    };
    (end, back)
}

/// Gb/s, and a remark.
fn run(how: How, security: Security) -> Option<(f64, String)> {
    let hosts = two_pairs()?;
    let threads = match how {
        How::ThreadEach => PathThreads::OnePerPath,
        How::OnePath | How::OneThread => PathThreads::OneForAll,
    };
    let options = options(security, 2, threads);
    let before = cpu(UsageWho::RUSAGE_SELF);
    let serve = |endpoint: &mut Endpoint| {
        let mut b = accept(endpoint);
        let (end, regions) = lap(&mut b, memory(), |b, region| {
            b.post(Receive::new(region).context(1)).expect("posted");
        });
        for region in regions {
            assert!((0..LEN).all(|at| region[at] == byte(at)), "other bytes");
        }
        assert!(b.recv_into(&mut [0]).is_err(), "it closes");
        end
    };
    let call = |to: SocketAddr, second: PathAddresses| {
        let mut a = Connection::connect(to, &options).expect("connected");
        if how != How::OnePath {
            assert!(a.add_path(second));
            let start = Instant::now();
            while usable(&a) < 2 {
                assert!(start.elapsed() < PATIENCE, "{:?}", a.paths());
                a.wait(Some(Duration::from_millis(1))).expect("alive");
            }
        }
        let mut source = memory();
        for region in &mut source {
            for at in 0..LEN {
                region[at] = byte(at);
            }
        }
        let (end, _) = lap(&mut a, source, |a, region| {
            a.post(Transfer::new(region).context(1)).expect("posted");
        });
        let account = a.account();
        a.close().expect("closed");
        (end, account)
    };
    let ((sender, account), receiver) = between((hosts.a(), hosts.b()), &options, serve, call);
    let took = sender.took.as_secs_f64();
    let rate = (LEN * LAPS) as f64 * 8.0 / took / 1e9;
    let others = cpu(UsageWho::RUSAGE_SELF) - before - sender.cpu - receiver.cpu;
    let words = format!(
        "{how:?}: {rate:.2} Gb/s, CPU of the sender's thread {:.2} s, the receiver's {:.2} s of {took:.2} s, all else {others:.2} \
         s; {:?} bytes by each path, {} again",
        sender.cpu, receiver.cpu, receiver.bytes_by_path, account.protocol.bytes_resent
    );
    Some((rate, words))
}

#[test]
#[ignore = "a measurement"]
fn rates__of_two_veth_pairs_by_one_thread_and_by_one_each() {
    for (name, security) in [
        ("sealed", Security::default()),
        ("plain", Security::plain()),
    ] {
        let mut rates = HOW.map(|_| vec![]);
        for _ in 0..ROUNDS {
            for (how, rates) in HOW.into_iter().zip(&mut rates) {
                let Some((rate, words)) = run(how, security.clone()) else {
                    return;
                };
                println!("{name}, {words}");
                rates.push(rate);
            }
        }
        for (how, rates) in HOW.into_iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            println!(
                "{name}, {how:?}: median {:.2} Gb/s, {:.2} to {:.2}",
                rates[ROUNDS / 2],
                rates[0],
                rates[ROUNDS - 1]
            );
        }
    }
}
