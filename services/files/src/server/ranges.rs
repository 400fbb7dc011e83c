//! Sends ranges of files that a client asks for, one request after another.
//!
//! Nothing is kept between two requests: each has the path, and the version of the file that the client began to read.

use super::session::Session;
use crate::error::{Cause, Error, Failure};
use crate::in_place::is_unfinished;
use crate::limits::{
    DATA_BUFFERS, RANGE_REQUEST_BYTES, RANGE_UNITS, REQUEST_SECONDS, STALL_SECONDS, UNIT_BYTES,
};
use crate::message::{EntryKind, RangeReply, RangeRequest, Status, decode_opening, encode_range};
use crate::name::RelativePath;
use crate::observe::{Observer, Verb};
use crate::positioned::read_full;
use crate::root::{kind_of, status_of};
use crate::stop::Stop;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Stat, fstat};
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, TransferError};
use zerolane::request::{MAX_CONTROL, Message, WorkKind};
use zerolane::{Connection, Region};

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

/// The entry of a request; its file is open if the request reads bytes.
struct Opened {
    file: Option<OwnedFd>,
    status: Status,
}

impl Session<'_> {
    /// Answers requests until the client goes, or asks nothing for [`REQUEST_SECONDS`].
    pub(super) fn ranges(&self, connection: &mut Connection) -> Result<(), Error> {
        if let Err(cause) = self.root() {
            return self.refuse_path(connection, b"", cause);
        }
        self.begin(connection)?;
        let mut line = Line::new(connection, &self.stop)?;
        let mut reported = None;
        while let Some(request) = line.next_request()? {
            if reported.as_ref() != Some(&request.path) {
                let path = std::slice::from_ref(&request.path);
                self.observer.requested(&self.peer, Verb::Read, path);
                reported = Some(request.path.clone());
            }
            if self.answer_range(&mut line, &request)? == Flow::Gone {
                break;
            }
        }
        Ok(())
    }

    fn answer_range(&self, line: &mut Line<'_>, request: &RangeRequest) -> Result<Flow, Error> {
        let unit = UNIT_BYTES as u64;
        let units = request.len.div_ceil(unit).max(1);
        if units > RANGE_UNITS as u64 {
            return Err(Error::Protocol("a range of too many units"));
        }
        let opened = self.open_range(request);
        let mut failed = None;
        for start in (0..units).map(|it| it * unit) {
            let Some((number, mut buffer)) = line.buffer()? else {
                return Ok(Flow::Gone);
            };
            let read = match (&opened, &failed) {
                (Err(cause), _) | (Ok(_), Some(cause)) => Err(cause.clone()),
                (Ok(opened), None) => {
                    let room = unit.min(request.len - start) as usize;
                    let read =
                        opened.read(request.offset.saturating_add(start), &mut buffer[..room]);
                    read.map(|len| (opened.status, len))
                }
            };
            match read {
                Ok((status, len)) => {
                    self.advanced(len as u64);
                    line.send(&RangeReply::Found(status), (number, buffer), len)?;
                }
                Err(cause) => {
                    line.send(&RangeReply::Failed(cause.clone()), (number, buffer), 0)?;
                    failed = Some(cause);
                }
            }
        }
        // A missing file is the usual answer to a request for the status.
        if let Some(cause) = failed.filter(|_| request.len > 0) {
            self.failed(&Failure::new(&request.path, cause));
        }
        Ok(Flow::More)
    }

    fn open_range(&self, request: &RangeRequest) -> Result<Opened, Cause> {
        let opened = match request.len {
            0 => Opened {
                file: None,
                status: status_of(&self.status(&request.path)?),
            },
            _ => {
                let (file, stat) = self.open_file(&request.path)?;
                if is_unfinished(file.as_fd()) {
                    return Err(Cause::Unfinished);
                }
                Opened {
                    file: Some(file),
                    status: status_of(&stat),
                }
            }
        };
        match request.version {
            Some(version) if version != opened.status.version => Err(Cause::SourceChanged),
            _ => Ok(opened),
        }
    }

    /// The status of what is at `path`; of the target, if it is a symbolic link.
    fn status(&self, path: &[u8]) -> Result<Stat, Cause> {
        let parsed = RelativePath::parse(path)?;
        let root = self.root()?;
        let Some((directory, name)) = root.open_parent(&parsed)? else {
            return Ok(fstat(root.open_directory(&parsed)?)?);
        };
        let (links, at) = self.links_below(path, true)?;
        let stat = links.stat(&directory, name, || at)?;
        match parsed.must_be_directory() && kind_of(&stat) != EntryKind::Directory {
            true => Err(Cause::NotADirectory),
            false => Ok(stat),
        }
    }
}

impl Opened {
    /// Reads into `buffer` what the file has at `offset`; returns the number of bytes, less only at the file's end.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Cause> {
        let Some(file) = &self.file else {
            return Ok(0);
        };
        let there = self.status.size.saturating_sub(offset);
        let len = buffer
            .len()
            .min(usize::try_from(there).unwrap_or(usize::MAX));
        let read = read_full(file.as_fd(), &mut buffer[..len], offset)?;
        let now = status_of(&fstat(file)?);
        match read == len && now.version == self.status.version {
            true => Ok(len),
            false => Err(Cause::SourceChanged),
        }
    }
}

/// Whether the client is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    More,
    Gone,
}

/// What a wait brought.
enum Step {
    Nothing,
    Asked(RangeRequest),
    Sent,
    Gone,
}

/// A connection with its buffers, which go round between the files and the network.
struct Line<'c> {
    connection: &'c mut Connection,
    stop: &'c Stop,
    /// Free buffers, each with the number that its message has as context.
    free: Vec<(usize, Region)>,
    /// The unused ends of the others.
    rests: [Option<Region>; DATA_BUFFERS],
}

impl<'c> Line<'c> {
    fn new(connection: &'c mut Connection, stop: &'c Stop) -> Result<Line<'c>, Error> {
        let buffer = |number| Ok((number, Region::anonymous(UNIT_BYTES)?));
        let free: Result<Vec<_>, std::io::Error> = (0..DATA_BUFFERS).map(buffer).collect();
        Ok(Line {
            connection,
            stop,
            free: free.map_err(|_| Error::NoMemory)?,
            rests: Default::default(),
        })
    }

    /// `None`: the client has gone, or does not use the connection.
    fn next_request(&mut self) -> Result<Option<RangeRequest>, Error> {
        let room = Region::from_vec(vec![0; RANGE_REQUEST_BYTES]);
        let posted = self.connection.post_recv(room);
        posted.map_err(zerolane::Error::from)?;
        let mut since = Instant::now();
        loop {
            match self.step()? {
                Step::Asked(request) => return Ok(Some(request)),
                Step::Gone => return Ok(None),
                Step::Sent => since = Instant::now(),
                Step::Nothing if self.free.len() < DATA_BUFFERS => check_stalled(since)?,
                Step::Nothing if since.elapsed() > Duration::from_secs(REQUEST_SECONDS) => {
                    return Ok(None);
                }
                Step::Nothing => {}
            }
        }
    }

    /// A free buffer; `None` if the client has gone.
    fn buffer(&mut self) -> Result<Option<(usize, Region)>, Error> {
        let since = Instant::now();
        loop {
            if let Some(free) = self.free.pop() {
                return Ok(Some(free));
            }
            match self.step()? {
                Step::Gone => return Ok(None),
                Step::Asked(_) | Step::Sent => {}
                Step::Nothing => check_stalled(since)?,
            }
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        self.stop.check()?;
        let waited = match self.connection.wait(Some(LOOK)) {
            Err(zerolane::Error::Closed(reason)) if is_end(reason) => return Ok(Step::Gone),
            waited => waited?.got(),
        };
        let Some(completion) = waited else {
            return Ok(Step::Nothing);
        };
        let len = match completion.result {
            Err(TransferError::Closed(reason)) if is_end(reason) => return Ok(Step::Gone),
            result => result.map_err(zerolane::Error::Transfer)?,
        };
        if completion.kind() == WorkKind::Receive {
            let message = completion.into_region()?;
            return Ok(Step::Asked(decode_opening(&message[..len])?));
        }
        let number = completion.context as usize;
        let mut buffer = completion.into_region()?;
        if let Some(rest) = self.rests.get_mut(number).and_then(Option::take) {
            buffer.unsplit(rest).map_err(|_| Error::Internal)?;
        }
        self.free.push((number, buffer));
        Ok(Step::Sent)
    }

    /// Sends an answer with the first `len` bytes of a buffer.
    fn send(
        &mut self,
        reply: &RangeReply,
        (number, mut buffer): (usize, Region),
        len: usize,
    ) -> Result<(), Error> {
        let mut control = [0; MAX_CONTROL];
        let control_len = encode_range(reply, &mut control).ok_or(Error::Internal)?;
        let message = Message::new(&control[..control_len]).context(number as u64);
        let message = if len == 0 {
            self.free.push((number, buffer));
            message.signalled(false)
        } else {
            self.rests[number] = Some(buffer.split_off(len));
            message.payload(buffer)
        };
        let posted = self.connection.post(message);
        posted.map_err(zerolane::Error::from)?;
        Ok(())
    }
}

/// Whether the client closed the connection, or its process ended.
fn is_end(reason: CloseReason) -> bool {
    matches!(reason, CloseReason::Peer(_) | CloseReason::PeerDead)
}

fn check_stalled(since: Instant) -> Result<(), Error> {
    match since.elapsed() > Duration::from_secs(STALL_SECONDS) {
        true => Err(Error::Stalled),
        false => Ok(()),
    }
}
