//! Tests that workers in threads of their own serve peers while the program does something else.

use super::handles::{pair, spawned};
use super::{PATIENCE, anywhere, content, region};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::failure::TransferError;
use zerolane::request::{OpenRegion, Put};
use zerolane::{Connection, Error, ExportedRegion, FetchOp, Options, Region, Rights};

#[test]
fn spawn__serves_peers_while_its_owner_sleeps_for_several_idle_timeouts() {
    let brief = Options::default().with(|it| it.times.idle = Duration::from_secs(3));
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), brief.clone()).wait();
    let endpoint = endpoint.expect("a port");
    let memory = ExportedRegion::new(Region::anonymous(1 << 16).expect("memory"));
    let memory = memory.expect("page-aligned");
    let exported = endpoint.export("m", &memory, Rights::ALL).wait();
    exported.expect("an endpoint");
    let address = endpoint.local_addr();
    let options = brief.clone();
    let waiting = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &options)?;
        let mut word = [0; 8];
        connection.recv_into(&mut word)?;
        connection.close()?;
        Ok::<_, Error>(word)
    });
    let waited_for = endpoint.accept().wait().expect("accepted");
    let asleep = Arc::new(AtomicBool::new(true));
    let sleeps = Arc::clone(&asleep);
    let using = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &brief)?;
        let key = connection.open_region("m", Rights::ALL)?;
        let mut rounds = 0;
        while rounds == 0 || sleeps.load(Ordering::Acquire) {
            let bytes = content(rounds, 5000);
            connection.put(&key, 64, &bytes)?;
            let mut back = vec![0; bytes.len()];
            connection.get(&key, 64, &mut back)?;
            assert!(back == bytes, "content");
            assert_eq!(connection.fetch_op(&key, 0, FetchOp::Increment)?, rounds);
            rounds += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        connection.close()?;
        Ok::<_, Error>(rounds)
    });
    // The owner makes no call for its peers.
    std::thread::sleep(Duration::from_secs(7));
    asleep.store(false, Ordering::Release);
    let rounds = using.join().expect("no panic").expect("served");
    assert_eq!(memory.word(0).load(Ordering::Acquire), rounds);
    let sent = waited_for.send(region(3, 8)).wait().expect("it lives");
    sent.result.expect("sent");
    let word = waiting.join().expect("no panic").expect("it lives");
    assert_eq!(word[..], content(3, 8));
}

/// One accepts for all, and hands connections over with everything that their clients have sent by then.
#[test]
fn release__and_adopt_share_a_port_among_spawned_workers() {
    const CLIENTS: u64 = 8;
    let front = spawned();
    let others = [spawned(), spawned()];
    let endpoint = front.listen(anywhere(), Options::default()).wait();
    let endpoint = endpoint.expect("a port");
    let address = endpoint.local_addr();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &Options::default())?;
                connection.set_timeout(Some(PATIENCE));
                for round in 0..20 {
                    let bytes = content(100 * n + round, 1 << (round + 1));
                    connection.send(&bytes)?;
                    let mut back = vec![0; bytes.len()];
                    connection.recv_into(&mut back)?;
                    assert!(back == bytes, "content");
                }
                connection.close()
            })
        })
        .collect();
    let mut threads = Vec::new();
    for n in 0..CLIENTS as usize {
        let accepted = endpoint.accept().wait().expect("accepted");
        let connection = accepted.release().wait().expect("nothing was asked for");
        let again = accepted.release().wait().expect_err("it is gone");
        assert!(matches!(again.error, Error::Closed(_)));
        let adopted = others[n % others.len()].adopt(connection).wait();
        let connection = adopted.expect("adopted");
        threads.push(std::thread::spawn(move || {
            loop {
                let room = Region::anonymous(1 << 20).expect("memory");
                let Ok(received) = connection.recv(room).wait() else {
                    return;
                };
                let Ok(len) = received.result else { return };
                let mut bytes = received.into_region().expect("a region");
                drop(bytes.split_off(len));
                connection.send(bytes).detach();
            }
        }));
    }
    for client in clients {
        client.join().expect("no panic").expect("served");
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn release__with_requests_that_are_not_over_is_refused_and_loses_nothing() {
    let (front, other) = (spawned(), spawned());
    let (_endpoint, client, server) = pair(&front);
    let receiving = server.recv(region(1, 64));
    let refused = server.release().wait().expect_err("it waits");
    assert!(matches!(refused.error, Error::InUse), "{refused}");
    client.send(region(3, 64)).wait().expect("sent");
    let received = receiving.wait().expect("posted");
    assert!(
        received.into_region().expect("a region")[..] == content(3, 64),
        "content"
    );
    let released = server.release().wait().expect("nothing is asked for");
    let server = other.adopt(released).wait().expect("adopted");
    let receiving = server.recv(region(1, 64));
    client.send(region(4, 64)).wait().expect("sent");
    let received = receiving.wait().expect("posted");
    assert!(
        received.into_region().expect("a region")[..] == content(4, 64),
        "content"
    );
}

#[test]
fn revoke_region__ends_an_endpoints_export_for_one_peer() {
    let (worker, clients) = (spawned(), spawned());
    let endpoint = worker.listen(anywhere(), Options::default()).wait();
    let endpoint = endpoint.expect("a port");
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    let other = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let other = other.expect("page-aligned");
    for (name, region) in [("m", &memory), ("again", &memory), ("other", &other)] {
        let exported = endpoint.export(name, region, Rights::ALL).wait();
        exported.expect("an endpoint");
    }
    let mut ends = Vec::new();
    for _ in 0..3 {
        let client = clients.connect(endpoint.local_addr(), &Options::default());
        let client = client.wait().expect("connected");
        let server = endpoint.accept().wait().expect("accepted");
        let keys = ["m", "again", "other"].map(|name| {
            let opened = client.post(OpenRegion::new(name, Rights::ALL)).wait();
            opened.expect("posted").key().expect("opened")
        });
        ends.push((client, server, keys));
    }
    assert!(ends[1].1.revoke_region(&memory).wait().expect("open"));
    assert!(!ends[1].1.revoke_region(&memory).wait().expect("open"));
    for (n, (client, _, keys)) in ends.iter().enumerate() {
        for (key, of_it) in keys.iter().zip([true, true, false]) {
            let put = client.post(Put::new(key, 64, region(n as u64, 8))).wait();
            let result = put.expect("posted").result;
            match n == 1 && of_it {
                true => assert!(
                    matches!(result, Err(TransferError::Refused(_))),
                    "{result:?}"
                ),
                false => assert_eq!(result, Ok(8)),
            }
        }
        let opened = client.post(OpenRegion::new("m", Rights::ALL)).wait();
        assert_eq!(opened.expect("posted").result.is_ok(), n != 1);
    }
    let mut there = [0; 8];
    memory.read(64, &mut there);
    assert_eq!(there[..], content(2, 8));
    // And for all peers.
    drop(memory.revoke());
    let put = ends[0]
        .0
        .post(Put::new(&ends[0].2[0], 64, region(1, 8)))
        .wait();
    assert!(put.expect("posted").result.is_err());
}
