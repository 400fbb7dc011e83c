//! Tests that docs/reference/names.md has every name of the Rust, C and Python interfaces, and no other.

use super::items::Kind;
use super::{crate_dir, generated};
use std::collections::{BTreeMap, BTreeSet};

/// The files of Rust's interface.
const RUST: [&str; 25] = [
    "completion.rs",
    "connection.rs",
    "arrived.rs",
    "remote.rs",
    "id.rs",
    "request/mod.rs",
    "advanced.rs",
    "endpoint.rs",
    "incoming.rs",
    "listener.rs",
    "queue.rs",
    "receive_pool.rs",
    "worker/mod.rs",
    "worker/run.rs",
    "worker/handle.rs",
    "worker/incoming.rs",
    "worker/numbered.rs",
    "worker/pool.rs",
    "worker/remote.rs",
    "worker/partial.rs",
    "worker/thread.rs",
    "worker/pending.rs",
    "worker/set.rs",
    "worker/release.rs",
    "worker/tokio.rs",
];
/// Those of streams.
const STREAMS: [&str; 3] = ["mod.rs", "io.rs", "error.rs"];
/// Python's classes whose methods are listed.
const PYTHON: [&str; 13] = [
    "Connection",
    "Endpoint",
    "Incoming",
    "CompletionQueue",
    "Worker",
    "WorkerThread",
    "EndpointHandle",
    "ConnectionHandle",
    "Pending",
    "PendingSet",
    "ReceivePool",
    "Streams",
    "Stream",
];
/// What C puts before the names of a type's functions.
const PREFIXES: [(&str, &str); 10] = [
    ("Connection", "zl_"),
    ("Endpoint", "zl_endpoint_"),
    ("Incoming", "zl_incoming_"),
    ("CompletionQueue", "zl_queue_"),
    ("Worker", "zl_worker_"),
    ("ExportedRegion", "zl_exported_"),
    ("PendingSet", "zl_set_"),
    ("ReceivePool", "zl_pool_"),
    ("Streams", "zl_streams_"),
    ("Stream", "zl_stream_"),
];
/// The class of requests, which Python's connections extend.
const REQUESTS: &str = "Requests";
/// The heading of names that differ, with the reason.
const OTHERWISE: &str = "## Differences";

type Names = BTreeSet<String>;

fn read(below: &str) -> String {
    let path = crate_dir().join("../..").join(below);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table: names in Rust, C and Python. More columns may follow.
fn rows() -> Vec<[Names; 3]> {
    let text = read("docs/reference/names.md");
    let rows = text.lines().filter_map(|it| it.strip_prefix("| "));
    let rows = rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let mut cell = || cells.next().expect("three columns");
        let rust = backticked(cell());
        let c = named(cell(), &rust, in_c);
        let python = named(cell(), &rust, in_python);
        [rust, c, python]
    });
    rows.filter(|row| row.iter().any(|it| !it.is_empty()))
        .collect()
}

/// The names in a cell. A sign of equality stands for the names of `rust`, spelled as in the cell's language.
fn named(cell: &str, rust: &Names, spelled: fn(&str) -> String) -> Names {
    let mut all = backticked(cell);
    if cell.starts_with('=') {
        all.extend(rust.iter().map(|it| spelled(it)));
    }
    all
}

/// `zl_worker_listen` of `Worker::listen`.
fn in_c(rust: &str) -> String {
    let (of, function) = rust.split_once("::").expect("a function of a type");
    let prefix = PREFIXES.iter().find(|it| it.0 == of);
    let (_, prefix) = prefix.unwrap_or_else(|| panic!("PREFIXES lacks {of}"));
    format!("{prefix}{function}")
}

/// `Worker.listen` of `Worker::listen`.
fn in_python(rust: &str) -> String {
    rust.replace("::", ".")
}

/// What stands in backticks; `a_{b, c}_d` is `a_b_d` and `a_c_d`.
fn backticked(text: &str) -> Names {
    let words = text.split('`').skip(1).step_by(2);
    words.flat_map(expanded).collect()
}

fn expanded(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let (choices, after) = rest.split_once('}').expect("a closing brace");
    let choices = choices.split(',').map(str::trim);
    choices.map(|it| format!("{before}{it}{after}")).collect()
}

fn column(index: usize) -> Names {
    rows()
        .into_iter()
        .flat_map(|row| row[index].clone())
        .collect()
}

/// `Type::function` of every public function.
fn rust_surface() -> Names {
    let mut names = Names::new();
    let library = RUST.map(|it| format!("transport/zerolane/src/{it}"));
    let streams = STREAMS.map(|it| format!("services/streams/src/stream/{it}"));
    for file in library.into_iter().chain(streams) {
        let mut of = String::new();
        for line in read(&file).lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.split_once(" for ").map_or(rest, |it| it.1);
                let rest = rest.trim_start_matches("<T>").trim();
                of = super::items::word(rest).to_owned();
            }
            let function = line
                .strip_prefix("    pub fn ")
                .or(line.strip_prefix("    pub const fn "))
                .or(line.strip_prefix("    pub async fn "))
                .or(line
                    .strip_prefix("    fn ")
                    .filter(|it| it.starts_with("as_fd(")));
            if let Some(function) = function {
                names.insert(format!("{of}::{}", super::items::word(function)));
            }
        }
    }
    names
}

/// `Class.method` of the listed classes, and the functions of the module.
fn python_surface() -> Names {
    let mut names = Names::new();
    let mut class = String::new();
    for line in read("bindings/python/python/zerolane/_zerolane.pyi").lines() {
        if let Some(rest) = line.strip_prefix("class ") {
            class = super::items::word(rest).to_owned();
            if class == REQUESTS {
                class = PYTHON[0].to_owned();
            }
        } else if let Some(rest) = line.strip_prefix("def ") {
            names.insert(super::items::word(rest).to_owned());
        } else if let Some(rest) = line.strip_prefix("    def ") {
            let name = super::items::word(rest);
            if PYTHON.contains(&class.as_str()) && !name.starts_with('_') {
                names.insert(format!("{class}.{name}"));
            }
        }
    }
    names
}

fn are_the_same(documented: &Names, there: &Names, what: &str) {
    let missing: Vec<_> = there.difference(documented).collect();
    assert!(
        missing.is_empty(),
        "docs/reference/names.md lacks {what} {missing:?}"
    );
    let gone: Vec<_> = documented.difference(there).collect();
    assert!(
        gone.is_empty(),
        "docs/reference/names.md has {what} {gone:?}, which is not there"
    );
}

#[test]
fn names__of_rust_are_in_the_table() {
    let surface = rust_surface();
    let types: Names = surface
        .iter()
        .filter_map(|it| it.split_once("::"))
        .map(|it| it.0.to_owned())
        .collect();
    let mut documented = column(0);
    documented.retain(|it| it.split_once("::").is_some_and(|it| types.contains(it.0)));
    are_the_same(&documented, &surface, "Rust's");
}

#[test]
fn names__of_c_are_in_the_table() {
    let header = generated();
    let functions = header.items.iter().filter(|it| it.kind == Kind::Function);
    let functions: Names = functions.map(|it| it.name.clone()).collect();
    are_the_same(&column(1), &functions, "C's");
}

#[test]
fn names__of_python_are_in_the_table() {
    let mut documented = column(2);
    // A class stands for its constructor.
    let is_listed = |it: &str| match it.split_once('.') {
        Some((class, _)) => PYTHON.contains(&class),
        None => it.starts_with(char::is_lowercase),
    };
    documented.retain(|it| is_listed(it));
    are_the_same(&documented, &python_surface(), "Python's");
}

/// A C name is Rust's name with the type before it; for other names the document gives the reason.
#[test]
fn names__of_c_are_those_of_rust() {
    let document = read("docs/reference/names.md");
    let reasons = document.split_once(OTHERWISE).expect("the heading").1;
    let excused = backticked(reasons);
    let mut differ = BTreeMap::new();
    for [rust, c, _] in rows() {
        for c in c.iter().filter(|it| !excused.contains(*it)) {
            let same = rust.iter().any(|rust| {
                let method = rust.rsplit("::").next().unwrap_or(rust);
                let plain = method.strip_suffix("_with").unwrap_or(method);
                c.ends_with(&format!("_{plain}")) || c.ends_with(&format!("_{method}"))
            });
            if !same {
                differ.insert(c.clone(), rust.clone());
            }
        }
    }
    assert!(
        differ.is_empty(),
        "called otherwise without a reason: {differ:?}"
    );
}
