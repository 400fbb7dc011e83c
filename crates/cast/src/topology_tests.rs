#![allow(non_snake_case)]

use super::*;

const ROOT: NodeId = NodeId(0);

fn built(arity: usize, nodes: u64, rack: u64) -> Topology {
    let mut topology = Topology::new(arity, ROOT);
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
        assert_eq!(topology.by_load.contains(&(spot.load, *id)), !spot.apart);
        assert_eq!(topology.by_all.contains(&(spot.all(), *id)), !spot.apart);
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
        let topology = built(arity, nodes, 40);
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
    assert!(topology.avoid(NodeId(3), NodeId(2)));
    assert_eq!(topology.predecessors(NodeId(3)), [Some(NodeId(1))]);
    check(&topology);
    let mut pair = built(1, 1, 100);
    assert!(!pair.avoid(NodeId(1), ROOT), "there is no other");
    check(&pair);
}
