//! Tests that exported memory can be accessed, revoked and returned.
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
    let exporter = Arc::new(Exporter::default());
    assert!(second.is_revoked() && !second.window().join(&exporter, 7));
    drop(first);
    let region = second.revoke().unwrap();
    assert_eq!(&region[3..6], b"abc");
}

#[test]
fn exporting__keeps_the_bytes_until_they_are_revoked() {
    let region = exported(64);
    region.write(0, b"abc");
    let exporting = region.exporting();
    drop(region);
    // Still exported: it was not revoked.
    assert!(!exporting.is_revoked() && exporting.0.state().region.is_some());

    let region = exported(64);
    let exporting = region.exporting();
    assert_eq!(region.revoke().expect("the only handle").len(), 64);
    assert!(exporting.is_revoked());

    let first = exported(64);
    let (second, exporting) = (first.clone(), first.exporting());
    drop(first.revoke().unwrap_err());
    assert!(exporting.0.state().region.is_some(), "in use");
    drop(second);
    assert!(exporting.0.state().region.is_none(), "kept for nobody");
}

/// A peer that has mapped the memory.
#[derive(Debug, Default)]
struct Mapped {
    ended: AtomicBool,
}

impl Loan for Mapped {
    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// Memory that is wanted back is copied, because the peer may still write to its mapping. Memory that is not needs no
/// copy.
#[test]
fn end__of_lent_memory_takes_none_and_frees_it() {
    for (end, created) in [(false, 1), (true, 0)] {
        let region = Region::memfd(1 << 16).expect("memory");
        let exported = ExportedRegion::new(region).expect("page-aligned");
        let loan = Arc::new(Mapped::default());
        let lent: Arc<dyn Loan> = loan.clone();
        assert!(exported.window().lend(&lent));
        let window = Arc::downgrade(exported.window());
        crate::memory::memfd::seam::take();
        match end {
            true => exported.end(),
            false => assert_eq!(exported.revoke().expect("the only handle").len(), 1 << 16),
        }
        assert_eq!(crate::memory::memfd::seam::take(), created);
        assert!(loan.ended.load(Ordering::SeqCst) && window.upgrade().is_none());
    }
}

#[test]
fn end__of_one_handle_leaves_the_bytes_to_the_others() {
    let first = exported(64);
    let (second, exporting) = (first.clone(), first.exporting());
    first.write(0, b"abc");
    first.end();
    assert!(exporting.is_revoked() && exporting.0.state().region.is_some());
    let mut bytes = [0; 3];
    second.read(0, &mut bytes);
    assert_eq!(&bytes, b"abc");
    drop(second);
    assert!(exporting.0.state().region.is_none(), "kept for nobody");
}

#[test]
fn revoke__tells_all_that_export_it_once() {
    let region = exported(64);
    let exporters: Vec<_> = (0..3).map(|_| Arc::new(Exporter::default())).collect();
    for (handle, exporter) in (1..).zip(&exporters) {
        assert!(region.window().join(exporter, handle));
        assert!(region.window().join(exporter, 10 * handle));
    }
    region.window().part(&exporters[1], 2);
    assert!(!exporters[0].grace.enter());
    exporters[0].grace.leave();
    let other = region.clone();
    region.revoke().unwrap_err();
    other.revoke().unwrap();
    for (exporter, expected) in exporters.iter().zip([&[1, 10][..], &[20], &[3, 30]]) {
        assert!(exporter.grace.enter());
        let mut revoked = exporter.take_revoked();
        revoked.sort_unstable();
        assert_eq!(revoked, expected);
        exporter.grace.leave();
        assert!(!exporter.grace.enter() && exporter.take_revoked().is_empty());
        exporter.grace.leave();
    }
}

#[test]
fn revoke__waits_for_turns_in_progress() {
    let region = exported(64);
    let (window, exporter) = (Arc::clone(region.window()), Arc::new(Exporter::default()));
    assert!(window.join(&exporter, 1) && !exporter.grace.enter());
    let left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two threads, each with a handle: both wait.
        let revoked: Vec<_> = [region.clone(), region]
            .into_iter()
            .map(|region| {
                scope.spawn(|| {
                    let revoked = region.revoke();
                    assert!(left.load(Ordering::SeqCst), "revoked while a lane was in");
                    revoked.map_or(0, |region| region.len())
                })
            })
            .collect();
        while !window.is_revoked() {
            std::thread::yield_now();
        }
        // Long enough for either to return if it did not wait.
        (0..1000).for_each(|_| std::thread::yield_now());
        left.store(true, Ordering::SeqCst);
        exporter.grace.leave();
        let lens = revoked.into_iter().map(|it| it.join().unwrap());
        assert!(lens.sum::<usize>() <= 64);
    });
    assert_eq!(exporter.take_revoked(), [1]);
}
