#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    use Happening as H;
    use InboundState as S;
    let mut table = String::new();
    for state in [
        S::Unheard,
        S::Announced,
        S::Receiving,
        S::Complete,
        S::Ended,
    ] {
        for happening in [
            H::Announced,
            H::Matched,
            H::TooLarge,
            H::AllArrived,
            H::EndedByPeer,
            H::Cancelled,
        ] {
            writeln!(
                table,
                "{state:?} + {happening:?} -> {:?}",
                state.step(happening)
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
