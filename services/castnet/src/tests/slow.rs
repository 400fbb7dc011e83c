//! Tests that a host with a slow disk or link delays others only as documented.

use std::thread;
use std::time::Duration;

use zerolane_cast::Slow;

use super::group::{Group, Hosts, content, host, run};
use crate::limits::WINDOW;
use crate::{Cast, Racks};

/// Chunks of the content: thrice what a host has in memory.
const CHUNKS: u32 = 3 * WINDOW;

/// What the second of a chain had at least when the first was seen to have all, if that passed all on from memory: what it
/// lacks is in there, and what it has told is one beat old at most.
const HELD: u32 = CHUNKS - WINDOW - 2;

/// Chunks that the second of two hosts, which stand in a chain, had when the first was first seen to have all. The source sends
/// so many bytes a second. `None`: it did not look in time.
fn behind(max_rate: Option<u64>, start: impl FnOnce(&Group) -> Hosts) -> Option<u32> {
    let group = Group::new();
    let bytes = content(1, CHUNKS as usize * (256 << 10));
    let source = group.file("source", &bytes);
    let hosts = start(&group);
    let names: Vec<_> = hosts.addresses.iter().map(|it| host(*it).name).collect();
    let racks = format!("- left\n{} left\n{} right\n", names[0], names[1]);
    let cast = Cast {
        // So the first is in front.
        racks: Racks::listed(&racks).unwrap(),
        slow: Slow::Wait,
        max_rate,
        ..hosts.calls()
    };
    let mut behind = None;
    let outcome = run(&group, cast, &source, |progress| {
        assert_eq!(progress.chunks, CHUNKS);
        let has = |name: &str| progress.hosts.iter().find(|it| it.0 == name);
        if has(&names[0]).is_some_and(|it| it.1 == CHUNKS) {
            behind = behind.or(has(&names[1]).map(|it| it.1));
        }
    });
    assert!(outcome.unwrap().hosts.iter().all(|it| it.result.is_ok()));
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
    assert!((0..2).all(|it| std::fs::read(group.target(it)).unwrap() == bytes));
    behind
}

/// Hosts of which the second has a disk that takes long for each chunk.
fn with_slow_disk(group: &Group, spills: bool, slower: u32) -> Hosts {
    group.start_with(
        |it| it.with_spill(spills),
        vec![group.to(0), group.to(1)],
        move |index, drive| {
            if index == 1 {
                drive.jobs.pause = Duration::from_millis(300) * slower;
            }
        },
    )
}

/// Bytes a second that hosts pass on.
const SLOWLY: u64 = 2_000_000;

fn with_slow_link(group: &Group, spills: bool, slower: u32) -> Hosts {
    let rate = SLOWLY / u64::from(slower);
    group.start_with(
        |it| it.with_max_rate(Some(rate)).with_spill(spills),
        vec![group.to(0), group.to(1)],
        |_, _| {},
    )
}

/// The source is slow enough for the second to ask for something before the first has all, and thrice as fast as it then, or more.
/// On a busy machine the first takes longer by itself, and what the second tells is older: against one that is slower yet, that
/// makes less difference.
fn holds_up_only_without_spill(start: fn(&Group, bool, u32) -> Hosts) {
    let source = Some(3 * SLOWLY);
    let mut seen = Vec::new();
    for slower in [1, 2, 4] {
        let start = move |spills| move |group: &Group| start(group, spills, slower);
        let spilling = thread::spawn(move || behind(source, start(true)));
        let held = behind(source, start(false));
        let spilling = spilling.join().unwrap();
        if held.is_some_and(|it| it >= HELD) && spilling.is_some_and(|it| it < HELD) {
            return;
        }
        seen.push((held, spilling));
    }
    panic!("of {CHUNKS}, {HELD} are held: {seen:?}");
}

#[test]
fn disk__that_is_slow_holds_up_the_host_in_front_only_if_that_does_not_spill() {
    holds_up_only_without_spill(with_slow_disk);
}

#[test]
fn link__that_is_slow_holds_up_the_host_in_front_only_if_that_does_not_spill() {
    holds_up_only_without_spill(with_slow_link);
}
