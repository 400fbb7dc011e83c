//! Builds the data of REPORT SUPPORTED OPERATION CODES (SPC-4, 6.35).

use crate::cdb::OpcodeQuery;
use crate::cdb::opcode::{Row, TABLE};
use crate::sense::Sense;

/// The command is supported as the standard has it.
const SUPPORTED: u8 = 3;
const NOT_SUPPORTED: u8 = 1;

/// No command has a time in which it is done.
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Descriptors have timeouts behind them.
const TIMEOUTS_ALL: u8 = 0x02;
const TIMEOUTS_ONE: u8 = 0x80;

/// What is supported of what was asked.
///
/// # Errors
/// A question about service actions of a command without them, or the other way round.
pub(crate) fn opcodes(query: OpcodeQuery, timeouts: bool) -> Result<Vec<u8>, Sense> {
    match query {
        OpcodeQuery::All => Ok(all(timeouts)),
        OpcodeQuery::Plain(code) if has_actions(code) => Err(Sense::cdb_bit(2, 2)),
        OpcodeQuery::Action(code, _) if is_plain(code) => Err(Sense::cdb_bit(2, 2)),
        OpcodeQuery::Plain(code) => Ok(one(find(code, None), timeouts)),
        OpcodeQuery::Action(code, action) => Ok(one(find(code, Some(action)), timeouts)),
        OpcodeQuery::Either(code, action) if is_plain(code) && action != 0 => {
            Ok(one(None, timeouts))
        }
        OpcodeQuery::Either(code, action) => {
            let action = has_actions(code).then_some(action);
            Ok(one(find(code, action), timeouts))
        }
    }
}

fn rows(code: u8) -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(move |row| row.opcode == code)
}

fn has_actions(code: u8) -> bool {
    rows(code).any(|row| row.action.is_some())
}

fn is_plain(code: u8) -> bool {
    rows(code).any(|row| row.action.is_none())
}

fn find(code: u8, action: Option<u16>) -> Option<&'static Row> {
    rows(code).find(|row| row.action.map(u16::from) == action)
}

fn all(timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for row in TABLE {
        let flags = u8::from(row.action.is_some()) | if timeouts { TIMEOUTS_ALL } else { 0 };
        list.extend([row.opcode, 0, 0, row.action.unwrap_or(0), 0, flags]);
        list.extend((row.usage.len() as u16).to_be_bytes());
        if timeouts {
            list.extend(NO_TIMEOUTS);
        }
    }
    let mut bytes = (list.len() as u32).to_be_bytes().to_vec();
    bytes.extend(list);
    bytes
}

fn one(row: Option<&Row>, timeouts: bool) -> Vec<u8> {
    let Some(row) = row else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let flags = SUPPORTED | if timeouts { TIMEOUTS_ONE } else { 0 };
    let mut bytes = vec![0, flags];
    bytes.extend((row.usage.len() as u16).to_be_bytes());
    bytes.extend(row.usage);
    if timeouts {
        bytes.extend(NO_TIMEOUTS);
    }
    bytes
}
