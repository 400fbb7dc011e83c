//! Tests and measures casts: prints times, and asserts contents and payload bytes, which no clock changes.
//!
//! `ZEROLANE_CAST_BYTES`, `ZEROLANE_CAST_HOSTS` and `ZEROLANE_CAST_MBPS` set the size of the content, the number of
//! hosts, and the rate of each port.

use serde_json::Value;

use crate::content::content;
use crate::lab::Network;
use crate::running::Waiting;

/// A number from the environment.
fn given(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |it| {
        it.parse()
            .unwrap_or_else(|_| panic!("{name}={it}: no number"))
    })
}

/// Bytes of the content. The default is small to save time in CI; measurements need more.
fn bytes() -> usize {
    given("ZEROLANE_CAST_BYTES", 20_000_000) as usize
}

/// Rate of each port.
fn mbps() -> u64 {
    given("ZEROLANE_CAST_MBPS", 200)
}

/// A finished cast.
struct Measured {
    /// The source's summary.
    summary: Value,
    /// Payload bytes that each surviving host received and sent, relative to the content.
    payload: Vec<[f64; 2]>,
    /// Bytes that each port received and sent, relative to the content; the source's first.
    carried: Vec<[f64; 2]>,
}

/// Casts to `count` hosts, and calls `disturb` meanwhile. Asserts that all remaining hosts have the content.
fn cast(
    hosts: usize,
    disturb: impl FnOnce(&Network, &mut Vec<Option<Waiting>>),
) -> Option<Measured> {
    cast_as(hosts, hosts, &[], disturb)
}

/// As [`cast`], with these options, and with only the first `early` hosts waiting at the start.
fn cast_as(
    hosts: usize,
    early: usize,
    options: &[&str],
    disturb: impl FnOnce(&Network, &mut Vec<Option<Waiting>>),
) -> Option<Measured> {
    let network = Network::new(hosts, mbps())?;
    let bytes = content(1, bytes());
    let source = network.place.file("source", &bytes);
    let mut waiting: Vec<_> = network.wait_all(early).into_iter().map(Some).collect();
    let casting = network.cast(&source, hosts, &[&["--wait", "3"], options].concat());
    disturb(&network, &mut waiting);
    let (code, summary) = casting.end();
    println!("{summary}");
    let left: Vec<_> = (0..hosts).filter(|it| waiting[*it].is_some()).collect();
    let all = left.len() == hosts;
    assert_eq!(code, Some(if all { 0 } else { 5 }), "{summary}");
    let share = |it: u64| it as f64 / bytes.len() as f64;
    let ends: Vec<_> = waiting
        .into_iter()
        .flatten()
        .map(Waiting::summary)
        .collect();
    let payload = ends.iter().map(|it| {
        ["received_bytes", "sent_bytes"].map(|name| share(it[name].as_u64().unwrap_or(u64::MAX)))
    });
    for index in left {
        assert!(network.place.has(index, &bytes), "host {index} has it not");
    }
    Some(Measured {
        payload: payload.collect(),
        carried: network
            .carried()
            .into_iter()
            .map(|it| it.map(share))
            .collect(),
        summary,
    })
}

/// Seconds until the last host finished, apart from `but`.
fn seconds(summary: &Value, but: Option<usize>) -> f64 {
    let hosts = summary["hosts"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate();
    let others = hosts.filter(|(index, _)| Some(*index) != but);
    others
        .filter_map(|(_, it)| it["seconds"].as_f64())
        .fold(0.0, f64::max)
}

/// Targets, printed beside the results: 8 hosts take at most 1.10 of the time of one; a killed host costs the others 2
/// s or 5 %; a host ten times slower costs them a tenth.
#[test]
#[ignore = "a measurement: its figures are for a machine with nothing else to do"]
fn measure__eight_hosts_against_one() {
    let hosts = given("ZEROLANE_CAST_HOSTS", 8) as usize;
    let Some(one) = cast(1, |_, _| {}) else {
        return;
    };
    let many = cast(hosts, |_, _| {}).expect("it is permitted");
    let killed = cast(hosts, |network, waiting| {
        let half = bytes() as u64 / 2;
        let has = || network.place.partly(hosts / 2) > half;
        network.place.wait_until("half has come", has);
        waiting[hosts / 2].take().expect("it was started").kill();
    })
    .expect("it is permitted");
    let slowed = hosts - 1 - hosts / 4;
    let slow = cast(hosts, |network, _| network.slow_down(slowed, mbps() / 10));
    let slow = slow.expect("it is permitted");
    let [alone, all] = [&one, &many].map(|it| seconds(&it.summary, None));
    let without = seconds(&killed.summary, Some(hosts / 2));
    let beside = seconds(&slow.summary, Some(slowed));
    println!(
        "{} bytes, {} Mb/s a port: 1 host {alone:.2} s, {hosts} hosts {all:.2} s: {:.3}",
        bytes(),
        mbps(),
        all / alone
    );
    println!(
        "ports received and sent over the content: {:.3?}",
        many.carried
    );
    println!(
        "payload received and sent over the content: {:.3?}",
        many.payload
    );
    for it in [&one, &many] {
        let predicted = it.summary["predicted_seconds"].as_f64().unwrap_or(f64::NAN);
        let seen = seconds(&it.summary, None);
        println!(
            "model {predicted:.2} s, seen {seen:.2} s: {:.3}",
            predicted / seen
        );
    }
    println!("one of {hosts} killed: the others {:+.2} s", without - all);
    println!(
        "one of {hosts} ten times slower: the others {:.3}",
        beside / all
    );
    for [received, sent] in one.payload.into_iter().chain(many.payload) {
        assert!((1.0..=1.02).contains(&received), "{received}");
        assert!(sent <= 1.05, "{sent}");
    }
}

/// Target: a host that joins at half time finishes within 0.6 of a full cast. This needs a port faster than the cast,
/// so the cast is limited to half of the ports' rate.
#[test]
#[ignore = "a measurement: its figures are for a machine with nothing else to do"]
fn measure__one_joins_at_half_time() {
    let hosts = given("ZEROLANE_CAST_HOSTS", 8) as usize;
    let limit = format!("{}kB/s", mbps() * 1000 / 16);
    let options = ["--limit", &limit];
    let Some(late) = cast_as(hosts, hosts - 1, &options, |network, waiting| {
        let half = bytes() as u64 / 2;
        let has = || network.place.partly(hosts / 2) > half;
        network.place.wait_until("half has come", has);
        let target = network.place.target(hosts - 1);
        waiting.push(Some(network.wait(hosts - 1, &target)));
    }) else {
        return;
    };
    let full = seconds(&late.summary, Some(hosts - 1));
    let whole = seconds(&late.summary, None);
    // The cast began when the others were there, so the wait of 3 s does not count.
    let after = late.summary["hosts"][hosts - 1]["seconds"]
        .as_f64()
        .unwrap_or(f64::NAN)
        - full / 2.0;
    println!(
        "{} bytes, {hosts} hosts, {limit}: the others {full:.2} s, all {whole:.2} s; one that joined at half time {:.3} of it later",
        bytes(),
        after / full
    );
}
