//! Tests that a worker runs as a tokio task, and that its futures can be dropped at any moment.

use super::over::Mappings;
use super::{PATIENCE, anywhere, content, region};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use zerolane::request::{Fetch, Get, Message, OpenRegion, Put, ReceiveMessage};
use zerolane::worker::{Worker, WorkerHandle};
use zerolane::{ExportedRegion, FetchOp, Options, Region, Rights};

fn begin() -> (WorkerHandle, tokio::task::JoinHandle<zerolane::Result<()>>) {
    let worker = Worker::new().expect("descriptors");
    (worker.handle(), tokio::spawn(worker.run()))
}

async fn everything() {
    let (worker, running) = begin();
    let endpoint = worker.listen(anywhere(), Options::default()).await;
    let endpoint = endpoint.expect("a port");
    let address = endpoint.local_addr();
    let server = tokio::spawn(async move {
        let connection = endpoint.accept().await?;
        let memory = ExportedRegion::new(Region::anonymous(1 << 16)?).expect("page-aligned");
        connection.export_named("m", &memory, Rights::ALL).await?;
        let received = connection.recv(Region::anonymous(200_000)?).await?;
        let len = received.result?;
        let mut bytes = received.into_region().expect("a region");
        drop(bytes.split_off(len));
        connection.send(bytes).await?.result?;
        let immediate = connection.immediate().await?;
        let message = connection
            .post(ReceiveMessage::new().payload(Region::anonymous(100)?))
            .await?;
        assert_eq!(message.control(), Some(&b"control"[..]));
        let payload = message.into_region().expect("a region");
        assert!(payload[..10] == content(4, 10));
        let mut placed = vec![0; 5000];
        memory.read(8, &mut placed);
        assert!(placed == content(3, 5000), "content");
        connection.close().await?;
        Ok::<u32, zerolane::Error>(immediate.number)
    });
    let client = worker.connect(address, &Options::default()).await;
    let client = client.expect("connected");
    let sent = client.send(region(1, 150_000)).await.expect("posted");
    sent.result.expect("sent");
    let back = client
        .recv(Region::anonymous(150_000).expect("memory"))
        .await;
    assert!(back.expect("posted").into_region().expect("a region")[..] == content(1, 150_000));
    let opened = client
        .post(OpenRegion::new("m", Rights::ALL))
        .await
        .expect("posted");
    let key = opened.key().expect("opened");
    let put = client
        .post(Put::new(&key, 8, region(3, 5000)).immediate(77))
        .await;
    put.expect("posted").result.expect("put");
    let into = Region::anonymous(5000).expect("memory");
    let got = client.post(Get::new(&key, 8, into)).await;
    assert!(got.expect("posted").into_region().expect("a region")[..] == content(3, 5000));
    let added = client.post(Fetch::new(&key, 0, FetchOp::Add(5))).await;
    assert_eq!(added.expect("posted").before(), Some(0));
    let message = client.post(Message::new(b"control").payload(region(4, 10)));
    message.await.expect("posted").result.expect("sent");
    assert_eq!(server.await.expect("no panic").expect("served"), 77);
    worker.stop();
    running.await.expect("no panic").expect("stopped");
}

#[tokio::test]
async fn run__everything_in_one_thread() {
    timeout(PATIENCE, everything()).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run__everything_in_several_threads() {
    timeout(PATIENCE, everything()).await.expect("in time");
}

#[tokio::test]
async fn recv__given_up_in_a_select_loses_nothing() {
    let (worker, _running) = begin();
    let endpoint = worker.listen(anywhere(), Options::default()).await;
    let endpoint = endpoint.expect("a port");
    let connecting = worker.connect(endpoint.local_addr(), &Options::default());
    let client = connecting.await.expect("connected");
    let server = endpoint.accept().await.expect("accepted");
    const COUNT: u64 = 100;
    let sending = tokio::spawn(async move {
        for n in 0..COUNT {
            // A receive given up just when it matched fails the send.
            while client
                .send(region(n, 32))
                .await
                .expect("posted")
                .result
                .is_err()
            {}
        }
        client
    });
    let mut next = 0;
    while next < COUNT {
        let receive = server.recv(Region::anonymous(32).expect("memory"));
        let brief = Duration::from_micros(next % 5 * 100);
        match timeout(brief, receive).await {
            Err(_) => {}
            Ok(received) => {
                let received = received.expect("posted");
                assert_eq!(received.result, Ok(32));
                assert!(
                    received.into_region().expect("a region")[..] == content(next, 32),
                    "{next}"
                );
                next += 1;
            }
        }
        // Bounded by the total time.
        if next % 5 == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(sending.await.expect("no panic"));
}

/// Each arrives whole and in order, or not at all; its memory comes back, and the connection continues.
#[tokio::test]
async fn send__given_up_arrives_once_or_not_at_all() {
    const ROUNDS: u64 = 120;
    /// Eager, and granted.
    const LENGTHS: [usize; 2] = [1_000, 50_000];
    let of_round = |round: u64| {
        let mut bytes = content(round, LENGTHS[round as usize % 2]);
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        bytes
    };
    let (worker, _running) = begin();
    let endpoint = worker.listen(anywhere(), Options::default()).await;
    let endpoint = endpoint.expect("a port");
    let connecting = worker.connect(endpoint.local_addr(), &Options::default());
    let client = connecting.await.expect("connected");
    let server = endpoint.accept().await.expect("accepted");
    let receiving = tokio::spawn(async move {
        let mut came = vec![];
        while came.last() != Some(&ROUNDS) {
            let into = Region::anonymous(LENGTHS[1]).expect("memory");
            let received = server.recv(into).await.expect("posted");
            // It matched a receive that was given up.
            let Ok(len) = received.result else { continue };
            let bytes = received.into_region().expect("a region");
            let round = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            assert!(bytes[..len] == of_round(round), "content of {round}");
            came.push(round);
        }
        came
    });
    let used: Vec<_> = LENGTHS.into_iter().map(Mappings::of).collect();
    let (mut done, mut given_up) = (vec![], 0);
    for round in 0..=ROUNDS {
        let memory = &used[round as usize % 2];
        // One at a time uses the file's bytes.
        emptied(memory).await;
        let mut region = memory.region();
        region.copy_from_slice(&of_round(round));
        let sending = client.send(region);
        let patience = match round {
            ROUNDS => PATIENCE,
            _ => moment(round / 2),
        };
        match timeout(patience, sending).await {
            Ok(sent) => {
                sent.expect("posted").result.expect("sent");
                done.push(round);
            }
            Err(_) => given_up += 1,
        }
    }
    assert!(given_up > 0, "all were done in no time");
    let came = timeout(PATIENCE, receiving).await.expect("in time");
    let came = came.expect("no panic");
    assert!(came.is_sorted_by(|a, b| a < b), "{came:?}");
    assert!(done.iter().all(|it| came.contains(it)), "{done:?} {came:?}");
    for memory in &used {
        emptied(memory).await;
    }
}

/// Waits until no region of `used` is left.
async fn emptied(used: &Mappings) {
    let end = Instant::now() + PATIENCE;
    while used.count() > 0 {
        assert!(Instant::now() < end, "{} regions are left", used.count());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// At a different moment each time: before, while and after it is done.
fn moment(round: u64) -> Duration {
    Duration::from_micros(round % 8 * 40)
}

#[tokio::test]
async fn connect__given_up_leaves_no_connection_and_the_next_one_stands() {
    let (worker, _running) = begin();
    let endpoint = worker.listen(anywhere(), Options::default()).await;
    let endpoint = endpoint.expect("a port");
    for round in 0..40 {
        let connecting = worker.connect(endpoint.local_addr(), &Options::default());
        drop(timeout(moment(round) * 4, connecting).await);
    }
    let connecting = worker.connect(endpoint.local_addr(), &Options::default());
    let client = connecting.await.expect("connected");
    let sending = tokio::spawn(async move { client.send(region(3, 32)).await });
    // Some connections that were given up were still accepted: they have ended.
    let received = loop {
        let accepting = timeout(PATIENCE, endpoint.accept()).await;
        let server = accepting.expect("in time").expect("accepted");
        let into = Region::anonymous(32).expect("memory");
        if let Ok(received) = timeout(PATIENCE, server.recv(into)).await.expect("in time")
            && received.result.is_ok()
        {
            break received;
        }
    };
    assert!(
        received.into_region().expect("a region")[..] == content(3, 32),
        "content"
    );
    drop(sending.await.expect("no panic"));
}

/// Puts, gets and atomic operations that are given up: each is done once or not at all, its memory comes back, and the
/// connection continues.
#[tokio::test]
async fn remote_memory__requests_given_up_are_done_once_or_not_at_all() {
    const ROUNDS: u64 = 200;
    let (worker, _running) = begin();
    let endpoint = worker.listen(anywhere(), Options::default()).await;
    let endpoint = endpoint.expect("a port");
    let connecting = worker.connect(endpoint.local_addr(), &Options::default());
    let client = connecting.await.expect("connected");
    let server = endpoint.accept().await.expect("accepted");
    let memory = ExportedRegion::new(Region::anonymous(1 << 16).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = server.export(&memory, Rights::ALL).await.expect("exported");
    let used = Mappings::new();
    let (mut counted, mut given_up) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let put = client.post(Put::new(&key, 8192, used.region()));
        let get = client.post(Get::new(&key, 16_384, used.region()));
        let add = client.post(Fetch::new(&key, 0, FetchOp::Increment));
        let over = timeout(moment(round), async { (put.await, get.await, add.await) });
        match over.await {
            Ok((put, get, add)) => {
                put.expect("posted").result.expect("put");
                get.expect("posted").result.expect("got");
                counted.push(add.expect("posted").before().expect("added"));
            }
            Err(_) => given_up += 1,
        }
    }
    assert!(given_up > 0, "all were done in no time");
    let bytes = content(5, 9000);
    let put = client.post(Put::new(&key, 8192, region(5, 9000))).await;
    put.expect("posted").result.expect("put");
    let into = Region::anonymous(9000).expect("memory");
    let got = client.post(Get::new(&key, 8192, into)).await;
    assert!(
        got.expect("posted").into_region().expect("a region")[..] == bytes,
        "content"
    );
    let last = client.post(Fetch::new(&key, 0, FetchOp::Increment)).await;
    counted.push(last.expect("posted").before().expect("added"));
    assert!(counted.is_sorted_by(|a, b| a < b), "{counted:?}");
    assert!(counted.len() as u64 <= counted[counted.len() - 1] + 1);
    assert!(counted[counted.len() - 1] <= ROUNDS, "{counted:?}");
    emptied(&used).await;
}
