//! Tests that every relative link below docs/, and in rules.md, leads to a file and a heading.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Adds the lines of each Markdown file below `directory`, without code.
fn read_below(directory: &Path, documents: &mut BTreeMap<PathBuf, Vec<String>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_below(&path, documents);
        } else if path.extension().is_some_and(|it| it == "md") {
            let text = fs::read_to_string(&path).unwrap();
            // Text between two fences is code.
            let prose = text.split("```").step_by(2);
            let lines = prose.flat_map(str::lines).map(str::to_owned);
            documents.insert(path.canonicalize().unwrap(), lines.collect());
        }
    }
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars();
    let kept = kept.filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it })
        .flat_map(char::to_lowercase)
        .collect()
}

/// Targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1);
    after.filter_map(|it| it.split_once(')')).map(|it| it.0)
}

#[test]
fn links__lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = BTreeMap::new();
    read_below(&root.join("docs"), &mut documents);
    let rules = "transport/zerolane/tests/hostile/rules";
    read_below(&root.join(rules), &mut documents);
    let mut checked = 0;
    let mut broken = Vec::new();
    for (path, lines) in &documents {
        let links = lines.iter().flat_map(|it| targets(it));
        for link in links.filter(|it| !it.contains("://")) {
            checked += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Some(path.clone()),
                file => path.parent().unwrap().join(file).canonicalize().ok(),
            };
            // Only headings of these documents are known.
            let is_there = target.is_some_and(|it| {
                let lines = documents.get(&it);
                heading.is_empty()
                    || lines.is_none_or(|it| {
                        let mut headings = it.iter().filter(|it| it.starts_with('#'));
                        headings.any(|it| anchor(it) == heading)
                    })
            });
            if !is_there {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(checked > 100, "{checked}");
    assert!(broken.is_empty(), "{broken:#?}");
}
