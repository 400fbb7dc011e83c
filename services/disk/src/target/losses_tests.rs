//! Tests that each loss is reported once, and gives the next process another number.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicBool, Ordering};

use zerolane_block::store::{MemoryStore, Run};

use super::*;

/// A disk that fails when it is told to.
#[derive(Debug)]
struct Failing(MemoryStore, AtomicBool);

impl Store for Failing {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.0.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn has_failed(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.0.unmap(at, bytes)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        self.0.run(at)
    }
}

fn lineage(record: &Path) -> u64 {
    let losses = Losses::new(Some(record.to_owned()));
    losses.lineage().unwrap()
}

#[test]
fn losses__each_is_told_once_and_gives_the_next_process_another_number() {
    let directory = tempfile::tempdir().unwrap();
    // The directory is made.
    let record = directory.path().join("zerolane").join("lost_writes");
    let boot = Losses::new(None).lineage().unwrap();
    assert_eq!(lineage(&record), boot);
    let mut losses = Losses::new(Some(record.clone()));
    let stores = [0, 1].map(|number| {
        let store = Arc::new(Failing(MemoryStore::new(512), AtomicBool::new(false)));
        let lun = Lun::new(number).unwrap();
        losses.watch(lun, &format!("disk{number}"), store.clone());
        store
    });
    assert_eq!(losses.look(), []);
    assert_eq!(lineage(&record), boot, "nothing was lost");
    let mut known = vec![boot];
    for number in [1, 0] {
        stores[number].1.store(true, Ordering::SeqCst);
        let lost = ServerEvent::Lost {
            unit: format!("disk{number}"),
            recorded: Ok(()),
        };
        assert_eq!(losses.look(), [lost]);
        assert_eq!(losses.look(), []);
        let next = lineage(&record);
        assert!(!known.contains(&next));
        assert_eq!(lineage(&record), next, "it stays the same");
        known.push(next);
    }
}

#[test]
fn losses__a_record_of_another_boot_means_nothing_and_one_that_says_nothing_the_worst() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let boot = Losses::new(None).lineage().unwrap();
    fs::write(&record, format!("{:016x} {:016x}\n", boot ^ 1, 7)).unwrap();
    assert_eq!(lineage(&record), boot);
    fs::write(&record, format!("{boot:016x} {:016x}\n", 7)).unwrap();
    assert_eq!(lineage(&record), 7);
    for bad in [
        String::new(),
        "words".into(),
        format!("{boot:016x} 7\n"),
        format!("{boot:016x} {:016x}", 7),
    ] {
        fs::write(&record, bad).unwrap();
        assert!(![boot, 7].contains(&lineage(&record)));
    }
}

#[test]
fn losses__that_cannot_be_written_down_are_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, []).unwrap();
    for record in [None, Some(file.join("lost_writes"))] {
        let mut losses = Losses::new(record);
        let store = Arc::new(Failing(MemoryStore::new(512), AtomicBool::new(true)));
        losses.watch(Lun::new(0).unwrap(), "disk0", store);
        let news = losses.look();
        assert!(
            matches!(&news[..], [ServerEvent::Lost { recorded, .. }] if recorded.is_err()),
            "{news:?}"
        );
    }
}

/// The file system that the disk is on is often the record's, too, and has room again later.
#[test]
fn losses__that_could_not_be_written_down_are_when_they_can_be() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, []).unwrap();
    let record = file.join("lost_writes");
    let boot = Losses::new(None).lineage().unwrap();
    let mut losses = Losses::new(Some(record.clone()));
    for number in 0..2 {
        let store = Arc::new(Failing(MemoryStore::new(512), AtomicBool::new(true)));
        let lun = Lun::new(number).unwrap();
        losses.watch(lun, &format!("disk{number}"), store);
        assert_eq!(losses.look().len(), 1, "each is told");
    }
    assert_eq!(losses.look(), [], "it is told once");
    fs::remove_file(&file).unwrap();
    let lost = |number| ServerEvent::Lost {
        unit: format!("disk{number}"),
        recorded: Ok(()),
    };
    assert_eq!(losses.look(), [0, 1].map(lost));
    assert_ne!(lineage(&record), boot);
    fs::remove_file(&record).unwrap();
    assert_eq!(losses.look(), [], "it is done");
    assert!(!record.exists());
}

/// A flush may fail after the unit was removed: the store is watched while it is in use, and released then.
#[test]
fn losses__of_a_unit_that_was_taken_away_are_told_until_nobody_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("lost_writes");
    let mut losses = Losses::new(Some(record.clone()));
    let [ends, fails] = [0, 1].map(|number| {
        let store = Arc::new(Failing(MemoryStore::new(512), AtomicBool::new(false)));
        let lun = Lun::new(number).unwrap();
        losses.watch(lun, &format!("disk{number}"), store.clone());
        losses.release(lun);
        store
    });
    assert_eq!(losses.look(), []);
    assert_eq!(Arc::strong_count(&ends), 2, "somebody has it");
    drop(ends);
    fails.1.store(true, Ordering::SeqCst);
    drop(fails);
    let lost = ServerEvent::Lost {
        unit: "disk1".into(),
        recorded: Ok(()),
    };
    assert_eq!(losses.look(), [lost]);
    assert!(losses.sound.is_empty(), "no file is kept open");
    assert!(record.exists());
}
