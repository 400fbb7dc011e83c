//! Reads from and writes to a client's socket.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use zerolane::Region;

use super::pool::Pool;
use crate::limits::{MAX_CLIENT_BYTES, MAX_OPTION, MAX_REQUESTS, NEGOTIATION};
use crate::session::{Errno, Event, Export, Kind, Offence, Request, Session};

/// Bytes read at a time, what belongs to a payload excepted: many short requests, and little of a long payload, for
/// what is read here is copied.
const READ_BYTES: usize = 32 << 10;
/// The longest option, and what was read behind it.
const INPUT_BYTES: usize = MAX_OPTION as usize + READ_BYTES + 64;
/// Pieces of a call that writes.
const PIECES: usize = 64;
/// Send buffer of a socket, bytes, as far as the system allows.
const SOCKET_BYTES: usize = 1 << 20;

/// What goes to a client: bytes of the protocol, and a part of a region.
struct Outgoing {
    head: Vec<u8>,
    body: Region,
    part: Range<usize>,
    /// The bytes for which the request counted.
    bytes: usize,
}

impl Outgoing {
    fn len(&self) -> usize {
        self.head.len() + self.part.len()
    }

    /// The bytes after the first `sent` ones.
    fn pieces(&self, sent: usize) -> [&[u8]; 2] {
        let head = &self.head[sent.min(self.head.len())..];
        let body = &self.body[self.part.clone()];
        [head, &body[sent.saturating_sub(self.head.len())..]]
    }
}

/// A request with an incomplete payload.
struct Incoming {
    request: Request,
    /// Empty: the payload is passed over.
    memory: Region,
    filled: usize,
}

/// The result of a read from a socket.
enum Look {
    Nothing,
    /// Something, and there may be more.
    Some,
    /// Less than was asked for: there was no more.
    All,
}

/// Why a client is no more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It went.
    Left,
    CutOff(Offence),
}

pub(super) struct Client {
    stream: UnixStream,
    session: Session,
    since: Instant,
    input: Box<[u8]>,
    /// Of it, what was read and not taken.
    unread: Range<usize>,
    incoming: Option<Incoming>,
    outgoing: VecDeque<Outgoing>,
    /// Bytes of the first of them that are sent.
    sent: usize,
    /// Requests that are not answered, and bytes of theirs and of replies.
    requests: usize,
    bytes: usize,
    /// Whether there was no room for the last request read.
    is_full: bool,
    /// It sends no more.
    leaving: bool,
    end: Option<End>,
}

impl Client {
    /// One that has connected.
    pub(super) fn new(stream: UnixStream, export: Export) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        // A refusal costs speed alone.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SOCKET_BYTES);
        let mut head = Vec::new();
        let session = Session::new(export, &mut head);
        let mut client = Client {
            stream,
            session,
            since: Instant::now(),
            input: vec![0; INPUT_BYTES].into(),
            unread: 0..0,
            incoming: None,
            outgoing: VecDeque::new(),
            sent: 0,
            requests: 0,
            bytes: 0,
            is_full: false,
            leaving: false,
            end: None,
        };
        client.push(head, Region::empty(), 0..0, 0);
        Ok(client)
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Something that it sent waits here, and there is room for it.
    pub(super) fn has_input(&self) -> bool {
        self.is_full && self.has_room()
    }

    /// There is something to be sent.
    pub(super) fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether to read more from the client: it has room for another request, and reads its replies.
    pub(super) fn has_room(&self) -> bool {
        let is_open = self.end.is_none() && !self.leaving;
        let requests = self.requests + self.outgoing.len();
        is_open && requests < MAX_REQUESTS && self.bytes < MAX_CLIENT_BYTES
    }

    /// Why it is no more, if so.
    pub(super) fn end(&mut self) -> Option<&End> {
        if self.leaving && self.requests == 0 && self.outgoing.is_empty() {
            self.finish(End::Left);
        }
        let is_late = !self.session.is_serving() && self.since.elapsed() > NEGOTIATION;
        if is_late {
            self.finish(End::CutOff(Offence::Late));
        }
        self.end.as_ref()
    }

    /// Ends the client for the first reported reason. A request with an incomplete payload is dropped.
    fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        if let Some(incoming) = self.incoming.take() {
            self.requests -= 1;
            self.bytes -= cost(&incoming.request);
        }
    }

    /// Whether no request of the client is in progress, so that it can be removed.
    pub(super) fn is_idle(&self) -> bool {
        self.requests == 0
    }

    /// Reads what is there, and gives the requests that are whole to `take`, as far as there is room for them. Returns
    /// whether anything came.
    pub(super) fn read(&mut self, pool: &mut Pool, take: &mut impl FnMut(Request, Region)) -> bool {
        let mut moved = false;
        while self.has_room() {
            match self.read_once(pool, take) {
                Ok(Look::Some) => moved = true,
                Ok(Look::All) => {
                    moved = true;
                    break;
                }
                Ok(Look::Nothing) => break,
                Err(end) => {
                    self.finish(end);
                    break;
                }
            }
        }
        moved
    }

    /// One call that reads, at most.
    fn read_once(
        &mut self,
        pool: &mut Pool,
        take: &mut impl FnMut(Request, Region),
    ) -> Result<Look, End> {
        if let Some(incoming) = &mut self.incoming
            && self.unread.is_empty()
            && !incoming.memory.is_empty()
        {
            let came = came(self.stream.read(&mut incoming.memory[incoming.filled..]))?;
            incoming.filled += came.unwrap_or(0);
            self.finish_incoming(take);
            return Ok(came.map_or(Look::Nothing, |_| Look::Some));
        }
        if self.take_input(pool, take)? {
            return Ok(Look::Some);
        }
        // What is left is the beginning of an option or a request: there is room behind it at the front.
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let room = &mut self.input[self.unread.end..];
        let most = room.len().min(READ_BYTES);
        let came = came(self.stream.read(&mut room[..most]))?;
        self.unread.end += came.unwrap_or(0);
        self.take_input(pool, take)?;
        Ok(match came {
            None => Look::Nothing,
            // The rest of a payload goes to its memory.
            Some(bytes) if bytes == most || self.incoming.is_some() => Look::Some,
            Some(_) => Look::All,
        })
    }

    /// Takes what was read. Returns whether it took anything.
    fn take_input(
        &mut self,
        pool: &mut Pool,
        take: &mut impl FnMut(Request, Region),
    ) -> Result<bool, End> {
        let before = self.unread.len();
        while self.has_room() && !self.unread.is_empty() {
            if let Some(incoming) = &mut self.incoming {
                let wanted = incoming.request.payload() as usize - incoming.filled;
                let part = &self.input[self.unread.clone()];
                let part = &part[..wanted.min(part.len())];
                if !incoming.memory.is_empty() {
                    incoming.memory[incoming.filled..][..part.len()].copy_from_slice(part);
                }
                incoming.filled += part.len();
                self.unread.start += part.len();
                self.finish_incoming(take);
                continue;
            }
            let mut answers = Vec::new();
            let taken = self
                .session
                .take(&self.input[self.unread.clone()], &mut answers);
            if !answers.is_empty() {
                self.push(answers, Region::empty(), 0..0, 0);
            }
            let (bytes, event) = taken.map_err(End::CutOff)?;
            self.unread.start += bytes;
            match event {
                None => break,
                Some(Event::Leaving) => self.leaving = true,
                Some(Event::Request(request)) => self.begin(request, pool, take),
            }
        }
        self.is_full = !self.unread.is_empty() && !self.has_room();
        Ok(self.unread.len() < before)
    }

    /// Takes a request whose payload, if it has one, comes.
    fn begin(&mut self, request: Request, pool: &mut Pool, take: &mut impl FnMut(Request, Region)) {
        self.requests += 1;
        let payload = request.payload() as usize;
        if payload == 0 {
            self.bytes += cost(&request);
            return take(request, Region::empty());
        }
        let mut request = request;
        let memory = match request.refused {
            Some(_) => Region::empty(),
            None => pool.take(payload).unwrap_or_else(|_| {
                request.refused = Some(Errno::MEMORY);
                Region::empty()
            }),
        };
        self.bytes += cost(&request);
        self.incoming = Some(Incoming {
            request,
            memory,
            filled: 0,
        });
    }

    fn finish_incoming(&mut self, take: &mut impl FnMut(Request, Region)) {
        let whole = |it: &mut Incoming| it.filled == it.request.payload() as usize;
        if let Some(incoming) = self.incoming.take_if(whole) {
            take(incoming.request, incoming.memory);
        }
    }

    /// Answers `request`, with a part of `body` behind `head`.
    pub(super) fn answer(
        &mut self,
        request: &Request,
        head: Vec<u8>,
        body: Region,
        part: Range<usize>,
    ) {
        self.requests -= 1;
        self.push(head, body, part, cost(request));
    }

    fn push(&mut self, head: Vec<u8>, body: Region, part: Range<usize>, bytes: usize) {
        self.outgoing.push_back(Outgoing {
            head,
            body,
            part,
            bytes,
        });
    }

    /// Sends what the socket takes. Returns whether it took anything.
    pub(super) fn write(&mut self, pool: &mut Pool) -> bool {
        let mut moved = false;
        while !self.outgoing.is_empty() && self.end.is_none() {
            let mut pieces = Vec::with_capacity(PIECES);
            for (number, it) in self.outgoing.iter().take(PIECES / 2).enumerate() {
                let sent = if number == 0 { self.sent } else { 0 };
                let left = it.pieces(sent).into_iter();
                pieces.extend(left.filter(|it| !it.is_empty()).map(IoSlice::new));
            }
            match self.stream.write_vectored(&pieces) {
                Ok(bytes) => self.on_sent(bytes, pool),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.finish(End::Left),
            }
            moved = true;
        }
        moved
    }

    fn on_sent(&mut self, bytes: usize, pool: &mut Pool) {
        self.sent += bytes;
        while let Some(first) = self.outgoing.pop_front() {
            if self.sent < first.len() {
                self.outgoing.push_front(first);
                break;
            }
            self.sent -= first.len();
            self.bytes -= first.bytes;
            pool.give(first.body);
        }
    }
}

/// The bytes for which a request counts.
fn cost(request: &Request) -> usize {
    match (request.refused, request.kind) {
        (None, Kind::Read | Kind::Write { .. }) => request.bytes as usize,
        _ => 0,
    }
}

/// How many bytes came; `None`: none at present.
fn came(read: io::Result<usize>) -> Result<Option<usize>, End> {
    match read {
        Ok(0) => Err(End::Left),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
        Err(_) => Err(End::Left),
    }
}
