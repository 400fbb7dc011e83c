//! Measures rates by the clock, which are printed and not judged: `--ignored --nocapture`, in a release build.

use crate::content;
use crate::drive::{both, next, transfer};
use crate::path::{Pair, Path, plain};
use std::sync::atomic::Ordering;
use std::time::Instant;
use zerolane::memory::Memory;
use zerolane::request::PutInline;
use zerolane::{Connection, ExportedRegion, FetchOp, Options, Region, Rights};

/// Bytes of a Transfer, and the number of Transfers in a round.
const LEN: usize = 16 << 20;
const TRANSFERS: usize = 16;
const ROUNDS: usize = 5;
/// Puts each way in a round.
const PUTS: u64 = 30_000;
/// Makes memory to be exported.
type Make = fn(usize) -> std::io::Result<Region>;

/// UDP without offloads, as with a program in the driver that disables them, and raw Ethernet, which has none: by
/// packet sockets, and by AF_XDP.
#[test]
#[ignore = "a measurement"]
fn rates__of_raw_ethernet_beside_udp_without_offloads() {
    for mtu in [1500, 9000] {
        for (name, base) in [("sealed", Options::default()), ("plain", plain())] {
            let bare = base.with(|it| {
                it.datagrams.gso = false;
                it.datagrams.gro = false;
            });
            let mut rates = [vec![], vec![], vec![]];
            for _ in 0..ROUNDS {
                for (path, rates) in [Path::Veth(mtu), Path::Ethernet(mtu), Path::Bypass(mtu)]
                    .into_iter()
                    .zip(&mut rates)
                {
                    let Some(mut pair) = path.connect(&bare) else {
                        return;
                    };
                    transfer(&mut pair, 1, &[LEN]);
                    rates.push(rate(&mut pair, LEN, TRANSFERS));
                }
            }
            let [udp, ethernet, bypass] = rates.map(|mut it| {
                it.sort_by(f64::total_cmp);
                it[ROUNDS / 2]
            });
            println!(
                "MTU {mtu} {name}: UDP {udp:.2} Gb/s, raw Ethernet {ethernet:.2} Gb/s, by AF_XDP {bypass:.2} Gb/s"
            );
        }
    }
}

/// IP protocol 118 and UDP with and without offloads: Transfers of 64 MiB, and puts of 8 bytes one way.
#[test]
#[ignore = "a measurement"]
fn rates__of_ip118_beside_udp() {
    const WHOLE: usize = 64 << 20;
    for (name, options) in [("sealed", Options::default()), ("plain", plain())] {
        let bare = options.clone().with(|it| {
            it.datagrams.gso = false;
            it.datagrams.gro = false;
        });
        let ways = [
            (Path::Veth(1500), &options),
            (Path::Veth(1500), &bare),
            (Path::Ip118(1500), &options),
        ];
        let (mut rates, mut times) = ([const { vec![] }; 3], [const { vec![] }; 3]);
        for _ in 0..ROUNDS {
            for (index, (path, options)) in ways.into_iter().enumerate() {
                let Some(mut pair) = path.connect(options) else {
                    return;
                };
                transfer(&mut pair, 1, &[WHOLE]);
                rates[index].push(rate(&mut pair, WHOLE, TRANSFERS / 4));
                times[index].push(one_way(&mut pair, Region::anonymous));
            }
        }
        let [udp, bare, ip118] = rates.map(spread);
        println!("{name}, Gb/s: UDP {udp}, without offloads {bare}, ip118 {ip118}");
        let [udp, bare, ip118] = times.map(spread);
        println!("{name}, us: UDP {udp}, without offloads {bare}, ip118 {ip118}");
    }
}

/// The median, the minimum and the maximum.
fn spread(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    let (least, median, most) = (of[0], of[ROUNDS / 2], of[ROUNDS - 1]);
    format!("{median:.2} ({least:.2} to {most:.2})")
}

/// Payload bits per nanosecond, with memory that is reused; its content is verified at the end.
fn rate(pair: &mut Pair, len: usize, transfers: usize) -> f64 {
    let sends = |a: &mut Connection| {
        let mut memory: Memory = content::region(2, len).into();
        for _ in 0..transfers {
            a.post_send(memory).expect("posted");
            let completion = next(a);
            completion.result.expect("sent");
            memory = completion.into_memory().expect("it comes back");
        }
    };
    let receives = |b: &mut Connection| {
        let mut memory = Region::anonymous(len).expect("memory");
        let start = Instant::now();
        for _ in 0..transfers {
            b.post_recv(memory).expect("posted");
            let completion = next(b);
            assert_eq!(completion.result, Ok(len));
            memory = completion.into_region().expect("a region");
        }
        let took = start.elapsed();
        content::verify(2, &memory);
        took
    };
    let ((), took) = both(pair, sends, receives);
    (8 * len * transfers) as f64 / took.as_nanos() as f64
}

/// A put of 8 bytes one way, half of a round trip of puts, with both ends polling.
#[test]
#[ignore = "a measurement"]
fn latency__of_raw_ethernet_beside_udp() {
    for (name, options) in [("sealed", Options::default()), ("plain", plain())] {
        let mut times = [vec![], vec![], vec![], vec![]];
        let paths = [Path::Veth, Path::Ethernet, Path::Bypass, Path::Polled];
        for _ in 0..ROUNDS {
            for (path, times) in paths.map(|it| it(1500)).into_iter().zip(&mut times) {
                let Some(mut pair) = path.connect(&options) else {
                    return;
                };
                times.push(one_way(&mut pair, Region::anonymous));
            }
        }
        let [udp, ethernet, bypass, polled] = times.map(spread);
        println!(
            "{name}, us: UDP {udp}, raw Ethernet {ethernet}, by AF_XDP {bypass}, with busy polling {polled}"
        );
    }
}

/// Microseconds.
fn one_way(pair: &mut Pair, make: Make) -> f64 {
    let export = |connection: &mut Connection| {
        let region = make(4096).expect("memory");
        let exported = ExportedRegion::new(region).expect("of whole pages");
        let named = connection.export_named("word", &exported, Rights::ALL);
        named.expect("exported");
        exported
    };
    let (own, others) = (export(&mut pair.a), export(&mut pair.b));
    let plays = |connection: &mut Connection, own: &ExportedRegion, begins: bool| {
        let to = connection.open_region("word", Rights::WRITE).expect("open");
        let start = Instant::now();
        for number in 1..=PUTS {
            let put = |connection: &mut Connection| {
                let posted =
                    connection.post(PutInline::new(&to, 0, &number.to_ne_bytes()).signalled(false));
                posted.expect("posted");
            };
            if begins {
                put(connection);
            }
            while own.word(0).load(Ordering::Acquire) != number {
                if let Some(completion) = connection.poll().expect("polled") {
                    completion.result.expect("put");
                }
            }
            if !begins {
                put(connection);
            }
        }
        start.elapsed()
    };
    let (took, _) = both(pair, |a| plays(a, &own, true), |b| plays(b, &others, false));
    took.as_nanos() as f64 / (2 * PUTS) as f64 / 1000.0
}

/// Exported memory of both kinds, in shared memory: durations of operations, and bytes put repeatedly from one buffer,
/// compared with one core's memcpy.
#[test]
#[ignore = "a measurement"]
fn rates__of_regions_that_both_ends_map_beside_others() {
    let makes: [(&str, Make); 2] = [
        ("by the target", Region::anonymous),
        ("mapped", Region::memfd),
    ];
    for round in 0..ROUNDS {
        for (name, make) in makes {
            let mut pair = Path::Shared.connect(&Options::default()).expect("here");
            let way = one_way(&mut pair, make);
            let mut pair = Path::Shared.connect(&Options::default()).expect("here");
            let [get, fetch, one, many] = alone(&mut pair, make);
            println!(
                "{round}, {name}: put of 8 B one way {way:.3} us, get {get:.3} us, fetch-op {fetch:.3} us, puts of \
                 1 MiB {one:.1} Gb/s, of 64 MiB {many:.1} Gb/s"
            );
        }
        let [one, many] = [1 << 20, 64 << 20].map(|len| {
            let from = vec![1_u8; len];
            let mut to = vec![0_u8; len];
            gigabits(len, || std::hint::black_box(&mut to).copy_from_slice(&from))
        });
        println!("{round}, memcpy: 1 MiB {one:.1} Gb/s, 64 MiB {many:.1} Gb/s");
    }
}

/// One initiator: microseconds of a get and of a fetch-op, Gb/s of puts of 1 MiB and of 64 MiB.
fn alone(pair: &mut Pair, make: Make) -> [f64; 4] {
    let memory = ExportedRegion::new(make(64 << 20).expect("memory")).expect("of whole pages");
    pair.b
        .export_named("memory", &memory, Rights::ALL)
        .expect("exported");
    let measures = |a: &mut Connection| {
        let to = a.open_region("memory", Rights::ALL).expect("open");
        let each = |start: Instant| start.elapsed().as_nanos() as f64 / PUTS as f64 / 1000.0;
        let start = Instant::now();
        let mut word = [0; 8];
        (0..PUTS).for_each(|_| a.get(&to, 0, &mut word).expect("got"));
        let get = each(start);
        let start = Instant::now();
        (0..PUTS).for_each(|at| {
            assert_eq!(a.fetch_op(&to, 0, FetchOp::Increment).expect("counted"), at)
        });
        let fetch = each(start);
        let [one, many] = [1 << 20, 64 << 20].map(|len| {
            let mut from = vec![0; len];
            content::fill(7, &mut from);
            let rate = gigabits(len, || a.put(&to, 0, &from).expect("put"));
            let mut there = vec![0; len];
            memory.read(0, &mut there);
            assert!(there == from, "content");
            rate
        });
        [get, fetch, one, many]
    };
    let (measured, ()) = both(pair, measures, |_| ());
    measured
}

/// Gb/s of `copy`, which copies `len` bytes, after a first run.
fn gigabits(len: usize, mut copy: impl FnMut()) -> f64 {
    copy();
    let times = (2 << 30) / len;
    let start = Instant::now();
    (0..times).for_each(|_| copy());
    (times * len * 8) as f64 / start.elapsed().as_nanos() as f64
}
