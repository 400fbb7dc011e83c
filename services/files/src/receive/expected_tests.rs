//! Tests that a receiver accepts only the steps of its plan.

#![allow(non_snake_case)]

use super::*;
use crate::error::Cause;
use crate::message::Meta;
use crate::sync::plan::Linked;

const META: Meta = Meta {
    mode: 0o644,
    mtime_seconds: 1,
    mtime_nanoseconds: 0,
    owner: None,
};

fn plan() -> Vec<u8> {
    let named = |name: &[u8]| name.to_vec();
    let steps = [
        Step::Copy {
            name: named(b"a"),
            instead: None,
            old: false,
        },
        Step::Enter {
            name: named(b"d"),
            instead: Some(named(b"aside")),
        },
        Step::SetAttributes {
            name: named(b"s"),
            size: 1,
            meta: META,
            was: META,
        },
        Step::Leave,
        Step::Copy {
            name: named(b"l"),
            instead: Some(named(b"aside2")),
            old: false,
        },
    ];
    encoded(&steps)
}

fn encoded(steps: &[Step]) -> Vec<u8> {
    let encode = |plan, step| postcard::to_extend(step, plan).unwrap();
    steps.iter().fold(Vec::new(), encode)
}

fn link(name: &[u8]) -> Record<'_> {
    Record::Link {
        name,
        target: b"t",
        meta: META,
    }
}

fn enter(name: &[u8]) -> Record<'_> {
    Record::Enter { name, meta: META }
}

fn settle(name: &[u8]) -> Record<'_> {
    Record::SetAttributes {
        name,
        size: 1,
        meta: META,
        was: META,
    }
}

fn unreadable(name: &[u8]) -> Record<'_> {
    Record::Unreadable {
        name,
        cause: Cause::NotFound,
    }
}

fn exchange<'a>(name: &'a [u8], with: &'a [u8]) -> Record<'a> {
    Record::Exchange { name, with }
}

/// How many of the records are accepted.
fn taken(records: &[Record<'_>]) -> usize {
    taken_of(plan(), records)
}

fn taken_of(plan: Vec<u8>, records: &[Record<'_>]) -> usize {
    let mut expected = Expected::new(plan);
    let refused = records.iter().position(|it| expected.check(it).is_err());
    refused.unwrap_or(records.len())
}

#[test]
fn Expected__what_was_asked_for_and_all_of_it() {
    let right = [
        link(b"a"),
        enter(b"aside"),
        settle(b"s"),
        Record::Leave,
        exchange(b"d", b"aside"),
        link(b"aside2"),
        exchange(b"l", b"aside2"),
        Record::Finish,
    ];
    assert_eq!(taken(&right), right.len());
    // Another file, a missing one, an extra one, an early end.
    for at in 0..right.len() - 1 {
        let mut other = right.to_vec();
        other[at] = link(b"other");
        assert_eq!(taken(&other), at);
        other.remove(at);
        assert!(taken(&other) < other.len(), "without {at}");
        other.insert(at, Record::Finish);
        assert_eq!(taken(&other), at);
        other[at] = right[at].clone();
        other.insert(at, link(b"more"));
        assert_eq!(taken(&other), at);
    }
}

#[test]
fn Expected__what_the_sender_could_not_read() {
    let failed = [
        unreadable(b"a"),
        unreadable(b"d"),
        unreadable(b"l"),
        Record::Finish,
    ];
    assert_eq!(taken(&failed), failed.len());
    let changed = [link(b"a"), enter(b"aside"), link(b"s"), Record::Leave];
    assert_eq!(taken(&changed), changed.len());
    assert_eq!(taken(&[unreadable(b"other")]), 0);
    assert_eq!(taken(&[link(b"a"), enter(b"d")]), 1);
}

#[test]
fn Expected__links_of_what_was_asked_for_or_has_come() {
    let named = |name: &[u8]| name.to_vec();
    let linking = |name: &[u8]| Step::Link {
        name: named(name),
        instead: None,
        linked: Linked {
            first: named(b"d/e/first"),
            file: (1, 2),
            was: None,
        },
    };
    let directory = |name: &[u8], instead: Option<&[u8]>| Step::Enter {
        name: named(name),
        instead: instead.map(named),
    };
    let plan = encoded(&[
        linking(b"a"),
        directory(b"d", Some(b"aside")),
        linking(b"b"),
        directory(b"e", None),
        linking(b"c"),
    ]);
    fn hard_link<'a>(name: &'a [u8], level: u32, first: &'a [u8], before: bool) -> Record<'a> {
        Record::HardLink {
            name,
            level,
            first,
            size: 1,
            meta: META,
            before,
        }
    }
    let right = [
        hard_link(b"a", 0, b"d/e/first", true),
        enter(b"aside"),
        hard_link(b"b", 1, b"e/first", true),
        enter(b"e"),
        hard_link(b"c", 2, b"first", true),
        Record::Finish,
    ];
    assert_eq!(taken_of(plan.clone(), &right), right.len());
    // Further names of files that came on this connection; whole files, or nothing.
    for other in [
        hard_link(b"c", 0, b"other", false),
        link(b"c"),
        unreadable(b"c"),
    ] {
        let mut records = right.to_vec();
        records[4] = other;
        assert_eq!(taken_of(plan.clone(), &records), records.len());
    }
    for other in [
        hard_link(b"c", 1, b"first", true),
        hard_link(b"c", 2, b"other", true),
        hard_link(b"c", 3, b"first", true),
        hard_link(b"other", 2, b"first", true),
        hard_link(b"other", 2, b"first", false),
    ] {
        let mut records = right.to_vec();
        records[4] = other;
        assert_eq!(taken_of(plan.clone(), &records), 4);
    }
    // In place of a copy, a further name only of a file that came.
    let copy = encoded(&[Step::Copy {
        name: named(b"a"),
        instead: None,
        old: false,
    }]);
    for (before, refused) in [(false, 1), (true, 0)] {
        let records = [hard_link(b"a", 0, b"first", before)];
        assert_eq!(taken_of(copy.clone(), &records), refused);
    }
}

#[test]
fn Expected__a_link_of_the_file_that_was_compared() {
    let step = Step::Same {
        name: b"f".to_vec(),
        instead: Some(b"aside".to_vec()),
        directory: 2,
        size: 5,
        meta: META,
        was: META,
    };
    let (name, instead) = (b"d".to_vec(), None);
    let steps = [Step::Enter { name, instead }, step, Step::Leave];
    let plan = encoded(&steps);
    let same = |name, directory, path, size, was| Record::Same {
        name,
        directory,
        path,
        size,
        meta: META,
        was,
    };
    let another = Meta {
        mtime_seconds: 2,
        ..META
    };
    let taken = |record| {
        let records = [enter(b"d"), record, exchange(b"f", b"aside"), Record::Leave];
        taken_of(plan.clone(), &records)
    };
    assert_eq!(taken(same(b"aside", 2, b"d/f", 5, META)), 4);
    // It changed since the comparison: it is sent, or cannot be read.
    assert_eq!(taken(link(b"aside")), 4);
    assert_eq!(taken(unreadable(b"f")), 2);
    for other in [
        same(b"f", 2, b"d/f", 5, META),
        same(b"aside", 1, b"d/f", 5, META),
        same(b"aside", 2, b"d/g", 5, META),
        same(b"aside", 2, b"f", 5, META),
        same(b"aside", 2, b"d/f", 6, META),
        same(b"aside", 2, b"d/f", 5, another),
        settle(b"f"),
    ] {
        assert_eq!(taken(other), 1);
    }
}
