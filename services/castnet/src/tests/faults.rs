//! Tests that a cast survives or reports faults without malice: refusals, missing hosts, changed files.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::group::{Group, all_have_it, content, host, reach_all, receiver, run};
use crate::{Cast, Content, Destination, Error};

/// Bytes a second, so that a cast lasts.
const SLOWLY: u64 = 4_000_000;

/// Longer than a host takes to come, also on a busy machine.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn target__that_exists_is_refused_and_the_others_get_it() {
    let group = Group::new();
    let bytes = content(1, 1_000_000);
    let source = group.file("source", &bytes);
    let directory = group.path("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("source"), b"precious").unwrap();
    let there = |force| Destination::Path {
        path: directory.clone(),
        force,
    };
    let hosts = group.start_at(vec![there(false), group.to(1), group.to(2)]);
    let outcome = run(&group, hosts.calls(), &source, |_| {}).unwrap();
    let why = outcome.hosts[0].result.clone().unwrap_err();
    assert!(why.contains("already exists"), "{why}");
    assert!(
        outcome.hosts[1..].iter().all(|it| it.result.is_ok()),
        "{outcome:?}"
    );
    // It waits for another.
    let mut ended = hosts.stop();
    assert!(matches!(ended.remove(0), Err(Error::Stopped)));
    assert_eq!(fs::read(directory.join("source")).unwrap(), b"precious");
    assert!(
        fs::read(group.target(1)).unwrap() == bytes && fs::read(group.target(2)).unwrap() == bytes
    );
    // With force it is replaced.
    let hosts = group.start_at(vec![there(true)]);
    run(&group, hosts.calls(), &source, |_| {}).unwrap();
    assert!(hosts.join().remove(0).is_ok());
    assert!(fs::read(directory.join("source")).unwrap() == bytes);
}

/// It says what it is called for, whatever else is offered to it before.
#[test]
fn offer__that_cannot_be_taken_is_refused_and_counted() {
    let group = Group::new();
    let directory = group.path("directory");
    fs::create_dir(&directory).unwrap();
    fs::create_dir(directory.join("first")).unwrap();
    let (first, second) = (
        group.file("first", b"first"),
        group.file("second", b"second"),
    );
    let to = Destination::Path {
        path: directory.clone(),
        force: false,
    };
    let at = receiver("127.0.0.1:0".parse().unwrap(), to);
    let address = at.local_addr();
    let cast = || Cast {
        hosts: vec![host(address)],
        ..Cast::default()
    };
    let host = std::thread::spawn(move || {
        let mut notes = Vec::new();
        let received = at.run(&|| false, &mut |it| notes.extend(it.notes.iter().cloned()));
        (received, notes)
    });
    for _ in 0..3 {
        let outcome = run(&group, cast(), &first, |_| {}).unwrap();
        let why = outcome.hosts[0].result.clone().unwrap_err();
        assert!(why.contains("already exists"), "{why}");
    }
    let outcome = run(&group, cast(), &second, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()));
    let (received, notes) = host.join().unwrap();
    assert_eq!(received.unwrap().refused, 3);
    let told = |it: &String| it.contains("refused") && it.contains("already exists");
    assert!(notes.iter().any(told), "{notes:?}");
    assert_eq!(fs::read(directory.join("second")).unwrap(), b"second");
}

/// Sums and multiples of them are made.
#[test]
fn times__however_long_are_times() {
    let group = Group::new();
    let bytes = content(17, 500_000);
    let source = group.file("source", &bytes);
    let longest = |it: crate::Receiver| it.with_patience(Duration::MAX).with_silence(Duration::MAX);
    let hosts = group.start_with(longest, vec![group.to(0), group.to(1)], |_, _| {});
    let cast = Cast {
        gather: Duration::MAX,
        linger: Duration::MAX,
        silence: Duration::MAX,
        ..hosts.calls()
    };
    reach_all(&group, cast, hosts, &source);
    assert!(fs::read(group.target(1)).unwrap() == bytes);
}

#[test]
fn hosts__that_are_not_there_or_unknown_are_named() {
    let group = Group::new();
    let bytes = content(2, 500_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(1);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut cast = Cast {
        gather: Duration::from_secs(10),
        linger: Duration::from_millis(200),
        ..hosts.calls()
    };
    cast.hosts.push(host(silent.local_addr().unwrap()));
    cast.hosts.push(crate::Host {
        addresses: Err("its name is not known".into()),
        ..cast.hosts[0].clone()
    });
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()));
    assert!(outcome.hosts[1].result.is_err(), "{outcome:?}");
    assert_eq!(outcome.hosts[2].result, Err("its name is not known".into()));
    assert!(hosts.join().remove(0).is_ok());
}

#[test]
fn hosts__may_answer_a_call_however_short_they_are_waited_for() {
    let group = Group::new();
    let source = group.file("source", &content(9, 500_000));
    let hosts = group.start(2);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut cast = Cast {
        gather: Duration::ZERO,
        linger: Duration::from_secs(10),
        ..hosts.calls()
    };
    cast.hosts.push(host(silent.local_addr().unwrap()));
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    let ok: Vec<_> = outcome.hosts.iter().map(|it| it.result.is_ok()).collect();
    assert_eq!(ok, [true, true, false], "{outcome:?}");
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
    // None is there: that ends, too.
    let cast = Cast {
        gather: Duration::ZERO,
        hosts: vec![host(silent.local_addr().unwrap())],
        ..Cast::default()
    };
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    assert!(outcome.hosts[0].result.is_err(), "{outcome:?}");
}

#[test]
fn hosts__of_several_addresses_are_called_at_each() {
    let group = Group::new();
    let bytes = content(12, 500_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(2);
    let with_port = |ip: &str, port| format!("{ip}:{port}").parse().unwrap();
    let mut cast = Cast {
        gather: Duration::ZERO,
        linger: LONG,
        ..hosts.calls()
    };
    for (host, at) in cast.hosts.iter_mut().zip(&hosts.addresses) {
        // As of a name that has IPv6 first, where the host listens on IPv4.
        let wrong = with_port("[::1]", at.port());
        host.addresses = Ok(vec![wrong, *at]);
    }
    cast.hosts.push(crate::Host {
        addresses: Ok(Vec::new()),
        ..cast.hosts[0].clone()
    });
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    for index in 0..2 {
        assert_eq!(outcome.hosts[index].result, Ok(()));
        assert!(fs::read(group.target(index)).unwrap() == bytes);
    }
    let why = outcome.hosts[2].result.clone().unwrap_err();
    assert_eq!(why, "it has no address");
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
}

#[test]
fn late__a_host_that_comes_in_the_middle_gets_all() {
    let group = Group::new();
    let bytes = content(3, 12_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(2);
    let late = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = late.local_addr().unwrap();
    let mut late = Some(late);
    let mut cast = Cast {
        gather: Duration::from_millis(500),
        linger: LONG,
        max_rate: Some(SLOWLY),
        ..hosts.calls()
    };
    cast.hosts.push(host(address));
    let mut running = None;
    let to = group.to(2);
    let outcome = run(&group, cast, &source, |progress| {
        if progress.hosts.iter().any(|it| it.1 > progress.chunks / 4) && late.take().is_some() {
            let receiver = receiver(address, to.clone());
            running = Some(std::thread::spawn(move || {
                receiver.run(&|| false, &mut |_| {})
            }));
        }
    })
    .unwrap();
    all_have_it(&outcome);
    running.expect("it came").join().unwrap().unwrap();
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
    for index in 0..3 {
        assert!(
            fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
}

/// As one does whose machine is busy. It is taken for dead, called again, and knows its source.
#[test]
fn rest__of_a_host_that_outlasts_the_silence_costs_it_nothing() {
    let group = Group::new();
    let bytes = content(15, 12_000_000);
    let source = group.file("source", &bytes);
    let at = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let cast = Cast {
        hosts: vec![host(at.local_addr())],
        linger: LONG,
        max_rate: Some(SLOWLY),
        ..Cast::default()
    };
    let rests = cast.silence * 2;
    let host = std::thread::spawn(move || {
        let mut rested = false;
        at.run(&|| false, &mut |it| {
            if it.chunks > 0 && !std::mem::replace(&mut rested, true) {
                std::thread::sleep(rests);
            }
        })
    });
    let mut notes = Vec::new();
    let outcome = run(&group, cast, &source, |it| {
        notes.extend(it.notes.iter().cloned())
    })
    .unwrap();
    let lost = notes.iter().any(|it| it.contains("silent, or gone"));
    assert!(lost, "{notes:?}");
    assert_eq!(outcome.hosts[0].result, Ok(()));
    host.join().unwrap().unwrap();
    assert!(fs::read(group.target(0)).unwrap() == bytes);
}

#[test]
fn resume__another_try_takes_up_what_is_good_of_the_partial_file() {
    let group = Group::new();
    let bytes = content(4, 12_000_000);
    let source = group.file("source", &bytes);
    let at = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let address = at.local_addr();
    let first = std::thread::spawn(move || {
        let enough = std::cell::Cell::new(false);
        at.run(&|| enough.get(), &mut |it| {
            enough.set(it.of > 0 && it.chunks > it.of / 3)
        })
    });
    let cast = || Cast {
        hosts: vec![host(address)],
        max_rate: Some(SLOWLY),
        ..Cast::default()
    };
    let outcome = run(&group, cast(), &source, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Err("stopped".into()));
    assert!(matches!(first.join().unwrap(), Err(Error::Stopped)));
    assert!(
        !group.target(0).exists(),
        "nothing half-written has the name"
    );
    let partial = group.path(".target-0.zerolane-part");
    // The threads that write it have it, locked, until they see that it is over.
    while fs::File::open(&partial).unwrap().try_lock().is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // A part of what was there is damaged meanwhile.
    let mut damaged = fs::read(&partial).unwrap();
    damaged[1000] ^= 1;
    fs::write(&partial, damaged).unwrap();
    let at = receiver(address, group.to(0));
    let again = std::thread::spawn(move || at.run(&|| false, &mut |_| {}));
    let outcome = run(&group, cast(), &source, |_| {}).unwrap();
    let received = again.join().unwrap().unwrap();
    assert!(fs::read(group.target(0)).unwrap() == bytes);
    let chunk = u64::from(source.chunk_bytes());
    assert!(
        received.resumed > bytes.len() as u64 / 4 - chunk,
        "{received:?}"
    );
    assert!(
        received.received >= chunk && received.received < bytes.len() as u64 * 3 / 4,
        "{received:?}"
    );
    assert!(!group.has_hidden_files());
    // What was there says nothing of the rate: no more came in a second than may.
    let least = received.received as f64 / SLOWLY as f64;
    let predicted = outcome.predicted.unwrap();
    assert!(
        predicted.time.as_secs_f64() > least / 2.0,
        "{predicted:?}, {least} s at least"
    );
}

/// Casts `source`, and calls `replace` once when a part of it has come. Returns why the host failed.
fn failure_of_replaced(group: &Group, source: &Content, replace: impl Fn()) -> String {
    let hosts = group.start(1);
    let cast = Cast {
        max_rate: Some(SLOWLY),
        ..hosts.calls()
    };
    let mut replaced = false;
    let outcome = run(group, cast, source, |it| {
        if it.hosts.iter().any(|it| it.1 > 2) && !std::mem::replace(&mut replaced, true) {
            replace();
        }
    });
    let why = outcome.unwrap().hosts[0].result.clone().unwrap_err();
    assert!(replaced, "{why}");
    assert!(hosts.join().remove(0).is_err());
    assert!(!group.target(0).exists());
    why
}

/// Another user of the directory may do that.
#[test]
fn partial__that_another_replaced_does_not_become_the_target() {
    let group = Group::new();
    let source = group.file("source", &content(18, 12_000_000));
    let partial = group.path(".target-0.zerolane-part");
    let why = failure_of_replaced(&group, &source, || {
        fs::remove_file(&partial).unwrap();
        fs::write(&partial, "another").unwrap();
    });
    assert!(why.contains("is a link, a FIFO"), "{why}");
    assert_eq!(fs::read(&partial).unwrap(), b"another");
    let group = Group::new();
    let tree = group.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), content(19, 12_000_000)).unwrap();
    let source = Content::open(&tree, &|| false).unwrap();
    let unpacked = group.path(".target-0.zerolane-tree");
    let why = failure_of_replaced(&group, &source, || {
        fs::rename(&unpacked, group.path("away")).unwrap();
        fs::create_dir(&unpacked).unwrap();
    });
    assert!(why.contains("is a link, a FIFO"), "{why}");
    assert!(unpacked.is_dir());
}

#[test]
fn prediction__of_a_cast_that_is_over_at_once() {
    let group = Group::new();
    let source = group.file("source", &content(10, 1000));
    let hosts = group.start(2);
    let outcome = run(&group, hosts.calls(), &source, |_| {}).unwrap();
    let predicted = outcome.predicted.expect("hosts got something");
    assert_eq!(predicted.from, 1.0, "there is one chunk");
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
}

#[test]
fn source__that_changes_is_said_and_no_host_takes_it() {
    let group = Group::new();
    let bytes = content(5, 12_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(2);
    let cast = Cast {
        max_rate: Some(SLOWLY),
        ..hosts.calls()
    };
    let mut changed = false;
    let error = run(&group, cast, &source, |progress| {
        if !changed && progress.hosts.iter().any(|it| it.1 > 2) {
            changed = true;
            fs::write(group.path("source"), content(6, 12_000_000)).unwrap();
        }
    })
    .unwrap_err();
    assert!(
        matches!(&error, Error::Changed(name) if name == "source"),
        "{error}"
    );
    for ended in hosts.join() {
        let error = ended.unwrap_err();
        assert!(
            matches!(&error, Error::Aborted(why) if why.contains("changed")),
            "{error}"
        );
    }
    assert!(!group.target(0).exists() && !group.target(1).exists());
}

#[test]
fn content__of_which_nothing_came_or_that_is_not_there_is_said() {
    let group = Group::new();
    let hosts = group.start(1);
    let empty = Content::stream("empty".into(), &b""[..]);
    assert!(matches!(empty, Err(Error::Empty)), "{empty:?}");
    assert!(Content::open(&group.path("nothing"), &|| false).is_err());
    // One that is stopped before it has its digests calls none.
    let source = group.file("source", &content(16, 500_000));
    let ended = hosts.calls().run(&source, &|| true, &mut |_| {});
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    assert!(matches!(hosts.stop().remove(0), Err(Error::Stopped)));
}

#[test]
fn command__that_does_not_read_is_ended_with_the_cast() {
    // A pipe takes neither.
    for len in [12_000_000, 300_000] {
        let group = Group::new();
        let source = group.file("source", &content(7, len));
        let (late, number) = (group.path("late"), group.path("number"));
        let command = format!(
            "trap '' TERM; echo $$ >'{}'; sleep 20; sleep 20; touch '{}'",
            number.display(),
            late.display()
        );
        let hosts = group.start_at(vec![Destination::Command(command)]);
        let cast = Cast {
            max_rate: Some(SLOWLY),
            ..hosts.calls()
        };
        // Of the longer content a part has come then, and the shorter one is there as a whole.
        let some = std::cell::Cell::new(false);
        let stopped = cast.run(&source, &|| some.get(), &mut |it| {
            some.set(number.exists() && it.hosts.iter().any(|it| it.1 >= 2))
        });
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        assert!(hosts.stop().remove(0).is_err());
        assert!(!late.exists(), "the command was waited for");
        let number = fs::read_to_string(number).unwrap();
        let there = std::path::Path::new("/proc").join(number.trim());
        // By itself it goes on for 40 s. What ends it may be behind the host on a busy machine.
        let until = Instant::now() + Duration::from_secs(15);
        while there.exists() {
            assert!(Instant::now() < until, "the command goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Its end is far behind that of the cast, as that of a slow disk is.
#[test]
fn command__that_takes_longer_than_a_silent_host_may_is_waited_for() {
    let group = Group::new();
    let bytes = content(13, 300_000);
    let source = group.file("source", &bytes);
    let long = crate::limits::FAREWELL.as_secs() + 3;
    let at = group.target(0);
    let command = format!("cat >'{}'; sleep {long}", at.display());
    let hosts = group.start_at(vec![Destination::Command(command), group.to(1)]);
    reach_all(&group, hosts.calls(), hosts, &source);
    assert!(fs::read(at).unwrap() == bytes);
}

/// Of a pipe the shell ends at once. What it started has its second all the same, in which a busy machine may not run it.
#[test]
fn command__of_a_pipe_may_clean_up() {
    assert!((0..5).any(|_| cleans_up()), "it had no time");
}

/// Whether what a pipe started, and is ended with the cast, did all that it does at its end.
fn cleans_up() -> bool {
    let group = Group::new();
    let source = group.file("source", &content(14, 12_000_000));
    let (ready, clean) = (group.path("ready"), group.path("clean"));
    let cleans = format!(
        "while grep -q . /proc/$$/cmdline; do :; done; sleep 0.1; touch '{}'; exit",
        clean.display()
    );
    let command = format!(
        "{{ trap \"{}\" TERM; touch '{}'; while :; do sleep 0.05; done; }} | cat",
        cleans.replace('$', "\\$"),
        ready.display()
    );
    let hosts = group.start_at(vec![Destination::Command(command)]);
    let cast = Cast {
        max_rate: Some(SLOWLY),
        ..hosts.calls()
    };
    let stopped = cast.run(&source, &|| ready.exists(), &mut |_| {});
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert!(hosts.join().remove(0).is_err());
    clean.exists()
}

#[test]
fn command__is_not_told_an_end_of_content_that_does_not_come() {
    let group = Group::new();
    let source = group.file("source", &content(8, 12_000_000));
    let (part, whole) = (group.path("part"), group.path("whole"));
    let command = format!("cat >'{}'; touch '{}'", part.display(), whole.display());
    let hosts = group.start_at(vec![Destination::Command(command)]);
    let cast = Cast {
        max_rate: Some(SLOWLY),
        ..hosts.calls()
    };
    let read = || part.metadata().is_ok_and(|it| it.len() > 300_000);
    let stopped = cast.run(&source, &read, &mut |_| {});
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert!(hosts.join().remove(0).is_err());
    assert!(!whole.exists(), "a part was taken for the whole");
}
