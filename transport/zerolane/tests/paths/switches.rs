//! Tests that connections survive dead links behind emulated switches, which no interface notices.

use super::{THREADS, between, content, is_permitted, options, receive, until_lost, until_usable};
use netlab::lab::{Lab, LabConfig};
use netsim::link::LinkConfig;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, TransferError};
use zerolane::options::PathThreads;
use zerolane::{Connection, Endpoint, Error, Security};

/// Two hosts and a switch for each of their interfaces, with these links.
pub(super) fn lab(links: [LinkConfig; 2]) -> Option<Lab> {
    let config = LabConfig {
        prefix: "paths".into(),
        interfaces: 2,
        seed: 7,
        ..LabConfig::default()
    };
    let lab = is_permitted().then(|| Lab::start(config).expect("permitted"))?;
    for (interface, link) in links.into_iter().enumerate() {
        for host in [0, 1] {
            lab.set_link(lab.port(host, interface), link);
        }
    }
    Some(lab)
}

fn link(delay_ms: u64, mbps: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(delay_ms),
        rate_bits_per_s: Some(mbps * 1_000_000),
        queue_packets: 4000,
        ..LinkConfig::default()
    }
}

/// Sets both directions of the switch at that interface.
pub(super) fn set_switch(lab: &Lab, interface: usize, up: bool) {
    for host in [0, 1] {
        lab.set_up(lab.port(host, interface), up);
    }
}

#[test]
fn switch__of_one_path_dead_amid_and_back() {
    for (path, threads) in [0, 1]
        .into_iter()
        .zip(THREADS)
        .chain([(1, PathThreads::OneForAll)])
    {
        let Some(lab) = lab([link(1, 200), link(4, 200)]) else {
            return;
        };
        let options = options(Security::default(), 2, threads);
        let hosts = (lab.host(0), lab.host(1));
        let (sent, received) = between(hosts, &options, receive, |to, second| {
            let mut a = Connection::connect(to, &options).expect("connected");
            assert!(a.add_path(second));
            let mut sent = 0;
            until_usable(&mut a, 2, 8, &mut sent);
            set_switch(&lab, path, false);
            until_lost(&mut a, 8, &mut sent);
            set_switch(&lab, path, true);
            until_usable(&mut a, 2, 8, &mut sent);
            a.close().expect("closed");
            sent
        });
        assert_eq!(sent, received, "path {path}");
    }
}

/// Both paths use one switch, which dies: both ends end after the idle timeout with that error.
#[test]
fn switch__of_both_paths_dead_ends_with_an_error_that_says_so() {
    const IDLE: Duration = Duration::from_secs(2);
    let Some(lab) = lab([link(1, 200), link(1, 200)]) else {
        return;
    };
    let options =
        options(Security::default(), 2, PathThreads::OnePerPath).with(|it| it.times.idle = IDLE);
    let hosts = (lab.host(0), lab.host(1));
    let serve = |endpoint: &mut Endpoint| {
        let mut b = super::accept(endpoint);
        let mut buffer = vec![0; super::PIECE];
        loop {
            if let Err(error) = b.recv_into(&mut buffer) {
                return error;
            }
        }
    };
    let (sender, receiver) = between(hosts, &options, serve, |to, second| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(second));
        let mut sent = 0;
        until_usable(&mut a, 2, 8, &mut sent);
        set_switch(&lab, 0, false);
        set_switch(&lab, 1, false);
        let dead = Instant::now();
        let error = loop {
            if let Err(error) = a.send(&content(sent)) {
                break error;
            }
            sent += 1;
        };
        assert!(
            dead.elapsed() + Duration::from_millis(200) > IDLE,
            "{error}"
        );
        error
    });
    for error in [sender, receiver] {
        let dead = matches!(
            error,
            Error::Closed(CloseReason::PeerDead)
                | Error::Transfer(TransferError::Closed(CloseReason::PeerDead))
        );
        assert!(dead, "{error:?}");
    }
}

/// Transfers over links with those round trips, ms, which overtake each other all the time; that is not a loss.
fn overtaking(long: u64, security: Security, threads: PathThreads) {
    let Some(lab) = lab([link(2, 100), link(long, 100)]) else {
        return;
    };
    let options = options(security, 2, threads);
    let hosts = (lab.host(0), lab.host(1));
    let all: Vec<u8> = (0..16).flat_map(content).collect();
    let serve = |endpoint: &mut Endpoint| {
        let mut b = super::accept(endpoint);
        let mut buffer = vec![0; all.len()];
        let mut right = 0;
        while let Ok(len) = b.recv_into(&mut buffer) {
            assert!(len == all.len() && buffer == all, "Transfer {right}");
            right += 1;
        }
        right
    };
    let ((account, sent), received) = between(hosts, &options, serve, |to, second| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(second));
        let mut sent = 0;
        while super::usable(&a) < 2 {
            assert!(sent < 40, "{:?}", a.paths());
            a.send(&all).expect("sent");
            sent += 1;
        }
        // On a busy machine the longer path may have a small share for a while.
        let joined = sent;
        while sent < joined + 3 || super::bytes_sent(&a, 1) <= 8 << 20 {
            assert!(sent < joined + 40, "{:?}", a.paths());
            a.send(&all).expect("sent");
            sent += 1;
        }
        let account = a.account();
        a.close().expect("closed");
        (account, sent)
    });
    assert_eq!(received, sent);
    let stats = lab.stats();
    let dropped = stats.total().queue_dropped + stats.missed + stats.overflowed + stats.unsent;
    let (resent, suspected) = (account.protocol.bytes_resent, account.protocol.paths_lost);
    println!(
        "{long} ms: {resent} bytes again of {} MiB, {dropped} packets lost, {suspected} paths suspected",
        16 * sent
    );
    // A busy machine may look like a dead path. Treating overtaking as loss would cost most of the payload.
    let most = dropped * 1500 + suspected * (4 << 20) + (sent * all.len()) as u64 / 8;
    assert!(
        resent <= most,
        "{resent} bytes again, {dropped} packets lost"
    );
}

#[test]
fn links__that_overtake_each_other_cause_no_repair() {
    for (long, threads) in [(10, THREADS[0]), (40, THREADS[0]), (10, THREADS[1])] {
        overtaking(long, Security::default(), threads);
    }
}

#[test]
fn links__that_overtake_each_other_cause_no_repair__plain() {
    for (long, threads) in [(10, THREADS[0]), (40, THREADS[0]), (10, THREADS[1])] {
        overtaking(long, Security::plain(), threads);
    }
}
