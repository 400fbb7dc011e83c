//! Tests that exported regions check rights, bounds and handles.
#![allow(non_snake_case)]
use super::*;
use crate::request::RegionNumber;
use crate::span::RegionId;
use zerolane_wire::OPTIONS_LEN;

fn span(len: u64) -> Span {
    Span {
        region: RegionId {
            index: 3,
            generation: 1,
        },
        offset: 0,
        len,
    }
}

fn at(handle: u32, mx: u16, address: u64) -> Named {
    Named {
        handle,
        mx,
        bufx: (address >> 12) as u32,
        offset: (address & 0xfff) as u32,
    }
}

/// The memory that a peer with buffers of 4 KiB may use.
fn check(exports: &Exports, place: Named, len: u64, right: Rights) -> Result<Span, Reason> {
    exports.check(place, len, right, 12).map(|it| it.0)
}

#[test]
fn check__rights_bounds_and_wrap_around() {
    let mut exports = Exports::new(7);
    let (handle, mx) = exports
        .export(span(10_000), Rights::READ, ExportAs::Handle)
        .unwrap();
    let check = |address, len, right| check(&exports, at(handle, mx, address), len, right);
    assert_eq!(check(0, 10_000, Rights::READ), Ok(span(10_000)));
    assert_eq!(
        check(9_999, 1, Rights::READ),
        Ok(span(10_000).part(9_999, 1))
    );
    assert_eq!(
        check(10_000, 0, Rights::READ),
        Ok(span(10_000).part(10_000, 0))
    );
    assert_eq!(check(9_999, 2, Rights::READ), Err(Reason::OutOfBounds));
    assert_eq!(check(5, u64::MAX, Rights::READ), Err(Reason::OutOfBounds));
    assert_eq!(
        check(u64::from(u32::MAX) << 12, 8, Rights::READ),
        Err(Reason::OutOfBounds)
    );
    assert_eq!(check(0, 8, Rights::WRITE), Err(Reason::Denied));
    assert_eq!(check(0, 8, Rights::ATOMIC), Err(Reason::Denied));
}

#[test]
fn check__revoked_stale_and_forged_handles() {
    let mut exports = Exports::new(7);
    let (old, mx) = exports
        .export(span(100), Rights::ALL, ExportAs::Handle)
        .unwrap();
    let check = |exports: &Exports, handle, mx| {
        exports
            .check(at(handle, mx, 0), 8, Rights::READ, 12)
            .map(|(span, _)| span.len)
    };
    assert_eq!(check(&exports, old + 1, mx + 1), Err(Reason::Unknown));
    assert_eq!(exports.revoke(old), Some(span(100)));
    assert_eq!(exports.revoke(old), None);
    assert_eq!(check(&exports, old, mx), Err(Reason::Revoked));
    let (new, next) = exports
        .export(span(200), Rights::ALL, ExportAs::Handle)
        .unwrap();
    assert_eq!((new, next), (old + 1, mx + 1));
    assert_eq!(check(&exports, old, mx), Err(Reason::Revoked));
    assert_eq!(check(&exports, new, next), Ok(8));
    assert_eq!(check(&exports, new, mx), Err(Reason::Unknown));
    assert_eq!(check(&exports, old - 1, mx - 1), Err(Reason::Unknown));
    assert_eq!(check(&exports, new ^ 1 << 20, next), Err(Reason::Unknown));
    assert_eq!(check(&exports, new & !HANDLE, next), Err(Reason::Unknown));
    assert_eq!(check(&exports, MESSAGES, 0), Err(Reason::Unknown));
}

#[test]
fn export__handles_wrap_without_naming_the_messages_or_what_is_exported() {
    let mut exports = Exports::new(HANDLES - 2);
    let mut export = |len| {
        exports
            .export(span(len), Rights::ALL, ExportAs::Handle)
            .unwrap()
            .0
    };
    assert_eq!([export(1), export(2)], [HANDLE | HANDLES, HANDLE | 1]);
    // All other handles were assigned and revoked meanwhile.
    (exports.last, exports.given) = (HANDLES - 1, HANDLES);
    let (handle, mx) = exports
        .export(span(3), Rights::ALL, ExportAs::Handle)
        .unwrap();
    assert_eq!((handle, mx), (HANDLE | 2, 2));
    let kept = check(&exports, at(HANDLE | 1, 1, 0), 2, Rights::READ);
    assert_eq!(kept, Ok(span(2)));
    let revoked = check(&exports, at(HANDLE | 9, 9, 0), 2, Rights::READ);
    assert_eq!(revoked.unwrap_err(), Reason::Revoked);
}

#[test]
fn export__under_a_number_is_found_by_the_handle_that_the_peer_makes_of_it() {
    let number = |n| RegionNumber::new(n).unwrap();
    for n in [0, 1, 0xffff, 0x1_0000, RegionNumber::END - 1] {
        let mut exports = Exports::new(7);
        let place = number(n).place(5);
        let at = Named {
            handle: place.handle,
            mx: place.mx,
            bufx: 0,
            offset: 5,
        };
        let check = |exports: &Exports| check(exports, at, 8, Rights::READ);
        assert_eq!(check(&exports), Err(Reason::Unknown), "{n}");
        let named = ExportAs::Number(number(n));
        let exported = exports.export(span(100), Rights::READ, named);
        assert_eq!(exported, Ok((place.handle, place.mx)));
        assert_eq!(check(&exports), Ok(span(100).part(5, 8)));
        assert_eq!(RegionNumber::of_handle(place.handle), Some(number(n)));
        let twice = exports.export(span(8), Rights::READ, named);
        assert_eq!(twice, Err(PostError::NumberTaken));
        assert_eq!(exports.revoke(place.handle), Some(span(100)));
        assert_eq!(check(&exports), Err(Reason::Unknown), "{n}");
        exports.export(span(50), Rights::READ, named).unwrap();
        assert_eq!(check(&exports), Ok(span(50).part(5, 8)), "again");
    }
    assert_eq!(RegionNumber::new(RegionNumber::END), None);
}

#[test]
fn export__assigned_handles_are_no_numbers() {
    let mut exports = Exports::new(HANDLES - 2);
    for _ in 0..4 {
        let (handle, _) = exports
            .export(span(8), Rights::ALL, ExportAs::Handle)
            .unwrap();
        assert_eq!(RegionNumber::of_handle(handle), None, "{handle:x}");
    }
    assert_eq!(RegionNumber::of_handle(MESSAGES), None);
    assert_eq!(
        RegionNumber::of_handle(u32::MAX),
        None,
        "beyond the numbers"
    );
}

#[test]
fn open__by_name_with_no_more_rights_than_given() {
    let mut exports = Exports::new(1);
    let name = [b'n'; OPTIONS_LEN];
    let (handle, mx) = exports
        .export(span(64), Rights::READ, ExportAs::Name(name))
        .unwrap();
    assert_eq!(exports.open(&name, Rights::READ), Ok((handle, mx, 64)));
    assert_eq!(exports.open(&name, Rights::ALL), Err(Reason::Denied));
    assert_eq!(
        exports.open(&[0; OPTIONS_LEN], Rights::READ),
        Err(Reason::Unknown)
    );
    let twice = exports.export(span(8), Rights::READ, ExportAs::Name(name));
    assert_eq!(twice, Err(PostError::NameTaken));
    exports.revoke(handle);
    assert_eq!(exports.open(&name, Rights::READ), Err(Reason::Unknown));
}

#[test]
fn export__full_is_an_error() {
    let mut exports = Exports::new(1);
    let name = |n: usize| {
        let mut name = [0; OPTIONS_LEN];
        name[..8].copy_from_slice(&n.to_be_bytes());
        name
    };
    let handles: Vec<_> = (0..MAX_EXPORTS)
        .map(|n| {
            exports
                .export(span(n as u64), Rights::READ, ExportAs::Name(name(n)))
                .unwrap()
        })
        .collect();
    let more = exports.export(span(8), Rights::READ, ExportAs::Handle);
    assert_eq!(more, Err(PostError::TooManyExports));
    for (n, (handle, mx)) in handles.into_iter().enumerate() {
        let len = n as u64;
        assert_eq!(exports.open(&name(n), Rights::READ), Ok((handle, mx, len)));
        let found = check(&exports, at(handle, mx, 0), len, Rights::READ);
        assert_eq!(found, Ok(span(len)));
        assert_eq!(exports.revoke(handle), Some(span(len)));
        exports.assert_bounded();
    }
    assert!(exports.regions.is_empty() && exports.names.is_empty());
}
