//! Tests that keys, read-only units and missing units limit what an initiator may do.

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;
use zerolane::keys::{Access, AllowFile};
use zerolane::security::{Identity, Trust};
use zerolane::{Options, Security};
use zerolane_block::cdb::{Command, ReserveOut};
use zerolane_block::sense::{Code, Key};
use zerolane_block::sst::{ManagementUnit, Outcome};
use zerolane_block::{Answer, Function};
use zerolane_disk::initiator::{self, DisplaySense, Error, Queue};
use zerolane_disk::target::Settings;

use super::support::raw::Raw;
use super::support::{self, Served, Shown, memory};

const DISK: u64 = 1 << 20;

fn code(error: &Error) -> Option<(Key, Code)> {
    match error {
        Error::Sense(DisplaySense(sense)) => Some((sense.key, sense.code)),
        _ => None,
    }
}

/// A target of these units for the keys of this list, which is looked at while its directory is there.
fn served_to(list: &str, units: Vec<Shown>) -> (Served, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("allowed_keys");
    fs::write(&path, list).unwrap();
    let list = Arc::new(AllowFile::load(&path, None).unwrap());
    let settings = Settings {
        allowed: Access::Listed(Arc::clone(&list)),
        ..Settings::default()
    };
    let options = Options::default().with(|it| {
        it.security = Security {
            trust: list as Arc<dyn Trust>,
            ..Security::default()
        }
    });
    (Served::with(units, settings, options), directory)
}

#[test]
fn rights__a_read_only_unit_is_not_written() {
    let mut unit = memory(DISK);
    unit.read_only = true;
    let store = Arc::clone(&unit.store);
    let served = Served::new(vec![unit]);
    let queue = support::open(served.address, 0, initiator::Options::default());
    assert!(queue.unit().read_only);
    let failed = support::write(&queue, 0, &[1; 512]).unwrap_err();
    assert_eq!(
        code(&failed),
        Some((Key::DataProtect, Code::WRITE_PROTECTED))
    );
    let mut found = [1; 512];
    store.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
    assert_eq!(support::read(&queue, 0, 512).unwrap(), [0; 512]);
}

#[test]
fn rights__a_unit_that_there_is_not_cannot_be_opened() {
    let served = Served::new(vec![memory(DISK)]);
    let dial = support::dial(served.address, support::of(&support::identity()));
    let options = initiator::Options::default();
    let failed = Queue::open(dial, support::lun(5), options).err().unwrap();
    let absent = (Key::IllegalRequest, Code::UNIT_NOT_SUPPORTED);
    assert_eq!(code(&failed), Some(absent));
}

#[test]
fn rights__a_key_sees_its_units_and_writes_if_it_may() {
    let (reader, writer, unlisted) = (
        support::identity(),
        support::identity(),
        support::identity(),
    );
    let list = format!(
        "{} read regions=disk1\n{} read-write\n{} read-write below=files\n",
        reader.public(),
        writer.public(),
        unlisted.public()
    );
    let (served, _directory) = served_to(&list, vec![memory(DISK), memory(DISK / 2)]);
    let units = |of: &Arc<Identity>| {
        let dial = support::dial(served.address, support::of(of));
        let units = Queue::units(dial, std::time::Duration::from_secs(20)).unwrap();
        let shown = units.iter().map(|it| (it.lun, it.bytes(), it.read_only));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(units(&reader), [(1, DISK / 2, true)]);
    assert_eq!(units(&writer), [(0, DISK, false), (1, DISK / 2, false)]);
    assert_eq!(units(&unlisted), []);
    let open = |of: &Arc<Identity>, lun| {
        let dial = support::dial(served.address, support::of(of));
        Queue::open(dial, support::lun(lun), initiator::Options::default())
    };
    let (reads, writes) = (open(&reader, 1).unwrap(), open(&writer, 1).unwrap());
    support::write(&writes, 512, &[9; 512]).unwrap();
    assert_eq!(support::read(&reads, 512, 512).unwrap(), [9; 512]);
    let failed = support::write(&reads, 512, &[1; 512]).unwrap_err();
    assert_eq!(
        code(&failed),
        Some((Key::DataProtect, Code::WRITE_PROTECTED))
    );
    let failed = open(&reader, 0).err().unwrap();
    let absent = (Key::IllegalRequest, Code::UNIT_NOT_SUPPORTED);
    assert_eq!(code(&failed), Some(absent));
    assert_eq!(support::read(&writes, 512, 512).unwrap(), [9; 512]);
}

/// A key that reads is answered, and what would disturb others is not done.
#[test]
fn rights__a_key_that_reads_disturbs_no_writer() {
    let (reader, writer) = (support::identity(), support::identity());
    let list = format!("{} read\n{} read-write\n", reader.public(), writer.public());
    let (served, _directory) = served_to(&list, vec![memory(DISK)]);
    let dial = support::dial(served.address, support::of(&writer));
    let writes = Queue::open(dial, support::lun(0), initiator::Options::default()).unwrap();
    let mut reads = Raw::open(served.address, &support::of(&reader));
    reads.settle();
    let register = Command::PersistentReserveOut {
        action: ReserveOut::RegisterAndIgnore,
        scope: 0,
        kind: 0,
        parameter_bytes: 24,
    };
    let stop = Command::StartStop {
        immediate: true,
        start: false,
        no_flush: true,
    };
    for (command, list) in [(register, &[7; 24][..]), (stop, &[])] {
        let (outcome, _) = reads.call(&command, list, 0);
        let Outcome::Response {
            sense: Some(sense), ..
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        let protected = (Key::DataProtect, Code::WRITE_PROTECTED);
        assert_eq!((sense.key, sense.code), protected);
    }
    for (function, expected) in [
        (Function::ClearTaskSet, Answer::Rejected),
        (Function::ResetUnit, Answer::Rejected),
        (Function::AbortTaskSet, Answer::Complete),
    ] {
        let unit = ManagementUnit {
            slot: 0,
            tag: 1000,
            lun: support::lun(0).encode(),
            function,
        };
        reads.send(&unit.encode());
        assert_eq!(reads.status().outcome, Outcome::Managed(expected));
    }
    support::write(&writes, 0, &[9; 512]).unwrap();
    let failed = Queue::repairs(&writes);
    assert_eq!((failed.reconnects, failed.repeats), (0, 0));
}
