//! Tests that extended attributes are read and set as requested, and no others.

#![allow(non_snake_case)]

use super::*;
use rustix::fd::AsFd;
use std::fs::File;

const XATTRS: Attributes = Attributes {
    xattrs: true,
    ..Attributes::NONE
};
const ACLS: Attributes = Attributes {
    acls: true,
    ..Attributes::NONE
};

#[test]
fn is_asked_for__by_name() {
    for (name, xattrs, acls) in [
        (&b"user.x"[..], true, false),
        (b"trusted.x", true, false),
        (b"security.capability", true, false),
        (b"system.posix_acl_access", false, true),
        (b"system.posix_acl_default", false, true),
        (b"system.nfs4_acl", false, false),
        (b"user.zerolane.unfinished", false, false),
        (b"user.zerolane.temporary", false, false),
        (b"user.a\0b", false, false),
        (&[b'x'; 256], false, false),
    ] {
        assert_eq!(is_asked_for(name, XATTRS), xattrs, "{name:?}");
        assert_eq!(is_asked_for(name, ACLS), acls, "{name:?}");
        assert!(!is_asked_for(name, Attributes::NONE));
    }
}

#[test]
fn add__bounded() {
    let mut extended = Extended::default();
    let too_long = vec![0; ATTRIBUTE_BYTES + 1];
    assert!(
        Extended::default()
            .add(b"user.a".to_vec(), too_long)
            .is_none()
    );
    for number in 0..ATTRIBUTES_OF_FILE {
        let name = format!("user.{number}").into_bytes();
        extended.add(name, Vec::new()).unwrap();
    }
    assert!(extended.add(b"user.more".to_vec(), Vec::new()).is_none());
    let mut extended = Extended::default();
    let half = vec![0; ATTRIBUTES_BYTES / 2 - 6];
    extended.add(b"user.a".to_vec(), half.clone()).unwrap();
    extended.add(b"user.b".to_vec(), half).unwrap();
    assert!(extended.add(b"user.c".to_vec(), Vec::new()).is_none());
}

#[test]
fn set__what_read_gives_and_nothing_else() {
    let base = tempfile::tempdir().unwrap();
    let make = |name: &str| File::create(base.path().join(name)).unwrap();
    let (one, other) = (make("one"), make("other"));
    let put = |file: &File, name: &str, value: &[u8]| {
        fsetxattr(file.as_fd(), name, value, XattrFlags::empty())
    };
    if put(&one, "user.a", b"A").is_err() {
        return println!("skipped: no attributes here");
    }
    put(&one, "user.empty", b"").unwrap();
    put(&one, "user.zerolane.unfinished", b"1").unwrap();
    put(&other, "user.a", b"another").unwrap();
    put(&other, "user.too-much", b"x").unwrap();
    put(&other, "user.zerolane.temporary", b"stays").unwrap();
    let extended = Extended::read(one.as_fd(), XATTRS).unwrap();
    let list: Vec<_> = extended.iter().collect();
    assert_eq!(list, [(&b"user.a"[..], &b"A"[..]), (b"user.empty", b"")]);
    let wanted = |extended: &Extended, attributes, common_only| Wanted {
        extended: extended.clone(),
        attributes,
        common_only,
    };
    assert_eq!(
        wanted(&extended, XATTRS, false).set(other.as_fd()),
        Ok(vec![])
    );
    assert_eq!(Extended::read(other.as_fd(), XATTRS).unwrap(), extended);
    assert_eq!(names(other.as_fd()).unwrap().len(), 3, "and its own");
    // Nothing is removed of kinds that were not requested.
    let none = Extended::default();
    assert_eq!(wanted(&none, ACLS, false).set(other.as_fd()), Ok(vec![]));
    assert_eq!(Extended::read(other.as_fd(), XATTRS).unwrap(), extended);
    // Attributes that a peer may never set, whatever user runs this.
    let mut more = Extended::default();
    for name in [&b"trusted.t"[..], b"security.capability"] {
        more.add(name.to_vec(), b"v".to_vec()).unwrap();
    }
    let not_kept = wanted(&more, XATTRS, true).set(other.as_fd()).unwrap();
    assert_eq!(not_kept.len(), 2);
    assert!(
        Extended::read(other.as_fd(), XATTRS)
            .unwrap()
            .list
            .is_empty()
    );
}
