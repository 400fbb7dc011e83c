//! Tests `zerolane sync`.

mod backups;
mod battery;
mod copies;
mod deletes;
mod delta;
mod faults;
mod filters;
mod in_place;
mod killed;
mod link_dest;
mod times;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::lab::*;

/// `zerolane sync` from the local tree `source` to the remote `path`.
fn push(lab: &Lab, options: &[&str], source: &str, path: &str) -> Command {
    let mut command = zerolane();
    command.arg("sync").args(options);
    command.arg(lab.local(source)).arg(lab.there(path));
    command
}

/// `zerolane sync` from the remote `path` to the local `target`.
fn pull(lab: &Lab, options: &[&str], path: &str, target: &str) -> Command {
    let mut command = zerolane();
    command.arg("sync").args(options);
    command.arg(lab.there(path)).arg(lab.local(target));
    command
}

/// The summary of a sync that must succeed.
fn numbers(mut command: Command) -> serde_json::Value {
    command.arg("--json");
    last(&succeed(command))
}

fn last(out: &str) -> serde_json::Value {
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

/// Everything below `base`: the path, and all attributes that a sync keeps; with `inodes`, also the inode number.
fn tree(base: &Path, inodes: bool) -> BTreeMap<String, String> {
    fn walk(base: &Path, below: &str, inodes: bool, tree: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(base.join(below)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{below}/{name}");
            let path = path.trim_start_matches('/').to_owned();
            let meta = entry.metadata().unwrap();
            let time = (meta.mtime(), meta.mtime_nsec());
            let mode = meta.mode() & 0o777;
            let mut words = match meta.file_type() {
                it if it.is_symlink() => {
                    format!("-> {}", fs::read_link(entry.path()).unwrap().display())
                }
                it if it.is_dir() => format!("directory {mode:o} {time:?}"),
                _ => {
                    let hash = blake3::hash(&fs::read(entry.path()).unwrap());
                    format!("file {mode:o} {time:?} {}", hash.to_hex())
                }
            };
            if inodes {
                words += &format!(" {}", meta.ino());
            }
            if meta.is_dir() {
                walk(base, &path, inodes, tree);
            }
            tree.insert(path, words);
        }
    }
    let mut found = BTreeMap::new();
    walk(base, "", inodes, &mut found);
    found
}

fn paths(base: &Path) -> Vec<String> {
    tree(base, false).into_keys().collect()
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Sets a file's time back by a second.
fn make_older(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.set_modified(time - Duration::from_secs(1)).unwrap();
}

/// Plants a tree of all kinds of files below `a`.
fn plant(lab: &Lab) {
    let at = |name: &str| lab.local("a").join(name);
    write(&at("large"), &content(1, 3 * MIB + 5));
    write(&at("sub/small"), b"small");
    write(&at("sub/none"), b"");
    write(&at("sub/new\nline"), b"n");
    write(&at("sub/read only"), b"r");
    fs::set_permissions(at("sub/read only"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::create_dir_all(at("sub/empty/deeper")).unwrap();
    fs::set_permissions(at("sub/empty"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("../large", at("sub/link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 26).unwrap();
    sparse.write_all_at(b"middle", 1 << 25).unwrap();
    for (days, name) in [(1000, "large"), (20_000, "sub/small")] {
        let time = SystemTime::UNIX_EPOCH + Duration::new(86_400 * days, 123_456_789);
        let file = File::options().write(true).open(at(name)).unwrap();
        file.set_modified(time).unwrap();
    }
}
