//! Tests that TEST UNIT READY, REQUEST SENSE and START STOP UNIT behave as specified.

use zerolane_block::cdb::{Command, Form};
use zerolane_block::sense::{Code, Key, Sense};

use crate::support::{BLOCK, Rig, extent, read, write};

#[test]
fn request_sense__has_nothing_to_say_in_either_format() {
    let mut rig = Rig::new();
    for (descriptor, length) in [(false, 18), (true, 8)] {
        let command = Command::RequestSense {
            descriptor,
            allocation: 252,
        };
        let data = rig.good(&command, &[], 252);
        assert_eq!(data.len(), length);
        assert_eq!(Sense::parse(&data), Ok(Sense::NONE));
        let command = Command::RequestSense {
            descriptor,
            allocation: 4,
        };
        assert_eq!(rig.run(&command, &[], 252).0.data, data[..4]);
    }
}

#[test]
fn start_stop__a_stopped_unit_is_not_ready_until_it_is_started() {
    let mut rig = Rig::new();
    rig.write(0, &[3; BLOCK]);
    for no_flush in [false, true] {
        let stop = Command::StartStop {
            immediate: false,
            start: false,
            no_flush,
        };
        rig.good(&stop, &[], 0);
        let not_ready = Sense::new(Key::NotReady, Code::STOPPED);
        let synchronize = Command::SynchronizeCache {
            form: Form::Ten,
            extent: extent(0, 0),
            immediate: false,
        };
        for command in [
            Command::TestUnitReady,
            read(extent(0, 1)),
            write(extent(0, 1)),
            synchronize,
        ] {
            assert_eq!(rig.fails(&command, &[1; BLOCK], 0), not_ready);
        }
        rig.good(
            &Command::Inquiry {
                page: None,
                allocation: 36,
            },
            &[],
            36,
        );
        rig.good(
            &Command::StartStop {
                immediate: true,
                start: true,
                no_flush: false,
            },
            &[],
            0,
        );
        assert_eq!(rig.read(extent(0, 1)), [3; BLOCK]);
    }
}

#[test]
fn start_stop__refuses_to_eject_and_power_conditions() {
    let mut rig = Rig::new();
    let response = rig.bytes(&[0x1b, 0, 0, 0, 2, 0], &[], 0).0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(4, 1)));
    let response = rig.bytes(&[0x1b, 0, 0, 0, 0x31, 0], &[], 0).0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(4, 7)));
}
