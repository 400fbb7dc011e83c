//! Tests a flow through a tunnel whose port strangers flood with handshakes and garbage.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netlab::forge::{Datagram, Forger, overhear};
use zerolane::options::LaneChoice;
use zerolane::{Connection, Options};

use crate::lab::{Lab, Outside, PATIENCE, Running, inside, state, stream, until};

/// Handshakes of strangers that reach the tunnel, each from another address.
const HANDSHAKES: u64 = 50_000;
/// Longest flood.
const LONGEST: Duration = Duration::from_secs(240);
/// Frames that leave together; as many of them are garbage as handshakes.
const BATCH: u64 = 64;
/// Frames between two looks at what came.
const LOOK: u64 = 4096;
/// Strangers that complete a handshake with a key that the tunnel does not know.
const STRANGERS: u64 = 5;
/// How much memory the tunnel may take for it.
const MOST_MEMORY: u64 = 64 << 20;

/// The forged addresses are of this network.
const FORGED: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 0);
/// Where the sender's key stands in the first message of a handshake: makes it another one.
const KEY: std::ops::Range<usize> = 36..40;

/// Calls `to` with an unknown key.
fn call(to: SocketAddr, patience: Duration) -> zerolane::Result<Connection> {
    let options = Options::default().with(|it| {
        it.times.connect = patience;
        it.lane.choice = LaneChoice::Udp;
    });
    Connection::connect(to, &options)
}

/// The first message of a handshake, as an honest stranger sends it.
fn hello() -> Vec<u8> {
    let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    nobody.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = nobody.local_addr().unwrap();
    let mut buffer = [0; 2048];
    std::thread::scope(|scope| {
        scope.spawn(|| call(address, Duration::from_millis(50)).is_ok());
        let len = nobody.recv(&mut buffer).unwrap();
        buffer[..len].to_vec()
    })
}

/// Most memory that a process has had, bytes.
fn peak(process: &Running) -> u64 {
    let text = state(process, "VmHWM:");
    let kib: u64 = text.trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

/// What strangers send, by turns: handshakes from addresses of their own, garbage from there, and spoilt copies of the
/// peer's datagrams from its own address.
struct Strangers {
    forger: Forger,
    /// A datagram of the peer.
    real: Datagram,
    hello: Vec<u8>,
    random: fastrand::Rng,
    sent: u64,
}

impl Strangers {
    /// Beside the peer, on its wire. Its datagrams pass meanwhile.
    fn beside(lab: &Lab) -> Strangers {
        let b = lab.hosts.b();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the peer sends nothing");
            let heard = overhear(b.device(), 1500, 32, Duration::from_millis(200)).unwrap();
            let is_of_peer = |it: &&Datagram| *it.from.ip() == b.ipv4() && it.to.port() == 9186;
            let long = |it: &&Datagram| it.payload.len() > 256;
            if let Some(real) = heard.iter().find(|it| is_of_peer(it) && long(it)) {
                return Strangers {
                    forger: Forger::open(b.device()).unwrap(),
                    real: real.clone(),
                    hello: hello(),
                    random: fastrand::Rng::with_seed(43),
                    sent: 0,
                };
            }
        }
    }

    fn frame(&mut self, number: u64) -> Vec<u8> {
        let address = Ipv4Addr::from_bits(FORGED.to_bits() + number as u32 % 65_536);
        let mut it = self.real.clone();
        it.from = SocketAddrV4::new(address, 1024 + (number % 60_000) as u16);
        match number % 4 {
            0 | 1 => {
                it.payload = self.hello.clone();
                it.payload[KEY].copy_from_slice(&(number as u32).to_be_bytes());
            }
            2 => {
                it.payload.truncate(self.random.usize(..1200));
                self.random.fill(&mut it.payload);
            }
            _ => {
                it.from = self.real.from;
                let bit = self.random.usize(..it.payload.len() * 8);
                it.payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
        it.frame()
    }

    fn send(&mut self, count: u64) {
        for batch in (0..count).step_by(BATCH as usize) {
            let numbers = self.sent + batch..self.sent + batch + BATCH;
            let frames: Vec<Vec<u8>> = numbers.map(|it| self.frame(it)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            // What the kernel does not take is not counted by the tunnel either.
            let _ = self.forger.send(&frames);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.sent += count;
    }
}

#[test]
fn up__a_flow_beside_50_000_handshakes_of_strangers() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    // An address alone: no route of its interface leads to A.
    lab.configure_third("10.9.0.3/32");
    let ends = [lab.up(a, &["./ta.conf"]), lab.up(b, &["./tb.conf"])];
    until("connected", || lab.connected(a) + lab.connected(b) == 2);
    let links = a.rtnetlink().unwrap();
    links.add_route(FORGED, 16, b.ipv4()).unwrap();
    // What the flow takes alone.
    stream(b, a, inside(1)[0]);
    let before = peak(&ends[0]);
    let (over, streams) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let port = SocketAddr::new(a.ipv4().into(), 9186);
    std::thread::scope(|scope| {
        let flow = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                stream(b, a, inside(1)[0]);
                streams.fetch_add(1, Ordering::Relaxed);
            }
        });
        let attack = b.enter_thread(|| {
            let mut strangers = Strangers::beside(&lab);
            let end = Instant::now() + LONGEST;
            let (mut begun, mut of_c) = (0, None);
            while begun < HANDSHAKES || lab.connected(a) < 2 {
                assert!(Instant::now() < end, "{begun} came");
                assert!(!flow.is_finished(), "the flow failed");
                strangers.send(LOOK);
                begun = lab.counter(a, "begun");
                if begun > HANDSHAKES / 4 {
                    // A peer that calls meanwhile gets in.
                    of_c.get_or_insert_with(|| lab.up(b, &["./tc.conf"]));
                }
            }
            drop(of_c);
            for _ in 0..STRANGERS {
                assert!(call(port, PATIENCE).is_err(), "a stranger got in");
            }
            strangers.sent
        });
        over.store(true, Ordering::Release);
        eprintln!("{} frames of strangers", attack.unwrap());
    });
    // And afterwards, at most one more: the flow went on in the meantime.
    assert!(streams.load(Ordering::Relaxed) > 0);
    stream(a, b, inside(2)[0]);
    let grown = peak(&ends[0]).saturating_sub(before);
    assert!(grown < MOST_MEMORY, "{grown} bytes");
    let done = streams.load(Ordering::Relaxed);
    eprintln!("{done} streams meanwhile, {grown} bytes more of memory");
    let counter = |name| lab.counter(a, name);
    // Most of them must first prove that their address is theirs.
    assert!(counter("cookies") > HANDSHAKES / 2);
    let refused = counter("refused");
    assert!(refused > HANDSHAKES / 8 + STRANGERS, "{refused}");
    // Those of the peers, and of strangers whose key is not known.
    assert!((2..=2 + STRANGERS).contains(&counter("completed")));
    let mut show = lab.command(a, &["show"]);
    let shown = String::from_utf8(show.output().unwrap().stdout).unwrap();
    let line = shown.lines().find(|it| it.contains("handshakes:"));
    let line = line.expect("who called");
    eprintln!("{line}");
    assert!(
        line.contains(&format!("{refused} datagrams refused")),
        "{line}"
    );
    drop(ends);
}
