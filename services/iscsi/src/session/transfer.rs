//! Tracks the data of one command: unsolicited, requested, and still missing.

use std::collections::VecDeque;

use zerolane_block::{Response, TaskId, Work};

use super::offence::Offence;
use crate::pdu::NO_TAG;

/// The engine's demand on a command.
#[derive(Debug)]
pub(crate) enum Want {
    /// It has not said yet.
    Nothing,
    /// So many bytes of parameters.
    Parameters(TaskId, usize),
    /// Work that waits for memory, or for its write data.
    Work {
        task: TaskId,
        work: Work,
        bytes: usize,
        is_out: bool,
    },
    /// A thread has the work.
    Running,
}

/// Data that was asked for.
#[derive(Debug)]
struct Burst {
    tag: u32,
    end: usize,
    number: u32,
}

/// How much may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Bytes of a burst.
    pub(crate) burst: usize,
    /// Bursts at a time.
    pub(crate) bursts: usize,
}

/// A request for data: its number, and where in the command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) number: u32,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// A command and its data.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) lun: [u8; 8],
    pub(crate) immediate: bool,
    /// The data that the initiator offers to write, bytes.
    expected: usize,
    /// The allowed unsolicited data, bytes.
    first_burst: usize,
    /// The data received so far.
    data: Vec<u8>,
    /// The number of the next unsolicited PDU, while more follow.
    unsolicited: Option<u32>,
    bursts: VecDeque<Burst>,
    /// Up to where data was asked for.
    asked: usize,
    requests: u32,
    /// Whether a data PDU is missing: the command fails after the remaining data.
    is_spoilt: bool,
    pub(crate) want: Want,
    /// Memory that is counted for it, bytes.
    pub(crate) memory: usize,
    /// There is memory for it.
    pub(crate) is_admitted: bool,
    /// The read data.
    pub(crate) read: Vec<u8>,
    pub(crate) response: Option<Response>,
}

impl Transfer {
    /// A command with `data` in its PDU, for the unit `lun`.
    ///
    /// # Errors
    /// More came than may.
    pub(crate) fn new(
        lun: [u8; 8],
        immediate: bool,
        (expected, first_burst): (usize, usize),
        data: Vec<u8>,
        comes_more: bool,
    ) -> Result<Transfer, Offence> {
        if data.len() > expected.min(first_burst) {
            return Err(Offence::Data);
        }
        Ok(Transfer {
            lun,
            immediate,
            expected,
            first_burst,
            data,
            unsolicited: comes_more.then_some(0),
            bursts: VecDeque::new(),
            asked: 0,
            requests: 0,
            is_spoilt: false,
            want: Want::Nothing,
            memory: 0,
            is_admitted: false,
            read: Vec::new(),
            response: None,
        })
    }

    /// Unsolicited data comes.
    pub(crate) fn is_open(&self) -> bool {
        self.unsolicited.is_some()
    }

    /// The initiator owes data.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_open() || !self.bursts.is_empty()
    }

    /// Bytes needed before the demand can be met.
    fn needed(&self) -> usize {
        match self.want {
            Want::Parameters(_, bytes) => bytes,
            Want::Work { bytes, is_out, .. } if is_out => bytes,
            _ => 0,
        }
    }

    /// All that is wanted is there.
    pub(crate) fn is_whole(&self) -> bool {
        self.data.len() >= self.needed() && !self.is_owed()
    }

    /// Its data will not become whole, and no more of it comes.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.is_spoilt && !self.is_owed()
    }

    /// The data that is wanted.
    pub(crate) fn take_data(&mut self) -> Vec<u8> {
        let needed = self.needed();
        let mut data = std::mem::take(&mut self.data);
        data.truncate(needed);
        data
    }

    /// The next data to request under `tag`; `None` if nothing is missing, or enough is requested.
    pub(crate) fn ask(&mut self, tag: u32, allowed: Allowed) -> Option<Asked> {
        let needed = self.needed().min(self.expected);
        let offset = self.asked.max(self.data.len());
        if self.is_spoilt
            || self.is_open()
            || self.bursts.len() >= allowed.bursts
            || offset >= needed
        {
            return None;
        }
        let length = (needed - offset).min(allowed.burst);
        let end = offset + length;
        self.data.reserve(needed - self.data.len());
        self.bursts.push_back(Burst {
            tag,
            end,
            number: 0,
        });
        self.asked = end;
        let number = self.requests;
        self.requests = self.requests.wrapping_add(1);
        Some(Asked {
            number,
            offset,
            length,
        })
    }

    /// Takes a PDU of data.
    ///
    /// After a number that is not the next, a PDU is missing: without recovery of errors, that fails the command.
    ///
    /// # Errors
    /// It is not where the last one ended, or more than was asked for.
    pub(crate) fn take(
        &mut self,
        transfer_tag: u32,
        number: u32,
        offset: u32,
        last: bool,
        data: &[u8],
    ) -> Result<(), Offence> {
        let is_unsolicited = transfer_tag == NO_TAG;
        let expected = match (is_unsolicited, self.bursts.front()) {
            (true, _) => self.unsolicited,
            (false, Some(burst)) if burst.tag == transfer_tag || self.is_spoilt => {
                Some(burst.number)
            }
            _ => None,
        };
        self.is_spoilt |= number != expected.ok_or(Offence::Data)?;
        if self.is_spoilt {
            // None of it is kept, so its contents do not matter.
            match is_unsolicited {
                true if last => self.unsolicited = None,
                false if last => self.bursts.retain(|it| it.tag != transfer_tag),
                _ => {}
            }
            return Ok(());
        }
        let end = self.data.len() + data.len();
        if offset as usize != self.data.len() {
            return Err(Offence::Data);
        }
        if is_unsolicited {
            if end > self.first_burst.min(self.expected) {
                return Err(Offence::Data);
            }
            self.unsolicited = (!last).then_some(number.wrapping_add(1));
        } else {
            let burst = self.bursts.front_mut().ok_or(Offence::Data)?;
            if end > burst.end || last != (end == burst.end) {
                return Err(Offence::Data);
            }
            // PDUs without data are counted, too.
            burst.number = burst.number.wrapping_add(1);
            if last {
                self.bursts.pop_front();
            }
        }
        self.data.extend(data);
        Ok(())
    }
}
