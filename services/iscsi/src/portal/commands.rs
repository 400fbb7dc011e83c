//! Handles the PDUs of initiators: logins, commands, data, task management.

use zerolane_block::{Access, Attribute, Function as Managing, Initiator, Request as Submitted};

use super::{Peer, Port, Portal};
use crate::limits::{MAX_COMMANDS, MAX_FUNCTIONS};
use crate::login::{Entrant, Next, PORTAL_GROUP};
use crate::pdu::{AnswerBody, Header, NO_TAG, RawPdu, Reason, Request, RequestBody};
use crate::session::{Function, Offence, Session, Stage, Transfer, Turn, Window};
use crate::text;

/// Answers of task management (RFC 7143, 11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_REASSIGNMENT: u8 = 4;
const NO_FUNCTION: u8 = 5;
pub(super) const REJECTED: u8 = 255;

/// Sent when there is no room for the initiator: target error, out of resources.
const NO_ROOM: u16 = 0x0302;

impl Portal {
    pub(super) fn on_pdu(&mut self, peer: Peer, pdu: RawPdu) -> Result<(), Offence> {
        let header = pdu.header;
        let Some(session) = self.sessions.get_mut(&peer) else {
            return Ok(());
        };
        let request = match (Request::parse(pdu), &session.stage) {
            (Ok(request), Stage::Full(_)) => request,
            (Ok(request), Stage::Login(_)) => return self.on_login(peer, &request),
            (Err(_), Stage::Full(_)) => {
                session.reject(Reason::NotSupported, &header);
                return Ok(());
            }
            _ => return Err(Offence::Login),
        };
        let has_turn = !matches!(
            request.body,
            RequestBody::DataOut { .. } | RequestBody::Snack | RequestBody::Login { .. }
        );
        if has_turn && !request.immediate {
            match session.window.take(request.command_number) {
                Turn::Taken => {}
                Turn::Ignored => return Ok(()),
                Turn::Gap => return Err(Offence::Order),
            }
        }
        let is_command = matches!(request.body, RequestBody::Command { .. });
        if has_turn && !request.immediate && !is_command {
            session.window.end();
        }
        let tag = request.tag;
        match request.body {
            RequestBody::Login { .. } => return Err(Offence::Login),
            RequestBody::Command { .. } => return self.on_command(peer, &header, request),
            RequestBody::DataOut {
                last,
                transfer_tag,
                data_number,
                offset,
            } => {
                // Data of a command that was aborted is of no use, and no harm.
                if let Some(transfer) = session.transfers.get_mut(&tag) {
                    transfer.take(transfer_tag, data_number, offset, last, &request.data)?;
                    self.progress(peer, tag);
                }
            }
            RequestBody::Snack => session.reject(Reason::Snack, &header),
            RequestBody::NopOut { lun, .. } => {
                if tag != NO_TAG {
                    let most = request
                        .data
                        .len()
                        .min(session.settings.segment_bytes as usize);
                    session.send(tag, AnswerBody::NopIn { lun }, &request.data[..most]);
                }
            }
            RequestBody::Management {
                function,
                lun,
                referenced,
                ..
            } => self.on_management(peer, &header, tag, (function, lun, referenced)),
            RequestBody::Text {
                last, continued, ..
            } => {
                if !last || continued {
                    session.reject(Reason::NotSupported, &header);
                    return Ok(());
                }
                self.on_text(peer, &header, tag, &request.data);
            }
            RequestBody::Logout { reason, connection } => {
                self.on_logout(peer, tag, (reason, connection));
            }
        }
        Ok(())
    }

    fn on_login(&mut self, peer: Peer, request: &Request) -> Result<(), Offence> {
        // Handles of sessions are not zero.
        let handle = (peer.0 % u64::from(u16::MAX)) as u16 + 1;
        let Some(session) = self.sessions.get_mut(&peer) else {
            return Ok(());
        };
        let Stage::Login(login) = &mut session.stage else {
            return Err(Offence::Login);
        };
        if !matches!(request.body, RequestBody::Login { .. }) {
            return Err(Offence::Login);
        }
        session.window = Window::from(request.command_number);
        let outcome = login.take(&request.body, &request.data, &self.name, handle);
        match outcome.next {
            Next::Login => session.send(request.tag, outcome.answer, &outcome.text),
            Next::Over => {
                session.send(request.tag, outcome.answer, &outcome.text);
                self.end(peer);
            }
            Next::Full(entrant) => {
                if !self.enter(peer, entrant) {
                    let mut answer = outcome.answer;
                    if let AnswerBody::Login {
                        transit, status, ..
                    } = &mut answer
                    {
                        (*transit, *status) = (false, NO_ROOM);
                    }
                    if let Some(session) = self.sessions.get_mut(&peer) {
                        session.send(request.tag, answer, &[]);
                    }
                    self.end(peer);
                    return Ok(());
                }
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.held = Some((request.tag, outcome.answer, outcome.text));
                }
                self.release();
            }
        }
        Ok(())
    }

    /// An initiator has logged in: an older session from its port ends (RFC 7143, 6.3.5). False if there is no room.
    fn enter(&mut self, peer: Peer, entrant: Entrant) -> bool {
        let is_older = |(&other, it): (&Peer, &Session)| {
            let same = it.entrant.as_ref().is_some_and(|it| {
                !it.discovery && (&it.name, it.isid) == (&entrant.name, entrant.isid)
            });
            (other != peer && same && !entrant.discovery).then_some(other)
        };
        let older: Vec<Peer> = self.sessions.iter().filter_map(is_older).collect();
        older.into_iter().for_each(|it| self.end(it));
        let nexus = if entrant.discovery {
            None
        } else {
            // The name of the port, as SCSI knows it.
            let isid: String = entrant.isid.iter().map(|it| format!("{it:02x}")).collect();
            let name = format!("{},i,0x{isid}", entrant.name);
            let access = Access {
                units: None,
                read_only: self.read_only,
            };
            let attached = Initiator::named(name.as_bytes())
                .and_then(|initiator| self.engine.attach(initiator, access).ok());
            let Some(nexus) = attached else {
                return false;
            };
            self.nexuses.insert(nexus, peer);
            Some(nexus)
        };
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.settings = entrant.settings;
            session.entrant = Some(entrant);
            session.stage = Stage::Held(nexus);
        }
        true
    }

    /// Admits initiators that no longer wait: work of their older sessions must not be done after what the newer ones
    /// write.
    pub(super) fn release(&mut self) {
        let running = &self.running;
        let waits = |peer: Peer, port: &Port| {
            let mut others = running.values().filter(|(owner, _)| *owner != peer);
            others.any(|(_, it)| it == port)
        };
        for (&peer, session) in &mut self.sessions {
            let (Stage::Held(nexus), Some(entrant)) = (&session.stage, &session.entrant) else {
                continue;
            };
            if waits(peer, &(entrant.name.clone(), entrant.isid)) {
                continue;
            }
            let (nexus, digests) = (*nexus, entrant.settings.digests);
            if let Some((tag, answer, text)) = session.held.take() {
                session.send(tag, answer, &text);
                session.stage = Stage::Full(nexus);
                session.digests = digests;
                self.changed.insert(peer);
            }
        }
    }

    fn on_command(&mut self, peer: Peer, header: &Header, request: Request) -> Result<(), Offence> {
        let Request {
            immediate,
            tag,
            body,
            data,
            ..
        } = request;
        let RequestBody::Command {
            last,
            read,
            write,
            attribute,
            lun,
            expected,
            cdb,
            extended,
        } = body
        else {
            return Ok(());
        };
        let Some(session) = self.sessions.get_mut(&peer) else {
            return Ok(());
        };
        let nexus = session.nexus();
        let attribute = match attribute {
            0 | 1 => Some(Attribute::Simple),
            2 => Some(Attribute::Ordered),
            3 => Some(Attribute::HeadOfQueue),
            _ => None,
        };
        let reason = if nexus.is_none() || extended || read && write {
            Some(Reason::NotSupported)
        } else if attribute.is_none() || tag == NO_TAG {
            Some(Reason::InvalidField)
        } else if session.transfers.contains_key(&tag) {
            Some(Reason::TaskInProgress)
        } else if session.transfers.len() >= MAX_COMMANDS {
            Some(Reason::TooManyImmediate)
        } else {
            None
        };
        let (None, Some(nexus), Some(attribute)) = (reason, nexus, attribute) else {
            session.reject(reason.unwrap_or(Reason::NotSupported), header);
            if !immediate {
                session.window.end();
            }
            return Ok(());
        };
        let settings = session.settings;
        let is_unsolicited = !(data.is_empty() || write && settings.immediate_data);
        if is_unsolicited || !last && (!write || settings.initial_r2t) {
            return Err(Offence::Data);
        }
        let data_out = if write { expected } else { 0 };
        let lengths = (data_out as usize, settings.first_burst_bytes as usize);
        let transfer = Transfer::new(lun, immediate, lengths, data, !last)?;
        session.transfers.insert(tag, transfer);
        let submitted = Submitted {
            tag: tag.into(),
            lun,
            attribute,
            cdb: &cdb,
            data_in: if read { expected.into() } else { 0 },
            data_out: data_out.into(),
            in_capsule: false,
        };
        // There is such a nexus as long as there is the session.
        let _ = self.engine.submit(nexus, &submitted);
        Ok(())
    }

    fn on_management(
        &mut self,
        peer: Peer,
        header: &Header,
        tag: u32,
        (function, lun, referenced): (u8, [u8; 8], u32),
    ) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(nexus) = session.nexus() else {
            return session.reject(Reason::NotSupported, header);
        };
        let is_there = self.engine.has_command(nexus, referenced.into());
        let one = |it| Ok((it, vec![lun]));
        let all = || self.luns.iter().map(|it| it.encode()).collect();
        let meant = match function {
            _ if session.functions.len() >= MAX_FUNCTIONS => Err(REJECTED),
            1 if !is_there => Err(NO_TASK),
            1 => one(Managing::AbortTask(referenced.into())),
            2 => one(Managing::AbortTaskSet),
            4 => one(Managing::ClearTaskSet),
            5 => one(Managing::ResetUnit),
            6 | 7 => Ok((Managing::ResetUnit, all())),
            8 => Err(NO_REASSIGNMENT),
            _ => Err(NO_FUNCTION),
        };
        let (managing, luns) = match meant {
            Ok(meant) => meant,
            Err(response) => {
                return session.send(tag, AnswerBody::Management { response }, &[]);
            }
        };
        let name = session.function(Function {
            tag,
            left: luns.len(),
            response: COMPLETE,
            ends_all: function == 7,
        });
        for lun in luns {
            let _ = self.engine.manage(nexus, name, lun, managing);
        }
        self.sweep();
    }

    /// Answers SendTargets.
    fn on_text(&mut self, peer: Peer, header: &Header, tag: u32, data: &[u8]) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Ok(pairs) = text::pairs(data) else {
            return session.reject(Reason::Protocol, header);
        };
        let discovery = session.entrant.as_ref().is_some_and(|it| it.discovery);
        let mut said = Vec::new();
        for (key, value) in pairs {
            let is_meant = match value {
                "All" => discovery,
                "" => !discovery,
                name => name == self.name,
            };
            match key {
                "SendTargets" if is_meant => {
                    text::put(&mut said, "TargetName", &self.name);
                    let address = format!("{},{PORTAL_GROUP}", session.address);
                    text::put(&mut said, "TargetAddress", &address);
                }
                "SendTargets" => {}
                _ => text::put(&mut said, key, "NotUnderstood"),
            }
        }
        if said.len() > session.settings.segment_bytes as usize {
            return session.reject(Reason::Protocol, header);
        }
        let body = AnswerBody::Text {
            last: true,
            continued: false,
            transfer_tag: NO_TAG,
        };
        session.send(tag, body, &said);
    }

    fn on_logout(&mut self, peer: Peer, tag: u32, (reason, connection): (u8, u16)) {
        const CLOSED: u8 = 0;
        const NO_CONNECTION: u8 = 1;
        const NO_RECOVERY: u8 = 2;
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let own = session.entrant.as_ref().map(|it| it.connection);
        let response = match reason {
            0 => CLOSED,
            1 if own == Some(connection) => CLOSED,
            1 => NO_CONNECTION,
            _ => NO_RECOVERY,
        };
        session.send(tag, AnswerBody::Logout { response }, &[]);
        if response == CLOSED {
            self.end(peer);
        }
    }
}
