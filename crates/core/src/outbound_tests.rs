#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    use Happening as H;
    use OutboundState as S;
    let mut table = String::new();
    for state in [S::Queued, S::Announced, S::Waiting, S::Sending, S::Ended] {
        for happening in [
            H::SlotFree,
            H::AnsweredLater,
            H::Refused,
            H::Granted,
            H::Confirmed,
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
