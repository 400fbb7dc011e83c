#![allow(non_snake_case)]
use super::*;
use std::fmt::Write;

#[test]
fn step__full_matrix() {
    use OutboundEvent as H;
    use OutboundState as S;
    let mut table = String::new();
    for state in [S::Queued, S::Announced, S::Waiting, S::Sending, S::Ended] {
        for event in [
            H::SlotFree,
            H::AnsweredLater,
            H::Refused,
            H::Granted,
            H::Confirmed,
            H::EndedByPeer,
            H::Cancelled,
        ] {
            writeln!(table, "{state:?} + {event:?} -> {:?}", state.step(event)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
