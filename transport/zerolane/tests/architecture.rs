//! Tests that the call lists of ARCHITECTURE.md and docs/reference/paths.md match the code.
//!
//! Each function must be in the named file and be called by the nearest function above it with less indentation.
#![allow(non_snake_case)]

use std::fs;
use std::path::Path;

const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");
const PATHS: &str = include_str!("../../../docs/reference/paths.md");

/// A line of a call list.
#[derive(Debug)]
struct Call<'a> {
    depth: usize,
    function: &'a str,
    file: &'a str,
}

/// The call lists: the code blocks of paths.md, and those of ARCHITECTURE.md from the death of a peer on.
fn call_lists() -> Vec<Vec<Call<'static>>> {
    let (_, section) = ARCHITECTURE.split_once("### When a peer dies").unwrap();
    let blocks = |text: &'static str| text.split("```").skip(1).step_by(2);
    blocks(section)
        .chain(blocks(PATHS))
        .map(|block| {
            let lines = block.lines().skip(1);
            lines.filter(|it| !it.is_empty()).map(call).collect()
        })
        .collect()
}

fn call(line: &'static str) -> Call<'static> {
    let mut words = line.split_whitespace();
    let (function, file) = (words.next().unwrap(), words.next().unwrap());
    Call {
        depth: line.len() - line.trim_start().len(),
        function,
        file,
    }
}

/// The bodies of all functions of that name in `source`.
fn bodies<'a>(source: &'a str, function: &str) -> Vec<&'a str> {
    let starts = ["(", "<"].map(|next| format!("fn {function}{next}"));
    let found = starts
        .iter()
        .flat_map(|it| source.match_indices(it.as_str()));
    found
        .filter_map(|(at, _)| {
            let open = at + source[at..].find('{')?;
            let mut depth = 0;
            let end = source[open..].char_indices().find(|&(_, it)| {
                depth += i32::from(it == '{') - i32::from(it == '}');
                depth == 0
            })?;
            Some(&source[open..open + end.0])
        })
        .collect()
}

#[test]
fn paths__are_those_of_the_code() {
    let transport = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| {
        let path = transport.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let lists = call_lists();
    assert_eq!(
        lists.len(),
        11,
        "ARCHITECTURE.md: death of a peer, train out, train in, put; paths.md: the others"
    );
    for list in lists {
        assert!(list.len() > 8, "{list:?}");
        for (index, call) in list.iter().enumerate() {
            assert!(
                !bodies(&read(call.file), call.function).is_empty(),
                "no {} in {}",
                call.function,
                call.file
            );
            let caller = list[..index].iter().rev().find(|it| it.depth < call.depth);
            let Some(caller) = caller else {
                continue;
            };
            let source = read(caller.file);
            let names = [
                format!("{}(", call.function),
                format!("::{})", call.function),
            ];
            let calls = |body: &&str| names.iter().any(|name| body.contains(name.as_str()));
            assert!(
                bodies(&source, caller.function).iter().any(calls),
                "{} does not call {}",
                caller.function,
                call.function
            );
        }
    }
}

#[test]
fn where_to_look__names_files_that_exist() {
    let (_, section) = ARCHITECTURE.split_once("## Where to look").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let transport = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files: Vec<_> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|it| it.ends_with(".rs"))
        .collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        assert!(transport.join(file).is_file(), "{file}");
    }
}
