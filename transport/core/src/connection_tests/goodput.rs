//! Tests that goodput over loss, round trip and profile matches a table, in virtual time.
//!
//! A changed number shows in review. Also tests minimum goodputs.

use super::{seeds, sim::Sim};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::fmt::Write;
use std::time::Duration;
use zerolane_wire::{Profile, Profiles};

const MS: Duration = Duration::from_millis(1);

/// Result of one Transfer.
struct Outcome {
    /// Payload rate, Mb/s.
    mbps: f64,
    length: u64,
    sender: Counters,
    receiver: Counters,
    /// Packets that the link lost or dropped.
    lost: u64,
    /// Of those, packets for which its queue had room.
    lost_at_random: u64,
}

/// 1 Gb/s with a queue of one bandwidth-delay product.
fn link(rtt: Duration, loss: Loss) -> LinkConfig {
    LinkConfig {
        delay: rtt / 2,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: (rtt.as_micros() / 12) as usize,
        loss,
        ..LinkConfig::default()
    }
}

fn transfer(profile: Profile, link: LinkConfig, length: u64) -> Outcome {
    transfer_seeded(profile, link, length, 1)
}

fn transfer_seeded(profile: Profile, link: LinkConfig, length: u64, seed: u64) -> Outcome {
    let config = Config {
        profiles: Profiles::only(profile),
        ..Config::default()
    };
    let mut sim = Sim::new(link, seed, config.clone(), config);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let seconds = sim.timed_send(length).as_secs_f64();
    let stats = sim.net.link(Side::A).stats();
    Outcome {
        mbps: length as f64 * 8.0 / seconds / 1e6,
        length,
        sender: *sim.a.c().counters(),
        receiver: *sim.b.c().counters(),
        lost: stats.lost + stats.queue_dropped,
        lost_at_random: stats.lost,
    }
}

fn extended(link: LinkConfig) -> Outcome {
    transfer(Profile::Extended, link, 64 << 20)
}

/// The same for a Get: B holds the bytes, A gets them.
fn got(link: LinkConfig, length: u64) -> Outcome {
    let mut sim = Sim::new(link, 1, Config::default(), Config::default());
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let seconds = sim.timed_get(length).as_secs_f64();
    let stats = sim.net.link(Side::B).stats();
    Outcome {
        mbps: length as f64 * 8.0 / seconds / 1e6,
        length,
        sender: *sim.b.c().counters(),
        receiver: *sim.a.c().counters(),
        lost: stats.lost + stats.queue_dropped,
        lost_at_random: stats.lost,
    }
}

/// Loss, percent, up to which the classic profile finishes at all: at 5 % it takes far too long.
const MOST_FOR_CLASSIC: f64 = 5.0;

/// Expected losses in each cell of the table, at least: with fewer Transfers most would see none.
const LOSSES: f64 = 3.0;

/// Fewest Transfers of a cell with loss. At 20 % the goodput of one Transfer is from a third of the median to a fourth
/// above it, depending on losses at its start; and one more or less probe draws other losses.
const TRANSFERS: u64 = 12;

/// Goodput over Transfers of `length` bytes, each over its own link: enough for [`LOSSES`], and at least [`TRANSFERS`].
fn cell(profile: Profile, rtt: u32, percent: f64, length: u64) -> f64 {
    let part = percent / 100.0;
    let expected = part * (length / 1432) as f64;
    let count = match percent > 0.0 {
        true => ((LOSSES / expected).ceil() as u64).max(TRANSFERS),
        false => 1,
    };
    let link = link(MS * rtt, Loss::Random(part));
    let outcomes = (0..count).map(|seed| transfer_seeded(profile, link, length, 1 + seed));
    let (seconds, lost) = outcomes.fold((0.0, 0), |(seconds, lost), it| {
        (
            seconds + length as f64 * 8.0 / 1e6 / it.mbps,
            lost + it.lost_at_random,
        )
    });
    assert_eq!(
        lost > 0,
        percent > 0.0,
        "{profile:?}, {rtt} ms, {percent} %: {lost} lost"
    );
    (count * length) as f64 * 8.0 / 1e6 / seconds
}

/// A row of the table: both profiles at one round trip, over loss.
fn row(rtt: u32) -> String {
    let mut text = String::new();
    for percent in [0.0, 0.001, 0.01, 0.1, 1.0, 5.0, 20.0] {
        let classic = match percent <= MOST_FOR_CLASSIC {
            true => format!("{:.2}", cell(Profile::Classic, rtt, percent, 1 << 20)),
            false => "-".into(),
        };
        let extended = cell(Profile::Extended, rtt, percent, 16 << 20);
        writeln!(text, "{rtt:3} ms {percent:6} % {classic:>9} {extended:9.1}").unwrap();
    }
    text
}

#[test]
fn goodput__over_loss_round_trip_and_profile() {
    let rows = std::thread::scope(|scope| {
        let rows = [1, 10, 50, 100].map(|rtt| scope.spawn(move || row(rtt)));
        rows.map(|row| row.join().expect("row")).join("")
    });
    let table = format!(
        "Mb/s over 1 Gb/s with a queue of one round trip, start and end included;\n\
         classic: Transfers of 1 MiB, extended: of 16 MiB; as many as let {LOSSES} losses be expected, {TRANSFERS} at least\n\n\
         RTT    loss       classic  extended\n{rows}"
    );
    insta::assert_snapshot!(table);
}

#[test]
fn goodput__random_loss_costs_little_more_than_itself() {
    let clean = extended(link(MS, Loss::None)).mbps;
    for (loss, least) in [(0.0001, 0.99), (0.001, 0.97), (0.01, 0.9), (0.05, 0.6)] {
        let it = extended(link(MS, Loss::Random(loss)));
        let ratio = it.mbps / clean;
        assert!(ratio >= least, "{loss}: {ratio} of {clean} Mb/s");
        let resent = it.sender.bytes_resent as f64 / it.length as f64;
        assert!(resent <= loss * 1.06 + 0.005, "{loss}: {resent} sent again");
    }
}

#[test]
fn goodput__bursts_of_loss() {
    let clean = extended(link(MS, Loss::None)).mbps;
    // In bursts of 10 on average, 1 % in total.
    let bursty = Loss::GilbertElliott {
        p_good_to_bad: 0.1 * 0.01 / 0.99,
        p_bad_to_good: 0.1,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let ratio = extended(link(MS, bursty)).mbps / clean;
    assert!(ratio >= 0.85, "{ratio}");
}

#[test]
fn goodput__reordering_is_not_taken_for_loss() {
    let clean = extended(link(MS, Loss::None)).mbps;
    let reordering = LinkConfig {
        reorder: Reorder {
            probability: 0.05,
            by: MS,
        },
        ..link(MS, Loss::None)
    };
    let it = extended(reordering);
    assert!(it.mbps >= 0.95 * clean, "{} of {clean}", it.mbps);
    assert!(it.receiver.reordered > 1000);
    let in_vain =
        it.receiver.dropped(DropReason::Duplicate) + it.receiver.dropped(DropReason::NoGrant);
    assert!(
        in_vain * 1000 <= it.receiver.stus_received,
        "{in_vain} STUs in vain"
    );
}

#[test]
fn goodput__what_is_lost_is_sent_again_and_nothing_else() {
    for rtt in [1, 50] {
        let it = extended(link(MS * rtt, Loss::Random(0.01)));
        let resent = it.sender.bytes_resent / 1432;
        assert!(resent <= it.lost + it.lost / 50, "{resent} for {}", it.lost);
    }
}

/// The part of `length` bytes that is retransmitted at 1 % loss.
fn resent_at_one_percent(rtt: Duration, length: u64, seed: u64) -> f64 {
    let link = link(rtt, Loss::Random(0.01));
    let it = transfer_seeded(Profile::Extended, link, length, seed);
    it.sender.bytes_resent as f64 / length as f64
}

#[test]
fn goodput__one_percent_of_loss_is_little_more_sent_again() {
    seeds::each(4, |seed| {
        let part = resent_at_one_percent(MS, 128 << 20, seed + 1);
        assert!(part <= 0.013, "{part}");
    });
    // The start fills a queue of one round trip completely: a megabyte, whatever follows.
    let part = resent_at_one_percent(20 * MS, 256 << 20, 1);
    assert!(part <= 0.013, "{part}");
}

#[test]
fn goodput__heavy_loss_of_the_path_itself_is_no_collapse() {
    for (rtt, least) in [(1, 400.0), (10, 300.0), (100, 100.0)] {
        let it = extended(link(MS * rtt, Loss::Random(0.2)));
        assert!(it.mbps >= least, "{rtt} ms: {} Mb/s", it.mbps);
        let (resent, lost) = (it.sender.bytes_resent / 1432, it.lost);
        assert!(resent <= lost + lost / 50, "{resent} for {lost}");
    }
}

#[test]
fn goodput__of_a_get_is_that_of_a_put() {
    let shallow = LinkConfig {
        queue_packets: 800,
        ..link(20 * MS, Loss::None)
    };
    let random = |rtt, loss| link(MS * rtt, Loss::Random(loss));
    for link in [
        random(1, 0.01),
        random(20, 0.0),
        random(20, 0.001),
        random(50, 0.0),
        shallow,
    ] {
        let (put, get) = (extended(link), got(link, 64 << 20));
        let ratio = get.mbps / put.mbps;
        assert!(ratio >= 0.9, "{link:?}: {ratio} of {} Mb/s", put.mbps);
        // The congestion controller limits the answers, not only the Gets' grants.
        let most = 4 * put.lost.max(250);
        assert!(get.lost <= most, "{link:?}: {} lost", get.lost);
    }
}

/// A queue that one window of grants overflows many times. Arrivals between two answers must not count as if they had
/// come after the second: that would cause needless retransmission.
#[test]
fn goodput__through_a_queue_shorter_than_a_window() {
    for queue in [8, 16, 32, 64, 128] {
        let link = LinkConfig {
            queue_packets: queue,
            ..link(Duration::from_micros(100), Loss::None)
        };
        let it = extended(link);
        let needed = it.length / 1432;
        let said = format!(
            "{queue} packets: {:.0} Mb/s, {} of {needed} lost",
            it.mbps, it.lost
        );
        // A burst is eleven packets.
        assert!(it.mbps > if queue < 11 { 600.0 } else { 800.0 }, "{said}");
        // Most of it at once, in the first window.
        assert!(it.lost < needed / 6, "{said}");
    }
}
