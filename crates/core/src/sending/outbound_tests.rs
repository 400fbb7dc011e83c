#![allow(non_snake_case)]
use super::*;
use crate::RegionId;
use std::fmt::Write;
use std::time::Duration;
use zerolane_wire::{ClearToSend, Grant, Occasion, Profile, Range, Report, State};

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

/// What fills the congestion window was lost before the receiver heard of it; it asks for what waits behind.
#[test]
fn report__of_payload_that_never_left_frees_the_window_of_what_is_too_old() {
    let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
    let region = RegionId {
        index: 0,
        generation: 0,
    };
    let span = Span {
        region,
        offset: 0,
        len: 3_000,
    };
    let mut outbox = Outbox::new();
    outbox.post(1, span, Delivery::Silent, Target::Receive);
    assert_eq!(outbox.announce_next(8), Some(1));
    let grant = ClearToSend {
        block_log2: 0,
        mx: 1,
        bufx: 0,
        offset: 0,
        sequence: 1,
        b_num: 0,
        d_id: 1,
        s_id: 9,
        grant: Some(Grant {
            transfer_offset: 0,
            length: 3_000,
            trains: false,
            blocks_complete: 0,
            advance: None,
        }),
    };
    outbox
        .grant(Instant::ZERO, &grant, Profile::Extended, 32)
        .expect("granted");
    outbox.sent_logs[0].on_sent(ms(1), 7, 0, 0, 500);
    let missing = [Range {
        start: 0,
        len: 3_000,
    }];
    let state = State {
        occasion: Occasion::Seen(0),
        complete: false,
        unknown: false,
        blocks_complete: 0,
        b_num: 0,
        reached: 0,
        d_id: 1,
        s_id: 9,
        report: Report::NOTHING,
    };
    let mut ask = |at| {
        let flight_time = Duration::from_millis(10);
        let missing = outbox.report(ms(at), &state, &missing, |_| flight_time);
        assert_eq!(missing, Some(LossReport::default()), "nothing was sent");
        outbox.sent_logs[0].bytes_in_flight()
    };
    assert_eq!(ask(5), 500, "it may arrive");
    assert_eq!(ask(30), 0);
}
