//! Builds kernel filters for sockets that would receive other sockets' datagrams: raw and packet sockets.
//!
//! Offsets are relative to the header. Shorter datagrams are dropped.

use socket2::SockFilter;
use zerolane_wire::Op;
use zerolane_wire::handshake::HANDSHAKE_CODE;

/// The length that accepts whole datagrams.
pub(crate) const ALL: u32 = u32::MAX;
/// Offsets of the D_Port, the S_Port and the D_Key in a header.
const D_PORT: u32 = 4;
const S_PORT: u32 = 6;
const D_KEY: u32 = 8;

pub(crate) const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(crate) const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
pub(crate) const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A program that drops the datagram at its end.
pub(crate) struct Program {
    code: Vec<SockFilter>,
    /// Bytes in front of the header.
    front: u32,
}

impl Program {
    /// For sockets that receive datagrams with nothing in front.
    pub(crate) fn of_datagrams() -> Program {
        Program {
            code: Vec::new(),
            front: 0,
        }
    }

    /// For sockets that receive IPv4 packets. Packets with options are dropped.
    pub(crate) fn of_packets() -> Program {
        const FIRST_BYTE: u32 = 0x45;
        let mut program = Program::of_datagrams();
        program.load(LOAD_BYTE, 0);
        program
            .code
            .push(SockFilter::new(IF_EQUAL, 1, 0, FIRST_BYTE));
        program.show(0);
        program.front = (FIRST_BYTE & 0xf) * 4;
        program
    }

    pub(crate) fn load(&mut self, size: u16, at: u32) -> &mut Program {
        let at = at.wrapping_add(self.front);
        self.code.push(SockFilter::new(size, 0, 0, at));
        self
    }

    /// Loads the operation code.
    pub(crate) fn load_code(&mut self) -> &mut Program {
        self.load(LOAD_BYTE, 0);
        self.code.push(SockFilter::new(SHIFT_RIGHT, 0, 0, 3));
        self
    }

    /// Continues if the loaded value is `value`; else skips `skip` instructions.
    pub(crate) fn expect(&mut self, value: u32, skip: u8) -> &mut Program {
        self.code.push(SockFilter::new(IF_EQUAL, 0, skip, value));
        self
    }

    pub(crate) fn show(&mut self, len: u32) -> &mut Program {
        self.code.push(SockFilter::new(RETURN, 0, 0, len));
        self
    }

    /// Continues with datagrams for the connection with `key`; else skips `skip` instructions.
    pub(crate) fn expect_key(&mut self, key: u32, skip: u8) -> &mut Program {
        self.load(LOAD_WORD, D_KEY).expect(key, skip)
    }

    /// Continues with datagrams of either operation code; else skips `skip` instructions after these four.
    pub(crate) fn expect_code_of(&mut self, [one, other]: [u8; 2], skip: u8) -> &mut Program {
        self.load_code();
        self.code.push(SockFilter::new(IF_EQUAL, 1, 0, one.into()));
        self.expect(other.into(), skip)
    }

    /// Continues with a message of an unauthenticated peer for `service`, which is a Request_Connection or a message of
    /// the key exchange; else skips `skip` instructions after these six.
    pub(crate) fn expect_unauthenticated(&mut self, service: u16, skip: u8) -> &mut Program {
        self.expect_code_of([Op::RequestConnection as u8, HANDSHAKE_CODE], skip + 2)
            .load(LOAD_HALF, D_PORT)
            .expect(service.into(), skip)
    }

    /// Does the same for messages from `port`; else skips `skip` instructions after these eight.
    pub(crate) fn expect_asked(&mut self, (service, port): (u16, u16), skip: u8) -> &mut Program {
        self.expect_unauthenticated(service, skip + 2)
            .load(LOAD_HALF, S_PORT)
            .expect(port.into(), skip)
    }

    /// Takes the whole program.
    pub(crate) fn take(&mut self) -> Vec<SockFilter> {
        std::mem::take(&mut self.code)
    }
}
