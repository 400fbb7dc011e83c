//! Tests that equal files of a link directory are found.

#![allow(non_snake_case)]

use super::*;
use crate::message::Attributes;
use crate::sync::walk::Walker;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// Notes a tree of files as files to copy.
fn note(base: &Path, notes: &mut Notes) {
    let mut walker = Walker::new(Some(File::open(base).unwrap().into()), None);
    let mut depth = 1;
    while depth > 0 {
        match walker.next().unwrap() {
            Sight::Leave => {
                depth -= 1;
                if depth > 0 {
                    notes.leave().unwrap();
                }
            }
            Sight::Entry(seen) if seen.kind == EntryKind::Directory => {
                depth += 1;
                notes.enter(&seen.name, None);
            }
            Sight::Entry(seen) => {
                let (instead, old) = (None, false);
                notes.add(&Step::Wanted { seen, instead, old }).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Which files of `new` became links, given that `there` has others.
fn applied(new: &Path, there: &Path, last: bool) -> (BTreeMap<String, bool>, SyncTotals) {
    let mut notes = Notes::new();
    note(new, &mut notes);
    let mut listing = Walker::new(Some(File::open(there).unwrap().into()), None);
    let mut totals = SyncTotals::default();
    let link_dest = LinkDest {
        listing: &mut listing,
        index: 3,
        last,
        options: &SyncOptions {
            attributes: Attributes::NONE,
            ..SyncOptions::default()
        },
        observer: &(),
        stop: &Stop::default(),
        totals: &mut totals,
    };
    let mut steps = link_dest.applied(notes).unwrap().batches().unwrap();
    let (mut found, mut path) = (BTreeMap::new(), Vec::new());
    let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
    while let Some(step) = steps.step().unwrap() {
        let (name, linked) = match step {
            Step::Enter { name, .. } => {
                path.push(text(name));
                continue;
            }
            Step::Leave => {
                path.pop().expect("something to leave");
                continue;
            }
            Step::Same {
                name, directory: 3, ..
            } => (name, true),
            Step::Copy { name, .. } if last => (name, false),
            Step::Wanted { seen, .. } if !last => (seen.name, false),
            other => panic!("{other:?}"),
        };
        let path = path.iter().cloned().chain([text(name)]);
        found.insert(path.collect::<Vec<_>>().join("/"), linked);
    }
    assert!(path.is_empty());
    (found, totals)
}

/// Makes these files, all with the same time, except those whose name is another one's directory.
fn plant(base: &Path, files: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut planted = files.clone();
    for (path, size) in files {
        let at = base.join(path);
        let made = fs::create_dir_all(at.parent().unwrap()).is_ok()
            && !at.exists()
            && fs::write(&at, vec![b'x'; *size]).is_ok();
        if !made {
            planted.remove(path);
            continue;
        }
        let file = File::options().write(true).open(&at).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
    }
    planted
}

fn files() -> impl Strategy<Value = BTreeMap<String, usize>> {
    proptest::collection::btree_map("[ab]{1,2}(/[abc]{1,2}){0,3}", 0..3_usize, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn applied__finds_what_is_the_same_and_nothing_else(new in files(), old in files(), last: bool) {
        let base = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| base.path().join(name));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        let (new, old) = (plant(&a, &new), plant(&b, &old));
        let (found, totals) = applied(&a, &b, last);
        let expected: BTreeMap<_, _> = new
            .iter()
            .map(|(path, size)| (path.clone(), old.get(path) == Some(size)))
            .collect();
        prop_assert_eq!(totals.copied.hard_links, expected.values().filter(|it| **it).count() as u64);
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn from__goes_up_by_name() {
    for (destination, path, from) in [
        (&b"s/2"[..], &b"../1"[..], &b"s/1"[..]),
        (b"s/2", b"1", b"s/2/1"),
        (b"s/2", b"../../../x", b"../x"),
        (b"s/2", b"/srv/1", b"/srv/1"),
        (b"/srv/s/2", b"../1", b"/srv/s/1"),
        (b"", b"../x", b"../x"),
    ] {
        assert_eq!(super::from(destination, path).unwrap().as_bytes(), from);
    }
    assert_eq!(super::from(b"s", b"a\0"), Err(Cause::InvalidName));
}
