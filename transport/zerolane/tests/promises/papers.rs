//! Tests that docs/papers.md has a row for each citation in the tree, and that its rows name real files.

use super::{named, read_wings};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAPERS: &str = include_str!("../../../../docs/papers.md");

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
