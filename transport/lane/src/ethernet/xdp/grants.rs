//! Tells the program in the driver what a connection grants, as its grants leave.

use super::Program;
use super::areas::Granted;
use super::layout::GRANTS;
use crate::threads::Process;
use std::sync::Arc;
use zerolane_core::{Connection, Transmit};
use zerolane_wire::{Op, Operation, Packet};

/// Position of this end's port in an outgoing header.
const S_PORT: usize = 6;

/// A connection known to the program, as long as this is held.
#[derive(Debug)]
pub(crate) struct Grants {
    program: Arc<Program>,
    key: u32,
    /// The area of its grants. `None`: there was no room, and its Data is not checked.
    area: Option<u32>,
    buffer_log2: u8,
    /// The content of the area.
    table: Box<[Granted]>,
    /// The port by which the peer addresses this end, from outgoing headers; 0: not known yet.
    port: u16,
    answers: bool,
    process: Process,
}

impl Grants {
    pub(super) fn new(
        program: Arc<Program>,
        key: u32,
        area: Option<u32>,
        buffer_log2: u8,
    ) -> Grants {
        let len = area.map_or(0, |_| GRANTS);
        Grants {
            program,
            key,
            area,
            buffer_log2,
            table: vec![Granted::default(); len].into(),
            port: 0,
            answers: false,
            process: Process::current(),
        }
    }

    /// Whether its Data is checked: there was room for an area.
    #[cfg(test)]
    pub(super) fn is_judged(&self) -> bool {
        self.area.is_some()
    }

    /// Makes the program allow what `transmit`, which is about to be sent, grants.
    pub(crate) fn note(&mut self, transmit: &Transmit, core: &Connection) {
        let Some(area) = self.area else {
            return;
        };
        let answers = core.awaits_answers();
        if answers != self.answers {
            self.answers = answers;
            self.program.areas.await_answers(area, answers);
        }
        if let Transmit::Control(control) = transmit {
            self.note_control(area, control.bytes());
        }
    }

    fn note_control(&mut self, area: u32, bytes: &[u8]) {
        let port = u16::from_be_bytes([bytes[S_PORT], bytes[S_PORT + 1]]);
        if port != self.port {
            self.port = port;
            self.program.areas.set_port(area, port);
        }
        let grants = [Op::ClearToSend, Op::Get].map(|it| it as u8);
        if !grants.contains(&(bytes[0] >> 3)) {
            return;
        }
        let operation = Packet::parse(bytes).map(|it| it.operation);
        let address = |bufx, offset| (u64::from(bufx) << self.buffer_log2) + u64::from(offset);
        let granted = match operation {
            Ok(Operation::ClearToSend(it)) => {
                let Some(grant) = it.grant else {
                    // A grant of the classic profile has no length.
                    self.program.areas.set_judged(area, false, self.buffer_log2);
                    return;
                };
                Granted {
                    mx: it.mx,
                    d_id: it.s_id,
                    b_num: it.b_num,
                    address: address(it.bufx, it.offset),
                    length: grant.length,
                }
            }
            Ok(Operation::Get(it)) if it.numbered => Granted {
                mx: it.return_mx,
                d_id: it.s_id,
                b_num: it.b_num,
                address: address(it.return_bufx, it.return_offset),
                length: it.length,
            },
            // An operation that is answered by a single datagram has no grant.
            _ => return,
        };
        let known = &mut self.table[usize::from(granted.mx) % GRANTS];
        // A Get may request parts of its Block again.
        let granted = match granted.is_of(known) {
            true => granted.joined(*known),
            false => granted,
        };
        if granted != *known {
            *known = granted;
            self.program.areas.set(area, &granted);
        }
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        // A child of fork has copies of its parent's state.
        if self.process.is_current() {
            self.program.forget(self.key, self.area);
        }
    }
}
