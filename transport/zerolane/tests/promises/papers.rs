//! Tests that docs/papers.md has a row for each citation in the tree and for each caption of the papers, and that its rows
//! name real files, and tests where nothing is missing.

use super::{named, read_wings};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAPERS: &str = include_str!("../../../../docs/papers.md");

/// All captions of figures and tables of the five papers, one a line, in the order of their numbers.
const CAPTIONS: &str = include_str!("captions.txt");

/// Number of rows of each paper, in order.
const ROWS: [(&str, usize); 5] = [("P0", 8), ("P1", 14), ("P2", 8), ("P3", 1), ("P4", 6)];

/// Directories of generated files.
const MADE: [&str; 4] = [".git", "corpus", "artifacts", "__pycache__"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below `directory`.
fn files_below(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        // The build directory of a package, not a module with this name.
        let builds = name == "target" && directory.join("Cargo.toml").exists();
        if builds || MADE.iter().any(|it| name == *it) {
            continue;
        }
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path(), files),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// Words with the form of a row's name: P, 0 to 4, a point and digits.
fn cited(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('P').filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + 1..];
        let digits = rest.get(2..)?;
        let end = digits.find(|it: char| !it.is_ascii_digit());
        let len = end.unwrap_or(digits.len());
        let is_row = rest.starts_with(|it| ('0'..='4').contains(&it))
            && rest[1..].starts_with('.')
            && len > 0
            && !before.is_some_and(char::is_alphanumeric);
        is_row.then(|| &text[at..at + 3 + len])
    })
}

/// The rows by name, with their cells.
fn rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let lines = PAPERS.lines().filter(|line| line.starts_with("| P"));
    let cells = lines.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0], cells[1..].to_vec())
    });
    cells.collect()
}

#[test]
fn papers__have_every_row_and_each_is_whole() {
    let expected = ROWS
        .into_iter()
        .flat_map(|(paper, count)| (1..=count).map(move |row| format!("{paper}.{row}")));
    let mut expected: Vec<_> = expected.collect();
    expected.sort();
    let rows = rows();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), expected);
    for (name, cells) in rows {
        let [asks, here, shown, missing] = cells[..] else {
            panic!("{name} has {} cells", cells.len());
        };
        assert!(!asks.is_empty() && !missing.is_empty(), "{name}");
        assert_eq!(
            here.is_empty(),
            shown.is_empty(),
            "{name}: what is here is shown"
        );
    }
}

#[test]
fn papers__rows_that_the_tree_cites_are_there() {
    let mut files = vec![];
    files_below(&root(), &mut files);
    let (rows, mut found, mut unknown) = (rows(), BTreeSet::new(), vec![]);
    for file in files {
        // Files that are not text cite nothing.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for row in cited(&text) {
            match rows.get_key_value(row) {
                Some((row, _)) => drop(found.insert(*row)),
                None => unknown.push(format!("{row} in {}", file.display())),
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(found.len() > 8, "{found:?}");
}

/// A file is named by its crate and its own name, with folders between them if that is ambiguous.
#[test]
fn papers__files_and_commands_that_rows_name_are_there() {
    let mut files = vec![];
    files_below(&root(), &mut files);
    let mut source = String::new();
    read_wings(&mut source);
    let below = files.iter().map(|it| it.strip_prefix(root()).unwrap());
    let sources = below.filter(|it| !it.to_string_lossy().contains("tests"));
    let is_there = |name: &str| {
        sources.clone().any(|file| {
            let mut parts = file.iter().filter_map(|it| it.to_str());
            let mut names = name.trim_end_matches('/').split('/');
            let found = names.all(|it| parts.any(|part| part == it));
            found && (name.ends_with('/') || parts.next().is_none())
        })
    };
    let quoted: Vec<_> = PAPERS.split('`').skip(1).step_by(2).collect();
    let paths = quoted
        .iter()
        .filter(|it| it.contains('/') && !it.contains(' '));
    let gone: Vec<_> = paths.clone().filter(|it| !is_there(it)).collect();
    assert!(gone.is_empty() && paths.count() > 20, "{gone:?}");
    // A command is a variant of an enumeration, in another case.
    let commands = quoted.iter().filter_map(|it| it.strip_prefix("bench "));
    for command in commands {
        let words = command
            .split('_')
            .map(|it| it[..1].to_uppercase() + &it[1..]);
        let variant: String = words.collect();
        let known =
            source.contains(&format!(" {variant}(")) || source.contains(&format!(" {variant},"));
        assert!(known, "no bench {command}");
    }
    assert!(named(PAPERS).count() > 50);
}

/// The caption's paper and number, in words: `P1 table 4 of the data`.
fn captions() -> Vec<String> {
    let lines = CAPTIONS.lines();
    let names = lines.map(|line| line.split_once(": ").expect(line).0.to_owned());
    names.collect()
}

/// The figures and tables that words name, such as `figures 7a, 9 and 13 to 15, Table 2 of the data`; parts of a figure
/// count as the figure.
fn numbered(words: &str) -> Vec<String> {
    let (mut found, mut kind, mut group, mut is_range) = (Vec::new(), "", 0, false);
    for word in words.split([' ', ',']).filter(|it| !it.is_empty()) {
        let digits = word.trim_end_matches(char::is_lowercase);
        match (word.to_lowercase().as_str(), digits.parse::<u32>()) {
            ("figure" | "figures", _) => (kind, group) = ("figure", found.len()),
            ("table" | "tables", _) => (kind, group) = ("table", found.len()),
            ("to", _) => is_range = true,
            ("data", _) => found[group..]
                .iter_mut()
                .for_each(|it: &mut (&str, u32, bool)| it.2 = true),
            (_, Ok(number)) => {
                let last = found.last().map_or(number, |it| it.1 + 1);
                let first = if std::mem::take(&mut is_range) {
                    last
                } else {
                    number
                };
                found.extend((first..=number).map(|it| (kind, it, false)));
            }
            _ => {}
        }
    }
    let name = |(kind, number, of_data): (&str, u32, bool)| match of_data {
        true => format!("{kind} {number} of the data"),
        false => format!("{kind} {number}"),
    };
    found.into_iter().map(name).collect()
}

#[test]
fn numbered__names_what_words_name() {
    for (words, names) in [
        ("figure 5", "figure 5"),
        ("figures 2, 3 and 5", "figure 2, figure 3, figure 5"),
        ("figures 7a, 8b", "figure 7, figure 8"),
        ("figures 21 to 23", "figure 21, figure 22, figure 23"),
        (
            "figure 16, Tables 6 and 7 of the data",
            "figure 16, table 6 of the data, table 7 of the data",
        ),
        (
            "Table 1 of the data, figure 3",
            "table 1 of the data, figure 3",
        ),
    ] {
        assert_eq!(numbered(words).join(", "), names, "{words}");
    }
}

/// The list of captions has no gap: each kind is numbered from 1.
#[test]
fn captions__are_numbered_without_a_gap() {
    let mut next = BTreeMap::<(String, bool), u32>::new();
    for name in captions() {
        let (start, of_data) = match name.strip_suffix(" of the data") {
            Some(start) => (start, true),
            None => (name.as_str(), false),
        };
        let (kind, number) = start.rsplit_once(' ').unwrap();
        let last = next.entry((kind.to_owned(), of_data)).or_default();
        *last += 1;
        assert_eq!(number, last.to_string(), "{name}");
    }
    let counts = |kind: &str, of_data| next[&(kind.to_owned(), of_data)];
    let [p0, p1, p1_data] = [("P0", false), ("P1", false), ("P1", true)]
        .map(|(paper, of_data)| counts(&format!("{paper} figure"), of_data));
    assert_eq!((p0, p1, p1_data), (6, 22, 1));
    let tables = [("P1", false), ("P1", true), ("P2", false), ("P4", false)]
        .map(|(paper, of_data)| counts(&format!("{paper} table"), of_data));
    assert_eq!(tables, [3, 7, 4, 1]);
    let figures = ["P2", "P3", "P4"].map(|it| counts(&format!("{it} figure"), false));
    assert_eq!(figures, [9, 1, 26]);
}

/// Each has a row, which names a section of the report or says why there is none.
#[test]
fn papers__list_every_caption() {
    let (_, list) = PAPERS.split_once("## Figures and tables").unwrap();
    // The first line is the head of the table.
    let rows = list.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut listed = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, paper, shows, section] = cells[..] else {
            panic!("{row}");
        };
        let names = numbered(what);
        assert!(!names.is_empty() && !shows.is_empty(), "{row}");
        assert!(
            section.contains('`') || section.starts_with("none: "),
            "{row}"
        );
        listed.extend(names.iter().map(|it| format!("{paper} {it}")));
    }
    let captions: BTreeSet<_> = captions().into_iter().collect();
    let missing: Vec<_> = captions.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&captions).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{missing:?} {unknown:?}"
    );
}

/// Where nothing is missing, a test shows it.
#[test]
fn papers__rows_that_miss_nothing_name_a_test() {
    for (name, cells) in rows() {
        if cells[3] == "nothing" {
            assert!(named(cells[2]).count() > 0, "{name}: {}", cells[2]);
        }
    }
    let claims = rows().values().filter(|it| it[3] == "nothing").count();
    assert!(claims > 0, "no row is complete");
}
