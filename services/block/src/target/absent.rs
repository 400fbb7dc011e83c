//! Answers commands to a LUN without a unit.

use super::Target;
use super::ending::{cut, format};
use super::lun::Address;
use super::protocol::NexusId;
use crate::cdb::Command;
use crate::report;
use crate::sense::{Code, Sense};
use crate::unit::End;

const WELL_KNOWN_LUN: [u8; 8] = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];

fn unit_zero() -> Address {
    Address::parse([0; 8])
}

impl Target {
    /// Answers a command to a LUN without a unit.
    pub(super) fn without_unit(
        &self,
        nexus: NexusId,
        address: Address,
        command: Result<Command, Sense>,
    ) -> End {
        let absent = Sense::illegal(Code::UNIT_NOT_SUPPORTED);
        match command {
            Ok(Command::Inquiry {
                page: None,
                allocation,
            }) if address != Address::WellKnown => cut(report::absent(), allocation.into()),
            Ok(Command::RequestSense {
                descriptor,
                allocation,
            }) => cut(absent.encode(format(descriptor)), allocation.into()),
            // Asked of unit 0, this must be answered, even if there is none.
            Ok(Command::ReportLuns { select, allocation })
                if address == Address::WellKnown || address == unit_zero() =>
            {
                self.report_luns(nexus, select, allocation)
            }
            _ => End::Check(absent),
        }
    }

    pub(super) fn report_luns(&self, nexus: NexusId, select: u8, allocation: u32) -> End {
        const ORDINARY: u8 = 0;
        const WELL_KNOWN: u8 = 1;
        const ALL: u8 = 2;
        if select > ALL {
            return End::Check(Sense::cdb_byte(2));
        }
        let access = self.nexuses.get(&nexus).map(|it| &it.access);
        let ordinary = self
            .units
            .keys()
            .filter(|_| matches!(select, ORDINARY | ALL));
        let seen = ordinary.filter(|&&lun| access.is_some_and(|it| it.sees(lun)));
        let well_known = matches!(select, WELL_KNOWN | ALL).then_some(WELL_KNOWN_LUN);
        let list = report::unit_list(seen.map(|it| it.encode()).chain(well_known));
        cut(list, allocation as usize)
    }
}
