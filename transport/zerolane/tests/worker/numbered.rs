//! Tests that a worker's numbered exports reach all of its connections.

use super::{PATIENCE, anywhere, content, plain};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::failure::{PostError, Reason, TransferError};
use zerolane::options::LaneChoice;
use zerolane::request::Put;
use zerolane::worker::{ConnectionHandle, EndpointHandle, Worker, WorkerThread};
use zerolane::{
    Connection, Error, ExportedRegion, FetchOp, Options, Region, RegionKey, RegionNumber, Rights,
};

fn number(n: u32) -> RegionNumber {
    RegionNumber::new(n).expect("below 2^24")
}

fn key(n: u32) -> RegionKey {
    RegionKey::numbered(number(n), 0)
}

fn exported(region: std::io::Result<Region>) -> ExportedRegion {
    ExportedRegion::new(region.expect("memory")).expect("page-aligned")
}

fn memory() -> ExportedRegion {
    exported(Region::anonymous(1 << 20))
}

fn listening(options: Options) -> (WorkerThread, EndpointHandle) {
    let worker = Worker::new()
        .expect("descriptors")
        .spawn()
        .expect("a thread");
    let endpoint = worker.listen(anywhere(), options).wait();
    (worker, endpoint.expect("a port"))
}

fn connect(to: SocketAddr, options: &Options) -> Connection {
    let mut connection = Connection::connect(to, options).expect("connected");
    connection.set_timeout(Some(PATIENCE));
    connection
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Reason {
    match result {
        Err(Error::Transfer(TransferError::Refused(reason))) => reason,
        other => panic!("{other:?}"),
    }
}

/// The peer of a handle may put to `n`, whose region is `memory`.
fn is_reached(peer: &ConnectionHandle, n: u32, memory: &ExportedRegion) {
    let put = peer.post(Put::new(
        &key(n),
        64,
        Region::from_vec(content(n.into(), 5000)),
    ));
    put.wait().expect("posted").result.expect("placed");
    let mut there = vec![0; 5000];
    memory.read(64, &mut there);
    assert!(there == content(n.into(), 5000), "content");
}

#[test]
fn export_numbered__reaches_present_and_later_connections_of_every_lane() {
    for options in [
        Options::default(),
        plain(),
        Options::default().with(|it| it.lane.choice = LaneChoice::Udp),
    ] {
        let (worker, endpoint) = listening(options.clone());
        let mut early = connect(endpoint.local_addr(), &options);
        early.put(&key(7), 0, b"too early").expect_err("no export");
        let memory = exported(Region::memfd(1 << 20));
        let done = worker.export_numbered(number(7), &memory, Rights::ALL);
        done.wait().expect("a new number");
        let mut late = connect(endpoint.local_addr(), &options);
        for (n, peer) in [(1, &mut early), (2, &mut late)] {
            // Never asked for: the key is made here.
            for len in [8, 1000, 20_000, 600_000] {
                peer.put(&key(7), 4096, &content(n, len)).expect("put");
                let mut back = vec![0; len];
                let from = RegionKey::numbered(number(7), 96);
                peer.get(&from, 4000, &mut back).expect("got");
                assert!(back == content(n, len), "content");
            }
            assert_eq!(peer.fetch_add(&key(7), 8, 1).expect("added"), n - 1);
        }
        assert_eq!(memory.word(8).load(Ordering::SeqCst), 2);
        for peer in [early, late] {
            peer.close().expect("closed");
        }
        worker.stop().expect("stopped");
    }
}

#[test]
fn export_numbered__holds_both_ways_and_for_connections_that_are_adopted() {
    let (there, endpoint) = listening(Options::default());
    let (here, memory_there) = (Worker::new().expect("descriptors"), memory());
    let here = here.spawn().expect("a thread");
    let done = there.export_numbered(number(1), &memory_there, Rights::ALL);
    done.wait().expect("a new number");
    let (before, after) = (memory(), memory());
    let done = here.export_numbered(number(2), &before, Rights::ALL);
    done.wait().expect("a new number");
    let made = here.connect(endpoint.local_addr(), &Options::default());
    let made = made.wait().expect("connected");
    let accepted = endpoint.accept().wait().expect("accepted");
    let adopted = connect(endpoint.local_addr(), &Options::default());
    let adopted = here.adopt(adopted).wait().expect("adopted");
    let accepted_too = endpoint.accept().wait().expect("accepted");
    let done = here.export_numbered(number(3), &after, Rights::ALL);
    done.wait().expect("a new number");
    for (connector, acceptor) in [(&made, &accepted), (&adopted, &accepted_too)] {
        is_reached(connector, 1, &memory_there);
        is_reached(acceptor, 2, &before);
        is_reached(acceptor, 3, &after);
        let nothing = connector.post(Put::new(&key(2), 0, Region::from_vec(vec![1])));
        let result = nothing.wait().expect("posted").result;
        assert_eq!(result, Err(TransferError::Refused(Reason::Unknown)));
    }
}

#[test]
fn export_numbered__holds_for_requests_posted_before_the_connection() {
    let (there, endpoint) = listening(Options::default());
    let memory = memory();
    let done = there.export_numbered(number(1), &memory, Rights::ALL);
    done.wait().expect("a new number");
    let mut here = Worker::new().expect("descriptors");
    let id = here
        .connect(endpoint.local_addr(), &Options::default())
        .expect("a socket");
    let connection = here.connection(id).expect("begun");
    let put = connection.post(Put::new(&key(1), 0, Region::from_vec(content(5, 100))));
    put.expect("posted");
    let here = here.spawn().expect("a thread");
    let accepted = endpoint.accept().wait().expect("accepted");
    let end = std::time::Instant::now() + PATIENCE;
    let mut placed = vec![0; 100];
    while placed != content(5, 100) {
        assert!(std::time::Instant::now() < end, "not in time");
        std::thread::sleep(Duration::from_millis(1));
        memory.read(0, &mut placed);
    }
    drop((accepted, here));
}

#[test]
fn export_numbered__holds_at_whichever_address_answers() {
    let (_there, endpoint) = listening(Options::default());
    let silent = UdpSocket::bind(anywhere()).expect("a port");
    let addresses = vec![silent.local_addr().expect("bound"), endpoint.local_addr()];
    let hasty = Options::default().with(|it| it.times.connect = Duration::from_millis(200));
    let mut here = Worker::new().expect("descriptors");
    let (before, meanwhile) = (memory(), memory());
    here.export_numbered(number(2), &before, Rights::ALL)
        .expect("a new number");
    here.connect(addresses, &hasty).expect("begun");
    here.export_numbered(number(3), &meanwhile, Rights::ALL)
        .expect("a new number");
    let here = here.spawn().expect("a thread");
    let accepted = endpoint.accept().wait_for(PATIENCE).expect("in time");
    let accepted = accepted.expect("accepted");
    is_reached(&accepted, 2, &before);
    is_reached(&accepted, 3, &meanwhile);
    drop(here);
}

#[test]
fn key__of_a_number_is_refused_at_any_offset_outside() {
    let last = RegionNumber::new(RegionNumber::END - 1).expect("the last");
    for (options, region) in [
        (Options::default(), Region::memfd(4096)),
        (plain(), Region::anonymous(4096)),
    ] {
        let (worker, endpoint) = listening(options.clone());
        let memory = exported(region);
        let done = worker.export_numbered(last, &memory, Rights::ALL).wait();
        done.expect("a new number");
        let mut peer = connect(endpoint.local_addr(), &options);
        let most = (1 << RegionKey::OFFSET_BITS) - 1;
        assert_eq!(
            RegionKey::from_u64(u64::MAX),
            RegionKey::numbered(last, most)
        );
        assert_eq!(RegionKey::numbered(last, most).to_u64(), Some(u64::MAX));
        assert_eq!(RegionKey::numbered(last, most + 1).to_u64(), None);
        for from in [0, 4096, most - 7, most + 1, 1 << 63, u64::MAX - 7, u64::MAX] {
            let key = RegionKey::numbered(last, from);
            for at in [0, 4096 - 7, 4096, most + 1, u64::MAX - 7] {
                if from == 0 && at == 0 {
                    continue;
                }
                let results = [
                    peer.put(&key, at, &[1; 8]),
                    peer.get(&key, at, &mut [0; 8]),
                    peer.fetch_add(&key, at / 8 * 8, 1).map(drop),
                    peer.fetch_op_u32(&key, at / 8 * 8 + 4, FetchOp::Increment)
                        .map(drop),
                ];
                for (n, result) in results.into_iter().enumerate() {
                    let within = n > 1 && from == 0 && at == 4096 - 7;
                    let is_outside = matches!(
                        result,
                        Err(Error::Post(PostError::OutOfBounds | PostError::Misaligned)
                            | Error::Transfer(TransferError::Refused(Reason::OutOfBounds)))
                    );
                    assert!(is_outside || within, "{n} at {at} from {from}: {result:?}");
                }
            }
        }
        peer.put(&RegionKey::numbered(last, 4088), 0, &[9; 8])
            .expect("the connection goes on");
        let mut there = vec![0; 4096];
        memory.read(0, &mut there);
        assert!(there[..4088] == [0; 4088] && there[4088..] == [9; 8]);
    }
}

#[test]
fn revoke_number__and_its_reuse_under_load_leave_the_region_before_alone() {
    const TURNS: usize = 24;
    let udp = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
    let (mapped, not): (fn() -> _, fn() -> _) =
        (|| Region::memfd(1 << 20), || Region::anonymous(1 << 20));
    // A peer that is stopped amid a put to memory that it maps may go on with it: lanes.md, "Weaker cases".
    for (options, region, is_final) in [
        (Options::default(), mapped, false),
        (Options::default(), not, true),
        (udp, not, true),
    ] {
        let (worker, endpoint) = listening(options.clone());
        let regions = [(); 2].map(|()| exported(region()));
        let address = endpoint.local_addr();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let putting = std::thread::spawn(move || {
            let mut peer = connect(address, &options);
            let (mut n, mut placed, mut refused) = (0, 0, 0);
            while !ended.load(Ordering::Relaxed) {
                n += 1;
                for len in [8, 5000, 600_000] {
                    match peer.put(&key(5), 1000, &content(n, len)) {
                        Ok(()) => placed += 1,
                        Err(Error::Transfer(TransferError::Refused(
                            Reason::Unknown | Reason::Revoked,
                        ))) => refused += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            (placed, refused)
        });
        let mut before: Option<Vec<u8>> = None;
        for turn in 0..TURNS {
            let (now, last) = (&regions[turn % 2], &regions[(turn + 1) % 2]);
            let done = worker.export_numbered(number(5), now, Rights::ALL).wait();
            done.expect("free");
            std::thread::sleep(Duration::from_millis(4));
            assert!(worker.revoke_number(number(5)).wait().expect("running"));
            let read = |memory: &ExportedRegion| {
                let mut there = vec![0; 1 << 20];
                memory.read(0, &mut there);
                there
            };
            if let Some(before) = before.replace(read(now)) {
                assert!(
                    read(last) == before || !is_final,
                    "turn {turn}: a revoked region changed"
                );
            }
        }
        over.store(true, Ordering::Relaxed);
        let (placed, _) = putting.join().expect("each put is placed or refused");
        assert!(placed > 0);
    }
}

#[test]
fn revoke_number__ends_it_for_all_and_frees_the_number() {
    let (worker, endpoint) = listening(Options::default());
    let (first, next) = (memory(), memory());
    let export =
        |memory: &ExportedRegion, rights| worker.export_numbered(number(5), memory, rights).wait();
    export(&first, Rights::ALL).expect("a new number");
    let taken = export(&next, Rights::ALL).expect_err("taken");
    assert!(taken.to_string().contains("number"), "{taken}");
    let address = endpoint.local_addr();
    let mut peers = [(); 3].map(|()| connect(address, &Options::default()));
    for peer in &mut peers {
        peer.put(&key(5), 0, &[1; 8]).expect("put");
    }
    assert!(worker.revoke_number(number(5)).wait().expect("running"));
    assert!(!worker.revoke_number(number(5)).wait().expect("running"));
    for peer in &mut peers {
        assert_eq!(refusal(peer.put(&key(5), 0, &[2; 8])), Reason::Unknown);
    }
    export(&next, Rights::READ).expect("free again");
    for peer in &mut peers {
        let mut back = [9; 8];
        peer.get(&key(5), 0, &mut back).expect("got");
        assert_eq!(back, [0; 8], "of the new region");
        assert_eq!(refusal(peer.put(&key(5), 0, &[3; 8])), Reason::Denied);
        let outside = peer.get(&key(5), (1 << 20) - 7, &mut back);
        assert_eq!(refusal(outside), Reason::OutOfBounds);
        assert_eq!(refusal(peer.fetch_add(&key(5), 0, 1)), Reason::Denied);
    }
    // Revoked as memory, the number is free at once, too.
    next.end();
    export(&first, Rights::ALL).expect("free again");
    for peer in &mut peers {
        peer.put(&key(5), 8, &[4; 8]).expect("put");
    }
    let region = first.revoke().expect("the only handle");
    assert_eq!(
        region[..16],
        [1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4]
    );
}

#[test]
fn export_numbered__that_one_connection_refuses_reaches_none() {
    let (worker, endpoint) = listening(Options::default());
    let address = endpoint.local_addr();
    let mut peers = [(); 2].map(|()| connect(address, &Options::default()));
    let servers = [(); 2].map(|()| endpoint.accept().wait().expect("accepted"));
    let (own, all) = (memory(), memory());
    let of_one = servers[1].export_numbered(number(6), &own, Rights::ALL);
    assert_eq!(of_one.wait().expect("exported").to_u64(), Some(6 << 40));
    let refused = worker.export_numbered(number(6), &all, Rights::ALL).wait();
    let refused = refused.expect_err("taken");
    let taken = matches!(refused.error, Error::Post(PostError::NumberTaken));
    assert!(taken, "{refused:?}");
    let served: Vec<_> = peers
        .iter_mut()
        .filter_map(|peer| peer.put(&key(6), 0, &[1]).ok())
        .collect();
    assert_eq!(served.len(), 1, "its peer alone");
    let mut there = [0];
    own.read(0, &mut there);
    assert_eq!(there, [1]);
    // The worker goes on, and the number is free once that connection's is revoked.
    let revoked = servers[1].revoke(&key(6)).wait();
    assert!(revoked.expect("running"));
    let done = worker.export_numbered(number(6), &all, Rights::ALL);
    done.wait().expect("free now");
    for peer in &mut peers {
        peer.put(&key(6), 0, &[1]).expect("put");
    }
}

#[test]
fn export_numbered__a_released_connection_meets_its_next_workers_numbers() {
    let (front, endpoint) = listening(Options::default());
    let back = Worker::new()
        .expect("descriptors")
        .spawn()
        .expect("a thread");
    let (of_front, of_back) = (memory(), memory());
    for (worker, memory) in [(&front, &of_front), (&back, &of_back)] {
        let done = worker.export_numbered(number(1), memory, Rights::ALL);
        done.wait().expect("a new number");
    }
    let mut peer = connect(endpoint.local_addr(), &Options::default());
    peer.put(&key(1), 0, &[1]).expect("put");
    let server = endpoint.accept().wait().expect("accepted");
    let server = server.release().wait().expect("idle");
    let _server = back.adopt(server).wait().expect("adopted");
    peer.put(&key(1), 1, &[2]).expect("put");
    let mut there = [0; 2];
    of_front.read(0, &mut there);
    assert_eq!(there, [1, 0]);
    of_back.read(0, &mut there);
    assert_eq!(there, [0, 2]);
}

#[test]
fn export_numbered__a_thousand_regions_on_twenty_connections() {
    const REGIONS: u32 = 1000;
    const PEERS: u64 = 20;
    let (worker, endpoint) = listening(plain());
    let address = endpoint.local_addr();
    let connect = || connect(address, &plain());
    let mut peers: Vec<_> = (0..PEERS / 2).map(|_| connect()).collect();
    let mut rest = Region::anonymous(64 * REGIONS as usize).expect("memory");
    let memory: Vec<_> = (0..REGIONS)
        .map(|_| {
            let behind = rest.split_off(64);
            exported(Ok(std::mem::replace(&mut rest, behind)))
        })
        .collect();
    let exporting: Vec<_> = (0..)
        .zip(&memory)
        .map(|(n, it)| worker.export_numbered(number(n), it, Rights::ALL))
        .collect();
    for exporting in exporting {
        exporting.wait().expect("a new number");
    }
    peers.extend((0..PEERS / 2).map(|_| connect()));
    for (at, peer) in (0..).zip(&mut peers) {
        for n in (at..REGIONS).step_by(97) {
            peer.fetch_add(&RegionKey::from_u64(u64::from(n) << 40 | 8), 0, 1)
                .expect("added");
        }
    }
    for (n, it) in (0..).zip(&memory) {
        let expected = (0..PEERS as u32).filter(|at| n >= *at && (n - at) % 97 == 0);
        let added = it.word(8).load(Ordering::SeqCst);
        assert_eq!(added, expected.count() as u64, "{n}");
    }
}
