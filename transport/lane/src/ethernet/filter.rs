//! Builds kernel filters for packet sockets, each of which would otherwise receive all frames of its interface.

use crate::address::ethernet::Hardware;
use crate::socket::filter::{ALL, LOAD_BYTE, LOAD_HALF, LOAD_WORD, Program};
use socket2::SockFilter;
use zerolane_wire::Op;
use zerolane_wire::discovery::{DISCOVERY_CODE, DiscoveryKind};
use zerolane_wire::encapsulation::PADDED_CODE;

/// Positions of the kind and the nonce in a question or an answer.
const KIND: u32 = 1;
const NONCE: u32 = 16;
/// Base of offsets into the frame (SKF_LL_OFF), and the position of its source address.
const FRAME: u32 = 0u32.wrapping_sub(0x20_0000);
const SOURCE: u32 = FRAME + 6;

/// Continues with messages of name discovery of this `kind`; else skips `skip` instructions after these five.
fn expect_discovery(program: &mut Program, kind: DiscoveryKind, skip: u8) -> &mut Program {
    program
        .load_code()
        .expect(DISCOVERY_CODE.into(), skip + 2)
        .load(LOAD_BYTE, KIND)
        .expect(kind as u32, skip)
}

/// Accepts nothing.
pub(crate) fn of_nobody() -> Vec<SockFilter> {
    Program::of_datagrams().show(0).take()
}

/// Accepts a listener's requests for `service`, and questions for names.
pub(crate) fn of_listener(service: u16) -> Vec<SockFilter> {
    let mut program = Program::of_datagrams();
    expect_discovery(&mut program, DiscoveryKind::Question, 1).show(ALL);
    program
        .expect_unauthenticated(service, 1)
        .show(ALL)
        .show(0)
        .take()
}

/// Accepts answers to a question with this nonce.
pub(crate) fn of_answers(nonce: [u8; 8]) -> Vec<SockFilter> {
    let [a, b, c, d, e, f, g, h] = nonce;
    let mut program = Program::of_datagrams();
    expect_discovery(&mut program, DiscoveryKind::Answer, 5)
        .load(LOAD_WORD, NONCE)
        .expect(u32::from_be_bytes([a, b, c, d]), 3)
        .load(LOAD_WORD, NONCE + 4)
        .expect(u32::from_be_bytes([e, f, g, h]), 1)
        .show(ALL)
        .show(0)
        .take()
}

/// Accepts questions with a connection's `key`, from any host: Nops and padded datagrams. An unsealed Nop is shorter
/// than a minimal frame, and is padded.
pub(crate) fn of_questions(key: u32) -> Vec<SockFilter> {
    Program::of_datagrams()
        .expect_code_of([Op::Nop as u8, PADDED_CODE], 3)
        .expect_key(key, 1)
        .show(ALL)
        .show(0)
        .take()
}

/// Number of instructions of [`expect_source`].
const SOURCE_LEN: u8 = 4;

/// Continues with frames from `hardware`; else skips `skip` instructions after these four.
fn expect_source(program: &mut Program, hardware: Hardware, skip: u8) -> &mut Program {
    let [a, b, c, d, e, f] = hardware;
    program
        .load(LOAD_WORD, SOURCE)
        .expect(u32::from_be_bytes([a, b, c, d]), skip + 2)
        .load(LOAD_HALF, SOURCE + 4)
        .expect(u16::from_be_bytes([e, f]).into(), skip)
}

/// Accepts frames with a connection's `key`, from any host. If a listener at `service` made the connection, also
/// accepts requests that its peer, with this hardware address and port, repeats.
pub(crate) fn of_connection(key: u32, asked: Option<(u16, Hardware, u16)>) -> Vec<SockFilter> {
    let mut program = Program::of_datagrams();
    program.expect_key(key, 1).show(ALL);
    if let Some((service, hardware, port)) = asked {
        program.expect_asked((service, port), SOURCE_LEN + 1);
        expect_source(&mut program, hardware, 1).show(ALL);
    }
    program.show(0).take()
}

/// Accepts frames with a connection's `key` from any host except `others`, which are fewer than a connection's paths:
/// frames of its other paths at the same interface go to their sockets.
pub(crate) fn of_path(key: u32, others: &[Hardware]) -> Vec<SockFilter> {
    let mut program = Program::of_datagrams();
    let each = SOURCE_LEN + 1;
    program.expect_key(key, each * others.len() as u8 + 1);
    for &other in others {
        expect_source(&mut program, other, 1).show(0);
    }
    program.show(ALL).show(0).take()
}
