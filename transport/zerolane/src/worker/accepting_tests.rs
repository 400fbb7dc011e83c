//! Tests that an endpoint forgets revoked exports and closed connections, and says why it failed.

#![allow(non_snake_case)]
use super::*;
use crate::worker::pending::Pending;
use std::io;
use zerolane_lane::{ExportedRegion, Process, Region};

fn exported() -> ExportedRegion {
    ExportedRegion::new(Region::anonymous(8).expect("memory")).expect("page-aligned")
}

#[test]
fn export__what_was_revoked_leaves_no_more_than_what_lives() {
    let mut accepting = Accepting::default();
    let name = RegionName::default();
    for _ in 0..10_000 {
        let memory = exported();
        accepting.export(name, memory.exporting(), Rights::ALL);
        assert_eq!(memory.revoke().expect("the only handle").len(), 8);
        assert!(accepting.exports.len() <= 1, "{}", accepting.exports.len());
    }
    let live: Vec<_> = (0..100).map(|_| exported()).collect();
    for memory in &live {
        accepting.export(name, memory.exporting(), Rights::ALL);
    }
    for _ in 0..10_000 {
        let memory = exported();
        accepting.export(name, memory.exporting(), Rights::ALL);
        let _ = memory.revoke();
        assert!(accepting.exports.len() <= 2 * live.len() + 1);
    }
    let kept = accepting.exports.iter().filter(|it| !it.1.is_revoked());
    assert_eq!(kept.count(), live.len());
}

#[test]
fn fail__tells_who_waits_the_kind_of_the_error() {
    let mut accepting = Accepting::default();
    let (claim, pending) = Pending::new(Process::current(), None);
    accepting.await_next(claim);
    accepting.fail(&io::Error::from(io::ErrorKind::PermissionDenied).into());
    let error = io::Error::from(pending.wait().expect_err("it failed").error);
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}
