//! Tests that client and server copy real files over loopback.

#![allow(non_snake_case)]

use crate::client::{Client, Listed};
use crate::copy_tests::FRESH;
use crate::digest::{Algorithm, Digester};
use crate::error::{Cause, Error, Failure, Refusal};
use crate::limits::UNIT_BYTES;
use crate::location::Host;
use crate::message::{CopyOptions, Landing, ListOptions, Reply, Request, Totals, encode_opening};
use crate::observe::{Observer, Peer, ServerObserver, Verb};
use crate::opening::hear;
use crate::server::{ServeOptions, Server};
use crate::share::Share;
use crate::stop::Stop;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use zerolane::counters::Account;
use zerolane::keys::{Access, AllowFile};
use zerolane::security::{Identity, PublicKey};
use zerolane::{Connection, Options, Region};

pub(crate) const RECURSIVE: CopyOptions = CopyOptions {
    recursive: true,
    count_first: true,
    ..FRESH
};

/// A server of `share` in a temporary directory that also has `local`; stopped when dropped.
pub(crate) struct Lab {
    base: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    stop: Stop,
    server: Option<JoinHandle<Result<(), Error>>>,
}

impl Lab {
    pub(crate) fn new(read_only: bool) -> Lab {
        let base = tempfile::tempdir().unwrap();
        for name in ["share", "local"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let options = ServeOptions {
            read_only,
            ..ServeOptions::default()
        };
        let mut server = Server::bind(
            &base.path().join("share"),
            (Ipv4Addr::LOCALHOST, 0),
            options,
        )
        .unwrap();
        let (address, stop) = (server.local_addr(), Stop::default());
        let heeded = stop.clone();
        let server = Some(thread::spawn(move || server.run(&heeded, &())));
        Lab {
            base,
            address,
            stop,
            server,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Host::from(self.address))
    }

    pub(crate) fn share(&self, name: &str) -> PathBuf {
        self.base.path().join("share").join(name)
    }

    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.base.path().join("local").join(name)
    }

    fn put(&self, source: &str, destination: &str) -> Result<Totals, Error> {
        self.client().put(
            &[self.local(source)],
            destination.as_bytes(),
            &RECURSIVE,
            &(),
        )
    }

    fn get(&self, source: &str, destination: &Path) -> Result<Totals, Error> {
        self.client()
            .get(&[source.as_bytes().to_vec()], destination, &RECURSIVE, &())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(server) = self.server.take() {
            let ended = server.join().expect("the server does not panic");
            if !thread::panicking() {
                ended.expect("the server ends cleanly");
            }
        }
    }
}

pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

pub(crate) fn refusal(result: Result<Totals, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn put_and_get__tree() {
    let lab = Lab::new(false);
    fs::create_dir_all(lab.local("tree/sub")).unwrap();
    fs::write(lab.local("tree/large"), content(9 * UNIT_BYTES + 3)).unwrap();
    for i in 0..500 {
        fs::write(lab.local(&format!("tree/sub/{i}")), format!("file {i}")).unwrap();
    }
    let put = lab.put("tree", "").unwrap();
    assert_eq!((put.files, put.directories, put.failed), (501, 2, 0));
    let back = lab.local("back");
    let got = lab.get("tree", &back).unwrap();
    assert_eq!(got, put);
    assert_eq!(
        fs::read(back.join("large")).unwrap(),
        content(9 * UNIT_BYTES + 3)
    );
    for i in 0..500 {
        assert_eq!(
            fs::read(back.join(format!("sub/{i}"))).unwrap(),
            format!("file {i}").as_bytes()
        );
    }
}

#[test]
fn get__whole_share_into_a_new_directory() {
    let lab = Lab::new(true);
    fs::write(lab.share("a"), b"a").unwrap();
    fs::create_dir(lab.share("d")).unwrap();
    let into = lab.local("new");
    assert_eq!(lab.get("", &into).unwrap().files, 1);
    assert_eq!(fs::read(into.join("a")).unwrap(), b"a");
    assert!(into.join("d").is_dir());
}

#[test]
fn put__read_only_server() {
    let lab = Lab::new(true);
    fs::write(lab.local("a"), b"a").unwrap();
    assert_eq!(refusal(lab.put("a", "")), Refusal::ReadOnly);
    assert_eq!(fs::read_dir(lab.share("")).unwrap().count(), 0);
}

#[test]
fn put__of_two_sources_with_one_name_the_first_is_copied() {
    struct Told(Mutex<Vec<Failure>>);
    impl Observer for Told {
        fn failed(&self, failure: &Failure) {
            self.0.lock().unwrap().push(failure.clone());
        }
    }
    let lab = Lab::new(false);
    for directory in ["a", "b"] {
        fs::create_dir(lab.local(directory)).unwrap();
        fs::write(lab.local(directory).join("f"), directory).unwrap();
    }
    let sources = ["a/f", "b/f", "a//f"].map(|it| lab.local(it));
    for connections in [1, 2] {
        let told = Told(Mutex::default());
        let client = lab.client().with_connections(connections);
        let totals = client.put(&sources, b"", &FRESH, &told).unwrap();
        assert_eq!((totals.files, totals.failed), (1, 1));
        let told = told.0.into_inner().unwrap();
        let second = sources[1].as_os_str().as_encoded_bytes();
        assert_eq!(told, [Failure::new(second, Cause::SameName)]);
        assert_eq!(fs::read(lab.share("f")).unwrap(), b"a");
    }
}

#[test]
fn put__outside_is_refused() {
    let lab = Lab::new(false);
    fs::write(lab.local("a"), b"a").unwrap();
    std::os::unix::fs::symlink("../local", lab.share("out")).unwrap();
    for path in [
        "..",
        "../evil",
        "/tmp/evil",
        "x/../../evil",
        "out",
        "out/evil",
    ] {
        match refusal(lab.put("a", path)) {
            Refusal::Path { cause, .. } => assert_eq!(cause, Cause::OutsideRoot, "{path}"),
            other => panic!("{path}: {other}"),
        }
    }
    assert!(!lab.base.path().join("evil").exists() && !lab.local("evil").exists());
}

#[test]
fn get__outside_fails_that_source_only() {
    let lab = Lab::new(false);
    fs::write(lab.local("secret"), b"s").unwrap();
    fs::write(lab.share("good"), b"g").unwrap();
    std::os::unix::fs::symlink("../local", lab.share("out")).unwrap();
    let into = lab.local("into");
    fs::create_dir(&into).unwrap();
    let sources: Vec<Vec<u8>> = [
        "../local/secret",
        "/etc/passwd",
        "out/secret",
        "none",
        "good",
    ]
    .map(|s| s.into())
    .into();
    let totals = lab.client().get(&sources, &into, &RECURSIVE, &()).unwrap();
    assert_eq!((totals.files, totals.failed), (1, 4));
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn connect__nothing_there() {
    // No other program gets this port, and its only peer does not exist.
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    silent.connect((Ipv4Addr::LOCALHOST, 9)).unwrap();
    let address = silent.local_addr().unwrap();
    let client = Client::new(Host::new("127.0.0.1", address.port()));
    assert!(matches!(
        client.list(&[Vec::new()], ListOptions::default(), |_| {
            ControlFlow::Continue(())
        }),
        Err(Error::Connect { .. })
    ));
}

/// Sends `bytes` as the first message; returns the reply.
fn open_with(lab: &Lab, bytes: &[u8]) -> Result<Reply, Error> {
    let mut connection = Connection::connect(lab.address, &Options::default()).unwrap();
    connection
        .post_send(Region::from_vec(bytes.to_vec()))
        .unwrap();
    while connection
        .wait(Some(Duration::from_secs(5)))
        .unwrap()
        .got()
        .is_none()
    {}
    hear(&mut connection, &lab.stop, Duration::from_secs(60))
}

fn list(path: Vec<u8>) -> Request {
    Request::List {
        paths: vec![path],
        options: ListOptions::default(),
    }
}

#[test]
fn serve__malformed_requests_are_answered_and_survived() {
    let lab = Lab::new(false);
    let mut another_version = encode_opening(&list(Vec::new())).unwrap();
    another_version[4] = 99;
    let mut cut = encode_opening(&list(vec![b'x'; 100])).unwrap();
    cut.truncate(20);
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"x",
        &another_version,
        &cut,
        &[0xff; 500],
    ] {
        let reply = open_with(&lab, bytes);
        assert!(
            matches!(reply, Ok(Reply::Refused(Refusal::Malformed))),
            "{reply:?}"
        );
    }
    let all = ListOptions::default();
    let each = |_: Listed<'_>| ControlFlow::Continue(());
    lab.client().list(&[Vec::new()], all, each).unwrap();
}

#[test]
fn serve__client_that_asks_and_goes_away() {
    let lab = Lab::new(false);
    for algorithm in [Digester::fixed().algorithm(), Algorithm::Blake3] {
        let request = Request::Put {
            destination: b"x".to_vec(),
            sources: 1,
            contents: false,
            landing: Landing::AsCp,
            share: Share::Whole,
            options: RECURSIVE,
            digester: Digester::fixed().settle(algorithm).unwrap(),
        };
        let reply = open_with(&lab, &encode_opening(&request).unwrap());
        assert!(
            matches!(
                reply,
                Ok(Reply::Accepted { algorithm: it, landing: Landing::Named, .. }) if it == algorithm
            ),
            "{reply:?}"
        );
    }
    fs::write(lab.local("a"), b"a").unwrap();
    assert_eq!(lab.put("a", "").unwrap().files, 1);
}

/// Passes events to the test.
struct Told(std::sync::mpsc::Sender<(PublicKey, Result<(), Error>)>);

impl ServerObserver for Told {
    fn requested(&self, peer: &Peer, _: Verb, _: &[Vec<u8>]) {
        self.0.send((peer.key.unwrap(), Ok(()))).unwrap();
    }

    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, _: &Account) {
        if let Err(Error::Revoked) = outcome {
            self.0
                .send((peer.key.unwrap(), Err(Error::Revoked)))
                .unwrap();
        }
    }
}

#[test]
fn serve__a_key_that_is_taken_off_the_list_has_its_connections_ended() {
    let base = tempfile::tempdir().unwrap();
    let (share, list) = (base.path().join("share"), base.path().join("list"));
    fs::create_dir(&share).unwrap();
    let [leaves, stays] = [1, 2].map(|n| Arc::new(Identity::from_secret([n; 32])));
    let line = |who: &Identity| format!("{} read-write\n", who.public());
    // Renamed into place, so that the server reads either version whole.
    let allow = |lines: String| {
        let new = base.path().join("new");
        fs::write(&new, lines).unwrap();
        fs::rename(new, &list).unwrap();
    };
    allow(line(&leaves) + &line(&stays));
    let allowed = Arc::new(AllowFile::load(&list, None).unwrap());
    let options = ServeOptions {
        access: Access::Listed(allowed),
        ..ServeOptions::default()
    };
    let mut server = Server::bind(&share, (Ipv4Addr::LOCALHOST, 0), options).unwrap();
    let (address, stop) = (server.local_addr(), Stop::default());
    let (heeded, (told, events)) = (stop.clone(), std::sync::mpsc::channel());
    let serving = thread::spawn(move || server.run(&heeded, &Told(told)));

    // Two clients that asked to write, and are silent.
    let connect = |who: &Arc<Identity>| {
        let mut options = Options::default();
        options.security.identity = Some(Arc::clone(who));
        let mut connection = Connection::connect(address, &options).unwrap();
        let request = Request::Put {
            destination: b"there".to_vec(),
            sources: 1,
            contents: false,
            landing: Landing::AsCp,
            share: Share::Whole,
            options: CopyOptions::default(),
            digester: Digester::fixed(),
        };
        let request = encode_opening(&request).unwrap();
        connection.post_send(Region::from_vec(request)).unwrap();
        let sent = connection
            .wait(Some(Duration::from_secs(60)))
            .unwrap()
            .got();
        assert!(sent.is_some());
        let reply = hear::<Reply>(&mut connection, &Stop::default(), Duration::from_secs(60));
        assert!(matches!(reply, Ok(Reply::Accepted { .. })));
        connection
    };
    let next = || events.recv_timeout(Duration::from_secs(60)).unwrap();
    let _open = [connect(&leaves), connect(&stays)];
    for who in [&leaves, &stays] {
        assert!(matches!(next(), (key, Ok(())) if key == who.public()));
    }
    allow(line(&stays));
    assert!(matches!(next(), (key, Err(Error::Revoked)) if key == leaves.public()));
    // The other connection stays until its rights shrink.
    allow(line(&stays).replace("read-write", "read"));
    assert!(matches!(next(), (key, Err(Error::Revoked)) if key == stays.public()));
    stop.request();
    serving.join().unwrap().unwrap();
}

#[test]
fn Stop__of_a_part_is_not_that_of_the_whole() {
    let whole = Stop::default();
    let [one, other] = [whole.of_part(), whole.of_part()];
    one.request();
    assert!(one.requested() && one.requested_here());
    assert!(!whole.requested() && !other.requested());
    whole.request();
    assert!(other.requested() && !other.requested_here());
}

/// Requests a stop at the first progress.
pub(crate) struct StopsAtOnce(pub(crate) Stop);

impl Observer for StopsAtOnce {
    fn advanced(&self, _: u64) {
        self.0.request();
    }
}

#[test]
fn put__heeds_a_stop_while_it_moves() {
    let lab = Lab::new(false);
    fs::write(lab.local("large"), content(64 * UNIT_BYTES)).unwrap();
    let stop = Stop::default();
    let client = lab.client().with_stop(stop.clone());
    let sources = [lab.local("large")];
    let ended = client.put(&sources, b"", &CopyOptions::default(), &StopsAtOnce(stop));
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    assert!(!lab.share("large").exists());
}

/// Forwards between a client and `server`, each datagram after `delay`, until the client has sent `limit` bytes; then
/// nothing, in either direction. Returns its address.
pub(crate) fn relay(server: SocketAddr, limit: usize, delay: Duration) -> SocketAddr {
    let socket = || std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (front, back) = (socket(), socket());
    back.connect(server).unwrap();
    let address = front.local_addr().unwrap();
    let (answers, to_client) = (back.try_clone().unwrap(), front.try_clone().unwrap());
    let (tell, client) = std::sync::mpsc::channel();
    let cut = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&cut);
    thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        let mut bytes = 0;
        while bytes < limit {
            let (len, from) = front.recv_from(&mut datagram).unwrap();
            if bytes == 0 {
                tell.send(from).unwrap();
            }
            bytes += len;
            thread::sleep(delay);
            let _ = back.send(&datagram[..len]);
        }
        cut.store(true, Relaxed);
    });
    thread::spawn(move || {
        let client: SocketAddr = client.recv().unwrap();
        let mut datagram = vec![0; 1 << 16];
        while let (Ok(len), false) = (answers.recv(&mut datagram), heard.load(Relaxed)) {
            thread::sleep(delay);
            let _ = to_client.send_to(&datagram[..len], client);
        }
    });
    address
}

/// The client notices first that its connection is lost; the server's end still holds the file.
#[test]
fn put__goes_on_while_the_server_holds_the_connection_before() {
    let lab = Lab::new(false);
    let content: Vec<u8> = (0..40 * UNIT_BYTES / 4)
        .flat_map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(lab.local("large"), &content).unwrap();
    let addresses = [
        relay(lab.address, 8 * UNIT_BYTES, Duration::ZERO),
        lab.address,
    ];
    let tries = AtomicUsize::new(0);
    let client = lab
        .client()
        .with_transport(Options::default().with(|it| it.times.idle = Duration::from_millis(2500)))
        .with_connector(move |options| {
            let number = tries.fetch_add(1, Relaxed);
            Connection::connect(addresses[number.min(1)], options)
        });
    let totals = client.put(&[lab.local("large")], b"", &CopyOptions::default(), &());
    let totals = totals.unwrap();
    assert_eq!((totals.files, totals.failed), (1, 0));
    assert!(totals.bytes_kept > 0, "{totals:?}");
    assert!(fs::read(lab.share("large")).unwrap() == content);
    assert_eq!(fs::read_dir(lab.share("")).unwrap().count(), 1);
}
