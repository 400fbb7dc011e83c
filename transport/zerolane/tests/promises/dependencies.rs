//! Tests that docs/reference/dependencies.md lists exactly the dependencies in the crates' manifests.

use super::WINGS;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const LIST: &str = include_str!("../../../../docs/reference/dependencies.md");

/// Rows that are not about crates, or about tools that no manifest lists.
const OTHERS: [&str; 3] = ["tests", "fuzz", "crate"];
const TOOLS: [&str; 3] = ["cbindgen", "maturin", "ziglang"];

type Names = BTreeSet<String>;

/// Names in the table, by crate. Text in parentheses belongs to the name before it.
fn listed() -> BTreeMap<&'static str, Names> {
    let (mut all, mut of) = (BTreeMap::<_, Names>::new(), "");
    for row in LIST.lines().filter_map(|it| it.strip_prefix("| ")) {
        let (own, rest) = match row.strip_prefix("| ") {
            Some(rest) => ("", rest),
            None => row.split_once(" | ").unwrap(),
        };
        of = if own.is_empty() { of } else { own };
        let (names, _) = rest.split_once(" |").unwrap();
        let names: String = names
            .split('(')
            .enumerate()
            .map(|(number, it)| match number {
                0 => it,
                _ => it.split_once(')').unwrap().1,
            })
            .collect();
        let names = names.split(',').map(str::trim);
        let names = names.filter(|it| !it.is_empty() && !it.contains(' '));
        all.entry(of).or_default().extend(names.map(str::to_owned));
    }
    all
}

/// A manifest's dependencies outside of this tree.
fn depends(manifest: &str) -> Names {
    let sections = manifest.split("\n[").skip(1);
    let sections = sections.filter(|it| {
        let name = it.split_once(']').unwrap().0;
        name == "dependencies" || name.ends_with(".dependencies")
    });
    let lines = sections.flat_map(|it| it.lines().skip(1));
    let ours = |it: &str| it.contains("workspace") || it.contains("path =");
    let lines = lines.filter(|it| it.contains('=') && !it.starts_with('#') && !ours(it));
    lines
        .map(|it| it.split('=').next().unwrap().trim().to_owned())
        .collect()
}

#[test]
fn dependencies__in_the_table_are_those_of_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut listed, mut ours) = (listed(), Names::from(["nothing".to_owned()]));
    let mut found = BTreeMap::new();
    for wing in WINGS {
        let prefix = if wing == "bindings" { "bindings/" } else { "" };
        for entry in fs::read_dir(root.join(wing)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else {
                continue;
            };
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(format!("{prefix}{name}"), depends(&manifest));
            ours.insert(name);
        }
    }
    assert!(found.len() > 20, "{found:?}");
    for (name, depends) in &found {
        let mut row = listed.remove(&**name).unwrap_or_default();
        row.retain(|it| !ours.contains(it) && !TOOLS.contains(&&**it));
        assert_eq!(
            *depends, row,
            "{name}: its manifest, and docs/reference/dependencies.md"
        );
    }
    let unknown: Vec<_> = listed.keys().filter(|it| !OTHERS.contains(it)).collect();
    assert!(unknown.is_empty(), "no such crate: {unknown:?}");
}
