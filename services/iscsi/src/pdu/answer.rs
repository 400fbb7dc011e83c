//! Defines and builds the PDUs that the portal sends.

use super::{
    Digests, HEADER_BYTES, Header, NO_TAG, RawPdu, frame, half, lun, opcode, put_half, put_word,
    word,
};
use zerolane_block::Residual;

const FINAL: u8 = 0x80;
const CONTINUED: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

/// The numbers that each PDU of a portal carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The number of this status; zero where there is none.
    pub status: u32,
    /// The next expected command number.
    pub expected: u32,
    /// The last command number that the portal accepts.
    pub most: u32,
}

/// A PDU of a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The initiator's task tag.
    pub tag: u32,
    /// Its numbers.
    pub sequence: Sequence,
    /// Its body.
    pub body: AnswerBody,
    /// Its data.
    pub data: &'a [u8],
}

/// The body of a portal's PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are called as in the standard.
pub enum AnswerBody {
    NopIn {
        lun: [u8; 8],
    },
    Response {
        status: u8,
        residual: Residual,
        /// PDUs of data before this.
        data_number: u32,
    },
    Management {
        response: u8,
    },
    Login {
        transit: bool,
        continued: bool,
        current: u8,
        next: u8,
        isid: [u8; 6],
        tsih: u16,
        /// Class and detail: zero if all is well.
        status: u16,
    },
    Text {
        last: bool,
        continued: bool,
        transfer_tag: u32,
    },
    DataIn {
        last: bool,
        /// With the last data of a command that went well.
        status: Option<(u8, Residual)>,
        data_number: u32,
        offset: u32,
    },
    Logout {
        response: u8,
    },
    R2t {
        lun: [u8; 8],
        transfer_tag: u32,
        number: u32,
        offset: u32,
        length: u32,
    },
    Reject {
        reason: u8,
    },
}

fn residual_flags(residual: Residual) -> (u8, u32) {
    let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    match residual {
        Residual::None => (0, 0),
        Residual::Under(bytes) => (UNDERFLOW, count(bytes)),
        Residual::Over(bytes) => (OVERFLOW, count(bytes)),
    }
}

fn residual_of(flags: u8, count: u32) -> Residual {
    if flags & OVERFLOW != 0 {
        Residual::Over(count.into())
    } else if flags & UNDERFLOW != 0 {
        Residual::Under(count.into())
    } else {
        Residual::None
    }
}

impl<'a> Answer<'a> {
    /// Appends the encoded PDU.
    pub fn encode(&self, into: &mut Vec<u8>, digests: Digests) {
        frame(into, self.header(), self.data, digests);
    }

    fn header(&self) -> Header {
        let mut header = [0; HEADER_BYTES];
        put_word(&mut header, 16, self.tag);
        put_word(&mut header, 24, self.sequence.status);
        put_word(&mut header, 28, self.sequence.expected);
        put_word(&mut header, 32, self.sequence.most);
        let flag = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
        let (code, flags) = match self.body {
            AnswerBody::NopIn { lun } => {
                header[8..16].copy_from_slice(&lun);
                put_word(&mut header, 20, NO_TAG);
                (opcode::NOP_IN, FINAL)
            }
            AnswerBody::Response {
                status,
                residual,
                data_number,
            } => {
                let (flags, count) = residual_flags(residual);
                header[3] = status;
                put_word(&mut header, 36, data_number);
                put_word(&mut header, 44, count);
                (opcode::RESPONSE, FINAL | flags)
            }
            AnswerBody::Management { response } => {
                header[2] = response;
                (opcode::MANAGEMENT_RESPONSE, FINAL)
            }
            AnswerBody::Login {
                transit,
                continued,
                current,
                next,
                isid,
                tsih,
                status,
            } => {
                header[8..14].copy_from_slice(&isid);
                put_half(&mut header, 14, tsih);
                put_half(&mut header, 36, status);
                let flags = flag(FINAL, transit) | flag(CONTINUED, continued);
                let next = if transit { next & 3 } else { 0 };
                (opcode::LOGIN_RESPONSE, flags | (current & 3) << 2 | next)
            }
            AnswerBody::Text {
                last,
                continued,
                transfer_tag,
            } => {
                put_word(&mut header, 20, transfer_tag);
                let flags = flag(FINAL, last) | flag(CONTINUED, continued);
                (opcode::TEXT_RESPONSE, flags)
            }
            AnswerBody::DataIn {
                last,
                status,
                data_number,
                offset,
            } => {
                put_word(&mut header, 20, NO_TAG);
                put_word(&mut header, 36, data_number);
                put_word(&mut header, 40, offset);
                let mut flags = flag(FINAL, last);
                if let Some((status, residual)) = status {
                    let (more, count) = residual_flags(residual);
                    header[3] = status;
                    put_word(&mut header, 44, count);
                    flags |= STATUS | more;
                }
                (opcode::DATA_IN, flags)
            }
            AnswerBody::Logout { response } => {
                header[2] = response;
                (opcode::LOGOUT_RESPONSE, FINAL)
            }
            AnswerBody::R2t {
                lun,
                transfer_tag,
                number,
                offset,
                length,
            } => {
                header[8..16].copy_from_slice(&lun);
                put_word(&mut header, 20, transfer_tag);
                put_word(&mut header, 36, number);
                put_word(&mut header, 40, offset);
                put_word(&mut header, 44, length);
                (opcode::R2T, FINAL)
            }
            AnswerBody::Reject { reason } => {
                header[2] = reason;
                (opcode::REJECT, FINAL)
            }
        };
        (header[0], header[1]) = (code, flags);
        header
    }

    /// Parses `pdu`, for initiators and tests. `None` if it is not a portal's PDU.
    pub fn parse(pdu: &'a RawPdu) -> Option<Answer<'a>> {
        let header = &pdu.header;
        let flags = header[1];
        let body = match header[0] & 0x3f {
            opcode::NOP_IN => AnswerBody::NopIn { lun: lun(header) },
            opcode::RESPONSE => AnswerBody::Response {
                status: header[3],
                residual: residual_of(flags, word(header, 44)),
                data_number: word(header, 36),
            },
            opcode::MANAGEMENT_RESPONSE => AnswerBody::Management {
                response: header[2],
            },
            opcode::LOGIN_RESPONSE => {
                let mut isid = [0; 6];
                isid.copy_from_slice(&header[8..14]);
                AnswerBody::Login {
                    transit: flags & FINAL != 0,
                    continued: flags & CONTINUED != 0,
                    current: flags >> 2 & 3,
                    next: flags & 3,
                    isid,
                    tsih: half(header, 14),
                    status: half(header, 36),
                }
            }
            opcode::TEXT_RESPONSE => AnswerBody::Text {
                last: flags & FINAL != 0,
                continued: flags & CONTINUED != 0,
                transfer_tag: word(header, 20),
            },
            opcode::DATA_IN => AnswerBody::DataIn {
                last: flags & FINAL != 0,
                status: (flags & STATUS != 0)
                    .then(|| (header[3], residual_of(flags, word(header, 44)))),
                data_number: word(header, 36),
                offset: word(header, 40),
            },
            opcode::LOGOUT_RESPONSE => AnswerBody::Logout {
                response: header[2],
            },
            opcode::R2T => AnswerBody::R2t {
                lun: lun(header),
                transfer_tag: word(header, 20),
                number: word(header, 36),
                offset: word(header, 40),
                length: word(header, 44),
            },
            opcode::REJECT => AnswerBody::Reject { reason: header[2] },
            _ => return None,
        };
        Some(Answer {
            tag: word(header, 16),
            sequence: Sequence {
                status: word(header, 24),
                expected: word(header, 28),
                most: word(header, 32),
            },
            body,
            data: &pdu.data,
        })
    }
}
