//! Fuzzes packs and units at the receiving end of a copy: no panic; nothing outside of the target directory is made,
//! changed or removed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SECRET: &[u8] = b"of somebody else";

/// What lies beside the directory received into.
fn neighbours(base: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(base).expect("the base");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    names
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let base = tempfile::tempdir().expect("a directory");
    let target = base.path().join("target");
    fs::create_dir(&target).expect("the target");
    fs::write(base.path().join("secret"), SECRET).expect("the secret");
    // What links in the tree lead to must stay as it is, too.
    std::os::unix::fs::symlink("../secret", target.join("a")).expect("a link");
    std::os::unix::fs::symlink("..", target.join("b")).expect("a link");
    zerolane_files::fuzzing::receive(&target, input);
    assert_eq!(neighbours(base.path()), ["secret", "target"]);
    let secret = base.path().join("secret");
    assert_eq!(fs::read(&secret).expect("it"), SECRET);
    // Nor has it another name.
    assert_eq!(secret.metadata().expect("it").nlink(), 1);
}
