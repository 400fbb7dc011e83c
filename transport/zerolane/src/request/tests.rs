//! Tests the flags of requests, and which poster a number belongs to.
#![allow(non_snake_case)]
use super::*;
use crate::id::Poster;

#[test]
fn flags__of_what_is_not_reported_ask_the_peer_for_nothing() {
    let how = |signalled, awaited| {
        let mut how = How::default();
        how.report.signalled = signalled;
        how.flags.awaited = awaited;
        (how.flags().signalled, how.flags().awaited)
    };
    assert_eq!(how(true, true), (true, true));
    assert_eq!(how(true, false), (true, false));
    assert_eq!(how(false, true), (false, false));
}

#[test]
fn number_of__another_poster_s_request_is_none() {
    let (one, other) = (Poster::next(), Poster::next());
    let id = one.request(u32::MAX);
    assert_eq!(one.number_of(id), Some(u32::MAX));
    assert_eq!(other.number_of(id), None);
    assert_eq!(RequestId::from_u64(id.to_u64()), id);
    assert_eq!(one.number_of(RequestId::NONE), None);
}
