//! Tests that an immediate of a put into mapped memory follows its bytes, also when an end dies or revokes.

use crate::child::{Job, child, lane_of, listener, told};
use crate::mapped::{connect, memfd, numbers, revoked};
use crate::{PATIENCE, accept, listen, options, signal};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zerolane::options::LaneChoice;
use zerolane::request::Put;
use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey, Rights};

const WORD: usize = 8;
/// Bytes of a child's put.
const PUT: usize = 1 << 20;
/// A child that puts without end, each put with an immediate.
const NOTIFIES: Job = Job {
    then: "notify",
    ..Job::SEND
};
/// A child that exports memory, and serves it.
const OWNS: Job = Job {
    then: "own",
    ..Job::SEND
};

/// Words that identify a seed and their offset.
fn fill(seed: u64, bytes: &mut [u8]) {
    for (at, word) in (0_u64..).zip(bytes.as_chunks_mut::<WORD>().0) {
        *word = (seed << 32 | at).to_ne_bytes();
    }
}

/// Several peers put into areas of one region, each into slots that it reuses after the owner has checked them.
#[test]
fn immediates__of_several_connections_tell_of_all_before_them() {
    const LANES: [LaneChoice; 4] = [
        LaneChoice::SharedMemory,
        LaneChoice::SharedMemory,
        LaneChoice::SharedMemory,
        LaneChoice::Udp,
    ];
    const SLOTS: u64 = 8;
    const SLOT: usize = 24 << 10;
    const AREA: usize = SLOTS as usize * SLOT;
    const ROUNDS: u64 = 600;
    const PUTS: usize = 4;
    let memory = memfd(LANES.len() * AREA);
    let mut endpoint = listen(LaneChoice::Best);
    let to = endpoint.local_addr();
    let seen: [AtomicU64; LANES.len()] = Default::default();
    std::thread::scope(|scope| {
        let putting: Vec<_> = (0..LANES.len())
            .map(|peer| {
                let seen = &seen[peer];
                scope.spawn(move || {
                    let mut connection =
                        Connection::connect(to, &options(LANES[peer])).expect("met");
                    let key = connection.open_region("m", Rights::ALL).expect("exported");
                    let mut ended = 0;
                    let mut slot = vec![0; SLOT];
                    for round in 0..ROUNDS {
                        let end = Instant::now() + PATIENCE;
                        while seen.load(Ordering::Acquire) + SLOTS <= round {
                            assert!(Instant::now() < end, "peer {peer} has no slot");
                            ended += look(&mut connection);
                        }
                        fill((peer as u64) << 24 | round, &mut slot);
                        let start = peer * AREA + (round % SLOTS) as usize * SLOT;
                        for (number, part) in slot.chunks(SLOT / PUTS).enumerate() {
                            let at = (start + number * (SLOT / PUTS)) as u64;
                            let last = number + 1 == PUTS;
                            let number = last.then_some((peer << 24) as u32 | round as u32);
                            let put = Put::new(&key, at, Region::from_vec(part.to_vec()));
                            connection.post(put.immediate(number)).expect("room");
                        }
                    }
                    let end = Instant::now() + PATIENCE;
                    while ended < ROUNDS as usize * PUTS {
                        assert!(Instant::now() < end, "{ended} are over");
                        ended += look(&mut connection);
                    }
                    connection.account().direct_operations
                })
            })
            .collect();
        let mut connections: Vec<_> = LANES.iter().map(|_| accept(&mut endpoint)).collect();
        for connection in &mut connections {
            let exported = connection.export_named("m", &memory, Rights::ALL);
            exported.expect("room");
        }
        let end = Instant::now() + 2 * PATIENCE;
        let (mut found, mut expected) = (vec![0; SLOT], vec![0; SLOT]);
        while !putting.iter().all(|it| it.is_finished()) {
            assert!(Instant::now() < end, "{seen:?}");
            for connection in &mut connections {
                // A peer that is done closes.
                let Ok(Some(completion)) = connection.poll() else {
                    continue;
                };
                let number = number(&completion);
                let peer = (number >> 24) as usize;
                let round = number & 0xff_ffff;
                assert_eq!(seen[peer].load(Ordering::Relaxed), round, "peer {peer}");
                memory.read(peer * AREA + (round % SLOTS) as usize * SLOT, &mut found);
                fill((peer as u64) << 24 | round, &mut expected);
                assert!(found == expected, "peer {peer}, round {round}");
                seen[peer].store(round + 1, Ordering::Release);
            }
        }
        let direct: Vec<_> = putting
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .collect();
        let all = ROUNDS * PUTS as u64;
        assert_eq!(direct, [all, all, all, 0]);
    });
}

/// How many requests completed; each succeeded.
fn look(connection: &mut Connection) -> usize {
    let completion = connection
        .wait(Some(Duration::from_millis(1)))
        .expect("open")
        .got();
    completion.map_or(0, |it| it.result.map(|_| 1).expect("placed"))
}

/// Posts put `number`, as long as the memory: the number repeated, and as the immediate.
fn notify(connection: &mut Connection, key: &RegionKey, number: u64, len: usize) -> bool {
    let bytes = Region::from_vec(number.to_ne_bytes().repeat(len / WORD));
    connection
        .post(
            Put::new(key, 0, bytes)
                .immediate(number as u32)
                .context(number),
        )
        .is_ok()
}

fn number(shown: &Completion) -> u64 {
    u64::from(shown.immediate().expect("an immediate").number)
}

/// The next immediate, if there is one: `memory` has all of its put, or a later one's.
fn check_shown(connection: &mut Connection, memory: &ExportedRegion) -> Option<u64> {
    let wait = Some(Duration::from_millis(1));
    let shown = connection
        .wait(wait)
        .map(zerolane::Waited::got)
        .ok()
        .flatten()?;
    let shown = number(&shown);
    let mut there = vec![0; memory.len()];
    memory.read(0, &mut there);
    let (least, _) = numbers(&there);
    assert!(least >= shown, "{shown} before {least}");
    Some(shown)
}

#[test]
fn immediates__revoked_between_bytes_and_immediate_lose_nothing_that_completed() {
    const LEN: usize = 32 << 10;
    for round in 0..40 {
        let memory = memfd(LEN);
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let to = endpoint.local_addr();
        let over = AtomicBool::new(false);
        let (started, has_begun) = channel();
        std::thread::scope(|scope| {
            let serving = {
                let (memory, over) = (memory.clone(), &over);
                scope.spawn(move || {
                    let mut connection = accept(&mut endpoint);
                    let exported = connection.export_named("m", &memory, Rights::ALL);
                    exported.expect("room");
                    let mut shown = 0;
                    while !memory.is_revoked() {
                        if let Ok(Some(it)) = connection
                            .wait(Some(Duration::from_millis(1)))
                            .map(zerolane::Waited::got)
                        {
                            shown = number(&it);
                        }
                    }
                    drop(memory);
                    while !over.load(Ordering::Acquire) {
                        if let Ok(Some(it)) = connection
                            .wait(Some(Duration::from_millis(1)))
                            .map(zerolane::Waited::got)
                        {
                            shown = number(&it);
                        }
                    }
                    while let Ok(Some(it)) = connection.poll() {
                        shown = number(&it);
                    }
                    shown
                })
            };
            let putting = scope.spawn(move || {
                let (mut connection, key) = connect(to);
                let _ = started.send(());
                let (mut posted, mut completed, mut ended) = (0, 0, 0);
                let mut failed = false;
                let end = Instant::now() + PATIENCE;
                while !failed || ended < posted {
                    assert!(Instant::now() < end, "{ended} of {posted} are over");
                    if !failed && posted - ended < 64 {
                        posted += 1;
                        assert!(notify(&mut connection, &key, posted, LEN));
                    }
                    while let Some(it) = connection.poll().expect("open") {
                        ended += 1;
                        match it.result {
                            Ok(len) => {
                                assert_eq!((len, it.context), (LEN, completed + 1));
                                completed += 1;
                            }
                            Err(_) => failed = true,
                        }
                    }
                }
                (posted, completed)
            });
            has_begun.recv_timeout(PATIENCE).expect("it connects");
            sleep(Duration::from_micros(300 + 41 * round));
            let mut own = revoked(memory);
            let there = own.to_vec();
            let (posted, completed) = putting.join().expect("no panic");
            over.store(true, Ordering::Release);
            let shown = serving.join().expect("no panic");
            assert!(own[..] == there[..], "round {round}: it changed");
            let (least, most) = numbers(&there);
            assert!(most - least <= 1, "{least} to {most}");
            assert!(
                least >= completed && most <= posted,
                "{completed}: {least} to {most}"
            );
            assert!(
                shown <= least && completed <= shown,
                "{completed}, {shown}, {least}"
            );
            own.fill(0);
        });
    }
}

/// Puts without end, until one is refused: the job of a child.
pub(crate) fn notify_without_end(connection: &mut Connection) {
    let key = connection
        .open_region("m", Rights::ALL)
        .expect("it is exported");
    println!("zl notifies");
    let (mut posted, mut ended, mut failed) = (0, 0, false);
    while !failed || ended < posted {
        if !failed && posted - ended < 16 {
            failed = !notify(connection, &key, posted + 1, PUT);
            posted += u64::from(!failed);
        }
        let wait = Some(Duration::from_millis(u64::from(failed)));
        let Ok(completion) = connection.wait(wait).map(zerolane::Waited::got) else {
            return;
        };
        if let Some(it) = completion {
            ended += 1;
            failed |= it.result.is_err();
        }
    }
    println!("zl refused {}", connection.account().direct_operations);
}

#[test]
fn immediates__of_a_process_that_is_stopped_or_killed_tell_the_truth() {
    for round in 0..18_u64 {
        let memory = memfd(PUT);
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let (mut child, mut said) = child(endpoint.local_addr(), &NOTIFIES);
        let mut connection = accept(&mut endpoint);
        let exported = connection.export_named("m", &memory, Rights::ALL);
        exported.expect("room");
        let end = Instant::now() + PATIENCE;
        let (mut last, mut looks) = (0, 0);
        while looks < 3 + round {
            assert!(Instant::now() < end, "it never came");
            if let Some(shown) = check_shown(&mut connection, &memory) {
                assert_eq!(shown, last + 1);
                (last, looks) = (shown, looks + 1);
            }
        }
        lane_of(&mut said);
        let killed = round % 3 == 2;
        match killed {
            true => child.kill().expect("ours"),
            false => signal(&child, SIGSTOP),
        }
        // The immediates published before are delivered, and right.
        while let Some(shown) = check_shown(&mut connection, &memory) {
            assert_eq!(shown, last + 1);
            last = shown;
        }
        let mut own = memory.revoke().expect("the only handle");
        let (least, most) = numbers(&own);
        assert!(most - least <= 1, "{least} to {most}");
        assert!(least >= last, "{least} after {last}");
        own.fill(0xa5);
        if !killed {
            signal(&child, SIGCONT);
            let end = Instant::now() + PATIENCE;
            let told = std::thread::spawn(move || told(&mut said, "refused"));
            while !told.is_finished() {
                assert!(Instant::now() < end, "it puts on");
                let shown = connection
                    .wait(Some(Duration::from_millis(1)))
                    .map(zerolane::Waited::got);
                // No immediate of a revoked region is delivered any more.
                assert!(!matches!(shown, Ok(Some(_))), "{shown:?}");
            }
            let direct: u64 = told.join().expect("no panic").parse().expect("a number");
            assert!(direct >= last, "{direct} of {last}");
        }
        assert!(crate::is_all(&own, 0xa5), "round {round}: it changed");
        let _ = child.kill();
        child.wait().expect("killed");
    }
}

/// Exports memory to the peer, and serves it: the job of a child.
pub(crate) fn own(connection: &mut Connection) {
    let memory = memfd(PUT);
    let exported = connection.export_named("m", &memory, Rights::ALL);
    exported.expect("room");
    while connection.wait(None).is_ok() {}
}

#[test]
fn immediates__to_a_process_that_is_killed_end_once() {
    for round in 0..12_u64 {
        let (mut child, mut said) = listener(&OWNS);
        let to = told(&mut said, "at").parse().expect("an address");
        let (mut connection, key) = connect(to);
        let killing = std::thread::spawn(move || {
            sleep(Duration::from_micros(400 * round));
            child.kill().expect("ours");
            child.wait().expect("killed");
        });
        let (mut number, mut open) = (0, HashSet::new());
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "{} are open", open.len());
            if open.len() < 64 && notify(&mut connection, &key, number + 1, PUT) {
                number += 1;
                open.insert(number);
            }
            match connection.poll() {
                Ok(Some(it)) => assert!(open.remove(&it.context), "{} twice", it.context),
                Ok(None) => {}
                // Everything complete was reported.
                Err(_) => break,
            }
        }
        assert_eq!(open.len(), 0, "each ends");
        assert!(!notify(&mut connection, &key, number + 1, PUT));
        killing.join().expect("no panic");
    }
}
