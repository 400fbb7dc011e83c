//! Tracks the paths of a connection: probes each, judges which are alive, and chooses the one for control operations.
//!
//! The header holds no addresses, so a datagram from any path of a connection belongs to the connection. Round trip,
//! datagram size and liveness belong to a path. All live paths carry payload, each as fast as its own controller
//! allows, or, without a limit, with as much in flight as the others. Reports on a path's payload return by the same
//! path, so that the round trip belongs to that path alone. Everything else uses the shortest path.
//!
//! A silent path is probed twice while something is expected. If neither probe is answered while the peer is heard on
//! another path, the path is suspect: its payload in flight is retransmitted on the others, and it is probed until it
//! answers.

use crate::path::Path;
use crate::recovery::Recovery;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{MAX_PATHS, Nop, Operation};

/// Highest bits of a burst's number that identify its path, where a connection may have several.
pub(crate) const PATH_BITS: u32 = MAX_PATHS.ilog2();

/// Shortest wait for the answer of a path: busy ends take that long.
const MIN_PATIENCE: Duration = Duration::from_millis(4);
/// First wait for the answer of a path without a known round trip, or of a suspect path. Each further wait is twice as
/// long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Most questions, answers and reports that wait to leave by one path.
const MAX_OWED: usize = 64;
/// How far a question may lie behind the peer's newest and still count as a copy of an earlier one. A larger distance
/// means a new question, because numbers wrap.
const MAX_AGE: u32 = 1 << 16;
/// Probes of a path that never answered.
const JOIN_TRIES: u32 = 12;

/// State of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathLife {
    /// The path does not exist.
    #[default]
    Absent,
    /// The path is being probed for the first time.
    Joining,
    /// The path answers, and its datagram size is being probed: at first, and when a lost datagram may have been too
    /// long.
    Sizing,
    /// The path carries payload.
    Usable,
    /// The path does not answer.
    Suspect,
}

/// A question on a path.
#[derive(Clone, Copy, Debug)]
struct Question {
    sync: u32,
    at: Instant,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) life: PathLife,
    /// When a datagram last came by it.
    pub(crate) heard: Instant,
    /// Its round trip; the context holds that of the control path.
    recovery: Recovery,
    /// Round trips of answers that return by the path itself.
    pub(crate) answers: Recovery,
    /// Its datagram size; the context holds that of the first path.
    pub(crate) mtu: Option<Path>,
    /// The newest unanswered question.
    question: Option<Question>,
    /// Older questions of a path that never answered, at most [`JOIN_TRIES`]. An answer that comes after the next
    /// question still counts.
    older: Vec<Question>,
    /// The nonce that the first answer must repeat, whichever question it answers.
    nonce: Option<u32>,
    /// Number of the newest question or farewell of the peer on it: kept when the path is closed.
    newest: Option<u32>,
    /// When the first of the unanswered questions left.
    since: Instant,
    /// When to check it next.
    due: Instant,
    tries: u32,
    /// Answers in a row without payload in either direction. Each one lengthens the interval between questions.
    rounds: u32,
    /// Operations to send by it.
    owed: VecDeque<Operation>,
}

impl Link {
    fn new(now: Instant, life: PathLife, mtu: Option<Path>) -> Link {
        Link {
            life,
            heard: now,
            recovery: Recovery::adaptive(),
            answers: Recovery::adaptive(),
            mtu,
            question: None,
            older: Vec::new(),
            nonce: None,
            newest: None,
            since: now,
            due: now,
            tries: 0,
            rounds: 0,
            owed: VecDeque::new(),
        }
    }

    /// Whether a question is open, and nothing came since.
    fn is_doubted(&self) -> bool {
        self.tries > 0 && self.heard <= self.since
    }

    fn carries(&self) -> bool {
        self.life == PathLife::Usable
    }
}

/// All paths of a connection.
#[derive(Debug)]
pub(crate) struct Links {
    /// Empty while there is only the first path.
    list: Vec<Link>,
    /// Most paths.
    pub(crate) most: usize,
    /// The path that calls refer to.
    pub(crate) selected: usize,
    /// The path that carries control operations.
    pub(crate) control: usize,
    /// Paths beyond the first that are not absent.
    more: usize,
    /// Until then this end owes answers, though nothing of this end depends on the peer.
    answers_until: Instant,
    /// A bit for each path: the last search found nothing to send by it, and there was no entry since.
    quiet: u8,
}
const _: () = assert!(MAX_PATHS as u32 <= u8::BITS);

/// The consequence of a path check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It carries from now on.
    Up(usize),
    /// It does not answer.
    Down(usize),
    /// It was given up.
    Gone(usize),
}

impl Links {
    pub(crate) fn new() -> Links {
        Links {
            list: Vec::new(),
            most: 1,
            selected: 0,
            control: 0,
            more: 0,
            answers_until: Instant::ZERO,
            quiet: 0,
        }
    }

    /// Bits of a burst's number that identify its path.
    pub(crate) fn path_bits(&self) -> u32 {
        if self.most > 1 { PATH_BITS } else { 0 }
    }

    /// The path of the burst with that number.
    pub(crate) fn of_burst(&self, number: u32) -> usize {
        match self.path_bits() {
            0 => 0,
            bits => (number >> (u32::BITS - bits)) as usize,
        }
    }

    /// Whether there are several paths.
    pub(crate) fn is_several(&self) -> bool {
        self.more > 0
    }

    pub(crate) fn get(&self, path: usize) -> Option<&Link> {
        self.list.get(path).filter(|it| it.life != PathLife::Absent)
    }

    fn get_mut(&mut self, path: usize) -> Option<&mut Link> {
        let link = self.list.get_mut(path);
        link.filter(|it| it.life != PathLife::Absent)
    }

    pub(crate) fn life(&self, path: usize) -> PathLife {
        match self.list.get(path) {
            Some(link) => link.life,
            None if path == 0 => PathLife::Usable,
            None => PathLife::Absent,
        }
    }

    /// Whether the silent `path` is being questioned, while another path is not.
    pub(crate) fn is_doubted(&self, path: usize) -> bool {
        let doubted = |path: usize| self.get(path).is_some_and(Link::is_doubted);
        doubted(path) && self.carrying().any(|other| !doubted(other))
    }

    /// Whether `path` may carry payload.
    pub(crate) fn carries(&self, path: usize) -> bool {
        !self.is_several() || self.get(path).is_some_and(Link::carries)
    }

    /// Whether control operations leave by the selected path.
    pub(crate) fn carries_control(&self) -> bool {
        !self.is_several() || self.selected == self.control
    }

    /// The paths that carry.
    pub(crate) fn carrying(&self) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.list.len().max(1);
        all.filter(|&path| self.life(path) == PathLife::Usable)
    }

    /// Datagram sizes of the paths beyond the first that carry, bytes.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = usize> + '_ {
        let carry = self.list.iter().filter(|it| it.carries());
        carry.filter_map(|it| Some(it.mtu.as_ref()?.confirmed()))
    }

    pub(crate) fn mark_dirty(&mut self) {
        self.quiet = 0;
    }

    pub(crate) fn found_nothing(&mut self) {
        self.quiet |= 1 << self.selected;
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let mut there = (0..self.list.len().max(1)).filter(|&it| self.life(it) != PathLife::Absent);
        there.all(|path| self.quiet & 1 << path != 0)
    }

    /// A datagram came by the selected path.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        if self.is_several()
            && let Some(link) = self.list.get_mut(self.selected)
        {
            link.heard = now;
        }
    }

    /// An operation came by the selected path, while answers leave by the control path. The peer may use this path
    /// because it hears nothing on the other: checks whether the control path carries, as if a request of this end
    /// depended on it. Returns true if it was not being checked before.
    pub(crate) fn on_operation(&mut self, now: Instant) -> bool {
        if self.carries_control() {
            return false;
        }
        let was = self.is_answering(now);
        self.on_answering(now);
        !was
    }

    /// Answers to the peer leave: this end must watch that they arrive.
    pub(crate) fn on_answering(&mut self, now: Instant) {
        self.answers_until = now + MAX_WAIT;
    }

    /// Whether the peer may wait for answers of this end.
    pub(crate) fn is_answering(&self, now: Instant) -> bool {
        now < self.answers_until
    }

    /// Payload leaves or arrives: silence must be noticed soon.
    pub(crate) fn on_payload(&mut self, now: Instant) {
        for link in &mut self.list {
            // Its check is far off, because nothing was expected.
            if link.rounds > 0 || link.due - now > MAX_WAIT {
                (link.rounds, link.due) = (0, now + MIN_PATIENCE);
            }
        }
    }

    /// A request depends on the peer: checks the carrying paths.
    pub(crate) fn watch(&mut self, now: Instant) {
        for link in self.list.iter_mut().filter(|it| it.carries()) {
            link.due = link.due.min(now + MIN_PATIENCE);
        }
    }

    /// The peer saw a burst that left by `path`.
    pub(crate) fn on_seen(&mut self, now: Instant, path: usize) {
        if self.is_several()
            && let Some(link) = self.list.get_mut(path)
        {
            link.heard = now;
        }
    }

    /// The lowest free index, if another path is allowed.
    pub(crate) fn free(&self) -> Option<usize> {
        (1..self.most).find(|&path| self.life(path) == PathLife::Absent)
    }

    /// Opens path `path`, with datagrams of at most `datagram` bytes. With a `nonce`, this end only answers until the
    /// peer repeats it; without one, this end asks.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        path: usize,
        (encapsulation, datagram): (Encapsulation, usize),
        nonce: Option<u32>,
    ) {
        while self.list.len() <= path {
            let life = self.life(self.list.len());
            self.list.push(Link::new(now, life, None));
        }
        let mtu = Path::new(encapsulation, datagram);
        let mut link = Link::new(now, PathLife::Joining, Some(mtu));
        if let Some(sync) = nonce {
            link.nonce = nonce;
            link.ask(now, path, sync, 0);
            link.due = now + FIRST_WAIT;
        }
        link.newest = self.list[path].newest;
        self.more += usize::from(self.life(path) == PathLife::Absent);
        self.list[path] = link;
        self.quiet &= !(1 << path);
    }

    /// The peer sent a question or farewell with this number by `path`.
    pub(crate) fn on_asked(&mut self, path: usize, sync: u32) {
        if let Some(link) = self.get_mut(path) {
            link.newest = Some(sync);
        }
    }

    /// Whether a question with this number is no copy from before `path` was closed. A socket that receives for all
    /// paths may deliver a copy late, and the network may repeat one.
    pub(crate) fn is_new(&self, path: usize, sync: u32) -> bool {
        let newest = self.list.get(path).and_then(|it| it.newest);
        newest.is_none_or(|newest| newest.wrapping_sub(sync) >= MAX_AGE)
    }

    /// Closes `path`.
    pub(crate) fn close(&mut self, path: usize) {
        if path > 0
            && let Some(link) = self.get_mut(path)
        {
            link.life = PathLife::Absent;
            link.owed.clear();
            link.question = None;
            self.more -= 1;
        }
        if self.more == 0
            && let Some(first) = self.list.first_mut()
        {
            // No other path is left to compare it with.
            (first.life, first.tries) = (PathLife::Usable, 0);
        }
    }

    /// The next operation of the selected path's own queue.
    pub(crate) fn take_owed(&mut self) -> Option<Operation> {
        self.list.get_mut(self.selected)?.owed.pop_front()
    }

    /// Queues `operation` on `path`. False if the path does not exist, or its queue is full.
    pub(crate) fn owe(&mut self, path: usize, operation: Operation) -> bool {
        let Some(link) = self.get_mut(path) else {
            return false;
        };
        let room = link.owed.len() < MAX_OWED;
        if room {
            link.owed.push_back(operation);
        }
        room
    }

    /// The answer `nop` came by the selected path. If it answers that path's question: takes its round trip, unless
    /// several questions make the answer ambiguous, and returns the consequence.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        nop: &Nop,
    ) -> Option<(Option<Duration>, Option<Verdict>)> {
        let path = self.selected;
        let link = self.get_mut(path)?;
        let mut asked = link.older.iter().chain(&link.question);
        let question = *asked.find(|it| it.sync == nop.sync)?;
        link.question = None;
        link.older.clear();
        let once = link.nonce != Some(question.sync) || link.tries == 1;
        let took = once.then(|| now - question.at);
        (link.tries, link.due) = (0, now);
        if let Some(took) = took {
            link.answers.sample(now, took);
        }
        let mut verdict = None;
        if let Some(mtu) = link.mtu.as_mut().filter(|_| nop.probe != 0) {
            mtu.probe_passed(now, nop.probe as usize);
        }
        match link.life {
            PathLife::Joining => link.life = PathLife::Sizing,
            PathLife::Suspect => {
                link.life = PathLife::Usable;
                verdict = Some(Verdict::Up(path));
            }
            PathLife::Usable => link.rounds += 1,
            PathLife::Absent | PathLife::Sizing => {}
        }
        Some((took, verdict))
    }

    /// The datagram size of `path`; the context holds that of the first.
    pub(crate) fn size_of(&self, path: usize) -> Option<&Path> {
        self.get(path)?.mtu.as_ref()
    }

    /// A datagram of the size in use arrived by `path`.
    pub(crate) fn proven(&mut self, path: usize) {
        if let Some(mtu) = self.get_mut(path).and_then(|it| it.mtu.as_mut()) {
            mtu.proven();
        }
    }

    /// `path`, which is not the first, lost a datagram, perhaps because it was too long. Returns true if the size must
    /// be verified: the path carries nothing meanwhile.
    pub(crate) fn doubt_size(&mut self, now: Instant, path: usize) -> bool {
        let Some(link) = self.get_mut(path).filter(|it| it.carries()) else {
            return false;
        };
        let doubts = link.mtu.as_mut().is_some_and(|it| it.doubt(now));
        if doubts {
            link.size(now);
        }
        doubts
    }

    /// The interface of the selected path, which is not the first, carries datagrams of `datagram` bytes.
    pub(crate) fn set_limit(&mut self, now: Instant, datagram: usize) {
        let path = self.selected;
        if let Some(link) = self.get_mut(path)
            && let Some(mtu) = &mut link.mtu
        {
            let changed = mtu.set_limit(datagram);
            if changed && link.carries() {
                link.size(now);
            }
        }
    }

    /// The path to which control must change, if any, by the round trips that `rtt` reports.
    pub(crate) fn better_control(&self, rtt: impl Fn(usize) -> Option<Duration>) -> Option<usize> {
        let took = |path: usize| rtt(path).unwrap_or(MAX_WAIT);
        let doubted = |path: usize| self.list[path].is_doubted();
        let best = self
            .carrying()
            .min_by_key(|&path| (doubted(path), took(path)))?;
        if doubted(self.control) && !doubted(best) {
            return Some(best);
        }
        // Control stays on a path whose round trip is not yet known.
        let good = rtt(self.control).is_none() || took(self.control) <= took(best) * 5 / 4;
        let stays = self.carries(self.control) && good;
        (best != self.control && !stays).then_some(best)
    }

    /// The recovery of `path`, which is not the control path.
    pub(crate) fn parked(&self, path: usize) -> Option<&Recovery> {
        self.list.get(path).map(|it| &it.recovery)
    }

    pub(crate) fn parked_mut(&mut self, path: usize) -> Option<&mut Recovery> {
        self.list.get_mut(path).map(|it| &mut it.recovery)
    }

    /// Moves control to `path`, and exchanges its recovery with `recovery`.
    pub(crate) fn set_control(&mut self, path: usize, recovery: &mut Recovery) {
        let old = core::mem::replace(&mut self.control, path);
        core::mem::swap(recovery, &mut self.list[path].recovery);
        let of_old = core::mem::replace(&mut self.list[path].recovery, Recovery::adaptive());
        self.list[old].recovery = of_old;
    }

    /// When the next path must be checked.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let there = self.list.iter().filter(|it| it.life != PathLife::Absent);
        there.map(|it| it.due).min().filter(|_| self.is_several())
    }

    /// Checks `path`: asks, waits, or judges. `busy`: something is expected from the peer. `patience`: how long an
    /// answer may take, if known. `size`: bytes of the datagrams on the first path. `idle`: the silence that ends the
    /// path. The last argument has numbers for two questions.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        path: usize,
        busy: bool,
        patience: Option<Duration>,
        (size, idle): (usize, Duration),
        [sync, other]: [u32; 2],
    ) -> Option<Verdict> {
        // The peer is alive: datagrams missing on this path are lost.
        let elsewhere = (0..self.list.len())
            .filter(|&it| it != path && self.list[it].carries())
            .map(|it| self.list[it].heard)
            .max();
        let link = self.get_mut(path).filter(|it| it.due <= now)?;
        let wait = patience.unwrap_or(FIRST_WAIT).max(MIN_PATIENCE);
        let backed_off = |tries: u32| (FIRST_WAIT.max(wait) * (1 << tries.min(5))).min(MAX_WAIT);
        match link.life {
            PathLife::Absent => None,
            PathLife::Joining if link.tries >= JOIN_TRIES => Some(Verdict::Gone(path)),
            PathLife::Joining => {
                link.due = now + backed_off(link.tries);
                link.older.extend(link.question);
                link.ask(now, path, link.nonce.unwrap_or(sync), 0);
                None
            }
            PathLife::Sizing => {
                let mtu = link.mtu.as_mut()?;
                let heard = link.question.is_none_or(|it| link.heard > it.at);
                mtu.unanswered(heard);
                let probe = mtu.next_probe(mtu.confirmed() < size);
                let is_own = probe == Some(mtu.confirmed());
                match probe {
                    Some(probe) => {
                        link.due = now + wait;
                        link.ask(now, path, sync, probe as u32);
                        if is_own {
                            // Tests whether short datagrams arrive.
                            link.owed.push_back(question(path, other, 0));
                        }
                        None
                    }
                    None => {
                        (link.life, link.question, link.tries) = (PathLife::Usable, None, 0);
                        Some(Verdict::Up(path))
                    }
                }
            }
            PathLife::Suspect => {
                if path > 0 && now - link.heard > idle {
                    return Some(Verdict::Gone(path));
                }
                link.due = now + backed_off(link.tries);
                link.ask(now, path, sync, 0);
                None
            }
            PathLife::Usable => {
                let asked = link.tries > 0;
                if asked && link.heard > link.since {
                    (link.tries, link.question) = (0, None);
                }
                if !busy {
                    link.due = now + idle;
                    return None;
                }
                let quiet_until =
                    link.heard + (wait * (1 << link.rounds.min(8))).min(MAX_WAIT.max(wait));
                if link.tries == 0 && quiet_until > now && patience.is_some() {
                    link.due = quiet_until;
                    return None;
                }
                if link.tries >= 2 && elsewhere.is_some_and(|at| at > link.since) {
                    (link.life, link.tries, link.due) = (PathLife::Suspect, 0, now + wait);
                    return Some(Verdict::Down(path));
                }
                if link.tries == 0 {
                    link.since = now;
                }
                link.due = match link.tries {
                    0 => now + wait / 4,
                    1 => now + wait * 3 / 4,
                    tries => now + backed_off(tries),
                };
                link.ask(now, path, sync, 0);
                None
            }
        }
    }
}

impl Link {
    /// Starts probing its datagram size.
    fn size(&mut self, now: Instant) {
        (self.life, self.due, self.question, self.tries) = (PathLife::Sizing, now, None, 0);
    }

    fn ask(&mut self, now: Instant, path: usize, sync: u32, probe: u32) {
        self.tries += 1;
        self.question = Some(Question { sync, at: now });
        let is_question = |it: &Operation| matches!(it, Operation::Nop(nop) if nop.send_state);
        self.owed.retain(|it| !is_question(it));
        self.owed.push_back(question(path, sync, probe));
    }
}

fn question(path: usize, sync: u32, probe: u32) -> Operation {
    Operation::Nop(Nop {
        send_state: true,
        probe,
        path: path as u8,
        sync,
        ..Nop::default()
    })
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
