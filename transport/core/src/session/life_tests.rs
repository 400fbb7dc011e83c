//! Tests that a connection's life follows its full state table.
#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    let mut table = String::new();
    for life in Life::ALL {
        for event in LifeEvent::ALL {
            let (next, then) = step(life, event);
            writeln!(table, "{life:?} + {event:?} -> {next:?}, {then:?}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
