//! Reads ranges of the server's files, over one connection.

use super::{Client, LOOK};
use crate::error::{Cause, Error, Refusal};
use crate::limits::{RANGE_BYTES, RANGE_IDLE_SECONDS, STALL_SECONDS, UNIT_BYTES};
use crate::message::{
    RangeReply, RangeRequest, Request, Status, Version, decode_range, encode_opening,
};
use crate::stop::Stop;
use std::time::{Duration, Instant};
use zerolane::request::{ReceiveMessage, Transfer, WorkKind};
use zerolane::{Completion, Connection, Region};

/// A connection that reads ranges of files, each into memory of the caller. After an error other than
/// [`Error::Refused`] it cannot be used any more; reading again over a new one is always safe.
#[derive(Debug)]
pub struct Ranges {
    connection: Connection,
    stop: Stop,
    asked: Option<Asked>,
    /// When it was last used.
    used: Instant,
}

/// A range that was read.
#[derive(Debug)]
pub struct Range {
    /// The status of the file.
    pub status: Status,
    /// Bytes that were read: less than there was room for only where the file ends.
    pub len: u64,
    /// The memory, with these bytes at its start.
    pub memory: Region,
}

/// A request in progress.
#[derive(Debug)]
struct Asked {
    path: Vec<u8>,
    offset: u64,
    /// The memory of each unit: its length in bytes, and once the answer is there itself.
    units: Vec<(u64, Option<Region>)>,
    /// Answers that are missing.
    missing: usize,
    status: Option<Status>,
    failed: Option<Cause>,
    /// Bytes that arrived.
    len: u64,
}

impl Client {
    /// Connects to read ranges of files. A server serves few connections at once, so keep one for all reads, and drop
    /// it when it is no longer [fresh](Ranges::is_fresh).
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Refused`], [`Error::Stopped`], or the connection broke.
    pub fn ranges(&self) -> Result<Ranges, Error> {
        let connection = self.begin(&Request::Ranges, self.transport.times.connect)?;
        Ok(Ranges {
            connection,
            stop: self.stop.clone(),
            asked: None,
            used: Instant::now(),
        })
    }
}

impl Ranges {
    /// Whether the server certainly still waits for requests: the last one was less than [`RANGE_IDLE_SECONDS`] ago,
    /// and was answered.
    pub fn is_fresh(&self) -> bool {
        self.asked.is_none() && self.used.elapsed() < Duration::from_secs(RANGE_IDLE_SECONDS)
    }

    /// The status of what is at `path`.
    ///
    /// # Errors
    /// As for [`Ranges::read`].
    pub fn status(&mut self, path: &[u8]) -> Result<Status, Error> {
        Ok(self.read(path, 0, None, Region::empty())?.status)
    }

    /// Reads from byte `offset` of the file at `path` into `memory`, at most [`RANGE_BYTES`]; what is longer is cut.
    /// With `version` the file must still be that version.
    ///
    /// The server reads each unit of 1 MiB between two looks at the version, and the connection's seals protect the
    /// bytes on the way. There is no digest of the whole file.
    ///
    /// # Errors
    /// [`Error::Refused`] if the file cannot be read, or changed; others end the connection.
    pub fn read(
        &mut self,
        path: &[u8],
        offset: u64,
        version: Option<Version>,
        memory: Region,
    ) -> Result<Range, Error> {
        self.ask(path, offset, version, memory)?;
        loop {
            self.stop.check()?;
            if let Some(read) = self.wait(LOOK)? {
                return Ok(read);
            }
        }
    }

    /// Begins what [`Ranges::read`] does, for [`Ranges::wait`].
    ///
    /// # Errors
    /// The connection broke, or the request before was not waited for.
    pub fn ask(
        &mut self,
        path: &[u8],
        offset: u64,
        version: Option<Version>,
        mut memory: Region,
    ) -> Result<(), Error> {
        if self.asked.is_some() {
            return Err(Error::Internal);
        }
        if memory.len() > RANGE_BYTES {
            drop(memory.split_off(RANGE_BYTES));
        }
        let request = RangeRequest {
            path: path.to_vec(),
            offset,
            len: memory.len() as u64,
            version,
        };
        let request = encode_opening(&request).ok_or(Error::TooLong)?;
        let mut units = Vec::new();
        loop {
            let rest = memory.split_off(memory.len().min(UNIT_BYTES));
            let index = units.len() as u64;
            units.push((memory.len() as u64, None));
            let receive = ReceiveMessage::new().payload(memory).context(index);
            let posted = self.connection.post(receive);
            posted.map_err(zerolane::Error::from)?;
            memory = rest;
            if memory.is_empty() {
                break;
            }
        }
        let request = Transfer::new(Region::from_vec(request)).signalled(false);
        let posted = self.connection.post(request);
        posted.map_err(zerolane::Error::from)?;
        self.used = Instant::now();
        self.asked = Some(Asked {
            path: path.to_vec(),
            offset,
            missing: units.len(),
            units,
            status: None,
            failed: None,
            len: 0,
        });
        Ok(())
    }

    /// Waits for the answer to the request, at most for `timeout`; `None` if it is not complete by then.
    ///
    /// # Errors
    /// As for [`Ranges::read`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Range>, Error> {
        let asked = self.asked.as_mut().ok_or(Error::Internal)?;
        // A time that overflows the clock counts as no limit.
        let until = Instant::now().checked_add(timeout);
        while asked.missing > 0 {
            let left = until.map(|it| it.saturating_duration_since(Instant::now()));
            let Some(completion) = self.connection.wait(left)?.got() else {
                let stalled = self.used.elapsed() > Duration::from_secs(STALL_SECONDS);
                return match stalled {
                    true => Err(Error::Stalled),
                    false => Ok(None),
                };
            };
            asked.take(completion)?;
            self.used = Instant::now();
        }
        let asked = self.asked.take().ok_or(Error::Internal)?;
        if let Some(cause) = asked.failed {
            let path = asked.path;
            return Err(Refusal::Path { path, cause }.into());
        }
        let mut units = asked.units.into_iter().filter_map(|(_, memory)| memory);
        let mut memory = units.next().ok_or(Error::Internal)?;
        for unit in units {
            memory.unsplit(unit).map_err(|_| Error::Internal)?;
        }
        Ok(Some(Range {
            status: asked.status.ok_or(Error::Internal)?,
            len: asked.len,
            memory,
        }))
    }
}

impl Asked {
    /// Takes the answer for one unit.
    fn take(&mut self, completion: Completion) -> Result<(), Error> {
        let len = match &completion.result {
            Ok(len) => *len as u64,
            Err(error) => return Err(zerolane::Error::Transfer(*error).into()),
        };
        if completion.kind() != WorkKind::MessageReceived {
            return Ok(());
        }
        let unit = completion.context;
        let reply = decode_range(completion.control().unwrap_or_default())?;
        let place = self.units.get_mut(unit as usize).ok_or(Error::Internal)?;
        let room = place.0;
        place.1 = Some(completion.into_region()?);
        self.missing -= 1;
        let status = match reply {
            RangeReply::Failed(_) if len > 0 => {
                return Err(Error::Protocol("content of a unit that failed"));
            }
            RangeReply::Failed(cause) => {
                self.failed.get_or_insert(cause);
                return Ok(());
            }
            RangeReply::Found(status) => status,
        };
        let start = self.offset.saturating_add(unit * UNIT_BYTES as u64);
        let is_whole = len == status.size.saturating_sub(start).min(room);
        if !is_whole || *self.status.get_or_insert(status) != status {
            return Err(Error::Protocol("not the range that was asked for"));
        }
        self.len += len;
        Ok(())
    }
}
