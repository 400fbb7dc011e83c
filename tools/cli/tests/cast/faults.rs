//! Tests that casts between processes survive faults, over loopback and without root. `ZEROLANE_SEED` repeats one seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::content::content;
use crate::running::{Casting, Place, Waiting, addresses, said};

fn hosts(place: &Place, count: usize, options: &[&str]) -> Vec<Waiting> {
    let start = |it| Waiting::start(place.command(), "127.0.0.1:0", options, &place.target(it));
    (0..count).map(start).collect()
}

/// A cast that the source refuses: its exit code and message.
fn refused(mut command: Command, source: &Path, hosts: &[String]) -> (Option<i32>, String) {
    let output = command.arg(source).args(hosts).output().unwrap();
    (output.status.code(), said(&output))
}

#[test]
fn source__that_changes_or_becomes_shorter_is_named_and_the_exit_code_is_1() {
    let disturb: [fn(&Path); 2] = [
        |source| fs::write(source, content(2, 12_000_000)).unwrap(),
        |source| {
            let file = fs::OpenOptions::new().write(true).open(source).unwrap();
            file.set_len(9_000_000).unwrap();
        },
    ];
    for disturb in disturb {
        let place = Place::new();
        let source = place.file("source", &content(1, 12_000_000));
        let hosts = hosts(&place, 2, &[]);
        let mut command = place.command();
        // Slow enough that the test sees the cast in progress, also on a busy machine.
        command.args(["--limit", "1MB/s"]).arg(&source);
        command.args(addresses(&hosts));
        command.stdout(std::process::Stdio::null());
        let child = command.stderr(std::process::Stdio::piped()).spawn();
        let child = child.unwrap();
        place.wait_until("something has come", || place.partly(0) > 500_000);
        disturb(&source);
        let output = child.wait_with_output().unwrap();
        let words = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(
            words.contains("the source changed while it was cast: source"),
            "{words}"
        );
        for (index, host) in hosts.into_iter().enumerate() {
            let (code, _, why) = host.end();
            assert_eq!(code, Some(1), "{why}");
            assert!(why.contains("the source changed"), "{why}");
            assert!(!place.target(index).exists(), "host {index} took it");
        }
    }
}

#[test]
fn end__by_a_changed_source_or_a_signal_has_a_summary_by_host_too() {
    type Disturb = fn(&Path, u32);
    let changes: Disturb = |source, _| fs::write(source, content(2, 12_000_000)).unwrap();
    let stops: Disturb = |_, process| {
        let process = nix::unistd::Pid::from_raw(process.cast_signed());
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
    };
    for (disturb, exit, why) in [(changes, 1, "the source changed"), (stops, 130, "stopped")] {
        let place = Place::new();
        let source = place.file("source", &content(1, 12_000_000));
        let hosts = hosts(&place, 2, &[]);
        let names = addresses(&hosts);
        let casting = Casting::start(place.command(), &["--limit", "1MB/s"], &source, &names);
        place.wait_until("something has come", || place.partly(0) > 500_000);
        disturb(&source, casting.0.id());
        let (code, summary) = casting.end();
        assert_eq!(code, Some(exit), "{summary}");
        let says = |it: &serde_json::Value| it.as_str().is_some_and(|it| it.contains(why));
        assert!(says(&summary["reason"]), "{summary}");
        for (index, name) in names.iter().enumerate() {
            let failed = &summary["failed"][index];
            assert_eq!(failed["host"], name.as_str(), "{summary}");
            assert!(says(&failed["reason"]), "{summary}");
            assert_eq!(summary["hosts"][index]["ok"], false, "{summary}");
        }
        assert_eq!(summary["source_changed"], exit == 1, "{summary}");
    }
}

#[test]
fn names__one_of_ten_that_is_not_known_is_named_or_stops_the_cast() {
    let place = Place::new();
    let bytes = content(3, 1_000_000);
    let source = place.file("source", &bytes);
    let hosts = hosts(&place, 9, &[]);
    let mut names = addresses(&hosts);
    names.insert(4, "no-such-host.invalid".into());
    let mut command = place.command();
    command.args(["--unknown", "stop"]);
    let (code, words) = refused(command, &source, &names);
    assert!(code.is_some_and(|it| it != 0), "{words}");
    assert!(words.contains("no-such-host.invalid"), "{words}");
    assert!((0..9).all(|it| !place.target(it).exists()));
    let (code, summary) = Casting::start(place.command(), &[], &source, &names).end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(
        summary["failed"].as_array().map(Vec::len),
        Some(1),
        "{summary}"
    );
    assert_eq!(
        summary["failed"][0]["host"], "no-such-host.invalid",
        "{summary}"
    );
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("its name is not known"), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..9).all(|it| place.has(it, &bytes)));
}

#[test]
fn busy__a_host_refuses_a_second_cast_and_goes_on_with_the_first() {
    let place = Place::new();
    let bytes = content(4, 16_000_000);
    let source = place.file("source", &bytes);
    let other = place.file("other", &content(5, 1_000_000));
    let hosts = hosts(&place, 2, &[]);
    let names = addresses(&hosts);
    let casting = Casting::start(place.command(), &["--limit", "2MB/s"], &source, &names);
    place.wait_until("some has come", || place.partly(1) > 2_000_000);
    // The keys are the same, as when one user casts twice.
    let (code, summary) = Casting::start(place.command(), &[], &other, &names[1..]).end();
    assert_eq!(code, Some(1), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("it is in another cast"), "{summary}");
    let (code, summary) = casting.end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..2).all(|it| place.has(it, &bytes)));
}

/// Builds a preloaded library that shifts a program's wall clock by years and leaves its monotonic clock. `None`
/// without a C compiler.
fn wrong_calendar(place: &Place) -> Option<PathBuf> {
    const SOURCE: &str = "
        #define _GNU_SOURCE
        #include <time.h>
        #include <sys/time.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int clock_gettime(clockid_t clock, struct timespec *at) {
            long done = syscall(SYS_clock_gettime, clock, at);
            if (clock == CLOCK_REALTIME) at->tv_sec -= 700000000;
            return done;
        }
        int gettimeofday(struct timeval *at, void *zone) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000;
            return 0;
        }
        time_t time(time_t *at) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            if (at) *at = now.tv_sec;
            return now.tv_sec;
        }";
    let (source, library) = (
        place.file("calendar.c", SOURCE.as_bytes()),
        place.path("calendar.so"),
    );
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    let made = compiler.arg(source).status();
    made.is_ok_and(|it| it.success()).then_some(library)
}

#[test]
fn clock__of_one_host_that_is_wrong_by_years_makes_no_difference() {
    let place = Place::new();
    let Some(library) = wrong_calendar(&place) else {
        println!("skipped: a wrong calendar needs a compiler of C");
        return;
    };
    let wrong = |mut command: Command| {
        command.env("LD_PRELOAD", &library);
        command
    };
    let mut date = wrong(Command::new("date"));
    let year = said(&date.arg("+%Y").output().unwrap());
    let year: i32 = year.trim().parse().unwrap();
    assert!(year < 2020, "the library has no effect: {year}");
    let bytes = content(6, 8_000_000);
    let source = place.file("source", &bytes);
    let start = |command, index| Waiting::start(command, "127.0.0.1:0", &[], &place.target(index));
    let hosts = vec![
        start(place.command(), 0),
        start(wrong(place.command()), 1),
        start(place.command(), 2),
    ];
    let (code, summary) = Casting::start(place.command(), &[], &source, &addresses(&hosts)).end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| place.has(it, &bytes)));
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// All files below a directory, with their bytes.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().to_owned();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

/// The seeds of this run: that of `ZEROLANE_SEED`, or new ones.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ZEROLANE_SEED") {
        Ok(seed) => vec![seed.parse().expect("ZEROLANE_SEED is a number")],
        Err(_) => {
            let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            let first = since.as_nanos() as u64 % 1_000_000;
            (first..first + count).collect()
        }
    }
}

/// Kills the source, or one of four hosts anywhere in the chain, at a random moment. Each survivor has the whole tree,
/// or none of it and reports a failure. If the source survives, each host has the tree.
#[test]
fn kill__any_role_at_a_random_moment_and_survivors_have_the_tree_or_none() {
    const ROLES: u64 = 5;
    for seed in seeds(ROLES) {
        println!("ZEROLANE_SEED={seed}");
        let mut random = Random(seed);
        let place = Place::new();
        let tree = place.path("tree");
        fs::create_dir_all(tree.join("deep/deeper")).unwrap();
        for (index, name) in ["a", "deep/b", "deep/deeper/c"].iter().enumerate() {
            fs::write(
                tree.join(name),
                content(seed + index as u64, 2_000_000 + index * 777_777),
            )
            .unwrap();
        }
        let cast = files(&tree);
        // Each role in turn: 0 is the source.
        let role = (seed % ROLES) as usize;
        // Hosts that lose the source give up soon. Others may have to wait for one that gets no CPU.
        let patience = if role == 0 { "4" } else { "60" };
        let mut hosts: Vec<_> = hosts(&place, 4, &["--timeout", patience])
            .into_iter()
            .map(Some)
            .collect();
        let names: Vec<String> = hosts
            .iter()
            .flatten()
            .map(|it| it.address.clone())
            .collect();
        let casting = Casting::start(place.command(), &["--limit", "4MB/s"], &tree, &names);
        let at = Instant::now() + Duration::from_millis(random.below(2500));
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let what = format!("ZEROLANE_SEED={seed}, role {role}");
        let ended = match role {
            0 => {
                drop(casting);
                None
            }
            _ => {
                hosts[role - 1].take().expect("it runs").kill();
                Some(casting.end())
            }
        };
        for (index, host) in hosts.into_iter().enumerate() {
            let Some(host) = host else { continue };
            // A host without its source would wait for another one.
            let (code, last, why) = match role {
                0 => host.end_within(Duration::from_secs(20)),
                _ => host.end(),
            };
            let target = place.target(index);
            let says = format!("{what}: host {index}: {code:?} {last} {why}");
            assert!(role == 0 || code == Some(0), "{says}");
            match code {
                Some(0) => assert!(files(&target) == cast, "{says}"),
                // The host still waited: for a source, or, with the whole tree, for hosts that might need parts of it.
                None if target.exists() => assert!(files(&target) == cast, "{says}"),
                _ => assert!(!target.exists(), "{says}: it has a part"),
            }
        }
        if let Some((code, summary)) = ended {
            // The killed host may have finished before.
            assert!(matches!(code, Some(0 | 5)), "{what}: {code:?} {summary}");
        }
    }
}
