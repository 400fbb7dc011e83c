//! What the engine says is done.

use std::sync::Arc;

use zerolane::worker::ConnectionId;
use zerolane::{Region, Work as Request};
use zerolane_block::sense::{Code, Failure, Key, Sense};
use zerolane_block::sst::Outcome;
use zerolane_block::{NexusId, Payload, Response, Status, Step, TaskId, Work};

use super::Server;
use super::offence::Offence;
use super::peer::{Flight, Name};
use super::pool::{Done, Job};
use crate::limits::{AT_ONCE_BYTES, INITIATOR_BYTES};
use crate::message::Data;

impl Server {
    /// Does what the engine says, as long as it says something.
    pub(super) fn take_steps(&mut self) {
        while let Some(step) = self.engine.next_step() {
            let (nexus, outcome) = match step {
                Step::Respond {
                    nexus,
                    tag,
                    response,
                } => (nexus, self.respond(nexus, tag, response)),
                Step::Managed { nexus, tag, answer } => {
                    let outcome = Outcome::Managed(answer);
                    (nexus, self.answer(nexus, tag, outcome))
                }
                Step::Fetch {
                    task,
                    nexus,
                    tag,
                    bytes,
                } => (nexus, self.fetch(nexus, task, tag, bytes)),
                Step::Work {
                    task,
                    nexus,
                    tag,
                    work,
                } => (nexus, self.begin(nexus, task, tag, work)),
            };
            if let (Err(offence), Some(&id)) = (outcome, self.nexuses.get(&nexus)) {
                self.cut(id, offence);
            }
        }
    }

    fn answer(&mut self, nexus: NexusId, tag: u64, outcome: Outcome) -> Result<(), Offence> {
        let Some(&id) = self.nexuses.get(&nexus) else {
            return Ok(());
        };
        let member = self.peers.get_mut(&id).and_then(|it| it.member());
        match member.and_then(|it| it.release(Name::Function(tag))) {
            Some(held) => self.put_status(id, held.slot, tag, outcome),
            None => Ok(()),
        }
    }

    /// Puts the data of a command, and its status behind it.
    fn respond(&mut self, nexus: NexusId, tag: u64, response: Response) -> Result<(), Offence> {
        let Some(&id) = self.nexuses.get(&nexus) else {
            return Ok(());
        };
        let Some(peer) = self.peers.get_mut(&id) else {
            return Ok(());
        };
        let held = peer.member().and_then(|it| it.release(Name::Command(tag)));
        let Some(mut held) = held else {
            return Ok(());
        };
        let read = held.read.take();
        let data = if response.status == Status::Good {
            read.or_else(|| {
                let data = Some(response.data).filter(|it| !it.is_empty())?;
                peer.memory += data.len();
                Some(Region::from_vec(data))
            })
        } else {
            if let Some(read) = read {
                peer.memory -= read.len();
                self.buffers.give(read);
            }
            None
        };
        let bytes = data.as_ref().map_or(0, |it| it.len() as u64);
        if let Some(data) = data {
            let Data::At(place) = held.data else {
                return Err(Offence::Memory);
            };
            let context = peer.depart(Flight::Put);
            // The status behind it is what the initiator waits for. Nobody waits for the memory.
            let work = Request::default().unawaited().with_context(context);
            let Some(connection) = self.worker.connection(id) else {
                return Ok(());
            };
            let posted = connection.post_put(&place.region, place.offset, data, work);
            posted.map_err(|_| Offence::Full)?;
        }
        let outcome = Outcome::Response {
            status: response.status,
            sense: response.sense,
            residual: response.residual,
            data_in: bytes,
        };
        self.put_status(id, held.slot, tag, outcome)
    }

    fn fetch(
        &mut self,
        nexus: NexusId,
        task: TaskId,
        tag: u64,
        bytes: usize,
    ) -> Result<(), Offence> {
        let mut memory = Region::from_vec(vec![0; bytes]);
        if self.copy_capsule(nexus, tag, &mut memory) {
            self.engine.fetched(task, &memory);
            return Ok(());
        }
        self.get(nexus, tag, memory, Flight::Fetch { task })
    }

    /// Fills `memory` with data of the command `tag`, if that came with it.
    fn copy_capsule(&mut self, nexus: NexusId, tag: u64, memory: &mut Region) -> bool {
        let id = self.nexuses.get(&nexus);
        let peer = id.and_then(|id| self.peers.get_mut(id));
        let Some(member) = peer.and_then(|it| it.member()) else {
            return false;
        };
        let held = member.held.get(&Name::Command(tag));
        let held = held.filter(|it| it.data == Data::InCapsule);
        let Some((held, capsules)) = held.zip(member.capsules.as_ref()) else {
            return false;
        };
        capsules.copy(held.slot, memory);
        true
    }

    /// Gets data of the command `tag` into `memory`.
    fn get(
        &mut self,
        nexus: NexusId,
        tag: u64,
        memory: Region,
        flight: Flight,
    ) -> Result<(), Offence> {
        let Some(&id) = self.nexuses.get(&nexus) else {
            return Ok(());
        };
        let Some(peer) = self.peers.get_mut(&id) else {
            return Ok(());
        };
        let held = peer
            .member()
            .and_then(|it| it.held.get(&Name::Command(tag)));
        let data = held.map(|it| it.data);
        peer.memory += memory.len();
        let work = Request::default().with_context(peer.depart(flight));
        let Some(Data::At(place)) = data else {
            return Err(Offence::Memory);
        };
        let Some(connection) = self.worker.connection(id) else {
            return Ok(());
        };
        let posted = connection.post_get(&place.region, place.offset, memory, work);
        posted.map(drop).map_err(|_| Offence::Full)
    }

    /// Begins work, or has it wait for memory.
    fn begin(&mut self, nexus: NexusId, task: TaskId, tag: u64, work: Work) -> Result<(), Offence> {
        let id = self.nexuses.get(&nexus).copied();
        let peer = id.and_then(|id| self.peers.get_mut(&id));
        let (Some(id), Some(peer)) = (id, peer) else {
            self.engine.done(task, Err(ABORTED));
            return Ok(());
        };
        let held = peer
            .member()
            .and_then(|it| it.held.get_mut(&Name::Command(tag)));
        if let Some(held) = held {
            held.task = Some(task);
        }
        if work.payload() == Payload::None {
            self.set_to_work(id, task, tag, work, Region::empty());
            return Ok(());
        }
        peer.waiting.push_back((task, tag, work));
        self.use_memory(id)
    }

    /// Begins what waits, as far as there is memory: in order, so that what needs much gets it.
    pub(super) fn use_memory(&mut self, id: ConnectionId) -> Result<(), Offence> {
        while let Some(peer) = self.peers.get_mut(&id) {
            let Some((_, _, work)) = peer.waiting.front() else {
                break;
            };
            let (Payload::In(bytes) | Payload::Out(bytes)) = work.payload() else {
                break;
            };
            // No command has more than TARGET_TRANSFER_BYTES.
            let bytes = bytes as usize;
            if peer.memory > 0 && peer.memory + bytes > INITIATOR_BYTES {
                break;
            }
            let Some((task, tag, work)) = peer.waiting.pop_front() else {
                break;
            };
            let nexus = peer.member().map(|it| it.nexus);
            let (Ok(mut memory), Some(nexus)) = (self.buffers.take(bytes), nexus) else {
                // The system has no memory: the initiator is told, and may try again.
                self.engine.done(task, Err(ABORTED));
                continue;
            };
            let is_in = matches!(work.payload(), Payload::In(_));
            if !is_in && !self.copy_capsule(nexus, tag, &mut memory) {
                self.get(nexus, tag, memory, Flight::Get { task, tag, work })?;
                continue;
            }
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.memory += bytes;
            }
            self.set_to_work(id, task, tag, work, memory);
        }
        Ok(())
    }

    /// Gives work to the threads. Its memory is counted already.
    pub(super) fn set_to_work(
        &mut self,
        id: ConnectionId,
        task: TaskId,
        tag: u64,
        work: Work,
        mut memory: Region,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.at_work += 1;
        let is_short = (1..=AT_ONCE_BYTES).contains(&memory.len());
        if is_short && work.read_at_once(&mut memory) {
            self.at_once.push(Done {
                owner: id,
                task,
                tag,
                is_in: true,
                memory,
                outcome: Ok(Vec::new()),
            });
            return;
        }
        self.pool.push(Job {
            owner: id,
            task,
            tag,
            work,
            memory,
            cancelled: Arc::clone(&peer.cancelled),
        });
    }

    /// Takes what the threads have done, and what was done at once: not when it was, for one such command may begin
    /// the next.
    pub(super) fn take_done(&mut self) {
        for done in self.pool.take_done() {
            self.on_done(done);
        }
        while !self.at_once.is_empty() {
            for done in std::mem::take(&mut self.at_once) {
                self.on_done(done);
            }
        }
    }

    fn on_done(&mut self, done: Done) {
        let Done {
            owner,
            task,
            tag,
            is_in,
            memory,
            outcome,
        } = done;
        if outcome.is_err() {
            // Before an initiator hears of it.
            self.news.extend(self.losses.look());
        }
        let Some(peer) = self.peers.get_mut(&owner) else {
            self.buffers.give(memory);
            self.engine.done(task, outcome);
            return self.lay(owner);
        };
        peer.at_work -= 1;
        let member = peer.member();
        let held = member.and_then(|it| it.held.get_mut(&Name::Command(tag)));
        match held.filter(|it| is_in && it.task == Some(task)) {
            Some(held) => held.read = Some(memory),
            None => {
                peer.memory -= memory.len();
                self.buffers.give(memory);
            }
        }
        self.engine.done(task, outcome);
        self.take_steps();
        self.take_back(owner, task, tag);
        if let Err(offence) = self.use_memory(owner) {
            self.cut(owner, offence);
        }
    }

    /// What was read for a command that was aborted meanwhile is not put.
    fn take_back(&mut self, owner: ConnectionId, task: TaskId, tag: u64) {
        let Some(peer) = self.peers.get_mut(&owner) else {
            return;
        };
        let member = peer.member();
        let held = member.and_then(|it| it.held.get_mut(&Name::Command(tag)));
        let held = held.filter(|it| it.task == Some(task));
        if let Some(memory) = held.and_then(|it| it.read.take()) {
            peer.memory -= memory.len();
            self.buffers.give(memory);
        }
    }

    /// One piece of work less of an initiator that is gone.
    fn lay(&mut self, owner: ConnectionId) {
        let Some(ghost) = self.ghosts.get_mut(&owner) else {
            return;
        };
        ghost.at_work -= 1;
        if ghost.at_work == 0 {
            self.ghosts.remove(&owner);
            self.admit();
        }
    }
}

/// Nothing was done.
const ABORTED: Failure = Failure::Check(Sense::new(Key::AbortedCommand, Code::NONE));
