//! Tests that docs/reference/options.md has each option of the library, by its names in Rust, C and Python.

use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../../docs/reference/options.md");
const RUST: &str = include_str!("../../../lane/src/options.rs");
const SECURITY: &str = include_str!("../../../lane/src/seal/security.rs");
const C: &str = include_str!("../../../../bindings/c/include/zerolane.h");
const PYTHON: &str = include_str!("../../../../bindings/python/python/zerolane/_zerolane.pyi");

type Names = BTreeSet<String>;

/// The names in backticks in column `column` of the tables.
fn documented(column: usize) -> Names {
    let rows = DOCUMENT.lines().filter(|it| it.starts_with("| `"));
    let cells = rows.filter_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        // The second table has Rust's names alone.
        (column == 1 || cells.len() == 7).then(|| cells[column])
    });
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// The public fields of the structure `name`, with their types.
fn fields<'a>(source: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let (_, body) = source
        .split_once(&format!("pub struct {name} {{\n"))
        .unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let fields = body.lines().filter_map(|it| it.strip_prefix("    pub "));
    let fields = fields.map(|it| it.trim_end_matches(',').split_once(": ").unwrap());
    fields.collect()
}

fn of_rust() -> Names {
    let mut names = Names::new();
    for (group, kind) in fields(RUST, "Options") {
        let source = if kind == "Security" { SECURITY } else { RUST };
        if kind == "Security" || kind.ends_with("Options") {
            let settings = fields(source, kind);
            names.extend(settings.iter().map(|(it, _)| format!("{group}.{it}")));
        } else {
            names.insert(group.to_owned());
        }
    }
    names
}

fn of_c() -> Names {
    let values = C.lines().filter_map(|it| {
        let (name, _) = it.trim().strip_prefix("ZL_OPTION_")?.split_once(" = ")?;
        Some(name.to_owned())
    });
    let calls = C.lines().filter_map(|it| {
        let (_, name) = it.split_once(" zl_options_")?;
        let (name, _) = name.split_once('(')?;
        let sets = !["new", "set", "free"].contains(&name);
        sets.then(|| format!("zl_options_{name}"))
    });
    values.chain(calls).collect()
}

fn of_python() -> Names {
    let (_, class) = PYTHON.split_once("\nclass Options:\n").unwrap();
    let (signature, _) = class.split_once(") -> Self").unwrap();
    let keywords = signature.lines().filter_map(|it| it.split_once(": "));
    keywords.map(|(it, _)| it.trim().to_owned()).collect()
}

#[test]
fn options__are_those_of_each_language() {
    assert_eq!(documented(1), of_rust(), "documented, and in Rust");
    assert_eq!(documented(2), of_c(), "documented, and in C");
    assert_eq!(documented(3), of_python(), "documented, and in Python");
}
