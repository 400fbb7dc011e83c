//! Tests that docs/reference/environment.md lists the environment variables that programs read.

use super::constants::Sources;
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../../docs/reference/environment.md");

/// Sources that are not Rust.
const OTHERS: [&str; 3] = [
    include_str!("../../../../bindings/nixl/src/log.cpp"),
    include_str!("../../../../bindings/nixl/src/settings.cpp"),
    include_str!("../../../../bindings/nixl/python/zerolane_nixl/__init__.py"),
];

/// The settings of the services: lines `#NAME=VALUE`.
const SERVICES: &str = include_str!("../../../../packaging/zerolane.default");

/// How the variables begin that sources name in a constant.
const BEGINNINGS: [&str; 9] = [
    "FI_",
    "HOME",
    "LD_",
    "LISTEN_",
    "NIXL_",
    "SLURM_",
    "SSH_",
    "XDG_",
    "ZEROLANE_",
];

/// Variables that are read by libraries, or by names put together.
const READ_ELSEWHERE: [&str; 4] = [
    "FI_PROVIDER_PATH",
    "FSSPEC_ZL_IDENTITY",
    "TMPDIR",
    "ZEROLANE_NIXL_LISTEN",
];

/// Variables that are no setting of a program: of an example, and the beginning of names put together.
const NO_SETTINGS: [&str; 2] = ["ZEROLANE_NIXL_", "ZEROLANE_SEED"];

fn is_name(text: &str) -> bool {
    text.len() > 3 && text.chars().all(|it| it.is_ascii_uppercase() || it == '_')
}

/// The variables that `text` reads: names in quotes, behind `var(` and the like or with a known beginning.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('"').filter_map(move |(at, _)| {
        let (name, _) = text[at + 1..].split_once('"')?;
        let is_read = ["var(", "var_os("]
            .iter()
            .any(|it| text[..at].ends_with(it));
        let begins = BEGINNINGS.iter().any(|it| name.starts_with(it));
        (is_name(name) && (is_read || begins)).then_some(name)
    })
}

/// The names in backticks of `document`.
fn documented() -> BTreeSet<&'static str> {
    let quoted = DOCUMENT.split('`').skip(1).step_by(2);
    quoted.filter(|it| is_name(it)).collect()
}

#[test]
fn environment__lists_each_variable_that_is_read() {
    let sources = Sources::read();
    let mut read: BTreeSet<&str> = sources.texts().flat_map(variables).collect();
    read.extend(OTHERS.into_iter().flat_map(variables));
    read.extend(SERVICES.lines().filter_map(|it| {
        let (name, _) = it.strip_prefix('#')?.split_once('=')?;
        is_name(name).then_some(name)
    }));
    read.extend(READ_ELSEWHERE);
    for name in NO_SETTINGS {
        assert!(read.remove(name), "{name} is not read");
    }
    assert_eq!(documented(), read, "documented, and read");
}
