//! Tests that gets, atomic operations and messages, which use one path, survive its death.

use super::{PATIENCE, THREADS, accept, assert_in_time, between, options, two_pairs, usable};
use crate::bytes::content;
use std::sync::LazyLock;
use std::time::Instant;
use zerolane::options::PathThreads;
use zerolane::request::Get;
use zerolane::{Connection, Endpoint, ExportedRegion, Region, RegionKey, Rights, Security};

const LEN: usize = 16 << 20;
/// The counter lies after the payload.
const COUNTER: u64 = LEN as u64;

/// The payload.
static RIGHT: LazyLock<Vec<u8>> = LazyLock::new(|| content(0, LEN));

fn message(round: usize) -> &'static [u8] {
    &RIGHT[round * 997 % (LEN - 3000)..][..3000]
}

/// Exports memory and receives messages, in order and each once, until the peer closes; returns the counts.
fn serve(endpoint: &mut Endpoint) -> (usize, u64) {
    let mut connection = accept(endpoint);
    let mut region = Region::anonymous(LEN + 8).expect("memory");
    region[..LEN].copy_from_slice(&RIGHT);
    let region = ExportedRegion::new(region).expect("aligned");
    connection
        .export_named("m", &region, Rights::ALL)
        .expect("exported");
    let mut payload = vec![0; 3000];
    let mut rounds = 0;
    while let Ok(received) = connection.recv_message(Some(&mut payload)) {
        assert_eq!(received.control[..], (rounds as u64).to_le_bytes());
        assert!(payload == message(rounds), "message {rounds}");
        rounds += 1;
    }
    let mut counted = [0; 8];
    region.read(LEN, &mut counted);
    (rounds, u64::from_le_bytes(counted))
}

/// One operation of each kind.
fn round(a: &mut Connection, key: &RegionKey, rounds: &mut usize) {
    let offset = *rounds * 77_777 % (LEN - (256 << 10));
    let mut got = vec![0; 200_000 + *rounds % 1000];
    a.get(key, offset as u64, &mut got).expect("got");
    assert!(got == RIGHT[offset..][..got.len()], "round {rounds}");
    let before = a.fetch_add(key, COUNTER, 1).expect("counted");
    assert_eq!(before, *rounds as u64);
    let control = (*rounds as u64).to_le_bytes();
    let payload = message(*rounds);
    a.send_message(&control, Some(payload)).expect("sent");
    *rounds += 1;
}

/// Goes on until `holds` was true after 20 rounds.
fn until(
    a: &mut Connection,
    key: &RegionKey,
    rounds: &mut usize,
    holds: impl Fn(&Connection) -> bool,
) {
    let start = Instant::now();
    let before = *rounds;
    let mut left = 20;
    while left > 0 {
        assert_in_time(a, start, *rounds - before);
        round(a, key, rounds);
        if holds(a) {
            left -= 1;
        }
    }
}

fn both_usable(a: &Connection) -> bool {
    usable(a) == 2
}

#[test]
fn operations__go_on_by_the_other_path_when_theirs_dies() {
    THREADS.into_iter().for_each(operations_go_on);
}

fn operations_go_on(threads: PathThreads) {
    let Some(hosts) = two_pairs() else { return };
    let options = options(Security::default(), 2, threads);
    let (done, (messages, counted)) =
        between((hosts.a(), hosts.b()), &options, serve, |to, second| {
            let mut a = Connection::connect(to, &options).expect("connected");
            assert!(a.add_path(second));
            let key = a.open_region("m", Rights::ALL).expect("opened");
            let mut rounds = 0;
            until(&mut a, &key, &mut rounds, both_usable);
            for path in [0, 1, 0] {
                let lost = a.account().protocol.paths_lost;
                hosts.a().set_up(path, false).expect("set");
                until(&mut a, &key, &mut rounds, |a| {
                    usable(a) == 1 && a.account().protocol.paths_lost > lost
                });
                hosts.a().set_up(path, true).expect("set");
                until(&mut a, &key, &mut rounds, both_usable);
            }
            a.close().expect("closed");
            rounds
        });
    // Nothing was lost, and nothing done twice.
    assert_eq!((messages, counted), (done, done as u64));
}

#[test]
fn get__goes_on_by_the_other_path_when_its_dies_amid() {
    THREADS.into_iter().for_each(get_goes_on);
}

fn get_goes_on(threads: PathThreads) {
    let Some(hosts) = two_pairs() else { return };
    let options = options(Security::default(), 2, threads);
    between((hosts.a(), hosts.b()), &options, serve, |to, second| {
        let mut a = Connection::connect(to, &options).expect("connected");
        assert!(a.add_path(second));
        let key = a.open_region("m", Rights::ALL).expect("opened");
        let mut rounds = 0;
        until(&mut a, &key, &mut rounds, both_usable);
        for path in [0, 1] {
            let into = Region::anonymous(LEN).expect("memory");
            let came = |a: &Connection| a.account().bytes_placed + a.account().bytes_moved();
            let before = came(&a);
            a.post(Get::new(&key, 0, into).context(1)).expect("posted");
            // It is in flight, and has not arrived.
            while came(&a) == before {
                assert!(a.poll().expect("alive").is_none(), "too soon");
            }
            hosts.b().set_up(path, false).expect("set");
            let got = a
                .wait(Some(PATIENCE))
                .expect("alive")
                .got()
                .expect("in time");
            got.result.expect("got");
            let region = got.into_region().expect("a region");
            assert!(region[..LEN] == RIGHT[..], "path {path}");
            hosts.b().set_up(path, true).expect("set");
            until(&mut a, &key, &mut rounds, both_usable);
        }
        a.close().expect("closed");
    });
}
