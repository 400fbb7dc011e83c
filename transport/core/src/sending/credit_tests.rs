//! Tests that credit limits unresolved eager Transfers.
#![allow(non_snake_case)]
use super::*;

#[test]
fn credit__bounds_what_is_not_over() {
    let mut credit = Credit::default();
    assert!(credit.take(7, 600, 1000));
    assert!(!credit.take(8, 401, 1000), "more than is left");
    assert!(credit.take(9, 400, 1000), "all that is left");
    credit.give_back(8);
    assert!(
        !credit.take(10, 1, 1000),
        "what was never taken gives nothing back"
    );
    credit.give_back(7);
    credit.give_back(7);
    assert!(!credit.take(11, 601, 1000), "given back once");
    assert!(credit.take(11, 600, 1000));
    assert!(!Credit::default().take(0, 1, 0), "no credit at all");
}
