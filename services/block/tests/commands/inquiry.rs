//! Tests that INQUIRY and READ CAPACITY describe the disk.

use zerolane_block::Identity;
use zerolane_block::cdb::Command;
use zerolane_block::report::VITAL_PAGES;
use zerolane_block::sense::{Code, Sense};

use crate::support::{BLOCK, BLOCKS, Rig, illegal};

fn vital(rig: &mut Rig, page: u8) -> Vec<u8> {
    let command = Command::Inquiry {
        page: Some(page),
        allocation: 255,
    };
    let data = rig.good(&command, &[], 255);
    let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
    assert_eq!((data[0], data[1], data.len()), (0, page, 4 + length));
    data
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().unwrap())
}

#[test]
fn inquiry__standard_data_is_that_of_a_disk() {
    let mut rig = Rig::new();
    let data = rig.good(
        &Command::Inquiry {
            page: None,
            allocation: 255,
        },
        &[],
        255,
    );
    assert_eq!(data.len(), 96);
    assert_eq!(usize::from(data[4]), data.len() - 5, "additional length");
    assert_eq!((data[0], data[1], data[2], data[3] & 0xf), (0, 0, 6, 2));
    assert_eq!(data[3] & 0x20, 0, "no NormACA");
    assert_eq!(data[7] & 0x02, 2, "CMDQUE");
    assert_eq!(&data[8..36], b"ZEROLANEDISK            0001");
    assert_eq!(data[58..64], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0]);
}

#[test]
fn inquiry__is_cut_to_the_allocation_length() {
    let mut rig = Rig::new();
    for allocation in [0, 1, 5, 36, 95, 96] {
        let data = rig
            .run(
                &Command::Inquiry {
                    page: None,
                    allocation,
                },
                &[],
                255,
            )
            .0;
        assert_eq!(data.data.len(), usize::from(allocation));
    }
    let (response, _) = rig.run(
        &Command::Inquiry {
            page: None,
            allocation: 5,
        },
        &[],
        5,
    );
    assert_eq!(response.data[4], 91, "the length is that of all the data");
}

#[test]
fn inquiry__refuses_a_page_without_EVPD_and_unknown_pages() {
    let mut rig = Rig::new();
    let response = rig.bytes(&[0x12, 0, 0x83, 0, 255, 0], &[], 255).0;
    assert_eq!(response.sense, Some(Sense::cdb_byte(2)));
    let response = rig.bytes(&[0x12, 2, 0, 0, 255, 0], &[], 255).0;
    assert_eq!(
        response.sense,
        Some(Sense::cdb_bit(1, 1)),
        "CMDDT is no more"
    );
    for page in (0..=255).filter(|it| !VITAL_PAGES.contains(it)) {
        let sense = rig.fails(
            &Command::Inquiry {
                page: Some(page),
                allocation: 255,
            },
            &[],
            255,
        );
        assert_eq!(sense, Sense::cdb_byte(2), "{page:02x}h");
    }
}

#[test]
fn inquiry__page_00_lists_the_pages_in_order() {
    let mut rig = Rig::new();
    assert_eq!(
        vital(&mut rig, 0)[4..],
        [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2]
    );
}

#[test]
fn inquiry__pages_80_and_83_tell_which_disk_it_is() {
    let mut rig = Rig::new();
    let identity = Identity::of(&[b"test"]);
    assert_eq!(vital(&mut rig, 0x80)[4..], *identity.to_string().as_bytes());
    let page = vital(&mut rig, 0x83);
    assert_eq!(page[4..8], [1, 3, 0, 8], "binary, NAA");
    assert_eq!(page[8..16], identity.naa());
    assert_eq!(page[8] >> 4, 3, "locally assigned");
    let name = format!("ZEROLANEDISK            {identity}");
    assert_eq!(
        page[16..20],
        [2, 1, 0, name.len() as u8],
        "ASCII, T10 vendor"
    );
    assert_eq!(page[20..20 + name.len()], *name.as_bytes());
    assert_eq!(
        page[20 + name.len()..],
        [1, 0x14, 0, 4, 0, 0, 0, 1],
        "port 1"
    );
}

#[test]
fn identity__differs_for_lists_that_join_to_the_same() {
    assert_ne!(Identity::of(&[b"ab", b"c"]), Identity::of(&[b"a", b"bc"]));
    assert_eq!(Identity::of(&[b"ab"]), Identity::of(&[b"ab"]));
}

#[test]
fn inquiry__page_B0_has_the_limits_in_blocks() {
    let page = vital(&mut Rig::new(), 0xb0);
    assert_eq!(page.len(), 64);
    assert_eq!((page[4], page[5]), (1, 128), "WSNZ, COMPARE AND WRITE");
    assert_eq!(page[6..8], [0, 8], "granularity of transfers");
    assert_eq!(word(&page, 8), 32 << 11, "transfer");
    assert_eq!(word(&page, 12), 1 << 11, "best transfer");
    assert_eq!((word(&page, 20), word(&page, 24)), (1 << 20, 256), "UNMAP");
    assert_eq!((word(&page, 28), word(&page, 32)), (8, 1 << 31), "granules");
    assert_eq!(
        (word(&page, 36), word(&page, 40)),
        (0, 256 << 11),
        "WRITE SAME"
    );
}

#[test]
fn inquiry__pages_B1_and_B2_say_thin_and_not_rotating() {
    let mut rig = Rig::new();
    let page = vital(&mut rig, 0xb1);
    assert_eq!((page.len(), &page[4..6]), (64, &[0, 1][..]));
    assert_eq!(vital(&mut rig, 0xb2)[4..], [0, 0xe4, 2, 0]);
}

#[test]
fn read_capacity__both_say_the_same() {
    let mut rig = Rig::new();
    let ten = rig.good(&Command::ReadCapacity10, &[], 8);
    assert_eq!(word(&ten, 0), BLOCKS as u32 - 1);
    assert_eq!(word(&ten, 4), BLOCK as u32);
    let sixteen = rig.good(&Command::ReadCapacity16 { allocation: 32 }, &[], 32);
    assert_eq!(sixteen[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!(word(&sixteen, 8), BLOCK as u32);
    assert_eq!(sixteen[13] & 0xf, 3, "physical blocks of 4096 bytes");
    assert_eq!(sixteen[14] & 0xc0, 0xc0, "LBPME, LBPRZ");
    for allocation in [0, 1, 8, 31] {
        let data = rig
            .run(&Command::ReadCapacity16 { allocation }, &[], 32)
            .0
            .data;
        assert_eq!(data, sixteen[..allocation as usize]);
    }
}

#[test]
fn read_capacity__refuses_an_address_and_other_service_actions() {
    let mut rig = Rig::new();
    let response = rig.bytes(&[0x25, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[], 8).0;
    assert_eq!(response.sense, Some(Sense::cdb_byte(2)));
    let response = rig.bytes(&[0x25, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 8).0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(8, 0)), "PMI");
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x9e, 0x11);
    let response = rig.bytes(&cdb, &[], 8).0;
    assert_eq!(response.sense, Some(Sense::cdb_bit(1, 4)));
    assert_eq!(
        response.sense.unwrap().code,
        illegal(Code::INVALID_FIELD_IN_CDB).code
    );
}
