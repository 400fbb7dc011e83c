//! Tests that comparisons of made-up listings give the right steps, and that a sync survives changes of its source.

#![allow(non_snake_case)]

use super::merge::{Merge, Outcome};
use super::options::{Action, Change, NotDeleted, SyncObserver, SyncOptions, SyncPaths};
use super::plan::{BATCH_BYTES, Step, next_step};
use super::sight::{Detail, Listing, Seen, Sight};
use crate::client::Client;
use crate::digest::Digest;
use crate::error::{Cause, Error, Failure};
use crate::filter_files::FilterText;
use crate::location::Host;
use crate::message::{EntryKind, Meta};
use crate::observe::Observer;
use crate::server::{ServeOptions, Server};
use crate::stop::Stop;
use std::collections::VecDeque;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

/// A listing from memory.
struct Listed(VecDeque<Sight>);

impl Listing for Listed {
    fn next(&mut self) -> Result<Sight, Error> {
        self.0.pop_front().ok_or(Error::PeerGone)
    }

    fn digest(&mut self, seen: &Seen) -> Result<Digest, Cause> {
        match seen.detail {
            Detail::Digest(digest) => Ok(digest),
            _ => Err(Cause::PermissionDenied),
        }
    }
}

/// Parses a listing: `d{f f}`; a file's name ends with its time, a directory's is one letter, `!` is an entry that
/// cannot be examined, `#` an unknown rest. `@7` after a file: the seventh file with other names. `<-_a,P_b>`: the
/// rules of the directory's filter file; `<>`: it has none; `<#>`: an unreadable one.
fn listed(words: &str) -> Listed {
    let mut sights = VecDeque::new();
    for word in words
        .replace('{', "{ ")
        .replace('}', " } ")
        .split_whitespace()
    {
        let (word, file) = match word.split_once('@') {
            Some((word, inode)) => (word, Some(inode.parse().unwrap())),
            None => (word, None),
        };
        let seen = |kind, name: &str, time| {
            Sight::Entry(Seen {
                name: name.into(),
                kind,
                size: 5,
                meta: Meta {
                    mode: 0o644,
                    mtime_seconds: time,
                    mtime_nanoseconds: 0,
                    owner: None,
                },
                inode: file.unwrap_or(1),
                device: file.map(|_| 9),
                detail: Detail::None,
                extended: None,
            })
        };
        sights.push_back(match word {
            _ if word.starts_with('<') => {
                Sight::Filters(vec![match word.trim_matches(['<', '>']) {
                    "" => FilterText::Missing,
                    "#" => FilterText::Unusable(Cause::PermissionDenied),
                    rules => FilterText::Text(rules.replace(',', "\n").into_bytes()),
                }])
            }
            "}" => Sight::Leave,
            "#" => Sight::Cut {
                cause: Cause::PermissionDenied,
            },
            _ if word.ends_with('{') => seen(EntryKind::Directory, word.trim_end_matches('{'), 0),
            _ if word.ends_with('!') => Sight::Unseen {
                name: word.trim_end_matches('!').into(),
                cause: Cause::PermissionDenied,
            },
            _ if word.ends_with('=') => seen(EntryKind::Special, word.trim_end_matches('='), 0),
            _ => {
                let name = word.trim_end_matches(|it: char| it.is_ascii_digit());
                seen(
                    EntryKind::File,
                    name,
                    word[name.len()..].parse().unwrap_or(0),
                )
            }
        });
    }
    sights.push_back(Sight::Leave);
    Listed(sights)
}

/// The events, in words.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn failed(&self, failure: &Failure) {
        self.0.lock().unwrap().push(format!("failed {failure}"));
    }
}

impl SyncObserver for Told {
    fn change(&self, change: &Change<'_>) {
        let line = format!("{} {}", change.action, crate::escape(change.path));
        self.0.lock().unwrap().push(line);
    }
}

fn compare(source: &str, target: &str, options: &SyncOptions) -> (Vec<String>, Outcome) {
    let (mut source, mut target) = (listed(source), listed(target));
    let told = Told::default();
    let stop = Stop::default();
    let outcome = Merge::new(&mut source, &mut target, options, &told, &stop)
        .unwrap()
        .run()
        .unwrap();
    assert!(source.0.is_empty() && target.0.is_empty());
    (told.0.into_inner().unwrap(), outcome)
}

fn changes(source: &str, target: &str, options: &SyncOptions) -> Vec<String> {
    compare(source, target, options).0
}

fn delete() -> SyncOptions {
    SyncOptions {
        delete: true,
        ..SyncOptions::default()
    }
}

#[test]
fn Merge__what_is_new_changed_and_too_much() {
    let none: [&str; 0] = [];
    let trees = "a1 d{ b2 e{ c3 } } z4";
    assert_eq!(changes(trees, trees, &delete()), none);
    assert_eq!(
        changes(trees, "", &delete()),
        ["new a", "new d", "new d/b", "new d/e", "new d/e/c", "new z"]
    );
    assert_eq!(
        changes("", trees, &delete()),
        [
            "deleted a",
            "deleted d/b",
            "deleted d/e/c",
            "deleted d/e",
            "deleted d",
            "deleted z"
        ]
    );
    assert_eq!(changes("", trees, &SyncOptions::default()), none);
    assert_eq!(
        changes("b2 d{ x1 } y1", "a1 b3 d{ } x1", &delete()),
        ["deleted a", "changed b", "new d/x", "deleted x", "new y"]
    );
}

#[test]
fn Merge__types_that_differ() {
    assert_eq!(
        changes("x1", "x{ a1 }", &SyncOptions::default()),
        [
            "failed x: a directory stands in the way: empty it, or sync with --delete, without filters for it and \
             within --max-delete"
        ]
    );
    let told = changes("x1 y1", "x{ a1 b{ } } y1", &delete());
    assert_eq!(
        told,
        ["deleted x/a", "deleted x/b", "deleted x", "replaced x"]
    );
    let told = changes("x{ a1 } y1", "x1 y1", &SyncOptions::default());
    assert_eq!(told, ["replaced x", "new x/a"]);
    assert_eq!(
        changes("x=", "x{ a1 }", &delete()),
        ["skipped x"],
        "what stands where a device is skipped is not removed"
    );
}

#[test]
fn Merge__what_cannot_be_seen_is_neither_overwritten_nor_removed() {
    for (source, target, told) in [
        ("x!", "x1", "failed x: permission denied"),
        ("x!", "x{ a1 }", "failed x: permission denied"),
        ("d{ # }", "d{ x1 }", "failed d: permission denied"),
        ("#", "x1", "failed .: permission denied"),
        ("", "x!", "failed x: permission denied"),
        ("", "d{ # }", "failed d: permission denied"),
        ("d{ a1 }", "d!", "failed d: permission denied"),
    ] {
        let (lines, outcome) = compare(source, target, &delete());
        assert!(lines.contains(&told.to_owned()), "{source:?} {lines:?}");
        assert_eq!(outcome.totals.failed, 1, "{source:?} over {target:?}");
        assert!(outcome.copy.is_empty());
    }
    // A target file that cannot be examined is still replaced.
    assert_eq!(changes("x1", "x!", &delete()), ["new x"]);
}

#[test]
fn Merge__what_filters_leave_out_stays_at_both_ends() {
    let mut options = delete();
    options.filter.exclude(b"*.o").unwrap();
    options.filter.exclude(b"cache/").unwrap();
    assert_eq!(
        changes("a.o1 cache{ x1 } m1", "b.o1 cache{ y1 } n1", &options),
        ["new m", "deleted n"]
    );
    // A directory that contains protected entries stays.
    assert_eq!(
        changes("", "d{ a.o1 x1 } e{ x1 } ", &options),
        ["deleted d/x", "deleted e/x", "deleted e"]
    );
    // A file does not replace such a directory, either.
    let (lines, outcome) = compare("d1", "d{ a.o1 }", &options);
    assert!(lines[0].starts_with("failed d: a directory stands in the way"));
    assert!(outcome.copy.is_empty());
}

#[test]
fn Merge__no_more_is_told_to_go_than_may() {
    let most = |most| SyncOptions {
        max_delete: Some(most),
        ..delete()
    };
    let trees = ("", "a1 d{ b1 e{ c1 } } z1");
    let all = ["a", "d/b", "d/e/c", "d/e", "d", "z"].map(|path| format!("deleted {path}"));
    for (limit, told) in [(0, 0), (1, 1), (3, 3), (5, 5), (6, 6), (7, 6)] {
        let (lines, outcome) = compare(trees.0, trees.1, &most(limit));
        assert_eq!(lines, all[..told], "{limit}");
        assert_eq!(outcome.totals.deleted, 6, "{limit}");
    }
    // A directory in the place of a file is removed as a whole, or stays.
    for (limit, fails) in [(2, true), (3, false)] {
        let (lines, outcome) = compare("x1", "x{ a1 b1 }", &most(limit));
        let told = lines.last().unwrap();
        assert_eq!(
            told.starts_with("failed x: a directory"),
            fails,
            "{lines:?}"
        );
        assert_eq!(outcome.copy.is_empty(), fails);
    }
}

#[test]
fn Merge__what_is_protected_is_not_deleted_and_what_is_hidden_not_copied() {
    let none: [&str; 0] = [];
    let with = |rules: &[&str], delete_excluded| {
        let mut options = delete();
        options.delete_excluded = delete_excluded;
        let filter = &mut options.filter;
        rules
            .iter()
            .for_each(|rule| filter.add(rule.as_bytes()).unwrap());
        options
    };
    // Protected entries may be overwritten, and a directory that contains them stays.
    let options = with(&["P *.o"], false);
    assert_eq!(
        changes(
            "a.o2 d{ } n.o1",
            "a.o1 b.o1 c1 d{ a.o1 b1 } e{ x.o1 }",
            &options
        ),
        ["changed a.o", "deleted c", "deleted d/b", "new n.o"]
    );
    let told = changes("d1", "d{ a1 }", &with(&["P a"], false));
    assert!(
        told[0].starts_with("failed d: a directory stands in the way"),
        "{told:?}"
    );
    // A file does not replace a directory that is itself protected.
    for rule in ["P d", "P d/", "- d/", "-r d"] {
        let (told, outcome) = compare("d1", "d{ a1 }", &with(&[rule], false));
        assert!(
            told.len() == 1 && told[0].starts_with("failed d: a directory stands in the way"),
            "{rule}: {told:?}"
        );
        assert!(
            outcome.copy.is_empty() && outcome.remove.is_empty(),
            "{rule}"
        );
    }
    // Entries hidden at the source are deleted at the target.
    let options = with(&["H *.o"], false);
    assert_eq!(changes("a.o2 b1", "a.o1 b1", &options), ["deleted a.o"]);
    let trees = ("a.o1 b1 cache{ x1 }", "a.o1 b1 c.o1 cache{ x1 }");
    assert_eq!(
        changes(trees.0, trees.1, &with(&["- *.o", "- cache/"], false)),
        none
    );
    assert_eq!(
        changes(trees.0, trees.1, &with(&["- *.o", "- cache/"], true)),
        [
            "deleted a.o",
            "deleted c.o",
            "deleted cache/x",
            "deleted cache"
        ]
    );
    assert_eq!(
        changes(trees.0, trees.1, &with(&["P c.o", "- *.o", "P x"], true)),
        ["deleted a.o"]
    );
    // Rules that exempt a directory from deletion.
    assert_eq!(
        changes("", "d{ x.o1 } e{ y1 }", &with(&["-p *.o"], false)),
        ["deleted d/x.o", "deleted d", "deleted e/y", "deleted e"]
    );
}

#[test]
fn Merge__filter_files() {
    let mut options = delete();
    options.filter.add(b": .f").unwrap();
    let check = |source, target, expected: &[&str]| {
        assert_eq!(
            changes(source, target, &options),
            expected,
            "{source} {target}"
        );
    };
    // The source's rules apply at the target, because they will be copied there.
    check(
        "<-_*.o> .f1 a.o1 d{ <-_x> .f1 a.o1 b1 x1 }",
        "<> b.o1 c1 d{ <> x1 y1 } e{ <> b.o1 z1 }",
        &[
            "new .f",
            "deleted c",
            "new d/.f",
            "new d/b",
            "deleted d/y",
            "deleted e/z",
        ],
    );
    // The target's own, if they are not replaced.
    check(
        "<-_.f,-_*.o> .f1 a.o1 b1",
        "<P_c,P_.f> .f1 a.o1 b1 c1 d1",
        &["deleted a.o", "deleted d"],
    );
    check("<> a1", "<P_b> .f1 a1 b1 c1", &["deleted .f", "deleted c"]);
    // A directory to be deleted, and a new one.
    check(
        "<>",
        "<> d{ <P_a> .f1 a1 b1 }",
        &["deleted d/.f", "deleted d/b"],
    );
    check(
        "<> d{ <-_a> a1 b1 e{ <> a1 } }",
        "<>",
        &["new d", "new d/b", "new d/e"],
    );
    // An unreadable filter file excludes everything.
    for (source, target, told) in [
        (
            "<> d{ <#> a1 } e1",
            "<> d{ <> b1 }",
            &["failed d/.f: permission denied", "new e"][..],
        ),
        (
            "<> d{ <x> a1 }",
            "<>",
            &[
                "new d",
                "failed d/.f: line 1 is not a filter rule: its directory is left alone",
            ],
        ),
        (
            "<> d{ <> a1 }",
            "<> d{ <#> b1 }",
            &["failed d/.f: permission denied", "new d/a", "deleted d/b"],
        ),
    ] {
        let (lines, outcome) = compare(source, target, &options);
        assert_eq!(
            (&lines[..], outcome.totals.failed),
            (
                &told.iter().map(|it| it.to_string()).collect::<Vec<_>>()[..],
                1
            )
        );
    }
    // Without --delete the target's filter files do not matter.
    let mut options = SyncOptions::default();
    options.filter.add(b": .f").unwrap();
    assert_eq!(changes("<> a1", "<#> b1", &options), ["new a"]);
}

#[test]
fn Merge__only_time_differs() {
    let options = SyncOptions {
        checksum: true,
        ..SyncOptions::default()
    };
    let with = |digest: u8, time| {
        let mut listing = listed(&format!("x{time}"));
        if let Some(Sight::Entry(seen)) = listing.0.front_mut() {
            seen.detail = Detail::Digest([digest; 32]);
        }
        listing
    };
    for (digest, time, action) in [
        (1, 5, None),
        (1, 6, Some(Action::SetAttributes)),
        (2, 5, Some(Action::Update)),
    ] {
        let told = Told::default();
        let stop = Stop::default();
        let (mut source, mut target) = (with(1, 5), with(digest, time));
        let outcome = Merge::new(&mut source, &mut target, &options, &told, &stop)
            .unwrap()
            .run()
            .unwrap();
        let expected: Vec<_> = action.iter().map(|it| format!("{it} x")).collect();
        assert_eq!(told.0.into_inner().unwrap(), expected);
        assert_eq!(outcome.totals.unchanged, u64::from(action.is_none()));
        if action == Some(Action::SetAttributes) {
            let mut batches = outcome.copy.batches().unwrap();
            let batch = batches.next(BATCH_BYTES).unwrap().unwrap();
            let step = next_step(&mut &batch[..]).unwrap().unwrap();
            assert!(
                matches!(step, Step::SetAttributes { meta, was, .. }
                    if meta.mtime_seconds == 5 && was.mtime_seconds == 6),
                "{step:?}"
            );
        }
    }
}

#[test]
fn Merge__files_with_several_names() {
    let none: [&str; 0] = [];
    let source = "a1@1 d{ b1@1 c1@2 } e1@1 f1@2";
    let same = "a1@5 d{ b1@5 c1@6 } e1@5 f1@6";
    for (target, told) in [
        (same, &none[..]),
        (
            "",
            &[
                "new a",
                "new d",
                "linked d/b",
                "new d/c",
                "linked e",
                "linked f",
            ],
        ),
        // Separate files, names of another file, only some of them, none in common.
        (
            "a1 d{ b1 c1 } e1 f1",
            &["linked d/b", "linked e", "linked f"],
        ),
        ("a1@5 d{ b1@6 c1@6 } e1@5 f1@6", &["linked d/b"]),
        ("a1@5 d{ b1@5 c1 } e1@5 f1", &["linked f"]),
        (
            "d{ b1@5 } e1@5",
            &["new a", "linked d/b", "new d/c", "linked e", "linked f"],
        ),
        // A changed file is copied once, and is another file afterwards.
        (
            "a2@5 d{ b2@5 c1@6 } e2@5 f1@6",
            &["changed a", "linked d/b", "linked e"],
        ),
        (
            "a1@5 d{ b1@5 c1@6 } e{ } f1@6 g1",
            &["deleted e", "linked e", "deleted g"],
        ),
    ] {
        let mut told = told.to_vec();
        told.sort();
        let mut found = changes(source, target, &delete());
        found.sort();
        assert_eq!(found, told, "{target}");
    }
    // Excluded names do not count.
    let mut options = delete();
    options.filter.exclude(b"a").unwrap();
    assert_eq!(
        changes(source, "a1 d{ b2@5 c1@6 } e2@5 f1@6", &options),
        ["changed d/b", "linked e"]
    );
    let (_, outcome) = compare(source, "a1 d{ b1 c1 } e1 f2", &delete());
    let totals = outcome.totals;
    assert_eq!((totals.listed, totals.unchanged), (5, 2));
    assert_eq!((totals.copied.files, totals.copied.hard_links), (3, 3));
    assert_eq!(totals.copied.bytes, 0);
}

/// Changes the source once, after the comparison or when it is first read.
struct Spoiling {
    source: PathBuf,
    compared: bool,
    failed: Mutex<Vec<Cause>>,
}

impl Observer for Spoiling {
    fn file_started(&self, _path: &[u8], _size: u64) {
        if !self.compared {
            let file = fs::File::options().write(true).open(&self.source);
            file.unwrap().set_len(1).unwrap();
        }
    }

    fn failed(&self, failure: &Failure) {
        self.failed.lock().unwrap().push(failure.cause.clone());
    }
}

impl SyncObserver for Spoiling {
    fn change(&self, change: &Change<'_>) {
        if self.compared && change.action == Action::Replace {
            fs::remove_file(&self.source).unwrap();
        }
    }
}

#[test]
fn sync__what_is_to_replace_a_directory_does_not_come() {
    for (compared, cause) in [(true, Cause::Vanished), (false, Cause::SourceChanged)] {
        let base = tempfile::tempdir().unwrap();
        let (share, local) = (base.path().join("share"), base.path().join("local"));
        fs::create_dir_all(share.join("t/x")).unwrap();
        fs::create_dir(&local).unwrap();
        fs::write(share.join("t/x/old"), b"directory").unwrap();
        fs::write(share.join("t/extra"), b"x").unwrap();
        fs::write(local.join("x"), vec![7; 3 << 20]).unwrap();
        let localhost = (Ipv4Addr::LOCALHOST, 0);
        let mut server = Server::bind(&share, localhost, ServeOptions::default()).unwrap();
        let address = server.local_addr();
        let stop = Stop::default();
        let stopped = stop.clone();
        let serving = thread::spawn(move || server.run(&stopped, &()));
        let client = Client::new(Host::from(address));
        let observer = Spoiling {
            source: local.join("x"),
            compared,
            failed: Mutex::default(),
        };
        let paths = SyncPaths::Push {
            source: local,
            destination: b"t".to_vec(),
        };
        let totals = client.sync(&paths, &delete(), &observer).unwrap();
        stop.request();
        serving.join().unwrap().unwrap();
        assert!(observer.failed.lock().unwrap().contains(&cause), "{cause}");
        // A vanished entry does not prevent deletion.
        let gone = u64::from(compared);
        assert_eq!((totals.copied.files, totals.deleted), (0, gone), "{cause}");
        assert_eq!(totals.copied.vanished, gone);
        let kept = (!compared).then_some(NotDeleted::Failures);
        assert_eq!(totals.not_deleted, kept, "{cause}");
        // The directory was copied, and the partial file was not kept.
        assert_eq!(fs::read(share.join("t/x/old")).unwrap(), b"directory");
        let entries = fs::read_dir(share.join("t")).unwrap();
        assert_eq!(entries.count() as u64, 2 - gone, "{cause}");
    }
}
