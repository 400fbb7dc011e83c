//! The table of docs/reference/rules.md against the cases, and against docs/reference/protocol.md.

use super::rule::{Rule, all};

const RULES: &str = include_str!("../../../../../docs/reference/rules.md");
const PROTOCOL: &str = include_str!("../../../../../docs/reference/protocol.md");

/// A row of the table: number, name, sections of the protocol, rule, what the peer does, what must happen.
struct Row<'a>([&'a str; 6]);

fn rows() -> Vec<Row<'static>> {
    let lines = RULES.lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect());
    let rows = cells.filter(|cells: &Vec<&str>| cells[0].parse::<u32>().is_ok());
    rows.map(|cells| {
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
        let cells = <[&str; 6]>::try_from(cells);
        Row(cells.unwrap_or_else(|cells| panic!("not six cells: {cells:?}")))
    })
    .collect()
}

fn check(row: &Row<'_>, rule: &Rule) {
    let Row([_, name, _, _, _, outcome]) = row;
    assert_eq!(*name, format!("`{}`", rule.name));
    for (reason, _) in rule.drops.iter().chain(rule.sealed_drops) {
        let said = format!("*{reason:?}*");
        assert!(outcome.contains(&said), "{name}: not said that {said}");
    }
}

/// Each rule of the table is broken, and each that is broken stands in the table.
#[test]
fn every_rule__has_a_row_and_every_row_a_case() {
    let rows = rows();
    for (number, (row, rule)) in rows.iter().zip(all()).enumerate() {
        assert_eq!(row.0[0], (number + 1).to_string());
        check(row, rule);
    }
    assert_eq!(rows.len(), all().count());
}

/// No section with rules is left out.
#[test]
fn every_section_of_the_protocol__has_a_rule_that_is_broken() {
    const OTHERS: [&str; 10] = [
        // Definitions, and drawings of the rules above them.
        "Words",
        "Operations",
        "Protection",
        "Sequences",
        "Connection set-up",
        "Write",
        "Persistent memory",
        // Of packets and frames, which no UDP socket sends: broken in the tests of their lanes.
        "IP",
        "Ethernet",
        "Discovery",
    ];
    let heading = |line: &'static str| {
        let text = line.trim_start_matches('#').strip_prefix(' ')?;
        line.starts_with("##").then_some(text)
    };
    let rows = rows();
    for section in PROTOCOL.lines().filter_map(heading) {
        let told = RULES.contains(&format!("[{section}](protocol.md#"));
        let is_other = OTHERS.contains(&section);
        assert!(told || is_other, "no rule of section {section:?}");
    }
    for Row([number, _, sections, ..]) in rows {
        for section in sections
            .split("](protocol.md#")
            .take_while(|it| it.contains('['))
        {
            let name = section.rsplit_once('[').unwrap().1;
            let known = PROTOCOL.lines().filter_map(heading).any(|it| it == name);
            assert!(known, "row {number}: no section {name:?}");
        }
    }
}
