//! Executes the steps that the engine returns.

use std::collections::HashMap;

use zerolane::Region;
use zerolane::request::{Get, Put};
use zerolane::worker::ConnectionId;
use zerolane_block::sense::{Code, Failure, Key, Sense};
use zerolane_block::sst::Outcome;
use zerolane_block::{Initiator, NexusId, Payload, Response, Status, Step, Target, TaskId, Work};

use super::Server;
use super::memory::{Loan, Waiting};
use super::offence::{Offence, not_posted};
use super::peer::{Flight, Name, Peer};
use super::pool::{Done, Job};
use crate::limits::AT_ONCE_BYTES;
use crate::message::Data;

impl Server {
    /// Executes the engine's steps until there are none left.
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

    /// Puts the data of a command, then its status.
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
                let share = self.shares.get(&peer.initiator)?;
                let loan = share.lend(data.len());
                Some((Region::from_vec(data), loan))
            })
        } else {
            if let Some((read, _)) = read {
                self.buffers.give(read);
            }
            None
        };
        let bytes = data.as_ref().map_or(0, |(it, _)| it.len() as u64);
        if let Some((data, _loan)) = data {
            let Data::At(place) = held.data else {
                return Err(Offence::Memory);
            };
            let context = peer.depart(Flight::Put { _loan });
            let Some(connection) = self.worker.connection(id) else {
                return Ok(());
            };
            // The initiator waits only for the status after it, and no request waits for the memory.
            let posted = connection.post(
                Put::new(&place.region, place.offset, data)
                    .awaited(false)
                    .context(context),
            );
            posted.map(drop).or_else(|it| not_posted(&it.into()))?;
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
        let Some(_loan) = self.lend(nexus, bytes) else {
            return Ok(());
        };
        self.get(nexus, tag, memory, Flight::Fetch { task, _loan })
    }

    fn lend(&self, nexus: NexusId, bytes: usize) -> Option<Loan> {
        let peer = self.peers.get(self.nexuses.get(&nexus)?)?;
        Some(self.shares.get(&peer.initiator)?.lend(bytes))
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
        let context = peer.depart(flight);
        let Some(Data::At(place)) = data else {
            return Err(Offence::Memory);
        };
        let Some(connection) = self.worker.connection(id) else {
            return Ok(());
        };
        let posted =
            connection.post(Get::new(&place.region, place.offset, memory).context(context));
        posted.map(drop).or_else(|it| not_posted(&it.into()))
    }

    /// Starts work, or queues it until memory is free.
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
        let initiator = peer.initiator.clone();
        let Some(share) = self.shares.get_mut(&initiator) else {
            self.engine.done(task, Err(ABORTED));
            return Ok(());
        };
        // No command has more than TARGET_TRANSFER_BYTES.
        let bytes = match work.payload() {
            Payload::None => {
                let memory = (Region::empty(), share.lend(0));
                self.set_to_work(id, task, tag, work, memory);
                return Ok(());
            }
            Payload::In(bytes) | Payload::Out(bytes) => bytes as usize,
        };
        share.waiting.push_back(Waiting {
            owner: id,
            task,
            tag,
            work,
            bytes,
        });
        self.use_memory(&initiator);
        let share = self.shares.get(&initiator);
        if share.is_some_and(|it| !it.waiting.is_empty())
            && !self.waiting_for_memory.contains(&initiator)
        {
            self.waiting_for_memory.push(initiator);
        }
        Ok(())
    }

    /// Starts work that waited for memory which others have since released. False if none could start.
    pub(super) fn start_waiting(&mut self) -> bool {
        let mut started = false;
        for initiator in std::mem::take(&mut self.waiting_for_memory) {
            started |= self.use_memory(&initiator);
            let share = self.shares.get(&initiator);
            if share.is_some_and(|it| !it.waiting.is_empty()) {
                self.waiting_for_memory.push(initiator);
            }
        }
        started
    }

    /// Starts waiting work as far as memory allows; false if none could start.
    fn use_memory(&mut self, initiator: &Initiator) -> bool {
        let mut used = false;
        while let Some(share) = self.shares.get_mut(initiator) {
            let Some(first) = share.waiting.front() else {
                break;
            };
            // Another command may use its slot by now.
            let is_wanted = wants(&mut self.peers, &self.engine, first);
            if is_wanted && !share.has_room(first.bytes, self.initiator_bytes) {
                break;
            }
            let Some(first) = share.waiting.pop_front() else {
                break;
            };
            used = true;
            if !is_wanted {
                self.engine.done(first.task, Err(ABORTED));
                continue;
            }
            let loan = share.lend(first.bytes);
            let owner = first.owner;
            if let Err(offence) = self.supply(first, loan) {
                self.cut(owner, offence);
            }
        }
        used
    }

    /// Begins work that there is memory for.
    fn supply(&mut self, waiting: Waiting, loan: Loan) -> Result<(), Offence> {
        let Waiting {
            owner,
            task,
            tag,
            work,
            bytes,
        } = waiting;
        let member = self.peers.get_mut(&owner).and_then(|it| it.member());
        let nexus = member.map(|it| it.nexus);
        let (Ok(mut memory), Some(nexus)) = (self.buffers.take(bytes), nexus) else {
            // The system has no memory. The initiator gets an error, and may try again.
            self.engine.done(task, Err(ABORTED));
            return Ok(());
        };
        let is_in = matches!(work.payload(), Payload::In(_));
        if is_in || self.copy_capsule(nexus, tag, &mut memory) {
            self.set_to_work(owner, task, tag, work, (memory, loan));
            return Ok(());
        }
        let flight = Flight::Get {
            task,
            tag,
            work,
            loan,
        };
        self.get(nexus, tag, memory, flight)
    }

    /// Gives work to the threads.
    pub(super) fn set_to_work(
        &mut self,
        id: ConnectionId,
        task: TaskId,
        tag: u64,
        work: Work,
        (mut memory, loan): (Region, Loan),
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
                loan,
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
            loan,
        });
    }

    /// Takes the results of the threads, and of work done at once. The latter are not taken immediately, because one
    /// such command may start the next.
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
            loan,
            outcome,
        } = done;
        if outcome.is_err() {
            // Before an initiator hears of it.
            self.news.extend(self.losses.look());
        }
        let Some(peer) = self.peers.get_mut(&owner) else {
            self.buffers.give(memory);
            self.engine.done(task, outcome);
            return self.finish_draining_job(owner);
        };
        peer.at_work -= 1;
        let member = peer.member();
        let held = member.and_then(|it| it.held.get_mut(&Name::Command(tag)));
        match held.filter(|it| is_in && it.task == Some(task)) {
            Some(held) => held.read = Some((memory, loan)),
            None => self.buffers.give(memory),
        }
        self.engine.done(task, outcome);
        self.take_steps();
        self.take_back(owner, task, tag);
    }

    /// Drops the data read for a command that was aborted meanwhile.
    fn take_back(&mut self, owner: ConnectionId, task: TaskId, tag: u64) {
        let Some(peer) = self.peers.get_mut(&owner) else {
            return;
        };
        let member = peer.member();
        let held = member.and_then(|it| it.held.get_mut(&Name::Command(tag)));
        let held = held.filter(|it| it.task == Some(task));
        if let Some((memory, _)) = held.and_then(|it| it.read.take()) {
            self.buffers.give(memory);
        }
    }

    /// One piece of work less of an initiator that is gone.
    fn finish_draining_job(&mut self, owner: ConnectionId) {
        let Some(old) = self.draining.get_mut(&owner) else {
            return;
        };
        old.at_work -= 1;
        if old.at_work == 0 {
            self.draining.remove(&owner);
            self.admit();
        }
    }
}

/// The command that waits is there, and was not aborted.
fn wants(peers: &mut HashMap<ConnectionId, Peer>, engine: &Target, waiting: &Waiting) -> bool {
    let member = peers.get_mut(&waiting.owner).and_then(|it| it.member());
    member.is_some_and(|member| {
        let held = member.held.get(&Name::Command(waiting.tag));
        let is_its = held.is_some_and(|it| it.task == Some(waiting.task));
        is_its && engine.has_command(member.nexus, waiting.tag)
    })
}

/// Nothing was done.
pub(super) const ABORTED: Failure = Failure::Check(Sense::new(Key::AbortedCommand, Code::NONE));
