//! Tests that a worker in a thread survives killed peers under load, and keeps serving the others.

use super::handles::spawned;
use super::over::Mappings;
use super::{PATIENCE, anywhere, content};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use zerolane::request::{Get, OpenRegion};
use zerolane::worker::{ConnectionHandle, Pending};
use zerolane::{Completion, Connection, ExportedRegion, Options, Region, Rights};

/// Transfers of a round, in addition to a put and a get.
const SENDS: u64 = 4;
/// Bytes of each: none is eager.
const LEN: usize = 200_000;
/// Each client's place in the exported region, and its own region.
const SLOT: usize = 40_000;
/// Rounds that a surviving client does at least.
const ROUNDS: u64 = 20;
const CLIENTS: u64 = 8;
/// Clients in processes of their own; the first ones are killed.
const CHILDREN: u64 = 4;
const KILLED: u64 = 2;

const SERVER: &str = "ZEROLANE_TEST_SERVER";
const CLIENT: &str = "ZEROLANE_TEST_CLIENT";

const GO_ON: u8 = 1;

fn options() -> Options {
    Options::default().with(|it| {
        // A killed peer is detected sooner; one that the machine suspends must not be.
        it.times.idle = Duration::from_secs(10);
    })
}

fn seed(client: u64, round: u64, n: u64) -> u64 {
    client << 40 | round << 8 | n
}

/// Runs rounds until the server ends it: a put into the client's place, then Transfers, all in flight at once.
fn stream(server: SocketAddr, client: u64) -> zerolane::Result<()> {
    let mut connection = Connection::connect(server, &options())?;
    connection.set_timeout(Some(PATIENCE));
    let own = Region::from_vec(content(seed(client, 0, SENDS), SLOT));
    let own = ExportedRegion::new(own).expect("aligned");
    connection.export_named("own", &own, Rights::READ)?;
    connection.send(&client.to_le_bytes())?;
    let shared = connection.open_region("shared", Rights::WRITE)?;
    let mut verdict = [GO_ON];
    for round in 0.. {
        connection.recv_into(&mut verdict)?;
        if verdict != [GO_ON] {
            break;
        }
        let slot = content(seed(client, round, SENDS), SLOT);
        connection.put(&shared, client * SLOT as u64, &slot)?;
        for n in 0..SENDS {
            let bytes = content(seed(client, round, n), LEN);
            connection.post_send(Region::from_vec(bytes))?;
        }
        while connection.in_flight() > 0 {
            let sent = connection.wait(Some(PATIENCE))?.got().expect("in time");
            sent.result.expect("sent");
        }
    }
    connection.close()
}

/// Not a test: a process that the next test starts.
#[test]
fn child__streams_until_killed_or_told() {
    let (Ok(server), Ok(client)) = (std::env::var(SERVER), std::env::var(CLIENT)) else {
        return;
    };
    let server = server.parse().expect("an address");
    stream(server, client.parse().expect("a number")).expect("served to the end");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child(server: SocketAddr, client: u64) -> Killed {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", "killed::child__streams_until_killed_or_told"]);
    command.env(SERVER, server.to_string());
    command.env(CLIENT, client.to_string());
    command.stdout(Stdio::null());
    Killed(command.spawn().expect("the test itself"))
}

/// Waits for the end of the request. Returns whether it succeeded, by its content.
fn ends_well(mut pending: Pending<Completion>, expected: &[u8]) -> bool {
    let end = pending.wait_for(PATIENCE).expect("it ends");
    let Ok(completion) = end else { return false };
    if completion.result != Ok(expected.len()) {
        return false;
    }
    let memory = completion.into_memory().expect("it comes back");
    assert!(memory.as_slice() == Some(expected), "content");
    true
}

/// The results for a client.
struct Served {
    client: u64,
    /// Requests of its last round that failed.
    failed: usize,
    /// The memory of its Transfers.
    memory: Vec<Mappings>,
}

/// Serves one client until it ends, or `enough` is set. Sends each round to `rounds`.
fn serve(
    connection: ConnectionHandle,
    shared: &ExportedRegion,
    enough: &AtomicBool,
    rounds: &Sender<(u64, u64)>,
) -> Served {
    let first = connection.recv(Region::from_vec(vec![0; 8])).wait();
    let first = first.expect("posted").into_region().expect("a region");
    let client = u64::from_le_bytes(first[..].try_into().expect("8 bytes"));
    let own = connection.post(OpenRegion::new("own", Rights::READ)).wait();
    let own = own.expect("posted").key().expect("opened");
    let memory: Vec<_> = (0..SENDS).map(|_| Mappings::of(LEN)).collect();
    let got = Mappings::of(SLOT);
    let mut failed = 0;
    for round in 0.. {
        if round >= ROUNDS && enough.load(Ordering::Acquire) {
            let told = connection.send(Region::from_vec(vec![0])).wait();
            told.expect("posted").result.expect("it lives");
            break;
        }
        let receiving = memory.iter().map(|it| connection.recv(it.region()));
        let receiving: Vec<_> = receiving.collect();
        let going_on = connection.send(Region::from_vec(vec![GO_ON]));
        let getting = connection.post(Get::new(&own, 0, got.region()));
        for (n, received) in (0..).zip(receiving) {
            let sent = content(seed(client, round, n), LEN);
            failed += usize::from(!ends_well(received, &sent));
        }
        failed += usize::from(!ends_well(going_on, &[GO_ON]));
        let theirs = content(seed(client, 0, SENDS), SLOT);
        failed += usize::from(!ends_well(getting, &theirs));
        if failed > 0 {
            break;
        }
        // It was put before the Transfers were posted.
        let mut slot = vec![0; SLOT];
        shared.read(client as usize * SLOT, &mut slot);
        assert!(slot == content(seed(client, round, SENDS), SLOT), "put");
        let _ = rounds.send((client, round));
    }
    Served {
        client,
        failed,
        memory: memory.into_iter().chain([got]).collect(),
    }
}

#[test]
fn peer__killed_under_load_fails_its_own_requests_alone() {
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), options()).wait();
    let endpoint = endpoint.expect("a port");
    let mapped = Mappings::of(CLIENTS as usize * SLOT);
    let shared = ExportedRegion::new(mapped.region()).expect("page-aligned");
    let exported = endpoint.export("shared", &shared, Rights::WRITE).wait();
    exported.expect("an endpoint");
    let address = endpoint.local_addr();
    let mut children: Vec<_> = (0..CHILDREN).map(|n| child(address, n)).collect();
    let clients: Vec<_> = (CHILDREN..CLIENTS)
        .map(|n| std::thread::spawn(move || stream(address, n)))
        .collect();
    let (enough, (told, rounds)) = (AtomicBool::new(false), channel());
    let served: Vec<_> = std::thread::scope(|scope| {
        let serving: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let accepted = endpoint.accept().wait_for(PATIENCE).expect("in time");
                let (connection, told) = (accepted.expect("accepted"), told.clone());
                let (shared, enough) = (&shared, &enough);
                scope.spawn(move || serve(connection, shared, enough, &told))
            })
            .collect();
        let mut done = [0; CLIENTS as usize];
        while done[..KILLED as usize].iter().any(|&it| it < 3) {
            let (client, round) = rounds.recv_timeout(PATIENCE).expect("all are served");
            done[client as usize] = round;
        }
        // SIGKILL: none of their destructors runs. The others continue until the deaths were detected.
        for child in &mut children[..KILLED as usize] {
            child.0.kill().expect("killed");
        }
        let (mut ended, end) = (0, Instant::now() + PATIENCE);
        while ended < KILLED as usize && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            ended = serving.iter().filter(|it| it.is_finished()).count();
        }
        enough.store(true, Ordering::Release);
        let served = serving.into_iter();
        served.map(|it| it.join().expect("no panic")).collect()
    });
    for served in &served {
        let killed = served.client < KILLED;
        assert_eq!(served.failed > 0, killed, "client {}", served.client);
    }
    for client in clients {
        client.join().expect("no panic").expect("served to the end");
    }
    for child in &mut children[KILLED as usize..] {
        let ended = child.0.wait().expect("ended");
        assert!(ended.success(), "{ended}");
    }
    drop(shared.revoke().expect("the only handle"));
    assert_eq!(mapped.count(), 0, "exported");
    worker.stop().expect("stopped");
    let mapped = served.iter().flat_map(|it| &it.memory);
    assert_eq!(mapped.map(Mappings::count).sum::<usize>(), 0);
}
