//! Tests that patterns in paths of requests are expanded within limits.

#![allow(non_snake_case)]

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn tree() -> (tempfile::TempDir, Root) {
    let base = tempfile::tempdir().unwrap();
    for name in ["root/a/x", "root/b/y", "root/.h", "outside"] {
        fs::create_dir_all(base.path().join(name)).unwrap();
    }
    for name in [
        "a/1.gz", "a/2.gz", "b/1.gz", "[x]", "f*", "f1", ".h/1.gz", "a\\b",
    ] {
        fs::write(base.path().join("root").join(name), b"x").unwrap();
    }
    fs::write(base.path().join("outside/1.gz"), b"x").unwrap();
    symlink("../outside", base.path().join("root/out")).unwrap();
    let root = Root::open(&base.path().join("root")).unwrap();
    (base, root)
}

fn expand(root: &Root, path: &str) -> Result<String, Cause> {
    let found = Expander::new(root).expand(path.as_bytes())?;
    let found = found
        .into_iter()
        .map(|path| String::from_utf8(path).unwrap());
    Ok(found.collect::<Vec<_>>().join(" "))
}

#[test]
fn expand__finds_what_matches_and_nothing_behind_links() {
    let (_base, root) = tree();
    for (path, found) in [
        ("*/*.gz", "a/1.gz a/2.gz b/1.gz"),
        ("a/*.gz", "a/1.gz a/2.gz"),
        ("?/1.gz", "a/1.gz b/1.gz"),
        ("*", "[x] a a\\b b f* f1 out"),
        ("*/", "a/ b/"),
        ("[ab]/.", "a/. b/."),
        (".*", ".h"),
        (".h/*", ".h/1.gz"),
        ("./a//1*", "a/1.gz"),
        // Literal paths are not looked up.
        ("none", "none"),
        ("", ""),
    ] {
        assert_eq!(expand(&root, path).as_deref(), Ok(found), "{path}");
    }
    for (path, cause) in [
        ("*.zip", Cause::NoMatch),
        ("none/*", Cause::NoMatch),
        ("f1/*", Cause::NoMatch),
        ("out/*", Cause::OutsideRoot),
        ("../*", Cause::OutsideRoot),
        ("/*", Cause::OutsideRoot),
        ("n\\one", Cause::NotFound),
    ] {
        assert_eq!(expand(&root, path), Err(cause), "{path}");
    }
}

#[test]
fn expand__a_name_that_is_there_wins_and_escapes_say_it() {
    let (_base, root) = tree();
    for (path, found) in [
        ("[x]", "[x]"),
        ("\\[x\\]", "[x]"),
        ("f*", "f*"),
        ("f\\*", "f*"),
        ("f?", "f* f1"),
        ("a\\b", "a\\b"),
        ("a\\\\b", "a\\b"),
        ("\\f1", "f1"),
    ] {
        assert_eq!(expand(&root, path).as_deref(), Ok(found), "{path}");
    }
}

#[test]
fn expand__stops_at_its_limits() {
    let (_base, root) = tree();
    let mut expander = Expander::new(&root);
    expander.names = 5;
    assert_eq!(expander.expand(b"*"), Err(Cause::TooManyMatches));
    let mut expander = Expander::new(&root);
    expander.bytes = 100;
    assert_eq!(expander.expand(b"*"), Err(Cause::TooManyMatches));
    assert!(Expander::new(&root).expand(b"*").is_ok());
}
