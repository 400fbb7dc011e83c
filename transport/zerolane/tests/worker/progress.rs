//! Tests that a worker called by its user makes progress and reports events.

use super::{PATIENCE, anywhere, content, plain, region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};
use zerolane::request::{Message, Put, Receive, ReceiveMessage, Transfer, WorkKind};
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane::{Connection, Error, ExportedRegion, Options, Region, Rights};

fn listening(options: Options) -> (Worker, EndpointId, std::net::SocketAddr) {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker.listen(anywhere(), options).expect("a port");
    let address = worker.endpoint(endpoint).expect("listens").local_addr();
    (worker, endpoint, address)
}

/// Takes events of `worker` until one is `wanted`, whose value is returned.
fn until<T>(worker: &mut Worker, mut wanted: impl FnMut(&mut Worker, Event) -> Option<T>) -> T {
    let mut end = Instant::now() + PATIENCE;
    loop {
        worker
            .wait(Some(Duration::from_millis(100)))
            .expect("the system allows it");
        while let Some(event) = worker.next_event() {
            if let Some(found) = wanted(worker, event) {
                return found;
            }
            end = Instant::now() + PATIENCE;
        }
        assert!(Instant::now() < end, "nothing in time");
    }
}

/// An echo server of Transfers up to 64 KiB, until `clients` have closed.
fn echo(worker: &mut Worker, clients: usize) {
    let mut left = clients;
    let buffer = || Region::anonymous(64 << 10).expect("memory");
    while left > 0 {
        until(worker, |worker, event| match event {
            Event::Accepted { connection, .. } => {
                let connection = worker.connection(connection).expect("just accepted");
                connection.post_recv(buffer()).expect("posted");
                None
            }
            Event::Completed {
                connection,
                completion,
            } => {
                let Ok(len) = completion.result else {
                    return None;
                };
                if completion.kind() == WorkKind::Receive {
                    let connection = worker.connection(connection)?;
                    let mut bytes = completion.into_region().expect("a region");
                    drop(bytes.split_off(len));
                    connection.post_send(bytes).expect("posted");
                    connection.post_recv(buffer()).expect("posted");
                }
                None
            }
            Event::Closed { .. } => Some(()),
            _ => None,
        });
        left -= 1;
    }
}

#[test]
fn wait__serves_many_clients_that_drive_themselves() {
    const CLIENTS: usize = 20;
    for options in [Options::default(), plain()] {
        let (mut worker, _, address) = listening(options.clone());
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|n| {
                let options = options.clone();
                std::thread::spawn(move || {
                    let mut connection = Connection::connect(address, &options)?;
                    for round in 0..10 {
                        let bytes = content(n * 100 + round, 1 + (n * 3571) as usize % 60_000);
                        connection.send(&bytes)?;
                        let mut back = vec![0; 64 << 10];
                        let len = connection.recv_into(&mut back)?;
                        assert!(back[..len] == bytes, "content");
                    }
                    connection.close()
                })
            })
            .collect();
        echo(&mut worker, CLIENTS);
        for client in clients {
            client.join().expect("no panic").expect("served");
        }
        assert_eq!(worker.connections(), 0);
    }
}

#[test]
fn connect__both_ends_in_one_worker_and_one_thread() {
    const PAIRS: usize = 50;
    let (mut worker, _, address) = listening(Options::default());
    let mut ours: HashMap<ConnectionId, u64> = HashMap::new();
    for n in 0..PAIRS as u64 {
        let id = worker.connect(address, &Options::default()).expect("begun");
        // Posted before it is connected: it waits.
        let connection = worker.connection(id).expect("not over");
        connection
            .post(Transfer::new(region(n, 5000)).context(n))
            .expect("posted");
        ours.insert(id, n);
    }
    let (mut received, mut sent, mut connected) = (vec![], 0, 0);
    while received.len() < PAIRS || sent < PAIRS || connected < PAIRS {
        until(&mut worker, |worker, event| {
            match event {
                Event::Accepted { connection, .. } => {
                    let connection = worker.connection(connection).expect("just accepted");
                    let memory = Region::anonymous(5000).expect("memory");
                    connection.post_recv(memory).expect("posted");
                }
                Event::Connected { connection } => {
                    assert!(ours.contains_key(&connection));
                    connected += 1;
                }
                Event::Completed {
                    connection,
                    completion,
                } => match completion.kind() {
                    WorkKind::Receive => {
                        received.push(completion.into_region().expect("a region").to_vec())
                    }
                    _ => {
                        assert_eq!(ours[&connection], completion.context);
                        sent += 1;
                    }
                },
                _ => return None,
            }
            Some(())
        });
    }
    received.sort();
    let mut expected: Vec<_> = (0..PAIRS as u64).map(|n| content(n, 5000)).collect();
    expected.sort();
    assert!(received == expected, "content");
}

#[test]
fn connect__refused_or_unanswered_is_an_event() {
    let mut worker = Worker::new().expect("descriptors");
    let silent = std::net::UdpSocket::bind(anywhere()).expect("a port");
    let options = Options::default().with(|it| it.times.connect = Duration::from_millis(50));
    let to = silent.local_addr().expect("bound");
    let id = worker.connect(to, &options).expect("begun");
    worker
        .connection(id)
        .expect("begun")
        .post(Transfer::new(region(1, 10)).context(5))
        .expect("posted");
    let mut failed = 0;
    let reason = until(&mut worker, |_, event| match event {
        Event::Completed { completion, .. } => {
            assert!(completion.result.is_err());
            assert_eq!(completion.context, 5);
            failed += 1;
            None
        }
        Event::Closed { connection, reason } => {
            assert_eq!(connection, id);
            Some(reason)
        }
        _ => None,
    });
    assert_eq!(failed, 1, "each request completes once");
    assert!(matches!(reason, Error::ConnectTimeout(_)), "{reason}");
    assert!(worker.connection(id).is_none());
}

#[test]
fn arm__the_descriptor_tells_of_datagrams_timers_and_wakers() {
    let (mut worker, _, address) = listening(Options::default());
    let watched = |worker: &Worker, milliseconds: u64| {
        let timeout = Timespec::try_from(Duration::from_millis(milliseconds)).expect("short");
        let mut fds = [PollFd::new(worker, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).expect("polled") == 1
    };
    while worker.progress().expect("allowed") {}
    assert!(worker.arm().expect("allowed"));
    assert!(!watched(&worker, 0), "nothing there");

    worker.waker().wake();
    assert!(watched(&worker, 10_000), "a waker");
    while worker.progress().expect("allowed") {}
    assert!(worker.arm().expect("allowed"));
    assert!(!watched(&worker, 0), "and is clear again");
    worker.waker().wake();
    worker.progress().expect("allowed");
    worker.waker().wake();
    assert!(!worker.arm().expect("allowed"), "woken before: no sleep");

    let silent = std::net::UdpSocket::bind(anywhere()).expect("a port");
    let options = Options::default().with(|it| it.times.connect = Duration::from_millis(30));
    let to = silent.local_addr().expect("bound");
    worker.connect(to, &options).expect("begun");
    let end = Instant::now() + PATIENCE;
    let ended = loop {
        assert!(Instant::now() < end);
        while worker.progress().expect("allowed") {}
        if let Some(Event::Closed { .. }) = worker.next_event() {
            break true;
        }
        if worker.arm().expect("allowed") {
            assert!(watched(&worker, 10_000), "its timers");
        }
    };
    assert!(ended);

    // A whole exchange by the descriptor alone.
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        connection.send(&content(3, 100_000))?;
        connection.close()
    });
    let end = Instant::now() + PATIENCE;
    let mut received = None;
    while received.is_none() {
        assert!(Instant::now() < end);
        while worker.progress().expect("allowed") {}
        match worker.next_event() {
            Some(Event::Accepted { connection, .. }) => {
                let memory = Region::anonymous(100_000).expect("memory");
                let connection = worker.connection(connection).expect("just accepted");
                connection.post_recv(memory).expect("posted");
            }
            Some(Event::Completed { completion, .. }) => {
                received = Some(completion.into_region().expect("a region"));
            }
            Some(_) => {}
            None => {
                if worker.arm().expect("allowed") {
                    watched(&worker, 1000);
                }
            }
        }
    }
    assert!(received.expect("received")[..] == content(3, 100_000));
    until(&mut worker, |_, event| match event {
        Event::Closed { .. } => Some(()),
        _ => None,
    });
    client.join().expect("no panic").expect("closed");
}

#[test]
fn release__and_adopt_move_a_connection_between_loops() {
    let (mut first, _, address) = listening(Options::default());
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        for n in 0..3 {
            connection.send(&content(n, 1000))?;
        }
        connection.close()
    });
    let id = until(&mut first, |_, event| match event {
        Event::Accepted { connection, .. } => Some(connection),
        _ => None,
    });
    assert!(
        first
            .release(ConnectionId::from_u64(id.to_u64() ^ 7))
            .is_none()
    );
    let mut connection = first.release(id).expect("connected");
    assert!(first.connection(id).is_none());
    let mut bytes = vec![0; 1000];
    connection.recv_into(&mut bytes).expect("driven by itself");
    assert!(bytes == content(0, 1000), "content");

    let mut second = Worker::new().expect("descriptors");
    let id = second.adopt(connection).expect("watched");
    for n in 1..3 {
        let memory = Region::anonymous(1000).expect("memory");
        let connection = second.connection(id).expect("adopted");
        connection
            .post(Receive::new(memory).context(n))
            .expect("posted");
    }
    let mut next = 1;
    until(&mut second, |_, event| match event {
        Event::Completed { completion, .. } => {
            assert_eq!(completion.context, next);
            assert!(completion.into_region().expect("a region")[..] == content(next, 1000));
            next += 1;
            None
        }
        Event::Closed { .. } => Some(()),
        _ => None,
    });
    assert_eq!(next, 3);
    client.join().expect("no panic").expect("closed");
}

#[test]
fn close__sends_what_was_posted_and_completes_everything_once() {
    let (mut worker, _, address) = listening(Options::default());
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        let mut bytes = vec![0; 1 << 20];
        let len = connection.recv_into(&mut bytes)?;
        assert!(bytes[..len] == content(8, 1 << 20), "content");
        let end = connection.wait(Some(PATIENCE)).map(zerolane::Waited::got);
        assert!(matches!(end, Err(Error::Closed(_))), "{end:?}");
        Ok::<(), Error>(())
    });
    let mut completed = vec![];
    until(&mut worker, |worker, event| match event {
        Event::Accepted { connection: id, .. } => {
            let connection = worker.connection(id).expect("just accepted");
            connection
                .post(Transfer::new(region(8, 1 << 20)).context(1))
                .expect("posted");
            connection
                .post(Receive::new(region(0, 10)).context(2))
                .expect("posted");
            assert!(worker.close(id));
            None
        }
        Event::Completed { completion, .. } => {
            completed.push((completion.context, completion.result.is_ok()));
            None
        }
        Event::Closed { connection, .. } => {
            assert!(!worker.close(connection) || worker.connections() == 1);
            Some(())
        }
        _ => None,
    });
    completed.sort_unstable();
    assert_eq!(completed, [(1, true), (2, false)]);
    client.join().expect("no panic").expect("received");
}

#[test]
fn next_event__completions_beyond_the_limit_wait_with_their_connection() {
    const PUTS: u32 = 6000;
    let (mut worker, endpoint, address) = listening(Options::default());
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    worker
        .export(endpoint, "m", &memory, Rights::ALL)
        .expect("an endpoint");
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        let key = connection.open_region("m", Rights::ALL)?;
        for n in 0..PUTS {
            connection.put_with_immediate(&key, 0, &n.to_le_bytes(), n)?;
        }
        connection.close()
    });
    // Events are not taken for a while: as many as fit are kept, and the client waits.
    let end = Instant::now() + Duration::from_millis(700);
    while Instant::now() < end {
        worker.progress().expect("allowed");
    }
    let mut next = 0;
    until(&mut worker, |_, event| match event {
        Event::Completed { completion, .. } => {
            assert_eq!(completion.immediate().map(|it| it.number), Some(next));
            next += 1;
            None
        }
        Event::Closed { .. } => Some(()),
        _ => None,
    });
    assert_eq!(next, PUTS);
    client.join().expect("no panic").expect("all of them");
}

#[test]
fn export__every_client_uses_what_the_endpoint_exports_until_it_is_revoked() {
    let (mut worker, endpoint, address) = listening(Options::default());
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    worker
        .export(endpoint, "shared", &memory, Rights::ALL)
        .expect("an endpoint");
    let too_long = "n".repeat(33);
    let refused = worker.export(endpoint, &too_long, &memory, Rights::ALL);
    assert!(matches!(refused, Err(Error::NameLength { len: 33 })));
    let clients: Vec<_> = (0..8)
        .map(|n| {
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &Options::default())?;
                let key = connection.open_region("shared", Rights::ALL)?;
                connection.put(&key, 8 + n * 64, &content(n, 64))?;
                connection.fetch_add(&key, 0, n)?;
                connection.close()
            })
        })
        .collect();
    for _ in 0..8 {
        until(&mut worker, |_, event| match event {
            Event::Closed { .. } => Some(()),
            _ => None,
        });
    }
    for client in clients {
        client.join().expect("no panic").expect("served");
    }
    let region = memory
        .revoke()
        .expect("the only handle, though the endpoint listens");
    assert_eq!(region[..8], 28u64.to_ne_bytes(), "added");
    for n in 0..8 {
        let at = 8 + n * 64;
        assert!(region[at..at + 64] == content(n as u64, 64), "{n}");
    }
    // The name is free again; and a region without a handle is still served.
    let mut region = region;
    region[..8].copy_from_slice(&7u64.to_ne_bytes());
    let memory = ExportedRegion::new(region).expect("page-aligned");
    worker
        .export(endpoint, "shared", &memory, Rights::ALL)
        .expect("an endpoint");
    drop(memory);
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        let key = connection.open_region("shared", Rights::ALL)?;
        let before = connection.fetch_add(&key, 0, 1)?;
        connection.close()?;
        Ok::<_, Error>(before)
    });
    until(&mut worker, |_, event| match event {
        Event::Closed { .. } => Some(()),
        _ => None,
    });
    assert_eq!(client.join().expect("no panic").expect("served"), 7);
}

#[test]
fn drop__of_a_worker_tells_its_peers() {
    let (mut worker, _, address) = listening(Options::default());
    let (connected, connects) = channel::<()>();
    let client = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default())?;
        connection.post_recv(Region::anonymous(10)?)?;
        drop(connected);
        loop {
            match connection.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
                Ok(Some(completion)) => assert!(completion.result.is_err()),
                Ok(None) => panic!("not told in time"),
                Err(error) => return Ok::<_, Error>(error),
            }
        }
    });
    until(&mut worker, |worker, event| match event {
        Event::Accepted { connection, .. } => {
            let connection = worker.connection(connection).expect("just accepted");
            connection
                .post(Put::new(
                    &zerolane::RegionKey::from_bytes([0; 24]).expect("a key"),
                    0,
                    Region::empty(),
                ))
                .ok();
            Some(())
        }
        _ => None,
    });
    // Until the client knows of its connection.
    while connects.try_recv() == Err(TryRecvError::Empty) {
        worker
            .wait(Some(Duration::from_millis(2)))
            .expect("allowed");
    }
    drop(worker);
    let told = client.join().expect("no panic").expect("told");
    let going = zerolane::failure::Reason::GoingAway;
    assert!(
        matches!(told, Error::Closed(zerolane::failure::CloseReason::Peer(it)) if it == going),
        "{told}"
    );
}

#[test]
fn next_timeout__idle_connections_have_no_timer() {
    let (mut worker, _, address) = listening(Options::default());
    let (mut accepted, mut connected) = (vec![], 0);
    for _ in 0..10 {
        worker.connect(address, &Options::default()).expect("begun");
    }
    until(&mut worker, |_, event| {
        match event {
            Event::Accepted { connection, .. } => accepted.push(connection),
            Event::Connected { .. } => connected += 1,
            other => panic!("{other:?}"),
        }
        (accepted.len() == 10 && connected == 10).then_some(())
    });
    // Leftovers of connecting: path probes, a measured round trip.
    let end = Instant::now() + PATIENCE;
    while worker.next_timeout().is_some() {
        assert!(Instant::now() < end, "{:?}", worker.next_timeout());
        worker
            .wait(Some(Duration::from_millis(10)))
            .expect("allowed");
    }
    assert!(worker.arm().expect("allowed"), "nothing to do");
    // A connection that waits for its peer sends keep-alives.
    let memory = Region::anonymous(8).expect("memory");
    let connection = worker.connection(accepted[0]).expect("open");
    connection.post_recv(memory).expect("posted");
    while worker.progress().expect("allowed") {}
    assert!(worker.next_timeout().is_some());
}

/// Clients that send requests and take no answers do not delay the others.
#[test]
fn wait__clients_that_stall_hold_no_other_back() {
    const EACH: usize = 8;
    let (mut worker, _, address) = listening(Options::default());
    let (end, ended) = channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    let (stalls, all_stall) = channel::<()>();
    let stalled: Vec<_> = (0..EACH)
        .map(|_| {
            let ended = std::sync::Arc::clone(&ended);
            let stalls = stalls.clone();
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &Options::default())?;
                for _ in 0..3 {
                    connection.post_send(region(1, 50_000))?;
                }
                while connection.in_flight() > 0 {
                    let _ = connection.wait(Some(Duration::from_millis(100)))?;
                }
                // No receives for the answers, and no further call, until the others are done.
                drop(stalls);
                let ended = ended.lock().expect("no panic");
                let _ = ended.recv();
                drop(ended);
                connection.close().or(Ok::<(), Error>(()))
            })
        })
        .collect();
    drop(stalls);
    let served = std::thread::spawn(move || {
        // Each has dropped its end when all stall.
        let _ = all_stall.recv();
        let served = (0..EACH as u64).map(|n| {
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &Options::default())?;
                for round in 0..20 {
                    let bytes = content(n * 100 + round, 30_000);
                    connection.send(&bytes)?;
                    let mut back = vec![0; 64 << 10];
                    let len = connection.recv_into(&mut back)?;
                    assert!(back[..len] == bytes, "content");
                }
                connection.close()
            })
        });
        served.collect::<Vec<_>>()
    });
    // The stalled clients have not closed when these have.
    echo(&mut worker, EACH);
    for client in served.join().expect("no panic") {
        client.join().expect("no panic").expect("served");
    }
    assert!(worker.connections() >= EACH);
    drop(end);
    // Dropping the worker does the rest: every request completes.
    drop(worker);
    for client in stalled {
        client.join().expect("no panic").expect("ended");
    }
}

/// Whatever the number of requests by handles, a call ends soon, and says that there is more.
#[test]
fn progress__begins_a_bounded_number_of_requests() {
    const ASKED: usize = 10_000;
    let (mut worker, _, address) = listening(Options::default());
    let mut connecting = worker.handle().connect(address, &Options::default());
    let client = loop {
        worker
            .wait(Some(Duration::from_millis(1)))
            .expect("allowed");
        while worker.next_event().is_some() {}
        if let Some(connected) = connecting.wait_for(Duration::ZERO) {
            break connected.expect("connected");
        }
    };
    let mut asked: Vec<_> = (0..ASKED).map(|_| client.account()).collect();
    let mut done = 0;
    while done < ASKED {
        let more = worker.progress().expect("allowed");
        let left = asked[done..].iter_mut();
        let started = left.map_while(|it| it.wait_for(Duration::ZERO));
        let started = started.count();
        assert!((1..=256).contains(&started), "{started} in one call");
        done += started;
        if done < ASKED {
            assert!(more && worker.next_timeout() == Some(Duration::ZERO));
            assert!(!worker.arm().expect("allowed"), "it must not sleep");
        }
    }
}

/// Whatever the number of ready connections.
#[test]
fn progress__turns_a_bounded_number_of_connections() {
    const CONNECTIONS: usize = 200;
    let (mut server, _, address) = listening(Options::default());
    let mut client = Worker::new().expect("descriptors");
    for _ in 0..CONNECTIONS {
        client
            .connect(address, &Options::default())
            .expect("a route");
    }
    let (mut accepted, mut connected) = (0, vec![]);
    let end = Instant::now() + PATIENCE;
    while accepted < CONNECTIONS || connected.len() < CONNECTIONS {
        client.progress().expect("allowed");
        server.progress().expect("allowed");
        while let Some(event) = client.next_event() {
            let Event::Connected { connection } = event else {
                panic!("{event:?}");
            };
            connected.push(connection);
        }
        while let Some(event) = server.next_event() {
            let Event::Accepted { connection, .. } = event else {
                panic!("{event:?}");
            };
            accepted += 1;
            let connection = server.connection(connection).expect("just accepted");
            connection.post_recv(region(0, 8)).expect("posted");
        }
        assert!(Instant::now() < end, "nothing in time");
    }
    while server.progress().expect("allowed") {}
    for (n, &id) in (0..).zip(&connected) {
        let connection = client.connection(id).expect("open");
        connection.post_send(region(n, 8)).expect("posted");
    }
    // All of them are sent, and wait in the server's sockets.
    while client.progress().expect("allowed") {}
    let mut received = 0;
    while received < CONNECTIONS {
        server.progress().expect("allowed");
        let mut events = 0;
        while let Some(event) = server.next_event() {
            let Event::Completed { completion, .. } = event else {
                panic!("{event:?}");
            };
            assert_eq!(completion.result, Ok(8));
            events += 1;
        }
        assert!(events <= 64, "{events} in one call");
        received += events;
        client.progress().expect("allowed");
        assert!(Instant::now() < end, "nothing in time");
    }
}

/// Timeouts of all connections of `worker`.
fn timeouts(worker: &mut Worker) -> u64 {
    let ids: Vec<ConnectionId> = worker.connection_ids().collect();
    let timeouts = |id: &ConnectionId| {
        let connection = worker.connection(*id).expect("open");
        connection.account().protocol.timeouts
    };
    ids.iter().map(timeouts).sum()
}

/// System calls and datagrams with content, of all connections of `worker`.
fn carried(worker: &mut Worker) -> [u64; 3] {
    let ids: Vec<ConnectionId> = worker.connection_ids().collect();
    let accounts = ids.iter().map(|&id| {
        let account = worker.connection(id).expect("open").account();
        [
            account.rx_data_syscalls + account.rx_control_syscalls,
            account.tx_data_syscalls + account.tx_control_syscalls,
            account.datagrams_sent,
        ]
    });
    let sum = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|it| a[it] + b[it]);
    accounts.fold([0; 3], sum)
}

/// Whatever the number of ready connections: no separate confirmations, no repeats, no empty reads.
#[test]
fn request_and_answer__cost_an_end_one_receive_and_one_send() {
    const CONNECTIONS: usize = 50;
    const ROUNDS: u64 = 40;
    let (mut server, _, address) = listening(Options::default());
    let mut client = Worker::new().expect("descriptors");
    for _ in 0..CONNECTIONS {
        client
            .connect(address, &Options::default())
            .expect("a route");
    }
    let ask = |worker: &mut Worker, id: ConnectionId| {
        let connection = worker.connection(id).expect("open");
        connection.post(ReceiveMessage::new()).expect("posted");
        connection
            .post(Message::new(b"request").signalled(false))
            .expect("posted");
    };
    let (mut started, mut answers) = (0, HashMap::<ConnectionId, u64>::new());
    let mut before = None;
    let end = Instant::now() + PATIENCE;
    // One thread for both ends: each reads what the other has sent.
    while answers.values().any(|&it| it < ROUNDS) || started < CONNECTIONS {
        server.progress().expect("the system allows it");
        while let Some(event) = server.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    let connection = server.connection(connection).expect("just accepted");
                    connection.post(ReceiveMessage::new()).expect("posted");
                }
                Event::Completed {
                    connection,
                    completion,
                } => {
                    assert_eq!(completion.control(), Some(&b"request"[..]));
                    ask(&mut server, connection);
                }
                other => panic!("{other:?}"),
            }
        }
        client.progress().expect("the system allows it");
        while let Some(event) = client.next_event() {
            match event {
                Event::Connected { connection } => {
                    started += 1;
                    answers.insert(connection, 0);
                    ask(&mut client, connection);
                }
                Event::Completed { connection, .. } => {
                    let answered = answers.get_mut(&connection).expect("it asked");
                    *answered += 1;
                    if *answered < ROUNDS {
                        ask(&mut client, connection);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        // Connecting is over by then: handshakes, path probes.
        if before.is_none() && answers.values().all(|&it| it > ROUNDS / 2) && started == CONNECTIONS
        {
            let answered: u64 = answers.values().sum();
            let ends = [&mut server, &mut client];
            before = Some((answered, ends.map(|it| (carried(it), timeouts(it)))));
        }
        assert!(Instant::now() < end, "nothing in time");
    }
    let (answered, before) = before.expect("rounds");
    let requests = CONNECTIONS as u64 * ROUNDS - answered;
    // While this thread is preempted, timers of many connections may expire. Each repeats something, which is answered
    // again.
    let after = [&mut server, &mut client].map(|it| (carried(it), timeouts(it)));
    let expired = |ends: &[([u64; 3], u64); 2]| ends[0].1 + ends[1].1;
    let repeats = 2 * (expired(&after) - expired(&before));
    for ((after, _), (before, _)) in after.into_iter().zip(before) {
        for (after, before) in after.into_iter().zip(before) {
            let count = after - before;
            assert!(
                count <= requests + requests / 10 + repeats,
                "{count} of {requests}, {repeats} for repeats"
            );
        }
    }
}

/// How often this thread slept voluntarily.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let line = status
        .lines()
        .find(|it| it.starts_with("voluntary_ctxt_switches"));
    let count = line.and_then(|it| it.split_whitespace().nth(1));
    count.and_then(|it| it.parse().ok()).expect("a number")
}

/// Even with a long spin time, it sleeps at once, and an arrival wakes it.
#[test]
fn wait_asleep__sleeps_without_a_spin_until_something_comes() {
    let (mut worker, _, address) = listening(plain());
    worker.set_spin(PATIENCE);
    let before = sleeps();
    let timeout = Some(Duration::from_millis(1));
    const WAITS: u64 = 50;
    for _ in 0..WAITS {
        assert!(
            worker
                .wait_asleep(timeout)
                .expect("the system allows it")
                .got()
                .is_none()
        );
    }
    // Now and then the timeout passes before it sleeps; a spinning thread whose core is taken sleeps as seldom.
    let slept = sleeps() - before;
    assert!(slept > WAITS / 2, "{slept} of {WAITS}");
    let waker = worker.waker();
    std::thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        assert!(
            worker
                .wait_asleep(None)
                .expect("the system allows it")
                .got()
                .is_none()
        );
        let client = scope.spawn(move || Connection::connect(address, &plain()));
        let accepted = loop {
            assert!(
                worker
                    .wait_asleep(Some(PATIENCE))
                    .expect("allowed")
                    .got()
                    .is_some()
            );
            if let Some(Event::Accepted { connection, .. }) = worker.next_event() {
                break connection;
            }
        };
        assert!(worker.connection(accepted).is_some());
        drop(client.join());
    });
}
