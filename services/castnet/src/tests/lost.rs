//! Tests that hosts handle the loss of their source. The test plays the source by hand.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Duration;

use zerolane::security::{Anyone, Code};
use zerolane::{Connection, Endpoint, Options, Security};
use zerolane_cast::limits::MESSAGE_BYTES;
use zerolane_cast::{Manifest, Message};

use super::group::{Group, content, hear, receiver, run, word};
use crate::drive::Membership;
use crate::invitation::{Call, Form, Offer, Word};
use crate::{Cast, Error, Host, Received, Receiver};

/// Longer than a test lasts: nothing comes of it by itself.
const EVER: Duration = Duration::from_secs(3600);

/// Bytes of the content.
const BYTES: usize = 1000;

struct Source {
    membership: Membership,
    /// Where it listens for nodes.
    endpoint: Endpoint,
}

impl Source {
    fn new() -> Source {
        let membership = Membership::new([5; 32], Options::default()).unwrap();
        let options = membership.options(Arc::new(Anyone));
        let endpoint = Endpoint::bind("127.0.0.1:0", options).unwrap();
        Source {
            membership,
            endpoint,
        }
    }

    /// Offers a host something, which it takes.
    fn offer(&self, host: SocketAddr, form: Form, bytes: u64) -> Connection {
        // The key alone: a host that waits knows no secret.
        let mut options = self.membership.options(Arc::new(Anyone));
        options.security.pre_shared = None;
        let mut connection = Connection::connect(host, &options).unwrap();
        let offer = Call::Offer(Offer {
            name: b"source".to_vec(),
            form,
            bytes,
            meta: None,
        });
        connection.send(&word(&offer)).unwrap();
        assert!(matches!(hear(&mut connection), Word::Joins(_)));
        connection
    }

    /// Calls a host, which takes part.
    fn call(&self, host: SocketAddr) -> Connection {
        let mut connection = self.offer(host, Form::Bytes, BYTES as u64);
        let group = Call::Group {
            secret: self.membership.secret,
            key: self.membership.identity.public().0,
            port: self.endpoint.local_addr().port(),
            rack: 0,
        };
        connection.send(&word(&group)).unwrap();
        connection
    }
}

/// The next message of a node.
fn said(node: &mut Connection) -> Message {
    let mut buffer = vec![0; MESSAGE_BYTES];
    let len = node.recv_into(&mut buffer).unwrap();
    Message::parse(&buffer[..len]).unwrap()
}

/// A host that takes none for dead, and what becomes of it.
fn host(group: &Group) -> (SocketAddr, Channel<Result<Received, Error>>) {
    host_with(group, EVER, EVER)
}

/// One with such silence and patience.
fn host_with(
    group: &Group,
    silence: Duration,
    patience: Duration,
) -> (SocketAddr, Channel<Result<Received, Error>>) {
    let host = receiver("127.0.0.1:0".parse().unwrap(), group.to(0));
    let host = host.with_silence(silence).with_patience(patience);
    let (address, (told, ended)) = (host.local_addr(), channel());
    std::thread::spawn(move || told.send(host.run(&|| false, &mut |_| {})));
    (address, ended)
}

/// By itself it would try again at its next beat, minutes later.
#[test]
fn host__that_is_called_again_reaches_its_source_at_once() {
    let group = Group::new();
    let mut source = Source::new();
    let (address, ended) = host(&group);
    let first = source.call(address);
    let node = source.endpoint.accept(Some(Duration::from_secs(60)));
    // The node loses its source, which calls until it has it again: the end of a connection may come late.
    drop(node.unwrap().expect("it takes part"));
    let mut calls = Vec::from([first]);
    while calls.len() < 30 {
        calls.push(source.call(address));
        let node = source.endpoint.accept(Some(Duration::from_secs(1)));
        if node.unwrap().is_some() {
            let mut last = calls.pop().unwrap();
            last.send(&word(&Call::Aborted("enough".into()))).unwrap();
            assert!(matches!(hear(&mut last), Word::Ended(Err(_))));
            drop(last);
            let ended = ended.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(matches!(&ended, Err(Error::Aborted(why)) if why == "enough"));
            return;
        }
    }
    panic!("it was called {} times", calls.len());
}

/// The source and all that could follow it are gone. Such hosts hear each other's beats without end.
#[test]
fn host__that_has_all_and_is_led_by_none_ends_though_it_has_peers() {
    let group = Group::new();
    let source = Source::new();
    let bytes = content(1, BYTES);
    let manifest = Manifest::of(&bytes, 256, 1).unwrap();
    // An earlier try left all.
    let list = postcard::to_allocvec(&(manifest.header(), manifest.hashes())).unwrap();
    fs::write(group.path(".target-0.zerolane-part"), &bytes).unwrap();
    fs::write(group.path(".target-0.zerolane-list"), list).unwrap();
    let second = Duration::from_secs(1);
    // It ends after ten such silences, and this source, which never beats, may rest for one.
    let (address, ended) = host_with(&group, second, second * 10);
    let (mut words, mut source, secret) = {
        let mut source = source;
        let words = source.call(address);
        let node = source.endpoint.accept(Some(second * 60)).unwrap();
        let node = node.expect("it takes part");
        (words, node, source.membership.secret)
    };
    let Message::Join { address, .. } = said(&mut source) else {
        panic!("it does not join");
    };
    let tell = |message: Message| message.encode();
    source
        .send(&tell(Message::Welcome(manifest.header())))
        .unwrap();
    let hashes = manifest.hashes().to_vec();
    source
        .send(&tell(Message::Hashes { first: 0, hashes }))
        .unwrap();
    let mut said = std::iter::repeat_with(|| hear(&mut words));
    let last = said.find(|it| *it != Word::Finishes);
    assert_eq!(last, Some(Word::Ended(Ok(()))));
    let peer = Membership::new(secret, Options::default()).unwrap();
    let address: SocketAddr = std::str::from_utf8(&address).unwrap().parse().unwrap();
    let options = peer.options(Arc::new(Anyone));
    let mut peer = Connection::connect(address, &options).unwrap();
    drop((words, source));
    peer.set_timeout(Some(Duration::from_millis(20)));
    // It is there as long as the host is, and for a minute at most.
    std::thread::spawn(move || {
        let mut buffer = vec![0; MESSAGE_BYTES];
        while let Ok(_) | Err(zerolane::Error::TimedOut(_)) = peer.recv_into(&mut buffer) {
            if peer.send(&tell(Message::Alive)).is_err() {
                return;
            }
        }
    });
    let ended = ended.recv_timeout(second * 60).expect("it ends");
    assert_eq!(ended.unwrap().bytes, BYTES as u64);
}

/// What starts hosts from afar may be gone before it has called them, and else is not needed.
#[test]
fn host__whose_starter_is_gone_ends_unless_it_takes_part() {
    let group = Group::new();
    let bytes = content(3, 4_000_000);
    let source = group.file("source", &bytes);
    let gone = Arc::new(AtomicBool::new(false));
    let hosts = group.start_with(
        |it| it.until_gone(Arc::clone(&gone)),
        vec![group.to(0), group.to(1)],
        |_, _| {},
    );
    let mut cast = hosts.calls();
    cast.hosts.truncate(1);
    cast.max_rate = Some(4_000_000);
    let outcome = run(&group, cast, &source, |it| {
        let some = it.hosts.iter().any(|it| it.1 > 1);
        gone.fetch_or(some, Ordering::Relaxed);
    });
    assert!(gone.load(Ordering::Relaxed), "it was over before");
    assert_eq!(outcome.unwrap().hosts[0].result, Ok(()));
    let mut ended = hosts.join();
    assert!(matches!(ended.remove(1), Err(Error::Stopped)));
    ended.remove(0).unwrap();
    assert!(fs::read(group.target(0)).unwrap() == bytes);
}

/// It cannot be called again. What became of it, it says as a member of the group.
#[test]
fn host__whose_code_is_spent_is_heard_though_it_lost_its_invitation() {
    let group = Group::new();
    let bytes = content(2, 2_000_000);
    let source = group.file("source", &bytes);
    let security = Security {
        pre_shared: Some(Code::from_random([9; 32]).into()),
        ..Security::default()
    };
    let host = Receiver::bind("127.0.0.1:0", security.clone(), group.to(0)).unwrap();
    let address = host.local_addr();
    let received = std::thread::spawn(move || {
        host.run_as(&|| false, &mut |_| {}, &mut |drive| {
            for connection in drive.worker.connection_ids().collect::<Vec<_>>() {
                drive.worker.close(connection);
            }
        })
    });
    let cast = Cast {
        hosts: vec![Host {
            name: "host".into(),
            addresses: Ok(vec![address]),
            security,
        }],
        ..Cast::default()
    };
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()));
    received.join().unwrap().unwrap();
    assert!(fs::read(group.target(0)).unwrap() == bytes);
}

/// Nothing came of it, and something of an earlier cast may be there.
#[test]
fn host__whose_source_leaves_after_its_offer_is_as_before() {
    let group = Group::new();
    let (address, ended) = host(&group);
    let source = Source::new();
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        let started = std::time::Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(60), "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for form in [Form::Bytes, Form::Tree] {
        let left = source.offer(address, form, 1 << 40);
        assert!(group.has_hidden_files(), "it is ready");
        left.close().unwrap();
        wait_until("nothing is left", &|| !group.has_hidden_files());
    }
    // All of a content came, and was not put in its place.
    let bytes = content(1, BYTES);
    let content = group.file("source", &bytes);
    let manifest = Manifest::of(&bytes, content.chunk_bytes(), 1).unwrap();
    let list = postcard::to_allocvec(&(manifest.header(), manifest.hashes())).unwrap();
    let [partial, list_at] =
        ["part", "list"].map(|it| group.path(&format!(".target-0.zerolane-{it}")));
    fs::write(&partial, &bytes).unwrap();
    fs::write(&list_at, list).unwrap();
    for bytes in [0, 1, 1 << 40] {
        let left = source.offer(address, Form::Bytes, bytes);
        left.close().unwrap();
    }
    let outcome = run(
        &group,
        Cast {
            hosts: vec![crate::tests::group::host(address)],
            ..Cast::default()
        },
        &content,
        |_| {},
    );
    assert_eq!(outcome.unwrap().hosts[0].result, Ok(()));
    let received = ended.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(received.unwrap().resumed, BYTES as u64);
    assert!(fs::read(group.target(0)).unwrap() == bytes);
    assert!(!group.has_hidden_files());
}
