//! Tests that MODE SENSE returns the same pages in both forms.

use zerolane_block::cdb::{Command, Form, PageControl};
use zerolane_block::sense::{Code, Sense};

use crate::support::{BLOCK, BLOCKS, Rig, illegal};

fn sense(form: Form, control: PageControl, page: u8, subpage: u8) -> Command {
    Command::ModeSense {
        form,
        no_descriptors: false,
        long_lba: false,
        control,
        page,
        subpage,
        allocation: 255,
    }
}

#[test]
fn mode_sense__both_forms_have_the_same_pages() {
    let mut rig = Rig::new();
    let six = rig.good(&sense(Form::Six, PageControl::Current, 0x3f, 0), &[], 255);
    assert_eq!((usize::from(six[0]) + 1, six[1], six[3]), (six.len(), 0, 8));
    assert_eq!(six[2], 0x10, "DPO and FUA, and it may be written");
    assert_eq!(six[4..8], (BLOCKS as u32).to_be_bytes());
    assert_eq!(six[8..12], (BLOCK as u32).to_be_bytes());
    let ten = rig.good(&sense(Form::Ten, PageControl::Current, 0x3f, 0), &[], 255);
    assert_eq!(usize::from(ten[1]) + 2, ten.len());
    assert_eq!(ten[6..8], [0, 8]);
    assert_eq!(ten[16..], six[12..]);
    assert_eq!(six[12..14], [0x08, 18], "caching");
    assert_eq!(six[14] & 0x04, 4, "WCE");
    assert_eq!(six[32..34], [0x0a, 10], "control");
    assert_eq!(six[35] >> 4, 1, "unrestricted reordering");
}

#[test]
fn mode_sense__long_descriptors_and_none() {
    let mut rig = Rig::new();
    let mut command = sense(Form::Ten, PageControl::Current, 0x08, 0);
    let Command::ModeSense { long_lba, .. } = &mut command else {
        unreachable!()
    };
    *long_lba = true;
    let data = rig.good(&command, &[], 255);
    assert_eq!((data[4], data[7], data.len()), (1, 16, 8 + 16 + 20));
    assert_eq!(data[8..16], BLOCKS.to_be_bytes());
    assert_eq!(data[20..24], (BLOCK as u32).to_be_bytes());
    let Command::ModeSense { no_descriptors, .. } = &mut command else {
        unreachable!()
    };
    *no_descriptors = true;
    let data = rig.good(&command, &[], 255);
    assert_eq!((data[7], data.len()), (0, 8 + 20));
}

#[test]
fn mode_sense__nothing_is_changeable_and_defaults_are_current() {
    let mut rig = Rig::new();
    let data = rig.good(
        &sense(Form::Six, PageControl::Changeable, 0x3f, 0xff),
        &[],
        255,
    );
    assert_eq!(data[12..14], [0x08, 18]);
    assert!(data[14..32].iter().all(|&it| it == 0));
    assert!(data[34..].iter().all(|&it| it == 0));
    let current = rig.good(&sense(Form::Six, PageControl::Current, 0x3f, 0), &[], 255);
    let default = rig.good(&sense(Form::Six, PageControl::Default, 0x3f, 0), &[], 255);
    assert_eq!(current, default);
    let refused = rig.fails(&sense(Form::Six, PageControl::Saved, 0x3f, 0), &[], 255);
    assert_eq!(refused, illegal(Code::SAVING_NOT_SUPPORTED));
}

#[test]
fn mode_sense__unknown_pages_are_an_invalid_field() {
    let mut rig = Rig::new();
    for page in (0..0x3f).filter(|it| ![0x08, 0x0a].contains(it)) {
        let refused = rig.fails(&sense(Form::Six, PageControl::Current, page, 0), &[], 255);
        assert_eq!(refused, Sense::cdb_bit(2, 5), "{page:02x}h");
    }
    let refused = rig.fails(&sense(Form::Six, PageControl::Current, 0x0a, 1), &[], 255);
    assert_eq!(refused, Sense::cdb_byte(3));
}
