//! Tests that hostile members are cut off and named, and do not harm the others.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use zerolane::security::Anyone;
use zerolane::{Connection, Endpoint, Options};

use super::group::{Group, content, hear, host, run, word};
use crate::drive::Membership;
use crate::invitation::{Call, Offer, Word};

#[test]
fn liar__is_named_and_the_others_have_what_was_cast() {
    let group = Group::new();
    let bytes = content(1, 8_000_000);
    let source = group.file("source", &bytes);
    // Whatever their order, one that lies has one behind it.
    let places = (0..4).map(|it| group.to(it)).collect();
    let hosts = group.start_as(places, |index, drive| drive.lies = index > 0);
    let mut notes = Vec::new();
    let cast = crate::Cast {
        max_rate: Some(8_000_000),
        ..hosts.calls()
    };
    let outcome = run(&group, cast, &source, |it| {
        notes.extend(it.notes.iter().cloned())
    })
    .unwrap();
    assert_eq!(outcome.hosts[0].result, Ok(()), "{outcome:?}");
    assert!(fs::read(group.target(0)).unwrap() == bytes);
    assert!(
        notes.iter().any(|it| it.contains("sent a wrong chunk")),
        "{notes:?}"
    );
    // Those that were caught are named, also one that has all.
    let accused = |it: &crate::HostOutcome| it.accused.is_some();
    assert!(outcome.hosts.iter().any(accused), "{outcome:?}");
    assert!(!accused(&outcome.hosts[0]), "{outcome:?}");
    // What a liar has is right, if it has all.
    for (index, ended) in hosts.join().into_iter().enumerate() {
        assert!(
            ended.is_err() || fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
}

/// Longer than one takes to be put out: a cast begins when it is.
const LONG: Duration = Duration::from_secs(60);

/// What a member does that got in.
type Act = fn(&mut Connection);

/// A host that takes the invitation and does something else then: given are the source, the membership of one that does not
/// know the group, its secret, and the port for members.
fn invited(
    then: impl FnOnce(Connection, Membership, [u8; 32], u16) + Send + 'static,
) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let address = endpoint.local_addr();
    let thread = std::thread::spawn(move || {
        let mut source = endpoint.accept(None).unwrap().expect("no timeout");
        assert!(matches!(hear(&mut source), Call::Offer(_)));
        let membership = Membership::new([0; 32], Options::default()).unwrap();
        source
            .send(&word(&Word::Joins(membership.identity.public().0)))
            .unwrap();
        let Call::Group { secret, port, .. } = hear(&mut source) else {
            panic!("no group");
        };
        then(source, membership, secret, port);
    });
    (address, thread)
}

/// One that becomes a member.
fn intruder(act: Act) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    invited(move |mut source, membership, secret, port| {
        let options = Membership {
            secret,
            ..membership
        }
        .options(Arc::new(Anyone));
        let mut member = Connection::connect(("127.0.0.1", port), &options).unwrap();
        act(&mut member);
        // Until the source has enough of it.
        source.set_timeout(Some(Duration::from_secs(60)));
        let _ = source.recv_into(&mut [0; 8]);
    })
}

#[test]
fn intruder__is_cut_off_and_named_whatever_it_sends() {
    let acts: [(Act, &str); 3] = [
        (
            |it| drop(it.send(b"garbage")),
            "sent bytes that are not a message",
        ),
        (
            |it| drop(it.send(&vec![7; 300 << 10])),
            "sent bytes that are not a message",
        ),
        (
            |it| {
                let order = zerolane_cast::Message::Request(vec![1_000_000]).encode();
                drop(it.send(&order));
            },
            "named chunks that do not exist",
        ),
    ];
    for (act, fault) in acts {
        let group = Group::new();
        let bytes = content(2, 2_000_000);
        let source = group.file("source", &bytes);
        let hosts = group.start(2);
        let (address, thread) = intruder(act);
        let mut cast = hosts.calls();
        cast.gather = LONG;
        cast.hosts.push(host(address));
        let outcome = run(&group, cast, &source, |_| {}).unwrap();
        let why = outcome.hosts[2].result.clone().unwrap_err();
        assert!(why.contains(fault), "{why}");
        assert!(
            outcome.hosts[..2].iter().all(|it| it.result.is_ok()),
            "{outcome:?}"
        );
        hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
        assert!(
            fs::read(group.target(0)).unwrap() == bytes
                && fs::read(group.target(1)).unwrap() == bytes
        );
        thread.join().unwrap();
    }
}

/// It asks for what is long, again and again, and takes nothing of it.
#[test]
fn glutton__that_takes_no_answer_is_cut_off_before_many_wait_for_it() {
    let group = Group::new();
    let bytes = content(5, 16_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(1);
    let (address, thread) = intruder(|it| {
        let ask = zerolane_cast::Message::AskHashes { first: 0 }.encode();
        let each = 32 * 16_000_000 / crate::limits::LEAST_CHUNK as usize;
        let asks = crate::limits::MAX_UNSENT_BYTES / each + 50;
        // So many messages alone are none too many.
        assert!(asks < crate::limits::MAX_SENDS / 2, "{asks}");
        for _ in 0..asks {
            drop(it.send(&ask));
        }
    });
    let mut cast = hosts.calls();
    cast.gather = LONG;
    cast.hosts.push(host(address));
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    let why = outcome.hosts[1].result.clone().unwrap_err();
    let flood = zerolane_cast::Fault::Flood.to_string();
    assert!(why.contains(&flood), "{why}");
    assert_eq!(outcome.hosts[0].result, Ok(()));
    hosts.join().remove(0).unwrap();
    thread.join().unwrap();
}

/// It says that it has all, and gives none of it.
fn boast(member: &mut Connection) {
    use zerolane_cast::Message;
    let join = Message::Join {
        address: b"127.0.0.1:9".to_vec(),
        rack: 0,
        rate: 0,
        root: Default::default(),
        has: Default::default(),
    };
    drop(member.send(&join.encode()));
    let mut buffer = vec![0; zerolane_cast::limits::MESSAGE_BYTES];
    while let Ok(len) = member.recv_into(&mut buffer) {
        let Ok(Message::Welcome(header)) = Message::parse(&buffer[..len]) else {
            continue;
        };
        let verified = (0..header.arity).map(|it| header.chunks_of(it as usize));
        let progress = Message::Progress {
            verified: verified.collect(),
            done: true,
            held_by: None,
        };
        drop(member.send(&progress.encode()));
        return;
    }
}

#[test]
fn boaster__that_has_nothing_and_says_that_it_has_all_harms_no_other() {
    let group = Group::new();
    let bytes = content(4, 8_000_000);
    let source = group.file("source", &bytes);
    let hosts = group.start(3);
    let (address, thread) = intruder(boast);
    let mut cast = hosts.calls();
    cast.max_rate = Some(8_000_000);
    // It stands before the others.
    cast.hosts.insert(0, host(address));
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    let why = outcome.hosts[0].result.clone();
    assert!(why.is_err(), "it never said that it is in its place");
    assert!(
        outcome.hosts[1..].iter().all(|it| it.result.is_ok()),
        "{outcome:?}"
    );
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
    for index in 0..3 {
        assert!(
            fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
    thread.join().unwrap();
}

/// An open host accepts any caller, with any message.
#[test]
fn callers__that_offer_what_cannot_be_or_garbage_do_not_end_a_host() {
    let group = Group::new();
    let bytes = content(6, 300_000);
    let source = group.file("source", &bytes);
    let directory = group.path("directory");
    fs::create_dir(&directory).unwrap();
    let hosts = group.start_at(vec![crate::Destination::Path {
        path: directory.clone(),
        force: false,
    }]);
    let offer = |name: &[u8], bytes| {
        let (name, form) = (name.to_vec(), crate::Form::Bytes);
        let meta = None;
        word(&Call::Offer(Offer {
            name,
            form,
            bytes,
            meta,
        }))
    };
    let said = [
        offer(b"..", 1),
        offer(b"a/b", 1),
        offer(b"", 1),
        // As much as no file can have.
        offer(b"long", u64::MAX),
        word(&Call::Aborted("why".into())),
        word(&Call::Group {
            secret: [0; 32],
            key: [0; 32],
            port: 1,
            rack: 0,
        }),
        b"garbage".to_vec(),
        Vec::new(),
    ];
    for words in said {
        let mut caller = Connection::connect(hosts.addresses[0], &Options::default()).unwrap();
        let _ = caller.send(&words);
        caller.set_timeout(Some(LONG));
        // Until it is refused, or cut off.
        let _ = caller.recv_into(&mut [0; 2000]);
    }
    // One that goes at once.
    drop(Connection::connect(hosts.addresses[0], &Options::default()));
    // A caller that disappears after its offer was accepted.
    let mut caller = Connection::connect(hosts.addresses[0], &Options::default()).unwrap();
    caller.send(&offer(b"other", 5)).unwrap();
    assert!(matches!(hear(&mut caller), Word::Joins(_)));
    drop(caller);
    // Until the host has seen that, it takes part in the cast of that caller.
    let started = std::time::Instant::now();
    let result = loop {
        let outcome = run(&group, hosts.calls(), &source, |_| {}).unwrap();
        let result = outcome.hosts[0].result.clone();
        let is_busy = result.as_ref().is_err_and(|it| it.contains("another cast"));
        if !is_busy || started.elapsed() > LONG {
            break result;
        }
    };
    assert_eq!(result, Ok(()));
    assert_eq!(hosts.join().remove(0).unwrap().refused, 4);
    assert!(fs::read(directory.join("source")).unwrap() == bytes);
}

/// The refused one takes its time to go.
#[test]
fn callers__are_heard_while_another_is_refused() {
    let group = Group::new();
    // A file may replace it, a tree may not.
    fs::write(group.target(0), b"a file").unwrap();
    let hosts = group.start_at(vec![crate::Destination::Path {
        path: group.target(0),
        force: true,
    }]);
    let connect = || {
        let mut caller = Connection::connect(hosts.addresses[0], &Options::default()).unwrap();
        caller.set_timeout(Some(LONG));
        caller
    };
    let offer = |form| {
        word(&Call::Offer(Offer {
            name: b"name".to_vec(),
            form,
            bytes: 5,
            meta: None,
        }))
    };
    let (mut first, mut second) = (connect(), connect());
    // Nothing drives this connection then: the host has it for as long as it waits for its end.
    first.send(&offer(crate::Form::Tree)).unwrap();
    second.send(&offer(crate::Form::Bytes)).unwrap();
    assert!(matches!(hear(&mut second), Word::Joins(_)));
    assert!(matches!(hear(&mut first), Word::Refuses(_)));
    drop((first, second));
    hosts.stop();
}

#[test]
fn unauthenticated__without_the_group_is_no_peer() {
    let group = Group::new();
    let source = group.file("source", &content(3, 500_000));
    let (address, thread) = invited(|mut source, membership, secret, port| {
        let connect = |membership: Membership| {
            let options = membership.options(Arc::new(Anyone));
            let options = options.with(|it| it.times.connect = Duration::from_secs(2));
            Connection::connect(("127.0.0.1", port), &options).is_ok()
        };
        assert!(!connect(membership), "without the secret");
        let other = Membership::new(secret, Options::default()).unwrap();
        assert!(!connect(other), "with a key that was not invited");
        source
            .send(&word(&Word::Ended(Err("tried".into()))))
            .unwrap();
    });
    let cast = crate::Cast {
        hosts: vec![host(address)],
        ..crate::Cast::default()
    };
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    assert_eq!(outcome.hosts[0].result, Err("tried".into()));
    thread.join().unwrap();
}
