//! Builds the trees along which content spreads: one for each stripe, over all nodes.
//!
//! With an arity of k, the content is cut chunk by chunk into k stripes, and each stripe has a tree. A node has up to k
//! successors in the stripe of its group and is a leaf in the others, so it sends as much as it receives: the content once.
//! With one stripe this is a chain. Several trees are SplitStream's (Castro et al., SOSP 2003).
//!
//! Each stripe enters a rack once, because uplinks are scarce: among racks the trees are the same as among nodes. A rack
//! passes the stripe of its group to k other racks and is a leaf in the rest, so its uplink carries the content once in each
//! direction. Within a rack one node receives the stripe from outside, and the nodes of its group spread it.
//!
//! A departing node leaves at most as many successors without a predecessor as its own predecessors then have room for: the
//! load stays even without moving any other node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::NodeId;

/// Nodes of which the one nearest to the root is taken.
const COMPARED: usize = 8;

/// Who receives from whom.
#[derive(Debug)]
pub(crate) struct Topology {
    arity: usize,
    root: NodeId,
    spots: BTreeMap<NodeId, Spot>,
    /// Nodes that may have successors, by their number of successors. Demoted nodes do not count, because they come
    /// last.
    by_load: Loads,
    /// The same, by how many they have of both sorts.
    by_all: Loads,
    /// By rack, how many nodes of others its nodes send to; demoted ones do not count.
    exits: BTreeMap<u32, usize>,
}

/// Nodes by how many successors they have.
#[derive(Debug, Default)]
struct Loads {
    all: BTreeSet<(usize, NodeId)>,
    racks: BTreeMap<u32, BTreeSet<(usize, NodeId)>>,
}

impl Loads {
    fn insert(&mut self, rack: u32, load: usize, id: NodeId) {
        self.all.insert((load, id));
        self.racks.entry(rack).or_default().insert((load, id));
    }

    /// Whether it was there.
    fn remove(&mut self, rack: u32, load: usize, id: NodeId) -> bool {
        if let Some(of_rack) = self.racks.get_mut(&rack) {
            of_rack.remove(&(load, id));
            if of_rack.is_empty() {
                self.racks.remove(&rack);
            }
        }
        self.all.remove(&(load, id))
    }

    fn of_rack(&self, rack: u32) -> impl Iterator<Item = (usize, NodeId)> + '_ {
        self.racks.get(&rack).into_iter().flatten().copied()
    }
}

#[derive(Debug)]
struct Spot {
    rack: u32,
    predecessors: Vec<Option<NodeId>>,
    successors: Vec<Vec<NodeId>>,
    /// Without successors.
    demoted: bool,
    /// How many of the successors are not demoted.
    load: usize,
}

impl Spot {
    fn new(arity: usize, rack: u32, demoted: bool) -> Spot {
        Spot {
            rack,
            predecessors: vec![None; arity],
            successors: vec![Vec::new(); arity],
            demoted,
            load: 0,
        }
    }

    fn all(&self) -> usize {
        self.successors.iter().map(Vec::len).sum()
    }
}

impl Topology {
    /// The root alone.
    pub(crate) fn new(arity: usize, root: NodeId, rack: u32) -> Topology {
        let mut topology = Topology {
            arity,
            root,
            spots: BTreeMap::from([(root, Spot::new(arity, rack, false))]),
            by_load: Loads::default(),
            by_all: Loads::default(),
            exits: BTreeMap::new(),
        };
        topology.may_have_successors(root);
        topology
    }

    fn may_have_successors(&mut self, id: NodeId) {
        let spot = &self.spots[&id];
        self.by_load.insert(spot.rack, spot.load, id);
        self.by_all.insert(spot.rack, spot.all(), id);
    }

    /// Adds the first nodes, in the order in which they shall stand: the first are nearest to the root, or to the node by
    /// which their rack is entered. Those of a rack stand together.
    pub(crate) fn build(&mut self, nodes: &[(NodeId, u32)]) {
        for (id, rack) in nodes {
            self.spots.insert(*id, Spot::new(self.arity, *rack, false));
            self.may_have_successors(*id);
        }
        let racks: Vec<Vec<NodeId>> = nodes
            .chunk_by(|a, b| a.1 == b.1)
            .map(|it| it.iter().map(|it| it.0).collect())
            .collect();
        let mut left_over = Vec::new();
        for stripe in 0..self.arity {
            self.build_stripe(stripe, &racks, &mut left_over);
        }
        // The nodes of a rack have places for all of it and for the racks below, but of some stripes in other groups' nodes.
        let waiting = left_over.into_iter().map(|(stripe, id)| (stripe, id, true));
        self.place_all(waiting.collect(), &BTreeSet::new(), &mut Vec::new());
    }

    fn build_stripe(
        &mut self,
        stripe: usize,
        racks: &[Vec<NodeId>],
        over: &mut Vec<(usize, NodeId)>,
    ) {
        let of_root = self.spots[&self.root].rack;
        let near = racks.iter().find(|it| self.spots[&it[0]].rack == of_root);
        let far: Vec<&Vec<NodeId>> = racks
            .iter()
            .filter(|it| self.spots[&it[0]].rack != of_root)
            .collect();
        let above = racks_above(far.len(), self.arity, stripe);
        // By rack, that of the root last: the nodes that feed the racks below it, in the order of these.
        let mut feeds: Vec<VecDeque<NodeId>> = vec![VecDeque::new(); far.len() + 1];
        let below = |rack: usize| above.iter().filter(|it| it.1 == rack).count();
        feeds[far.len()] = match near {
            Some(nodes) => self.build_rack(stripe, nodes, self.root, below(far.len()), over),
            None => VecDeque::from([self.root]),
        };
        for (rack, from) in &above {
            let entry = feeds[*from].pop_front().unwrap_or(self.root);
            feeds[*rack] = self.build_rack(stripe, far[*rack], entry, below(*rack), over);
        }
    }

    /// Links the nodes of a rack below the one by which the stripe enters it; the nodes that feed as many racks as are below.
    fn build_rack(
        &mut self,
        stripe: usize,
        nodes: &[NodeId],
        entry: NodeId,
        below: usize,
        over: &mut Vec<(usize, NodeId)>,
    ) -> VecDeque<NodeId> {
        // A rack of few has a node in several groups.
        let only = stripe % nodes.len();
        let in_group = |it: usize| match nodes.len() >= self.arity {
            true => it % self.arity == stripe,
            false => it == only,
        };
        let (inner, leaves): (Vec<usize>, Vec<usize>) =
            (0..nodes.len()).partition(|it| in_group(*it));
        let mut room = Room::default();
        let mut feeds = VecDeque::new();
        for index in inner {
            let predecessor = room.take().unwrap_or(entry);
            self.link(stripe, predecessor, nodes[index]);
            room.add(nodes[index], self.arity);
            // Near the entry, so that the racks below wait little; but the end of a chain is its last node.
            if self.arity > 1 && feeds.len() < below {
                feeds.extend(room.take());
            }
        }
        while feeds.len() < below {
            feeds.push_back(room.take().unwrap_or(nodes[only]));
        }
        for index in leaves {
            match room.take() {
                Some(predecessor) => self.link(stripe, predecessor, nodes[index]),
                None => over.push((stripe, nodes[index])),
            }
        }
        feeds
    }

    /// Adds a node that came late, below none of `not`; a demoted one gets no successors. The nodes that have another
    /// predecessor now.
    pub(crate) fn attach(
        &mut self,
        id: NodeId,
        rack: u32,
        demoted: bool,
        not: &BTreeSet<NodeId>,
    ) -> Vec<NodeId> {
        let mut changed = Vec::new();
        if self.spots.contains_key(&id) {
            return changed;
        }
        self.spots.insert(id, Spot::new(self.arity, rack, demoted));
        if !demoted {
            self.may_have_successors(id);
        }
        let waiting = (0..self.arity).map(|stripe| (stripe, id, true));
        self.place_all(waiting.collect(), not, &mut changed);
        changed.retain(|it| *it != id);
        changed
    }

    /// A node of the rack of `id` that sends this stripe to one of another rack, and that one.
    fn exit(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<(NodeId, NodeId)> {
        let rack = self.spots[&id].rack;
        let near = self.by_load.of_rack(rack).map(|it| it.1);
        let allowed = near.filter(|it| *it != id && *it != self.root && !not.contains(it));
        let nearby = allowed.take(4 * COMPARED);
        let mut fed = nearby.filter(|it| self.depth(stripe, *it, id).is_some());
        fed.find_map(|above| {
            let mut below = self.spots[&above].successors[stripe].iter();
            let far = below.find(|it| self.spots[it].rack != rack && !self.spots[it].demoted);
            far.map(|it| (above, *it))
        })
    }

    /// Takes a node out; the nodes that have another predecessor now.
    pub(crate) fn remove(&mut self, id: NodeId) -> Vec<NodeId> {
        if id == self.root || !self.spots.contains_key(&id) {
            return Vec::new();
        }
        let freed = self.spots[&id].predecessors.clone();
        for stripe in 0..self.arity {
            self.unlink(stripe, id);
        }
        let spot = self.spots.remove(&id).expect("it is there");
        self.by_load.remove(spot.rack, spot.load, id);
        self.by_all.remove(spot.rack, spot.all(), id);
        for (stripe, orphans) in spot.successors.iter().enumerate() {
            for orphan in orphans {
                self.spot(*orphan).predecessors[stripe] = None;
                self.count_exit(spot.rack, *orphan, false);
            }
        }
        let mut changed = Vec::new();
        let mut waiting = VecDeque::new();
        for (stripe, mut orphans) in spot.successors.into_iter().enumerate() {
            // One of its own rack takes its place; the rest of the rack is fed from there.
            orphans.sort_by_key(|it| self.spots[it].rack != spot.rack);
            for orphan in orphans {
                match freed[stripe].filter(|it| self.has_room(*it)) {
                    Some(near) => self.link(stripe, near, orphan),
                    None => waiting.push_back((stripe, orphan, true)),
                }
                changed.push(orphan);
            }
        }
        self.place_all(waiting, &BTreeSet::new(), &mut changed);
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Gives predecessors to nodes that have none in a stripe; the third says whether another may make room for it.
    ///
    /// What receives through one of them can be above another only once that one is linked, so those for which there is room
    /// are linked first. If room is left only below the others, or in other racks, one of them takes the place of a leaf, which
    /// goes there.
    fn place_all(
        &mut self,
        mut waiting: VecDeque<(usize, NodeId, bool)>,
        not: &BTreeSet<NodeId>,
        changed: &mut Vec<NodeId>,
    ) {
        let mut tried = 0;
        while let Some((stripe, id, displaces)) = waiting.pop_front() {
            let demoted = self.spots[&id].demoted;
            let near = (!demoted).then(|| self.room_near(stripe, id, not));
            if let Some(found) = near.flatten() {
                self.link(stripe, found, id);
                tried = 0;
            } else if tried < waiting.len() {
                waiting.push_back((stripe, id, displaces));
                tried += 1;
            } else if let Some(leaf) = (displaces && !demoted)
                .then(|| self.leaf(stripe, id, not))
                .flatten()
            {
                let above = self.spots[&leaf].predecessors[stripe].unwrap_or(self.root);
                self.unlink(stripe, leaf);
                self.link(stripe, above, id);
                changed.push(leaf);
                waiting.push_back((stripe, leaf, false));
                tried = 0;
            } else if let Some((above, below)) = (displaces && self.has_room(id))
                .then(|| self.exit(stripe, id, not))
                .flatten()
            {
                // Its rack already forwards the stripe to another rack. Continue through that one, because an uplink
                // carries a stripe once.
                self.unlink(stripe, below);
                self.link(stripe, above, id);
                self.link(stripe, id, below);
                changed.push(below);
                tried = 0;
            } else {
                let found = self.choose(stripe, id, not);
                self.link(stripe, found.unwrap_or(self.root), id);
                tried = 0;
            }
        }
    }

    /// A node that sends this stripe to none, and receives it from one of the rack of `id`, not through `id`: one of those
    /// that are near the root.
    fn leaf(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        let rack = self.spots[&id].rack;
        let leaves = self.by_load.of_rack(rack).take(4 * COMPARED).filter(|it| {
            let spot = &self.spots[&it.1];
            let above = spot.predecessors[stripe].and_then(|it| self.spots.get(&it));
            it.1 != id
                && spot.successors[stripe].is_empty()
                && above.is_some_and(|it| it.rack == rack)
                && spot.predecessors[stripe].is_some_and(|it| !not.contains(&it))
        });
        self.nearest(stripe, id, leaves.map(|it| it.1))
    }

    /// Of the first of these that receive a stripe from the root, not through `id`, the one with the fewest nodes above it.
    fn nearest(
        &self,
        stripe: usize,
        id: NodeId,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Option<NodeId> {
        let found = nodes.filter_map(|it| Some((self.depth(stripe, it, id)?, it)));
        found.take(COMPARED).min().map(|it| it.1)
    }

    /// A node of the same rack that has room for another.
    fn room_near(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        let rack = self.spots[&id].rack;
        self.room_among(stripe, id, not, self.by_load.of_rack(rack))
    }

    /// A node with room for `id`: in its own rack if possible, otherwise in the rack that sends least to others.
    fn find_room(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        let near = self.room_near(stripe, id, not);
        near.or_else(|| self.room_far(stripe, id, not))
    }

    fn room_far(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        let own = self.spots[&id].rack;
        let racks = self.by_load.racks.iter();
        let with_room =
            racks.filter(|(_, loads)| loads.first().is_some_and(|it| it.0 < self.arity));
        let mut racks: Vec<(usize, u32)> = with_room
            .map(|(rack, _)| (self.exits.get(rack).copied().unwrap_or(0), *rack))
            .filter(|(_, rack)| *rack != own)
            .collect();
        racks.sort_unstable();
        let mut racks = racks.into_iter();
        racks.find_map(|(_, rack)| self.room_among(stripe, id, not, self.by_load.of_rack(rack)))
    }

    fn room_among(
        &self,
        stripe: usize,
        id: NodeId,
        not: &BTreeSet<NodeId>,
        nodes: impl Iterator<Item = (usize, NodeId)>,
    ) -> Option<NodeId> {
        let with_room = nodes.take_while(|it| it.0 < self.arity);
        let allowed = with_room.filter(|it| it.1 != id && !not.contains(&it.1));
        self.nearest(stripe, id, allowed.map(|it| it.1))
    }

    /// Where a node has more successors than its share and another has fewer, one goes from the one to the other: the nodes
    /// that have another predecessor now.
    pub(crate) fn even_out(&mut self) -> Vec<NodeId> {
        let mut changed = Vec::new();
        for _ in 0..2 * self.arity {
            let most = self.by_load.all.last().filter(|it| it.0 > self.arity);
            let Some((_, from)) = most.copied() else {
                break;
            };
            let spot = &self.spots[&from];
            let of_stripe =
                |stripe: usize| spot.successors[stripe].iter().map(move |it| (stripe, *it));
            let mut successors: Vec<(usize, NodeId)> = (0..self.arity)
                .flat_map(of_stripe)
                .filter(|it| !self.spots[&it.1].demoted)
                .collect();
            // Those that pass it on to many would take them along.
            successors.sort_by_key(|(stripe, it)| self.spots[it].successors[*stripe].len());
            let not = BTreeSet::from([from]);
            let found = successors.into_iter().find_map(|(stripe, id)| {
                let to = self.find_room(stripe, id, &not)?;
                Some((stripe, id, to))
            });
            let Some((stripe, id, to)) = found else {
                break;
            };
            self.unlink(stripe, id);
            self.link(stripe, to, id);
            changed.push(id);
        }
        changed
    }

    /// Where a stripe enters a rack at several nodes and it has room for one of them, that one receives from its own rack: the
    /// nodes that have another predecessor now. A node that found no room when a predecessor went is brought back so.
    pub(crate) fn gather(&mut self) -> Vec<NodeId> {
        let mut changed = Vec::new();
        if !self.has_racks() {
            return changed;
        }
        let mut entries: BTreeMap<(u32, usize), Vec<NodeId>> = BTreeMap::new();
        for (id, spot) in self.spots.iter().filter(|it| !it.1.demoted) {
            for (stripe, above) in spot.predecessors.iter().enumerate() {
                if above.is_some_and(|it| self.spots[&it].rack != spot.rack) {
                    entries.entry((spot.rack, stripe)).or_default().push(*id);
                }
            }
        }
        let of_root = self.spots[&self.root].rack;
        for ((rack, stripe), mut nodes) in entries {
            // Those that pass it on to many would take them along.
            nodes.sort_by_key(|it| self.spots[it].successors[stripe].len());
            nodes.truncate(nodes.len() - usize::from(rack != of_root));
            for id in nodes {
                let Some(above) = self.room_near(stripe, id, &BTreeSet::new()) else {
                    continue;
                };
                self.unlink(stripe, id);
                self.link(stripe, above, id);
                changed.push(id);
            }
        }
        changed
    }

    /// Gives a node another predecessor than `not` wherever it is that, and none of `doubted`; whether any was found.
    pub(crate) fn avoid(&mut self, id: NodeId, not: NodeId, doubted: &BTreeSet<NodeId>) -> bool {
        let mut out = doubted.clone();
        out.insert(not);
        let mut moved = false;
        for stripe in 0..self.arity {
            if self.predecessors(id).get(stripe) != Some(&Some(not)) {
                continue;
            }
            let above = self.predecessors(not).get(stripe).copied().flatten();
            self.unlink(stripe, id);
            // In a chain there is one place that fits; in trees another has room where the one above has none.
            let near = above.filter(|it| !self.spots[it].demoted && !out.contains(it));
            let near = near.filter(|it| self.arity == 1 || self.has_room(*it));
            let found = near.or_else(|| self.choose(stripe, id, &out));
            self.link(stripe, found.unwrap_or(not), id);
            moved |= found.is_some();
        }
        moved
    }

    /// By stripe, from whom a node receives.
    pub(crate) fn predecessors(&self, id: NodeId) -> &[Option<NodeId>] {
        self.spots.get(&id).map_or(&[], |it| &it.predecessors)
    }

    /// To whom a node sends this stripe.
    pub(crate) fn successors(&self, id: NodeId, stripe: usize) -> &[NodeId] {
        self.spots.get(&id).map_or(&[], |it| &it.successors[stripe])
    }

    fn has_room(&self, id: NodeId) -> bool {
        let spot = self.spots.get(&id);
        spot.is_some_and(|it| !it.demoted && it.load < self.arity)
    }

    /// The nodes of a rack, in order of their number of successors.
    pub(crate) fn of_rack(&self, rack: u32) -> impl Iterator<Item = NodeId> + '_ {
        self.by_load.of_rack(rack).map(|it| it.1)
    }

    /// Whether there are several.
    pub(crate) fn has_racks(&self) -> bool {
        self.by_load.racks.len() > 1
    }

    /// A node that may be above `id`: one with room, else the one with the fewest successors. The root is the last of
    /// these: what it sends late all get late.
    fn choose(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        let (rack, demoted) = (self.spots[&id].rack, self.spots[&id].demoted);
        let nodes = if demoted { &self.by_all } else { &self.by_load };
        if !demoted && let Some(found) = self.find_room(stripe, id, not) {
            return Some(found);
        }
        let possible = |it: &(usize, NodeId)| {
            let allowed = it.1 != id && it.1 != self.root && !not.contains(&it.1);
            allowed && self.depth(stripe, it.1, id).is_some()
        };
        // A demoted node takes nothing from others, so its predecessor may as well be in its own rack.
        let near = nodes.of_rack(rack).filter(|_| demoted).find(possible);
        let found = near.or_else(|| nodes.all.iter().copied().find(possible));
        found
            .map(|(_, id)| id)
            .or(Some(self.root).filter(|it| !not.contains(it)))
    }

    /// How many nodes are above `id` in a stripe; none, if it does not come from the root, or comes through `through`.
    fn depth(&self, stripe: usize, mut id: NodeId, through: NodeId) -> Option<usize> {
        let mut depth = 0;
        while id != self.root {
            let above = self.spots.get(&id)?.predecessors[stripe]?;
            if id == through || above == through {
                return None;
            }
            (id, depth) = (above, depth + 1);
        }
        Some(depth)
    }

    fn link(&mut self, stripe: usize, predecessor: NodeId, id: NodeId) {
        let spot = self.spot(id);
        spot.predecessors[stripe] = Some(predecessor);
        let counts = usize::from(!spot.demoted);
        self.count_exit(self.spots[&predecessor].rack, id, true);
        self.change_load(predecessor, |it| {
            it.successors[stripe].push(id);
            it.load += counts;
        });
    }

    fn unlink(&mut self, stripe: usize, id: NodeId) {
        let spot = self.spot(id);
        let counts = usize::from(!spot.demoted);
        if let Some(predecessor) = spot.predecessors[stripe].take() {
            self.count_exit(self.spots[&predecessor].rack, id, false);
            self.change_load(predecessor, |it| {
                it.successors[stripe].retain(|it| *it != id);
                it.load -= counts;
            });
        }
    }

    /// A node of this rack begins or ceases to send to `id`.
    fn count_exit(&mut self, rack: u32, id: NodeId, begins: bool) {
        let spot = &self.spots[&id];
        if spot.rack == rack || spot.demoted {
            return;
        }
        let exits = self.exits.entry(rack).or_default();
        *exits = if begins { *exits + 1 } else { *exits - 1 };
    }

    fn change_load(&mut self, id: NodeId, change: impl FnOnce(&mut Spot)) {
        let spot = self.spot(id);
        let before = (spot.load, spot.all());
        change(spot);
        let (rack, after) = (spot.rack, (spot.load, spot.all()));
        if self.by_load.remove(rack, before.0, id) {
            self.by_load.insert(rack, after.0, id);
            self.by_all.remove(rack, before.1, id);
            self.by_all.insert(rack, after.1, id);
        }
    }

    fn spot(&mut self, id: NodeId) -> &mut Spot {
        self.spots
            .get_mut(&id)
            .expect("links are between nodes that are there")
    }
}

/// For one stripe, which of so many racks is below which, those above first. The root's own is numbered behind the last: one
/// is below it. The racks of the stripe's group have as many below them as a node has, the others none.
fn racks_above(racks: usize, arity: usize, stripe: usize) -> Vec<(usize, usize)> {
    if racks == 0 {
        return Vec::new();
    }
    // Each stripe begins elsewhere, so that racks near the root in one are far from it in another.
    let begin = racks * stripe / arity;
    let only = stripe % racks;
    let in_group = |it: usize| match racks >= arity {
        true => it % arity == stripe,
        false => it == only,
    };
    let rotated = (0..racks).map(|it| (it + begin) % racks);
    let (inner, outer): (Vec<usize>, Vec<usize>) = rotated.partition(|it| in_group(*it));
    let mut places = VecDeque::from([racks]);
    let mut above = Vec::new();
    for rack in inner.iter().copied() {
        above.push((rack, places.pop_front().unwrap_or(racks)));
        places.extend(std::iter::repeat_n(rack, arity));
    }
    // Where the groups are not even, some have one more.
    let more = inner.into_iter().cycle();
    above.extend(outer.into_iter().zip(places.into_iter().chain(more)));
    above
}

/// Places below the inner nodes of one rack in one stripe, the shallowest first.
#[derive(Default)]
struct Room(VecDeque<NodeId>);

impl Room {
    fn add(&mut self, id: NodeId, places: usize) {
        self.0.extend(std::iter::repeat_n(id, places));
    }

    fn take(&mut self) -> Option<NodeId> {
        self.0.pop_front()
    }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
