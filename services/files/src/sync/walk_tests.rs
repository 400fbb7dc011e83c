//! Tests that walks list trees in order and within memory limits.

#![allow(non_snake_case)]

use super::*;
use crate::limits::FILTER_FILE_BYTES;
use std::fs;
use std::path::Path;

fn walker(path: &Path) -> Walker {
    Walker::new(
        Some(fs::File::open(path).unwrap().into()),
        Digester::fixed(),
    )
}

/// The whole listing, and the most bytes held for names.
fn walk(mut walker: Walker) -> (Vec<Sight>, usize) {
    let (mut sights, mut most) = (Vec::new(), walker.held);
    while !walker.levels.is_empty() {
        sights.push(walker.next().unwrap());
        most = most.max(walker.held);
    }
    assert_eq!(walker.held, 0);
    (sights, most)
}

fn names(sights: &[Sight]) -> Vec<String> {
    let name = |sight: &Sight| match sight {
        Sight::Entry(seen) => crate::escape(&seen.name),
        Sight::Unseen { name, cause } => format!("{}: {cause}", crate::escape(name)),
        Sight::Cut { cause } => format!("cut: {cause}"),
        Sight::Leave => "/".into(),
        Sight::Filters(files) => format!("{files:?}"),
    };
    sights.iter().map(name).collect()
}

#[test]
fn Walker__in_the_order_of_bytes() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    fs::create_dir_all(at("b/c")).unwrap();
    for name in ["b/z", "b/Z", "b-", "b0", "a\u{e9}", "\u{7f}", "10", "9"] {
        fs::write(at(name), b"x").unwrap();
    }
    std::os::unix::fs::symlink("b", at("link")).unwrap();
    let (sights, _) = walk(walker(base.path()));
    assert_eq!(
        names(&sights),
        [
            "10", "9", "a\u{e9}", "b", "Z", "c", "/", "z", "/", "b-", "b0", "link", "\\x7f", "/"
        ]
    );
}

#[test]
fn Walker__holds_the_names_of_open_directories_only() {
    const DIRECTORIES: usize = 50;
    const FILES: usize = 200;
    let base = tempfile::tempdir().unwrap();
    for directory in 0..DIRECTORIES {
        let directory = base.path().join(format!("directory {directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..FILES {
            fs::write(directory.join(format!("file {file:03}")), b"").unwrap();
        }
    }
    let (sights, most) = walk(walker(base.path()));
    assert_eq!(sights.len(), DIRECTORIES * (FILES + 2) + 1);
    // Of one directory and of the top, and twice that for unused capacity of vectors.
    let name = size_of::<(u32, u8)>() + 12;
    let bound = 2 * name * (DIRECTORIES + FILES);
    assert!(most <= bound, "{most} > {bound}");
    // A million files in one directory fit.
    assert!(2 * name * 1_000_000 < LISTING_HELD_BYTES);
}

#[test]
fn Walker__too_many_names_are_refused_in_words() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("large")).unwrap();
    for file in 0..1000 {
        fs::write(base.path().join(format!("large/{file}")), b"").unwrap();
    }
    fs::write(base.path().join("other"), b"").unwrap();
    let mut walker = walker(base.path());
    walker.most_held = 8000;
    let (sights, most) = walk(walker);
    assert_eq!(
        names(&sights),
        [
            "large",
            "cut: the directory has too many names to sort in memory: split it",
            "/",
            "other",
            "/"
        ]
    );
    assert!(most <= 8000);
}

#[test]
fn Walker__too_deep() {
    let base = tempfile::tempdir().unwrap();
    let mut path = base.path().to_owned();
    for _ in 0..=TREE_DEPTH {
        path.push("d");
        fs::create_dir(&path).unwrap();
    }
    let (sights, _) = walk(walker(base.path()));
    let deep = "d: directories nest too deeply";
    let names = names(&sights);
    assert_eq!(names.iter().filter(|it| *it == "d").count(), TREE_DEPTH);
    assert_eq!(names.iter().filter(|it| *it == deep).count(), 1);
}

#[test]
fn Walker__prune_leaves_out_what_is_in_a_directory() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("a/b")).unwrap();
    fs::write(base.path().join("c"), b"").unwrap();
    let mut walker = walker(base.path());
    assert!(walker.next().unwrap().is_directory());
    walker.prune();
    let (sights, _) = walk(walker);
    assert_eq!(names(&sights), ["/", "c", "/"]);
}

#[test]
fn Walker__digests_are_of_the_content() {
    let base = tempfile::tempdir().unwrap();
    let long = vec![7; UNIT_BYTES + 5];
    for (name, content) in [("a", &long[..]), ("b", &long[..]), ("c", b"x"), ("d", b"")] {
        fs::write(base.path().join(name), content).unwrap();
    }
    let (sights, _) = walk(walker(base.path()).with_digests(true));
    let digests: Vec<_> = sights
        .iter()
        .filter_map(|sight| match sight {
            Sight::Entry(Seen {
                detail: Detail::Digest(digest),
                ..
            }) => Some(*digest),
            _ => None,
        })
        .collect();
    assert_eq!(digests.len(), 4);
    assert_eq!(digests[0], digests[1]);
    assert!(digests[0] != digests[2] && digests[2] != digests[3]);
}

/// Bytes that this thread has read so far, if the kernel counts them.
fn bytes_read() -> Option<u64> {
    let counts = fs::read_to_string("/proc/thread-self/io").ok()?;
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok())
}

#[test]
fn Walker__holes_are_hashed_as_zeros_and_not_read() {
    use std::os::unix::fs::FileExt;
    const UNITS: usize = 64;
    let base = tempfile::tempdir().unwrap();
    let mut content = vec![0; UNITS * UNIT_BYTES + 5];
    content[9 * UNIT_BYTES..][..4096].fill(7);
    let sparse = fs::File::create(base.path().join("sparse")).unwrap();
    sparse.set_len(content.len() as u64).unwrap();
    sparse
        .write_all_at(&[7; 4096], 9 * UNIT_BYTES as u64)
        .unwrap();
    fs::write(base.path().join("written"), content).unwrap();
    let mut walker = walker(base.path()).with_digests(true);
    let mut digest = || {
        let before = bytes_read();
        let sight = walker.next().unwrap();
        let Sight::Entry(Seen { detail, .. }) = sight else {
            panic!("{sight:?}");
        };
        (
            detail,
            bytes_read().zip(before).map(|(now, before)| now - before),
        )
    };
    let (sparse, read) = digest();
    let (written, _) = digest();
    assert_eq!(sparse, written);
    match read {
        Some(read) => assert!(read < 2 * UNIT_BYTES as u64, "{read} bytes were read"),
        None => println!("skipped: the kernel does not count what threads read"),
    }
}

#[test]
fn Walker__a_file_is_not_hashed_to_its_end_for_nobody() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    const UNITS: u64 = 9;
    let base = tempfile::tempdir().unwrap();
    let file = fs::File::create(base.path().join("f")).unwrap();
    file.set_len(UNITS * UNIT_BYTES as u64).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let mut walker = walker(base.path())
        .with_digests(true)
        .heeding(Box::new(move || {
            match counted.fetch_add(1, Ordering::Relaxed) < 2 {
                true => Ok(()),
                false => Err(Error::PeerGone),
            }
        }));
    let sight = walker.next();
    assert!(matches!(sight, Err(Error::PeerGone)), "{sight:?}");
    // At two units, at the third, and after the file.
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn check__fails_when_the_connection_has_ended_or_a_stop_is_asked_for() {
    use crate::stop::Stop;
    let counters = std::sync::Arc::<crate::port::PortCounters>::default();
    let (port, _end) = crate::port::port(vec![], vec![], counters.clone(), || {});
    let stop = Stop::default();
    let port = port.heeding(&stop);
    let check = port.check();
    check().unwrap();
    counters.end();
    assert!(matches!(check(), Err(Error::PeerGone)));
    stop.request();
    assert!(matches!(check(), Err(Error::Stopped)));
}

#[test]
fn Walker__filter_files_come_first_in_each_directory() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    for directory in ["d", "e", "f", "g"] {
        fs::create_dir(at(directory)).unwrap();
    }
    fs::write(at(".f"), b"- x").unwrap();
    fs::write(at("d/.g"), b"").unwrap();
    fs::write(at("e/.f"), vec![b'x'; FILTER_FILE_BYTES]).unwrap();
    fs::write(at("f/.f"), vec![b'x'; FILTER_FILE_BYTES + 1]).unwrap();
    std::os::unix::fs::symlink("../.f", at("g/.f")).unwrap();
    let names = [".f", ".g"].map(|name| name.as_bytes().to_vec()).to_vec();
    let (sights, _) = walk(walker(base.path()).with_filter_files(names.clone()));
    let filters = sights.iter().filter_map(|sight| match sight {
        Sight::Filters(files) => Some(&files[..]),
        _ => None,
    });
    let text = |bytes: &[u8]| FilterText::Text(bytes.to_vec());
    let unusable = FilterText::Unusable(Cause::FilterFile);
    let expected = [
        [text(b"- x"), FilterText::Missing],
        [FilterText::Missing, text(b"")],
        [text(&[b'x'; FILTER_FILE_BYTES]), FilterText::Missing],
        [unusable.clone(), FilterText::Missing],
        [unusable, FilterText::Missing],
    ];
    assert!(filters.eq(expected.iter().map(|it| &it[..])));
    assert!(matches!(&sights[..2], [Sight::Filters(_), Sight::Entry(seen)] if seen.name == b".f"));
    // Also for a missing tree; and followed links are read.
    let (sights, _) = walk(Walker::new(None, None).with_filter_files(names.clone()));
    assert_eq!(sights.len(), 2);
    let following = walker(base.path()).with_links(Links::Followed, Vec::new());
    let (sights, _) = walk(following.with_filter_files(names));
    let followed = Sight::Filters(vec![text(b"- x"), FilterText::Missing]);
    assert_eq!(sights.iter().filter(|it| **it == followed).count(), 2);
}
