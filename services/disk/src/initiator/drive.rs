//! Tracks a queue's requests, and drives its connection. The driving thread owns this state.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey};
use zerolane_block::sense::Key;
use zerolane_block::sst::Outcome;
use zerolane_block::{Lun, Status};

use super::Options;
use super::driver_slot::{Drive, Over, Shared, refuse};
use super::error::{DisplaySense, Error};
use super::link::{Dial, Ended, Link, result};
use super::request::{Direction, Done, Effect, Part, Request};
use super::unit::Unit;
use crate::limits::{MAX_REPEATS, PAUSE};
use crate::message::{Data, Place};

/// How often commands without a status are looked for, and a wait for completions at most.
const LOOK: Duration = Duration::from_millis(500);
/// Completions taken at a time.
const BATCH: usize = 64;

/// The memory of a request in progress.
enum Held {
    /// This program's alone. Its start is a multiple of 8.
    Own(Region),
    /// Also the target's.
    Exported(ExportedRegion),
}

impl Held {
    /// Fills `into` from its byte `at` on.
    fn copy(&self, at: usize, into: &mut [u8]) {
        match self {
            Held::Own(region) => into.copy_from_slice(&region[at..at + into.len()]),
            Held::Exported(region) => region.read(at, into),
        }
    }

    /// As the target can have it.
    fn exported(&mut self) -> Result<&ExportedRegion, Error> {
        if let Held::Own(region) = self {
            let region = std::mem::replace(region, Region::empty());
            *self = ExportedRegion::new(region).map_or_else(Held::Own, Held::Exported);
        }
        match self {
            Held::Exported(region) => Ok(region),
            Held::Own(_) => Err(Error::Misaligned),
        }
    }

    /// This program's alone again.
    fn into_region(self) -> Result<Region, Error> {
        match self {
            Held::Own(region) => Ok(region),
            // What the target may still have mapped is copied to other memory, which there may be none of.
            Held::Exported(region) => region
                .revoke()
                .map_err(|_| Error::System("no memory to return a request's memory".into())),
        }
    }
}

/// A request in progress.
struct Live {
    over: Over,
    memory: Held,
    is_in: bool,
    /// By which the target knows the memory on this connection.
    key: Option<RegionKey>,
    /// Commands that are not over.
    left: usize,
    is_flush: bool,
    error: Option<Error>,
}

/// Why a turn was none.
enum Exit {
    /// The queue is closed.
    Closed,
    /// The connection broke.
    Broken(Error),
}

pub(super) struct Driver {
    shared: Arc<Shared<Driver>>,
    dial: Dial,
    session: u64,
    options: Options,
    unit: Unit,
    /// `None`: it broke, and there is no other yet.
    link: Option<Link>,
    /// Why there is none.
    why: Option<Exit>,
    batch: Vec<Completion>,
    /// When commands without a status were looked for.
    looked: Instant,
    live: HashMap<u64, Live>,
    /// Commands to be sent.
    waiting: VecDeque<Part>,
    /// Commands that were sent, by slot.
    sent: Vec<Option<(Part, Instant)>>,
    next_request: u64,
    next_order: u64,
    lineage: u64,
    /// Writes that were done, and how many of them were flushed.
    written: u64,
    flushed: u64,
    /// Some of them may be lost.
    is_lost: bool,
}

impl Driver {
    /// A driver of `link` under the name `session`.
    pub(super) fn new(
        shared: Arc<Shared<Driver>>,
        (dial, session): (Dial, u64),
        options: Options,
        unit: Unit,
        link: Link,
    ) -> Driver {
        let mut driver = Driver {
            shared,
            dial,
            session,
            options,
            unit,
            lineage: link.target.session,
            link: None,
            why: None,
            batch: Vec::new(),
            looked: Instant::now(),
            live: HashMap::new(),
            waiting: VecDeque::new(),
            sent: Vec::new(),
            next_request: 0,
            next_order: 0,
            written: 0,
            flushed: 0,
            is_lost: false,
        };
        driver.begin(link);
        driver
    }

    /// Has a connection from here on.
    fn begin(&mut self, link: Link) {
        self.sent.clear();
        self.sent.resize_with(link.slots(), || None);
        self.link = Some(link);
    }

    fn turn_link(&mut self, link: &mut Link, waits: bool) -> Result<(), Exit> {
        let most = link.target.transfer_bytes.min(self.options.transfer_bytes);
        let Some(ended) = self.take_requests(most.into()) else {
            return Err(Exit::Closed);
        };
        // What ended as it was taken may be what this thread waits for.
        let longest = if ended { Duration::ZERO } else { LOOK };
        let mut batch = std::mem::take(&mut self.batch);
        let turned = self
            .send(link)
            .and_then(|()| match waits {
                true => wait(link, &mut batch, longest, self.live.len() > 1),
                false => Ok(link.connection.poll_batch(&mut batch, BATCH).map(drop)?),
            })
            .and_then(|()| self.take_ended(link, &mut batch))
            .and_then(|()| self.look());
        self.batch = batch;
        turned.map_err(Exit::Broken)
    }

    /// Polls the connection once, with or without waiting for events. False if there is no connection.
    fn turn_with(&mut self, waits: bool) -> bool {
        let Some(mut link) = self.link.take() else {
            return false;
        };
        match self.turn_link(&mut link, waits) {
            Ok(()) => self.link = Some(link),
            Err(exit) => {
                self.recall();
                self.why = Some(exit);
            }
        }
        self.link.is_some()
    }

    /// [`Drive::turn`], without a wait.
    pub(super) fn look_once(&mut self) -> bool {
        self.turn_with(false)
    }

    /// The connection, if there is one.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.link.as_ref().map(|it| &it.connection)
    }

    /// Takes new requests, and returns whether any of them is complete at once. `None` if the queue is closed.
    fn take_requests(&mut self, most: u64) -> Option<bool> {
        let requests = {
            let mut inbox = self.shared.inbox();
            if inbox.end.is_some() {
                return None;
            }
            std::mem::take(&mut inbox.requests)
        };
        let (asked, before) = (requests.len(), self.live.len());
        for (request, over) in requests {
            self.take(request, over, most);
        }
        Some(self.live.len() < before + asked)
    }

    fn take(&mut self, request: Request, over: Over, most: u64) {
        let parts = match request.parts(&self.unit, most) {
            Ok(parts) => parts,
            Err(error) => return refuse(request, over, error),
        };
        let is_flush = matches!(request, Request::Flush);
        let (memory, is_in) = request.into_memory();
        if parts.is_empty() {
            let result = Ok(());
            return over.tell(Done { result, memory });
        }
        if !memory.is_empty() && !(memory.as_ptr() as usize).is_multiple_of(8) {
            let result = Err(Error::Misaligned);
            return over.tell(Done { result, memory });
        }
        self.next_request += 1;
        let live = Live {
            over,
            memory: Held::Own(memory),
            is_in,
            key: None,
            left: parts.len(),
            is_flush,
            error: None,
        };
        self.live.insert(self.next_request, live);
        for part in parts {
            self.next_order += 1;
            self.waiting.push_back(Part {
                request: self.next_request,
                order: self.next_order,
                ..part
            });
        }
    }

    /// Sends commands as far as there is room. A command that cannot be sent, for whatever reason, keeps waiting.
    fn send(&mut self, link: &mut Link) -> Result<(), Error> {
        while link.has_room() {
            let Some(mut part) = self.waiting.pop_front() else {
                break;
            };
            match self.send_one(link, &part) {
                Ok(Some(slot)) => {
                    // A flush may miss later writes.
                    part.mark.get_or_insert(self.written);
                    if let Some(place) = self.sent.get_mut(usize::from(slot)) {
                        *place = Some((part, Instant::now()));
                    }
                }
                Ok(None) => {
                    self.waiting.push_front(part);
                    break;
                }
                Err(error) => {
                    self.waiting.push_front(part);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sends a command; its slot. `None`: there is no room in the connection.
    fn send_one(&mut self, link: &mut Link, part: &Part) -> Result<Option<u16>, Error> {
        let data = self.data(link, part)?;
        let lengths = match part.direction {
            Direction::None => (0, 0),
            Direction::In => (part.bytes, 0),
            Direction::Out => (0, part.bytes),
        };
        let lun = Lun::new(self.unit.lun).ok_or(Error::Closed)?;
        Ok(link.send(lun, &part.cdb, lengths, &data)?)
    }

    /// Sends short data of a command ahead of it, or exports its memory if that is not exported yet. Returns the place
    /// of the data.
    fn data(&mut self, link: &mut Link, part: &Part) -> Result<Data, Error> {
        let live = self.live.get_mut(&part.request);
        let Some(live) = live.filter(|_| part.direction != Direction::None) else {
            return Ok(Data::None);
        };
        let copy = |into: &mut [u8]| live.memory.copy(part.offset as usize, into);
        if part.direction == Direction::Out && link.put_in_capsule(part.bytes, copy)? {
            return Ok(Data::InCapsule);
        }
        let region = match live.key {
            Some(key) => key,
            None => link.export(live.memory.exported()?, live.is_in)?,
        };
        live.key = Some(region);
        let offset = part.offset;
        Ok(Data::At(Place { region, offset }))
    }

    fn take_ended(&mut self, link: &mut Link, batch: &mut Vec<Completion>) -> Result<(), Error> {
        for completion in batch.drain(..) {
            if let Some(ended) = link.ended(&completion)? {
                self.on_ended(link, ended)?;
            }
        }
        Ok(())
    }

    fn on_ended(&mut self, link: &mut Link, ended: Ended) -> Result<(), Error> {
        let Ended { slot, outcome } = ended;
        let sent = self.sent.get_mut(usize::from(slot));
        let Some((part, _)) = sent.and_then(Option::take) else {
            return Err(Error::Protocol(format!("a status in slot {slot}")));
        };
        if is_passing(&outcome) && part.repeats < MAX_REPEATS {
            self.shared.repeats.fetch_add(1, Ordering::Relaxed);
            self.waiting.push_front(Part {
                repeats: part.repeats + 1,
                ..part
            });
            return Ok(());
        }
        let outcome = match result(&outcome) {
            Ok(moved)
                if part.direction == Direction::In
                    && !(part.least..=part.bytes).contains(&moved) =>
            {
                let short = format!("{moved} bytes of {}", part.bytes);
                Err(Error::Protocol(short))
            }
            other => other.map(drop),
        };
        self.on_over(Some(link), &part, outcome);
        Ok(())
    }

    /// Handles the end of a command.
    fn on_over(&mut self, link: Option<&mut Link>, part: &Part, outcome: Result<(), Error>) {
        match (&outcome, part.effect) {
            (Ok(()), Effect::Flushes) => {
                self.flushed = self.flushed.max(part.mark.unwrap_or(0));
            }
            // A failed write may be partly executed.
            (_, Effect::Dirties | Effect::Exchanges) => self.written += 1,
            _ => {}
        }
        let Some(live) = self.live.get_mut(&part.request) else {
            return;
        };
        live.left -= 1;
        if let Err(error) = outcome {
            live.error = Some(match live.error.take() {
                Some(first) => first.and(error),
                None => error,
            });
        }
        if live.left == 0
            && let Some(live) = self.live.remove(&part.request)
        {
            self.finish(link, live);
        }
    }

    /// Completes a request.
    fn finish(&mut self, link: Option<&mut Link>, live: Live) {
        if let (Some(link), Some(key)) = (link, live.key) {
            link.connection.revoke(&key);
        }
        let error = match live.error {
            None if live.is_flush && self.is_lost => Some(Error::Lost),
            error => error,
        };
        live.over.tell(done(error, live.memory.into_region()));
    }

    /// Commands without a status for too long mean that the connection is broken.
    fn look(&mut self) -> Result<(), Error> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let patience = self.options.command_patience;
        let mut sent = self.sent.iter().flatten();
        if sent.any(|(_, since)| since.elapsed() > patience) {
            return Err(Error::Protocol(format!("no status within {patience:?}")));
        }
        Ok(())
    }

    /// Queues all sent commands for another send, in order.
    fn recall(&mut self) {
        let mut sent: Vec<Part> = self.sent.drain(..).flatten().map(|(it, _)| it).collect();
        for part in &mut sent {
            part.is_in_doubt = part.effect == Effect::Exchanges;
            if !part.is_in_doubt {
                part.repeats += 1;
                self.shared.repeats.fetch_add(1, Ordering::Relaxed);
            }
        }
        sent.extend(self.waiting.drain(..));
        sent.sort_by_key(|it| it.order);
        self.waiting = sent.into();
        self.live.values_mut().for_each(|it| it.key = None);
        // Of a turn that did not end.
        self.batch.clear();
    }

    /// Commands of which that is so are not sent again, and fail so.
    fn give_up(&mut self, is_such: impl Fn(&Part) -> bool, error: &Error) {
        for part in std::mem::take(&mut self.waiting) {
            match is_such(&part) {
                true => self.on_over(None, &part, Err(error.clone())),
                false => self.waiting.push_back(part),
            }
        }
    }

    /// Connects again. Requests that were repeated too often fail.
    fn connect_again(&mut self, why: Error) -> Result<Link, Error> {
        self.give_up(|it| it.repeats > MAX_REPEATS, &Error::Repeated(MAX_REPEATS));
        let mut since = Instant::now();
        let mut last = why;
        loop {
            let (end, has_requests) = {
                let inbox = self.shared.inbox();
                (inbox.end.clone(), !inbox.requests.is_empty())
            };
            if let Some(error) = end {
                return Err(error);
            }
            // While no request waits for it, a target may stay away without limit.
            let is_idle = self.waiting.is_empty() && !has_requests;
            if !is_idle && since.elapsed() > self.options.patience {
                return Err(Error::Unreachable {
                    patience: self.options.patience,
                    last: last.to_string(),
                });
            }
            match self.connect() {
                Ok(link) => return Ok(link),
                Err(error @ Error::OtherDisk { .. }) => return Err(error),
                Err(error) => last = error,
            }
            if is_idle {
                // Requests that arrived meanwhile have not waited for an attempt yet.
                since = Instant::now();
            }
            let inbox = self.shared.inbox();
            if inbox.end.is_none() {
                drop(self.shared.news.wait_timeout(inbox, PAUSE));
            }
        }
    }

    fn connect(&mut self) -> Result<Link, Error> {
        let patience = self.options.patience;
        let depth = self.options.depth.clamp(1, 256);
        let lun = Lun::new(self.unit.lun).ok_or(Error::Closed)?;
        let mut link = Link::open((self.dial)()?, self.session, depth, patience)?;
        let unit = Unit::ask(&mut link, lun, patience)?;
        let is_same = unit.serial == self.unit.serial
            && (unit.blocks, unit.block_bytes) == (self.unit.blocks, self.unit.block_bytes);
        if !is_same {
            let words = |it: &Unit| format!("{} of {} bytes", it.serial, it.bytes());
            return Err(Error::OtherDisk {
                known: words(&self.unit),
                found: words(&unit),
            });
        }
        if link.target.session != self.lineage {
            self.lineage = link.target.session;
            self.is_lost |= self.written > self.flushed;
        }
        self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
        self.shared.inbox().waker = link.connection.waker();
        Ok(link)
    }

    /// All that is not over fails so.
    fn end(&mut self, error: &Error) {
        self.shared.fail(error.clone());
        let requests = std::mem::take(&mut self.shared.inbox().requests);
        for (_, mut live) in std::mem::take(&mut self.live) {
            live.error = Some(error.clone());
            self.finish(None, live);
        }
        for (request, over) in requests {
            refuse(request, over, error.clone());
        }
    }
}

impl Drive for Driver {
    fn has_link(&self) -> bool {
        self.link.is_some()
    }

    fn is_busy(&self) -> bool {
        !self.live.is_empty()
    }

    fn turn(&mut self) -> bool {
        self.turn_with(true)
    }

    fn reconnect(&mut self) -> bool {
        let error = match self.why.take() {
            None | Some(Exit::Closed) => Error::Closed,
            Some(Exit::Broken(why)) => match self.connect_again(why) {
                Ok(link) => {
                    // Now nothing more of it is done.
                    self.give_up(|it| it.is_in_doubt, &Error::InDoubt);
                    self.begin(link);
                    return true;
                }
                Err(error) => error,
            },
        };
        self.end(&error);
        false
    }
}

/// The result of a request from its `error`, if any, and its returned memory. Without its memory a request cannot
/// succeed, because the caller would take the data from there.
fn done(error: Option<Error>, memory: Result<Region, Error>) -> Done {
    let (memory, missing) = match memory {
        Ok(memory) => (memory, None),
        Err(why) => (Region::empty(), Some(why)),
    };
    let result = error.or(missing).map_or(Ok(()), Err);
    Done { result, memory }
}

/// Waits for a completion, and takes those that arrive with it.
fn wait(
    link: &mut Link,
    batch: &mut Vec<Completion>,
    longest: Duration,
    more: bool,
) -> Result<(), Error> {
    if let Some(first) = link.connection.wait(Some(longest))?.got() {
        batch.push(first);
        if more {
            link.connection.poll_batch(batch, BATCH)?;
        }
    }
    Ok(())
}

/// The command failed for a transient reason.
fn is_passing(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Response {
            status: Status::TaskSetFull,
            ..
        } => true,
        outcome => match result(outcome) {
            Err(Error::Sense(DisplaySense(sense))) => {
                matches!(sense.key, Key::UnitAttention | Key::AbortedCommand)
            }
            _ => false,
        },
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
