//! Tests that memory is cast into memory and files, and released afterwards.

use zerolane::{ExportedRegion, Region};

use super::group::{Group, all_have_it, content, run};
use crate::{Content, Destination, Error};

fn region(bytes: Vec<u8>) -> ExportedRegion {
    ExportedRegion::new(Region::from_vec(bytes)).expect("it is aligned")
}

#[test]
fn memory__to_memory_and_files_and_none_is_held_afterwards() {
    let group = Group::new();
    let bytes = content(1, 6_000_001);
    let source = region(bytes.clone());
    let places = [region(vec![1; 6_000_001]), region(vec![1; 7_000_000])];
    let mut targets: Vec<_> = places.iter().cloned().map(Destination::Memory).collect();
    targets.push(group.to(2));
    let hosts = group.start_at(targets);
    let weights = Content::memory("weights".into(), &source);
    let outcome = run(&group, hosts.calls(), &weights, |_| {}).unwrap();
    all_have_it(&outcome);
    for received in hosts.join() {
        let received = received.unwrap();
        assert_eq!(received.bytes, bytes.len() as u64);
    }
    let [exact, longer] = places.map(|it| it.revoke().expect("nothing else has it"));
    assert!(exact[..] == bytes[..] && longer[..bytes.len()] == bytes[..]);
    let rest = &longer[bytes.len()..];
    assert!(rest.iter().all(|it| *it == 1), "beyond the content");
    assert!(std::fs::read(group.target(2)).unwrap() == bytes);
    drop(weights);
    assert!(source.revoke().is_ok(), "nothing else has it");
}

#[test]
fn memory__that_is_too_short_is_refused_and_the_others_get_it() {
    let group = Group::new();
    let source = region(content(2, 100_000));
    let short = region(vec![1; 99_999]);
    let hosts = group.start_at(vec![Destination::Memory(short.clone()), group.to(1)]);
    let weights = Content::memory("weights".into(), &source);
    let outcome = run(&group, hosts.calls(), &weights, |_| {}).unwrap();
    let words = outcome.hosts[0].result.clone().unwrap_err();
    assert!(words.contains("the memory only 99999"), "{words}");
    assert_eq!(outcome.hosts[1].result, Ok(()));
    // It waits for another.
    let ended = hosts.stop();
    assert!(matches!(ended[0], Err(Error::Stopped)), "{ended:?}");
    let short = short.revoke().expect("nothing else has it");
    assert!(short.iter().all(|it| *it == 1));
}

#[test]
fn memory__that_the_program_changes_ends_the_cast() {
    let group = Group::new();
    let source = region(content(3, 8_000_000));
    let hosts = group.start(1);
    let weights = Content::memory("weights".into(), &source);
    let cast = crate::Cast {
        max_rate: Some(4_000_000),
        ..hosts.calls()
    };
    let mut changed = false;
    let ended = run(&group, cast, &weights, |_| {
        if !std::mem::replace(&mut changed, true) {
            source.write(7_999_000, b"other");
        }
    });
    assert!(
        matches!(&ended, Err(Error::Changed(name)) if name == "weights"),
        "{ended:?}"
    );
    assert!(hosts.join()[0].is_err());
    assert!(!group.target(0).exists());
}

/// A file of this name in the group's directory, as memory.
fn mapped(group: &Group, name: &str, bytes: &[u8]) -> (std::fs::File, ExportedRegion) {
    use zerolane::memory::Access;
    std::fs::write(group.path(name), bytes).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .open(group.path(name))
        .unwrap();
    let region = Region::map_file(&file, 0, bytes.len(), Access::Write).unwrap();
    (
        file,
        ExportedRegion::of_file(region).expect("it is aligned"),
    )
}

#[test]
fn memory__of_a_mapped_file_that_becomes_shorter_is_an_error_that_names_it() {
    let group = Group::new();
    let bytes = content(4, 8_000_000);
    let (file, source) = mapped(&group, "model", &bytes);
    let hosts = group.start(1);
    let model = Content::memory("model".into(), &source);
    let cast = crate::Cast {
        max_rate: Some(4_000_000),
        ..hosts.calls()
    };
    let ended = run(&group, cast, &model, |it| {
        if it.hosts.iter().any(|it| it.1 > 2) {
            file.set_len(4_000_000).unwrap();
        }
    });
    assert!(
        matches!(&ended, Err(Error::Changed(name)) if name == "model"),
        "{ended:?}"
    );
    assert!(hosts.join()[0].is_err());
    assert!(!group.target(0).exists());
    // And before its digests are made.
    let hosts = group.start(1);
    let ended = run(&group, hosts.calls(), &model, |_| {});
    assert!(matches!(&ended, Err(Error::Changed(_))), "{ended:?}");
    hosts.stop();
}

#[test]
fn memory__of_a_mapped_target_that_becomes_shorter_fails_that_host_alone() {
    let group = Group::new();
    let bytes = content(5, 8_000_000);
    let source = group.file("source", &bytes);
    let (file, target) = mapped(&group, "mapped", &vec![0; bytes.len()]);
    let hosts = group.start_at(vec![Destination::Memory(target), group.to(1)]);
    let cast = crate::Cast {
        max_rate: Some(4_000_000),
        ..hosts.calls()
    };
    let outcome = run(&group, cast, &source, |it| {
        if it.hosts.iter().any(|it| it.1 > 2) {
            file.set_len(4096).unwrap();
        }
    })
    .unwrap();
    let words = outcome.hosts[0].result.clone().unwrap_err();
    assert!(
        words.contains("writing the memory for source: the mapped file shrank"),
        "{words}"
    );
    assert_eq!(outcome.hosts[1].result, Ok(()), "{outcome:?}");
    let ended = hosts.join();
    assert!(ended[0].is_err() && ended[1].is_ok(), "{ended:?}");
    assert!(std::fs::read(group.target(1)).unwrap() == bytes);
}
