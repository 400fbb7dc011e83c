//! Tests namespaces on the real kernel. Skips, with a message, without the permissions.

#![allow(non_snake_case)]

use netlab::netns::{self, Error, Namespace, Offloads, Topology, sweep_stale};
use netsim::Side;
use nix::mount::{MsFlags, mount};
use std::fs::File;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

/// Long enough on a busy machine; only ever waited for in full on failure.
const PATIENCE: Duration = Duration::from_secs(10);

/// A topology, or `None` with a message where namespaces are not allowed.
fn pair_or_skip(mtu: u32) -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(Topology::pair("test", mtu).expect("permitted"))
}

fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

fn socket_in(namespace: &Namespace, address: IpAddr) -> UdpSocket {
    let socket = namespace
        .enter_thread(|| UdpSocket::bind((address, 0)))
        .expect("enter")
        .expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

/// Sends a payload from a to b and checks that it arrives unchanged.
fn assert_passes(from: &UdpSocket, to: &UdpSocket, length: usize) {
    let payload: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
    from.send_to(&payload, to.local_addr().expect("bound"))
        .expect("send");
    let mut buffer = vec![0; length + 1];
    let received = to.recv(&mut buffer).expect("arrives");
    assert_eq!(&buffer[..received], payload);
}

#[test]
fn pair__carries_ipv4_and_ipv6_both_ways() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let v4 = [hosts.a().ipv4().into(), hosts.b().ipv4().into()];
    let v6 = [hosts.a().ipv6(), hosts.b().ipv6()].map(|ip| ip.map(IpAddr::from));
    let [Some(v6_a), Some(v6_b)] = v6 else {
        panic!("no IPv6 in this kernel");
    };
    for [ip_a, ip_b] in [v4, [v6_a, v6_b]] {
        let a = socket_in(hosts.a(), ip_a);
        let b = socket_in(hosts.b(), ip_b);
        assert_passes(&a, &b, 1400);
        assert_passes(&b, &a, 1400);
    }
}

#[test]
fn pair__loopback_is_up_in_both() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    for side in Side::BOTH {
        let localhost = IpAddr::from([127, 0, 0, 1]);
        let one = socket_in(hosts.side(side), localhost);
        let two = socket_in(hosts.side(side), localhost);
        assert_passes(&one, &two, 100);
    }
}

#[test]
fn pair__two_topologies_live_side_by_side() {
    let (Some(one), Some(two)) = (pair_or_skip(1500), pair_or_skip(9000)) else {
        return;
    };
    assert_ne!(one.a().name(), two.a().name());
    assert_eq!(one.a().mtu().expect("exists"), 1500);
    assert_eq!(two.b().mtu().expect("exists"), 9000);
}

#[test]
fn pair__bad_mtu_is_named_and_leaves_nothing() {
    if pair_or_skip(1500).is_none() {
        return;
    }
    let error = Topology::pair("badmtu", 70_000).expect_err("above veth's limit");
    assert!(
        matches!(&error, Error::Io { action, .. } if action.contains("70000")),
        "{error}"
    );
    let left = fs::read_dir("/run/netns")
        .expect("exists")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("zl-badmtu-"))
        .count();
    assert_eq!(left, 0);
}

#[test]
fn pair__without_rights_says_so() {
    if netns::is_permitted() {
        eprintln!("skipped: this process has the rights");
        return;
    }
    let error = Topology::pair("test", 1500).expect_err("no rights");
    assert!(matches!(error, Error::NotPermitted(_)), "{error}");
}

#[test]
fn drop__removes_both_namespaces() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let names = Side::BOTH.map(|side| hosts.side(side).name().to_owned());
    let a = hosts.a().clone();
    assert!(names.iter().all(|name| exists(name)));
    drop(hosts);
    assert!(!names.iter().any(|name| exists(name)));
    assert!(matches!(a.enter_thread(|| ()), Err(Error::Io { .. })));
}

#[test]
fn drop__removes_both_namespaces_while_panicking() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let name = hosts.a().name().to_owned();
    let panicked = thread::spawn(move || {
        let _hosts = hosts;
        panic!("on purpose");
    })
    .join();
    assert!(panicked.is_err());
    assert!(!exists(&name));
}

#[test]
fn drop__cuts_the_link_of_those_still_inside() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let a = hosts.a().clone();
    let device = a.device().to_owned();
    // Channels, so that a panic on either side ends the other's wait too.
    let (entered, wait_entered) = mpsc::channel();
    let (dropped, wait_dropped) = mpsc::channel();
    let stays = thread::spawn(move || {
        a.enter().expect("enter");
        let before = devices_here();
        entered.send(()).expect("waited for");
        wait_dropped.recv().expect("sent");
        (before, devices_here())
    });
    wait_entered.recv().expect("sent");
    drop(hosts);
    dropped.send(()).expect("waited for");
    let (before, after) = stays.join().expect("no panic");
    assert!(before.contains(&device), "{before}");
    assert!(!after.contains(&device), "{after}");
}

/// The devices in the namespace of the calling thread.
fn devices_here() -> String {
    fs::read_to_string("/proc/thread-self/net/dev").expect("readable")
}

#[test]
fn command__runs_inside() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let output = hosts
        .b()
        .command("cat")
        .arg("/proc/self/net/dev")
        .output()
        .expect("cat runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(hosts.device(Side::B)), "{text}");
    let missing = hosts.b().command("no-such-program-of-netlab").output();
    assert_eq!(missing.expect("nsenter runs").status.code(), Some(127));
}

#[test]
fn enter_thread__passes_a_panic_on() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        hosts.a().enter_thread(|| panic!("on purpose"))
    }));
    let payload = result.expect_err("panicked");
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
}

#[test]
fn set_link_up__down_stops_and_up_restores_both_families() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let Some(v6_b) = hosts.b().ipv6() else {
        panic!("no IPv6 in this kernel");
    };
    hosts.set_link_up(Side::B, false).expect("down");
    let b_down = hosts.b().enter_thread(|| UdpSocket::bind((v6_b, 0)));
    assert!(b_down.expect("enter").is_err(), "address should be gone");

    hosts.set_link_up(Side::B, true).expect("up");
    for (ip_a, ip_b) in [
        (hosts.a().ipv4().into(), hosts.b().ipv4().into()),
        (hosts.a().ipv6().expect("as b").into(), IpAddr::from(v6_b)),
    ] {
        let a = socket_in(hosts.a(), ip_a);
        let b = socket_in(hosts.b(), ip_b);
        assert_passes(&a, &b, 500);
    }
}

#[test]
fn set_mtu__takes_effect_and_ipv6_survives_a_small_one() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    hosts.set_mtu(1000).expect("small");
    assert_eq!(hosts.a().mtu().expect("exists"), 1000);
    assert_eq!(hosts.b().mtu().expect("exists"), 1000);

    let error = hosts.set_mtu(70_000).expect_err("above veth's limit");
    let asked = "cannot set the MTU of test-a to 70000 in zl-test-";
    assert!(error.to_string().starts_with(asked), "{error}");
    // In the kernel's words.
    assert!(
        error
            .to_string()
            .contains("mtu greater than device maximum"),
        "{error}"
    );

    hosts.set_mtu(9000).expect("jumbo");
    let a = socket_in(hosts.a(), hosts.a().ipv6().expect("IPv6").into());
    let b = socket_in(hosts.b(), hosts.b().ipv6().expect("IPv6").into());
    assert_passes(&a, &b, 8000);
}

#[test]
fn set_offloads__veth_can_switch_them_all() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    for (tx, gro) in [(false, true), (false, false), (true, false), (true, true)] {
        let change = hosts
            .set_offloads(Side::A, Offloads { tx, gro })
            .expect("ethtool runs");
        for feature in [
            "tx-tcp-segmentation",
            "tx-generic-segmentation",
            "tx-udp-segmentation",
            "rx-gro",
        ] {
            assert!(change.applied.contains(&feature), "{change:?}");
        }
        assert!(change.unavailable.is_empty(), "{change:?}");
    }
}

/// Without it the stack checks what comes: nothing is lost by that.
#[test]
fn set_checksums__veth_can_switch_them_and_datagrams_pass() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    for on in [false, true] {
        for side in [Side::A, Side::B] {
            let change = hosts.set_checksums(side, on).expect("ethtool runs");
            assert_eq!(
                change.applied,
                ["tx-checksum-ip-generic", "rx-checksum"],
                "{change:?}"
            );
            assert!(change.unavailable.is_empty(), "{change:?}");
        }
        let a = socket_in(hosts.a(), hosts.a().ipv4().into());
        let b = socket_in(hosts.b(), hosts.b().ipv4().into());
        assert_passes(&a, &b, 1000);
    }
}

#[test]
fn sweep_stale__removes_those_of_the_dead_only() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    // Of a host, and of a router.
    let dead = dead_pid();
    let stale = ["a", "r"].map(|label| format!("zl-test-{dead}-0-{label}"));
    for name in &stale {
        let path = Path::new("/run/netns").join(name);
        File::create(&path).expect("new");
        let (own, none) = ("/proc/self/ns/net", None::<&str>);
        mount(Some(own), &path, none, MsFlags::MS_BIND, none).expect("mounted");
    }
    // Of one that was killed before it had made it.
    let stale = [&stale[..], &[format!("zl-test-{dead}-1-b")]].concat();
    File::create(Path::new("/run/netns").join(&stale[2])).expect("new");

    let removed = sweep_stale().expect("permitted");
    for name in &stale {
        assert!(removed.contains(name), "{removed:?}");
        assert!(!exists(name));
    }
    assert!(exists(hosts.a().name()));
}

/// The pid of a process that has ended and been waited for.
fn dead_pid() -> u32 {
    let mut child = Command::new("true")
        .stdin(Stdio::null())
        .spawn()
        .expect("true runs");
    child.wait().expect("ends");
    child.id()
}

#[test]
fn counters__what_passed_an_interface() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let [a, b] = [hosts.a(), hosts.b()].map(|it| socket_in(it, it.ipv4().into()));
    let before = [hosts.a(), hosts.b()].map(|it| it.counters().expect("there")[0]);
    assert_passes(&a, &b, 1000);
    let after = [hosts.a(), hosts.b()].map(|it| it.counters().expect("there")[0]);
    assert!(
        after[0].sent - before[0].sent >= 1000,
        "{before:?} {after:?}"
    );
    assert!(
        after[1].received - before[1].received >= 1000,
        "{before:?} {after:?}"
    );
    assert!(
        after[0].received - before[0].received < 1000,
        "{before:?} {after:?}"
    );
}

#[test]
fn rtnetlink__an_address_taken_away_is_no_more_the_host_s() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let (kernel, device) = (hosts.b().rtnetlink().expect("there"), hosts.device(Side::B));
    let (old, new) = (IpAddr::from(hosts.b().ipv4()), [10, 77, 0, 99].into());
    kernel.remove_address(device, old, 24).expect("it has it");
    kernel.assign_address(device, new, 24).expect("free");
    let bound = hosts.b().enter_thread(|| UdpSocket::bind((old, 0)));
    assert!(bound.expect("enter").is_err(), "{old} is gone");
    let [a, b] = [(hosts.a(), hosts.a().ipv4().into()), (hosts.b(), new)]
        .map(|(host, ip)| socket_in(host, ip));
    assert_passes(&a, &b, 100);
    let error = kernel.remove_address(device, old, 24).expect_err("gone");
    let asked = format!("cannot remove the address {old}/24 of {device}");
    assert!(error.to_string().starts_with(&asked), "{error}");
}

#[test]
fn is_listening__the_ports_of_this_host_alone() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    for ip in ["0.0.0.0", "::"] {
        let listen = || TcpListener::bind((ip, 0));
        let Ok(listener) = hosts.b().enter_thread(listen).expect("enter") else {
            println!("skipped: no IPv6");
            continue;
        };
        let port = listener.local_addr().expect("bound").port();
        assert!(hosts.b().is_listening(port).expect("permitted"), "{ip}");
        assert!(!hosts.a().is_listening(port).expect("permitted"), "{ip}");
        drop(listener);
        assert!(!hosts.b().is_listening(port).expect("permitted"), "{ip}");
    }
}

#[test]
fn rtnetlink__a_device_beside_another_has_the_address_that_was_asked_for() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let (kernel, hardware) = (hosts.a().rtnetlink().expect("there"), [2, 0, 0, 0, 0x77, 1]);
    let device = hosts.device(Side::A);
    kernel
        .add_macvlan(device, "beside", hardware)
        .expect("made");
    kernel.set_up("beside", true).expect("up");
    assert_eq!(kernel.hardware_address("beside").expect("there"), hardware);
    assert_ne!(kernel.hardware_address(device).expect("there"), hardware);
    assert_eq!(kernel.xdp_program("beside").expect("there"), None);
    kernel.delete("beside").expect("there");
    let error = kernel.mtu("beside").expect_err("gone");
    assert!(error.to_string().contains("find beside"), "{error}");
}

#[test]
fn rtnetlink__a_route_leads_to_where_it_was_asked_to() {
    let Some(hosts) = pair_or_skip(1500) else {
        return;
    };
    let there = [192, 0, 2, 1].into();
    let b = hosts.b().rtnetlink().expect("there");
    b.assign_address(hosts.device(Side::B), there, 32)
        .expect("free");
    let [from, to] = [(hosts.a(), hosts.a().ipv4().into()), (hosts.b(), there)]
        .map(|(host, ip)| socket_in(host, ip));
    let at = to.local_addr().expect("bound");
    assert!(from.send_to(b"", at).is_err(), "no route yet");
    let a = hosts.a().rtnetlink().expect("there");
    a.add_route([192, 0, 2, 0].into(), 24, hosts.b().ipv4())
        .expect("new");
    assert_passes(&from, &to, 100);
}
