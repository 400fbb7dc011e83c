//! Builds mode parameters (SPC-4, 7.5; SBC-3, 6.4). An initiator can neither change nor save any.

use crate::cdb::{Form, PageControl};
use crate::disk::Disk;
use crate::sense::{Code, Sense};

/// Codes of the pages.
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// DPO and FUA are looked at.
const DPO_FUA: u8 = 0x10;
const WRITE_PROTECTED: u8 = 0x80;

/// What MODE SENSE asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeQuery {
    pub(crate) form: Form,
    pub(crate) no_descriptors: bool,
    pub(crate) long_lba: bool,
    pub(crate) control: PageControl,
    pub(crate) page: u8,
    pub(crate) subpage: u8,
}

/// The mode parameters asked for.
///
/// # Errors
/// The page is not supported, or saved values are asked for.
pub(crate) fn sense(query: &ModeQuery, disk: &Disk, read_only: bool) -> Result<Vec<u8>, Sense> {
    if query.control == PageControl::Saved {
        return Err(Sense::illegal(Code::SAVING_NOT_SUPPORTED));
    }
    let pages = pages(query, disk)?;
    let descriptor = match (query.no_descriptors, query.long_lba) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(disk),
        (false, true) => long_descriptor(disk),
    };
    let protection = if read_only { WRITE_PROTECTED } else { 0 };
    let specific = DPO_FUA | protection;
    let content = descriptor.len() + pages.len();
    let mut bytes = match query.form {
        Form::Six => vec![(content + 3) as u8, 0, specific, descriptor.len() as u8],
        _ => {
            let [high, low] = ((content + 6) as u16).to_be_bytes();
            let long = u8::from(query.long_lba);
            vec![high, low, 0, specific, long, 0, 0, descriptor.len() as u8]
        }
    };
    bytes.extend(descriptor);
    bytes.extend(pages);
    Ok(bytes)
}

fn pages(query: &ModeQuery, disk: &Disk) -> Result<Vec<u8>, Sense> {
    if !matches!(query.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::cdb_byte(3));
    }
    let mut pages = Vec::new();
    if matches!(query.page, CACHING | ALL_PAGES) {
        pages.extend(caching(query.control, disk));
    }
    if matches!(query.page, CONTROL | ALL_PAGES) {
        pages.extend(control(query.control));
    }
    if pages.is_empty() {
        return Err(Sense::cdb_bit(2, 5));
    }
    Ok(pages)
}

fn caching(control: PageControl, disk: &Disk) -> Vec<u8> {
    const WRITE_CACHE: u8 = 0x04;
    let mut page = vec![0; 20];
    page[0] = CACHING;
    page[1] = 18;
    if control != PageControl::Changeable && disk.write_cache {
        page[2] = WRITE_CACHE;
    }
    page
}

/// Commands are done in any order; fixed sense data; aborted commands of others end without a status, and an
/// attention tells.
fn control(control: PageControl) -> Vec<u8> {
    const UNRESTRICTED: u8 = 0x10;
    let mut page = vec![0; 12];
    page[0] = CONTROL;
    page[1] = 10;
    if control != PageControl::Changeable {
        page[3] = UNRESTRICTED;
    }
    page
}

fn short_descriptor(disk: &Disk) -> Vec<u8> {
    let blocks = u32::try_from(disk.geometry.blocks).unwrap_or(u32::MAX);
    let mut bytes = blocks.to_be_bytes().to_vec();
    bytes.extend(disk.geometry.block_bytes.to_be_bytes());
    bytes
}

fn long_descriptor(disk: &Disk) -> Vec<u8> {
    let mut bytes = disk.geometry.blocks.to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(disk.geometry.block_bytes.to_be_bytes());
    bytes
}
