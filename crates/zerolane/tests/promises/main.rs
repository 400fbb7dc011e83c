//! What the documents say is so: the tests they name are there, a promise has one, the numbers are those of the
//! constants, the dependencies those of the manifests, links lead somewhere, and the papers' rows are complete.
#![allow(non_snake_case)]

mod constants;
mod dependencies;
mod links;
mod numbers;
mod papers;

use std::fs;
use std::path::Path;

const DOCUMENTS: [(&str, &str); 5] = [
    ("security.md", include_str!("../../../../docs/security.md")),
    ("rules.md", include_str!("../../../../docs/rules.md")),
    ("papers.md", include_str!("../../../../docs/papers.md")),
    (
        "reference/cast-design.md",
        include_str!("../../../../docs/reference/cast-design.md"),
    ),
    (
        "reference/disks.md",
        include_str!("../../../../docs/reference/disks.md"),
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

/// What stands in backticks and is called like a test: `function__case`.
fn named(document: &str) -> impl Iterator<Item = &str> {
    let quoted = document.split('`').skip(1).step_by(2);
    quoted.filter(|it| it.contains("__") && !it.contains('/'))
}

#[test]
fn documents__name_tests_that_are_there() {
    let mut source = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    read_below(&root.join("crates"), &mut source);
    read_below(&root.join("bindings"), &mut source);
    for (document, text) in DOCUMENTS {
        assert!(named(text).count() > 6, "{document} names tests");
        for name in named(text) {
            // Of several that begin alike.
            let is_there = match name.strip_suffix("...") {
                Some(beginning) => source.contains(&format!("fn {beginning}")),
                None => source.contains(&format!("fn {name}(")),
            };
            assert!(is_there, "{document}: no test {name}");
        }
    }
}

/// Each row of the promises says which test holds it, or why none can.
#[test]
fn promises__each_has_a_test() {
    let (_, security) = DOCUMENTS[0];
    let (_, rest) = security.split_once("## What is promised").unwrap();
    let (promises, _) = rest.split_once("\n## ").unwrap();
    let rows: Vec<&str> = promises
        .lines()
        .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
        .collect();
    assert!(rows.len() >= 18, "{} promises", rows.len());
    for row in rows {
        let cell = row
            .trim_end_matches([' ', '|'])
            .rsplit(" | ")
            .next()
            .unwrap();
        assert!(named(cell).count() > 0, "no test for {row}");
    }
}

#[test]
fn readme__lists_every_document() {
    let readme = include_str!("../../../../README.md");
    let (_, list) = readme.split_once("## Read on").unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut names = Vec::new();
    for directory in ["", "guide/", "measurements/"] {
        for entry in fs::read_dir(docs.join(directory)).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            names.push(format!("{directory}{name}"));
        }
    }
    assert!(names.len() > 10, "{names:?}");
    for name in names.iter().filter(|it| it.ends_with(".md")) {
        let listed = list.contains(&format!("(docs/{name})"));
        assert!(listed, "README.md does not list docs/{name}");
    }
}
