#![allow(non_snake_case)]

use super::*;
use crate::error::Cause;
use crate::message::Meta;

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
        Step::Settle {
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
    Record::Settle {
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

/// How many of the records are taken.
fn taken(records: &[Record<'_>]) -> usize {
    let mut expected = Expected::new(plan());
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
    // Not the one that was asked for, one left out, one too many, the end too early.
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
