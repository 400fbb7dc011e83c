//! Tests that plans are stored and split into complete batches.

#![allow(non_snake_case)]

use super::*;

fn copy(name: &str) -> Step {
    Step::Copy {
        name: name.into(),
        instead: None,
        old: false,
    }
}

/// The paths in the steps of a plan; each directory that is entered is left again.
fn paths(mut plan: &[u8]) -> Vec<String> {
    let (mut path, mut paths) = (Vec::new(), Vec::new());
    let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
    while let Some(step) = next_step(&mut plan).unwrap() {
        match step {
            Step::Enter { name, instead } => {
                path.push(text(name) + if instead.is_some() { "!" } else { "" });
            }
            Step::EnterAside { name, aside } => path.push(text(name) + "?" + &text(aside)),
            Step::Leave => drop(path.pop().expect("something to leave")),
            Step::Copy { name, .. }
            | Step::Link { name, .. }
            | Step::Same { name, .. }
            | Step::Wanted {
                seen: Seen { name, .. },
                ..
            }
            | Step::SetAttributes { name, .. }
            | Step::Remove { name, .. } => {
                paths.push([path.join("/"), text(name)].join("/"));
            }
        }
    }
    assert!(path.is_empty());
    paths
}

#[test]
fn Notes__directories_only_where_something_is_to_do() {
    let mut notes = Notes::new();
    notes.enter(b"none", None);
    notes.enter(b"below", None);
    notes.leave().unwrap();
    notes.leave().unwrap();
    assert!(notes.is_empty());
    notes.enter(b"a", None);
    notes.enter(b"b", None);
    notes.add(&copy("f")).unwrap();
    notes.leave().unwrap();
    notes.enter(b"touched", None);
    notes.touch().unwrap();
    notes.leave().unwrap();
    notes.leave().unwrap();
    let mut batches = notes.batches().unwrap();
    let batch = batches.next(BATCH_BYTES).unwrap().unwrap();
    let mut plan = &batch[..];
    let mut entered = Vec::new();
    while let Some(step) = next_step(&mut plan).unwrap() {
        if let Step::Enter { name, .. } = step {
            entered.push(name);
        }
    }
    assert_eq!(entered, [&b"a"[..], b"b", b"touched"]);
    assert_eq!(batches.next(BATCH_BYTES).unwrap(), None);
}

#[test]
fn Batches__each_is_complete_in_itself_and_none_is_too_long() {
    const LIMIT: usize = 4096;
    let mut notes = Notes::new();
    let mut expected = Vec::new();
    for directory in 0..10 {
        notes.enter(format!("directory {directory}").as_bytes(), None);
        notes.enter(b"sub", Some(b"other name".to_vec()));
        for file in 0..200 {
            notes.add(&copy(&format!("file {file}"))).unwrap();
            expected.push(format!("directory {directory}/sub/file {file}"));
        }
        notes.leave().unwrap();
        notes.leave().unwrap();
    }
    let mut batches = notes.batches().unwrap();
    let (mut found, mut count, mut others) = (Vec::new(), 0, 0);
    while let Some(batch) = batches.next(LIMIT).unwrap() {
        assert!(batch.len() <= LIMIT);
        found.extend(paths(&batch).into_iter().map(|path| path.replace('!', "")));
        count += 1;
        let mut plan = &batch[..];
        while let Some(step) = next_step(&mut plan).unwrap() {
            let other = matches!(
                step,
                Step::Enter {
                    instead: Some(_),
                    ..
                }
            );
            others += usize::from(other);
        }
    }
    assert_eq!(found, expected);
    assert!(count > 5);
    // A directory that was put in its place by an earlier batch is entered there.
    assert_eq!(others, 10);
}

#[test]
fn Batches__end_before_one_removal_too_many() {
    let remove = |name: &str, kind| Step::Remove {
        name: name.into(),
        kind,
        inode: 1,
    };
    let expected = ["/a", "d/b", "d/c", "/d", "/e"];
    // Each step alone, and all at once.
    for bytes in [1, BATCH_BYTES] {
        for most in 0..7 {
            let mut notes = Notes::new();
            notes.add(&remove("a", EntryKind::File)).unwrap();
            notes.enter(b"d", None);
            notes.add(&remove("b", EntryKind::File)).unwrap();
            notes.add(&remove("c", EntryKind::Link)).unwrap();
            notes.leave().unwrap();
            notes.add(&remove("d", EntryKind::Directory)).unwrap();
            notes.add(&remove("e", EntryKind::File)).unwrap();
            let mut batches = notes.batches().unwrap().with_most_removals(most);
            let mut found = Vec::new();
            while let Some(batch) = batches.next(bytes).unwrap() {
                found.extend(paths(&batch));
            }
            let most = expected.len().min(most as usize);
            assert_eq!(found, expected[..most], "{bytes}");
            assert_eq!(batches.next(bytes).unwrap(), None);
        }
    }
}

#[test]
fn Notes__are_in_a_file_once_they_are_many() {
    let mut notes = Notes::new();
    let name = "x".repeat(200);
    for _ in 0..PLAN_HELD_BYTES / 200 {
        notes.add(&copy(&name)).unwrap();
    }
    assert!(notes.spool.is_rolled());
    let mut batches = notes.batches().unwrap();
    let mut steps = 0;
    while let Some(batch) = batches.next(BATCH_BYTES).unwrap() {
        steps += paths(&batch).len();
    }
    assert_eq!(steps, PLAN_HELD_BYTES / 200);
}

#[test]
fn next_step__what_cannot_be() {
    for name in [&b".."[..], b"a/b", b"", b"a\0"] {
        for step in [
            Step::Enter {
                name: name.to_vec(),
                instead: None,
            },
            Step::Copy {
                name: b"a".to_vec(),
                instead: Some(name.to_vec()),
                old: false,
            },
            Step::Remove {
                name: name.to_vec(),
                kind: EntryKind::File,
                inode: 0,
            },
        ] {
            let plan = encode(&step, vec![]).unwrap();
            let Err(Error::Protocol(words)) = next_step(&mut &plan[..]) else {
                panic!("{step:?} is taken");
            };
            assert_eq!(words, "a name that is not one component");
        }
    }
    assert!(next_step(&mut &[200, 1][..]).is_err());
    assert_eq!(next_step(&mut &[][..]).unwrap(), None);
}
