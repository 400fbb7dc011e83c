//! Tests that rules.md lists the cases, and the sections of docs/reference/protocol.md.

use super::rule::{Rule, all};

const RULES: &str = include_str!("rules.md");
const PROTOCOL: &str = include_str!("../../../../../docs/reference/protocol.md");

/// A rule in the list.
struct Row {
    name: String,
    /// Sections of the protocol that state the rule.
    sections: Vec<String>,
    outcome: String,
}

impl Row {
    /// Parses ``NAME` (in SECTION; SECTION): RULE. Peer: DOES. Outcome: WHAT.``
    fn parse(item: &str) -> Self {
        let item = item.split_whitespace().collect::<Vec<_>>().join(" ");
        let split = |text: &str, at: &str| -> (String, String) {
            let (before, after) = text
                .split_once(at)
                .unwrap_or_else(|| panic!("no {at:?}: {item}"));
            assert!(!before.is_empty() && !after.is_empty(), "{item}");
            (before.to_owned(), after.to_owned())
        };
        let (name, rest) = split(&item, "` (in ");
        let (sections, rest) = split(&rest, "): ");
        let (_rule, rest) = split(&rest, " Peer: ");
        let (_peer, outcome) = split(&rest, " Outcome: ");
        let sections = sections.split("; ").map(str::to_owned).collect();
        Self {
            name,
            sections,
            outcome,
        }
    }
}

fn rows() -> Vec<Row> {
    let (_, rest) = RULES.split_once("\n1. `").unwrap();
    let (mut rest, _) = rest.split_once("\n\n").unwrap();
    let mut rows = vec![];
    loop {
        let next = format!("\n{}. `", rows.len() + 2);
        let Some((item, after)) = rest.split_once(next.as_str()) else {
            rows.push(Row::parse(rest));
            return rows;
        };
        rows.push(Row::parse(item));
        rest = after;
    }
}

fn check(row: &Row, rule: &Rule) {
    assert_eq!(row.name, rule.name);
    for (reason, _) in rule.drops.iter().chain(rule.sealed_drops) {
        let said = format!("*{reason:?}*");
        assert!(
            row.outcome.contains(&said),
            "{}: not said that {said}",
            row.name
        );
    }
}

/// Each rule in the list is broken, and each case is in the list.
#[test]
fn every_rule__has_a_row_and_every_row_a_case() {
    let rows = rows();
    rows.iter()
        .zip(all())
        .for_each(|(row, rule)| check(row, rule));
    assert_eq!(rows.len(), all().count());
}

/// Every section with rules has a case.
#[test]
fn every_section_of_the_protocol__has_a_rule_that_is_broken() {
    const OTHERS: [&str; 10] = [
        // Definitions, titles, and summaries of rules that other sections state.
        "Words",
        "Operations",
        "Protection",
        "Small operations",
        "Transfers",
        "Timers",
        "Recovery",
        // Rules of packets and frames, which no UDP socket sends: broken in the tests of their lanes.
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
        let told = rows
            .iter()
            .any(|row| row.sections.iter().any(|it| it == section));
        let is_other = OTHERS.contains(&section);
        assert!(told || is_other, "no rule of section {section:?}");
    }
    for Row { name, sections, .. } in rows {
        for section in sections {
            let known = PROTOCOL.lines().filter_map(heading).any(|it| it == section);
            assert!(known, "{name}: no section {section:?}");
        }
    }
}
