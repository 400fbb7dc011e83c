//! Tests that the wire layout matches a snapshot, so that a changed byte shows in review.
#![allow(non_snake_case)]

mod specimens;

use std::collections::BTreeSet;
use std::fmt::Write;

use zerolane_wire::{HEADER_LEN, Header, Op, Packet, RequestToSend};

const WORDS: [&str; HEADER_LEN / 4] = [
    "op flags param",
    "d_port s_port",
    "d_key",
    "checksum b_id",
    "bufx",
    "offset",
    "sync",
    "b_num",
    "d_id",
    "s_id",
];

fn dump(out: &mut String, name: &str, bytes: &[u8]) {
    writeln!(out, "{name} ({} bytes)", bytes.len()).unwrap();
    for (n, word) in bytes.chunks(4).enumerate() {
        let hex: Vec<String> = word.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = WORDS.get(n).copied().unwrap_or("options");
        writeln!(out, "  {:2}  {}  {name}", 4 * n, hex.join(" ")).unwrap();
    }
}

#[test]
fn layout__every_operation() {
    let mut out = String::new();
    for (name, packet) in specimens::packets() {
        let (bytes, len) = packet.emit();
        dump(&mut out, name, &bytes[..len]);
        assert_eq!(Packet::parse(&bytes[..len]), Ok(packet), "{name}");
    }
    dump(&mut out, "data", &specimens::data().emit());
    let (announcement, offset) = specimens::eager();
    let header = announcement.eager(offset);
    dump(&mut out, "data_eager", &header.emit());
    assert_eq!(RequestToSend::of_eager(&header, 1), Ok(announcement));
    insta::assert_snapshot!(out);
}

#[test]
fn layout__no_operation_is_left_out() {
    let mut shown: BTreeSet<Op> = specimens::packets()
        .iter()
        .map(|(_, packet)| packet.operation.op())
        .collect();
    shown.insert(Header::parse(&specimens::data().emit()).unwrap().op);
    assert_eq!(shown, BTreeSet::from(Op::ALL));
}
