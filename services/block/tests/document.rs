//! Tests that the tables of docs/reference/disks.md match the code.
#![allow(non_snake_case)]

use zerolane_block::cdb::opcode::TABLE;
use zerolane_block::sense::Code;

const DOCUMENT: &str = include_str!("../../../docs/reference/disks.md");

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
