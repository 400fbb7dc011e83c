#![allow(non_snake_case)]
use super::*;
use crate::sync::Ordering;
use std::sync::atomic::AtomicBool;

fn exported(len: usize) -> ExportedRegion {
    ExportedRegion::new(Region::anonymous(len).unwrap()).unwrap()
}

fn catch(it: impl FnOnce()) -> std::thread::Result<()> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(it))
}

#[test]
fn new__needs_an_aligned_start() {
    let mut region = Region::anonymous(100).unwrap();
    let odd = region.split_off(3);
    let odd = ExportedRegion::new(odd).unwrap_err();
    assert_eq!(odd.len(), 97);
    assert!(ExportedRegion::new(region).is_ok());
}

#[test]
fn read_write__any_bytes_and_none_beyond() {
    let region = exported(21);
    region.write(0, &[1; 21]);
    region.write(5, &[2; 16]);
    let mut all = [0; 21];
    region.read(0, &mut all);
    assert_eq!((&all[..5], &all[5..]), (&[1; 5][..], &[2; 16][..]));
    for (offset, len) in [(0, 22), (21, 1), (usize::MAX, 2), (22, 0)] {
        let beyond = catch(|| region.write(offset, &vec![0; len]));
        assert!(beyond.is_err(), "{len} at {offset}");
    }
    let word = catch(|| {
        region.word(16).load(Ordering::Relaxed);
    });
    assert!(word.is_err(), "the last word is not whole");
}

#[test]
fn revoke__gives_back_when_it_is_the_last_handle() {
    let first = exported(64);
    let second = first.clone();
    first.write(3, b"abc");
    let first = first.revoke().unwrap_err();
    assert!(second.is_revoked() && !second.window().enter());
    drop(first);
    let region = second.revoke().unwrap();
    assert_eq!(&region[3..6], b"abc");
}

#[test]
fn revoke__waits_for_accesses_in_progress() {
    let region = exported(64);
    let window = Arc::clone(region.window());
    assert!(window.enter());
    let left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let revoked = scope.spawn(|| {
            let region = region.revoke().unwrap();
            assert!(left.load(Ordering::SeqCst), "revoked while a lane was in");
            region
        });
        while !window.latch.is_shut() {
            std::thread::yield_now();
        }
        assert!(!window.enter(), "no turn enters any more");
        left.store(true, Ordering::SeqCst);
        window.leave();
        assert_eq!(revoked.join().unwrap().len(), 64);
    });
}
