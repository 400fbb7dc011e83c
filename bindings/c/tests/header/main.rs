//! Tests that the committed header and manual pages match the sources, and that docs/reference/names.md is complete.
//!
//! After a change of the interface: `ZEROLANE_UPDATE_HEADER=1 cargo test -p zerolane-c --test header`.
#![allow(non_snake_case)]

mod items;
mod manual;
mod names;
mod sections;

use items::{Header, Item, Kind};
use sections::{SECTIONS, Section};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// cbindgen's header, in its order.
fn generated() -> Header {
    let config =
        cbindgen::Config::from_file(crate_dir().join("cbindgen.toml")).expect("the settings");
    let bindings = cbindgen::generate_with_config(crate_dir(), config).expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    Header::parse(&String::from_utf8(made).expect("UTF-8"))
}

fn find<'a>(header: &'a Header, name: &str) -> &'a Item {
    let found = header.items.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("tests/header/sections.rs names {name}, which is not there"))
}

/// Checks that the file matches `made`; with `ZEROLANE_UPDATE_HEADER`, writes it first.
fn is_committed(path: &Path, made: &str) {
    if std::env::var_os("ZEROLANE_UPDATE_HEADER").is_some() {
        std::fs::write(path, made).expect("written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let differs = made.lines().zip(committed.lines()).find(|(a, b)| a != b);
    assert!(
        made == committed,
        "{} is out of date, first at {differs:?}: see the top of this test",
        path.display()
    );
}

#[test]
fn sections__have_every_item_once() {
    let header = generated();
    let listed: Vec<_> = SECTIONS.iter().flat_map(|it| it.items).collect();
    let once: BTreeSet<_> = listed.iter().collect();
    assert_eq!(listed.len(), once.len(), "an item is listed twice");
    for item in &header.items {
        assert!(
            listed.contains(&&item.name.as_str()),
            "no section of tests/header/sections.rs has {}",
            item.name
        );
    }
    for name in listed {
        find(&header, name);
    }
}

/// Beginners read the header from the top: items needed first come first, whatever their source file.
#[test]
fn header__is_what_the_sources_make_in_the_order_of_a_tutorial() {
    let header = generated();
    let mut made = header.prologue.clone();
    made.push_str("#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for Section {
        title,
        about,
        items,
        ..
    } in SECTIONS
    {
        made.push_str(&format!("\n/* {}\n * {title}\n", "=".repeat(96)));
        for line in items::wrapped(about, 96) {
            made.push_str(&format!(" * {line}\n"));
        }
        made.push_str(" */\n");
        for name in *items {
            made.push_str(&format!("\n{}\n", find(&header, name).text));
        }
    }
    made.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n");
    made.push_str(&header.epilogue);
    is_committed(&crate_dir().join("include/zerolane.h"), &made);
}

fn pages() -> Vec<(PathBuf, String)> {
    let header = generated();
    let page = |section: &Section| {
        let path = crate_dir().join(format!("man/{}.3", section.page));
        (path, manual::page(section, &header))
    };
    SECTIONS.iter().map(page).collect()
}

#[test]
fn manual__is_what_the_sources_make() {
    let pages = pages();
    for (path, made) in &pages {
        is_committed(path, made);
    }
    for there in std::fs::read_dir(crate_dir().join("man")).expect("man") {
        let there = there.expect("an entry").path();
        assert!(
            pages.iter().any(|(path, _)| *path == there),
            "no section makes {}",
            there.display()
        );
    }
}

#[test]
fn manual__names_each_function_in_one_page() {
    let pages = pages();
    for item in generated()
        .items
        .iter()
        .filter(|it| it.kind == Kind::Function)
    {
        let named = format!("\n.Nm {}", item.name);
        let names = |page: &str| {
            let mut found = page.match_indices(&named);
            found.any(|(at, _)| page[at + named.len()..].starts_with([' ', '\n']))
        };
        let count = pages.iter().filter(|(_, page)| names(page)).count();
        assert_eq!(count, 1, "pages that name {}", item.name);
    }
}

#[test]
fn manual__has_no_fault_that_mandoc_finds() {
    let files: Vec<PathBuf> = pages().into_iter().map(|(path, _)| path).collect();
    let linted = std::process::Command::new("mandoc")
        .args(["-T", "lint", "-W", "style"])
        .args(files)
        .output();
    let Ok(linted) = linted else {
        eprintln!("skipped: no mandoc");
        return;
    };
    let said = String::from_utf8(linted.stdout).expect("UTF-8");
    // The pages refer to each other and are not installed.
    let faults: Vec<_> = said
        .lines()
        .filter(|it| !it.contains("referenced manual not found"))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
