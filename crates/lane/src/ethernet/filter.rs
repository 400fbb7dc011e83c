//! What the kernel shows a packet socket: each has only what is for it, although all see what comes by the interface.
//!
//! Offsets are those of the header; what is shorter is not shown.

use super::address::Hardware;
use socket2::SockFilter;
use zerolane_wire::Op;
use zerolane_wire::discovery::{DISCOVERY_CODE, DiscoveryKind};
use zerolane_wire::handshake::HANDSHAKE_CODE;

/// Whole frames are shown.
const ALL: u32 = u32::MAX;
/// Where the D_Port, the S_Port and the D_Key of a header lie.
const D_PORT: u32 = 4;
const S_PORT: u32 = 6;
const D_KEY: u32 = 8;
/// Where the kind and the nonce of a question or an answer lie.
const KIND: u32 = 1;
const NONCE: u32 = 16;
/// Offsets from here on are those of the frame (SKF_LL_OFF), and where its source address lies there.
const FRAME: u32 = 0u32.wrapping_sub(0x20_0000);
const SOURCE: u32 = FRAME + 6;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A program that ends by showing nothing.
struct Program(Vec<SockFilter>);

impl Program {
    fn load(&mut self, size: u16, at: u32) -> &mut Program {
        self.0.push(SockFilter::new(size, 0, 0, at));
        self
    }

    /// Goes on if what was loaded is `value`; else skips so many instructions.
    fn expect(&mut self, value: u32, skip: u8) -> &mut Program {
        self.0.push(SockFilter::new(IF_EQUAL, 0, skip, value));
        self
    }

    fn show(&mut self, len: u32) -> &mut Program {
        self.0.push(SockFilter::new(RETURN, 0, 0, len));
        self
    }

    /// Goes on with what is said of names; else skips so many instructions behind these five.
    fn expect_discovery(&mut self, kind: DiscoveryKind, skip: u8) -> &mut Program {
        self.load(LOAD_BYTE, 0);
        self.0.push(SockFilter::new(SHIFT_RIGHT, 0, 0, 3));
        self.expect(DISCOVERY_CODE.into(), skip + 2)
            .load(LOAD_BYTE, KIND)
            .expect(kind as u32, skip)
    }

    /// Goes on with a message of strangers, a Request_Connection or one of the key exchange, for `service`; else skips so
    /// many instructions behind these six.
    fn expect_stranger(&mut self, service: u16, skip: u8) -> &mut Program {
        self.load(LOAD_BYTE, 0);
        self.0.push(SockFilter::new(SHIFT_RIGHT, 0, 0, 3));
        let request = Op::RequestConnection as u32;
        self.0.push(SockFilter::new(IF_EQUAL, 1, 0, request));
        self.expect(HANDSHAKE_CODE.into(), skip + 2)
            .load(LOAD_HALF, D_PORT)
            .expect(service.into(), skip)
    }
}

/// Nothing.
pub(super) fn of_nobody() -> Vec<SockFilter> {
    let mut program = Program(Vec::new());
    program.show(0);
    program.0
}

/// What a listener is asked by `service`, and who is called how.
pub(super) fn of_listener(service: u16) -> Vec<SockFilter> {
    let mut program = Program(Vec::new());
    program
        .expect_discovery(DiscoveryKind::Question, 1)
        .show(ALL);
    program.expect_stranger(service, 1).show(ALL).show(0);
    program.0
}

/// What is answered to a question with this nonce.
pub(super) fn of_answers(nonce: [u8; 8]) -> Vec<SockFilter> {
    let [a, b, c, d, e, f, g, h] = nonce;
    let mut program = Program(Vec::new());
    program
        .expect_discovery(DiscoveryKind::Answer, 5)
        .load(LOAD_WORD, NONCE)
        .expect(u32::from_be_bytes([a, b, c, d]), 3)
        .load(LOAD_WORD, NONCE + 4)
        .expect(u32::from_be_bytes([e, f, g, h]), 1)
        .show(ALL)
        .show(0);
    program.0
}

/// What has a connection's `key`, whoever it is from; and where a listener at `service` made it, what its peer, with this
/// hardware address and port, repeats of what it asked there.
pub(super) fn of_connection(key: u32, asked: Option<(u16, Hardware, u16)>) -> Vec<SockFilter> {
    let mut program = Program(Vec::new());
    program.load(LOAD_WORD, D_KEY).expect(key, 1).show(ALL);
    if let Some((service, [a, b, c, d, e, f], port)) = asked {
        program
            .expect_stranger(service, 7)
            .load(LOAD_HALF, S_PORT)
            .expect(port.into(), 5)
            .load(LOAD_WORD, SOURCE)
            .expect(u32::from_be_bytes([a, b, c, d]), 3)
            .load(LOAD_HALF, SOURCE + 4)
            .expect(u16::from_be_bytes([e, f]).into(), 1)
            .show(ALL);
    }
    program.show(0);
    program.0
}
