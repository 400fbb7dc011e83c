//! Tests that pax records round-trip, and that malformed records are errors.
#![allow(non_snake_case)]

use super::*;

#[test]
fn parse__names_with_anything_in_them_and_times() {
    let records = b"14 path=a\nb=c\n30 mtime=1000000000.123456789\n16 comment=none\n";
    let found = Records::parse(records).unwrap();
    assert_eq!(found.path.as_deref(), Some(&b"a\nb=c"[..]));
    assert_eq!(found.mtime, Some((1_000_000_000, 123_456_789)));
    assert_eq!((found.linkpath, found.sparse), (None, None));
    assert_eq!(Records::parse(b"").unwrap(), Records::default());
}

#[test]
fn parse__what_is_malformed_is_an_error() {
    for wrong in [
        &b"path=a\n"[..],
        b"7 path=\n",
        b"9 path=aa\n",
        b"10 path=aa",
        b"10 path=aa\n1",
        b"99 path=aa\n",
        b"18446744073709551616 path=aa\n",
        b"-1 path=aa\n",
        b"5 pa\n",
        b"10 mtime=\n",
        b"13 mtime=1e9\n",
        b"15 mtime=1.5.5\n",
        b"15 mtime=--1.5\n",
        b"25 GNU.sparse.realsize=7\n",
        b"22 GNU.sparse.major=1\n",
    ] {
        let found = Records::parse(wrong);
        assert!(found.is_err(), "{} {found:?}", wrong.escape_ascii());
    }
}

#[test]
fn time__of_any_year_comes_back() {
    let times = [
        (0, 0),
        (1, 5),
        (-2, 500_000_000),
        (-1, 999_999_999),
        (i64::MAX, 999_999_999),
        (i64::MIN, 1),
    ];
    for it in times {
        let text = time(it);
        assert_eq!(parse_time(text.as_bytes()), Some(it), "{text}");
    }
    assert_eq!(time((-2, 500_000_000)), "-1.500000000");
    assert_eq!(parse_time(b"7"), Some((7, 0)));
    assert_eq!(parse_time(b"7.12345678949"), Some((7, 123_456_789)));
}
