//! Defines and parses the PDUs that initiators send.

use super::{
    Digests, HEADER_BYTES, Header, NO_TAG, RawPdu, frame, half, lun, opcode, put_half, put_word,
    word,
};

/// Sent out of the order of command numbers.
const IMMEDIATE: u8 = 0x40;
const FINAL: u8 = 0x80;
const CONTINUED: u8 = 0x40;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

/// A PDU of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether it is executed at once, outside the window.
    pub immediate: bool,
    /// The initiator's task tag.
    pub tag: u32,
    /// Its command number; zero if it has none.
    pub command_number: u32,
    /// Its body.
    pub body: RequestBody,
    /// Its data.
    pub data: Vec<u8>,
}

/// The body of an initiator's PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are called as in the standard.
pub enum RequestBody {
    NopOut {
        lun: [u8; 8],
        transfer_tag: u32,
    },
    Command {
        /// Whether no unsolicited data follows.
        last: bool,
        read: bool,
        write: bool,
        attribute: u8,
        lun: [u8; 8],
        /// Bytes that the initiator expects to move.
        expected: u32,
        cdb: [u8; 16],
        /// There are additional headers, which none of the commands here have.
        extended: bool,
    },
    Management {
        function: u8,
        lun: [u8; 8],
        referenced: u32,
        referenced_number: u32,
    },
    Login {
        transit: bool,
        continued: bool,
        current: u8,
        next: u8,
        version_max: u8,
        version_min: u8,
        isid: [u8; 6],
        tsih: u16,
        connection: u16,
    },
    Text {
        last: bool,
        continued: bool,
        transfer_tag: u32,
    },
    DataOut {
        last: bool,
        transfer_tag: u32,
        data_number: u32,
        offset: u32,
    },
    Logout {
        reason: u8,
        connection: u16,
    },
    Snack,
}

/// Why bytes are not an initiator's PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation code {0:02x}h is not one of an initiator")]
pub struct RequestError(pub u8);

impl Request {
    /// Parses `pdu`.
    ///
    /// # Errors
    /// The operation code is unknown.
    pub fn parse(pdu: RawPdu) -> Result<Request, RequestError> {
        let RawPdu {
            header,
            additional_bytes,
            data,
        } = pdu;
        let (code, flags) = (header[0] & 0x3f, header[1]);
        let body = match code {
            opcode::NOP_OUT => RequestBody::NopOut {
                lun: lun(&header),
                transfer_tag: word(&header, 20),
            },
            opcode::COMMAND => {
                let mut cdb = [0; 16];
                cdb.copy_from_slice(&header[32..HEADER_BYTES]);
                RequestBody::Command {
                    last: flags & FINAL != 0,
                    read: flags & READ != 0,
                    write: flags & WRITE != 0,
                    attribute: flags & 7,
                    lun: lun(&header),
                    expected: word(&header, 20),
                    cdb,
                    extended: additional_bytes > 0,
                }
            }
            opcode::MANAGEMENT => RequestBody::Management {
                function: flags & 0x7f,
                lun: lun(&header),
                referenced: word(&header, 20),
                referenced_number: word(&header, 32),
            },
            opcode::LOGIN => {
                let mut isid = [0; 6];
                isid.copy_from_slice(&header[8..14]);
                RequestBody::Login {
                    transit: flags & FINAL != 0,
                    continued: flags & CONTINUED != 0,
                    current: flags >> 2 & 3,
                    next: flags & 3,
                    version_max: header[2],
                    version_min: header[3],
                    isid,
                    tsih: half(&header, 14),
                    connection: half(&header, 20),
                }
            }
            opcode::TEXT => RequestBody::Text {
                last: flags & FINAL != 0,
                continued: flags & CONTINUED != 0,
                transfer_tag: word(&header, 20),
            },
            opcode::DATA_OUT => RequestBody::DataOut {
                last: flags & FINAL != 0,
                transfer_tag: word(&header, 20),
                data_number: word(&header, 36),
                offset: word(&header, 40),
            },
            opcode::LOGOUT => RequestBody::Logout {
                reason: flags & 0x7f,
                connection: half(&header, 20),
            },
            opcode::SNACK => RequestBody::Snack,
            other => return Err(RequestError(other)),
        };
        let has_number = !matches!(body, RequestBody::DataOut { .. } | RequestBody::Snack);
        Ok(Request {
            immediate: header[0] & IMMEDIATE != 0,
            tag: word(&header, 16),
            command_number: if has_number { word(&header, 24) } else { 0 },
            body,
            data,
        })
    }

    /// Appends the encoded PDU. It leaves out `extended`, because there are no additional headers.
    pub fn encode(&self, into: &mut Vec<u8>, digests: Digests) {
        frame(into, self.header(), &self.data, digests);
    }

    fn header(&self) -> Header {
        let mut header = [0; HEADER_BYTES];
        put_word(&mut header, 16, self.tag);
        put_word(&mut header, 24, self.command_number);
        let flag = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
        let (code, flags) = match &self.body {
            RequestBody::NopOut { lun, transfer_tag } => {
                header[8..16].copy_from_slice(lun);
                put_word(&mut header, 20, *transfer_tag);
                (opcode::NOP_OUT, FINAL)
            }
            RequestBody::Command {
                last,
                read,
                write,
                attribute,
                lun,
                expected,
                cdb,
                ..
            } => {
                header[8..16].copy_from_slice(lun);
                put_word(&mut header, 20, *expected);
                header[32..].copy_from_slice(cdb);
                let flags = flag(FINAL, *last) | flag(READ, *read) | flag(WRITE, *write);
                (opcode::COMMAND, flags | attribute & 7)
            }
            RequestBody::Management {
                function,
                lun,
                referenced,
                referenced_number,
            } => {
                header[8..16].copy_from_slice(lun);
                put_word(&mut header, 20, *referenced);
                put_word(&mut header, 32, *referenced_number);
                (opcode::MANAGEMENT, FINAL | function & 0x7f)
            }
            RequestBody::Login {
                transit,
                continued,
                current,
                next,
                version_max,
                version_min,
                isid,
                tsih,
                connection,
            } => {
                (header[2], header[3]) = (*version_max, *version_min);
                header[8..14].copy_from_slice(isid);
                put_half(&mut header, 14, *tsih);
                put_half(&mut header, 20, *connection);
                let flags = flag(FINAL, *transit) | flag(CONTINUED, *continued);
                (opcode::LOGIN, flags | (current & 3) << 2 | next & 3)
            }
            RequestBody::Text {
                last,
                continued,
                transfer_tag,
            } => {
                put_word(&mut header, 20, *transfer_tag);
                let flags = flag(FINAL, *last) | flag(CONTINUED, *continued);
                (opcode::TEXT, flags)
            }
            RequestBody::DataOut {
                last,
                transfer_tag,
                data_number,
                offset,
            } => {
                put_word(&mut header, 20, *transfer_tag);
                put_word(&mut header, 36, *data_number);
                put_word(&mut header, 40, *offset);
                (opcode::DATA_OUT, flag(FINAL, *last))
            }
            RequestBody::Logout { reason, connection } => {
                put_half(&mut header, 20, *connection);
                (opcode::LOGOUT, FINAL | reason & 0x7f)
            }
            RequestBody::Snack => {
                put_word(&mut header, 20, NO_TAG);
                (opcode::SNACK, FINAL)
            }
        };
        header[0] = code | flag(IMMEDIATE, self.immediate);
        header[1] = flags;
        header
    }
}
