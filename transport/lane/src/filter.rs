//! Filters in the kernel, of sockets that are shown more than what is for them: raw and packet sockets.
//!
//! Offsets are those of the header; what is shorter is not shown.

use socket2::SockFilter;
use zerolane_wire::Op;
use zerolane_wire::handshake::HANDSHAKE_CODE;

/// Whole datagrams are shown.
pub(crate) const ALL: u32 = u32::MAX;
/// Where the D_Port, the S_Port and the D_Key of a header lie.
const D_PORT: u32 = 4;
const S_PORT: u32 = 6;
const D_KEY: u32 = 8;

pub(crate) const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(crate) const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
pub(crate) const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A program that ends by showing nothing.
pub(crate) struct Program {
    code: Vec<SockFilter>,
    /// Bytes in front of the header.
    front: u32,
}

impl Program {
    /// For sockets that are shown datagrams, with nothing in front.
    pub(crate) fn of_datagrams() -> Program {
        Program {
            code: Vec::new(),
            front: 0,
        }
    }

    /// For sockets that are shown IPv4 packets: what has options is not shown.
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

    /// Loads the code of the operation.
    pub(crate) fn load_code(&mut self) -> &mut Program {
        self.load(LOAD_BYTE, 0);
        self.code.push(SockFilter::new(SHIFT_RIGHT, 0, 0, 3));
        self
    }

    /// Goes on if what was loaded is `value`; else skips so many instructions.
    pub(crate) fn expect(&mut self, value: u32, skip: u8) -> &mut Program {
        self.code.push(SockFilter::new(IF_EQUAL, 0, skip, value));
        self
    }

    pub(crate) fn show(&mut self, len: u32) -> &mut Program {
        self.code.push(SockFilter::new(RETURN, 0, 0, len));
        self
    }

    /// Goes on with what has the `key` of a connection; else skips so many instructions.
    pub(crate) fn expect_key(&mut self, key: u32, skip: u8) -> &mut Program {
        self.load(LOAD_WORD, D_KEY).expect(key, skip)
    }

    /// Goes on with what has either code; else skips so many instructions behind these four.
    pub(crate) fn expect_code_of(&mut self, [one, other]: [u8; 2], skip: u8) -> &mut Program {
        self.load_code();
        self.code.push(SockFilter::new(IF_EQUAL, 1, 0, one.into()));
        self.expect(other.into(), skip)
    }

    /// Goes on with a message of strangers, a Request_Connection or one of the key exchange, for `service`; else skips
    /// so many instructions behind these six.
    pub(crate) fn expect_stranger(&mut self, service: u16, skip: u8) -> &mut Program {
        self.expect_code_of([Op::RequestConnection as u8, HANDSHAKE_CODE], skip + 2)
            .load(LOAD_HALF, D_PORT)
            .expect(service.into(), skip)
    }

    /// The same of a message from `port`; else skips so many instructions behind these eight.
    pub(crate) fn expect_asked(&mut self, (service, port): (u16, u16), skip: u8) -> &mut Program {
        self.expect_stranger(service, skip + 2)
            .load(LOAD_HALF, S_PORT)
            .expect(port.into(), skip)
    }

    /// All of it.
    pub(crate) fn take(&mut self) -> Vec<SockFilter> {
        std::mem::take(&mut self.code)
    }
}
