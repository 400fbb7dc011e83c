//! Two hosts whose interfaces are opened as devices.
#![allow(non_snake_case)]

use super::tests::*;
use super::*;
use crate::{DriverError, Listener, Security};
use netlab::netns::Topology;
use netsim::Side;
use std::time::Instant;

/// The interfaces of both hosts.
struct Devices([Arc<EthernetDevice>; 2]);

impl Devices {
    fn open(hosts: &Topology, options: &DeviceOptions) -> Devices {
        Devices(Side::BOTH.map(|side| {
            let open = || EthernetDevice::open(hosts.device(side), options);
            inside(hosts.side(side), open).expect("AF_XDP")
        }))
    }

    fn options(&self, side: Side, options: &Options) -> Options {
        Options {
            device: Some(self.0[side as usize].clone()),
            ..options.clone()
        }
    }

    fn listen(&self, hosts: &Topology, options: &Options) -> Listener {
        listen(hosts.b(), 0, &self.options(Side::B, options)).expect("a port")
    }

    fn join_at(&self, hosts: &Topology, listener: &mut Listener, options: &Options) -> (End, End) {
        let (a, b) = join_at(hosts, listener, &self.options(Side::A, options));
        assert!(a.account().bypass && b.account().bypass);
        (a, b)
    }
}

/// Calls by which `end` took Data from its packet socket.
fn by_socket(end: &End) -> u64 {
    end.account().rx_data_syscalls
}

#[test]
fn transfer__of_every_length_comes_past_the_packet_socket() {
    for mtu in [1280, 1500, 3500, 9000] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for options in both() {
            let devices = Devices::open(&hosts, &DeviceOptions::default());
            let mut listener = devices.listen(&hosts, &options);
            let (mut a, mut b) = devices.join_at(&hosts, &mut listener, &options);
            transfer(&mut a, &mut b, 1 << 20);
            let stu = b.account().stu as usize;
            let whole = stu + zerolane_wire::HEADER_LEN + options.security.seal_len();
            assert!(whole + 8 > mtu as usize, "{whole} of {mtu}");
            let edges = [stu - 1, stu, stu + 1, 3 * stu + 5, 64 * stu + 1, 8 << 20];
            for len in (0..10).chain(39..48).chain(edges) {
                transfer(&mut a, &mut b, len);
                transfer(&mut b, &mut a, len);
            }
            for end in [&a, &b] {
                let account = end.account();
                assert_eq!(by_socket(end), 0);
                assert_eq!(account.dropped_foreign + account.dropped_truncated, 0);
                assert!(account.bytes_placed >= 8 << 20, "{}", account.bytes_placed);
            }
        }
    }
}
