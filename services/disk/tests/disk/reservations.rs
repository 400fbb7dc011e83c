//! Tests that the reservation of one initiator keeps another from writing.

use zerolane_block::cdb::{Command, ReserveOut};
use zerolane_block::sst::Outcome;
use zerolane_block::{Lun, Status};
use zerolane_disk::initiator::{Error, Options, Queue};

use super::support::raw::Raw;
use super::support::{self, Served, memory};

const WRITE_EXCLUSIVE: u8 = 1;

/// Has PERSISTENT RESERVE OUT done, with a key of the initiator's and a new one.
pub(crate) fn reserve(raw: &mut Raw, action: ReserveOut, key: u64, new: u64) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&new.to_be_bytes());
    let command = Command::PersistentReserveOut {
        action,
        scope: 0,
        kind: WRITE_EXCLUSIVE,
        parameter_bytes: 24,
    };
    let (outcome, _) = raw.call(&command, &list, 0);
    let good = |it: &Outcome| {
        matches!(
            it,
            Outcome::Response {
                status: Status::Good,
                ..
            }
        )
    };
    assert!(good(&outcome), "{outcome:?}");
}

#[test]
fn reservations__keep_another_initiator_from_writing_until_they_are_released() {
    let served = Served::new(vec![memory(1 << 20)]);
    let holder = support::of(&support::identity());
    let mut raw = Raw::open(served.address, &holder);
    raw.settle();
    let other = support::open(served.address, 0, Options::default());
    support::write(&other, 0, &[1; 512]).unwrap();
    reserve(&mut raw, ReserveOut::Register, 0, 7);
    reserve(&mut raw, ReserveOut::Reserve, 7, 0);
    let failed = support::write(&other, 0, &[2; 512]).unwrap_err();
    assert!(matches!(failed, Error::Reserved), "{failed}");
    assert_eq!(support::read(&other, 0, 512).unwrap(), [1; 512]);
    // The holder writes over another connection: its name is its key.
    let dial = support::dial(served.address, holder);
    let own = Queue::open(dial, Lun::new(0).unwrap(), Options::default()).unwrap();
    support::write(&own, 0, &[3; 512]).unwrap();
    reserve(&mut raw, ReserveOut::Release, 7, 0);
    support::write(&other, 512, &[4; 512]).unwrap();
    assert_eq!(support::read(&other, 0, 1024).unwrap()[..512], [3; 512]);
}
