//! Tests that the guarantees of every path hold.

use crate::content;
use crate::datagrams;
use crate::delivery;
use crate::drive::{both, idle, next, receive_all, send_all, transfer};
use crate::eager;
use crate::finish;
use crate::immediates;
use crate::inline;
use crate::path::{Pair, Path, plain};
use crate::pooled;
use crate::private;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerolane::advanced::{Offer, Read};
use zerolane::failure::{Reason, TransferError};
use zerolane::options::{Profile, Profiles};
use zerolane::request::{Get, GetPieces};
use zerolane::{Connection, ExportedRegion, Options, Region, RequestId, Rights, Waited};

macro_rules! over_every_path {
    ($($case:ident),* $(,)?) => {
        over_every_path!(@ [$($case),*]
            loopback_v4 Path::LoopbackV4, Options::default();
            loopback_v6 Path::LoopbackV6, Options::default();
            shared Path::Shared, Options::default();
            veth_1500 Path::Veth(1500), Options::default();
            veth_9000 Path::Veth(9000), Options::default();
            veth_v6_1500 Path::VethV6(1500), Options::default();
            ethernet_1500 Path::Ethernet(1500), Options::default();
            ethernet_9000 Path::Ethernet(9000), Options::default();
            bypass_1500 Path::Bypass(1500), Options::default();
            bypass_9000 Path::Bypass(9000), Options::default();
            validated_1500 Path::Validated(1500), Options::default();
            ip118_1500 Path::Ip118(1500), Options::default();
            ip118_v6_1500 Path::Ip118V6(1500), Options::default();
            ip118_routed Path::Ip118Routed, Options::default();
            ip118_lossy_5_percent Path::Ip118Lossy(0.05), Options::default();
            routed_1200 Path::Routed(1200), Options::default();
            narrow_1200 Path::Narrow(1200), Options::default();
            narrow_1100 Path::Narrow(1100), plain();
            lossy_1_percent Path::Lossy(0.01), Options::default();
            lossy_5_percent Path::Lossy(0.05), Options::default();
            lossy_20_percent Path::Lossy(0.20), Options::default();
            plain_loopback_v4 Path::LoopbackV4, plain();
            plain_loopback_v6 Path::LoopbackV6, plain();
            plain_shared Path::Shared, plain();
            plain_veth_1500 Path::Veth(1500), plain();
            plain_veth_9000 Path::Veth(9000), plain();
            plain_ethernet_1500 Path::Ethernet(1500), plain();
            plain_ethernet_9000 Path::Ethernet(9000), plain();
            plain_bypass_1500 Path::Bypass(1500), plain();
            plain_bypass_9000 Path::Bypass(9000), plain();
            plain_validated_1500 Path::Validated(1500), plain();
            plain_ip118_1500 Path::Ip118(1500), plain();
            plain_ip118_lossy_5_percent Path::Ip118Lossy(0.05), plain();
            plain_lossy_5_percent Path::Lossy(0.05), plain();
        );
    };
    (@ $cases:tt $($name:ident $path:expr, $options:expr;)*) => {
        $(over_every_path!(@@ $cases $name $path, $options);)*
    };
    (@@ [$($case:ident),*] $name:ident $path:expr, $options:expr) => {
        mod $name {
            use super::*;
            $(#[test] fn $case() { super::$case($path, &$options); })*
        }
    };
}

over_every_path!(
    connect__private_data_both_ways,
    transfer__every_size,
    transfer__both_directions_at_once,
    transfer__many_in_flight,
    transfer__a_few_at_a_time_are_granted_in_advance,
    transfer__classic_profile,
    transfer__checksums,
    blocking__send_and_receive,
    receive__too_small_fails_the_sender_and_loses_nothing,
    receive__made_to_measure,
    wait_for__takes_one_and_leaves_the_others,
    read__what_is_offered,
    cancel__while_streaming_leaves_memory_alone,
    cancel__by_the_sender,
    close__flushes,
    delivery__wakes_as_its_sender_asks,
    eager__arrives_with_and_without_a_receive,
    finish__the_other_direction_goes_on,
    memory__put_got_and_counted_in,
    memory__immediates_tell_of_all_before_them,
    memory__immediates_say_what_was_put,
    inline__what_was_posted_may_change_at_once,
    messages__take_memory_of_a_pool,
    datagrams__arrive_whole_and_once,
    datagrams__many_at_once,
);

fn datagrams__arrive_whole_and_once(path: Path, base: &Options) {
    datagrams::arrive_whole_and_once(path, base);
}

fn datagrams__many_at_once(path: Path, base: &Options) {
    datagrams::many_at_once(path, base);
}

fn messages__take_memory_of_a_pool(path: Path, base: &Options) {
    if let Some(pair) = path.connect(base) {
        pooled::take_memory_of_a_pool(pair);
    }
}

fn connect__private_data_both_ways(path: Path, base: &Options) {
    private::both_ways(path, base);
}

fn transfer__every_size(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    // Lets path probes settle, so that the lengths around an STU match the current size.
    transfer(&mut pair, 900, &[1]);
    let stu = pair.a.account().stu as usize;
    let edges = [
        stu - 1,
        stu,
        stu + 1,
        2 * stu,
        64 * stu - 1,
        64 * stu,
        64 * stu + 1,
    ];
    let mut lengths = vec![0, 1, 39, 40, 41, 1 << 20, (1 << 20) + 1, 0];
    lengths.extend(edges);
    lengths.push(path.scale(64 << 20));
    transfer(&mut pair, 1000, &lengths);
}

fn transfer__both_directions_at_once(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let lengths = [path.scale(8 << 20); 4];
    both(
        &mut pair,
        |a| send_and_receive(a, 100, 200, &lengths),
        |b| send_and_receive(b, 200, 100, &lengths),
    );
}

fn send_and_receive(
    connection: &mut zerolane::Connection,
    sends: u64,
    receives: u64,
    lengths: &[usize],
) {
    let mut incoming = Vec::new();
    for (index, &len) in (0..).zip(lengths) {
        let region = Region::anonymous(len).expect("memory");
        incoming.push((
            connection.post_recv(region).expect("posted"),
            receives + index,
        ));
        let sent = connection.post_send(content::region(sends + index, len));
        sent.expect("posted");
    }
    for _ in 0..2 * lengths.len() {
        let completion = next(connection);
        assert_eq!(completion.result, Ok(lengths[0]));
        let seed = incoming.iter().find(|it| it.0 == completion.id);
        if let Some(&(_, seed)) = seed {
            content::verify(seed, &completion.into_region().expect("a region"));
        }
    }
}

fn transfer__many_in_flight(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let lengths: Vec<usize> = (0..path.scale(3000)).map(|n| n * 7919 % 20_000).collect();
    transfer(&mut pair, 5000, &lengths);
}

/// Longer than eager ones, and posted by a program with few buffers.
fn transfer__a_few_at_a_time_are_granted_in_advance(path: Path, base: &Options) {
    const AHEAD: usize = 3;
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    // Enough that the result does not depend on a few datagrams that may be lost.
    let count = path.scale(150).max(20);
    let len = |n: usize| 20_000 + n * 7919 % 100_000;
    let send = |a: &mut Connection| {
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count.min(done + AHEAD) {
                let sent = a.post_send(content::region(posted as u64, len(posted)));
                sent.expect("posted");
                posted += 1;
            }
            next(a).result.expect("sent");
            done += 1;
        }
    };
    let receive = |b: &mut Connection| {
        let mut posted = vec![];
        for n in 0..count + AHEAD {
            if n >= AHEAD {
                let received = next(b);
                let index = posted.iter().position(|&(id, _)| id == received.id);
                let (_, of) = posted.swap_remove(index.expect("posted"));
                assert_eq!(received.result, Ok(len(of)));
                let memory = received.into_region().expect("a region");
                content::verify(of as u64, &memory[..len(of)]);
                assert!(memory[len(of)..].iter().all(|&byte| byte == 0));
            }
            if n < count {
                // Every receive has room for the longest.
                let room = Region::anonymous(120_000).expect("memory");
                posted.push((b.post_recv(room).expect("posted"), n));
            }
        }
    };
    both(&mut pair, send, receive);
    let granted = pair.b.account().protocol.granted_in_advance;
    assert!(granted > 0, "{granted}");
}

fn transfer__classic_profile(path: Path, base: &Options) {
    let classic = base
        .clone()
        .with(|it| it.profiles = Profiles::only(Profile::Classic));
    let both = base.clone().with(|it| it.profiles = Profiles::BOTH);
    // Both ends request it, and one may allow nothing else.
    let Some(mut pair) = path.connect_with(&classic, &both) else {
        return;
    };
    // A Block is 64 datagrams there, and is repeated whole until all of it arrives at once.
    let len = match path {
        Path::Lossy(loss) | Path::Ip118Lossy(loss) => (1000.0 / loss) as usize,
        _ => 500_000,
    };
    transfer(&mut pair, 10, &[len, 1, len]);
}

fn transfer__checksums(path: Path, base: &Options) {
    let summed = base.clone().with(|it| it.datagrams.checksum = true);
    let Some(mut pair) = path.connect_with(base, &summed) else {
        return;
    };
    transfer(&mut pair, 20, &[path.scale(4 << 20), 1, 12_345]);
}

fn blocking__send_and_receive(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let lengths = [1, 100_000, 0, 40];
    let sends = |a: &mut zerolane::Connection| {
        for (seed, len) in (30..).zip(lengths) {
            let mut data = vec![0; len];
            content::fill(seed, &mut data);
            a.send(&data).expect("sent");
        }
    };
    let receives = |b: &mut zerolane::Connection| {
        for (seed, len) in (30..).zip(lengths) {
            let mut buffer = vec![0xee; len + 10];
            assert_eq!(b.recv_into(&mut buffer).expect("received"), len);
            content::verify(seed, &buffer[..len]);
            assert_eq!(buffer[len..], [0xee; 10], "beyond the Transfer");
        }
    };
    both(&mut pair, sends, receives);
}

fn receive__too_small_fails_the_sender_and_loses_nothing(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let too_large = TransferError::MessageTooLarge {
        length: 5000,
        room: 4999,
    };
    let sends = |a: &mut zerolane::Connection| {
        let first = a.post_send(content::region(1, 5000)).expect("posted");
        let second = a.post_send(content::region(2, 4999)).expect("posted");
        for _ in 0..2 {
            let completion = next(a);
            match completion.id {
                id if id == first => {
                    assert_eq!(completion.result, Err(too_large));
                    content::verify(1, &completion.into_region().expect("a region"));
                }
                id => assert_eq!((id, completion.result), (second, Ok(4999))),
            }
        }
    };
    let receives = |b: &mut zerolane::Connection| {
        let mut small = Region::anonymous(4999).expect("memory");
        small.fill(0x5a);
        let id = b.post_recv(small).expect("posted");
        let completion = next(b);
        assert_eq!((completion.id, completion.result), (id, Err(too_large)));
        let region = completion.into_region().expect("a region");
        assert!(region.iter().all(|&byte| byte == 0x5a), "it was written");
        // The next Transfer is complete.
        b.post_recv(region).expect("posted");
        let completion = next(b);
        assert_eq!(completion.result, Ok(4999));
        content::verify(2, &completion.into_region().expect("a region"));
    };
    both(&mut pair, sends, receives);
}

fn receive__made_to_measure(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let lengths = [70_000, 3, 9000];
    let receives = |b: &mut zerolane::Connection| {
        for (seed, len) in (40..).zip(lengths) {
            let announced = b
                .announced(Some(crate::drive::PATIENCE))
                .expect("connected")
                .got();
            assert_eq!(announced, Some(len as u64));
            receive_all(b, seed, &[len]);
        }
    };
    both(&mut pair, |a| send_all(a, 40, &lengths), receives);
}

fn wait_for__takes_one_and_leaves_the_others(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let lengths = [3, 50_000, 7, 9_000];
    let receives = |b: &mut zerolane::Connection| {
        let room = || Region::anonymous(50_000).expect("memory");
        let ids: Vec<_> = lengths
            .iter()
            .map(|_| b.post_recv(room()).expect("posted"))
            .collect();
        for taken in [2, 0] {
            let completion = wait_for(b, ids[taken]).expect("in flight");
            assert_eq!(
                (completion.id, completion.result),
                (ids[taken], Ok(lengths[taken]))
            );
            let memory = completion.into_region().expect("a region");
            content::verify(60 + taken as u64, &memory[..lengths[taken]]);
            assert!(wait_for(b, ids[taken]).is_none(), "it was taken");
        }
        let mut left = [next(b).id, next(b).id];
        left.sort_unstable();
        assert_eq!(left, [ids[1], ids[3]]);
        // A request of several pieces, before one that was posted earlier.
        let key = b.open_region("words", Rights::ALL).expect("exported");
        let earlier = b.post(Get::new(&key, 0, room_of(8))).expect("posted");
        let pieces = (0..3).map(|n| (n * 8, room_of(8))).collect();
        let pieces = b.post(GetPieces::new(&key, pieces)).expect("posted");
        let completion = wait_for(b, pieces).expect("in flight");
        assert_eq!((completion.id, completion.result), (pieces, Ok(24)));
        assert!(wait_for(b, pieces).is_none(), "it was taken");
        assert_eq!(next(b).id, earlier);
        assert!(b.is_idle());
        // A timeout, and a wake.
        let never = b.post_recv(room_of(8)).expect("posted");
        let waited = b.wait_for(never, Some(Duration::from_millis(1)));
        assert!(matches!(waited, Ok(Waited::TimedOut)));
        b.waker().wake();
        let waited = b.wait_for(never, None);
        assert!(matches!(waited, Ok(Waited::Woken)) && !b.is_idle());
        assert!(b.cancel(never));
        let cancelled = wait_for(b, never).expect("its completion");
        assert_eq!(cancelled.result, Err(TransferError::Cancelled));
    };
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    let exported = pair.a.export_named("words", &memory, Rights::ALL);
    exported.expect("exported");
    both(&mut pair, |a| send_all(a, 60, &lengths), receives);
}

fn room_of(len: usize) -> Region {
    Region::anonymous(len).expect("memory")
}

fn wait_for(connection: &mut Connection, id: RequestId) -> Option<zerolane::Completion> {
    let waited = connection.wait_for(id, Some(crate::drive::PATIENCE));
    waited.expect("connected").got().expect("in time")
}

fn read__what_is_offered(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let len = path.scale(2 << 20);
    let offers = |a: &mut zerolane::Connection| {
        a.post(Offer::new(content::region(50, len)))
            .expect("posted");
        a.post(Offer::new(content::region(51, 77))).expect("posted");
        for _ in 0..2 {
            next(a).result.expect("read");
        }
    };
    let reads = |b: &mut zerolane::Connection| {
        for (seed, len) in [(50, len), (51, 77)] {
            b.post(Read::new(Region::anonymous(len).expect("memory")))
                .expect("posted");
            let completion = next(b);
            assert_eq!(completion.result, Ok(len));
            content::verify(seed, &completion.into_region().expect("a region"));
        }
    };
    both(&mut pair, offers, reads);
}

/// Turns both ends until `done`.
fn turn_until(pair: &mut Pair, mut done: impl FnMut(&mut Pair) -> bool) {
    let end = std::time::Instant::now() + crate::drive::PATIENCE;
    while !done(pair) {
        assert!(std::time::Instant::now() < end, "{:#?}", pair.b.account());
        for end in [&mut pair.a, &mut pair.b] {
            let completion = end.poll().expect("connected");
            assert!(completion.is_none(), "too early: {completion:?}");
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn cancel__while_streaming_leaves_memory_alone(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let len = path.scale(64 << 20);
    pair.a.post_send(content::region(60, len)).expect("posted");
    let id = pair.b.post_recv(Region::anonymous(len).expect("memory"));
    let id = id.expect("posted");
    turn_until(&mut pair, |pair| {
        pair.b.account().protocol.bytes_received > 50_000
    });
    assert!(pair.b.cancel(id), "still in flight");
    let cancelled = next(&mut pair.b);
    assert_eq!(cancelled.result, Err(TransferError::Cancelled));
    // From now on the memory is ours, whatever is still in flight.
    let mut memory = cancelled.into_region().expect("a region");
    memory.fill(0x77);
    let refused = next_of(&mut pair, End::A);
    assert_eq!(
        refused.result,
        Err(TransferError::Refused(Reason::Cancelled))
    );
    transfer(&mut pair, 61, &[path.scale(1 << 20), 5]);
    assert!(
        memory.iter().all(|&byte| byte == 0x77),
        "a late packet was written"
    );
}

enum End {
    A,
    B,
}

/// The next completion of one end, while the other one answers.
fn next_of(pair: &mut Pair, end: End) -> zerolane::Completion {
    match end {
        End::A => both(pair, next, |_| ()).0,
        End::B => both(pair, |_| (), next).1,
    }
}

fn cancel__by_the_sender(path: Path, base: &Options) {
    let Some(mut pair) = path.connect(base) else {
        return;
    };
    let len = path.scale(64 << 20);
    let id = pair.a.post_send(content::region(70, len)).expect("posted");
    let memory = Region::anonymous(len).expect("memory");
    pair.b.post_recv(memory).expect("posted");
    turn_until(&mut pair, |pair| {
        pair.b.account().protocol.bytes_received > 50_000
    });
    assert!(pair.a.cancel(id), "still in flight");
    let cancelled = next(&mut pair.a);
    assert_eq!(cancelled.result, Err(TransferError::Cancelled));
    let refused = next_of(&mut pair, End::B);
    assert_eq!(
        refused.result,
        Err(TransferError::Refused(Reason::Cancelled))
    );
    transfer(&mut pair, 71, &[path.scale(1 << 20), 5]);
    idle(&mut pair.a, Duration::from_millis(5));
    idle(&mut pair.b, Duration::from_millis(5));
}

fn close__flushes(path: Path, base: &Options) {
    let Some(pair) = path.connect(base) else {
        return;
    };
    let Pair { mut a, mut b, net } = pair;
    let lengths = [path.scale(4 << 20), 9, 1000];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (seed, len) in (80..).zip(lengths) {
                a.post_send(content::region(seed, len)).expect("posted");
            }
            a.close().expect("everything was delivered");
        });
        receive_all(&mut b, 80, &lengths);
        let ended = b
            .wait(Some(crate::drive::PATIENCE))
            .map(zerolane::Waited::got);
        assert!(
            matches!(ended, Err(zerolane::Error::Closed(_))),
            "{ended:?}"
        );
    });
    drop(net);
}

fn memory__put_got_and_counted_in(path: Path, base: &Options) {
    for make in [Region::anonymous, Region::memfd] {
        let Some(pair) = path.connect(base) else {
            return;
        };
        put_got_and_counted_in(pair, make);
    }
}

fn put_got_and_counted_in(mut pair: Pair, make: fn(usize) -> std::io::Result<Region>) {
    const LEN: usize = 300_000;
    let memory = ExportedRegion::new(make(LEN).expect("memory")).expect("page-aligned");
    let key = pair.b.export(&memory, Rights::ALL).expect("exported");
    let puts_and_gets = |a: &mut Connection| {
        let mut put = 0u64;
        for (seed, len) in (90..).zip([1, 2, 3, 5, 6, 7, 8, 1_168, 1_457, 9_000, LEN - 8]) {
            let mut data = vec![0; len];
            content::fill(seed, &mut data);
            a.put(&key, 8, &data).expect("put");
            let mut got = vec![0; len];
            a.get(&key, 8, &mut got).expect("got");
            assert!(got == data, "{len} bytes");
            assert_eq!(a.fetch_add(&key, 0, 3).expect("counted"), put);
            put += 3;
        }
        put
    };
    let (put, ()) = both(&mut pair, puts_and_gets, |_| ());
    assert_eq!(memory.word(0).load(Ordering::Acquire), put);
}

fn memory__immediates_tell_of_all_before_them(path: Path, base: &Options) {
    with_memory(path, base, immediates::tell_of_all_before_them);
}

fn memory__immediates_say_what_was_put(path: Path, base: &Options) {
    with_memory(path, base, immediates::say_what_was_put);
}

fn inline__what_was_posted_may_change_at_once(path: Path, base: &Options) {
    if let Some(pair) = path.connect(base) {
        inline::may_change_at_once(pair);
    }
}

/// Runs `test` with memory of both kinds.
fn with_memory(path: Path, base: &Options, test: fn(Pair, &ExportedRegion, bool)) {
    for of_memfd in [false, true] {
        let Some(pair) = path.connect(base) else {
            return;
        };
        let region = match of_memfd {
            true => Region::memfd(immediates::LEN),
            false => Region::anonymous(immediates::LEN),
        };
        let memory = ExportedRegion::new(region.expect("memory")).expect("page-aligned");
        test(pair, &memory, of_memfd);
    }
}

fn delivery__wakes_as_its_sender_asks(path: Path, base: &Options) {
    if let Some(mut pair) = path.connect(base) {
        delivery::wakes_as_its_sender_asks(&mut pair);
    }
}

fn eager__arrives_with_and_without_a_receive(path: Path, base: &Options) {
    eager::arrives_with_and_without_a_receive(path, base);
}

fn finish__the_other_direction_goes_on(path: Path, base: &Options) {
    finish::the_other_direction_goes_on(path, base);
}
