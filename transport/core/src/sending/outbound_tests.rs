//! Tests that outgoing Transfers follow their state table, advance grants and reports.
#![allow(non_snake_case)]
use super::*;
use crate::span::RegionId;
use std::fmt::Write;
use std::time::Duration;
use zerolane_wire::{Advance, ClearToSend, Grant, Occasion, Profile, Range, Report, State};

impl Outbox {
    /// All of a Block leaves.
    fn sent_all(&mut self, id: TransferId, b_num: u32) {
        self.ready.retain(|it| (it.1, it.2) != (id, b_num));
        let transfer = self.transfers.get_mut(&id).expect("there");
        let block = transfer.held.get_mut(&b_num).expect("granted");
        transfer.sent += u64::from(block.len - block.sent);
        block.sent = block.len;
    }
}

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

fn span(len: u64) -> Span {
    let region = RegionId {
        index: 0,
        generation: 0,
    };
    Span {
        region,
        offset: 0,
        len,
    }
}

/// A Block of 1000 bytes, granted in advance to message 5 or, if `d_id` is set, to that Transfer.
fn block(sequence: u32, b_num: u32, d_id: Option<u32>) -> ClearToSend {
    ClearToSend {
        block_log2: 0,
        mx: sequence as u16,
        bufx: 0,
        offset: 1_000 * b_num,
        sequence,
        b_num,
        d_id: d_id.unwrap_or(5),
        s_id: 9,
        grant: Some(Grant {
            transfer_offset: 1_000 * u64::from(b_num),
            length: 1_000,
            trains: false,
            blocks_complete: 0,
            advance: d_id.is_none().then_some(Advance::Message(5)),
        }),
    }
}

/// Payload sent under an advance grant that the receiver ended leaves again under the grant that replaced it, and
/// nothing else does.
#[test]
fn advance__what_is_granted_anew_leaves_anew_and_the_rest_does_not() {
    for anew in [None, Some(1)] {
        let mut outbox = Outbox::new();
        outbox.post(1, span(2_000), Delivery::Silent, Target::Message(5));
        assert_eq!(outbox.announce_next(8), Some(1));
        let take = |outbox: &mut Outbox, cts: ClearToSend| match cts.advance() {
            Some(advance) => outbox
                .grant_in_advance(Instant::ZERO, &cts, advance, 6, 32)
                .expect("taken"),
            None => {
                let missing = outbox.grant(&cts, Profile::Extended, 32);
                assert_eq!(missing, Ok(LossReport::default()), "nothing was lost");
            }
        };
        take(&mut outbox, block(10, 0, None));
        take(&mut outbox, block(11, 1, None));
        for b_num in 0..2 {
            outbox.sent_all(1, b_num);
        }
        assert!(!outbox.has_data());
        // An older one tells nothing.
        take(&mut outbox, block(9, 0, None));
        assert!(!outbox.has_data());
        take(&mut outbox, block(12, 0, anew));
        assert_eq!(outbox.ready, [(12, 1, 0)]);
        let transfer = outbox.get(1).expect("there");
        assert_eq!((transfer.sent, transfer.held.len()), (1_000, 2));
        assert_eq!(transfer.held[&0].mx, 12);
        outbox.assert_bounded();
    }
}

/// The payload that fills the congestion window was lost before the receiver heard of it; the receiver asks for the
/// payload behind it.
#[test]
fn report__of_payload_that_never_left_frees_the_window_of_what_is_too_old() {
    let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
    let mut outbox = Outbox::new();
    outbox.post(1, span(3_000), Delivery::Silent, Target::Receive);
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
        .grant(&grant, Profile::Extended, 32)
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
        let missing = outbox.report(ms(at), &state, &missing, 1000, |_| flight_time);
        assert_eq!(missing, Some(LossReport::default()), "nothing was sent");
        outbox.sent_logs[0].bytes_in_flight()
    };
    assert_eq!(ask(5), 500, "it may arrive");
    assert_eq!(ask(30), 0);
}
