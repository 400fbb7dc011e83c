//! Executes the engine's steps for the sessions: data transfers, jobs, and ends of commands.

use std::collections::VecDeque;

use zerolane_block::sense::{Code, Failure, Key, Sense};
use zerolane_block::{Answer, NexusId, Payload, Step, TaskId};

use super::commands::REJECTED;
use super::{Done, Job, Peer, Portal};
use crate::pdu::AnswerBody;
use crate::session::{Session, Want};

/// The result of dropped work, which is never reported.
const ABORTED: Failure = Failure::Check(Sense::new(Key::AbortedCommand, Code::NONE));

/// PROTOCOL SERVICE CRC ERROR (RFC 7143, 11.4.7.2): a PDU of data is missing.
const INCOMPLETE: Failure = Failure::Check(Sense::new(Key::AbortedCommand, Code::new(0x47, 0x05)));

/// Answers of task management (RFC 7143, 11.6.1).
const NO_UNIT: u8 = 2;

impl Portal {
    /// Executes the engine's steps until there are none left.
    pub(super) fn settle(&mut self) {
        while let Some(step) = self.engine.next_step() {
            match step {
                Step::Respond {
                    nexus,
                    tag,
                    response,
                } => self.with(nexus, |portal, peer| {
                    let transfer = portal.transfer(peer, tag as u32);
                    if let Some(transfer) = transfer {
                        transfer.response = Some(response);
                    }
                    portal.progress(peer, tag as u32);
                }),
                Step::Fetch {
                    task,
                    nexus,
                    tag,
                    bytes,
                } => self.with(nexus, |portal, peer| {
                    if let Some(transfer) = portal.transfer(peer, tag as u32) {
                        transfer.want = Want::Parameters(task, bytes);
                    }
                    portal.progress(peer, tag as u32);
                }),
                Step::Work {
                    task,
                    nexus,
                    tag,
                    work,
                } => {
                    let (bytes, is_out) = match work.payload() {
                        Payload::None => (0, false),
                        Payload::In(bytes) => (bytes as usize, false),
                        Payload::Out(bytes) => (bytes as usize, true),
                    };
                    self.with(nexus, |portal, peer| {
                        if let Some(transfer) = portal.transfer(peer, tag as u32) {
                            transfer.want = Want::Work {
                                task,
                                work,
                                bytes,
                                is_out,
                            };
                        }
                        if let Some(session) = portal.sessions.get_mut(&peer) {
                            session.wait_for_memory(tag as u32);
                        }
                        portal.admit(peer);
                    });
                }
                Step::Managed { nexus, tag, answer } => {
                    self.with(nexus, |portal, peer| portal.managed(peer, tag, answer));
                }
            }
        }
    }

    /// Of an initiator that is gone there are no steps.
    fn with(&mut self, nexus: NexusId, act: impl FnOnce(&mut Portal, Peer)) {
        if let Some(&peer) = self.nexuses.get(&nexus) {
            act(self, peer);
            self.changed.insert(peer);
        }
    }

    fn transfer(&mut self, peer: Peer, tag: u32) -> Option<&mut crate::session::Transfer> {
        self.sessions.get_mut(&peer)?.transfers.get_mut(&tag)
    }

    /// Starts waiting work as far as memory allows.
    pub(super) fn admit(&mut self, peer: Peer) {
        while let Some(tag) = self.sessions.get_mut(&peer).and_then(Session::admit) {
            self.progress(peer, tag);
        }
    }

    /// Goes on with a command, as far as its data is there.
    pub(super) fn progress(&mut self, peer: Peer, tag: u32) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(transfer) = session.transfers.get_mut(&tag) else {
            return;
        };
        if transfer.response.is_some() {
            // Wait for the unsolicited data, whatever the command's result.
            if !transfer.is_open() {
                session.finish(tag);
                self.admit(peer);
            }
            return;
        }
        // Parameters are a few KiB.
        if !transfer.is_admitted && !matches!(transfer.want, Want::Parameters(..)) {
            return;
        }
        if transfer.is_spoilt() {
            match std::mem::replace(&mut transfer.want, Want::Nothing) {
                Want::Work { task, .. } => self.engine.done(task, Err(INCOMPLETE)),
                // Parameters of another length than was asked for.
                Want::Parameters(task, _) => self.engine.fetched(task, &[]),
                other => transfer.want = other,
            }
            return;
        }
        if !transfer.is_whole() {
            return session.ask(tag);
        }
        let data = match transfer.want {
            Want::Parameters(..) | Want::Work { .. } => transfer.take_data(),
            Want::Nothing | Want::Running => return,
        };
        match std::mem::replace(&mut transfer.want, Want::Running) {
            Want::Parameters(task, _) => {
                self.engine.fetched(task, &data);
                self.sweep();
            }
            Want::Work { task, work, .. } => {
                let port = session.entrant.as_ref();
                let port = port
                    .map(|it| (it.name.clone(), it.isid))
                    .unwrap_or_default();
                self.running.insert(task, (peer, port));
                self.jobs.push_back(Job {
                    peer,
                    tag,
                    task,
                    work,
                    data,
                });
            }
            Want::Nothing | Want::Running => {}
        }
    }

    /// Handles the result of a job.
    pub fn finished(&mut self, done: Done) {
        let Done {
            peer,
            tag,
            task,
            read,
            outcome,
        } = done;
        self.running.remove(&task);
        if let Some(transfer) = self.transfer(peer, tag) {
            transfer.read = read;
        }
        self.engine.done(task, outcome);
        self.settle();
        // It was aborted, and its end is not reported.
        if let Some(session) = self.sessions.get_mut(&peer)
            && let Some(transfer) = session.transfers.get(&tag)
            && matches!(transfer.want, Want::Running)
            && transfer.response.is_none()
        {
            session.forget(tag);
            self.admit(peer);
        }
        self.release();
        self.settle();
        self.changed.insert(peer);
    }

    /// Drops aborted commands that no thread is executing.
    pub(super) fn sweep(&mut self) {
        let mut ended: Vec<TaskId> = Vec::new();
        let engine = &self.engine;
        for session in self.sessions.values_mut() {
            let Some(nexus) = session.nexus() else {
                continue;
            };
            let is_gone = |tag: u32| !engine.has_command(nexus, tag.into());
            let gone = session.transfers.iter();
            let gone = gone.filter(|&(&tag, it)| it.response.is_none() && is_gone(tag));
            let gone: Vec<u32> = gone.map(|(&tag, _)| tag).collect();
            for tag in gone {
                match session.transfers.get(&tag).map(|it| &it.want) {
                    Some(Want::Work { task, .. }) => ended.push(*task),
                    Some(Want::Parameters(..)) => {}
                    // The engine will return more steps for it, or a thread is executing it.
                    _ => continue,
                }
                session.forget(tag);
            }
        }
        let sessions = &self.sessions;
        let is_wanted = |job: &Job| {
            let nexus = sessions.get(&job.peer).and_then(Session::nexus);
            nexus.is_some_and(|it| engine.has_command(it, job.tag.into()))
        };
        let (wanted, aborted) = std::mem::take(&mut self.jobs)
            .into_iter()
            .partition(is_wanted);
        self.jobs = wanted;
        let aborted: VecDeque<Job> = aborted;
        for job in aborted {
            self.running.remove(&job.task);
            if let Some(session) = self.sessions.get_mut(&job.peer) {
                session.forget(job.tag);
            }
            ended.push(job.task);
        }
        for task in ended {
            self.engine.done(task, Err(ABORTED));
        }
    }

    /// A unit has answered a task management function.
    fn managed(&mut self, peer: Peer, name: u64, answer: Answer) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(function) = session.functions.get_mut(&name) else {
            return;
        };
        match answer {
            Answer::WrongLun => function.response = NO_UNIT,
            Answer::Rejected => {
                function.response = REJECTED;
                function.ends_all = false;
            }
            Answer::Complete | Answer::Succeeded => {}
        }
        function.left = function.left.saturating_sub(1);
        if function.left > 0 {
            return;
        }
        let (tag, response) = (function.tag, function.response);
        let ends_all = function.ends_all;
        session.functions.remove(&name);
        session.send(tag, AnswerBody::Management { response }, &[]);
        if ends_all {
            let peers: Vec<Peer> = self.sessions.keys().copied().collect();
            peers.into_iter().for_each(|it| self.end(it));
        }
    }

    /// Accepts nothing more from this initiator, and aborts its commands.
    pub(super) fn end(&mut self, peer: Peer) {
        self.changed.insert(peer);
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        session.over = true;
        let nexus = session.nexus();
        session.stage = crate::session::Stage::Full(None);
        let transfers = std::mem::take(&mut session.transfers);
        let Some(nexus) = nexus else {
            return;
        };
        self.nexuses.remove(&nexus);
        self.engine.detach(nexus);
        for transfer in transfers.into_values() {
            if let Want::Work { task, .. } = transfer.want {
                self.engine.done(task, Err(ABORTED));
            }
        }
        self.sweep();
        self.release();
    }
}
