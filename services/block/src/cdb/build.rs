//! Builds the bytes of a CDB from a [`Command`], for initiators.

use super::{Cdb, Command, Extent, Form, OpcodeQuery, PageControl, opcode};
use crate::bytes::put;

impl Command {
    /// The CDB of this command; `None` if an address or a count does not fit the form, or the form does not exist.
    pub fn cdb(&self) -> Option<Cdb> {
        match *self {
            Command::TestUnitReady => Cdb::new(opcode::TEST_UNIT_READY),
            Command::RequestSense {
                descriptor,
                allocation,
            } => {
                let cdb = Cdb::new(opcode::REQUEST_SENSE)?.bit(1, 0, descriptor);
                cdb.number(4, 1, allocation.into())
            }
            Command::Inquiry { page, allocation } => {
                let cdb = Cdb::new(opcode::INQUIRY)?.bit(1, 0, page.is_some());
                let cdb = cdb.number(2, 1, page.unwrap_or(0).into())?;
                cdb.number(3, 2, allocation.into())
            }
            Command::ReadCapacity10 => Cdb::new(opcode::READ_CAPACITY_10),
            Command::ReadCapacity16 { allocation } => {
                service_action_in(opcode::READ_CAPACITY_16, 0, allocation)
            }
            Command::GetLbaStatus { lba, allocation } => {
                service_action_in(opcode::GET_LBA_STATUS, lba, allocation)
            }
            Command::ModeSense { .. } => self.mode_sense(),
            Command::Read {
                form,
                extent,
                dpo,
                fua,
            } => {
                let codes = [
                    opcode::READ_6,
                    opcode::READ_10,
                    opcode::READ_12,
                    opcode::READ_16,
                ];
                transfer(codes, form, extent, dpo, fua)
            }
            Command::Write {
                form,
                extent,
                dpo,
                fua,
            } => {
                let codes = [
                    opcode::WRITE_6,
                    opcode::WRITE_10,
                    opcode::WRITE_12,
                    opcode::WRITE_16,
                ];
                transfer(codes, form, extent, dpo, fua)
            }
            Command::Verify {
                form,
                extent,
                dpo,
                compare,
            } => {
                let code = match form {
                    Form::Six => return None,
                    Form::Ten => opcode::VERIFY_10,
                    Form::Twelve => opcode::VERIFY_12,
                    Form::Sixteen => opcode::VERIFY_16,
                };
                let cdb = Cdb::new(code)?.bit(1, 4, dpo).bit(1, 1, compare);
                cdb.extent(form, extent)
            }
            Command::SynchronizeCache {
                form,
                extent,
                immediate,
            } => {
                let codes = [opcode::SYNCHRONIZE_CACHE_10, opcode::SYNCHRONIZE_CACHE_16];
                let cdb = Cdb::new(ten_or_sixteen(codes, form)?)?;
                cdb.bit(1, 1, immediate).extent(form, extent)
            }
            Command::Prefetch {
                form,
                extent,
                immediate,
            } => {
                let codes = [opcode::PREFETCH_10, opcode::PREFETCH_16];
                let cdb = Cdb::new(ten_or_sixteen(codes, form)?)?;
                cdb.bit(1, 1, immediate).extent(form, extent)
            }
            Command::WriteSame {
                form,
                extent,
                unmap,
                no_data,
            } => {
                if no_data && form != Form::Sixteen {
                    return None;
                }
                let codes = [opcode::WRITE_SAME_10, opcode::WRITE_SAME_16];
                let cdb = Cdb::new(ten_or_sixteen(codes, form)?)?;
                cdb.bit(1, 3, unmap).bit(1, 0, no_data).extent(form, extent)
            }
            Command::Unmap { parameter_bytes } => {
                Cdb::new(opcode::UNMAP)?.number(7, 2, parameter_bytes.into())
            }
            Command::CompareAndWrite { extent, dpo, fua } => {
                let cdb = Cdb::new(opcode::COMPARE_AND_WRITE)?
                    .bit(1, 4, dpo)
                    .bit(1, 3, fua);
                cdb.number(2, 8, extent.lba)?.number(13, 1, extent.blocks)
            }
            Command::ReportLuns { select, allocation } => {
                let cdb = Cdb::new(opcode::REPORT_LUNS)?.number(2, 1, select.into())?;
                cdb.number(6, 4, allocation.into())
            }
            Command::ReportOpcodes {
                timeouts,
                query,
                allocation,
            } => report_opcodes(timeouts, query)?.number(6, 4, allocation.into()),
            Command::StartStop {
                immediate,
                start,
                no_flush,
            } => {
                let cdb = Cdb::new(opcode::START_STOP_UNIT)?.bit(1, 0, immediate);
                Some(cdb.bit(4, 0, start).bit(4, 2, no_flush))
            }
            Command::PersistentReserveIn { action, allocation } => {
                let cdb = Cdb::new(opcode::PERSISTENT_RESERVE_IN)?;
                cdb.number(1, 1, action as u64)?
                    .number(7, 2, allocation.into())
            }
            Command::PersistentReserveOut {
                action,
                scope,
                kind,
                parameter_bytes,
            } => {
                if scope > 0xf || kind > 0xf {
                    return None;
                }
                let cdb = Cdb::new(opcode::PERSISTENT_RESERVE_OUT)?;
                let cdb = cdb.number(1, 1, action as u64)?;
                let cdb = cdb.number(2, 1, u64::from(scope << 4 | kind))?;
                cdb.number(5, 4, parameter_bytes.into())
            }
        }
    }

    fn mode_sense(&self) -> Option<Cdb> {
        let Command::ModeSense {
            form,
            no_descriptors,
            long_lba,
            control,
            page,
            subpage,
            allocation,
        } = *self
        else {
            return None;
        };
        let control = match control {
            PageControl::Current => 0,
            PageControl::Changeable => 1,
            PageControl::Default => 2,
            PageControl::Saved => 3,
        };
        if page > 0x3f || (long_lba && form != Form::Ten) {
            return None;
        }
        let (code, at, length) = match form {
            Form::Six => (opcode::MODE_SENSE_6, 4, 1),
            Form::Ten => (opcode::MODE_SENSE_10, 7, 2),
            _ => return None,
        };
        let cdb = Cdb::new(code)?
            .bit(1, 3, no_descriptors)
            .bit(1, 4, long_lba);
        let cdb = cdb.number(2, 1, u64::from(control << 6 | page))?;
        cdb.number(3, 1, subpage.into())?
            .number(at, length, allocation.into())
    }
}

impl Cdb {
    fn bit(mut self, byte: usize, bit: u8, value: bool) -> Cdb {
        self.bytes[byte] |= u8::from(value) << bit;
        self
    }

    /// `value` in `length` bytes from `byte` on; none if it does not fit.
    fn number(mut self, byte: usize, length: usize, value: u64) -> Option<Cdb> {
        put(&mut self.bytes[byte..byte + length], value).then_some(self)
    }

    fn extent(self, form: Form, extent: Extent) -> Option<Cdb> {
        match form {
            Form::Six => None,
            Form::Ten => self.number(2, 4, extent.lba)?.number(7, 2, extent.blocks),
            Form::Twelve => self.number(2, 4, extent.lba)?.number(6, 4, extent.blocks),
            Form::Sixteen => self.number(2, 8, extent.lba)?.number(10, 4, extent.blocks),
        }
    }
}

/// READ or WRITE; `codes` by form.
fn transfer(codes: [u8; 4], form: Form, extent: Extent, dpo: bool, fua: bool) -> Option<Cdb> {
    let cdb = Cdb::new(codes[form as usize])?;
    if form != Form::Six {
        return cdb.bit(1, 4, dpo).bit(1, 3, fua).extent(form, extent);
    }
    // Zero blocks mean 256 there.
    let fits = extent.lba < 1 << 21 && (1..=256).contains(&extent.blocks) && !dpo && !fua;
    let blocks = extent.blocks % 256;
    fits.then(|| cdb.number(1, 3, extent.lba)?.number(4, 1, blocks))?
}

fn ten_or_sixteen(codes: [u8; 2], form: Form) -> Option<u8> {
    match form {
        Form::Ten => Some(codes[0]),
        Form::Sixteen => Some(codes[1]),
        _ => None,
    }
}

fn service_action_in(action: u8, lba: u64, allocation: u32) -> Option<Cdb> {
    let cdb = Cdb::new(opcode::SERVICE_ACTION_IN_16)?.number(1, 1, action.into())?;
    cdb.number(2, 8, lba)?.number(10, 4, allocation.into())
}

fn report_opcodes(timeouts: bool, query: OpcodeQuery) -> Option<Cdb> {
    let (options, code, action) = match query {
        OpcodeQuery::All => (0, 0, 0),
        OpcodeQuery::Plain(code) => (1, code, 0),
        OpcodeQuery::Action(code, action) => (2, code, action),
        OpcodeQuery::Either(code, action) => (3, code, action),
    };
    let cdb = Cdb::new(opcode::MAINTENANCE_IN)?.number(1, 1, opcode::REPORT_OPCODES.into())?;
    let cdb = cdb.bit(2, 7, timeouts).number(3, 1, code.into())?;
    let cdb = cdb.number(4, 2, action.into())?;
    Some(cdb.bit(2, 0, options & 1 == 1).bit(2, 1, options & 2 == 2))
}
