//! Tests that requests in progress over a bad link can be read, passed on, or ended early.
#![allow(non_snake_case)]

#[path = "content/mod.rs"]
mod bytes;

use netlab::udp::Relay;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerolane::failure::TransferError;
use zerolane::request::{Get, Put, ReceiveMessage};
use zerolane::{
    Completion, Connection, Endpoint, ExportedRegion, Options, Region, Rights, Security,
};

/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 6 << 20;

fn content(len: usize) -> Vec<u8> {
    bytes::content(0, len)
}

/// Two ends, the first of which connects over a link that loses and reorders.
fn pair(options: &Options, seed: u64) -> (Connection, Connection, Relay) {
    let bad = LinkConfig {
        delay: Duration::from_micros(500),
        loss: Loss::Random(0.01),
        reorder: Reorder {
            probability: 0.02,
            by: Duration::from_millis(1),
        },
        ..LinkConfig::default()
    };
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("a port");
    let relay = Relay::start(endpoint.local_addr(), bad, bad, seed).expect("relay");
    let (address, theirs) = (relay.addr(), options.clone());
    let connecting = std::thread::spawn(move || Connection::connect(address, &theirs));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
    let mut accepted = accepted.expect("in time");
    // The last packet of the handshake may be lost and must be repeated.
    while !connecting.is_finished() {
        let _ = accepted.poll().expect("connected");
    }
    let connected = connecting.join().expect("no panic").expect("connected");
    (connected, accepted, relay)
}

/// Sends `content(LEN)`, and returns the result.
fn source(mut connection: Connection) -> JoinHandle<(Connection, Completion)> {
    std::thread::spawn(move || {
        connection
            .post_send(Region::from_vec(content(LEN)))
            .expect("posted");
        let done = connection.wait(Some(PATIENCE)).expect("connected").got();
        (connection, done.expect("in time"))
    })
}

fn plain_and_encrypted() -> [Options; 2] {
    let plain = Options::default().with(|it| it.security = Security::plain());
    [plain, Options::default()]
}

/// A relay puts arrived bytes into the next one's memory while the rest is received.
#[test]
fn share_arrived__is_passed_on_while_the_rest_arrives() {
    for (seed, options) in (1..).zip(plain_and_encrypted()) {
        let (from, mut here, _link) = pair(&options, seed);
        let (mut next, mut last, _other) = pair(&options, seed + 100);
        let memory = Region::anonymous(LEN).expect("memory");
        let memory = ExportedRegion::new(memory).expect("page-aligned");
        let key = last.export(&memory, Rights::WRITE).expect("exported");
        let serving = std::thread::spawn(move || while last.wait(None).is_ok() {});
        let sending = source(from);

        let expected = content(LEN);
        let target = Region::anonymous(LEN).expect("memory");
        let id = here.post_recv(target).expect("posted");
        assert_eq!(here.arrived(id), Some(0));
        let (mut passed_on, mut parts, mut done) = (0, 0, 0);
        let mut copy = vec![0; 5000];
        let pass_on = |next: &mut Connection, part: &zerolane::SharedRegion, from: usize| {
            let news = part.slice(from, part.len() - from);
            assert!(
                news[..] == expected[from..part.len()],
                "seed {seed}: from {from}"
            );
            next.post(Put::new(&key, from as u64, news))
                .expect("posted");
        };
        while let Some(arrived) = here
            .wait_arrived(id, passed_on, Some(PATIENCE))
            .expect("connected")
            .got()
            .flatten()
        {
            let part = here.share_arrived(id).expect("in progress");
            assert_eq!(part.len() as u64, arrived);
            // Copies the last bytes that have arrived, and none beyond.
            let at = arrived - arrived.min(100);
            let copied = here.read_arrived(id, at, &mut copy);
            assert_eq!(copied as u64, arrived - at);
            assert!(copy[..copied] == part[at as usize..]);
            pass_on(&mut next, &part, passed_on as usize);
            (passed_on, parts) = (arrived, parts + 1);
            while next.poll().expect("connected").is_some() {
                done += 1;
            }
        }
        assert!(parts >= 10, "seed {seed}: {parts} parts before the end");
        let received = here
            .wait(Some(PATIENCE))
            .expect("connected")
            .got()
            .expect("over");
        assert_eq!((received.result, received.arrived()), (Ok(LEN), Some(LEN)));
        let Some(zerolane::memory::Memory::Shared(whole)) = received.into_memory() else {
            panic!("it was shared");
        };
        let rest = usize::from((passed_on as usize) < LEN);
        if rest > 0 {
            pass_on(&mut next, &whole, passed_on as usize);
        }
        while done < parts + rest {
            let put = next
                .wait(Some(PATIENCE))
                .expect("connected")
                .got()
                .expect("in time");
            put.result.expect("put");
            done += 1;
        }
        let whole = whole.try_unique().expect("nothing is in flight any more");
        assert!(whole[..] == expected, "seed {seed}: received");
        let mut there = vec![0; LEN];
        memory.read(0, &mut there);
        assert!(there == expected, "seed {seed}: passed on");
        assert!(sending.join().expect("no panic").1.result.is_ok());
        next.close().expect("closed");
        serving.join().expect("no panic");
    }
}

#[test]
fn cancel__keeps_what_has_arrived() {
    for (seed, options) in (11..).zip(plain_and_encrypted()) {
        let (from, mut here, _link) = pair(&options, seed);
        let sending = source(from);
        let target = Region::anonymous(LEN).expect("memory");
        let id = here.post_recv(target).expect("posted");
        let wanted = LEN as u64 / 4;
        let arrived = here
            .wait_arrived(id, wanted, Some(PATIENCE))
            .expect("connected")
            .got()
            .flatten();
        let arrived = arrived.expect("in time") as usize;
        assert!(here.cancel(id) && here.arrived(id).is_none());
        let done = here
            .wait(Some(PATIENCE))
            .expect("connected")
            .got()
            .expect("over");
        assert_eq!(done.result, Err(TransferError::Cancelled));
        let good = done.arrived().expect("it fills memory");
        assert!(
            (arrived..LEN).contains(&good),
            "seed {seed}: {good} of {arrived}"
        );
        let kept = done.into_region().expect("a region");
        assert!(kept[..good] == content(LEN)[..good], "seed {seed}: cut off");
        // The connection stays open, and late payload is not written.
        let after = kept.to_vec();
        here.post(ReceiveMessage::new()).expect("posted");
        let end = Instant::now() + PATIENCE;
        while !sending.is_finished() {
            assert!(Instant::now() < end, "the sender was not told");
            here.poll().expect("connected");
        }
        let (mut from, sent) = sending.join().expect("no panic");
        assert!(
            sent.result.is_err() && sent.arrived().is_none(),
            "{:?}",
            sent.result
        );
        let on = std::thread::spawn(move || from.send_message(b"on", None));
        let message = here
            .wait(Some(PATIENCE))
            .expect("connected")
            .got()
            .expect("in time");
        assert_eq!(message.control(), Some(&b"on"[..]));
        on.join().expect("no panic").expect("sent");
        assert!(kept[..] == after, "seed {seed}: written after its end");
    }
}

#[test]
fn arrived__of_a_get_and_of_what_is_none() {
    let (mut here, mut there, _link) = pair(&Options::default(), 21);
    let memory = ExportedRegion::new(Region::from_vec(content(LEN))).expect("aligned");
    let key = there.export(&memory, Rights::READ).expect("exported");
    let serving = std::thread::spawn(move || while there.wait(None).is_ok() {});
    let into = Region::anonymous(LEN).expect("memory");
    let id = here.post(Get::new(&key, 0, into)).expect("posted");
    let (mut last, mut parts) = (0, 0);
    while let Some(arrived) = here
        .wait_arrived(id, last, Some(PATIENCE))
        .expect("connected")
        .got()
        .flatten()
    {
        let mut copy = vec![0; (arrived - last) as usize];
        assert_eq!(here.read_arrived(id, last, &mut copy), copy.len());
        assert!(copy[..] == content(LEN)[last as usize..arrived as usize]);
        assert_eq!(
            here.read_arrived(id, arrived, &mut copy),
            0,
            "nothing beyond"
        );
        (last, parts) = (arrived, parts + 1);
    }
    assert!(parts >= 10, "{parts} parts");
    let done = here
        .wait(Some(PATIENCE))
        .expect("connected")
        .got()
        .expect("over");
    assert!(done.result == Ok(LEN) && done.into_region().expect("a region")[..] == content(LEN));
    assert!(here.arrived(id).is_none() && here.share_arrived(id).is_none());
    let put = here
        .post_send(Region::from_vec(vec![1; 9]))
        .expect("posted");
    assert!(here.arrived(put).is_none(), "nothing arrives of a send");
    assert!(here.share_arrived(put).is_none() && here.cancel(put));
    here.close().expect("closed");
    serving.join().expect("no panic");
}
