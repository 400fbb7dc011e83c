//! Tests that settings out of range are refused by name, and that the ends of each range are accepted.
#![allow(non_snake_case)]
use super::*;
use crate::address::PathAddresses;
use std::net::SocketAddr;
use std::time::Duration;

/// What connect, listen and `check` say of these settings; they agree.
fn refusal(options: &Options) -> Option<String> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let checked = options.check();
    if checked.is_ok() {
        return None;
    }
    let connected = crate::any::connect(any, options).map(drop);
    let bound = crate::listener::Listener::bind(any, options.clone()).map(drop);
    let [first, others @ ..] = [checked, connected, bound].map(|it| {
        let error = it.expect_err("connect and listen check");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    });
    assert!(others.iter().all(|it| *it == first), "{others:?}");
    Some(first)
}

fn path() -> PathAddresses {
    "127.0.0.2=127.0.0.3".parse().expect("a path")
}

#[test]
fn check__names_the_setting_and_what_it_may_be() {
    type Change = fn(&mut Options);
    let refused: [(Change, &str); 31] = [
        (
            |it| it.times.connect = Duration::ZERO,
            "connect timeout is 0: ",
        ),
        (|it| it.times.idle = Duration::ZERO, "idle timeout is 0: "),
        (|it| it.paths.most = 0, "paths is 0: use 1 to 8"),
        (|it| it.paths.most = 9, "paths is 9: use 1 to 8"),
        (|it| it.paths.most = u8::MAX, "paths is 255: use 1 to 8"),
        (
            |it| it.paths.links = vec![path(); 8],
            "number of links is 8: use 0 to 7",
        ),
        (
            |it| it.flow.receive_buffer = 0,
            "receive buffer is 0: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.receive_buffer = 4095,
            "receive buffer is 4095: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.receive_buffer = (1 << 30) + 1,
            "receive buffer is 1073741825: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.receive_buffer = usize::MAX,
            "receive buffer is 18446744073709551615: use 4096 to ",
        ),
        (
            |it| it.flow.max_in_flight = 0,
            "max in flight is 0: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.max_in_flight = 4095,
            "max in flight is 4095: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.max_in_flight = u32::MAX,
            "max in flight is 4294967295: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.eager_limit = 65_537,
            "eager limit is 65537: use 0 to 65536",
        ),
        (
            |it| it.flow.eager_limit = u32::MAX,
            "eager limit is 4294967295: use 0 to 65536",
        ),
        (|it| it.flow.block = 0, "block is 0: use 4096 to 1073741824"),
        (
            |it| it.flow.block = 4095,
            "block is 4095: use 4096 to 1073741824",
        ),
        (
            |it| it.flow.block = u32::MAX,
            "block is 4294967295: use 4096 to 1073741824",
        ),
        (|it| it.flow.slots = 0, "slots is 0: use 1 to 1024"),
        (|it| it.flow.slots = 1025, "slots is 1025: use 1 to 1024"),
        (
            |it| it.flow.slots = u16::MAX,
            "slots is 65535: use 1 to 1024",
        ),
        (|it| it.rate.max = Some(0), "max rate is 0: use at least 1"),
        (
            |it| it.listen.max_connections = 0,
            "max connections is 0: use at least 1",
        ),
        (
            |it| it.listen.max_connections_of_origin = 0,
            "max connections of origin is 0: use at least 1",
        ),
        (|it| (it.flow.slots, it.flow.block) = (0, 0), "block is 0: "),
        (
            |it| (it.strict, it.datagrams.forecast) = (true, false),
            "strict without the forecast: ",
        ),
        (|it| it.datagrams.stu = 511, "stu is 511: use 512 to 65467"),
        (
            |it| it.datagrams.stu = u32::MAX,
            "stu is 4294967295: use 512 to 65467",
        ),
        (
            |it| it.flow.classic_block = 0,
            "classic block is 0: use a power of two",
        ),
        (
            |it| it.flow.classic_block = 48 << 10,
            "classic block is 49152: use a power of two",
        ),
        (
            |it| it.flow.classic_block = 1 << 31,
            "classic block is 2147483648: use 4096 to 16777216",
        ),
    ];
    for (change, why) in refused {
        let said = refusal(&Options::default().with(change)).expect(why);
        assert!(said.starts_with(why), "{said}");
    }
}

#[test]
fn check__accepts_the_ends_of_each_range() {
    type Change = fn(&mut Options);
    let accepted: [Change; 22] = [
        |_| (),
        |it| it.times.connect = Duration::MAX,
        |it| it.times.connect = Duration::from_nanos(1),
        |it| it.times.idle = Duration::MAX,
        |it| it.times.spin = Duration::ZERO,
        |it| it.times.spin = Duration::MAX,
        |it| it.paths.most = 8,
        |it| it.paths.links = vec![path(); 7],
        |it| it.flow.receive_buffer = 4096,
        |it| it.flow.receive_buffer = 1 << 30,
        |it| (it.flow.max_in_flight, it.flow.block) = (4096, 4096),
        |it| (it.flow.max_in_flight, it.flow.block) = (1 << 30, 1 << 30),
        |it| it.flow.eager_limit = 0,
        |it| it.flow.eager_limit = 65_536,
        |it| it.flow.slots = 1,
        |it| it.flow.slots = 1024,
        |it| it.rate.max = Some(1),
        |it| (it.datagrams.stu, it.flow.classic_block) = (512, 4096),
        |it| (it.datagrams.stu, it.flow.classic_block) = (65_467, 16 << 20),
        |it| it.datagrams.forecast = false,
        |it| it.datagrams.swap = true,
        |it| {
            (
                it.listen.max_connections,
                it.listen.max_connections_of_origin,
            ) = (usize::MAX, 1)
        },
    ];
    for (at, change) in accepted.into_iter().enumerate() {
        assert_eq!(refusal(&Options::default().with(change)), None, "{at}");
    }
}
