//! Describes an image by sending it an initiator's requests.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use zerolane_block::cdb::Command;
use zerolane_block::report::VITAL_PAGES;
use zerolane_block::store::{FileStore, Store};
use zerolane_block::{
    Access, Attribute, Disk, Identity, Initiator, Lun, NexusId, Request, Status, Target, execute,
};

use super::serve::unreachable;

/// An image, described as a disk.
#[derive(Debug, Serialize)]
pub(super) struct Image {
    image: String,
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) blocks: u64,
    /// Bytes after the last whole block.
    pub(super) unreachable_bytes: u64,
    pub(super) mapped_bytes: u64,
    /// The number of all mapped ranges.
    pub(super) mapped_ranges: u64,
    /// The first of them.
    pub(super) ranges: Vec<Range>,
    pub(super) serial: String,
    pub(super) naa: String,
    pub(super) identity_from: &'static str,
    /// Hexadecimal digits.
    pub(super) inquiry: String,
    pub(super) vital_product_data: Vec<Page>,
}

/// A mapped range, bytes.
#[derive(Debug, Serialize)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A page of vital product data.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    pub(super) page: String,
    pub(super) name: &'static str,
    /// Hexadecimal digits.
    pub(super) data: String,
}

/// The name of a page.
fn name(page: u8) -> &'static str {
    match page {
        0x00 => "supported pages",
        0x80 => "unit serial number",
        0x83 => "device identification",
        0xb0 => "block limits",
        0xb1 => "block device characteristics",
        0xb2 => "logical block provisioning",
        _ => "",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Image {
    /// Describes `path`: in blocks of `block_bytes` (default: those in which it is served), with the identity derived
    /// from `serial` if given, and with at most `most` ranges.
    pub(super) fn of(
        path: &Path,
        block_bytes: Option<u32>,
        serial: Option<&str>,
        most: usize,
    ) -> Result<Image> {
        let store = FileStore::open(path, true)?;
        let kind = if store.is_device() {
            "block device"
        } else {
            "file"
        };
        let (identity, identity_from) = match serial {
            Some(name) => (Identity::named(name), "--serial"),
            None => (Identity::of_image(path)?, "machine and path"),
        };
        let block_bytes = block_bytes.unwrap_or_else(|| Disk::block_bytes_of(&store));
        let disk = Disk::of(&store, block_bytes, identity)?;
        // It is opened read-only here, but would be served for writing.
        let disk = Disk {
            read_only: false,
            ..disk
        };
        let mut image = Image {
            image: path.display().to_string(),
            kind,
            bytes: store.bytes(),
            block_bytes,
            blocks: disk.geometry.blocks,
            unreachable_bytes: unreachable(store.bytes(), block_bytes),
            mapped_bytes: 0,
            mapped_ranges: 0,
            ranges: Vec::new(),
            serial: identity.to_string(),
            naa: hex(&identity.naa()),
            identity_from,
            inquiry: String::new(),
            vital_product_data: Vec::new(),
        };
        image.look_for_holes(&store, most)?;
        image.ask(disk, store)?;
        Ok(image)
    }

    fn look_for_holes(&mut self, store: &dyn Store, most: usize) -> Result<()> {
        let mut offset = 0;
        while offset < self.bytes {
            let run = store.run(offset).context("looking for holes")?;
            let bytes = run.bytes;
            if run.mapped {
                self.mapped_bytes += bytes;
                self.mapped_ranges += 1;
                if self.ranges.len() < most {
                    self.ranges.push(Range { offset, bytes });
                }
            }
            offset += bytes;
        }
        Ok(())
    }

    /// Asks what an initiator asks, and stores the answers.
    fn ask(&mut self, disk: Disk, store: FileStore) -> Result<()> {
        let mut target = Target::new();
        let lun = Lun::new(0).context("no LUN 0")?;
        target.add_unit(lun, disk, Arc::new(store))?;
        let name = Initiator::named(b"zerolane disk info").context("no name")?;
        let nexus = target.attach(name, Access::default())?;
        self.inquiry = hex(&inquire(&mut target, nexus, lun, None)?);
        for page in VITAL_PAGES {
            self.vital_product_data.push(Page {
                page: format!("{page:02x}"),
                name: self::name(page),
                data: hex(&inquire(&mut target, nexus, lun, Some(page))?),
            });
        }
        Ok(())
    }
}

fn inquire(target: &mut Target, nexus: NexusId, lun: Lun, page: Option<u8>) -> Result<Vec<u8>> {
    const ROOM: u16 = 1024;
    let command = Command::Inquiry {
        page,
        allocation: ROOM,
    };
    let cdb = command.cdb().context("no INQUIRY")?;
    let request = Request {
        tag: 0,
        lun: lun.encode(),
        attribute: Attribute::Simple,
        cdb: cdb.as_bytes(),
        data_in: ROOM.into(),
        data_out: 0,
        in_capsule: false,
    };
    let response = execute(target, nexus, &request, &[], &mut [0; ROOM as usize])?;
    match response {
        Some(response) if response.status == Status::Good => Ok(response.data),
        other => bail!("INQUIRY failed: {other:?}"),
    }
}
