//! Tests that turns and revocations of exported memory meet correctly.
#![allow(non_snake_case)]
use super::*;
use crate::address::LaneChoice;
use crate::any::AnyLane;
use crate::driver::{Report, Step};
use crate::listener::Listener;
use crate::memory::Region;
use crate::memory::exported::seam;
use crate::options::Options;
use std::time::Duration;
use zerolane_core::limits::MAX_EXPORTS;
use zerolane_core::{WorkFlags, WorkRequest};

type End = Driver<AnyLane>;

/// Turns after which a test fails.
const PATIENCE: usize = 1 << 22;

fn drive(a: &mut End, b: &mut End, done: impl Fn(&End, &End) -> bool) {
    for _ in 0..PATIENCE {
        if done(a, b) {
            return;
        }
        a.turn(Step::Whole).expect("a");
        b.turn(Step::Whole).expect("b");
    }
    panic!("stuck");
}

fn pair() -> (End, End) {
    let options = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options.clone()).unwrap();
    let mut a = crate::any::connect(listener.local_addr(), &options).unwrap();
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn(Step::Whole).expect("asking");
        listener.accept(Some(Duration::from_millis(1))).unwrap()
    });
    let mut b = accepted.expect("asked");
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    (a, b)
}

/// `count` regions of 64 bytes.
fn regions(count: usize) -> Vec<ExportedRegion> {
    let mut rest = Region::anonymous(64 * count).unwrap();
    (0..count)
        .map(|_| {
            let behind = rest.split_off(64);
            ExportedRegion::new(std::mem::replace(&mut rest, behind)).unwrap()
        })
        .collect()
}

fn put(a: &mut End, b: &mut End, place: RemotePlace, bytes: &[u8]) -> crate::driver::Completion {
    let put = WorkRequest::Put {
        place,
        immediate: None,
        flags: WorkFlags::default(),
    };
    let memory = Region::from_vec(bytes.to_vec()).into();
    a.post_source(put, Report::default(), memory).unwrap();
    drive(a, b, |a, _| a.has_completion());
    a.next_completion().unwrap()
}

#[test]
fn turn__touches_no_export_but_what_was_revoked() {
    let (mut a, mut b) = pair();
    let memory = regions(MAX_EXPORTS);
    let mut keys: Vec<_> = memory
        .iter()
        .map(|it| {
            b.export(it.exporting(), Rights::ALL, ExportAs::Handle)
                .unwrap()
                .start
        })
        .collect();
    let more = b.export(memory[0].exporting(), Rights::ALL, ExportAs::Handle);
    assert_eq!(more.unwrap_err(), PostError::TooManyExports);
    seam::take();
    for (index, &key) in keys.iter().enumerate().step_by(9_999) {
        let bytes = index.to_ne_bytes();
        assert!(put(&mut a, &mut b, key, &bytes).result.is_ok());
        let mut there = [0; 8];
        memory[index].read(0, &mut there);
        assert_eq!(there, bytes);
    }
    assert_eq!(seam::take(), 0, "windows touched by turns");
    let mut memory = memory;
    let (last, key) = (memory.pop().unwrap(), keys.pop().unwrap());
    last.revoke().expect("the only handle");
    seam::take();
    assert!(put(&mut a, &mut b, key, &[1; 8]).result.is_err());
    assert_eq!(seam::take(), 1, "but the revoked one");
    b.export(memory[0].exporting(), Rights::ALL, ExportAs::Handle)
        .expect("room again");
}

#[test]
fn export__of_what_is_revoked_is_refused_to_the_peer() {
    let (mut a, mut b) = pair();
    let memory = regions(1).pop().unwrap();
    let other = memory.clone();
    memory.revoke().unwrap_err();
    let key = b
        .export(other.exporting(), Rights::ALL, ExportAs::Handle)
        .unwrap()
        .start;
    let revoked = zerolane_core::TransferError::Refused(zerolane_wire::Reason::Revoked);
    assert_eq!(put(&mut a, &mut b, key, &[1; 8]).result, Err(revoked));
}

#[test]
fn export__under_a_number_that_was_revoked_before_the_next_turn_stays() {
    let (mut a, mut b) = pair();
    let number = zerolane_core::RegionNumber::new(3).unwrap();
    let named = ExportAs::Number(number);
    let mut memory = regions(2);
    let (next, first) = (memory.pop().unwrap(), memory.pop().unwrap());
    b.export(first.exporting(), Rights::ALL, named).unwrap();
    let twice = b.export(next.exporting(), Rights::ALL, named);
    assert_eq!(twice.unwrap_err(), PostError::NumberTaken);
    first.revoke().expect("the only handle");
    b.export(next.exporting(), Rights::ALL, named)
        .expect("free again");
    assert!(put(&mut a, &mut b, number.place(0), &[1; 8]).result.is_ok());
    let mut there = [0; 8];
    next.read(0, &mut there);
    assert_eq!(there, [1; 8]);
}

#[test]
fn drop__of_a_connection_ends_its_exports_alone() {
    let ((mut a, mut b), (c, mut d)) = (pair(), pair());
    let memory = regions(1).pop().unwrap();
    let key = b
        .export(memory.exporting(), Rights::ALL, ExportAs::Handle)
        .unwrap()
        .start;
    d.export(memory.exporting(), Rights::READ, ExportAs::Handle)
        .unwrap();
    drop((c, d));
    assert!(put(&mut a, &mut b, key, &[1; 8]).result.is_ok());
    let region = memory.revoke().expect("the only handle");
    assert_eq!(region[..8], [1; 8]);
}
