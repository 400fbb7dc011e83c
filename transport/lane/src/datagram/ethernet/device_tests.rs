//! Tests that two hosts whose interfaces are opened as devices exchange payload, and fall back where a device cannot
//! serve.
#![allow(non_snake_case)]

use super::tests::*;
use super::*;
use crate::driver::Step;
use crate::ethernet::{DeviceOptions, EthernetDevice, afxdp};
use crate::listener::Listener;
use crate::seal::Security;
use crate::unavailable::NoXdp;
use netlab::netns::{Namespace, Topology};
use netsim::Side;
use std::time::Instant;

/// The interfaces of both hosts.
pub(super) struct Devices([Arc<EthernetDevice>; 2]);

impl Devices {
    pub(super) fn open(hosts: &Topology, options: DeviceOptions) -> Devices {
        Devices::open_at([hosts.a(), hosts.b()], options)
    }

    pub(super) fn open_at(hosts: [&Namespace; 2], options: DeviceOptions) -> Devices {
        Devices(hosts.map(|host| {
            let open = || EthernetDevice::open(host.device(), options);
            inside(host, open).expect("AF_XDP")
        }))
    }

    pub(super) fn of(&self, side: Side) -> &EthernetDevice {
        &self.0[side as usize]
    }

    pub(super) fn options(&self, side: Side, options: &Options) -> Options {
        options
            .clone()
            .with(|it| it.lane.device = Some(self.0[side as usize].clone()))
    }

    /// Two devices with default options, and a connection over them.
    pub(super) fn joined(hosts: &Topology, options: &Options) -> (Devices, Listener, End, End) {
        let devices = Devices::open(hosts, DeviceOptions::default());
        let mut listener = devices.listen(hosts.b(), options);
        let (a, b) = join_at(hosts, &mut listener, &devices.options(Side::A, options));
        assert!(a.account().bypass && b.account().bypass);
        (devices, listener, a, b)
    }

    pub(super) fn listen(&self, host: &Namespace, options: &Options) -> Listener {
        listen(host, 0, &self.options(Side::B, options)).expect("a port")
    }
}

/// Number of calls in which `end` received Data by its packet socket.
pub(super) fn by_socket(end: &End) -> u64 {
    end.account().rx_data_syscalls
}

#[test]
fn transfer__of_every_length_comes_past_the_packet_socket() {
    for mtu in [1280, 1500, 3500, 9000] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for options in both() {
            let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
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

/// The copy out of the shared memory is the only one.
#[test]
fn strict__payload_is_copied_once() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let strict = options.with(|it| it.strict = true);
        let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &strict);
        for len in [100_000, 1 << 20, (1 << 20) + 3] {
            let before = b.account().bytes_placed;
            transfer(&mut a, &mut b, len);
            assert_eq!(b.account().bytes_placed - before, len as u64);
        }
    }
}

/// A frame longer than a page comes in several pieces, which no copy has to join.
#[test]
fn pieces__lie_end_to_end() {
    let Some(hosts) = hosts(9000) else {
        return;
    };
    for options in both() {
        let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
        for len in [1 << 20, 3, 100_000, 9000, 1 << 20] {
            transfer(&mut a, &mut b, len);
        }
        assert!(b.account().stu > 8000, "{}", b.account().stu);
        let crate::any::AnyLane::Datagram(lane, _) = b.lane() else {
            panic!("another lane");
        };
        assert!(b.account().bypass && !lane.has_put_together());
    }
}

#[test]
fn places__are_bounded_and_taken_again() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let options = options(Security::default());
    for fall_back in [false, true] {
        let few = DeviceOptions {
            max_connections: 1,
            fall_back,
            ..DeviceOptions::default()
        };
        let devices = Devices::open(&hosts, few);
        let mut listener = listen(hosts.b(), 0, &options).expect("a port");
        let with_device = devices.options(Side::A, &options);
        for _ in 0..3 {
            let (mut a, mut b) = join_at(&hosts, &mut listener, &with_device);
            assert!(a.account().bypass && !b.account().bypass);
            transfer(&mut a, &mut b, 300_000);
            if fall_back {
                let (mut more, mut b) = join_at(&hosts, &mut listener, &with_device);
                assert!(!more.account().bypass);
                assert_eq!(more.account().no_bypass, Some(NoBypass::Full));
                transfer(&mut more, &mut b, 300_000);
            } else {
                let to = seen_from(hosts.a(), listener.local_addr());
                let refused = inside(hosts.a(), || crate::any::connect(to, &with_device));
                let refused = refused.expect_err("no place");
                assert_eq!(refused.to_string(), NoEthernet::Full.to_string());
            }
            transfer(&mut b, &mut a, 300_000);
        }
    }
}

#[test]
fn places__are_not_used_up_by_sockets_that_cannot_be_made() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let options = options(Security::default());
    let few = DeviceOptions {
        max_connections: 1,
        ..DeviceOptions::default()
    };
    let devices = Devices::open(&hosts, few);
    let mut listener = listen(hosts.b(), 0, &options).expect("a port");
    let with_device = devices.options(Side::A, &options);
    let to = seen_from(hosts.a(), listener.local_addr());
    for _ in 0..3 {
        let refused = inside(hosts.a(), || {
            afxdp::system::seam::refuse(1);
            crate::any::connect(to, &with_device).map(drop)
        });
        let refused = refused.expect_err("no socket").to_string();
        assert_ne!(refused, NoEthernet::Full.to_string());
    }
    let (mut a, mut b) = join_at(&hosts, &mut listener, &with_device);
    assert!(a.account().bypass);
    transfer(&mut a, &mut b, 300_000);
}

#[test]
fn accept__without_a_place_refuses_the_initiator_and_goes_on() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let few = DeviceOptions {
            max_connections: 1,
            ..DeviceOptions::default()
        };
        let devices = Devices::open(&hosts, few);
        let mut listener = devices.listen(hosts.b(), &options);
        let first = join_at(&hosts, &mut listener, &options);
        let to = seen_from(hosts.a(), listener.local_addr());
        let mut more = inside(hosts.a(), || crate::any::connect(to, &options)).expect("connecting");
        let end = Instant::now() + PATIENCE;
        while listener.counters().exhausted == 0 {
            assert!(Instant::now() < end, "{:?}", listener.counters());
            more.turn(Step::Whole).expect("asking");
            let wait = Some(Duration::from_millis(1));
            let accepted = inside(hosts.b(), || listener.accept(wait));
            assert!(accepted.expect("accepting").is_none());
        }
        drop((first, more));
        let (mut a, mut b) = join_at(&hosts, &mut listener, &options);
        assert!(b.account().bypass);
        transfer(&mut a, &mut b, 300_000);
    }
}

#[test]
fn refused__says_what_or_goes_on_by_packet_sockets() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let none = DeviceOptions {
        queue: Some(7),
        ..DeviceOptions::default()
    };
    let device = hosts.device(Side::A);
    let error = inside(hosts.a(), || EthernetDevice::open(device, none)).expect_err("no queue");
    assert!(
        error.to_string().starts_with("AF_XDP is refused"),
        "{error}"
    );
    let falls_back = DeviceOptions {
        fall_back: true,
        ..none
    };
    let devices = Devices::open(&hosts, falls_back);
    assert!(devices.of(Side::A).refused().is_some());
    // The interface keeps nothing.
    assert_eq!(program_at(hosts.a()), None);
    let options = options(Security::default());
    let mut listener = devices.listen(hosts.b(), &options);
    let with_device = devices.options(Side::A, &options);
    let (mut a, mut b) = join_at(&hosts, &mut listener, &with_device);
    for end in [&a, &b] {
        let account = end.account();
        assert!(!account.bypass);
        assert_eq!(account.no_bypass, Some(NoBypass::Refused(libc::EINVAL)));
    }
    transfer(&mut a, &mut b, 300_000);
}

/// A program of another owner at the interface is left alone.
#[test]
fn refused__where_another_program_is_it_goes_on_by_packet_sockets() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let another = DeviceOptions {
        queue: None,
        ..DeviceOptions::default()
    };
    let another = Devices::open(&hosts, another);
    let programs = [hosts.a(), hosts.b()].map(program_at);
    assert!(!programs.contains(&None));
    let open = || EthernetDevice::open(hosts.device(Side::A), DeviceOptions::default());
    let error = inside(hosts.a(), open).expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("XDP program already"), "{error}");
    let falls_back = DeviceOptions {
        fall_back: true,
        ..DeviceOptions::default()
    };
    for options in both() {
        let devices = Devices::open(&hosts, falls_back);
        let taken = NoEthernet::Program(NoXdp::Taken);
        assert_eq!(devices.of(Side::A).refused(), Some(&taken));
        let mut listener = devices.listen(hosts.b(), &options);
        let with_device = devices.options(Side::A, &options);
        let (mut a, mut b) = join_at(&hosts, &mut listener, &with_device);
        for end in [&a, &b] {
            let account = end.account();
            assert!(!account.bypass);
            assert_eq!(account.no_bypass, Some(NoBypass::Taken));
        }
        transfer(&mut a, &mut b, 8 << 20);
        transfer(&mut b, &mut a, 8 << 20);
    }
    assert_eq!([hosts.a(), hosts.b()].map(program_at), programs);
    drop(another);
    let devices = Devices::open(&hosts, falls_back);
    assert_eq!(devices.of(Side::A).refused(), None);
}

/// A child that another thread forked has copies of all descriptors until it executes a program, or permanently.
#[test]
fn open__again_while_a_child_has_copies_of_the_descriptors() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let options = options(Security::default());
    let (devices, listener, mut a, mut b) = Devices::joined(&hosts, &options);
    transfer(&mut a, &mut b, 300_000);
    // SAFETY: the child calls nothing that another thread of the process could have left locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::usleep(200_000);
            libc::_exit(0);
        }
    }
    assert!(child > 0, "{}", io::Error::last_os_error());
    drop((a, b, listener, devices));
    assert_eq!([hosts.a(), hosts.b()].map(program_at), [None; 2]);
    let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
    transfer(&mut a, &mut b, 300_000);
    let mut status = 0;
    // SAFETY: the status lives across the call.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((reaped, status), (child, 0));
}

/// veth has no zero-copy mode.
#[test]
fn zero_copy__alone_is_refused_where_the_kernel_would_copy() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let zero_copy = DeviceOptions {
        zero_copy: true,
        ..DeviceOptions::default()
    };
    let open = || EthernetDevice::open(hosts.device(Side::A), zero_copy);
    let error = inside(hosts.a(), open).expect_err("none");
    assert_eq!(error.to_string(), NoEthernet::Copies.to_string());
    let falls_back = DeviceOptions {
        fall_back: true,
        ..zero_copy
    };
    let devices = Devices::open(&hosts, falls_back);
    assert_eq!(program_at(hosts.a()), None);
    let options = options(Security::default());
    let mut listener = devices.listen(hosts.b(), &options);
    let with_device = devices.options(Side::A, &options);
    let (mut a, mut b) = join_at(&hosts, &mut listener, &with_device);
    assert_eq!(a.account().no_bypass, Some(NoBypass::Copies));
    transfer(&mut a, &mut b, 300_000);
}

#[test]
fn interface__gone_ends_the_connection_and_says_so() {
    for sends in [true, false] {
        let Some(hosts) = hosts(1500) else {
            return;
        };
        let options = options(Security::default());
        let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
        transfer(&mut a, &mut b, 300_000);
        delete_interface(&hosts, &mut a, &mut b, sends);
    }
}

/// Forged frames to a connection's key, as any host of the segment can send, and frames that do not belong to this
/// lane.
#[test]
fn forged__frames_change_nothing() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
        transfer(&mut a, &mut b, 1 << 20);
        let (to, from) = (
            hardware(b.lane().local_addr().expect("one")),
            hardware(b.lane().peer_addr()),
        );
        let key = b.lane().key();
        inside(hosts.a(), || {
            let forger = netlab::forge::Forger::open(hosts.a().device()).expect("permitted");
            for code in 0..32u8 {
                for len in [12, 40, 46, 48, 60, 1500] {
                    let mut datagram = vec![0xa5; len];
                    datagram[0] = code << 3;
                    datagram[8..12].copy_from_slice(&key.to_be_bytes());
                    assert_eq!(forger.send(&[&frame(to, from, &datagram)]), 0);
                    assert_eq!(forger.send(&[&frame(to, [2; 6], &datagram)]), 0);
                }
            }
        });
        transfer(&mut a, &mut b, 1 << 20);
        transfer(&mut b, &mut a, 1 << 20);
    }
}

/// The program in the driver knows the grants of one path only.
#[test]
fn several_paths__are_refused_beside_a_device_and_taken_without() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let options = options(Security::default()).with(|it| it.paths.most = 2);
    let mut listener = listen(hosts.b(), 0, &options).expect("packet sockets");
    let to = seen_from(hosts.a(), listener.local_addr());
    let devices = Devices::open(&hosts, DeviceOptions::default());
    let with_device = |side| devices.options(side, &options);
    let connect = || crate::any::connect(to, &with_device(Side::A)).map(drop);
    let connecting = inside(hosts.a(), connect);
    let listening = listen(hosts.b(), 0, &with_device(Side::B)).map(drop);
    for refused in [connecting, listening] {
        let error = refused.expect_err("one path");
        assert_eq!(error.to_string(), NoEthernet::OnePath.to_string());
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let (mut a, mut b) = join_at(&hosts, &mut listener, &options);
    transfer(&mut a, &mut b, 300_000);
}
