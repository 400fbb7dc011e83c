//! Tests that incoming Transfers follow their full state table.
#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    use InboundEvent as H;
    use InboundState as S;
    let mut table = String::new();
    for state in [
        S::Unheard,
        S::Announced,
        S::Receiving,
        S::Complete,
        S::Ended,
    ] {
        for event in [
            H::Announced,
            H::Matched,
            H::TooLarge,
            H::AllArrived,
            H::EndedByPeer,
            H::Cancelled,
        ] {
            writeln!(table, "{state:?} + {event:?} -> {:?}", state.step(event)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
