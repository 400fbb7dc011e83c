//! Parses the bytes of a CDB into a [`Command`], for the target.

use super::{Command, Extent, Form, OpcodeQuery, PageControl, ReserveIn, ReserveOut, opcode};
use crate::bytes::number;
use crate::sense::{Code, Sense};

/// Blocks that READ(6) and WRITE(6) name by zero.
const SIX_BYTE_ZERO: u64 = 256;

impl Command {
    /// Parses `cdb`. Ignores bytes after its end and, as the standard allows, reserved bits. Refuses bits that ask for
    /// unsupported features.
    ///
    /// # Errors
    /// The sense data of an illegal request, with the wrong field.
    pub fn parse(cdb: &[u8]) -> Result<Command, Sense> {
        const UNKNOWN: Sense = Sense::illegal(Code::INVALID_OPCODE);
        let code = *cdb.first().ok_or(UNKNOWN)?;
        let length = opcode::cdb_bytes(code).ok_or(UNKNOWN)?;
        if !opcode::TABLE.iter().any(|row| row.opcode == code) {
            return Err(UNKNOWN);
        }
        let Some(bytes) = cdb.get(..length) else {
            return Err(Sense::cdb_byte(cdb.len() as u16));
        };
        let fields = Fields { bytes };
        fields.zero_bit(length - 1, 2)?;
        fields.command(code)
    }
}

/// A whole CDB.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn command(&self, code: u8) -> Result<Command, Sense> {
        match code {
            opcode::TEST_UNIT_READY => Ok(Command::TestUnitReady),
            opcode::REQUEST_SENSE => Ok(Command::RequestSense {
                descriptor: self.bit(1, 0),
                allocation: self.bytes[4],
            }),
            opcode::INQUIRY => self.inquiry(),
            opcode::READ_CAPACITY_10 => self.read_capacity_10(),
            opcode::SERVICE_ACTION_IN_16 => self.service_action_in(),
            opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => self.mode_sense(),
            opcode::READ_6 | opcode::READ_10 | opcode::READ_12 | opcode::READ_16 => {
                let (form, extent, dpo, fua) = self.transfer()?;
                Ok(Command::Read {
                    form,
                    extent,
                    dpo,
                    fua,
                })
            }
            opcode::WRITE_6 | opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
                let (form, extent, dpo, fua) = self.transfer()?;
                Ok(Command::Write {
                    form,
                    extent,
                    dpo,
                    fua,
                })
            }
            opcode::VERIFY_10 | opcode::VERIFY_12 | opcode::VERIFY_16 => self.verify(),
            opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                Ok(Command::SynchronizeCache {
                    form: self.form(),
                    extent: self.extent(),
                    immediate: self.bit(1, 1),
                })
            }
            opcode::PREFETCH_10 | opcode::PREFETCH_16 => Ok(Command::Prefetch {
                form: self.form(),
                extent: self.extent(),
                immediate: self.bit(1, 1),
            }),
            opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => self.write_same(),
            opcode::UNMAP => {
                self.zero_bit(1, 0)?;
                let parameter_bytes = self.number(7, 2) as u16;
                Ok(Command::Unmap { parameter_bytes })
            }
            opcode::COMPARE_AND_WRITE => self.compare_and_write(),
            opcode::REPORT_LUNS => Ok(Command::ReportLuns {
                select: self.bytes[2],
                allocation: self.number(6, 4) as u32,
            }),
            opcode::MAINTENANCE_IN => self.report_opcodes(),
            opcode::START_STOP_UNIT => self.start_stop(),
            opcode::PERSISTENT_RESERVE_IN => self.reserve_in(),
            opcode::PERSISTENT_RESERVE_OUT => self.reserve_out(),
            _ => Err(Sense::illegal(Code::INVALID_OPCODE)),
        }
    }

    fn bit(&self, byte: usize, bit: u8) -> bool {
        self.bytes[byte] >> bit & 1 == 1
    }

    /// The number in `length` bytes from `byte` on.
    fn number(&self, byte: usize, length: usize) -> u64 {
        number(&self.bytes[byte..byte + length])
    }

    /// Refuses what that bit asks for.
    fn zero_bit(&self, byte: usize, bit: u8) -> Result<(), Sense> {
        if self.bit(byte, bit) {
            return Err(Sense::cdb_bit(byte as u16, bit));
        }
        Ok(())
    }

    /// Refuses protection information, which there is none of.
    fn no_protection(&self) -> Result<(), Sense> {
        if self.bytes[1] >> 5 != 0 {
            return Err(Sense::cdb_bit(1, 7));
        }
        Ok(())
    }

    fn action(&self) -> u8 {
        self.bytes[1] & 0x1f
    }

    fn form(&self) -> Form {
        match self.bytes.len() {
            6 => Form::Six,
            10 => Form::Ten,
            12 => Form::Twelve,
            _ => Form::Sixteen,
        }
    }

    /// Address and count, where commands on the medium have them.
    fn extent(&self) -> Extent {
        let (lba, blocks) = match self.form() {
            Form::Six => {
                let blocks = u64::from(self.bytes[4]);
                let blocks = if blocks == 0 { SIX_BYTE_ZERO } else { blocks };
                (self.number(1, 3) & 0x1f_ffff, blocks)
            }
            Form::Ten => (self.number(2, 4), self.number(7, 2)),
            Form::Twelve => (self.number(2, 4), self.number(6, 4)),
            Form::Sixteen => (self.number(2, 8), self.number(10, 4)),
        };
        Extent { lba, blocks }
    }

    fn transfer(&self) -> Result<(Form, Extent, bool, bool), Sense> {
        if self.form() == Form::Six {
            return Ok((Form::Six, self.extent(), false, false));
        }
        self.no_protection()?;
        Ok((self.form(), self.extent(), self.bit(1, 4), self.bit(1, 3)))
    }

    fn inquiry(&self) -> Result<Command, Sense> {
        self.zero_bit(1, 1)?;
        let page = self.bit(1, 0).then_some(self.bytes[2]);
        if page.is_none() && self.bytes[2] != 0 {
            return Err(Sense::cdb_byte(2));
        }
        Ok(Command::Inquiry {
            page,
            allocation: self.number(3, 2) as u16,
        })
    }

    fn read_capacity_10(&self) -> Result<Command, Sense> {
        if self.number(2, 4) != 0 {
            return Err(Sense::cdb_byte(2));
        }
        self.zero_bit(8, 0)?;
        Ok(Command::ReadCapacity10)
    }

    fn service_action_in(&self) -> Result<Command, Sense> {
        let (lba, allocation) = (self.number(2, 8), self.number(10, 4) as u32);
        match self.action() {
            opcode::READ_CAPACITY_16 if lba != 0 => Err(Sense::cdb_byte(2)),
            opcode::READ_CAPACITY_16 => {
                self.zero_bit(14, 0)?;
                Ok(Command::ReadCapacity16 { allocation })
            }
            opcode::GET_LBA_STATUS => Ok(Command::GetLbaStatus { lba, allocation }),
            _ => Err(Sense::cdb_bit(1, 4)),
        }
    }

    fn mode_sense(&self) -> Result<Command, Sense> {
        let form = self.form();
        let allocation = match form {
            Form::Six => u16::from(self.bytes[4]),
            _ => self.number(7, 2) as u16,
        };
        Ok(Command::ModeSense {
            form,
            no_descriptors: self.bit(1, 3),
            long_lba: form == Form::Ten && self.bit(1, 4),
            control: match self.bytes[2] >> 6 {
                0 => PageControl::Current,
                1 => PageControl::Changeable,
                2 => PageControl::Default,
                _ => PageControl::Saved,
            },
            page: self.bytes[2] & 0x3f,
            subpage: self.bytes[3],
            allocation,
        })
    }

    fn verify(&self) -> Result<Command, Sense> {
        self.no_protection()?;
        self.zero_bit(1, 2)?;
        Ok(Command::Verify {
            form: self.form(),
            extent: self.extent(),
            dpo: self.bit(1, 4),
            compare: self.bit(1, 1),
        })
    }

    fn write_same(&self) -> Result<Command, Sense> {
        self.no_protection()?;
        for bit in [4, 2, 1] {
            self.zero_bit(1, bit)?;
        }
        let form = self.form();
        Ok(Command::WriteSame {
            form,
            extent: self.extent(),
            unmap: self.bit(1, 3),
            no_data: form == Form::Sixteen && self.bit(1, 0),
        })
    }

    fn compare_and_write(&self) -> Result<Command, Sense> {
        self.no_protection()?;
        let extent = Extent {
            lba: self.number(2, 8),
            blocks: u64::from(self.bytes[13]),
        };
        Ok(Command::CompareAndWrite {
            extent,
            dpo: self.bit(1, 4),
            fua: self.bit(1, 3),
        })
    }

    fn report_opcodes(&self) -> Result<Command, Sense> {
        if self.action() != opcode::REPORT_OPCODES {
            return Err(Sense::cdb_bit(1, 4));
        }
        let (code, action) = (self.bytes[3], self.number(4, 2) as u16);
        let query = match self.bytes[2] & 0x7 {
            0 => OpcodeQuery::All,
            1 => OpcodeQuery::Plain(code),
            2 => OpcodeQuery::Action(code, action),
            3 => OpcodeQuery::Either(code, action),
            _ => return Err(Sense::cdb_bit(2, 2)),
        };
        Ok(Command::ReportOpcodes {
            timeouts: self.bit(2, 7),
            query,
            allocation: self.number(6, 4) as u32,
        })
    }

    /// There is no medium to eject, and no power condition.
    fn start_stop(&self) -> Result<Command, Sense> {
        if self.bytes[4] >> 4 != 0 {
            return Err(Sense::cdb_bit(4, 7));
        }
        self.zero_bit(4, 1)?;
        Ok(Command::StartStop {
            immediate: self.bit(1, 0),
            start: self.bit(4, 0),
            no_flush: self.bit(4, 2),
        })
    }

    fn reserve_in(&self) -> Result<Command, Sense> {
        let action = match self.action() {
            0 => ReserveIn::Keys,
            1 => ReserveIn::Reservation,
            2 => ReserveIn::Capabilities,
            3 => ReserveIn::FullStatus,
            _ => return Err(Sense::cdb_bit(1, 4)),
        };
        Ok(Command::PersistentReserveIn {
            action,
            allocation: self.number(7, 2) as u16,
        })
    }

    fn reserve_out(&self) -> Result<Command, Sense> {
        let action = match self.action() {
            0 => ReserveOut::Register,
            1 => ReserveOut::Reserve,
            2 => ReserveOut::Release,
            3 => ReserveOut::Clear,
            4 => ReserveOut::Preempt,
            5 => ReserveOut::PreemptAndAbort,
            6 => ReserveOut::RegisterAndIgnore,
            _ => return Err(Sense::cdb_bit(1, 4)),
        };
        Ok(Command::PersistentReserveOut {
            action,
            scope: self.bytes[2] >> 4,
            kind: self.bytes[2] & 0xf,
            parameter_bytes: self.number(5, 4) as u32,
        })
    }
}
