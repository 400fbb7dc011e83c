//! The trees by which a content spreads: one for each stripe, over all nodes.
//!
//! With an arity of k the content is cut into k stripes, chunk by chunk, and each stripe has a tree of its own. A node has
//! up to k successors in the stripe of its group and is a leaf in the others, so that it sends what it receives: the
//! content once. With one stripe that is a chain. The trees of several are SplitStream's (Castro et al., SOSP 2003).
//!
//! A node that goes leaves as many successors without a predecessor as its own predecessors have room for after it: the
//! load stays even without moving any other node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::NodeId;

/// Who receives from whom.
#[derive(Debug)]
pub(crate) struct Topology {
    arity: usize,
    root: NodeId,
    spots: BTreeMap<NodeId, Spot>,
    /// Nodes that may have successors, by how many they have; those that are apart do not count, for they come last.
    by_load: BTreeSet<(usize, NodeId)>,
    /// The same, by how many they have of both sorts.
    by_all: BTreeSet<(usize, NodeId)>,
}

#[derive(Debug)]
struct Spot {
    rack: u32,
    predecessors: Vec<Option<NodeId>>,
    successors: Vec<Vec<NodeId>>,
    /// Without successors.
    apart: bool,
    /// How many of the successors are not apart.
    load: usize,
}

impl Spot {
    fn new(arity: usize, rack: u32, apart: bool) -> Spot {
        Spot {
            rack,
            predecessors: vec![None; arity],
            successors: vec![Vec::new(); arity],
            apart,
            load: 0,
        }
    }

    fn all(&self) -> usize {
        self.successors.iter().map(Vec::len).sum()
    }
}

impl Topology {
    /// The root alone.
    pub(crate) fn new(arity: usize, root: NodeId) -> Topology {
        let spots = BTreeMap::from([(root, Spot::new(arity, 0, false))]);
        let by_load = BTreeSet::from([(0, root)]);
        Topology {
            arity,
            root,
            spots,
            by_all: by_load.clone(),
            by_load,
        }
    }

    /// Adds the first nodes, in the order in which they shall stand: the first are nearest to the root.
    pub(crate) fn build(&mut self, nodes: &[(NodeId, u32)]) {
        for (id, rack) in nodes {
            let spot = Spot::new(self.arity, *rack, false);
            self.spots.insert(*id, spot);
            self.by_load.insert((0, *id));
            self.by_all.insert((0, *id));
        }
        for stripe in 0..self.arity {
            self.build_stripe(stripe, nodes);
        }
    }

    fn build_stripe(&mut self, stripe: usize, nodes: &[(NodeId, u32)]) {
        // Each stripe begins elsewhere, so that the heads of racks are not all below one rack.
        let begin = nodes.len() * stripe / self.arity;
        let rotated = (0..nodes.len()).map(|it| (it + begin) % nodes.len());
        let (inner, leaves): (Vec<usize>, Vec<usize>) =
            rotated.partition(|it| it % self.arity == stripe);
        let mut room = Room::default();
        for index in inner {
            let (id, rack) = nodes[index];
            let predecessor = room.take(rack).unwrap_or(self.root);
            self.link(stripe, predecessor, id);
            room.add(id, rack, self.arity);
        }
        for index in leaves {
            let (id, rack) = nodes[index];
            let found = room
                .take(rack)
                .or_else(|| self.choose(stripe, id, &BTreeSet::new()));
            self.link(stripe, found.unwrap_or(self.root), id);
        }
    }

    /// Adds a node that came late, below none of `not`; one that is apart gets no successors.
    pub(crate) fn attach(&mut self, id: NodeId, rack: u32, apart: bool, not: &BTreeSet<NodeId>) {
        if self.spots.contains_key(&id) {
            return;
        }
        self.spots.insert(id, Spot::new(self.arity, rack, apart));
        for stripe in 0..self.arity {
            if let Some(predecessor) = self.choose(stripe, id, not) {
                self.link(stripe, predecessor, id);
            }
        }
        if !apart {
            self.by_load.insert((0, id));
            self.by_all.insert((0, id));
        }
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
        self.by_load.remove(&(spot.load, id));
        self.by_all.remove(&(spot.all(), id));
        for (stripe, orphans) in spot.successors.iter().enumerate() {
            for orphan in orphans {
                self.spot(*orphan).predecessors[stripe] = None;
            }
        }
        let mut changed = Vec::new();
        for (stripe, orphans) in spot.successors.into_iter().enumerate() {
            for orphan in orphans {
                let near = freed[stripe].filter(|it| self.has_room(*it));
                let found = near.or_else(|| self.choose(stripe, orphan, &BTreeSet::new()));
                if let Some(predecessor) = found {
                    self.link(stripe, predecessor, orphan);
                }
                changed.push(orphan);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Gives a node another predecessor than `not` wherever it is that; whether any was found.
    pub(crate) fn avoid(&mut self, id: NodeId, not: NodeId) -> bool {
        let mut moved = false;
        for stripe in 0..self.arity {
            if self.predecessors(id).get(stripe) != Some(&Some(not)) {
                continue;
            }
            let above = self.predecessors(not).get(stripe).copied().flatten();
            self.unlink(stripe, id);
            // In a chain there is one place that fits; in trees another has room where the one above has none.
            let near =
                above.filter(|it| !self.spots[it].apart && (self.arity == 1 || self.has_room(*it)));
            let found = near.or_else(|| self.choose(stripe, id, &BTreeSet::from([not])));
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
        spot.is_some_and(|it| !it.apart && it.load < self.arity)
    }

    /// The node with the fewest successors that may be above `id`; of those of few, one of its rack.
    fn choose(&self, stripe: usize, id: NodeId, not: &BTreeSet<NodeId>) -> Option<NodeId> {
        const COMPARED: usize = 16;
        let (rack, apart) = (self.spots[&id].rack, self.spots[&id].apart);
        let nodes = if apart { &self.by_all } else { &self.by_load };
        let possible = |it: &&(usize, NodeId)| {
            it.1 != id && !not.contains(&it.1) && self.descends_from_root(stripe, it.1, id)
        };
        let mut found: Option<(usize, NodeId)> = None;
        // The root always has something for others: one that comes last would wait until the end.
        let below = |it: &&(usize, NodeId)| !apart || it.1 != self.root;
        for candidate in nodes.iter().filter(possible).filter(below).take(COMPARED) {
            match found {
                Some((load, _)) if candidate.0 > load => break,
                None => found = Some(*candidate),
                Some(_) => {}
            }
            if self.spots[&candidate.1].rack == rack {
                return Some(candidate.1);
            }
        }
        found
            .map(|(_, id)| id)
            .or(Some(self.root).filter(|it| !not.contains(it)))
    }

    /// Whether what `id` receives comes from the root, and not through `through`.
    fn descends_from_root(&self, stripe: usize, mut id: NodeId, through: NodeId) -> bool {
        while id != self.root {
            match self.spots.get(&id).and_then(|it| it.predecessors[stripe]) {
                Some(above) if above != through => id = above,
                _ => return false,
            }
        }
        true
    }

    fn link(&mut self, stripe: usize, predecessor: NodeId, id: NodeId) {
        let spot = self.spot(id);
        spot.predecessors[stripe] = Some(predecessor);
        let counts = usize::from(!spot.apart);
        self.change_load(predecessor, |it| {
            it.successors[stripe].push(id);
            it.load += counts;
        });
    }

    fn unlink(&mut self, stripe: usize, id: NodeId) {
        let spot = self.spot(id);
        let counts = usize::from(!spot.apart);
        if let Some(predecessor) = spot.predecessors[stripe].take() {
            self.change_load(predecessor, |it| {
                it.successors[stripe].retain(|it| *it != id);
                it.load -= counts;
            });
        }
    }

    fn change_load(&mut self, id: NodeId, change: impl FnOnce(&mut Spot)) {
        let spot = self.spot(id);
        let before = (spot.load, spot.all());
        change(spot);
        let after = (spot.load, spot.all());
        if self.by_load.remove(&(before.0, id)) {
            self.by_load.insert((after.0, id));
            self.by_all.remove(&(before.1, id));
            self.by_all.insert((after.1, id));
        }
    }

    fn spot(&mut self, id: NodeId) -> &mut Spot {
        self.spots
            .get_mut(&id)
            .expect("links are between nodes that are there")
    }
}

/// Places below the inner nodes of one stripe while its tree is built, the shallowest first.
#[derive(Default)]
struct Room {
    all: VecDeque<NodeId>,
    by_rack: BTreeMap<u32, VecDeque<NodeId>>,
    left: BTreeMap<NodeId, usize>,
}

impl Room {
    fn add(&mut self, id: NodeId, rack: u32, places: usize) {
        self.all.push_back(id);
        self.by_rack.entry(rack).or_default().push_back(id);
        self.left.insert(id, places);
    }

    /// A place in the rack if there is one, else anywhere.
    fn take(&mut self, rack: u32) -> Option<NodeId> {
        let own = self.by_rack.get_mut(&rack);
        let found = own.and_then(|it| first_with_room(it, &self.left));
        let id = found.or_else(|| first_with_room(&mut self.all, &self.left))?;
        *self.left.get_mut(&id)? -= 1;
        Some(id)
    }
}

fn first_with_room(queue: &mut VecDeque<NodeId>, left: &BTreeMap<NodeId, usize>) -> Option<NodeId> {
    while queue.front().is_some_and(|it| left[it] == 0) {
        queue.pop_front();
    }
    queue.front().copied()
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
