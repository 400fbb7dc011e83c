//! Attacks the transfer: sends forged frames on the client's interface, at a given rate for a given time.
//!
//! Nothing leaves the two namespaces.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use netlab::forge::{Datagram, Forger, overhear};
use netlab::netns::Topology;
use zerolane::options::LaneChoice;
use zerolane::{Connection, Options};

use crate::harness::hosts::MTU;
use crate::limits::CONNECT;

/// Frames that leave together.
const BATCH: u64 = 64;

/// How often the attacker wakes, and how late it makes good for at most: it shares a core, and waits for it.
const TICK: Duration = Duration::from_millis(1);
const CATCH_UP: Duration = Duration::from_millis(50);

/// How often it listens for packets that are still fresh.
const LISTEN_EVERY: Duration = Duration::from_millis(200);
const LISTEN_FOR: Duration = Duration::from_millis(50);

/// Packets it keeps, and frames it makes of them to be sent by turns until it has heard fresh ones. Made for each
/// packet anew, they would take more of the core than sending them.
const HEARD: usize = 32;
const MADE: u64 = 1024;

/// Headers of a datagram, bytes; and what a packet with payload has more of them at least.
const HEADER: usize = 40;
const DATA_MIN: usize = 256;

/// Payload of the datagrams that a train is cut into but for its last: all that the path's MTU takes, bytes.
const PART: usize = MTU as usize - 28;

/// Where the sender's key stands in a Hello: makes it another exchange.
const KEY: std::ops::Range<usize> = 36..40;

/// The forged addresses are of this network.
const FORGED_NETWORK: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 0);
const FORGED_PREFIX_LEN: u8 = 16;

/// What the attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Hellos of unauthenticated peers, each from another address.
    Flood,
    /// Copies of the connection's packets: forged, replayed, cut, with a bit flipped.
    Garbage,
    /// Datagrams from the client's address and as long as parts of a train, which have no header either.
    Parts,
}

/// Gives the server a route to the forged addresses, where no host listens.
pub(super) fn route_forged(hosts: &Topology) -> Result<()> {
    let kernel = hosts.b().rtnetlink()?;
    Ok(kernel.add_route(FORGED_NETWORK, FORGED_PREFIX_LEN, hosts.a().ipv4())?)
}

/// An attacker on the client's wire.
#[derive(Debug)]
pub(super) struct Attacker {
    forger: Forger,
    device: String,
    client: Ipv4Addr,
    server: SocketAddrV4,
    hello: Vec<u8>,
}

impl Attacker {
    /// Beside the client, whose namespace this thread is in.
    pub(super) fn new(hosts: &Topology, server: SocketAddr) -> Result<Attacker> {
        let SocketAddr::V4(server) = server else {
            bail!("{server} is not IPv4")
        };
        let device = hosts.a().device().to_owned();
        Ok(Attacker {
            forger: Forger::open(&device)?,
            device,
            client: hosts.a().ipv4(),
            server,
            hello: hello()?,
        })
    }

    /// Attacks for `time`; how many packets left. Calls `look` now and then.
    pub(super) fn attack(
        &self,
        attack: Attack,
        rate: u32,
        time: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        let (mut sent, mut refused, mut dice) = (0, 0, Dice(u64::from(rate)));
        let mut real = self.listen(CONNECT)?;
        let mut garbage = self.make_garbage(attack, &real, &mut dice);
        let (started, mut heard_at) = (Instant::now(), Instant::now());
        // What is due is counted from here: forwards when it is too late for some of it.
        let mut from = started;
        while started.elapsed() < time {
            if heard_at.elapsed() >= LISTEN_EVERY {
                heard_at = Instant::now();
                if attack != Attack::Flood
                    && let Ok(fresh) = self.listen(LISTEN_FOR)
                {
                    real = fresh;
                    garbage = self.make_garbage(attack, &real, &mut dice);
                }
                look()?;
            }
            let late = from.elapsed().min(CATCH_UP);
            from = Instant::now();
            let due = (f64::from(rate) * late.as_secs_f64()).round() as u64;
            for batch in (0..due).step_by(BATCH as usize) {
                let count = BATCH.min(due - batch);
                let frames: Vec<Cow<'_, [u8]>> = (sent + batch..sent + batch + count)
                    .map(|number| match attack {
                        // Each Hello is from a different peer.
                        Attack::Flood => self.hello_of(&real[0], number).into(),
                        Attack::Garbage | Attack::Parts => {
                            Cow::from(&garbage[(number % MADE) as usize])
                        }
                    })
                    .collect();
                let frames: Vec<&[u8]> = frames.iter().map(AsRef::as_ref).collect();
                refused += self.forger.send(&frames);
            }
            sent += due;
            thread::sleep(TICK);
        }
        Ok(sent - refused)
    }

    /// Packets with payload from the client to the server, at least one.
    fn listen(&self, time: Duration) -> Result<Vec<Datagram>> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let mut heard = overhear(&self.device, MTU, HEARD, LISTEN_FOR.min(time))?;
            heard.retain(|it| *it.from.ip() == self.client && it.to == self.server);
            heard.retain(|it| it.payload.len() >= DATA_MIN);
            if !heard.is_empty() {
                return Ok(heard);
            }
        }
        bail!("the client sends nothing")
    }

    /// The Hello of an unauthenticated peer, on the path of `real`.
    fn hello_of(&self, real: &Datagram, number: u64) -> Vec<u8> {
        let forged = Ipv4Addr::from_bits(FORGED_NETWORK.to_bits() + number as u32 % 65_536);
        let mut packet = Datagram {
            from: SocketAddrV4::new(forged, 1024 + (number % 60_000) as u16),
            payload: self.hello.clone(),
            ..*real
        };
        packet.payload[KEY].copy_from_slice(&(number as u32).to_be_bytes());
        packet.frame()
    }

    /// Frames made of what was heard.
    fn make_garbage(&self, attack: Attack, real: &[Datagram], dice: &mut Dice) -> Vec<Vec<u8>> {
        let spoilt = (0..MADE).map(|number| {
            let mut packet = real[dice.below(real.len())].clone();
            if attack == Attack::Parts {
                packet.payload = part(dice);
                // So that the receiver's kernel merges it into a train, where those do not come whole.
                return packet.frame_with_checksum();
            }
            spoil(&mut packet.payload, number, dice);
            packet.frame()
        });
        spoilt.collect()
    }
}

/// Makes garbage of a packet, of each kind by turns.
fn spoil(payload: &mut Vec<u8>, number: u64, dice: &mut Dice) {
    match number % 4 {
        // Repeated as it is.
        0 => {}
        1 => payload.truncate(dice.below(payload.len())),
        2 => {
            let bit = dice.below(payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        // A header of this very connection, with anything behind it.
        _ => payload[HEADER..].chunks_mut(8).for_each(|chunk| {
            let word = dice.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }),
    }
}

/// A datagram as long as the path carries, without a header: anything.
fn part(dice: &mut Dice) -> Vec<u8> {
    let words = (0..PART / 8).flat_map(|_| dice.next().to_le_bytes());
    words.collect()
}

/// Numbers that need not be good (xorshift64*).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A Hello as an honest client sends it, to a peer that does not answer.
fn hello() -> Result<Vec<u8>> {
    let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    nobody.set_read_timeout(Some(CONNECT))?;
    let address = nobody.local_addr()?;
    let impatient = Options::default().with(|it| {
        it.times.connect = Duration::from_millis(50);
        it.lane.choice = LaneChoice::Udp;
    });
    let mut buffer = [0; 2048];
    thread::scope(|scope| {
        scope.spawn(|| Connection::connect(address, &impatient).is_ok());
        let len = nobody.recv(&mut buffer).context("no Hello")?;
        ensure!(len >= KEY.end, "a Hello of {len} bytes");
        Ok(buffer[..len].to_vec())
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn spoil__of_each_kind() {
        let real: Vec<u8> = (0..1472).map(|n| n as u8).collect();
        let mut dice = Dice(1);
        let mut spoilt = |number| {
            let mut payload = real.clone();
            spoil(&mut payload, number, &mut dice);
            payload
        };
        assert_eq!(spoilt(0), real);
        assert!(spoilt(1).len() < real.len());
        let flipped = spoilt(2);
        let bits = flipped.iter().zip(&real).map(|(a, b)| (a ^ b).count_ones());
        assert_eq!(bits.sum::<u32>(), 1);
        let forged = spoilt(3);
        assert_eq!(forged[..HEADER], real[..HEADER]);
        assert_ne!(forged[HEADER..], real[HEADER..]);
    }

    #[test]
    fn part__is_as_long_as_a_trains_and_no_two_are_the_same() {
        let mut dice = Dice(1);
        let (one, other) = (part(&mut dice), part(&mut dice));
        assert_eq!((one.len(), other.len()), (1472, 1472));
        assert_ne!(one, other);
    }

    #[test]
    fn hello__is_one() {
        let hello = hello().unwrap();
        // The code of the key exchange, in the place of an operation.
        assert_eq!(hello[0] >> 3, 31);
    }
}
