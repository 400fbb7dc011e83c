//! Tests that marks recognize temporary files, and no copies of them.

#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// An empty marked file, without a name.
fn marked(at: Place) -> (File, Mark) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let digest = digest(file.as_fd(), b"target").unwrap();
    let mark = Mark { digest, at };
    mark.write(file.as_fd(), 0).unwrap();
    (file, mark)
}

/// Length of the content, if `file` is marked for `target`.
fn found(file: &File, target: &[u8]) -> Option<u64> {
    let found = Mark::find(file.as_fd(), target).unwrap();
    found.map(|(_, content)| content)
}

#[test]
fn find__for_this_target_and_this_inode_only() {
    for at in [Place::Attribute, Place::Trailer] {
        let (file, _mark) = marked(at);
        assert_eq!(found(&file, b"target"), Some(0), "{at:?}");
        assert_eq!(found(&file, b"other"), None, "{at:?}");
        // The result of cp -a.
        let copy = tempfile::tempfile_in("/dev/shm").unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
        let mut value = [0; 64];
        if let Ok(len) = fs::fgetxattr(&file, ATTRIBUTE, &mut value[..]) {
            fs::fsetxattr(&copy, ATTRIBUTE, &value[..len], XattrFlags::empty()).unwrap();
        }
        assert_eq!(found(&copy, b"target"), None, "{at:?}");
    }
}

#[test]
fn find__nothing_in_files_without_a_mark() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    for len in [0, 1, BYTES - 1, BYTES, 3 * BYTES] {
        file.write_all_at(&vec![0; len], 0).unwrap();
        assert_eq!(found(&file, b"target"), None, "{len}");
    }
}

#[test]
fn set__says_where_it_stands() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    Mark::set(file.as_fd(), b"target").unwrap();
    assert_eq!(found(&file, b"target"), Some(0));
}

#[test]
fn empty__and_remove() {
    for at in [Place::Attribute, Place::Trailer] {
        let (file, mark) = marked(at);
        mark.make_way(file.as_fd(), 0, 0, 5000).unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        assert_eq!(found(&file, b"target"), Some(5000), "{at:?}");
        mark.empty(file.as_fd()).unwrap();
        assert_eq!(found(&file, b"target"), Some(0), "{at:?}");
        mark.set_len(file.as_fd(), 0, 100).unwrap();
        mark.remove(file.as_fd());
        assert_eq!(found(&file, b"target"), None, "{at:?}");
        let mut bytes = [1; 101];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100);
        assert_eq!(bytes[..100], [0; 100], "{at:?}");
        mark.restore(file.as_fd(), 0).unwrap();
        assert!(found(&file, b"target").is_some(), "{at:?}");
    }
}

proptest! {
    /// Writes with gaps of all lengths: the content is the written bytes with zeros between, and the mark exists after
    /// every step.
    #[test]
    fn make_way__pieces_and_gaps(
        pieces in prop::collection::vec((0_u64..100, 1_usize..100), 1..20),
        more in 0_u64..100,
        trailer: bool,
    ) {
        let at = if trailer { Place::Trailer } else { Place::Attribute };
        let (file, mark) = marked(at);
        let mut expected = Vec::new();
        for (gap, len) in pieces {
            let end = expected.len() as u64;
            let from = end + gap;
            let until = from + len as u64;
            mark.make_way(file.as_fd(), end, from, until).unwrap();
            if trailer {
                prop_assert_eq!(found(&file, b"target"), Some(until));
            }
            file.write_all_at(&vec![7; len], from).unwrap();
            expected.resize(from as usize, 0);
            expected.resize(until as usize, 7);
            prop_assert_eq!(found(&file, b"target"), Some(until));
        }
        let end = expected.len() as u64;
        for size in [end + more, end.saturating_sub(more)] {
            mark.set_len(file.as_fd(), end.min(size), size).unwrap();
            expected.resize(size as usize, 0);
            let mut bytes = vec![1; expected.len() + 1];
            let read = file.read_at(&mut bytes, 0).unwrap();
            prop_assert_eq!(&bytes[..read], &expected[..]);
        }
    }
}
