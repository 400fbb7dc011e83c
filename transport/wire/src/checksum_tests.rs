//! Tests that checksums follow RFC 1071 and are never zero.
#![allow(non_snake_case)]
use super::*;

#[test]
fn of__rfc_1071_example() {
    let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.finish(), !0xddf2);
}

#[test]
fn finish__never_zero() {
    assert_eq!(Sum::of(&[0xff, 0xff]).finish(), 0xffff);
    assert!(Sum::of(&[0xff, 0xff]).matches(0xffff));
}

#[test]
fn matches__omitted_and_wrong() {
    assert!(Sum::of(b"anything").matches(0));
    assert!(!Sum::of(b"anything").matches(Sum::of(b"anythinh").finish()));
}
