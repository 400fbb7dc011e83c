//! Asks a target to describe a unit: its size, block length and features.

use std::time::Duration;

use zerolane_block::Lun;
use zerolane_block::cdb::{Command, Form, PageControl};

use super::error::Error;
use super::link::Link;

/// A unit as its target describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number.
    pub lun: u16,
    /// Length of a block, bytes.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// The unit is read-only.
    pub read_only: bool,
    /// Blocks can be unmapped, and then read as zeros.
    pub thin: bool,
    /// Its serial number, the same wherever it is served.
    pub serial: String,
}

const SERIAL_PAGE: u8 = 0x80;
const ROOM: usize = 4096;

impl Unit {
    /// Length of the unit, bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }

    /// Asks the target, and clears earlier unit attentions.
    pub(super) fn ask(link: &mut Link, lun: Lun, patience: Duration) -> Result<Unit, Error> {
        link.call(lun, &Command::TestUnitReady, 0, patience)?;
        let inquiry = Command::Inquiry {
            page: Some(SERIAL_PAGE),
            allocation: ROOM as u16,
        };
        let page = link.call(lun, &inquiry, ROOM, patience)?;
        let serial = page.get(4..).unwrap_or_default();
        let serial = String::from_utf8_lossy(serial).trim().to_owned();
        let capacity = Command::ReadCapacity16 { allocation: 32 };
        let capacity = link.call(lun, &capacity, 32, patience)?;
        let short = || Error::Protocol("the answer to READ CAPACITY is too short".into());
        let last = capacity.first_chunk().ok_or_else(short)?;
        let block_bytes = capacity.get(8..12).and_then(|it| it.first_chunk());
        let block_bytes = u32::from_be_bytes(*block_bytes.ok_or_else(short)?);
        if !block_bytes.is_power_of_two() || !(512..=4096).contains(&block_bytes) {
            return Err(Error::Protocol(format!("blocks of {block_bytes} bytes")));
        }
        let mode = Command::ModeSense {
            form: Form::Ten,
            no_descriptors: true,
            long_lba: false,
            control: PageControl::Current,
            page: 0x3f,
            subpage: 0,
            allocation: ROOM as u16,
        };
        let mode = link.call(lun, &mode, ROOM, patience)?;
        Ok(Unit {
            lun: lun.number(),
            block_bytes,
            blocks: u64::from_be_bytes(*last).saturating_add(1),
            read_only: mode.get(3).is_some_and(|it| it & 0x80 != 0),
            thin: capacity.get(14).is_some_and(|it| it & 0x80 != 0),
            serial,
        })
    }

    /// The numbers of all units that there are for this initiator.
    pub(super) fn list(link: &mut Link, patience: Duration) -> Result<Vec<Lun>, Error> {
        let command = Command::ReportLuns {
            select: 0,
            allocation: ROOM as u32,
        };
        let zero = Lun::new(0).ok_or(Error::Closed)?;
        let list = link.call(zero, &command, ROOM, patience)?;
        let entries = list.get(8..).unwrap_or_default().chunks_exact(8);
        let lun = |entry: &[u8]| {
            let entry: [u8; 8] = *entry.first_chunk()?;
            match zerolane_block::Address::parse(entry) {
                zerolane_block::Address::Unit(lun) => Some(lun),
                _ => None,
            }
        };
        Ok(entries.filter_map(lun).collect())
    }
}
