//! Leads the hosts, and records their progress until each has finished or failed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use zerolane_cast::plan::{self, Shape};
use zerolane_cast::{Event, Fault, NodeId};

use super::calls::Calls;
use super::{Cast, Outcome, Predicted, Progress};
use crate::content::Content;
use crate::drive::Drive;
use crate::error::Error;
use crate::invitation::in_words;
use crate::limits::FAREWELL;

/// How often the source reports progress, and checks for a stop.
const LOOK: Duration = Duration::from_millis(100);

/// Divisor: the model predicts after this part of the missing bytes has arrived.
const SEEN: u32 = 16;

/// A cast in progress.
pub(super) struct Leading {
    pub(super) cast: Cast,
    pub(super) drive: Drive,
    pub(super) calls: Calls,
    /// When all nodes were done or had failed, and since then no other came.
    pub(super) finished: Option<Instant>,
    /// When the last host had it in its place, or had failed.
    pub(super) settled: Option<Instant>,
    /// When the nodes were there.
    pub(super) started: Option<Instant>,
    /// Chunks that each node had when it joined, from an earlier attempt, and those that need no transfer.
    pub(super) had: HashMap<NodeId, u32>,
    pub(super) predicted: Option<Predicted>,
    pub(super) chunks: u32,
    /// Chunks of zeros, which are never sent.
    pub(super) zeros: u32,
    pub(super) racks: usize,
    pub(super) arity: u32,
}

impl Leading {
    pub(super) fn run(
        &mut self,
        content: &Content,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(), Error> {
        let mut looked = Instant::now();
        let mut notes = Vec::new();
        while !self.is_over() {
            self.calls.begin(&mut self.drive.worker);
            self.drive.turn(LOOK)?;
            while let Some(event) = self.drive.others.pop_front() {
                self.calls.take(&mut self.drive.worker, event);
            }
            while let Some((node, word)) = self.drive.words.pop_first() {
                self.calls.hear_node(&mut self.drive.worker, node, word);
            }
            let expected = self.calls.expected();
            if self.started.is_none() && self.calls.take_change() {
                self.drive.node.expect(self.drive.now(), expected);
            }
            while let Some(event) = self.drive.events.pop_front() {
                self.note(event, &mut notes);
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            if stop() {
                return Err(Error::Stopped);
            }
            if content.has_changed() {
                return Err(Error::Changed(content.name()));
            }
            self.predict();
            let hosts = self.drive.node.progress();
            let hosts = hosts.filter_map(|(id, chunks)| Some((self.calls.name(id)?, chunks)));
            let (done, failed) = self.calls.count();
            let progress = Progress {
                chunks: self.chunks,
                hosts: hosts.collect(),
                done,
                failed,
                notes: std::mem::take(&mut notes),
            };
            watch(&progress);
        }
        Ok(())
    }

    fn note(&mut self, event: Event, notes: &mut Vec<String>) {
        let name = |calls: &Calls, id: NodeId| {
            calls.name(id).map_or_else(|| id.to_string(), str::to_owned)
        };
        match event {
            Event::Joined(id) => {
                self.finished = None;
                let mut progress = self.drive.node.progress();
                let has = progress.find(|it| it.0 == id).map_or(0, |it| it.1);
                // Zeros do not come.
                let had = has.saturating_add(self.zeros);
                self.had.insert(id, had.min(self.chunks));
                self.calls.joined(id);
                let waits = self.calls.joins() < self.calls.expected();
                if !waits || self.drive.begun_for(self.cast.gather) {
                    self.started.get_or_insert_with(Instant::now);
                }
            }
            Event::NodeDone(id) => {
                let from = self.drive.node.predecessors(id).iter();
                let from = from.map(|it| self.calls.name((*it)?).map(str::to_owned));
                let from = from.collect();
                self.calls.done(id, from);
                // A short cast is over before the next look.
                self.predict();
            }
            Event::NodeFailed(id, Fault::Gone) => {
                notes.push(format!("{}: silent, or gone", name(&self.calls, id)));
                self.calls.lost(id);
            }
            Event::NodeFailed(id, fault) => {
                notes.push(format!("{}: excluded: it {fault}", name(&self.calls, id)));
                self.calls.failed(id, format!("excluded: it {fault}"));
            }
            Event::NodeSlow(id) => notes.push(format!("{}: slow", name(&self.calls, id))),
            Event::Liar { peer, by, fault } if by == self.drive.node.id() => {
                notes.push(format!("{}: it {fault}", name(&self.calls, peer)));
                self.calls.failed(peer, format!("excluded: it {fault}"));
            }
            Event::Liar { peer, by, fault } => {
                let (peer, by) = (name(&self.calls, peer), name(&self.calls, by));
                notes.push(format!("{peer}: it {fault}, says {by}"));
                self.calls.accused(&peer, &format!("it {fault}, says {by}"));
            }
            Event::Finished => self.finished = Some(Instant::now()),
            _ => {}
        }
    }

    /// Predicts the whole from a host's rate, once the host has received part of its missing bytes, or all.
    fn predict(&mut self) {
        if self.started.is_none()
            && self.drive.begun_for(self.cast.gather)
            && self.calls.joins() > 0
        {
            self.started = Some(Instant::now());
        }
        let (Some(started), None) = (self.started, self.predicted) else {
            return;
        };
        let Some(header) = self.drive.manifest().map(|it| it.header()) else {
            return;
        };
        let had = |id| self.had.get(&id).copied().unwrap_or(0);
        let gained = self.drive.node.progress();
        let gained = gained.map(|(id, chunks)| chunks.saturating_sub(had(id)));
        let foremost = gained.max().unwrap_or(0);
        let lacked = self.had.values().map(|it| self.chunks - it).max();
        let lacked = lacked.unwrap_or(0);
        if foremost == 0 || foremost * SEEN < lacked {
            return;
        }
        let seconds = started.elapsed().as_secs_f64().max(1e-3);
        let chunk_bytes = u64::from(header.chunk_bytes);
        let bytes = |chunks| (u64::from(chunks) * chunk_bytes).min(header.bytes);
        let (nodes, link) = (self.calls.joins(), bytes(foremost) as f64 / seconds);
        let cast = plan::Cast::over_ports(nodes, bytes(lacked), header.chunk_bytes, link);
        let shape = if header.arity == 1 {
            Shape::Chain
        } else {
            Shape::Tree(header.arity)
        };
        let estimate = plan::estimate(&cast, shape);
        self.predicted = Some(Predicted {
            time: Duration::from_secs_f64(estimate.seconds),
            from: f64::from(foremost) / f64::from(lacked),
        });
    }

    fn is_over(&mut self) -> bool {
        if self.calls.all_settled() {
            // The nodes hear that it is over.
            let since = *self.settled.get_or_insert_with(Instant::now);
            let told = self.finished.is_some() || self.calls.joins() == 0;
            return told || since.elapsed() > self.cast.silence;
        }
        match self.finished {
            Some(at) if self.calls.has_unfinished() || self.calls.is_talking() => {
                let at = self.calls.last_work().map_or(at, |it| it.max(at));
                at.elapsed() > FAREWELL
            }
            Some(at) => at.elapsed() > self.cast.linger,
            // None came.
            None => {
                self.calls.joins() == 0
                    && self.drive.begun_for(self.cast.gather)
                    && !self.calls.is_talking()
                    && !self.calls.is_first_call()
            }
        }
    }

    /// The outcome of all hosts. `why` is the error of the cast, for hosts that did not finish.
    pub(super) fn outcome(mut self, content: &Content, why: Option<&Error>) -> Outcome {
        if let Some(why) = why {
            self.calls.end_all(&in_words(why));
        }
        let started = self.started.unwrap_or_else(Instant::now);
        let hosts = self.calls.outcomes(started);
        let took = hosts
            .iter()
            .filter(|it| it.result.is_ok())
            .map(|it| it.after)
            .max();
        Outcome {
            took: took.unwrap_or_default(),
            predicted: self.predicted,
            arity: self.arity,
            bytes: content.bytes(),
            sent: self.drive.sent,
            changed: content.has_changed() || matches!(why, Some(Error::Changed(_))),
            racks: self.racks,
            hosts,
        }
    }
}
