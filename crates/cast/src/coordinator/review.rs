//! Which nodes hold others back, and what is done about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Coordinator, Life, Member};
use crate::limits::{RECOVERED_REVIEWS, SETTLED_REVIEWS, SLOW_REVIEWS};
use crate::message::{Fault, NodeId};
use crate::options::{Event, Slow};

/// What is wrong with a node's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// It lags.
    Slow(NodeId),
    /// Those that it sends to lag.
    Holds(NodeId),
    /// It gets too little from this one of its predecessors.
    Starved(NodeId, NodeId),
}

impl Coordinator {
    /// The head of a chain goes to its end. What holds back a whole chain may be its source or its head; at the end the
    /// head holds nobody back, and lags if it was the one.
    fn turn_head(&mut self) {
        let Some(head) = self.topology.successors(self.own.id, 0).first().copied() else {
            return;
        };
        self.turned = Some(head);
        self.move_to(head, false);
        self.name_successors();
    }

    /// Looks for nodes that hold others back.
    pub(super) fn review(&mut self, now: Duration) {
        let totals: Vec<u32> = (0..self.header.arity as usize)
            .map(|it| self.header.chunks_of(it))
            .collect();
        for member in self.members.values_mut() {
            member.complaints = 0;
            member.settled += 1;
            for (stripe, total) in totals.iter().enumerate() {
                if member.reviewed[stripe] < *total {
                    member.pace[stripe] =
                        member.verified[stripe].saturating_sub(member.reviewed[stripe]);
                }
                member.reviewed[stripe] = member.verified[stripe];
            }
        }
        if self.options.slow == Slow::Wait {
            return;
        }
        let found = self.find();
        if found.is_empty() && self.turns_head_at.is_some_and(|it| now >= it) {
            self.turns_head_at = None;
            self.turn_head();
        }
        for id in self.recovered() {
            self.move_to(id, false);
        }
        let before = std::mem::take(&mut self.findings);
        for finding in found {
            let (Finding::Slow(id) | Finding::Holds(id) | Finding::Starved(id, _)) = finding;
            let verified: u32 = self.members[&id].verified.iter().sum();
            let (times, first) = before
                .get(&finding)
                .map_or((1, verified), |(times, first)| (times + 1, *first));
            let silent = first == verified && self.header.arity == 1;
            // A slow one may get its next chunk a while later.
            let soon = silent && self.options.beat * 2 * times < self.options.stall;
            match times < SLOW_REVIEWS || soon {
                true => drop(self.findings.insert(finding, (times, first))),
                false if silent => self.act_on_silence(now, id),
                false => self.act_on(now, finding),
            }
        }
    }

    /// A node of a chain gets nothing at all. One that is slow would get something: it may be its predecessor, which goes to
    /// the end, where that does no harm. If the node gets nothing of another either, it is the one.
    fn act_on_silence(&mut self, now: Duration, id: NodeId) {
        let Some(above) = self.topology.predecessors(id).first().copied().flatten() else {
            return;
        };
        let member = self.members.get_mut(&id).expect("it was found");
        member.starved += 1;
        match member.starved > 1 || !self.members.contains_key(&above) {
            true => self.act_on(now, Finding::Slow(id)),
            false => self.move_to(above, false),
        }
    }

    fn act_on(&mut self, now: Duration, finding: Finding) {
        let id = match finding {
            Finding::Slow(id) => id,
            Finding::Holds(id) => {
                // That it receives as fast as others says nothing of what it sends.
                if let Some(member) = self.members.get_mut(&id) {
                    member.holds = true;
                }
                id
            }
            Finding::Starved(id, not) => {
                self.topology.avoid(id, not);
                self.epoch += 1;
                self.place(id, Vec::new());
                return;
            }
        };
        if self.turned == Some(id) {
            // It was slow: so may be the one that is the head now.
            self.turns_head_at = Some(now + self.options.beat * 8);
        }
        let above = self.topology.predecessors(id).first().copied().flatten();
        if let Some(above) = above.and_then(|it| self.members.get_mut(&it)) {
            above.lost.push(id);
        }
        self.events.push(Event::NodeSlow(id));
        match self.options.slow {
            Slow::Drop => self.fail(id, Fault::Slow),
            _ => {
                if let Some(member) = self.members.get_mut(&id) {
                    (member.set_apart, member.kept_up) = (member.set_apart + 1, 0);
                }
                self.move_to(id, true);
            }
        }
        // Those that seemed slow behind it were not.
        let lost = self
            .members
            .get_mut(&id)
            .map(|it| std::mem::take(&mut it.lost));
        for lost in lost.into_iter().flatten() {
            if self
                .members
                .get(&lost)
                .is_some_and(|it| it.apart && it.accused_by.is_empty())
            {
                self.move_to(lost, false);
            }
        }
    }

    /// Nodes that lag in most stripes, those for whom others hold their memory, and those behind whom most others lag.
    fn find(&self) -> BTreeSet<Finding> {
        let stripes = self.header.arity as usize;
        let mut found = BTreeSet::new();
        let mut behind: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (id, member) in &self.members {
            if member.apart || member.life != Life::Active || member.settled < SETTLED_REVIEWS {
                continue;
            }
            let lagging: Vec<NodeId> = (0..stripes)
                .filter_map(|it| self.lags(*id, member, it))
                .collect();
            let above = lagging.first().and_then(|it| self.members.get(it));
            if lagging.is_empty() {
                continue;
            }
            if let Some(holder) = member.held_by {
                found.insert(Finding::Slow(holder));
            } else if 2 * lagging.len() <= stripes {
                lagging
                    .iter()
                    .for_each(|it| behind.entry(*it).or_default().push(*id));
            } else if above.is_some_and(|it| self.lost_too_many(it, *id)) {
                found.insert(Finding::Holds(lagging[0]));
            } else {
                found.insert(Finding::Slow(*id));
            }
        }
        for (id, lagging) in behind {
            let successors: usize = (0..stripes)
                .map(|it| self.topology.successors(id, it).len())
                .sum();
            match lagging.len() >= 2 && 2 * lagging.len() > successors {
                true => drop(found.insert(Finding::Holds(id))),
                false => found.extend(lagging.iter().map(|it| Finding::Starved(*it, id))),
            }
        }
        let member = |it: &NodeId| self.members.get(it).is_some_and(|it| !it.apart);
        found.retain(|it| !matches!(it, Finding::Slow(id) | Finding::Holds(id) if !member(id)));
        found
    }

    /// Whether more nodes were slow behind this one than chance puts there, of the places that it has: it is the one.
    fn lost_too_many(&self, above: &Member, id: NodeId) -> bool {
        let others = above.lost.iter().filter(|it| **it != id).count();
        others > 0 && 2 * (others + 1) > self.header.arity as usize
    }

    /// Nodes apart that keep up with those that they receive from for so many reviews that they are not slow, or not any
    /// more. One that was found slow again has to show it for longer.
    fn recovered(&mut self) -> Vec<NodeId> {
        let kept_up: Vec<(NodeId, bool)> = self
            .members
            .iter()
            .filter(|(_, it)| {
                it.apart && !it.holds && it.life == Life::Active && it.accused_by.is_empty()
            })
            .map(|(id, member)| (*id, self.keeps_up(*id, member)))
            .collect();
        let mut recovered = Vec::new();
        for (id, keeps_up) in kept_up {
            let member = self.members.get_mut(&id).expect("it was just found");
            member.kept_up = if keeps_up { member.kept_up + 1 } else { 0 };
            if member.kept_up >= RECOVERED_REVIEWS << member.set_apart.min(8) {
                recovered.push(id);
            }
        }
        recovered
    }

    /// Whether a node has at least half the pace of its predecessor in each stripe that it lacks some of.
    fn keeps_up(&self, id: NodeId, member: &Member) -> bool {
        let predecessors = self.topology.predecessors(id);
        let mut some = false;
        for (stripe, above) in predecessors.iter().enumerate() {
            if member.verified[stripe] >= self.header.chunks_of(stripe) {
                continue;
            }
            let pace = match above {
                Some(above) if *above != self.own.id => {
                    self.members.get(above).map(|it| it.pace[stripe])
                }
                _ => self.heads().map(|it| it.1),
            };
            if pace.is_none_or(|it| 2 * member.pace[stripe] < it) || member.pace[stripe] == 0 {
                return false;
            }
            some = true;
        }
        some
    }

    /// The predecessor that a node lags behind in a stripe: far, and at less than half the pace.
    fn lags(&self, id: NodeId, member: &Member, stripe: usize) -> Option<NodeId> {
        let above = self
            .topology
            .predecessors(id)
            .get(stripe)
            .copied()
            .flatten()?;
        let (ahead, pace) = match above == self.own.id {
            // The root has all from the start: what counts is how far the others below it are.
            true => self.heads()?,
            false => {
                let above = self.members.get(&above)?;
                (above.verified[stripe], above.pace[stripe])
            }
        };
        let most = self.options.window / self.header.arity + 2;
        let lag = ahead.saturating_sub(member.verified[stripe]);
        (lag > most && 2 * member.pace[stripe] < pace).then_some(above)
    }

    /// How far, and how fast, the foremost node is that receives from the root.
    fn heads(&self) -> Option<(u32, u32)> {
        let stripes = 0..self.header.arity as usize;
        let heads = stripes.flat_map(|it| {
            self.topology
                .successors(self.own.id, it)
                .iter()
                .map(move |id| (it, id))
        });
        let found = heads.filter_map(|(it, id)| {
            let member = self.members.get(id)?;
            Some((member.verified[it], member.pace[it]))
        });
        found.max()
    }
}
