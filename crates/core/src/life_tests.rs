#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    let mut table = String::new();
    for life in Life::ALL {
        for happening in Happening::ALL {
            let (next, then) = step(life, happening);
            writeln!(table, "{life:?} + {happening:?} -> {next:?}, {then:?}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
