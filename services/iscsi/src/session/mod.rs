//! Holds the state of one session: its numbers, its commands' data, and its answers. It does not know the engine.

mod offence;
mod transfer;
mod window;

pub use offence::Offence;
pub(crate) use transfer::{Allowed, Transfer, Want};
pub(crate) use window::{Turn, Window};

use std::collections::{BTreeMap, VecDeque};

use zerolane_block::sense::Format;
use zerolane_block::{NexusId, Response, Status};

use crate::limits::SESSION_BYTES;
use crate::login::{Entrant, Login, Settings};
use crate::pdu::{Answer, AnswerBody, Decoder, Digests, Header, NO_TAG, Reason, Sequence};

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum Stage {
    Login(Login),
    /// Logged in; the last answer waits until the work of an older session of this port is over.
    Held(Option<NexusId>),
    /// The session's name for its initiator; none if it only asks which targets there are.
    Full(Option<NexusId>),
}

/// A task management function that is not answered.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) tag: u32,
    /// Units that have not answered.
    pub(crate) left: usize,
    pub(crate) response: u8,
    /// All connections end when it is answered.
    pub(crate) ends_all: bool,
}

/// A connection, and the session on it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The portal's address that the initiator used.
    pub(crate) address: String,
    pub(crate) decoder: Decoder,
    pub(crate) digests: Digests,
    pub(crate) stage: Stage,
    pub(crate) entrant: Option<Entrant>,
    pub(crate) settings: Settings,
    pub(crate) window: Window,
    /// The last answer of the login, with its tag and text.
    pub(crate) held: Option<(u32, AnswerBody, Vec<u8>)>,
    status: u32,
    /// Bytes to be sent.
    pub(crate) out: Vec<u8>,
    pub(crate) transfers: BTreeMap<u32, Transfer>,
    pub(crate) functions: BTreeMap<u64, Function>,
    next_function: u64,
    next_transfer_tag: u32,
    /// Payload in memory, bytes.
    memory: usize,
    /// Commands that wait for memory, in order.
    waiting: VecDeque<u32>,
    /// The session accepts nothing more, and the connection ends when all is sent.
    pub(crate) over: bool,
    /// Why it was cut off.
    pub(crate) offence: Option<Offence>,
}

impl Session {
    pub(crate) fn new(address: String) -> Session {
        Session {
            address,
            decoder: Decoder::default(),
            digests: Digests::default(),
            stage: Stage::Login(Login::default()),
            entrant: None,
            settings: Settings::default(),
            window: Window::from(0),
            held: None,
            status: 1,
            out: Vec::new(),
            transfers: BTreeMap::new(),
            functions: BTreeMap::new(),
            next_function: 1 << 32,
            next_transfer_tag: 0,
            memory: 0,
            waiting: VecDeque::new(),
            over: false,
            offence: None,
        }
    }

    pub(crate) fn nexus(&self) -> Option<NexusId> {
        match self.stage {
            Stage::Full(nexus) | Stage::Held(nexus) => nexus,
            Stage::Login(_) => None,
        }
    }

    /// The initiator owes a login, or data.
    pub(crate) fn is_owed(&self) -> bool {
        matches!(self.stage, Stage::Login(_)) || self.transfers.values().any(Transfer::is_owed)
    }

    /// Appends a PDU. Those that tell a status have a number of their own.
    pub(crate) fn send(&mut self, tag: u32, body: AnswerBody, data: &[u8]) {
        let has_status = match body {
            AnswerBody::DataIn { status, .. } => status.is_some(),
            AnswerBody::R2t { .. } => false,
            _ => true,
        };
        let shows = has_status || matches!(body, AnswerBody::R2t { .. });
        let answer = Answer {
            tag,
            sequence: Sequence {
                status: if shows { self.status } else { 0 },
                expected: self.window.expected(),
                most: self.window.most(),
            },
            body,
            data,
        };
        answer.encode(&mut self.out, self.digests);
        if has_status {
            self.status = self.status.wrapping_add(1);
        }
    }

    /// Rejects a PDU with that header.
    pub(crate) fn reject(&mut self, reason: Reason, header: &Header) {
        let body = AnswerBody::Reject {
            reason: reason as u8,
        };
        self.send(NO_TAG, body, header);
    }

    /// A name of its own for a task management function.
    pub(crate) fn function(&mut self, function: Function) -> u64 {
        self.next_function += 1;
        self.functions.insert(self.next_function, function);
        self.next_function
    }

    /// A command's work waits for memory.
    pub(crate) fn wait_for_memory(&mut self, tag: u32) {
        self.waiting.push_back(tag);
    }

    /// The next command that there is memory for now.
    pub(crate) fn admit(&mut self) -> Option<u32> {
        while let Some(&tag) = self.waiting.front() {
            let transfer = self.transfers.get_mut(&tag);
            let Some((transfer, bytes)) = transfer.and_then(|it| match it.want {
                Want::Work { bytes, .. } if !it.is_admitted => Some((it, bytes)),
                _ => None,
            }) else {
                // It was aborted meanwhile.
                self.waiting.pop_front();
                continue;
            };
            let is_idle = self.memory == 0 && self.out.is_empty();
            if !is_idle && self.memory + self.out.len() + bytes > SESSION_BYTES {
                return None;
            }
            self.waiting.pop_front();
            self.memory += bytes;
            (transfer.memory, transfer.is_admitted) = (bytes, true);
            return Some(tag);
        }
        None
    }

    /// Asks for data of a command that is missing.
    pub(crate) fn ask(&mut self, tag: u32) {
        let allowed = Allowed {
            burst: self.settings.burst_bytes as usize,
            bursts: self.settings.r2ts as usize,
        };
        loop {
            let transfer_tag = self.next_transfer_tag;
            let Some(transfer) = self.transfers.get_mut(&tag) else {
                return;
            };
            let lun = transfer.lun;
            let Some(asked) = transfer.ask(transfer_tag, allowed) else {
                return;
            };
            self.next_transfer_tag = (self.next_transfer_tag + 1) % NO_TAG;
            // The expected length has 32 bits.
            let body = AnswerBody::R2t {
                lun,
                transfer_tag,
                number: asked.number,
                offset: asked.offset as u32,
                length: asked.length as u32,
            };
            self.send(tag, body, &[]);
        }
    }

    /// A command is no more.
    pub(crate) fn forget(&mut self, tag: u32) -> Option<Transfer> {
        let transfer = self.transfers.remove(&tag)?;
        self.memory -= transfer.memory;
        if !transfer.immediate {
            self.window.end();
        }
        Some(transfer)
    }

    /// Sends the end of a command, with its read data.
    pub(crate) fn finish(&mut self, tag: u32) {
        let Some(transfer) = self.forget(tag) else {
            return;
        };
        let Some(response) = transfer.response else {
            return;
        };
        let is_good = response.status == Status::Good;
        let data = if is_good && !transfer.read.is_empty() {
            &transfer.read
        } else {
            &response.data
        };
        let data_number = self.send_data(tag, data, is_good.then_some(&response));
        if is_good && data_number > 0 {
            return;
        }
        let sense = response.sense.map(|sense| {
            let sense = sense.encode(Format::Fixed);
            let mut segment = (sense.len() as u16).to_be_bytes().to_vec();
            segment.extend(sense);
            segment
        });
        let body = AnswerBody::Response {
            status: response.status as u8,
            residual: response.residual,
            data_number,
        };
        self.send(tag, body, &sense.unwrap_or_default());
    }

    /// Sends read data, with `response` in its last PDU. Returns the number of PDUs.
    fn send_data(&mut self, tag: u32, data: &[u8], response: Option<&Response>) -> u32 {
        let burst = self.settings.burst_bytes as usize;
        let segment = (self.settings.segment_bytes as usize).min(burst);
        let (mut offset, mut number) = (0, 0);
        while offset < data.len() {
            let burst_end = (offset / burst + 1) * burst;
            let end = (offset + segment).min(burst_end).min(data.len());
            let is_last = end == data.len();
            let status = response.filter(|_| is_last);
            let body = AnswerBody::DataIn {
                last: is_last || end == burst_end,
                status: status.map(|it| (it.status as u8, it.residual)),
                data_number: number,
                offset: offset as u32,
            };
            self.send(tag, body, &data[offset..end]);
            (offset, number) = (end, number + 1);
        }
        number
    }
}
