//! Tests that an endpoint can export as many regions as permitted, to several clients.
//!
//! A separate program, because it measures its memory.
#![allow(non_snake_case)]

use std::time::Duration;
use zerolane::worker::Worker;
use zerolane::{Connection, ExportedRegion, Options, Region, Rights};

const REGIONS: usize = 65_536;
const LEN: usize = 64;
const CLIENTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of one region exported on one connection, bytes.
const MOST_EACH: usize = 512;

fn patient() -> Options {
    Options::default().with(|it| {
        it.times.connect = PATIENCE;
        it.times.idle = PATIENCE;
    })
}

fn name(n: usize) -> String {
    format!("region {n}")
}

fn content(n: usize) -> [u8; LEN] {
    std::array::from_fn(|at| (n >> (at % 4 * 8)) as u8 ^ at as u8)
}

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn export__65536_regions_of_an_endpoint_to_each_of_its_clients() {
    let mut rest = Region::anonymous(REGIONS * LEN).unwrap();
    let memory: Vec<ExportedRegion> = (0..REGIONS)
        .map(|_| {
            let behind = rest.split_off(LEN);
            ExportedRegion::new(std::mem::replace(&mut rest, behind)).unwrap()
        })
        .collect();
    let worker = Worker::new().unwrap().spawn().unwrap();
    let endpoint = worker.listen("127.0.0.1:0", patient());
    let endpoint = endpoint.wait().unwrap();
    let exporting: Vec<_> = (0..)
        .zip(&memory)
        .map(|(n, region)| {
            region.write(0, &content(n));
            endpoint.export(&name(n), region, Rights::ALL)
        })
        .collect();
    // A client that connects earlier does not get all of them.
    for exporting in exporting {
        exporting.wait().unwrap();
    }
    let address = endpoint.local_addr();
    let before = resident();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| Connection::connect(address, &patient()).unwrap())
        .collect();
    let accepted: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let accepted = endpoint.accept().wait_for(PATIENCE);
            accepted.expect("in time").unwrap()
        })
        .collect();
    // One region each, spread over the list.
    let chosen = |client: usize| client * (REGIONS - 1) / (CLIENTS - 1);
    for (client, connection) in clients.iter_mut().enumerate() {
        connection.set_timeout(Some(PATIENCE));
        let n = chosen(client);
        let key = connection.open_region(&name(n), Rights::ALL).unwrap();
        let mut there = [0; LEN];
        connection.get(&key, 0, &mut there).unwrap();
        assert_eq!(there, content(n), "{n}");
        connection.put(&key, 0, &content(n + 1)).unwrap();
    }
    let each = resident().saturating_sub(before) / CLIENTS / REGIONS;
    eprintln!("{each} bytes a region and client");
    assert!(each <= MOST_EACH, "{each} bytes a region and client");
    // Revoking one revokes it for all clients, and returns it while the endpoint listens.
    let (mut written, mut other) = (0, 0);
    for (n, region) in memory.into_iter().enumerate() {
        let bytes = region.revoke().expect("the only handle");
        let put = (0..CLIENTS).any(|client| chosen(client) == n);
        assert_eq!(bytes[..], content(n + usize::from(put)), "{n}");
        match put {
            true => written += 1,
            false => other += 1,
        }
    }
    assert_eq!((written, other), (CLIENTS, REGIONS - CLIENTS));
    for connection in &mut clients {
        let gone = connection.open_region(&name(chosen(0)), Rights::READ);
        assert!(gone.is_err(), "{gone:?}");
    }
    for connection in clients {
        connection.close().unwrap();
    }
    drop(accepted);
    worker.stop().unwrap();
}
