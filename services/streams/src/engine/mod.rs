//! Multiplexes the streams of one connection, without IO: messages in, messages out, and events for the program.
//!
//! The engine owns the memory: what a source is read into is sent as it is, and what a message arrived in is read from.
//! Time is an argument.

mod flight;
mod inbox;
mod outbox;
mod ready;

use crate::limits::{
    BUNDLE_BYTES, DEFAULT_PRIORITY, EXTRA_WINDOW, MAX_AHEAD, MAX_OWED, MAX_PURPOSE, MAX_SPARE,
    MAX_STREAMS, MAX_WORDS, MESSAGE_BYTES, PRIORITIES, RECEIVES,
};
use crate::message::{
    CHUNK_HEADER, DATA_HEADER, Frame, Malformed, Message, Reset, ResetCode, StreamId, VERSION,
};
use flight::{Flight, Ticket};
use inbox::{Held, Inbox};
use outbox::{Finish, Outbox};
use ready::{Queued, Turns};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::time::Instant;
use zerolane::Region;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connected.
    Connector,
    /// It accepted.
    Acceptor,
}

/// What happened to a stream. Each is reported once until the program has looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream: see [`Engine::purpose`].
    Opened(StreamId),
    /// The peer's program took a stream that this end opened.
    Accepted(StreamId),
    /// There are bytes to read, or their end.
    Readable(StreamId),
    /// There is room after [`Engine::fill`] found none.
    Writable(StreamId),
    /// The peer ended the stream: see [`Engine::reset_reason`].
    Reset(StreamId),
}

/// How the peer broke the rules; its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message cannot be parsed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {0} of streams, this end {VERSION}: install the same version at both ends"
    )]
    Version(u16),
    /// The first frame is no hello, or a later one is.
    #[error("the peer did not greet, or greeted twice")]
    Hello,
    /// More payload than granted.
    #[error("the peer sent more than it was granted")]
    Credit,
    /// Payload twice.
    #[error("the peer sent the same bytes twice")]
    Twice,
    /// Too much payload before what precedes it.
    #[error("the peer left a gap")]
    Ahead,
    /// Payload behind the end, or two ends.
    #[error("the peer contradicts the length of a stream")]
    Length,
    /// A stream that the peer must not use: one of this end that was never opened, or an old one opened again.
    #[error("the peer used a stream that does not exist")]
    NoStream,
    /// Too many frames that demand answers.
    #[error("the peer demands too many answers")]
    TooManyOwed,
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Too many are open.
    #[error("too many streams: {MAX_STREAMS} are open")]
    TooMany,
    /// The purpose is too long.
    #[error("a purpose has at most {MAX_PURPOSE} bytes")]
    Purpose,
}

/// The outcome of [`Engine::fill`].
#[derive(Debug)]
pub enum Fill {
    /// There is no room now; [`Event::Writable`] follows.
    Full,
    /// The stream was reset, finished or released.
    Ended,
    /// The source was asked.
    Asked(io::Result<usize>),
}

/// A message to send as one Transfer.
#[derive(Debug)]
pub struct Outgoing {
    /// Its number, for [`Engine::on_sent`].
    pub number: u64,
    /// Its bytes.
    pub memory: Region,
}

#[derive(Debug)]
struct Stream {
    priority: u8,
    by_peer: bool,
    purpose: Vec<u8>,
    inbox: Inbox,
    outbox: Outbox,
    reset: Option<Reset>,
    /// It is reset when what was queued has arrived.
    aborts: Option<Reset>,
    /// The program has not released it.
    is_held: bool,
    /// It waits for its turn to send.
    is_ready: bool,
    /// The program found no room: because of the queue of its priority, or for another reason.
    waits_in_queue: bool,
    wants_room: bool,
    /// The program was told that it can read, and has not found it empty since.
    told_readable: bool,
    credit_owed: bool,
}

/// A frame that must be sent.
#[derive(Debug)]
enum Owed {
    Hello,
    Open(StreamId),
    Accept(StreamId),
    Finish(StreamId),
    Credit(StreamId),
    Blocked(StreamId, u64),
    Reset(StreamId, Reset),
}

/// A message in flight, and the rest of its memory.
#[derive(Debug)]
struct Leaving {
    ticket: Ticket,
    rest: Option<Region>,
}

/// The streams of one connection. See the [module](self).
#[derive(Debug)]
pub struct Engine {
    role: Role,
    streams: HashMap<StreamId, Stream>,
    /// The next stream that each end opens.
    next_own: u64,
    next_peer: u64,
    /// Streams that each end opened and that are not over.
    own: usize,
    peers: usize,
    greeted: bool,
    events: VecDeque<Event>,
    owed: VecDeque<Owed>,
    ready: Turns,
    queued: Queued,
    spare: Vec<Region>,
    /// What windows may still grow by.
    extra: u64,
    /// Receives posted, and messages processed in order.
    receives: u64,
    processed: u64,
    /// Receives that no message has filled.
    waiting_receives: usize,
    /// Messages behind one that is not complete; `None`: processed.
    early: BTreeMap<u64, Option<(Region, usize)>>,
    flight: Flight,
    leaving: HashMap<u64, Leaving>,
    /// Streams that are reset when all messages before this number are at the peer.
    aborting: Vec<(u64, StreamId)>,
    sent: u64,
}

impl Engine {
    /// An engine without streams.
    pub fn new(role: Role) -> Engine {
        let (next_own, next_peer) = match role {
            Role::Connector => (0, 1),
            Role::Acceptor => (1, 0),
        };
        Engine {
            role,
            streams: HashMap::new(),
            next_own,
            next_peer,
            own: 0,
            peers: 0,
            greeted: false,
            events: VecDeque::new(),
            owed: VecDeque::from([Owed::Hello]),
            ready: Turns::default(),
            queued: Queued::default(),
            spare: Vec::new(),
            extra: EXTRA_WINDOW,
            receives: 0,
            processed: 0,
            waiting_receives: 0,
            early: BTreeMap::new(),
            flight: Flight::new(),
            leaving: HashMap::new(),
            aborting: Vec::new(),
            sent: 0,
        }
    }

    /// Opens a stream. It can be written at once.
    ///
    /// # Errors
    /// Too many are open, or the purpose is too long.
    pub fn open(&mut self, purpose: &[u8], priority: Option<u8>) -> Result<StreamId, OpenError> {
        if self.own >= MAX_STREAMS {
            return Err(OpenError::TooMany);
        }
        if purpose.len() > MAX_PURPOSE {
            return Err(OpenError::Purpose);
        }
        let id = StreamId(self.next_own);
        self.next_own += 2;
        self.own += 1;
        let priority = priority
            .unwrap_or(DEFAULT_PRIORITY)
            .min(PRIORITIES as u8 - 1);
        self.streams
            .insert(id, Stream::new(priority, false, purpose));
        self.owed.push_back(Owed::Open(id));
        self.begin(id);
        Ok(id)
    }

    /// Tells the peer that the program took the stream that the peer opened.
    pub fn accept(&mut self, id: StreamId) {
        if self.is_live(id) {
            self.owed.push_back(Owed::Accept(id));
        }
    }

    /// What the opener of a stream wrote.
    pub fn purpose(&self, id: StreamId) -> &[u8] {
        self.streams.get(&id).map_or(&[], |it| &it.purpose)
    }

    /// The priority that the opener of a stream chose.
    pub fn priority(&self, id: StreamId) -> Option<u8> {
        self.streams.get(&id).map(|it| it.priority)
    }

    /// Why the stream was reset, if it was.
    pub fn reset_reason(&self, id: StreamId) -> Option<&Reset> {
        self.streams.get(&id)?.reset.as_ref()
    }

    fn is_live(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|it| it.reset.is_none())
    }

    /// Streams that are not over.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asks `source` to fill memory, with as many bytes as the stream may queue now. They are sent as they are, unless
    /// they are few. A source that returns 0 bytes or an error changes nothing.
    pub fn fill(
        &mut self,
        id: StreamId,
        source: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Fill {
        let Some(stream) = self.streams.get_mut(&id).filter(|it| it.can_write()) else {
            return Fill::Ended;
        };
        let priority = stream.priority;
        if !self.queued.has_room(priority) {
            if !std::mem::replace(&mut stream.waits_in_queue, true) {
                self.queued.wait(priority, id);
            }
            return Fill::Full;
        }
        let room = stream.outbox.room();
        if room == 0 {
            stream.wants_room = true;
            if let Some(limit) = stream.outbox.blocked_at() {
                self.owed.push_back(Owed::Blocked(id, limit));
            }
            return Fill::Full;
        }
        let asked = match stream.outbox.place() {
            Some(place) => {
                let most = place.len();
                source(place).inspect(|&len| stream.outbox.filled(len.min(most)))
            }
            None => {
                let mut region = match self.spare.pop().map_or_else(memory, Ok) {
                    Ok(region) => region,
                    Err(error) => return Fill::Asked(Err(error)),
                };
                let filled = source(&mut region[CHUNK_HEADER..CHUNK_HEADER + room]);
                match filled {
                    Ok(len @ 1..) => self
                        .spare
                        .extend(stream.outbox.queue(region, len.min(room))),
                    _ => self.spare.push(region),
                }
                filled
            }
        };
        if let Ok(len @ 1..) = asked {
            self.queued.add(priority, len.min(room));
            self.turn(id);
        }
        Fill::Asked(asked)
    }

    /// Queues the stream for its turn to send.
    fn turn(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.is_ready, true)
        {
            self.ready.push(stream.priority, id);
        }
    }

    /// Ends the sending direction behind what is queued.
    pub fn finish(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|it| it.can_write()) else {
            return;
        };
        stream.outbox.finish = Finish::Asked;
        if stream.outbox.queued() == 0 {
            self.owed.push_back(Owed::Finish(id));
        }
    }

    /// Ends the stream at once, in both directions.
    pub fn reset(&mut self, id: StreamId, code: ResetCode, words: &str) {
        if !self.is_live(id) {
            return;
        }
        let reset = Reset::new(code, words);
        self.end(id, reset.clone());
        self.owed.push_back(Owed::Reset(id, reset));
        self.forget_if_over(id);
    }

    /// Ends the stream in both directions as a socket that was reset does: what was queued arrives before. The program
    /// uses the stream no more.
    pub fn abort(&mut self, id: StreamId, code: ResetCode, words: &str) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.is_held = false;
        if stream.reset.is_some() {
            return self.forget_if_over(id);
        }
        stream.aborts = Some(Reset::new(code, words));
        if stream.outbox.queued() == 0 {
            self.aborting.push((self.sent, id));
            self.reset_aborted();
        }
    }

    /// Resets the streams whose last bytes are at the peer.
    fn reset_aborted(&mut self) {
        let first = self.leaving.keys().min().copied().unwrap_or(u64::MAX);
        let due = self.aborting.extract_if(.., |(behind, _)| *behind <= first);
        for (_, id) in due.collect::<Vec<_>>() {
            let aborts = self.streams.get_mut(&id).and_then(|it| it.aborts.take());
            if let Some(Reset { code, words }) = aborts {
                self.reset(id, code, &words);
            }
        }
    }

    /// Drops what a stream holds.
    fn end(&mut self, id: StreamId, reset: Reset) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        self.queued.remove(stream.priority, stream.outbox.queued());
        self.spare.extend(stream.outbox.clear());
        stream.inbox.discard(&mut self.spare);
        stream.reset = Some(reset);
        self.wake_waiting();
    }

    /// The bytes to read next; empty if none are there.
    pub fn readable(&mut self, id: StreamId) -> &[u8] {
        let Some(stream) = self.streams.get_mut(&id) else {
            return &[];
        };
        if stream.inbox.front().is_empty() {
            stream.told_readable = false;
        }
        stream.inbox.front()
    }

    /// The bytes to read, in at most `most` pieces.
    pub fn readable_pieces(&self, id: StreamId, most: usize) -> Vec<io::IoSlice<'_>> {
        let stream = self.streams.get(&id).into_iter();
        stream
            .flat_map(|it| it.inbox.fronts(most))
            .map(io::IoSlice::new)
            .collect()
    }

    /// Whether everything the peer sent was read, and no more comes.
    pub fn is_over(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|it| it.inbox.is_over())
    }

    /// Whether everything that the peer sends on the stream has arrived.
    pub fn is_complete(&self, id: StreamId) -> bool {
        self.streams
            .get(&id)
            .is_some_and(|it| it.inbox.is_complete())
    }

    /// Forgets bytes that were read.
    pub fn consume(&mut self, id: StreamId, len: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.inbox.consume(len, &mut self.spare);
            self.raise_credit(id);
            self.trim();
        }
    }

    fn raise_credit(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.inbox.raise_credit(&mut self.extra)
            && !std::mem::replace(&mut stream.credit_owed, true)
        {
            self.owed.push_back(Owed::Credit(id));
        }
    }

    /// The program uses the stream no more. What is queued is sent, then the end of the direction; what the peer still
    /// sends resets the stream.
    pub fn release(&mut self, id: StreamId) {
        self.finish(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.is_held = false;
        let unread = !stream.inbox.front().is_empty();
        stream.inbox.discard(&mut self.spare);
        match unread {
            true => self.reset(
                id,
                ResetCode::Aborted,
                "the program closed the stream without reading it",
            ),
            false => self.forget_if_over(id),
        }
    }

    fn forget_if_over(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let is_done = stream.outbox.finish == Finish::Told && stream.inbox.is_complete();
        if stream.is_held || !(is_done || stream.reset.is_some()) {
            return;
        }
        let count = match stream.by_peer {
            true => &mut self.peers,
            false => &mut self.own,
        };
        *count -= 1;
        self.extra += stream.inbox.extra();
        self.streams.remove(&id);
    }

    fn trim(&mut self) {
        self.spare.truncate(MAX_SPARE);
    }

    /// The number and the memory of a receive that must be posted now, if one must.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn next_receive(&mut self) -> io::Result<Option<(u64, Region)>> {
        let ahead = self.receives - self.processed;
        if self.waiting_receives >= RECEIVES || ahead >= MAX_AHEAD {
            return Ok(None);
        }
        let region = self.spare.pop().map_or_else(memory, Ok)?;
        let number = self.receives;
        self.receives += 1;
        self.waiting_receives += 1;
        Ok(Some((number, region)))
    }

    /// Receive `number` of [`Engine::next_receive`] was filled with `len` bytes.
    ///
    /// # Errors
    /// The peer broke the rules: end the connection.
    pub fn on_message(&mut self, number: u64, memory: Region, len: usize) -> Result<(), Violation> {
        self.waiting_receives -= 1;
        if number != self.processed {
            let early = self.take_early(memory, len)?;
            self.early.insert(number, early);
            return Ok(());
        }
        self.take(memory, len)?;
        self.processed += 1;
        while let Some(next) = self.early.first_entry() {
            if *next.key() != self.processed {
                break;
            }
            if let Some((memory, len)) = next.remove() {
                self.take(memory, len)?;
            }
            self.processed += 1;
        }
        self.trim();
        Ok(())
    }

    /// Processes a message behind an incomplete one, if it is a chunk of a known stream. Returns it otherwise: the
    /// frames of a bundle may depend on those before.
    fn take_early(
        &mut self,
        memory: Region,
        len: usize,
    ) -> Result<Option<(Region, usize)>, Violation> {
        match Message::parse(&memory[..len])? {
            Message::Chunk { stream, .. } if self.streams.contains_key(&stream) => {
                self.take(memory, len)?;
                Ok(None)
            }
            _ => Ok(Some((memory, len))),
        }
    }

    fn take(&mut self, memory: Region, len: usize) -> Result<(), Violation> {
        match Message::parse(&memory[..len])? {
            Message::Chunk { stream, offset, .. } => {
                if !self.greeted {
                    return Err(Violation::Hello);
                }
                let (payload, free) = Held::of_message(memory, CHUNK_HEADER, len);
                self.spare.extend(free);
                self.on_payload(stream, offset, payload)
            }
            Message::Bundle(frames) => {
                for frame in frames {
                    self.on_frame(frame?)?;
                }
                self.spare.push(memory);
                Ok(())
            }
        }
    }

    fn on_frame(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        if let Frame::Hello { version } = frame {
            return match std::mem::replace(&mut self.greeted, true) {
                true => Err(Violation::Hello),
                false if version != VERSION => Err(Violation::Version(version)),
                false => Ok(()),
            };
        }
        if !self.greeted {
            return Err(Violation::Hello);
        }
        match frame {
            Frame::Hello { .. } => {}
            Frame::Open {
                stream,
                priority,
                purpose,
            } => self.on_open(stream, priority, purpose)?,
            Frame::Accept { stream } => {
                if stream.0 % 2 != self.next_own % 2 {
                    return Err(Violation::NoStream);
                }
                if self.find(stream)?.is_some_and(|it| it.reset.is_none()) {
                    self.events.push_back(Event::Accepted(stream));
                }
            }
            Frame::Data {
                stream,
                offset,
                bytes,
            } => {
                self.on_payload(stream, offset, Held::of_bytes(bytes))?;
            }
            Frame::Finish { stream, length } => self.on_finish(stream, length)?,
            Frame::Credit { stream, limit } => {
                if let Some(it) = self.find(stream)?
                    && it.reset.is_none()
                    && it.outbox.raise(limit)
                    && std::mem::take(&mut it.wants_room)
                {
                    self.events.push_back(Event::Writable(stream));
                }
            }
            Frame::Blocked { stream, limit } => {
                if let Some(it) = self.find(stream)? {
                    it.inbox.on_blocked(limit);
                    self.raise_credit(stream);
                }
            }
            Frame::Reset {
                stream,
                code,
                words,
            } => {
                let code = code.into();
                if self.find(stream)?.is_some_and(|it| it.reset.is_none()) {
                    self.end(stream, Reset::new(code, words));
                    self.events.push_back(Event::Reset(stream));
                    self.forget_if_over(stream);
                }
            }
        }
        self.check_owed()
    }

    /// Fails if the peer made this end owe more than an honest one does.
    fn check_owed(&self) -> Result<(), Violation> {
        match self.owed.len() > MAX_OWED || self.events.len() > 2 * MAX_OWED {
            true => Err(Violation::TooManyOwed),
            false => Ok(()),
        }
    }

    /// The stream, or `None` if it is over.
    ///
    /// # Errors
    /// It was never opened.
    fn find(&mut self, id: StreamId) -> Result<Option<&mut Stream>, Violation> {
        let next = match id.0 % 2 == self.next_own % 2 {
            true => self.next_own,
            false => self.next_peer,
        };
        match id.0 < next {
            true => Ok(self.streams.get_mut(&id)),
            false => Err(Violation::NoStream),
        }
    }

    fn on_open(&mut self, id: StreamId, priority: u8, purpose: &[u8]) -> Result<(), Violation> {
        if id.0 != self.next_peer {
            return Err(Violation::NoStream);
        }
        self.next_peer += 2;
        if self.peers >= MAX_STREAMS {
            let words = format!("{MAX_STREAMS} streams are open already");
            self.owed
                .push_back(Owed::Reset(id, Reset::new(ResetCode::TooMany, &words)));
            return Ok(());
        }
        self.peers += 1;
        self.streams
            .insert(id, Stream::new(priority, true, purpose));
        self.events.push_back(Event::Opened(id));
        self.begin(id);
        Ok(())
    }

    /// Grants a new stream what it may have at once.
    fn begin(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.inbox.begin(&mut self.extra)
        {
            stream.credit_owed = true;
            self.owed.push_back(Owed::Credit(id));
        }
    }

    fn on_payload(&mut self, id: StreamId, offset: u64, payload: Held) -> Result<(), Violation> {
        let Some(stream) = self.find(id)? else {
            return Ok(());
        };
        if stream.reset.is_some() {
            return Ok(());
        }
        let more = stream.inbox.insert(offset, payload)?;
        if stream.inbox.discards() {
            let words = "the program at the other end reads no more";
            self.reset(id, ResetCode::Aborted, words);
            return Ok(());
        }
        if more && !std::mem::replace(&mut stream.told_readable, true) {
            self.events.push_back(Event::Readable(id));
        }
        Ok(())
    }

    fn on_finish(&mut self, id: StreamId, length: u64) -> Result<(), Violation> {
        let Some(stream) = self.find(id)? else {
            return Ok(());
        };
        if stream.reset.is_some() {
            return Ok(());
        }
        stream.inbox.finish(length)?;
        stream.told_readable = true;
        self.events.push_back(Event::Readable(id));
        self.forget_if_over(id);
        Ok(())
    }

    /// The next message that may leave.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        if !self.flight.has_room() {
            return None;
        }
        let mut bundle = Vec::new();
        self.write_owed(&mut bundle);
        let mut long = None;
        while bundle.len() < BUNDLE_BYTES && self.flight.has_room_for_chunk() {
            let Some(id) = self.ready.pop() else {
                break;
            };
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            if stream.outbox.has_small() {
                let (offset, bytes) = stream.outbox.small();
                if !bundle.is_empty() && bundle.len() + DATA_HEADER + bytes.len() > BUNDLE_BYTES {
                    self.ready.push_front(stream.priority, id);
                    break;
                }
                Frame::Data {
                    stream: id,
                    offset,
                    bytes,
                }
                .write(&mut bundle);
                self.queued.remove(stream.priority, bytes.len());
                stream.outbox.small_sent();
            }
            if stream.outbox.has_long() {
                if !bundle.is_empty() {
                    self.ready.push_front(stream.priority, id);
                    break;
                }
                long = stream.outbox.take_long(id);
                let bytes = long.as_ref().map_or(0, |(_, end)| end - CHUNK_HEADER);
                self.queued.remove(stream.priority, bytes);
            }
            stream.is_ready = false;
            self.after_sent(id);
            if long.is_some() {
                break;
            }
        }
        self.wake_waiting();
        match long {
            Some((region, end)) => Some(self.leave_chunk(region, end, now)),
            None if bundle.is_empty() => {
                self.write_owed(&mut bundle);
                (!bundle.is_empty()).then(|| self.leave(bundle, now))
            }
            None => Some(self.leave(bundle, now)),
        }
    }

    /// Handed something of the stream over: it has room, and perhaps nothing left before its end.
    fn after_sent(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.aborts.is_some() && stream.outbox.queued() == 0 {
            // Behind the message that is being made.
            self.aborting.push((self.sent + 1, id));
        } else if stream.outbox.finish == Finish::Asked && stream.outbox.queued() == 0 {
            self.owed.push_back(Owed::Finish(id));
        } else if stream.outbox.room() > 0 && std::mem::take(&mut stream.wants_room) {
            self.events.push_back(Event::Writable(id));
        }
    }

    fn leave_chunk(&mut self, mut region: Region, end: usize, now: Instant) -> Outgoing {
        let rest = region.split_off(end);
        let ticket = self.flight.leave(now, end, true);
        self.outgoing(
            region,
            Leaving {
                ticket,
                rest: Some(rest),
            },
        )
    }

    fn leave(&mut self, bundle: Vec<u8>, now: Instant) -> Outgoing {
        let ticket = self.flight.leave(now, bundle.len(), false);
        self.outgoing(Region::from_vec(bundle), Leaving { ticket, rest: None })
    }

    fn outgoing(&mut self, memory: Region, leaving: Leaving) -> Outgoing {
        let number = self.sent;
        self.sent += 1;
        self.leaving.insert(number, leaving);
        Outgoing { number, memory }
    }

    /// Writes the frames that are owed, as long as they fit.
    fn write_owed(&mut self, bundle: &mut Vec<u8>) {
        while bundle.len() < BUNDLE_BYTES {
            let Some(owed) = self.owed.pop_front() else {
                return;
            };
            self.write_one(owed, bundle);
        }
    }

    fn write_one(&mut self, owed: Owed, bundle: &mut Vec<u8>) {
        match owed {
            Owed::Hello => Frame::Hello { version: VERSION }.write(bundle),
            Owed::Reset(stream, reset) => {
                let (code, words) = (reset.code.into(), &reset.words[..]);
                Frame::Reset {
                    stream,
                    code,
                    words,
                }
                .write(bundle);
            }
            Owed::Open(stream) => {
                // One that was reset meanwhile must still be opened, so that the next may be.
                let it = self.streams.get(&stream);
                let (priority, purpose) = it.map_or((0, &[][..]), |it| (it.priority, &it.purpose));
                Frame::Open {
                    stream,
                    priority,
                    purpose,
                }
                .write(bundle);
            }
            Owed::Accept(stream) if self.is_live(stream) => Frame::Accept { stream }.write(bundle),
            Owed::Blocked(stream, limit) if self.is_live(stream) => {
                Frame::Blocked { stream, limit }.write(bundle);
            }
            Owed::Credit(stream) if self.is_live(stream) => {
                if let Some(it) = self.streams.get_mut(&stream) {
                    it.credit_owed = false;
                    let limit = it.inbox.limit;
                    Frame::Credit { stream, limit }.write(bundle);
                }
            }
            Owed::Finish(stream) if self.is_live(stream) => {
                if let Some(it) = self.streams.get_mut(&stream)
                    && let Some(length) = it.outbox.length()
                {
                    it.outbox.finish = Finish::Told;
                    Frame::Finish { stream, length }.write(bundle);
                    self.forget_if_over(stream);
                }
            }
            Owed::Accept(_) | Owed::Blocked(..) | Owed::Credit(_) | Owed::Finish(_) => {}
        }
    }

    /// Tells streams that waited for the queue of their priority.
    fn wake_waiting(&mut self) {
        for priority in 0..PRIORITIES as u8 {
            while let Some(id) = self.queued.next(priority) {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.waits_in_queue = false;
                    self.events.push_back(Event::Writable(id));
                    // One at a time: each fills what there is room for, and the next turn comes when that was sent.
                    break;
                }
            }
        }
    }

    /// Message `number` is at the peer; `memory` is what [`Engine::next_message`] gave.
    pub fn on_sent(&mut self, number: u64, memory: Region, now: Instant) {
        let Some(Leaving { ticket, rest }) = self.leaving.remove(&number) else {
            return;
        };
        self.flight.end(ticket, now);
        if let Some(rest) = rest {
            let mut memory = memory;
            if memory.unsplit(rest).is_ok() {
                self.spare.push(memory);
                self.trim();
            }
        }
        if !self.aborting.is_empty() {
            self.reset_aborted();
        }
    }

    /// Whether everything that was queued is at the peer.
    pub fn is_flushed(&self) -> bool {
        let is_sent = self.owed.is_empty() && self.leaving.is_empty() && self.queued.is_empty();
        is_sent && self.aborting.is_empty()
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }
}

fn memory() -> io::Result<Region> {
    Region::anonymous(MESSAGE_BYTES)
}

impl Reset {
    /// The reason, cut to the longest that is sent.
    fn new(code: ResetCode, words: &str) -> Reset {
        let words = words[..words.floor_char_boundary(MAX_WORDS)].to_owned();
        Reset { code, words }
    }
}

impl Stream {
    fn new(priority: u8, by_peer: bool, purpose: &[u8]) -> Stream {
        Stream {
            priority,
            by_peer,
            purpose: purpose.to_vec(),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            reset: None,
            aborts: None,
            is_held: true,
            is_ready: false,
            waits_in_queue: false,
            wants_room: false,
            told_readable: false,
            credit_owed: false,
        }
    }

    fn can_write(&self) -> bool {
        self.reset.is_none() && self.aborts.is_none() && self.outbox.finish == Finish::Open
    }
}

#[cfg(test)]
mod tests;
