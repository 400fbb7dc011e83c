//! Tests that listings survive transmission, and that bad ones are refused.

#![allow(non_snake_case)]

use super::*;
use crate::limits::BUFFER_BYTES;
use crate::message::Meta;
use crate::port::port;
use crate::sync::walk::Walker;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

fn entry(name: &[u8], kind: EntryKind) -> Sight {
    Sight::Entry(Seen {
        name: name.to_vec(),
        kind,
        size: 0,
        meta: Meta::default(),
        inode: 1,
        device: None,
        detail: match kind {
            EntryKind::Link => Detail::Link(b"to".to_vec()),
            _ => Detail::None,
        },
        extended: None,
    })
}

fn file(name: &[u8]) -> Sight {
    entry(name, EntryKind::File)
}

fn directory(name: &[u8]) -> Sight {
    entry(name, EntryKind::Directory)
}

/// Pages with these bytes, and then the end of the connection.
fn arrived(pages: &[Vec<u8>]) -> (Pages, Receiver<Buffer>) {
    let (port, end) = port(vec![], vec![], Arc::default(), || {});
    for page in pages {
        let mut buffer = Buffer::anonymous(BUFFER_BYTES).unwrap();
        buffer[..page.len()].copy_from_slice(page);
        let len = page.len();
        end.events.arrived(Filled { buffer, len });
    }
    (Pages::new(port), end.released)
}

fn page(sights: &[Sight]) -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_BYTES];
    let mut len = 0;
    for sight in sights {
        len += sight.encode(&mut bytes[len..]).unwrap();
    }
    bytes.truncate(len);
    bytes
}

/// Reads to the end of the listing; returns the error, if any.
fn read(pages: &[Vec<u8>]) -> Result<usize, Error> {
    let (mut pages, _released) = arrived(pages);
    let (mut depth, mut count) = (1, 0);
    while depth > 0 {
        let sight = pages.next()?;
        count += 1;
        match sight {
            Sight::Leave => depth -= 1,
            sight if sight.is_directory() => depth += 1,
            _ => {}
        }
        assert!(pages.order.last.len() <= TREE_DEPTH + 1);
    }
    Ok(count)
}

fn refused(sights: &[Sight]) -> &'static str {
    match read(&[page(sights)]) {
        Err(Error::Protocol(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn Pages__a_listing_in_pages_of_any_length() {
    let sights = [
        file(b"a"),
        directory(b"b"),
        file(b"a"),
        Sight::Leave,
        entry(b"b-", EntryKind::Link),
        Sight::Leave,
    ];
    for step in 1..=sights.len() {
        // Empty pages are ignored.
        let mut pages: Vec<_> = sights.chunks(step).map(page).collect();
        pages.insert(1, vec![]);
        assert_eq!(read(&pages).unwrap(), sights.len());
    }
}

#[test]
fn Pages__names_that_cannot_be() {
    for name in [&b""[..], b".", b"..", b"/etc", b"a/b", b"a\0", &[b'a'; 256]] {
        let words = "a name that is not one component";
        assert_eq!(refused(&[file(name)]), words, "{name:?}");
        assert_eq!(refused(&[directory(name)]), words, "{name:?}");
        let unseen = Sight::Unseen {
            name: name.to_vec(),
            cause: Cause::NotFound,
        };
        assert_eq!(refused(&[unseen]), words, "{name:?}");
    }
}

#[test]
fn Pages__twice_or_out_of_order() {
    let words = "a listing out of order, or with a name twice";
    assert_eq!(refused(&[file(b"a"), file(b"a")]), words);
    assert_eq!(refused(&[file(b"b"), file(b"a")]), words);
    // Ordered by bytes, not as numbers or letters.
    assert_eq!(refused(&[file(b"a"), file(b"B")]), words);
    assert_eq!(refused(&[directory(b"a"), Sight::Leave, file(b"a")]), words);
    assert_eq!(
        refused(&[directory(b"a"), file(b"z"), directory(b"z")]),
        words
    );
}

#[test]
fn Pages__too_deep_as_a_circle_would_be() {
    let deep: Vec<_> = (0..=TREE_DEPTH).map(|_| directory(b"d")).collect();
    assert_eq!(refused(&deep), "directories nest too deeply");
    let mut right: Vec<_> = (0..TREE_DEPTH).map(|_| directory(b"d")).collect();
    right.extend((0..=TREE_DEPTH).map(|_| Sight::Leave));
    assert_eq!(read(&[page(&right)]).unwrap(), right.len());
}

#[test]
fn Pages__without_end() {
    let (mut pages, _released) = arrived(&[page(&[file(b"a")])]);
    pages.order.entries = LISTING_ENTRIES;
    let Err(Error::Protocol(words)) = pages.next() else {
        panic!("taken");
    };
    assert_eq!(words, "a listing without end");
}

#[test]
fn Pages__that_end_early() {
    assert!(matches!(
        read(&[page(&[directory(b"a"), Sight::Leave])]),
        Err(Error::PeerGone)
    ));
    assert!(matches!(read(&[]), Err(Error::PeerGone)));
    let mut cut = page(&[file(b"name")]);
    cut.pop();
    assert!(matches!(
        read(&[cut]),
        Err(Error::Protocol("malformed listing"))
    ));
}

#[test]
fn Pages__details_that_cannot_be() {
    let change = |kind, work: fn(&mut Seen)| {
        let Sight::Entry(mut seen) = entry(b"a", kind) else {
            unreachable!()
        };
        work(&mut seen);
        refused(&[Sight::Entry(seen)])
    };
    let link = "a link without target, or one of no link";
    assert_eq!(change(EntryKind::Link, |it| it.detail = Detail::None), link);
    assert_eq!(
        change(EntryKind::File, |it| it.detail = Detail::Link(vec![1])),
        link
    );
    for target in [vec![], vec![0], vec![b'a'; PATH_BYTES + 1]] {
        let Sight::Entry(mut seen) = entry(b"a", EntryKind::Link) else {
            unreachable!()
        };
        seen.detail = Detail::Link(target);
        assert_eq!(
            refused(&[Sight::Entry(seen)]),
            "a link's target that cannot be"
        );
    }
    let number = "a size or time that cannot be";
    assert_eq!(change(EntryKind::File, |it| it.size = u64::MAX), number);
    assert_eq!(
        change(EntryKind::File, |it| it.meta.mtime_nanoseconds =
            1_000_000_000),
        number
    );
    let cut = Sight::Cut {
        cause: Cause::NotFound,
    };
    assert_eq!(
        refused(&[cut, file(b"a")]),
        "a listing that goes on after its end"
    );
}

#[test]
fn send__many_entries_to_a_message() {
    const FILES: usize = 5000;
    let base = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        std::fs::write(base.path().join(number.to_string()), b"").unwrap();
    }
    let directory = std::fs::File::open(base.path()).unwrap();
    let walker = Walker::new(Some(directory.into()), crate::digest::Digester::fixed());
    let buffers = (0..8).map(|_| Buffer::anonymous(BUFFER_BYTES).unwrap());
    let (port, end) = port(buffers.collect(), vec![], Arc::default(), || {});
    send(port, walker, &Stop::default()).unwrap();
    let pages: Vec<_> = end.outgoing.iter().collect();
    assert!(pages.len() <= 2, "{} messages", pages.len());
    let bytes: Vec<_> = pages.iter().map(|page| page.bytes().to_vec()).collect();
    assert_eq!(read(&bytes).unwrap(), FILES + 1);
    // The total cost of 100,000 files.
    let len: usize = bytes.iter().map(Vec::len).sum();
    assert!(len / FILES < 40, "{} bytes an entry", len / FILES);
}

#[test]
fn of_paths__at_the_top_paths_in_any_order_and_none_that_leads_out() {
    let read_leaving = |sights: &[Sight], leaving| {
        let (mut pages, _released) = arrived(&[page(sights)]);
        pages.order.paths = true;
        pages.order.leaving = leaving;
        sights.iter().try_for_each(|_| pages.next().map(drop))
    };
    let read = |sights: &[Sight]| read_leaving(sights, false);
    let good = [
        file(b"z/a"),
        file(b"b"),
        directory(b""),
        file(b"a"),
        file(b"b"),
        Sight::Leave,
        Sight::Leave,
    ];
    assert!(read(&good).is_ok());
    for bad in [&b"../x"[..], b"/etc", b"a/../b", b"a\0"] {
        assert!(read(&[file(bad)]).is_err(), "{bad:?}");
        assert!(read(&[directory(b"d"), file(bad)]).is_err(), "{bad:?}");
    }
    // With a login's listing, if requested.
    assert!(read_leaving(&[file(b"../x"), file(b"/etc")], true).is_ok());
    assert!(read_leaving(&[file(b"a\0")], true).is_err());
    // Below, names are components, in order.
    assert!(read(&[directory(b"d"), file(b"x/y")]).is_err());
    assert!(read(&[directory(b"d"), file(b"b"), file(b"a")]).is_err());
}

#[test]
fn Pages__filter_files_where_they_were_asked_for_and_nowhere_else() {
    let text = |len| FilterText::Text(vec![b'-'; len]);
    let filters = |texts: &[FilterText]| Sight::Filters(texts.to_vec());
    let one = || filters(&[FilterText::Missing]);
    let read = |files, sights: &[Sight]| {
        let (pages, _released) = arrived(&[page(sights)]);
        let mut pages = pages.with_filter_files(files);
        sights.iter().try_for_each(|sight| {
            let next = pages.next()?;
            assert_eq!(next, *sight);
            Ok(())
        })
    };
    let long = filters(&[text(FILTER_FILE_BYTES)]);
    let asked = [
        one(),
        file(b"a"),
        directory(b"d"),
        long,
        Sight::Leave,
        Sight::Leave,
    ];
    read(1, &asked).unwrap();
    for (files, sights) in [
        (0, &[one()][..]),
        (0, &[file(b"a"), one()]),
        (1, &[file(b"a")]),
        (1, &[Sight::Leave]),
        (1, &[one(), one()]),
        (1, &[one(), directory(b"d"), Sight::Leave]),
        (1, &[one(), file(b"a"), one()]),
        (2, &[one()]),
        (1, &[filters(&[])]),
        (1, &[filters(&[text(FILTER_FILE_BYTES + 1)])]),
    ] {
        let refused: Result<(), Error> = read(files, sights);
        assert!(matches!(refused, Err(Error::Protocol(_))), "{sights:?}");
    }
}
