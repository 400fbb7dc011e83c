//! Measures rates over emulated links by the clock: printed, judged only by losses. `--ignored --nocapture`.

use super::switches::{lab, set_switch};
use super::{PATIENCE, accept, between, options};
use netlab::lab::Lab;
use netsim::link::LinkConfig;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::request::Get;
use zerolane::{Connection, Endpoint, ExportedRegion, Region, Rights, Security};

const LEN: usize = 320 << 20;
/// When the measurement starts, after the first bytes.
const WARM: Duration = Duration::from_millis(1000);
const SPAN: Duration = Duration::from_millis(250);
/// The round trip of the longer link.
const ROUND: Duration = Duration::from_millis(20);
/// The part of 500 Mb/s that is payload.
const PAYLOAD: f64 = 500.0 * 1432.0 / 1500.0;

/// 500 Mb/s, with a queue of one bandwidth-delay product, 64 packets at least.
fn link(rtt_ms: u32) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(rtt_ms.into()) / 2,
        rate_bits_per_s: Some(500_000_000),
        queue_packets: (rtt_ms as usize * 500_000 / 8 / 1500).max(64),
        ..LinkConfig::default()
    }
}

/// The word of the payload at each offset.
fn word(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(memory: &mut [u8]) {
    for (at, to) in memory.chunks_exact_mut(8).enumerate() {
        to.copy_from_slice(&word(at).to_ne_bytes());
    }
}

fn verify(memory: &[u8]) {
    let words = memory.chunks_exact(8).enumerate();
    let right = |(at, it): (usize, &[u8])| *it == word(at).to_ne_bytes();
    assert!(words.into_iter().all(right), "other bytes than were sent");
}

/// Payload bytes that had arrived, over time.
struct Arrivals(Vec<(Instant, u64)>);

impl Arrivals {
    /// Waits for the only completion, and meanwhile records arrivals. Calls `at_mark` when [`WARM`] has passed since
    /// the first bytes; that time is returned as well.
    fn of(b: &mut Connection, at_mark: impl FnOnce()) -> (Arrivals, Instant, Region) {
        let (mut list, mut marked) = (vec![], None);
        let mut at_mark = Some(at_mark);
        let start = Instant::now();
        let came = |b: &Connection| b.account().protocol.bytes_received;
        let before = came(b);
        let region = loop {
            assert!(start.elapsed() < PATIENCE, "{:?}", b.paths());
            if let Some(done) = b.wait(Some(Duration::from_millis(1))).expect("alive").got() {
                assert_eq!(done.result, Ok(LEN));
                break done.into_region().expect("a region");
            }
            let (now, came) = (Instant::now(), came(b) - before);
            if came > 0 {
                list.push((now, came));
            }
            if let Some(&(first, _)) = list.first()
                && now - first >= WARM
                && let Some(call) = at_mark.take()
            {
                call();
                marked = Some(now);
            }
        };
        (Arrivals(list), marked.expect("slow enough"), region)
    }

    /// Payload megabits per second in the `span` that starts at `from`.
    fn rate(&self, from: Instant, span: Duration) -> f64 {
        let at = |time: Instant| {
            let next = self.0.partition_point(|it| it.0 < time);
            *self.0.get(next).unwrap_or(self.0.last().expect("some"))
        };
        let ((t0, b0), (t1, b1)) = (at(from), at(from + span));
        (b1 - b0) as f64 * 8.0 / (t1 - t0).as_secs_f64() / 1e6
    }
}

/// The results of a Transfer over links of a lab.
struct Outcome {
    arrivals: Arrivals,
    mark: Instant,
    resent: u64,
    dropped: u64,
    by_path: Vec<u64>,
}

/// The direction of payload.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Send,
    Get,
}

/// Transfers [`LEN`] bytes over the given ones of the links of 5 and 20 ms; `dies` of them dies during the Transfer.
fn transfer(way: Way, paths: &[usize], dies: Option<usize>) -> Option<Outcome> {
    let lab = lab([link(5), link(20)])?;
    let options = options(
        Security::default(),
        paths.len() as u8,
        PathThreads::OneForAll,
    );
    let hosts = (lab.host(0), lab.host(1));
    let first = paths[0];
    let connect = |to: SocketAddr, second: PathAddresses| {
        let to = (hosts.1.interface(first).ipv4(), to.port());
        let mut a = Connection::connect(to, &options).expect("connected");
        if paths.len() > 1 {
            assert!(a.add_path(second));
            let start = Instant::now();
            while super::usable(&a) < 2 {
                assert!(start.elapsed() < PATIENCE, "{:?}", a.paths());
                a.wait(Some(Duration::from_millis(1))).expect("alive");
            }
        }
        a
    };
    let kill = || {
        if let Some(path) = dies {
            set_switch(&lab, path, false);
        }
    };
    let outcome = match way {
        Way::Send => sent(&lab, &options, connect, kill),
        Way::Get => got(&lab, &options, connect, kill),
    };
    let stats = lab.stats();
    let lab_lost = (stats.missed, stats.overflowed, stats.unsent);
    let dropped = stats.total().queue_dropped;
    if lab_lost != (0, 0, 0) {
        println!("the lab itself lost {lab_lost:?}");
    }
    Some(Outcome { dropped, ..outcome })
}

fn outcome(
    receiver: &Connection,
    (arrivals, mark, region): (Arrivals, Instant, Region),
) -> Outcome {
    verify(&region);
    let paths = receiver.paths().into_iter();
    let by_path = paths.map(|it| it.1.bytes_received);
    Outcome {
        arrivals,
        mark,
        resent: 0,
        dropped: 0,
        by_path: by_path.collect(),
    }
}

fn sent(
    lab: &Lab,
    options: &zerolane::Options,
    connect: impl FnOnce(SocketAddr, PathAddresses) -> Connection + Send,
    kill: impl FnOnce() + Send,
) -> Outcome {
    let serve = |endpoint: &mut Endpoint| {
        let mut b = accept(endpoint);
        b.post_recv(Region::anonymous(LEN).expect("memory"))
            .expect("posted");
        let came = Arrivals::of(&mut b, kill);
        let outcome = outcome(&b, came);
        assert!(b.recv_into(&mut [0]).is_err(), "it closes");
        outcome
    };
    let (resent, outcome) = between((lab.host(0), lab.host(1)), options, serve, |to, second| {
        let mut a = connect(to, second);
        let mut source = Region::anonymous(LEN).expect("memory");
        fill(&mut source);
        a.post_send(source).expect("posted");
        let done = a
            .wait(Some(PATIENCE))
            .expect("alive")
            .got()
            .expect("in time");
        done.result.expect("sent");
        let resent = a.account().protocol.bytes_resent;
        a.close().expect("closed");
        resent
    });
    Outcome { resent, ..outcome }
}

fn got(
    lab: &Lab,
    options: &zerolane::Options,
    connect: impl FnOnce(SocketAddr, PathAddresses) -> Connection + Send,
    kill: impl FnOnce() + Send,
) -> Outcome {
    let serve = |endpoint: &mut Endpoint| {
        let mut b = accept(endpoint);
        let mut source = Region::anonymous(LEN).expect("memory");
        fill(&mut source);
        let source = ExportedRegion::new(source).expect("aligned");
        b.export_named("m", &source, Rights::ALL).expect("exported");
        assert!(b.recv_into(&mut [0]).is_err(), "it closes");
        b.account().protocol.bytes_resent
    };
    let (outcome, resent) = between((lab.host(0), lab.host(1)), options, serve, |to, second| {
        let mut a = connect(to, second);
        let key = a.open_region("m", Rights::ALL).expect("opened");
        let into = Region::anonymous(LEN).expect("memory");
        a.post(Get::new(&key, 0, into).context(1)).expect("posted");
        let came = Arrivals::of(&mut a, kill);
        let outcome = outcome(&a, came);
        a.close().expect("closed");
        outcome
    });
    Outcome { resent, ..outcome }
}

/// Both links together, compared with the sum of each alone; and the rate of the remaining link, compared with that
/// link alone.
#[test]
#[ignore = "a measurement"]
fn rates__of_two_links_and_when_one_dies() {
    for way in [Way::Send, Way::Get] {
        let mut alone = [0.0; 2];
        for path in [0, 1] {
            let Some(it) = transfer(way, &[path], None) else {
                return;
            };
            alone[path] = it.arrivals.rate(it.mark, SPAN * 2);
        }
        let Some(it) = transfer(way, &[0, 1], None) else {
            return;
        };
        let both = it.arrivals.rate(it.mark, SPAN * 4);
        println!(
            "{way:?}: 5 ms alone {:.0} Mb/s, 20 ms alone {:.0}; both {both:.0}, {:.3} of what the links carry; {:?} bytes by \
             each, {} again, {} packets dropped",
            alone[0],
            alone[1],
            both / (2.0 * PAYLOAD),
            it.by_path,
            it.resent,
            it.dropped
        );
        for dies in [0, 1] {
            let Some(it) = transfer(way, &[0, 1], Some(dies)) else {
                return;
            };
            let rounds: Vec<String> = (0..4)
                .map(|at| format!("{:.0}", it.arrivals.rate(it.mark + ROUND * at, ROUND)))
                .collect();
            let after = it.arrivals.rate(it.mark + 3 * ROUND, SPAN);
            println!(
                "{way:?}: the link of {} ms dead: {} Mb/s in the round trips that follow; after three of them {after:.0}, \
                 {:.3} of what the other carries alone; {} bytes again",
                [5, 20][dies],
                rounds.join(", "),
                after / alone[1 - dies],
                it.resent
            );
        }
    }
}
