//! Tests that a worker's connections share a pool of memory for messages.

use super::{PATIENCE, anywhere, content, plain, region};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerolane::failure::TransferError;
use zerolane::options::LaneChoice;
use zerolane::request::{Message, Output, ReceiveMessage};
use zerolane::worker::{Event, Worker};
use zerolane::{Completion, Connection, Error, Options, ReceivePool, Region, Waited};

fn pool_of(pieces: u64, len: usize) -> ReceivePool {
    let pool = ReceivePool::new();
    for context in 0..pieces {
        pool.add(Region::from_vec(vec![0; len]), context)
            .expect("open");
    }
    pool
}

fn serving(pool: &ReceivePool, options: Options) -> (Worker, SocketAddr) {
    let mut worker = Worker::new().expect("descriptors");
    worker.share_receives(pool).expect("none before");
    let endpoint = worker.listen(anywhere(), options).expect("a port");
    let address = worker.endpoint(endpoint).expect("it listens").local_addr();
    (worker, address)
}

fn connect(to: SocketAddr, options: &Options) -> Connection {
    let mut connection = Connection::connect(to, options).expect("connected");
    connection.set_timeout(Some(PATIENCE));
    connection
}

/// Runs the worker until an event has a result.
fn until<T>(worker: &mut Worker, mut see: impl FnMut(&mut Worker, Event) -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        while let Some(event) = worker.next_event() {
            if let Some(result) = see(worker, event) {
                return result;
            }
        }
        assert!(Instant::now() < end, "it takes too long");
        worker.wait(Some(Duration::from_millis(100))).expect("runs");
    }
}

fn await_message(worker: &mut Worker) -> Completion {
    until(worker, |_, event| match event {
        Event::Completed { completion, .. } => Some(completion),
        _ => None,
    })
}

/// Lets a worker run until `done`.
fn run_until(worker: &mut Worker, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it takes too long");
        worker.wait(Some(Duration::from_millis(1))).expect("runs");
    }
}

/// Waits until the peer of a connection had time to be refused.
fn settle(worker: &mut Worker) {
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        worker.wait(Some(Duration::from_millis(5))).expect("runs");
    }
}

const CLIENTS: usize = 1000;
const EACH: u64 = 3;

/// Lets this process open a socket for each end, if it may.
fn clients_that_fit() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    );
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    CLIENTS.min((limit as usize).saturating_sub(500) / 2)
}

#[test]
fn share_receives__serves_a_thousand_clients_with_64_pieces() {
    let options = plain().with(|it| {
        (it.times.connect, it.times.idle) = (PATIENCE, PATIENCE);
        it.lane.choice = LaneChoice::Udp;
    });
    let count = clients_that_fit();
    let pool = pool_of(64, 2_000);
    let (mut server, address) = serving(&pool, options.clone());
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut clients = Worker::new().expect("descriptors");
            for _ in 0..count {
                clients.connect(address, &options).expect("begins");
            }
            let (mut next, mut sent) = (0, 0);
            until(&mut clients, |clients, event| {
                match event {
                    Event::Connected { connection } => {
                        let connection = clients.connection(connection).expect("open");
                        for n in next..next + EACH {
                            let control = n.to_le_bytes();
                            let message = Message::new(&control).payload(region(n, 1_500));
                            connection.post(message).map(drop).expect("posted");
                        }
                        next += EACH;
                    }
                    Event::Completed { completion, .. } => {
                        completion.result.expect("received");
                        sent += 1;
                    }
                    other => panic!("{other:?}"),
                }
                (sent == count as u64 * EACH).then_some(())
            });
            done.store(true, Ordering::Release);
        });
        let mut seen = vec![0; count * EACH as usize];
        let mut left = seen.len();
        until(&mut server, |_, event| {
            if let Event::Completed { completion, .. } = event {
                assert_eq!(completion.result, Ok(1_500));
                let control = completion.control().expect("a message");
                let n = u64::from_le_bytes(control.try_into().expect("8 bytes"));
                seen[n as usize] += 1;
                let Output::MessageReceived {
                    payload: Some(zerolane::memory::Memory::Exclusive(bytes)),
                    ..
                } = &completion.output
                else {
                    panic!("{completion:?}");
                };
                assert!(bytes[..1_500] == content(n, 1_500), "content");
                completion.recycle();
                left -= 1;
            }
            (left == 0).then_some(())
        });
        assert!(seen.iter().all(|&times| times == 1));
        run_until(&mut server, || done.load(Ordering::Acquire));
    });
    assert_eq!(pool.len(), 64);
}

/// A client that always has more to send must not keep the others waiting: they are served in turn.
#[test]
fn share_receives__is_fair_to_those_that_send_little() {
    const GREEDY: u64 = 4_000;
    const OTHERS: u64 = 6;
    let pool = pool_of(4, 100);
    let (mut server, address) = serving(&pool, Options::default());
    let (mut greedy_received, mut others_received) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut greedy = connect(address, &Options::default());
            for _ in 0..GREEDY {
                greedy
                    .post(Message::new(b"greedy"))
                    .map(drop)
                    .expect("posted");
            }
            while greedy.in_flight() > 0 {
                // The server ends when it has seen enough.
                if greedy.wait(None).is_err() {
                    break;
                }
            }
        });
        run_until(&mut server, || pool.is_empty());
        for _ in 0..OTHERS {
            scope.spawn(move || {
                let mut other = connect(address, &Options::default());
                for _ in 0..EACH {
                    other.send_message(b"other", None).expect("received");
                }
            });
        }
        until(&mut server, |_, event| {
            if let Event::Completed { completion, .. } = event {
                match completion.control() {
                    Some(b"greedy") => greedy_received += 1,
                    _ => others_received += 1,
                }
                completion.recycle();
            }
            (others_received == OTHERS * EACH).then_some(())
        });
        assert!(greedy_received < GREEDY, "it was served before the others");
        run_until(&mut server, {
            let end = Instant::now() + Duration::from_millis(20);
            move || Instant::now() > end
        });
        drop(server);
    });
}

/// The memory of a message that was not complete, whether the peer says that it goes or is silent.
#[test]
fn pool__has_its_memory_back_from_a_peer_that_is_gone() {
    for (lane, says_so) in [
        (LaneChoice::Udp, true),
        (LaneChoice::Udp, false),
        (LaneChoice::Best, true),
    ] {
        let options = Options::default().with(|it| {
            it.lane.choice = lane;
            it.times.idle = Duration::from_secs(2);
        });
        let pool = pool_of(2, 32 << 20);
        let (mut server, address) = serving(&pool, options.clone());
        let (seen, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = connect(address, &options);
                let message = Message::new(b"long").payload(Region::from_vec(vec![7; 32 << 20]));
                client.post(message).map(drop).expect("posted");
                while !seen.load(Ordering::Acquire) {
                    client.poll().expect("open");
                }
                match says_so {
                    true => drop(client),
                    false => std::mem::forget(client),
                }
                gone.store(true, Ordering::Release);
            });
            run_until(&mut server, || pool.len() == 1);
            seen.store(true, Ordering::Release);
            // The server receives nothing meanwhile.
            while !gone.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            until(&mut server, |_, event| match event {
                Event::Closed { .. } => Some(()),
                Event::Completed { completion, .. } => panic!("{completion:?}"),
                _ => None,
            });
            assert_eq!(pool.len(), 2, "{lane:?} {says_so}");
        });
    }
}

#[test]
fn close__leaves_peers_to_posted_receives() {
    let pool = pool_of(3, 100);
    let (mut server, address) = serving(&pool, Options::default());
    let client = std::thread::spawn(move || {
        let mut client = connect(address, &Options::default());
        client
            .send_message(b"first", Some(&[1; 10]))
            .expect("received");
        client
            .send_message(b"second", Some(&[2; 10]))
            .expect("received");
    });
    let first = await_message(&mut server);
    assert_eq!(first.control(), Some(&b"first"[..]));
    pool.close();
    assert!(pool.remove().is_some() && pool.remove().is_some() && pool.remove().is_none());
    let memory = Region::from_vec(vec![0; 8]);
    let refused = pool.add(memory, 0).expect_err("closed");
    assert!(matches!(refused.error, Error::Closed(_)) && refused.memory.len() == 8);
    settle(&mut server);
    let id = server.connection_ids().next().expect("the client's");
    let connection = server.connection(id).expect("open");
    let receive = ReceiveMessage::new().payload(Region::from_vec(vec![0; 100]));
    connection.post(receive).map(drop).expect("posted");
    let second = await_message(&mut server);
    assert_eq!(second.control(), Some(&b"second"[..]));
    assert!(!second.recycle(), "it is the program's own");
    assert!(first.recycle());
    assert_eq!(pool.len(), 1);
    settle(&mut server);
    client.join().expect("received");
}

/// A posted receive goes first, and the pool serves what is beyond.
#[test]
fn posted_receives__go_before_the_pool() {
    let pool = pool_of(2, 100);
    let (mut server, address) = serving(&pool, Options::default());
    let client = std::thread::spawn(move || {
        let mut client = connect(address, &Options::default());
        client.recv_into(&mut [0; 8]).expect("posted now");
        client.send_message(b"one", None).expect("received");
        client.send_message(b"two", None).expect("received");
    });
    until(&mut server, |server, event| match event {
        Event::Accepted { connection, .. } => {
            let connection = server.connection(connection).expect("open");
            let receive = ReceiveMessage::new().context(99);
            connection.post(receive).map(drop).expect("posted");
            let go = Region::from_vec(vec![0; 8]);
            connection.post_send(go).map(drop).expect("posted");
            Some(())
        }
        _ => None,
    });
    let mut received = vec![];
    while received.len() < 2 {
        let it = await_message(&mut server);
        if let Some(control) = it.control() {
            received.push((control.to_vec(), it.context));
        }
    }
    assert_eq!(received, [(b"one".to_vec(), 99), (b"two".to_vec(), 0)]);
    assert_eq!(pool.len(), 1);
    settle(&mut server);
    client.join().expect("received");
}

/// Messages of handles; those that no handle asked for return with the last one.
#[test]
fn message__of_a_handle() {
    let pool = pool_of(0, 0);
    let worker = Worker::new().expect("descriptors");
    let worker = worker.spawn().expect("a thread");
    worker.share_receives(&pool).wait().expect("none before");
    worker
        .share_receives(&ReceivePool::new())
        .wait()
        .expect_err("it has one");
    let endpoint = worker.listen(anywhere(), Options::default());
    let endpoint = endpoint.wait().expect("a port");
    let mut client = connect(endpoint.local_addr(), &Options::default());
    let accepted = endpoint.accept().wait().expect("accepted");
    let asked = accepted.message();
    let given_up = accepted.message();
    drop(given_up);
    for n in 0..3 {
        client.post(Message::new(&[n])).map(drop).expect("posted");
    }
    // The worker sleeps, and the peer waits.
    let begin = client.wait(Some(Duration::from_millis(50))).expect("open");
    assert!(matches!(begin, Waited::TimedOut));
    for context in 7..10 {
        pool.add(Region::from_vec(vec![0; 100]), context)
            .expect("open");
    }
    while client.in_flight() > 0 {
        let sent = client.wait(Some(PATIENCE)).expect("open").got();
        sent.expect("in time").result.expect("received");
    }
    let first = asked.wait().expect("received");
    assert_eq!((first.control(), first.context), (Some(&[0][..]), 7));
    let second = accepted.message().wait().expect("received");
    assert_eq!((second.control(), second.context), (Some(&[1][..]), 8));
    assert!(first.recycle() && pool.len() == 1);
    let waits = accepted.message();
    let third = waits.wait().expect("received");
    assert_eq!(third.control(), Some(&[2][..]));
    client
        .post(Message::new(b"kept"))
        .map(drop)
        .expect("posted");
    let sent = client.wait(Some(PATIENCE)).expect("open").got();
    sent.expect("in time").result.expect("received");
    assert_eq!(pool.len(), 0);
    let last = accepted.message();
    drop(last);
    drop(accepted);
    let end = Instant::now() + PATIENCE;
    while pool.is_empty() {
        assert!(Instant::now() < end, "the kept message does not return");
        std::thread::sleep(Duration::from_millis(1));
    }
    worker.stop().expect("stopped");
}

/// The memory of completions that the program did not take.
#[test]
fn pool__has_its_memory_back_from_connections_that_are_closed_or_dropped() {
    for closes in [true, false] {
        let pool = pool_of(3, 10);
        let mut endpoint = zerolane::Endpoint::bind(anywhere(), Options::default()).expect("bound");
        let address = endpoint.local_addr();
        let client = std::thread::spawn(move || {
            let mut client = connect(address, &Options::default());
            for _ in 0..3 {
                client.send_message(b"untaken", None).expect("received");
            }
        });
        let mut connection = endpoint.accept(Some(PATIENCE)).expect("open").expect("one");
        connection.set_receive_pool(&pool).expect("none before");
        let taken = connection.wait(Some(PATIENCE)).expect("open").got();
        taken.expect("in time").result.expect("received");
        while !pool.is_empty() {
            // Completions are not taken.
            connection.announced(Some(Duration::from_millis(1))).ok();
        }
        let end = Instant::now() + PATIENCE;
        while !client.is_finished() && Instant::now() < end {
            connection.announced(Some(Duration::from_millis(1))).ok();
        }
        match closes {
            true => drop(connection.close()),
            false => drop(connection),
        }
        assert_eq!(pool.len(), 2, "{closes}");
        client.join().expect("received");
    }
}

/// A connection that waits alone: the wait goes on until there is a message.
#[test]
fn add__does_not_end_a_wait() {
    let pool = pool_of(0, 0);
    let mut endpoint = zerolane::Endpoint::bind(anywhere(), Options::default()).expect("bound");
    let address = endpoint.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = connect(address, &Options::default());
            let sent = client.send_message(b"to a short piece", Some(&[1; 100]));
            let expected = TransferError::MessageTooLarge {
                length: 100,
                room: 50,
            };
            assert!(matches!(sent, Err(Error::Transfer(it)) if it == expected));
            client
                .send_message(b"to a longer one", Some(&[2; 50]))
                .expect("received");
        });
        let mut connection = endpoint.accept(Some(PATIENCE)).expect("open").expect("one");
        connection.set_receive_pool(&pool).expect("none before");
        let pool = &pool;
        scope.spawn(move || {
            for context in 0..2 {
                std::thread::sleep(Duration::from_millis(100));
                pool.add(Region::from_vec(vec![0; 50]), context)
                    .expect("open");
            }
        });
        let results = [0, 1].map(|context| {
            let completion = connection.wait(Some(PATIENCE)).expect("open").got();
            let completion = completion.expect("no wake-up");
            assert_eq!(completion.context, context);
            completion.result
        });
        assert!(results[0].is_err() && results[1] == Ok(50));
        while connection.wait(Some(PATIENCE)).is_ok() {}
    });
}
