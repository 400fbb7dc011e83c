//! The tables of docs/block.md are those of the code.
#![allow(non_snake_case)]

use zerolane_block::cdb::opcode::TABLE;
use zerolane_block::sense::Code;

const DOCUMENT: &str = include_str!("../../../docs/block.md");

/// The first two cells of the rows under that heading.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let (_, rest) = DOCUMENT.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.split('|').map(str::trim).skip(1));
    cells
        .map(|mut it| (it.next().unwrap(), it.next().unwrap()))
        .collect()
}

#[test]
fn document__lists_every_command() {
    let expected: Vec<_> = TABLE
        .iter()
        .map(|row| (format!("{:02X}h", row.opcode), row.name))
        .collect();
    let rows = rows("Commands");
    let found: Vec<_> = rows
        .into_iter()
        .map(|(code, name)| (code.to_owned(), name))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn document__lists_every_sense_code() {
    let code = |it: &Code| format!("{:02X}h/{:02X}h", it.asc, it.ascq);
    let expected: Vec<_> = Code::ALL
        .iter()
        .map(|(it, name)| (code(it), *name))
        .collect();
    let rows = rows("Sense data");
    let found: Vec<_> = rows
        .into_iter()
        .map(|(code, name)| (code.to_owned(), name))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn document__names_tests_that_are_there() {
    let source = [
        include_str!("cdb.rs"),
        include_str!("commands/errors.rs"),
        include_str!("commands/readers.rs"),
        include_str!("model.rs"),
        include_str!("crash.rs"),
        include_str!("../src/store/flushes_tests.rs"),
        include_str!("document.rs"),
        include_str!("../../disk/tests/disk/capsules.rs"),
        include_str!("../../disk/tests/disk/crash.rs"),
        include_str!("../../disk/src/initiator/link_tests.rs"),
        include_str!("../../disk/src/target/losses_tests.rs"),
        include_str!("../../disk/src/target/peer_tests.rs"),
        include_str!("../../disk/src/initiator/seat_tests.rs"),
        include_str!("../../disk/tests/disk/device.rs"),
        include_str!("../../disk/tests/disk/drivers.rs"),
        include_str!("../../disk/tests/disk/extents.rs"),
        include_str!("../../disk/tests/disk/queue.rs"),
        include_str!("../../disk/tests/disk/killed.rs"),
        include_str!("../../disk/tests/disk/leaving.rs"),
        include_str!("../../disk/tests/disk/memory.rs"),
        include_str!("../../disk/tests/disk/patience.rs"),
        include_str!("../../disk/tests/disk/losses.rs"),
        include_str!("../../disk/tests/disk/luns.rs"),
        include_str!("../../disk/tests/disk/media.rs"),
        include_str!("../../disk/tests/disk/remote.rs"),
        include_str!("../../disk/tests/disk/rights.rs"),
        include_str!("../../disk/tests/disk/reservations.rs"),
        include_str!("../../disk/tests/disk/hostile.rs"),
        include_str!("../../disk/tests/disk/full.rs"),
        include_str!("../../cli/tests/disk_door/filesystems.rs"),
        include_str!("../../cli/tests/disk_door/paths.rs"),
        include_str!("../../cli/tests/disk_door/verify.rs"),
        include_str!("../../cli/tests/disk_served.rs"),
        include_str!("../../cli/tests/disk_iscsi.rs"),
        include_str!("../../iscsi/tests/conformance.rs"),
        include_str!("../../iscsi/tests/pdus.rs"),
        include_str!("../../iscsi/tests/session.rs"),
        include_str!("../../nbd/src/session/tests.rs"),
        include_str!("../../nbd/tests/session.rs"),
        include_str!("../../nbd/tests/door/clients.rs"),
        include_str!("../../nbd/tests/door/programs.rs"),
        include_str!("../../../bindings/nbdkit/tests/guard.rs"),
        include_str!("../../../bindings/nbdkit/tests/nbdkit.rs"),
        include_str!("commands/unmap.rs"),
    ]
    .concat();
    for name in DOCUMENT.split('`').filter(|it| it.contains("__")) {
        assert!(source.contains(&format!("fn {name}(")), "{name}");
    }
}
