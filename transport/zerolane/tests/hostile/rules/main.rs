//! Tests that a peer that breaks the rules of docs/reference/protocol.md, one after another, causes no harm.
//!
//! The peer does the handshake by the rules, as Initiator and as Responder, encrypted and plain. For each broken rule
//! the victim neither panics nor hangs, writes only into memory that it granted (guards around it are checked), counts
//! the packets it drops, continues, and serves an honest client meanwhile. In the end it holds no socket and no memory
//! of the peer.
//!
//! | module | holds |
//! |---|---|
//! | `rule`, `table` | a rule; the list of them, as in rules.md |
//! | `form`, `protection`, `announce`, `data`, `grant`, `memory`, `owner`, `finish`, `eager`, `frames`, `bare`, `trains`, `paths` | the rules, and code that breaks each |
//! | `peer`, `exchange`, `seal` | the hostile peer; its honest set-up; its dishonest seal |
//! | `victim`, `guard` | the attacked end, an honest client, and guarded memory |
//! | `holdings` | the resources of the process |
#![allow(non_snake_case)]

mod advance;
mod announce;
mod bare;
mod data;
mod eager;
mod exchange;
mod finish;
mod form;
mod frames;
mod grant;
mod guard;
mod holdings;
mod memory;
mod owner;
mod paths;
mod peer;
mod protection;
mod rule;
mod seal;
mod table;
mod trains;
mod victim;

use holdings::Holdings;
use peer::{Peer, Role};
use rule::{Outcome, Rule, all};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use victim::{Honest, Served, Victim};
use zerolane::failure::CloseReason;

/// Longest time for a rule, including the victim's patience with a silent peer.
const LIMIT: Duration = Duration::from_secs(60);

/// One test at a time: each checks the holdings of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Rules broken at the same time: most of their time is waiting.
const AT_ONCE: usize = 4;

/// Breaks one rule, while an honest client is served; returns the fate of the victim's connection.
fn broken(rule: &Rule, role: Role, encrypted: bool) -> Served {
    let victim = Victim::start(encrypted, rule);
    let done = AtomicBool::new(false);
    let honest = Honest::connect(&victim, encrypted);
    let hostile = || match role {
        Role::Initiator => {
            let mut peer = Peer::connect(victim.address, encrypted, &rule.terms);
            misbehave(rule, &mut peer);
            peer
        }
        Role::Responder => {
            let (socket, address) = Peer::listen();
            let connecting = victim::connect_to(address, encrypted, rule);
            let mut peer = Peer::accept(socket, encrypted, &rule.terms);
            misbehave(rule, &mut peer);
            peer.connecting = Some(connecting);
            peer
        }
    };
    let (peer, honest) = thread::scope(|scope| {
        let honest = scope.spawn(|| honest.go_on_until(&done));
        // Whatever the result, the others end.
        let peer = catch_unwind(AssertUnwindSafe(hostile));
        done.store(true, Ordering::Relaxed);
        (peer, honest.join())
    });
    let served = victim.stop();
    let mut peer = peer.unwrap_or_else(|panic| resume_unwind(panic));
    honest.unwrap_or_else(|panic| resume_unwind(panic));
    let mut served = served.unwrap_or_else(|panic| resume_unwind(panic));
    let connecting = peer.connecting.take();
    let served = match connecting {
        // The honest client came first.
        None => {
            assert_eq!(served.len(), 2, "{}: connections", rule.name);
            served.remove(1)
        }
        Some(connecting) => connecting.join().unwrap(),
    };
    let beyond = served.touched.saturating_sub(peer.announced as usize);
    assert_eq!(beyond, 0, "{}: bytes beyond what was granted", rule.name);
    served
}

/// Breaks the rule, checks that the connection continues, and ends it; or is silent until the victim ends it.
fn misbehave(rule: &Rule, peer: &mut Peer) {
    (rule.script)(peer);
    match rule.outcome {
        Outcome::GoesOn => peer.is_answered(),
        Outcome::Ended => {}
        Outcome::GivenUp => return,
    }
    peer.leave();
}

fn check(rule: &Rule, encrypted: bool, served: &Served) {
    let sealed: &[_] = if encrypted { rule.sealed_drops } else { &[] };
    let plain: &[_] = if encrypted && !sealed.is_empty() {
        &[]
    } else {
        rule.drops
    };
    for &(reason, at_least) in plain.iter().chain(sealed) {
        let dropped = served.account.protocol.dropped(reason);
        assert!(
            dropped >= at_least,
            "{}: {dropped} dropped as {reason:?}, of {at_least} at least: {:?}",
            rule.name,
            served.account.protocol
        );
    }
    match rule.outcome {
        Outcome::GivenUp => assert_eq!(served.closed, Some(CloseReason::PeerDead), "{}", rule.name),
        Outcome::GoesOn => assert!(
            matches!(served.closed, Some(CloseReason::Peer(_))),
            "{}: {:?}",
            rule.name,
            served.closed
        ),
        Outcome::Ended => {}
    }
}

/// Breaks all rules; in the end the process holds what it held before. `ZEROLANE_RULE` selects some by name, to find
/// the one that leaks.
fn break_all(role: Role, encrypted: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = std::env::var("ZEROLANE_RULE").unwrap_or_default();
    let rules: Vec<_> = all()
        .filter(|rule| rule.only.is_none_or(|only| only == role))
        .filter(|rule| rule.name.contains(&wanted))
        .collect();
    // Lets the first rules allocate what is allocated once.
    let first = &rules[..rules.len().min(4 * AT_ONCE)];
    assert_eq!(break_each(first, role, encrypted), Vec::<&str>::new());
    let before = Holdings::now();
    let broken = break_each(&rules, role, encrypted);
    assert!(broken.is_empty(), "{role:?}: {broken:?}");
    let held = Holdings::now();
    eprintln!("before: {before}; after: {held}");
    held.assert_back_to(&before);
}

/// Breaks `rules`, a few at a time; returns the names of those with a wrong outcome.
fn break_each(rules: &[&Rule], role: Role, encrypted: bool) -> Vec<&'static str> {
    let next = AtomicUsize::new(0);
    let work = || {
        let rules = iter::from_fn(|| rules.get(next.fetch_add(1, Ordering::Relaxed)));
        let kept = |rule: &&&Rule| catch_unwind(|| break_one(rule, role, encrypted)).is_ok();
        let broken = rules.filter(|rule| !kept(rule));
        broken.map(|rule| rule.name).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let workers = [(); AT_ONCE].map(|()| scope.spawn(work));
        let broken = workers.into_iter().flat_map(|it| it.join().unwrap());
        broken.collect()
    })
}

fn break_one(rule: &Rule, role: Role, encrypted: bool) {
    let started = Instant::now();
    let served = broken(rule, role, encrypted);
    let took = started.elapsed();
    let dropped = served.account.protocol.dropped_total();
    eprintln!("{}: {dropped} dropped, {} ms", rule.name, took.as_millis());
    check(rule, encrypted, &served);
    assert!(took < LIMIT, "{}: took {took:?}", rule.name);
}

#[test]
fn every_rule__broken_by_an_initiator_encrypted() {
    break_all(Role::Initiator, true);
}

#[test]
fn every_rule__broken_by_an_initiator_plain() {
    break_all(Role::Initiator, false);
}

#[test]
fn every_rule__broken_by_a_responder_encrypted() {
    break_all(Role::Responder, true);
}

#[test]
fn every_rule__broken_by_a_responder_plain() {
    break_all(Role::Responder, false);
}
