//! Fuzzes what comes from a tunnel's peer before it is written into the kernel: no panic, and nothing passes from
//! another source, or with lengths that are not true.

use std::net::IpAddr;
use std::time::Duration;
use zerolane::tun::TunOffload;
use zerolane_tunnel::config::{Config, Prefix};
use zerolane_tunnel::engine::Engine;
use zerolane_tunnel::packet::{Packet, VNET_HEADER_LEN};
use zerolane_tunnel::path::PathSeen;

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Config::parse(text);
    }
    let all = |address: &str| Prefix {
        address: address.parse::<IpAddr>().unwrap(),
        len: 1,
    };
    let networks = [
        vec![all("0.0.0.0"), all("::")],
        vec![all("128.0.0.0"), all("8000::")],
    ];
    let mut engine = Engine::new(&networks, 1420);
    for offload in [TunOffload::TcpAndUdp, TunOffload::Tcp, TunOffload::None] {
        engine.set_offload(offload);
        engine.from_peer(0, &mut input.to_vec(), |frame| {
            let packet = Packet::parse(frame).expect("still right");
            let first = match packet.source {
                IpAddr::V4(it) => it.octets()[0],
                IpAddr::V6(it) => it.octets()[0],
            };
            assert!(first < 0x80, "of the other peer");
            assert!(frame.len() > VNET_HEADER_LEN);
        });
    }
    // Only packets of one DSCP leave together.
    engine.copy_dscp();
    // A lossy path has long packets cut.
    for look in 1..4 {
        let seen = PathSeen {
            sent: look * 100_000,
            lost: look * 50_000,
            ..PathSeen::default()
        };
        for peer in 0..2 {
            engine.note_path(Duration::from_millis(100 * look), peer, seen);
        }
    }
    if let Some(peer) = engine.from_host(Duration::ZERO, &mut input.to_vec()) {
        let mut count = 0;
        while let Some((mut datagram, dscp)) = engine.next(Duration::ZERO, peer) {
            let mut receiver = Engine::new(&[networks.concat()], 1420);
            assert!(dscp < 64);
            receiver.from_peer(0, &mut datagram, |_| count += 1);
            assert_eq!(receiver.counters(0).dropped_malformed, 0);
        }
        assert!(count > 0);
    }
}
