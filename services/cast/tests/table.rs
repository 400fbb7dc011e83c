//! Tests that the documented table of completion times matches the engine.
#![allow(non_snake_case)]

use zerolane_cast::sim::table::{HEAD, NODES, QUICK, cases, row};

#[test]
fn table__the_quick_rows_are_those_of_the_documentation() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/measurements/cast-times.md"
    );
    let documented = std::fs::read_to_string(path).expect("the documentation");
    assert!(documented.contains(HEAD));
    for nodes in NODES.into_iter().filter(|it| *it <= QUICK) {
        for case in cases(nodes, 1) {
            let row = row(case).to_string();
            assert!(
                documented.contains(&row),
                "not in docs/measurements/cast-times.md:\n{row}"
            );
        }
    }
}
