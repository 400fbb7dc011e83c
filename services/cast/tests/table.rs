//! Tests that the committed table of completion times matches the engine.
#![allow(non_snake_case)]

use zerolane_cast::sim::table::{HEAD, NODES, QUICK, cases, row};

#[test]
fn table__the_quick_rows_are_those_of_the_engine() {
    let table = include_str!("cast-times.md");
    assert!(table.contains(HEAD));
    for nodes in NODES.into_iter().filter(|it| *it <= QUICK) {
        for case in cases(nodes, 1) {
            let row = row(case).to_string();
            assert!(
                table.contains(&row),
                "not in services/cast/tests/cast-times.md:\n{row}"
            );
        }
    }
}
