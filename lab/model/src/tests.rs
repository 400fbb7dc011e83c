//! Tests cases worked out by hand, and properties of every prediction.
#![allow(non_snake_case)]

use super::*;

const MIB: usize = 1 << 20;

fn cost(median: f64) -> Cost {
    Cost {
        min: median * 0.9,
        median,
        max: median * 1.2,
    }
}

/// Of a machine of round figures: 1024 ns a KiB is 1 ns a byte, 61,440 ns a train the same.
fn costs() -> UnitCosts {
    let memory = |bytes, slow: f64| MemoryCosts {
        bytes,
        digest: cost(10.24 * slow),
        sum: cost(20.48 * slow),
        touch: cost(10.24 * slow),
        copy_from: cost(20.48 * slow),
        copy_to: cost(20.48 * slow),
        copy: cost(30.72 * slow),
        seal: cost(30.72 * slow),
        open: cost(30.72 * slow),
        read_file: cost(61.44 * slow),
        write_file: cost(61.44 * slow),
    };
    let way = |send: f64, receive: f64| Way {
        send: cost(send),
        receive: cost(receive),
        queue: cost(send / 2.0),
        receive_clocked: cost(receive + send / 2.0),
    };
    let tcp = |bytes, slow: f64| TcpCosts {
        bytes,
        send: way(102.4 * slow, 51.2 * slow),
        splice: way(51.2, 102.4 * slow),
        sendfile: way(81.92, 51.2 * slow),
    };
    let train = |bytes, slow: f64| TrainCosts {
        bytes,
        datagram: 1472,
        copied: cost(6144.0 * slow),
        received: cost(3072.0 * slow),
        given: cost(5529.6),
        received_given: cost(3686.4 * slow),
    };
    let sizes = [(TRAIN, 1.0), (MIB, 1.0), (64 * MIB, 2.0)];
    let library = LibraryCosts {
        send_transfer: cost(10_485.76),
        receive_transfer: cost(5242.88),
        send_train: cost(614.4),
        receive_train: cost(1228.8),
    };
    UnitCosts {
        caches: Caches {
            own: MIB,
            last: 32 * MIB,
        },
        system_call: cost(100.0),
        wake: WakeCosts {
            latency: cost(6553.6),
            waker: cost(1310.72),
            woken: cost(3000.0),
        },
        contention: cost(1.5),
        memory: sizes.map(|(bytes, slow)| memory(bytes, slow)).to_vec(),
        handed: HandedCosts {
            seal: cost(35.84),
            read: cost(30.72),
        },
        tcp: sizes.map(|(bytes, slow)| tcp(bytes, slow)).to_vec(),
        trains: sizes.map(|(bytes, slow)| train(bytes, slow)).to_vec(),
        plain: library,
        encrypted: library,
    }
}

/// Every carrier, source and sink, from memory in the cache and from memory in none.
fn rows() -> Vec<Row> {
    use Carrier::{Encrypted, Plain, Tcp, TcpSendfile, TcpSplice};
    let mut rows = Vec::new();
    for carrier in [Tcp, TcpSplice, TcpSendfile, Plain, Encrypted] {
        for buffer in [MIB, 2 * MIB, 64 * MIB] {
            for source in [Source::Memory, Source::Read] {
                for sink in [
                    Sink::None,
                    Sink::Touch,
                    Sink::Copy,
                    Sink::Checksum,
                    Sink::File,
                ] {
                    rows.push(Row {
                        source,
                        sink,
                        ..Row::memory(carrier, buffer, buffer / 2)
                    });
                }
            }
        }
    }
    rows
}

fn is(found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(
        off <= expected.abs() * 1e-6 + 1e-9,
        "{found}, not {expected}"
    );
}

/// Digest 0.01, given 0.09, the library 0.01 a train and 10,485.76 / 524,288 a Transfer = 0.02: 0.13 ns a byte.
#[test]
fn predict__plain_by_hand() {
    let row = Row::memory(Carrier::Plain, MIB, MIB / 2);
    let predicted = predict(&row, &costs());
    is(predicted.gbps, 8.0 / 0.13);
    is(predicted.tx_cpu_s_per_gb, 0.13);
    // It spins: received 0.06, digest 0.01, the library 0.02 and 0.01 are only 0.1.
    is(predicted.rx_cpu_s_per_gb, 0.13);
    assert_eq!(predicted.bottleneck, "sender: sending trains");
    is(here(&predicted), 0.0);
}

/// From memory in no cache the seal takes 0.06 instead of 0.03, and half of that excess more for as long as the other core
/// is at it: opening likewise. Slots that pass from core to core take 0.005 more to seal into, and 0.01 to read.
#[test]
fn predict__encrypted_in_no_cache_by_hand() {
    let row = Row::memory(Carrier::Encrypted, 64 * MIB, 32 * MIB);
    let predicted = predict(&row, &costs());
    let (send, receive): (f64, f64) = (
        0.06 + 0.09 + 0.005 + 0.01 + 10_485.76 / (32.0 * 1_048_576.0),
        0.06 + 0.01 + 0.06 + 0.02 + 5242.88 / (32.0 * 1_048_576.0),
    );
    let overlap = receive / send;
    is(predicted.gbps, 8.0 / (send + 0.03 * 0.5 * overlap));
    is(here(&predicted), 3.0);
}

/// s 0.1, r 0.05. With w wake-ups a byte, of 1310.72 ns, and L 6553.6 ns: n = 1 + L / ((s + 1310.72 w - r) P) packets of P
/// bytes each, w = 1 / (n P); w = 1/196,608 makes it 0.0567 * P = 3714 ns, n = 2.76.
#[test]
fn predict__tcp_whose_receiver_sleeps() {
    let predicted = predict(&Row::memory(Carrier::Tcp, MIB, MIB), &costs());
    let took = 8.0 / predicted.gbps;
    let wakes = (took - 0.1) / 1310.72;
    let packets = 1.0 / (wakes * 65_536.0);
    is(packets, 1.0 + 6553.6 / ((took - 0.05) * 65_536.0));
    assert!((2.0..3.0).contains(&packets), "{packets}");
    is(predicted.tx_cpu_s_per_gb, took);
    is(predicted.rx_cpu_s_per_gb, 0.05 + wakes * 3000.0);
}

/// s 0.05, q 0.025, r 0.1, c 0.125: f = 1 - (0.05 - 0.025 f) / (0.1 + 0.025 f), of which f = (sqrt(17) - 3) / 2 is the root.
#[test]
fn predict__tcp_whose_sender_waits() {
    let predicted = predict(&Row::memory(Carrier::TcpSplice, MIB, MIB), &costs());
    let share: f64 = (8.0 / predicted.gbps - 0.1) / 0.025;
    is(share, 1.0 - (0.05 - 0.025 * share) / (0.1 + 0.025 * share));
    is(predicted.tx_cpu_s_per_gb, 0.05 - 0.025 * share);
    assert_eq!(
        predicted.bottleneck,
        "receiver: receiving, and sending what was queued"
    );
}

/// Bytes on the bus without adapters, both ends together, as far as the cache keeps the kernel's buffers.
fn here(predicted: &Prediction) -> f64 {
    let Traffic { sender, receiver } = predicted.traffic.here;
    sender.least + receiver.least
}

/// By end, where the memory does not fit: what the sender does, then what the receiver does.
#[test]
fn traffic__of_a_row_by_source_sink_and_piece() {
    let ends = |row: Row| {
        let Traffic { sender, receiver } = predict(&row, &costs()).traffic.here;
        (sender.least, receiver.least)
    };
    let (small, large) = (
        Row::memory(Carrier::Tcp, 8 * MIB, MIB),
        Row::memory(Carrier::Tcp, 64 * MIB, MIB),
    );
    assert_eq!(ends(small), (0.0, 0.0));
    assert_eq!(ends(large), (1.0, 2.0));
    let read = Row {
        source: Source::Read,
        ..large
    };
    assert_eq!(ends(read), (3.0, 2.0));
    let checksum = Row {
        sink: Sink::Checksum,
        ..large
    };
    assert_eq!(ends(checksum), (1.0, 2.0));
    let file = Row {
        sink: Sink::File,
        ..large
    };
    assert_eq!(ends(file), (1.0, 4.0));
    // A piece that does not stay until it is looked at is fetched again.
    let whole = Row {
        piece: 64 * MIB,
        ..checksum
    };
    assert_eq!(ends(whole), (1.0, 3.0));
}

/// Without adapters the carriers share what has to be: the memory is read once and written once, by one end or the other.
#[test]
fn traffic__differs_by_carrier() {
    let ends = |carrier| {
        let traffic = predict(&Row::memory(carrier, 64 * MIB, MIB), &costs()).traffic;
        let least = |it: Traffic| (it.sender.least, it.receiver.least);
        (least(traffic.here), least(traffic.with_adapters))
    };
    assert_eq!(ends(Carrier::Tcp), ((1.0, 2.0), (2.0, 4.0)));
    assert_eq!(ends(Carrier::TcpSplice), ((0.0, 3.0), (1.0, 4.0)));
    assert_eq!(ends(Carrier::Plain), ((1.0, 2.0), (2.0, 4.0)));
    assert_eq!(ends(Carrier::Encrypted), ((1.0, 2.0), (2.0, 4.0)));
    // A seal goes into slots that the memory may push out of the cache; a digest goes nowhere.
    let most = |carrier| {
        let row = Row::memory(carrier, 64 * MIB, MIB);
        predict(&row, &costs()).traffic.with_adapters.sender.most
    };
    assert_eq!((most(Carrier::Encrypted), most(Carrier::Plain)), (4.0, 2.0));
}

const KIB: usize = 1 << 10;

/// The machine of P4: a cache of 512 KiB, socket buffers of 64 KiB.
fn papers(message: usize) -> Sizes {
    Sizes {
        message,
        socket: 64 * KIB,
        cache: 512 * KIB,
    }
}

/// Table 1 of P4: what fits the cache, and what does not; in practice, and in theory.
#[test]
fn traffic__is_the_papers_table_1() {
    let range = |it: Bytes| (it.least, it.most);
    let table = |traffic: fn(Movement, &Sizes, Adapter) -> Traffic, message| {
        let it = traffic(Movement::Tcp, &papers(message), Adapter::Own);
        (range(it.sender), range(it.receiver))
    };
    let (fits, does_not) = (16 * KIB, 10 * MIB);
    assert_eq!(table(Traffic::of, fits), ((1.0, 1.0), (2.0, 2.0)));
    assert_eq!(table(Traffic::of, does_not), ((2.0, 4.0), (4.0, 4.0)));
    assert_eq!(table(Traffic::in_theory, fits), ((1.0, 4.0), (2.0, 4.0)));
    assert_eq!(
        table(Traffic::in_theory, does_not),
        ((2.0, 4.0), (4.0, 4.0))
    );
    for message in [fits, does_not] {
        let rdma = Traffic::of(Movement::Rdma, &papers(message), Adapter::Own);
        assert_eq!(
            (range(rdma.sender), range(rdma.receiver)),
            ((1.0, 1.0), (1.0, 1.0))
        );
    }
}

/// Figures 18 and 26 of P4: a step where the cache ends, and from there to 4 at the sender; four times RDMA's.
#[test]
fn traffic__grows_with_the_message_to_four_times_rdma() {
    let at = |message| Traffic::of(Movement::Tcp, &papers(message), Adapter::Own);
    let sizes = [KIB, 64 * KIB, 448 * KIB, 449 * KIB, MIB, 10 * MIB, 1 << 30].map(at);
    let sender = sizes.map(|it| it.sender.likely);
    assert_eq!(sender[..3], [1.0; 3]);
    assert!(sender[3] > 2.0 && sender[3] < 2.1, "{sender:?}");
    assert!(
        sender.is_sorted() && sender[6] > 3.99 && sender[6] <= 4.0,
        "{sender:?}"
    );
    assert_eq!(
        sizes.map(|it| it.receiver.likely),
        [2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    );
    for it in sizes {
        let within = |it: Bytes| it.least <= it.likely && it.likely <= it.most;
        assert!(within(it.sender) && within(it.receiver), "{it:?}");
    }
}

/// Figure 20 of P4: half of 4.2 Gb/s each way is within 5 % of what the bus of 400 MHz and 64 bits sustains, 65 % of its
/// peak; one way is not.
#[test]
fn traffic__of_both_ways_is_all_that_the_papers_bus_sustains() {
    let sustained = 0.65 * 400e6 * 64.0 / 1e9;
    let it = Traffic::of(Movement::Tcp, &papers(10 * MIB), Adapter::Own);
    let dual = 2.1 * it.sender.likely + 2.1 * it.receiver.likely;
    assert!(
        (dual / sustained - 1.0).abs() < 0.05,
        "{dual} of {sustained}"
    );
    let fan_in = 3.5 * it.receiver.likely;
    assert!(fan_in < 0.9 * sustained, "{fan_in} of {sustained}");
}

#[test]
fn at__between_two_sizes_by_the_logarithm() {
    let costs = costs();
    let seal = |bytes| costs::at(&costs.memory, bytes, |it: &MemoryCosts| it.seal);
    is(seal(1), 30.72);
    is(seal(MIB), 30.72);
    is(seal(8 * MIB), 30.72 * 1.5);
    is(seal(64 * MIB), 30.72 * 2.0);
    is(seal(usize::MAX), 30.72 * 2.0);
    is(costs::at(&[], MIB, |it: &MemoryCosts| it.seal), 0.0);
}

/// A unit cost, and what makes it half as large again.
type Unit = (&'static str, fn(&mut UnitCosts));

fn dearer(cost: &mut Cost) {
    cost.median *= 1.5;
}

const UNITS: [Unit; 21] = [
    ("waker", |it| dearer(&mut it.wake.waker)),
    ("read of what was handed", |it| dearer(&mut it.handed.read)),
    ("contention", |it| dearer(&mut it.contention)),
    ("digest", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.digest))
    }),
    ("sum", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.sum))
    }),
    ("touch", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.touch))
    }),
    ("copy", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.copy))
    }),
    ("seal", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.seal))
    }),
    ("open", |it| {
        it.memory.iter_mut().for_each(|it| dearer(&mut it.open))
    }),
    ("read_file", |it| {
        it.memory
            .iter_mut()
            .for_each(|it| dearer(&mut it.read_file))
    }),
    ("write_file", |it| {
        it.memory
            .iter_mut()
            .for_each(|it| dearer(&mut it.write_file))
    }),
    ("send", |it| {
        it.tcp.iter_mut().for_each(|it| dearer(&mut it.send.send))
    }),
    ("splice", |it| {
        it.tcp.iter_mut().for_each(|it| dearer(&mut it.splice.send))
    }),
    ("sendfile", |it| {
        it.tcp
            .iter_mut()
            .for_each(|it| dearer(&mut it.sendfile.send))
    }),
    ("copied", |it| {
        it.trains.iter_mut().for_each(|it| dearer(&mut it.copied))
    }),
    ("received", |it| {
        it.trains.iter_mut().for_each(|it| dearer(&mut it.received))
    }),
    ("received_given", |it| {
        it.trains
            .iter_mut()
            .for_each(|it| dearer(&mut it.received_given))
    }),
    ("send_transfer", |it| dearer(&mut it.plain.send_transfer)),
    ("receive_transfer", |it| {
        dearer(&mut it.encrypted.receive_transfer)
    }),
    ("send_train", |it| dearer(&mut it.encrypted.send_train)),
    ("receive_train", |it| dearer(&mut it.plain.receive_train)),
];

/// TCP's faster end is the exception: if it is slower, a receiver sleeps less often, and a sender leaves less of its work to the
/// receiver.
#[test]
fn predict__more_cost_never_means_more_goodput() {
    for row in rows() {
        let before = predict(&row, &costs());
        for (name, change) in UNITS {
            let is_of_sender =
                matches!(name, "send" | "splice" | "sendfile" | "read_file" | "waker");
            let sender_is_slower = before.bottleneck.starts_with("sender");
            if row.carrier.is_tcp() && is_of_sender != sender_is_slower {
                continue;
            }
            let mut costs = costs();
            change(&mut costs);
            let after = predict(&row, &costs);
            assert!(
                after.gbps <= before.gbps * (1.0 + 1e-9),
                "{row:?}: {name}: {} becomes {}",
                before.gbps,
                after.gbps
            );
        }
    }
}

/// An end has no more time than there is, and goodput is what the slower end leaves.
#[test]
fn predict__no_end_takes_more_time_than_there_is() {
    for row in rows() {
        let predicted = predict(&row, &costs());
        let took = 8.0 / predicted.gbps;
        for cpu in [predicted.tx_cpu_s_per_gb, predicted.rx_cpu_s_per_gb] {
            assert!(
                cpu > 0.0 && cpu <= took * (1.0 + 1e-9),
                "{row:?}: {predicted:?}"
            );
        }
        for end in [End::Sender, End::Receiver] {
            let stages = predicted.stages.iter().filter(|it| it.end == end);
            let sum: f64 = stages.map(|it| it.ns_per_byte).sum();
            assert!(
                sum > 0.0 && sum <= took * (1.0 + 1e-9),
                "{row:?}: {predicted:?}"
            );
        }
    }
}

/// A machine of which nothing was measured: no panic, whatever comes of it.
#[test]
fn predict__of_no_costs_at_all() {
    let none = UnitCosts {
        memory: Vec::new(),
        tcp: Vec::new(),
        trains: Vec::new(),
        handed: HandedCosts::default(),
        contention: Cost::default(),
        wake: WakeCosts::default(),
        plain: LibraryCosts::default(),
        encrypted: LibraryCosts::default(),
        ..costs()
    };
    for row in rows() {
        let predicted = predict(&row, &none);
        assert!(!predicted.gbps.is_nan(), "{row:?}: {predicted:?}");
    }
}

#[test]
fn Cost__of_samples() {
    let cost = Cost::of([3.0, 1.0, 2.0]);
    let expected = Cost {
        min: 1.0,
        median: 2.0,
        max: 3.0,
    };
    assert_eq!(cost, Some(expected));
    assert_eq!(Cost::of([]), None);
}
