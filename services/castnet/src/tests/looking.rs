//! Tests that a source waits for hosts that check an earlier attempt.
//!
//! The test decides how long: the hosts read from its pipe.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use zerolane::{Connection, Endpoint, Options};

use super::group::{Group, all_have_it, content, hear, host, receiver, run, word};
use crate::drive::Membership;
use crate::invitation::{Call, Word};
use crate::limits::LEAST_CHUNK;
use crate::{Cast, Content, Error};

/// Longer than any of it takes.
const LONG: Duration = Duration::from_secs(60);

/// What an earlier try left of a target: all of it. A host that looks at it waits at this pipe.
fn left(group: &Group, index: usize, bytes: &[u8], source: &Content) -> PathBuf {
    let beside = |what: &str| group.path(&format!(".target-{index}.zerolane-{what}"));
    fs::write(beside("part"), bytes).unwrap();
    let manifest = source.manifest(source.chunk_bytes(), 1, &|| false).unwrap();
    let list = postcard::to_allocvec(&(manifest.header(), manifest.hashes())).unwrap();
    fs::write(beside("list"), list).unwrap();
    let hold = beside("hold");
    let made = Command::new("mkfifo").arg(&hold).status().unwrap();
    assert!(made.success());
    hold
}

/// The other end of the pipe, once a host looks: it goes on when this is dropped.
fn looked_at(hold: &Path) -> File {
    OpenOptions::new().write(true).open(hold).unwrap()
}

#[test]
fn look__of_a_host_at_what_it_has_is_waited_for_when_all_others_are_done() {
    let group = Group::new();
    let bytes = content(1, 8_000_000);
    let source = group.file("source", &bytes);
    let hold = left(&group, 1, &bytes, &source);
    let first = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let hosts = group.start_at(vec![group.to(1)]);
    let mut cast = Cast {
        gather: Duration::from_millis(500),
        linger: Duration::from_millis(100),
        ..hosts.calls()
    };
    cast.hosts.push(host(first.local_addr()));
    let (told, looks) = channel();
    // The other is done only after this one has begun to look, however busy the machine is.
    let first = thread::spawn(move || {
        told.send(looked_at(&hold)).unwrap();
        first.run(&|| false, &mut |_| {})
    });
    let outcome = run(&group, cast, &source, |progress| {
        if progress.done == 1
            && let Ok(pipe) = looks.try_recv()
        {
            drop::<File>(pipe);
        }
    })
    .unwrap();
    all_have_it(&outcome);
    first.join().unwrap().unwrap();
    let received = hosts.join().remove(0).unwrap();
    let all = (bytes.len() as u64, 0);
    assert_eq!((received.resumed, received.received), all, "{received:?}");
    assert!(fs::read(group.target(1)).unwrap() == bytes);
}

#[test]
fn look__of_a_host_ends_when_its_user_stops_it() {
    let group = Group::new();
    let bytes = content(2, 2_000_000);
    let source = group.file("source", &bytes);
    let hold = left(&group, 0, &bytes, &source);
    let at = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let address = at.local_addr();
    let (stop, stopped) = channel::<()>();
    let (told, ended) = channel();
    thread::spawn(move || {
        let stop = || stopped.try_recv().is_ok();
        told.send(at.run(&stop, &mut |_| {}))
    });
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let cast = thread::spawn(move || {
        let cast = Cast {
            hosts: vec![host(address)],
            gather: LONG,
            ..Cast::default()
        };
        // What becomes of it is not asked here.
        let _ = cast.run(&source, &|| is_over.load(Ordering::Relaxed), &mut |_| {});
    });
    let pipe = looked_at(&hold);
    stop.send(()).unwrap();
    let ended = ended.recv_timeout(LONG).expect("it ends");
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    // Another try finds nothing that holds it.
    let target = group.to(0);
    let waker = zerolane::worker::Worker::new().unwrap().waker();
    let offer = crate::invitation::Offer {
        name: b"source".to_vec(),
        form: crate::Form::Bytes,
        bytes: 2_000_000,
        meta: None,
    };
    let opened = target.open(&offer, waker);
    assert!(opened.is_ok(), "{opened:?}");
    drop(pipe);
    over.store(true, Ordering::Relaxed);
    cast.join().unwrap();
}

/// Waits for a source's call, and takes part with a new key.
fn joins(endpoint: &mut Endpoint) -> Connection {
    let mut source = endpoint.accept(None).unwrap().expect("no timeout");
    assert!(matches!(hear(&mut source), Call::Offer(_)));
    let membership = Membership::new([0; 32], Options::default()).unwrap();
    let own = membership.identity.public().0;
    source.send(&word(&Word::Joins(own))).unwrap();
    assert!(matches!(hear(&mut source), Call::Group { .. }));
    source
}

/// Seconds in which one looks: longer than a silent host is waited for.
const LOOKS: u64 = crate::limits::FAREWELL.as_secs() + 3;

/// Looks for longer than a silent host is waited for, and has all then.
fn looks_long(source: &mut Connection) {
    for chunk in 0..LOOKS {
        source
            .send(&word(&Word::Looks(chunk * LEAST_CHUNK)))
            .unwrap();
        thread::sleep(Duration::from_secs(1));
    }
    source.send(&word(&Word::Ended(Ok(())))).unwrap();
    // Until the source has heard it.
    source.set_timeout(Some(LONG));
    let _ = source.recv_into(&mut [0; 8]);
}

/// What becomes of a cast to a host, and to one that does this; the first has it.
fn cast_to(act: impl FnOnce(&mut Endpoint) + Send + 'static) -> Result<(), String> {
    let group = Group::new();
    let source = group.file("source", &content(3, (LOOKS * LEAST_CHUNK) as usize));
    let hosts = group.start(1);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let slow = endpoint.local_addr();
    let looks = thread::spawn(move || act(&mut endpoint));
    let mut cast = hosts.calls();
    cast.gather = Duration::from_millis(500);
    // For what is about to be told how to take part: that it then says nothing is another thing.
    cast.linger = LONG;
    cast.hosts.push(host(slow));
    let mut outcome = run(&group, cast, &source, |_| {}).unwrap();
    looks.join().unwrap();
    hosts.join().remove(0).unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()));
    outcome.hosts.remove(1).result
}

/// A source waits ten seconds for one that was told how to take part and does not.
#[test]
fn look__that_goes_on_is_waited_for_longer_than_one_that_says_nothing() {
    let result = cast_to(|endpoint| looks_long(&mut joins(endpoint)));
    assert_eq!(result, Ok(()));
}

/// So a host that lies holds a source for no longer than there is something to look at.
#[test]
fn look__at_more_than_there_is_is_not_waited_for() {
    let result = cast_to(|endpoint| {
        let mut source = joins(endpoint);
        let mut bytes = LOOKS * LEAST_CHUNK;
        source.set_timeout(Some(Duration::from_secs(1)));
        while let Err(zerolane::Error::TimedOut(_)) = source.recv_into(&mut [0; 8]) {
            bytes += LEAST_CHUNK;
            if source.send(&word(&Word::Looks(bytes))).is_err() {
                return;
            }
        }
    });
    assert!(result.is_err());
}

/// It had looked at more before it was started again.
#[test]
fn look__of_a_host_that_begins_anew_is_waited_for() {
    let result = cast_to(|endpoint| {
        let mut before = joins(endpoint);
        let all = Word::Looks(LOOKS * LEAST_CHUNK);
        before.send(&word(&all)).unwrap();
        drop(before);
        looks_long(&mut joins(endpoint));
    });
    assert_eq!(result, Ok(()));
}
