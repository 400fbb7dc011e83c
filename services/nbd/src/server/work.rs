//! Executes clients' requests at the disk.
//!
//! For a part of a block it reads the block, changes it and writes it back, and holds all other writes meanwhile.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use zerolane::Region;
use zerolane_disk::initiator::{Done, Error, Queue, Request as DiskRequest};

use super::pool::Pool;
use super::steps::{Step, steps};
use crate::limits::MAX_EXTENTS;
use crate::session::{Errno, Kind, Request};

/// Header and descriptor length of the answer to GET LBA STATUS, bytes.
const STATUS_HEAD: usize = 8;
const STATUS_DESCRIPTOR: usize = 16;

/// A client, by a number that no other has had.
pub(super) type ClientId = u64;

/// How a request ended, and its memory.
pub(super) enum Outcome {
    /// It is done; of what it read, the client's part begins so many bytes into the memory.
    Done(Region, usize),
    /// Lengths, and whether they have a place.
    Extents(Vec<(u32, bool)>),
    Failed(Errno),
}

/// A completed request.
pub(super) struct Over {
    pub(super) client: ClientId,
    pub(super) request: Request,
    pub(super) outcome: Outcome,
}

struct Job {
    client: ClientId,
    request: Request,
    steps: VecDeque<Step>,
    /// The payload of a write.
    payload: Region,
    /// The read blocks.
    blocks: Region,
    /// It writes, and alone.
    alone: bool,
}

/// Completed steps by job, reported by the thread that drives the queue.
type Ended = Arc<Mutex<Vec<(u64, Done)>>>;

pub(super) struct Work<'a> {
    queue: &'a Queue,
    jobs: HashMap<u64, Job>,
    next: u64,
    ended: Ended,
    /// Taken and given back, so that its room is kept.
    batch: Vec<(u64, Done)>,
    /// Jobs that write, and are begun.
    writers: usize,
    /// One of them writes alone.
    is_alone: bool,
    /// Jobs that write, and wait, in their order.
    held: VecDeque<u64>,
    /// Completed requests.
    over: Vec<Over>,
}

impl<'a> Work<'a> {
    pub(super) fn new(queue: &'a Queue) -> Work<'a> {
        Work {
            queue,
            jobs: HashMap::new(),
            next: 0,
            ended: Ended::default(),
            batch: Vec::new(),
            writers: 0,
            is_alone: false,
            held: VecDeque::new(),
            over: Vec::new(),
        }
    }

    /// Requests are in progress.
    pub(super) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Takes the completed requests.
    pub(super) fn take_over(&mut self, into: &mut Vec<Over>) {
        into.append(&mut self.over);
    }

    /// Begins `request`, whose payload is `payload`.
    pub(super) fn begin(
        &mut self,
        client: ClientId,
        request: Request,
        payload: Region,
        pool: &mut Pool,
    ) {
        if let Some(why) = request.refused {
            return self.end(client, request, Outcome::Failed(why));
        }
        let block = self.queue.unit().block_bytes.into();
        let steps = steps(&request, block, self.queue.unit().thin);
        if steps.is_empty() {
            return self.end(client, request, Outcome::Done(Region::empty(), 0));
        }
        let alone = steps.iter().any(|it| matches!(it, Step::Fetch { .. }));
        self.next += 1;
        let id = self.next;
        let job = Job {
            client,
            request,
            steps,
            payload,
            blocks: Region::empty(),
            alone,
        };
        self.jobs.insert(id, job);
        if !request.writes() {
            return self.step(id, pool);
        }
        self.held.push_back(id);
        self.release(pool);
    }

    /// Starts waiting requests that may start.
    fn release(&mut self, pool: &mut Pool) {
        while let Some(&id) = self.held.front() {
            let alone = self.jobs.get(&id).is_some_and(|it| it.alone);
            if self.is_alone || alone && self.writers > 0 {
                break;
            }
            self.held.pop_front();
            self.writers += 1;
            self.is_alone = alone;
            self.step(id, pool);
        }
    }

    /// Takes completed steps, and starts the steps that follow.
    pub(super) fn proceed(&mut self, pool: &mut Pool) {
        // No code under the lock leaves it inconsistent.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_empty() {
            return;
        }
        let mut batch = std::mem::replace(&mut *ended, std::mem::take(&mut self.batch));
        drop(ended);
        for (id, Done { result, memory }) in batch.drain(..) {
            self.on_step(id, result, memory, pool);
        }
        self.batch = batch;
    }

    fn on_step(&mut self, id: u64, result: Result<(), Error>, memory: Region, pool: &mut Pool) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return pool.give(memory);
        };
        let step = job.steps.pop_front();
        match step {
            Some(Step::Read { .. } | Step::Fetch { .. } | Step::Status { .. }) => {
                job.blocks = memory
            }
            _ => pool.give(memory),
        }
        match result {
            Err(error) => self.finish(id, Some(Errno::of(error.errno())), pool),
            Ok(()) if job.steps.is_empty() => self.finish(id, None, pool),
            Ok(()) => self.step(id, pool),
        }
    }

    /// Does the next step of a job.
    fn step(&mut self, id: u64, pool: &mut Pool) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(&step) = job.steps.front() else {
            return;
        };
        match job.asked(step, pool) {
            Ok(request) => {
                let ended = Arc::clone(&self.ended);
                self.queue.submit(request, move |done| {
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push((id, done));
                });
            }
            Err(_) => self.finish(id, Some(Errno::MEMORY), pool),
        }
    }

    fn finish(&mut self, id: u64, failed: Option<Errno>, pool: &mut Pool) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        let Job {
            client,
            request,
            payload,
            blocks,
            alone,
            ..
        } = job;
        pool.give(payload);
        let outcome = match (failed, request.kind) {
            (Some(why), _) => Outcome::Failed(why),
            (None, Kind::Status { one }) => self.extents(&request, &blocks, one),
            (None, _) => {
                let block = u64::from(self.queue.unit().block_bytes);
                Outcome::Done(blocks, (request.at % block) as usize)
            }
        };
        self.end(client, request, outcome);
        if request.writes() {
            self.writers -= 1;
            self.is_alone &= !alone;
            self.release(pool);
        }
    }

    fn end(&mut self, client: ClientId, request: Request, outcome: Outcome) {
        self.over.push(Over {
            client,
            request,
            outcome,
        });
    }

    fn extents(&self, request: &Request, answer: &[u8], one: bool) -> Outcome {
        let Ok(found) = self.queue.extents_in(answer, request.at) else {
            return Outcome::Failed(Errno::IO);
        };
        let mut left = request.bytes;
        let mut extents = Vec::new();
        for extent in found {
            let bytes = u32::try_from(extent.bytes).map_or(left, |it| it.min(left));
            if bytes == 0 || one && !extents.is_empty() {
                break;
            }
            left -= bytes;
            extents.push((bytes, extent.mapped));
        }
        Outcome::Extents(extents)
    }
}

impl Job {
    /// The request to the disk for `step`.
    fn asked(&mut self, step: Step, pool: &mut Pool) -> io::Result<DiskRequest> {
        Ok(match step {
            Step::Read { at, bytes } | Step::Fetch { at, bytes } => {
                let memory = pool.take(bytes)?;
                DiskRequest::Read { at, memory }
            }
            Step::Write { at, durable } => {
                let memory = std::mem::replace(&mut self.payload, Region::empty());
                DiskRequest::Write {
                    at,
                    memory,
                    durable,
                }
            }
            Step::Store {
                at,
                skip,
                bytes,
                durable,
            } => {
                let mut memory = std::mem::replace(&mut self.blocks, Region::empty());
                let changed = &mut memory[skip..][..bytes];
                match self.payload.is_empty() {
                    true => changed.fill(0),
                    false => changed.copy_from_slice(&self.payload),
                }
                DiskRequest::Write {
                    at,
                    memory,
                    durable,
                }
            }
            Step::Zero { at, bytes, unmap } => DiskRequest::Zero { at, bytes, unmap },
            Step::Flush => DiskRequest::Flush,
            Step::Status { at } => {
                let most = match self.request.kind {
                    Kind::Status { one: true } => 1,
                    _ => MAX_EXTENTS,
                };
                let memory = pool.take(STATUS_HEAD + STATUS_DESCRIPTOR * most)?;
                DiskRequest::Status { at, memory }
            }
        })
    }
}
