//! Negotiates the operational keys (RFC 7143, 13).

use crate::limits::{FIRST_BURST_BYTES, MAX_BURST_BYTES, MAX_R2TS, MAX_SEGMENT_BYTES};
use crate::pdu::Digests;
use crate::text::{number, put};

/// Shortest data segment that an end may declare, bytes.
const MIN_SEGMENT_BYTES: u32 = 512;
/// Largest length that a key may have: 24 bits.
const MAX_LENGTH: u32 = (1 << 24) - 1;

/// The negotiated settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Digests of PDUs, from the end of the login on.
    pub digests: Digests,
    /// Longest data segment that the initiator accepts, bytes.
    pub segment_bytes: u32,
    /// Most data of a burst, bytes.
    pub burst_bytes: u32,
    /// Most unsolicited data of a command, bytes.
    pub first_burst_bytes: u32,
    /// Whether only the command's PDU may carry unsolicited data.
    pub initial_r2t: bool,
    /// Whether commands may have data in their PDU.
    pub immediate_data: bool,
    /// Requests for data of one command at a time.
    pub r2ts: u32,
}

/// The standard's defaults, for keys that are not negotiated.
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            digests: Digests::default(),
            segment_bytes: 8192,
            burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            initial_r2t: true,
            immediate_data: true,
            r2ts: 1,
        }
    }
}

/// The answer to a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It was a declaration.
    Nothing,
    Value(String),
    /// The value is none that the key may have.
    Wrong,
}

fn yes(value: bool) -> Reply {
    Reply::Value(if value { "Yes" } else { "No" }.to_owned())
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// The first method of a list that is known.
fn digest(value: &str) -> Option<bool> {
    value.split(',').find_map(|method| match method {
        "None" => Some(false),
        "CRC32C" => Some(true),
        _ => None,
    })
}

impl Settings {
    /// Takes one key. Most have no meaning when an initiator only asks which targets there are.
    pub(super) fn negotiate(&mut self, key: &str, value: &str, discovery: bool) -> Reply {
        let is_session = matches!(
            key,
            "MaxConnections"
                | "InitialR2T"
                | "ImmediateData"
                | "MaxBurstLength"
                | "FirstBurstLength"
                | "MaxOutstandingR2T"
                | "DataPDUInOrder"
                | "DataSequenceInOrder"
        );
        if is_session && discovery {
            return Reply::Value("Irrelevant".to_owned());
        }
        self.take(key, value).unwrap_or(Reply::Wrong)
    }

    fn take(&mut self, key: &str, value: &str) -> Option<Reply> {
        let method = |is_on: bool| Reply::Value(if is_on { "CRC32C" } else { "None" }.to_owned());
        let length = |least: u32| number(value).filter(|it| (least..=MAX_LENGTH).contains(it));
        let said = |value: u32| Some(Reply::Value(value.to_string()));
        Some(match key {
            "HeaderDigest" => {
                self.digests.header = digest(value)?;
                method(self.digests.header)
            }
            "DataDigest" => {
                self.digests.data = digest(value)?;
                method(self.digests.data)
            }
            "MaxRecvDataSegmentLength" => {
                self.segment_bytes = length(MIN_SEGMENT_BYTES)?;
                Reply::Nothing
            }
            "MaxBurstLength" => {
                self.burst_bytes = length(MIN_SEGMENT_BYTES)?.min(MAX_BURST_BYTES);
                return said(self.burst_bytes);
            }
            "FirstBurstLength" => {
                self.first_burst_bytes = length(MIN_SEGMENT_BYTES)?.min(FIRST_BURST_BYTES);
                return said(self.first_burst_bytes);
            }
            "MaxConnections" => return said(number(value).filter(|&it| it > 0)?.min(1)),
            "InitialR2T" => {
                self.initial_r2t = boolean(value)?;
                yes(self.initial_r2t)
            }
            "ImmediateData" => {
                self.immediate_data = boolean(value)?;
                yes(self.immediate_data)
            }
            "MaxOutstandingR2T" => {
                self.r2ts = number(value).filter(|&it| it > 0)?.min(MAX_R2TS);
                return said(self.r2ts);
            }
            "DefaultTime2Wait" => return said(number(value)?.min(3600)),
            // The least of both.
            "DefaultTime2Retain" | "ErrorRecoveryLevel" => {
                number(value)?;
                return said(0);
            }
            // Whatever is offered, data comes in order.
            "DataPDUInOrder" | "DataSequenceInOrder" => {
                boolean(value)?;
                yes(true)
            }
            "IFMarker" | "OFMarker" => yes(false),
            "iSCSIProtocolLevel" => return said(number(value)?.min(1)),
            "TaskReporting" => Reply::Value("RFC3720".to_owned()),
            _ => Reply::Value("NotUnderstood".to_owned()),
        })
    }

    /// Declares the portal's limits.
    pub(super) fn declare(&self, into: &mut Vec<u8>) {
        put(
            into,
            "MaxRecvDataSegmentLength",
            &MAX_SEGMENT_BYTES.to_string(),
        );
    }
}
