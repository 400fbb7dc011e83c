//! Tests that the documents agree with the code.
//!
//! Tests that they name exist, each promise has one, numbers equal the constants, options and environment variables are
//! complete, dependencies match the manifests and the wings, links lead somewhere, and the rows of papers are complete.
#![allow(non_snake_case)]

mod constants;
mod dependencies;
mod environment;
mod links;
mod numbers;
mod options;
mod papers;
mod wings;

use std::fs;
use std::path::Path;

/// The directories that hold crates.
const WINGS: [&str; 5] = ["transport", "services", "bindings", "tools", "lab"];

const DOCUMENTS: [(&str, &str); 6] = [
    (
        "security.md",
        include_str!("../../../../docs/reference/security.md"),
    ),
    ("rules.md", include_str!("../hostile/rules/rules.md")),
    ("papers.md", include_str!("../../../../docs/papers.md")),
    (
        "reference/cast-design.md",
        include_str!("../../../../docs/reference/cast-design.md"),
    ),
    (
        "reference/disks.md",
        include_str!("../../../../docs/reference/disks.md"),
    ),
    (
        "reference/memory-model.md",
        include_str!("../../../../docs/reference/memory-model.md"),
    ),
];

/// Adds the text of all Rust files below `directory`.
fn read_below(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_below(&path, text);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Adds the text of all Rust files of the tree.
fn read_wings(text: &mut String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for wing in WINGS {
        read_below(&root.join(wing), text);
    }
}

/// Names in backticks with the form of a test's: `function__case`.
fn named(document: &str) -> impl Iterator<Item = &str> {
    let quoted = document.split('`').skip(1).step_by(2);
    quoted.filter(|it| it.contains("__") && !it.contains('/'))
}

#[test]
fn documents__name_tests_that_are_there() {
    let mut source = String::new();
    read_wings(&mut source);
    for (document, text) in DOCUMENTS {
        assert!(named(text).count() > 6, "{document} names tests");
        for name in named(text) {
            // A prefix of several names.
            let is_there = match name.strip_suffix("...") {
                Some(beginning) => source.contains(&format!("fn {beginning}")),
                None => source.contains(&format!("fn {name}(")),
            };
            assert!(is_there, "{document}: no test {name}");
        }
    }
}

/// Each promise names the tests that hold it.
#[test]
fn promises__each_has_a_test() {
    let (_, security) = DOCUMENTS[0];
    let (_, rest) = security.split_once("## What is promised").unwrap();
    let (promises, _) = rest.split_once("\n## ").unwrap();
    let items: Vec<&str> = promises.split("\n\n").nth(2).map_or(vec![], items);
    assert!(items.len() >= 24, "{} promises", items.len());
    for (number, item) in items.iter().enumerate() {
        assert!(item.starts_with(&format!("{}. **", number + 1)), "{item}");
        let (_, tests) = item.split_once("Tests: ").expect(item);
        assert!(named(tests).count() > 0, "no test for {item}");
    }
}

/// The items of a numbered list.
fn items(list: &str) -> Vec<&str> {
    let starts = list.match_indices(|it: char| it.is_ascii_digit());
    let starts = starts.filter(|(at, _)| *at == 0 || list.as_bytes()[at - 1] == b'\n');
    let mut starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    starts.push(list.len());
    let ends = starts.iter().skip(1);
    starts
        .iter()
        .zip(ends)
        .map(|(from, to)| &list[*from..*to])
        .collect()
}

#[test]
fn index__lists_every_document() {
    let index = include_str!("../../../../docs/README.md");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut names = Vec::new();
    for directory in ["", "guide/", "measurements/", "reference/"] {
        for entry in fs::read_dir(docs.join(directory)).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            names.push(format!("{directory}{name}"));
        }
    }
    assert!(names.len() > 10, "{names:?}");
    let pages = names.iter().filter(|it| it.ends_with(".md"));
    for name in pages.filter(|it| *it != "README.md") {
        let listed = index.contains(&format!("({name})"));
        assert!(listed, "docs/README.md does not list docs/{name}");
    }
}
