//! Tests that the trees hold their invariants as nodes come and go.
#![allow(non_snake_case)]

use super::*;

const ROOT: NodeId = NodeId(0);

fn built(arity: usize, nodes: u64, rack: u64) -> Topology {
    let mut topology = Topology::new(arity, ROOT, 0);
    let nodes: Vec<_> = (1..=nodes)
        .map(|it| (NodeId(it), ((it - 1) / rack) as u32))
        .collect();
    topology.build(&nodes);
    topology
}

/// Every node is reached from the root in each stripe; the longest way, and the greatest load.
fn check(topology: &Topology) -> (usize, usize) {
    let mut deepest = 0;
    for (id, spot) in &topology.spots {
        for stripe in 0..topology.arity {
            let (mut at, mut depth) = (*id, 0);
            while at != ROOT {
                let above = topology.spots[&at].predecessors[stripe];
                let above = above.unwrap_or_else(|| panic!("{at} is cut off in stripe {stripe}"));
                assert!(topology.spots[&above].successors[stripe].contains(&at));
                (at, depth) = (above, depth + 1);
                assert!(depth <= topology.spots.len(), "a circle at {at}");
            }
            deepest = deepest.max(depth);
        }
        assert_eq!(
            topology.by_load.all.contains(&(spot.load, *id)),
            !spot.demoted
        );
        assert_eq!(
            topology.by_all.all.contains(&(spot.all(), *id)),
            !spot.demoted
        );
    }
    let loads = topology.spots.values().map(|it| it.load);
    (deepest, loads.max().unwrap())
}

#[test]
fn build__one_stripe_is_a_chain() {
    let topology = built(1, 8, 100);
    assert_eq!(check(&topology), (8, 1));
    assert_eq!(topology.predecessors(NodeId(5)), [Some(NodeId(4))]);
    assert_eq!(topology.successors(NodeId(5), 0), [NodeId(6)]);
}

#[test]
fn build__no_node_sends_more_than_the_content_and_the_trees_are_flat() {
    for (arity, nodes, depth) in [(2, 10, 4), (4, 1000, 8), (8, 10_000, 8), (4, 3, 3)] {
        let topology = built(arity, nodes, nodes);
        let (deepest, load) = check(&topology);
        assert!(deepest <= depth, "{arity} {nodes}: {deepest}");
        assert!(load <= arity + 1, "{arity} {nodes}: {load}");
    }
}

#[test]
fn build__a_chain_enters_each_rack_once() {
    let topology = built(1, 40, 10);
    let crossings = topology.spots.iter().filter(|(id, spot)| {
        let above = spot.predecessors[0];
        **id != ROOT && above.is_some_and(|it| it != ROOT && topology.spots[&it].rack != spot.rack)
    });
    assert_eq!(crossings.count(), 3);
}

/// By rack, in how many stripes a chunk enters it, and leaves it, counted once for each node that does so.
fn crossings(topology: &Topology) -> BTreeMap<u32, (usize, usize)> {
    let mut crossings: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for spot in topology.spots.values() {
        for above in spot.predecessors.iter().flatten() {
            let from = topology.spots[above].rack;
            if from != spot.rack {
                crossings.entry(spot.rack).or_default().0 += 1;
                crossings.entry(from).or_default().1 += 1;
            }
        }
    }
    crossings
}

#[test]
fn build__each_stripe_enters_a_rack_once_and_leaves_it_as_often_as_a_node_would() {
    for (arity, nodes, rack) in [
        (1, 90, 10),
        (2, 90, 10),
        (4, 1000, 40),
        (4, 25, 2),
        (3, 7, 1),
    ] {
        let topology = built(arity, nodes, rack);
        let (deepest, load) = check(&topology);
        assert!(
            arity == 1 || deepest <= 16,
            "{arity} {nodes} {rack}: {deepest}"
        );
        assert!(load <= arity + 1, "{arity} {nodes} {rack}: {load}");
        // A rack of m nodes has m * arity places and m * arity nodes to feed, of which `arity` are entries: that leaves `arity`
        // places for the racks below, and no node that has to be fed from outside. Where a rack has fewer nodes than there
        // are stripes, a node is inner in several, so one may find no place of its rack that does not come through it.
        let more = if rack < arity as u64 { 2 } else { 0 };
        for (label, (entered, left)) in crossings(&topology) {
            let entries = match label {
                0 => 0..=0,
                _ => arity..=arity + more,
            };
            assert!(
                entries.contains(&entered),
                "{arity} {nodes} {rack}: rack {label} is entered {entered} times"
            );
            assert!(
                left <= arity + more,
                "{arity} {nodes} {rack}: rack {label} is left {left} times"
            );
        }
    }
}

#[test]
fn remove__a_rack_is_entered_once_by_each_stripe_when_nodes_go() {
    let mut topology = built(4, 400, 40);
    for gone in (1..=400).filter(|it| it % 40 == 7) {
        topology.remove(NodeId(gone));
    }
    check(&topology);
    for (label, (entered, _)) in crossings(&topology) {
        // What a node leaves behind and what it took are the same number of places, all of its rack.
        assert!(
            entered <= 4,
            "rack {label} is entered {entered} times for 4 stripes"
        );
    }
}

/// Nodes that found no room in their rack when their predecessor went are brought back when there is some.
#[test]
fn gather__a_rack_is_entered_once_by_each_stripe_again() {
    let mut topology = built(4, 400, 40);
    let entries = |topology: &Topology| crossings(topology).values().map(|it| it.0).sum::<usize>();
    assert_eq!(entries(&topology), 9 * 4);
    for id in [200, 230, 330].map(NodeId) {
        for stripe in 0..4 {
            // One that passes the stripe on takes the rest of its rack along, and is the only one by which it enters.
            if topology.successors(id, stripe).is_empty() {
                topology.unlink(stripe, id);
                topology.link(stripe, NodeId(100), id);
            }
        }
    }
    let before = entries(&topology);
    assert!(before > 9 * 4, "{before}");
    while !topology.gather().is_empty() {
        check(&topology);
    }
    let after = entries(&topology);
    assert_eq!(after, 9 * 4, "{before} before");
    let exits: usize = topology.exits.values().sum();
    assert_eq!(exits, after, "exits are counted as links change");
}

#[test]
fn remove__the_successor_of_a_chain_goes_to_the_predecessor() {
    let mut topology = built(1, 8, 100);
    assert_eq!(topology.remove(NodeId(4)), [NodeId(5)]);
    assert_eq!(topology.predecessors(NodeId(5)), [Some(NodeId(3))]);
    assert_eq!(check(&topology), (7, 1));
    assert_eq!(topology.remove(NodeId(8)), []);
    assert_eq!(topology.remove(ROOT), []);
}

#[test]
fn remove__loads_stay_even_when_many_go_and_come() {
    let mut topology = built(4, 400, 20);
    for round in 0..300u64 {
        let gone = NodeId(1 + round * 7 % 400);
        topology.remove(gone);
        if round % 3 == 0 {
            topology.attach(NodeId(1000 + round), 3, round % 9 == 0, &BTreeSet::new());
        }
        let (_, load) = check(&topology);
        assert!(load <= 4 + 3, "round {round}: {load}");
    }
}

#[test]
fn avoid__another_predecessor_without_a_circle() {
    let mut topology = built(1, 4, 100);
    assert!(topology.avoid(NodeId(3), NodeId(2), &BTreeSet::new()));
    assert_eq!(topology.predecessors(NodeId(3)), [Some(NodeId(1))]);
    check(&topology);
    let mut pair = built(1, 1, 100);
    assert!(
        !pair.avoid(NodeId(1), ROOT, &BTreeSet::new()),
        "there is no other"
    );
    check(&pair);
}

/// The head of a stripe takes its whole tree along, and all places that are free are below it: what it fed is linked without
/// any node that sends more than its share, the root before all.
#[test]
fn remove__the_heads_of_all_stripes_and_no_node_sends_more_than_its_share() {
    for (arity, nodes) in [(2, 64), (4, 64), (8, 64), (4, 1000)] {
        let mut topology = built(arity, nodes, nodes);
        for stripe in 0..arity {
            let heads = topology.successors(ROOT, stripe).to_vec();
            for head in heads {
                topology.remove(head);
                topology.even_out();
                let (_, load) = check(&topology);
                assert!(load <= arity, "{arity} {nodes}: {load}");
            }
        }
    }
}

/// Nodes go at random, each after its successors have left it: as where it is silent to them before the coordinator misses it.
#[test]
fn even_out__leaves_no_node_with_more_than_its_share_where_another_has_room() {
    for (arity, rack) in [(2, 400), (4, 400), (4, 40), (8, 400)] {
        let mut topology = built(arity, 400, rack);
        for round in 0..40u64 {
            let gone = NodeId(1 + round * 37 % 400);
            for stripe in 0..arity {
                for successor in topology.successors(gone, stripe).to_vec() {
                    topology.avoid(successor, gone, &BTreeSet::new());
                }
            }
            topology.remove(gone);
            topology.even_out();
            let (deepest, load) = check(&topology);
            assert!(load <= arity + 1, "{arity} {rack}, round {round}: {load}");
            assert!(deepest <= 40, "{arity} {rack}, round {round}: {deepest}");
        }
        topology.even_out();
        assert!(check(&topology).1 <= arity, "{arity} {rack}");
    }
}
