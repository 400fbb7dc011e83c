//! Finds the nodes that hold others back, and demotes or drops them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pace::{Above, Least, Own, Verdict, Watch};
use super::{Coordinator, Life, Member};
use crate::limits::{IDLE_PATIENCES, RECOVERED_REVIEWS, SETTLED_REVIEWS};
use crate::message::{Fault, NodeId};
use crate::options::{Event, Slow};

/// A problem with a node's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// It lags.
    Slow(NodeId),
    /// Its successors lag.
    Holds(NodeId),
    /// It receives too little from this predecessor.
    Starved(NodeId, NodeId),
}

impl Coordinator {
    /// Moves the head of a chain to its end. The source or the head may hold back a whole chain; at the end the head
    /// holds no node back, and lags if it was the cause.
    fn turn_head(&mut self) {
        let Some(head) = self.topology.successors(self.own.id, 0).first().copied() else {
            return;
        };
        self.turned = Some(head);
        self.move_to(head, false);
        self.name_successors();
    }

    /// Looks for nodes that hold others back. The last review was `since` ago.
    pub(super) fn review(&mut self, now: Duration, since: Duration) {
        for member in self.members.values_mut() {
            member.complaints = 0;
            member.settled += 1;
            let verified = member.verified.iter().sum();
            if verified > member.gained.1 {
                member.gained = (now, verified);
            }
            if verified > member.most {
                (member.most, member.idle) = (verified, Duration::ZERO);
            }
        }
        self.fail_idle(since);
        if self.options.slow == Slow::Wait {
            return;
        }
        self.watch(now);
        let found = self.find();
        // One that may be slow is not to become the head.
        let sure = found.is_empty() && !self.members.values().any(Member::is_warned);
        if sure && self.turns_head_at.is_some_and(|it| now >= it) {
            self.turns_head_at = None;
            self.turn_head();
        }
        self.try_demoted();
        // Before the node looks for others itself, and gets something of them; but a slow one gets a chunk in that time.
        let longest = (self.options.stall / 2).max(self.chunk_time(now) * 16);
        for finding in found {
            let (Finding::Slow(id) | Finding::Holds(id) | Finding::Starved(id, _)) = finding;
            // Its place has changed meanwhile: what was found was true of the one before.
            let Some(member) = self.members.get(&id).filter(|it| it.settled > 0) else {
                continue;
            };
            let since = now.saturating_sub(member.gained.0);
            // A slow one may get its next chunk a while later.
            let silent = self.header.arity == 1 && since >= self.options.beat * 2;
            match silent {
                true if since >= longest => self.act_on_silence(now, id),
                true => {}
                false => self.act_on(now, finding),
            }
        }
    }

    /// Members that are there and take nothing of what is there for them would hold the cast without end.
    /// What passed `since` the last time is held against those that are offered something, and are there.
    fn fail_idle(&mut self, since: Duration) {
        let first = |it: &Member| it.life == Life::Active && !it.demoted;
        let others_come_first = self.members.values().any(first);
        let mut failed = Vec::new();
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            let offered = self.is_offered(id, others_come_first);
            let member = self.members.get_mut(&id).expect("it is there");
            match offered {
                true => {
                    member.idle += since;
                    // All that is verified may wait for its disk, which gives up after its own patience for each.
                    let most = match member.gained.1 == self.header.chunks() {
                        true => self.options.patience * self.options.window,
                        false => self.options.patience * IDLE_PATIENCES,
                    };
                    failed.extend((member.idle > most).then_some(id));
                }
                false if member.life == Life::Active => member.idle = Duration::ZERO,
                false => {}
            }
        }
        for id in failed {
            self.fail(id, Fault::Idle);
        }
    }

    /// Whether a member lacks something that those above it have, where a demoted one may wait for others.
    fn is_offered(&self, id: NodeId, others_come_first: bool) -> bool {
        let member = &self.members[&id];
        let served = !member.demoted || member.in_turn || !others_come_first;
        if self.started.is_none() || member.life != Life::Active || !served {
            return false;
        }
        let above = self.topology.predecessors(id).iter().zip(0..);
        let mut offered = above.filter_map(|(above, stripe)| Some(((*above)?, stripe)));
        member.gained.1 == self.header.chunks()
            || offered.any(|(above, stripe)| {
                let has = match above == self.own.id {
                    true => self.header.chunks_of(stripe),
                    false => self.members.get(&above).map_or(0, |it| it.verified[stripe]),
                };
                has > member.verified[stripe]
            })
    }

    /// Compares each node with its predecessors.
    fn watch(&mut self, now: Duration) {
        let stripes = self.header.arity as usize;
        let totals: Vec<u32> = (0..stripes).map(|it| self.header.chunks_of(it)).collect();
        let chunk_time = self.chunk_time(now);
        let told = |member: &Member, stripe: usize| {
            let verified = member.verified[stripe];
            if verified < totals[stripe] {
                return (member.said, verified);
            }
            // It gains no more, and could pass on as fast as before: a node that is slow is slow still.
            let since = now.saturating_sub(member.gained.0).as_nanos();
            let more = since / chunk_time.as_nanos().max(1);
            (
                now,
                verified.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)),
            )
        };
        let heads = self.foremost().map(|(it, stripe)| told(it, stripe));
        let least = Least::new(self.options.beat * 4, self.header.arity);
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            let member = &self.members[&id];
            if member.life != Life::Active || member.settled < SETTLED_REVIEWS {
                continue;
            }
            let mut watches =
                std::mem::take(&mut self.members.get_mut(&id).expect("it is there").watches);
            let predecessors = self.topology.predecessors(id);
            let mut passed = Vec::with_capacity(stripes);
            for (stripe, watch) in watches.iter_mut().enumerate() {
                let member = &self.members[&id];
                let own = Own {
                    verified: member.verified[stripe],
                    said: member.said,
                };
                let above = predecessors.get(stripe).copied().flatten();
                let verified = match above {
                    // The root has all from the start: what counts is how far the others below it are.
                    Some(above) if above == self.own.id => heads,
                    Some(above) => self.members.get(&above).map(|it| told(it, stripe)),
                    None => None,
                };
                let open = own.verified < totals[stripe];
                let (Some(above), Some((said, verified)), true) = (above, verified, open) else {
                    watch.forget();
                    continue;
                };
                let above = Above {
                    id: above,
                    stripe,
                    verified,
                    said,
                    chunk_time,
                };
                passed.push(watch.see(now, above, own, least));
            }
            let member = self.members.get_mut(&id).expect("it is there");
            member.watches = watches;
            member.overall.see(now, &passed, self.options.beat * 4);
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
                // Its receive rate says nothing about its send rate.
                if let Some(member) = self.members.get_mut(&id) {
                    member.holds = true;
                }
                id
            }
            Finding::Starved(id, not) => {
                self.topology.avoid(id, not, &self.doubted);
                self.epoch += 1;
                self.place(id, Vec::new());
                return;
            }
        };
        if self.turned == Some(id) {
            // It was slow: so may be the one that is the head now.
            self.turns_head_at = Some(now + self.options.beat * 8);
        }
        for above in self.lags_behind(id) {
            if let Some(above) = self.members.get_mut(&above)
                && !above.lost.contains(&id)
            {
                above.lost.push(id);
            }
        }
        self.events.push(Event::NodeSlow(id));
        match self.options.slow {
            Slow::Drop => self.fail(id, Fault::Slow),
            _ => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.times_demoted += 1;
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
                .is_some_and(|it| it.demoted && it.accused_by.is_empty())
            {
                self.move_to(lost, false);
            }
        }
    }

    /// Nodes that lag in most stripes, those for whom others hold their memory, and those behind whom most others lag.
    fn find(&self) -> BTreeSet<Finding> {
        let stripes = self.header.arity as usize;
        let mut found = BTreeSet::new();
        let mut starved: Vec<(NodeId, Vec<NodeId>)> = Vec::new();
        let mut behind: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (id, member) in &self.members {
            let above = self.lags_behind(*id);
            let lags = member.keeps_up() == Verdict::Lags;
            if member.demoted || member.life != Life::Active || (above.is_empty() && !lags) {
                continue;
            }
            if let Some(holder) = member.held_by {
                found.insert(Finding::Slow(holder));
                continue;
            }
            if lags {
                let guilty = above.iter().find(|it| self.lost_too_many(**it, *id));
                found.insert(guilty.map_or(Finding::Slow(*id), |it| Finding::Holds(*it)));
                continue;
            }
            let verdicts = member.watches.iter().map(Watch::verdict);
            let decided = verdicts.filter(|it| *it != Verdict::Unknown).count();
            // The others may have lagged with it, and would have been compared a moment later.
            if 2 * decided > stripes && 2 * above.len() <= decided {
                for above in &above {
                    *behind.entry(*above).or_default() += 1;
                }
                starved.push((*id, above));
            }
        }
        behind.retain(|id, lagging| {
            let successors = (0..stripes).flat_map(|it| self.topology.successors(*id, it));
            let placed = |it: &&NodeId| self.members.get(it).is_some_and(|it| !it.demoted);
            *lagging >= 2 && 2 * *lagging > successors.filter(placed).count()
        });
        for (id, above) in starved {
            let others = above.into_iter().filter(|it| !behind.contains_key(it));
            found.extend(others.map(|it| Finding::Starved(id, it)));
        }
        found.extend(behind.into_keys().map(Finding::Holds));
        let member = |it: &NodeId| self.members.get(it).is_some_and(|it| !it.demoted);
        found.retain(|it| !matches!(it, Finding::Slow(id) | Finding::Holds(id) if !member(id)));
        found
    }

    /// By stripe in which it lags, the node above.
    fn lags_behind(&self, id: NodeId) -> Vec<NodeId> {
        let watches = self.members.get(&id).map_or(&[][..], |it| &it.watches);
        watches.iter().filter_map(Watch::lags).collect()
    }

    /// Whether another node of a chain was slow behind this one: it is the one. In trees a node that lags behind most of
    /// those above it is it itself.
    fn lost_too_many(&self, above: NodeId, id: NodeId) -> bool {
        let above = self.members.get(&above).filter(|_| self.header.arity == 1);
        above.is_some_and(|it| it.lost.iter().any(|it| *it != id))
    }

    /// Demoted nodes get what others leave, which says nothing of their pace. So each is served in turn now and then: if
    /// it keeps up then, it is not slow, or no longer. One that was found slow again waits longer.
    fn try_demoted(&mut self) {
        let (mut sound, mut changed) = (Vec::new(), Vec::new());
        for (id, member) in &mut self.members {
            let trusted = member.accused_by.is_empty() && !member.suspected;
            if !member.demoted || !trusted || member.life != Life::Active {
                continue;
            }
            member.waited += 1;
            let verdict = member.keeps_up();
            match member.in_turn {
                false if member.waited >= RECOVERED_REVIEWS << member.times_demoted.min(8) => {
                    member.in_turn = true;
                    member.forget_pace();
                    changed.push(*id);
                }
                true if verdict == Verdict::Lags => {
                    (member.in_turn, member.waited) = (false, 0);
                    member.times_demoted += 1;
                    changed.push(*id);
                }
                // What it receives says nothing of what it sends: it gets no successors again, but is served as others are.
                true if verdict == Verdict::KeepsUp && !member.holds => sound.push(*id),
                _ => {}
            }
        }
        for id in changed {
            self.place(id, Vec::new());
        }
        for id in sound {
            self.move_to(id, false);
        }
    }

    /// The time of the cast from one chunk of a stripe to the next, or the last such time while the foremost node
    /// lacked some.
    fn chunk_time(&self, now: Duration) -> Duration {
        let Some((head, stripe)) = self.foremost() else {
            return now.saturating_sub(self.started.unwrap_or(now));
        };
        let verified = head.verified[stripe];
        let until = match verified < self.header.chunks_of(stripe) {
            true => now,
            false => head.gained.0,
        };
        until.saturating_sub(self.started.unwrap_or(until)) / verified.max(1)
    }

    /// The foremost node among those that receive from the root, and its stripe.
    fn foremost(&self) -> Option<(&Member, usize)> {
        let stripes = 0..self.header.arity as usize;
        let heads = stripes.flat_map(|it| {
            let successors = self.topology.successors(self.own.id, it).iter();
            successors.map(move |id| (it, id))
        });
        let found = heads.filter_map(|(it, id)| Some((self.members.get(id)?, it)));
        found.max_by_key(|(member, it)| (member.verified[*it], member.said))
    }
}
