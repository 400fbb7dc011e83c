//! Tests that casts over loopback work, with all hosts in threads of this process.
#![allow(non_snake_case)]

mod faults;
mod group;
mod hostile;
mod looking;
mod lost;
mod memory;
mod racks;
mod slow;

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use group::{Group, all_have_it, content, host, reach_all, run};
use zerolane_cast::plan::{self, Shape};

use crate::{Cast, Content, Destination};

/// Holds up a host that looks at what an earlier try left, for as long as a test says: that has made a FIFO beside the list, and
/// the host reads it to its end.
pub(crate) fn hold(list: &std::path::Path) {
    let _ = fs::read(list.with_extension("zerolane-hold"));
}

#[test]
fn cast__a_file_to_four_and_none_gets_it_from_the_source_alone() {
    let group = Group::new();
    let bytes = content(1, 20_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(4);
    let outcome = run(&group, hosts.calls(), &source, |_| {}).unwrap();
    for (index, received) in hosts.join().into_iter().enumerate() {
        let received = received.unwrap_or_else(|error| panic!("host {index}: {error}"));
        assert_eq!((received.bytes, received.resumed), (bytes.len() as u64, 0));
        assert!(
            fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
    all_have_it(&outcome);
    // A star would be four times.
    assert!(
        outcome.sent < 2 * outcome.bytes + outcome.bytes / 2,
        "{outcome:?}"
    );
    assert!(
        !group.has_hidden_files(),
        "nothing is left of what was unfinished"
    );
}

#[test]
fn cast__by_trees() {
    let group = Group::new();
    let bytes = content(2, 10_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(5);
    let cast = Cast {
        arity: Some(2),
        ..hosts.calls()
    };
    reach_all(&group, cast, hosts, &source);
    for index in 0..5 {
        assert!(
            fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
}

#[test]
fn shape__is_the_planned_one_unless_told() {
    let group = Group::new();
    let source = group.file("source", &content(5, 2_000_000));
    let shape = |nodes| plan::shape(nodes, source.bytes(), source.chunk_bytes());
    assert!(matches!(shape(40), Shape::Tree(2)), "{:?}", shape(40));
    let away = UdpSocket::bind("127.0.0.1:0").unwrap();
    let arity = |count: usize, arity: Option<u32>| {
        let hosts = group.start_at(vec![Destination::Command("cat >/dev/null".into())]);
        let mut cast = Cast {
            arity,
            gather: Duration::from_millis(500),
            linger: Duration::from_millis(100),
            ..hosts.calls()
        };
        let more = host(away.local_addr().unwrap());
        cast.hosts.resize(count, more);
        let outcome = run(&group, cast, &source, |_| {}).unwrap();
        // On a busy machine it may be called too late: nothing is asked of it.
        drop(hosts.stop());
        outcome.arity
    };
    assert_eq!(arity(8, None), 1);
    assert_eq!(arity(40, None), 2);
    assert_eq!(arity(40, Some(1)), 1);
}

#[test]
fn cast__a_tree_with_links_and_empty_directories() {
    let group = Group::new();
    let tree = group.path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("a/b/file"), content(3, 700_000)).unwrap();
    fs::write(tree.join("none"), []).unwrap();
    std::os::unix::fs::symlink("a/b/file", tree.join("link")).unwrap();
    let source = Content::open(&tree, &|| false).unwrap();
    let hosts = group.start(2);
    reach_all(&group, hosts.calls(), hosts, &source);
    for index in 0..2 {
        let there = group.target(index);
        assert!(fs::read(there.join("a/b/file")).unwrap() == content(3, 700_000));
        assert_eq!(fs::read(there.join("none")).unwrap(), []);
        assert!(there.join("empty").is_dir());
        assert_eq!(
            fs::read_link(there.join("link")).unwrap().to_str(),
            Some("a/b/file")
        );
    }
    assert!(!group.has_hidden_files());
}

#[test]
fn cast__a_stream_to_a_command_as_it_comes() {
    let group = Group::new();
    let bytes = content(4, 3_000_000);
    let source = Content::stream("stream".into(), &bytes[..]).unwrap();
    let at = group.target(0);
    let command = Destination::Command(format!("cat > '{}'", at.display()));
    let failing = Destination::Command("exit 3".into());
    let hosts = group.start_at(vec![command, failing]);
    let outcome = run(&group, hosts.calls(), &source, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()));
    let why = outcome.hosts[1].result.clone().unwrap_err();
    assert!(why.contains("the command ended with"), "{why}");
    let mut ended = hosts.join();
    assert!(ended.remove(1).is_err());
    assert!(ended.remove(0).is_ok());
    assert!(fs::read(at).unwrap() == bytes);
}
