//! Checks commands on the medium against its size and the limits, and turns them into work.

use super::{Caller, DONE, Next, Unit, check_may_change};
use crate::cdb::{Command, Extent, Form};
use crate::limits;
use crate::sense::{Code, Key, Sense};
use crate::work::Operation;

impl Unit {
    pub(super) fn medium(&self, command: &Command, caller: &Caller) -> Result<Next, Sense> {
        let durable = !self.disk.write_cache;
        Ok(match *command {
            Command::Read {
                form, extent, fua, ..
            } => {
                self.check_transfer(&extent, form)?;
                let (_, bytes) = self.disk.geometry.bytes(&extent);
                let bytes = bytes.min(caller.data_in);
                let fua = fua && self.disk.write_cache;
                if bytes == 0 {
                    return Ok(DONE);
                }
                self.work(Operation::Read { extent, bytes, fua }, false)
            }
            Command::Write {
                form, extent, fua, ..
            } => {
                self.check_writable(caller)?;
                self.check_transfer(&extent, form)?;
                // No more than the initiator has, in whole blocks: the response says what was not written.
                let given = self.disk.geometry.blocks_in(caller.data_out);
                let blocks = extent.blocks.min(given);
                let extent = Extent { blocks, ..extent };
                self.work(Operation::Write(extent), fua || durable)
            }
            Command::Verify {
                form,
                extent,
                compare,
                ..
            } => {
                self.check_transfer(&extent, form)?;
                let operation = if compare {
                    Operation::Compare
                } else {
                    Operation::Verify
                };
                self.work(operation(extent), false)
            }
            Command::SynchronizeCache { extent, .. } => {
                self.check_range(&extent)?;
                self.work(Operation::Flush, false)
            }
            Command::Prefetch { extent, .. } => {
                self.check_range(&extent)?;
                self.work(Operation::Prefetch(self.to_the_end(extent)), false)
            }
            Command::WriteSame {
                form,
                extent,
                unmap,
                no_data,
            } => self.begin_write_same(form, extent, unmap, no_data, caller)?,
            Command::Unmap { parameter_bytes } => {
                self.check_writable(caller)?;
                self.begin_unmap(parameter_bytes)?
            }
            Command::CompareAndWrite { extent, fua, .. } => {
                self.check_writable(caller)?;
                self.check_range(&extent)?;
                self.check_count(&extent, limits::MAX_COMPARE_BYTES, 13)?;
                self.work(Operation::CompareAndWrite(extent), fua || durable)
            }
            Command::GetLbaStatus { lba, allocation } => {
                if lba >= self.disk.geometry.blocks {
                    return Err(Sense::illegal(Code::LBA_OUT_OF_RANGE));
                }
                let room = allocation.saturating_sub(8) as usize / 16;
                let most = room.clamp(1, limits::MAX_STATUS_RANGES);
                self.work(Operation::Status { lba, most }, false)
            }
            _ => return Err(Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE)),
        })
    }

    fn begin_write_same(
        &self,
        form: Form,
        extent: Extent,
        unmap: bool,
        no_data: bool,
        caller: &Caller,
    ) -> Result<Next, Sense> {
        self.check_writable(caller)?;
        if unmap && !self.disk.thin {
            return Err(Sense::cdb_bit(1, 3));
        }
        self.check_range(&extent)?;
        if extent.blocks == 0 {
            return Err(Sense::cdb_byte(form.count_byte()));
        }
        self.check_count(&extent, limits::MAX_WRITE_SAME_BYTES, form.count_byte())?;
        let block = self.disk.geometry.block_bytes as usize;
        if no_data {
            return Ok(self.write_same(extent, unmap, &vec![0; block]));
        }
        Ok(Next::Fetch(block))
    }

    fn begin_unmap(&self, parameter_bytes: u16) -> Result<Next, Sense> {
        if !self.disk.thin {
            return Err(Sense::illegal(Code::INVALID_OPCODE));
        }
        Ok(match usize::from(parameter_bytes) {
            0 => DONE,
            bytes @ 8..=limits::MAX_PARAMETER_BYTES => Next::Fetch(bytes),
            1..8 => return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH)),
            _ => return Err(Sense::cdb_byte(7)),
        })
    }

    /// Fills `extent` with a block, of the length that blocks have.
    pub(super) fn write_same(&self, extent: Extent, unmap: bool, block: &[u8]) -> Next {
        let durable = !self.disk.write_cache;
        let is_zero = block.iter().all(|&it| it == 0);
        // Unmapped blocks read as zeros, so only those may become unmapped.
        if unmap && is_zero {
            return self.work(Operation::Zero(extent), durable);
        }
        let block = block.to_vec();
        self.work(Operation::Fill { extent, block }, durable)
    }

    pub(super) fn check_range(&self, extent: &Extent) -> Result<(), Sense> {
        if !extent.is_within(self.disk.geometry.blocks) {
            return Err(Sense::illegal(Code::LBA_OUT_OF_RANGE));
        }
        Ok(())
    }

    fn check_transfer(&self, extent: &Extent, form: Form) -> Result<(), Sense> {
        self.check_range(extent)?;
        self.check_count(extent, limits::MAX_TRANSFER_BYTES, form.count_byte())
    }

    /// At most `most` bytes; the count begins at that byte of the CDB.
    fn check_count(&self, extent: &Extent, most: u64, byte: u16) -> Result<(), Sense> {
        if extent.blocks > self.disk.geometry.blocks_in(most) {
            return Err(Sense::cdb_byte(byte));
        }
        Ok(())
    }

    fn check_writable(&self, caller: &Caller) -> Result<(), Sense> {
        check_may_change(caller)?;
        if self.disk.read_only {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
        }
        Ok(())
    }

    /// No blocks mean all up to the end.
    fn to_the_end(&self, extent: Extent) -> Extent {
        match extent.blocks {
            0 => Extent {
                blocks: self.disk.geometry.blocks - extent.lba,
                ..extent
            },
            _ => extent,
        }
    }
}
