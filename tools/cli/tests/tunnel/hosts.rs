//! Tests what passes between two or three hosts, and what does not.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::lab::{Lab, Outside, PROGRAM, datagrams, has_interface, inside, stream, until};

#[test]
fn up__tcp_and_udp_inside_over_v4_and_v6_outside() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    for (outside, words) in [
        (Outside::V4, &[][..]),
        (Outside::V6, &[][..]),
        (Outside::V4, &["--no-offload"]),
    ] {
        lab.configure(outside, "10.9.0.2, fd99::2");
        let ends = lab.both(words);
        for family in [0, 1] {
            let (there, here) = (inside(1)[family], inside(2)[family]);
            stream(b, a, there);
            stream(a, b, here);
            datagrams(b, a, [there, here], &[1, 1200, 8000]);
        }
        for host in [a, b] {
            assert_eq!(lab.counter(host, "dropped_malformed"), 0);
            assert_eq!(lab.counter(host, "dropped_source"), 0);
        }
        drop(ends);
        assert!(
            !has_interface(a, "ta") && !has_interface(b, "tb"),
            "killed, and still there"
        );
    }
}

/// The kernel would let programs bind the IPv6 address only some time after `up` gave it to the interface.
#[test]
fn up__its_addresses_are_there_at_once() {
    let Some(lab) = Lab::new() else { return };
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let _ends = lab.both(&[]);
    let a = lab.hosts.a();
    let read = || fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
    let all = a.enter_thread(read).unwrap();
    let line = all.lines().find(|it| it.starts_with("fd99")).expect(&all);
    let flags = line.split_whitespace().nth(4).unwrap();
    let flags = u32::from_str_radix(flags, 16).unwrap();
    assert!(flags & nix::libc::IFA_F_NODAD != 0, "{line}");
    for address in inside(1) {
        let bound = a.enter_thread(|| UdpSocket::bind((address, 0)));
        bound.unwrap().expect("its own address");
    }
}

#[test]
fn up__goes_on_after_a_restart_of_either_end() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let [mut of_a, mut of_b] = lab.both(&[]);
    for restarted in [0, 1] {
        match restarted {
            0 => {
                drop(of_a);
                of_a = lab.up(a, &["./ta.conf"]);
            }
            _ => {
                drop(of_b);
                of_b = lab.up(b, &["./tb.conf"]);
            }
        }
        until("there", || has_interface(a, "ta") && has_interface(b, "tb"));
        lab.wait_connected();
        datagrams(b, a, [inside(1)[0], inside(2)[0]], &[100]);
        datagrams(a, b, [inside(2)[0], inside(1)[0]], &[100]);
    }
    drop((of_a, of_b));
}

#[test]
fn up__refuses_sources_that_are_not_the_peer_s() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    // Not the address that B has.
    lab.configure(Outside::V4, "10.9.0.3, fd99::2");
    let ends = lab.both(&[]);
    let there = inside(1)[0];
    let receiver = a
        .enter_thread(|| UdpSocket::bind((there, 0)).unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let sender = b
        .enter_thread(|| UdpSocket::bind((inside(2)[0], 0)).unwrap())
        .unwrap();
    until("refused", || {
        sender
            .send_to(b"spoofed", receiver.local_addr().unwrap())
            .unwrap();
        lab.counter(a, "dropped_source") > 3
    });
    assert!(receiver.recv_from(&mut [0; 100]).is_err());
    // The other family is its own.
    datagrams(b, a, [inside(1)[1], inside(2)[1]], &[100]);
    drop(ends);
}

/// The address of the side that called changes, and the connection goes on: it is the same, only elsewhere.
#[test]
fn up__follows_a_peer_whose_address_changes() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    datagrams(b, a, [inside(1)[0], inside(2)[0]], &[100]);
    let links = b.rtnetlink().unwrap();
    let before = b.ipv4().octets();
    let after = [before[0], before[1], before[2], before[3] + 100];
    // In this order: the kernel removes the second address of a network with the first.
    links.remove_address(b.device(), before.into(), 24).unwrap();
    links.assign_address(b.device(), after.into(), 24).unwrap();
    let after = IpAddr::from(after).to_string();
    until("followed", || {
        // The host of B makes its routes anew only when it sends.
        let sender = b
            .enter_thread(|| UdpSocket::bind((inside(2)[0], 0)).unwrap())
            .unwrap();
        let _ = sender.send_to(b"here", (inside(1)[0], 9));
        lab.shown(a).contains(&after)
    });
    datagrams(b, a, [inside(1)[0], inside(2)[0]], &[100]);
    datagrams(a, b, [inside(2)[0], inside(1)[0]], &[100]);
    drop(ends);
}

/// B knows A and C, whose networks overlap: the longest prefix decides.
#[test]
fn up__two_peers_with_networks_of_their_own() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.0/24");
    lab.configure_third("10.9.0.3/24");
    let ends = [
        lab.up(a, &["./ta.conf"]),
        lab.up(b, &["./tb.conf"]),
        lab.up(b, &["./tc.conf"]),
    ];
    until("both connected", || {
        let shown = lab.shown(a);
        shown.contains("\"connected_s\":") && !shown.contains("\"connected_s\":null")
    });
    let receiver = a
        .enter_thread(|| UdpSocket::bind((inside(1)[0], 0)).unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    for (host, device) in [(2, "tb"), (3, "tc")] {
        let from = SocketAddr::new(inside(host)[0], 0);
        let sender = b.enter_thread(|| {
            let socket = UdpSocket::bind(from).unwrap();
            let name = std::ffi::OsString::from(device);
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::BindToDevice, &name)
                .unwrap();
            socket
        });
        let sender = sender.unwrap();
        sender
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        until("answered", || {
            sender
                .send_to(&[host], receiver.local_addr().unwrap())
                .unwrap();
            let mut came = [0; 8];
            let Ok((1, source)) = receiver.recv_from(&mut came) else {
                return false;
            };
            if came[0] != host {
                return false;
            }
            assert_eq!(source.ip(), inside(host)[0]);
            receiver.send_to(&[host + 100], source).unwrap();
            let answer = sender.recv_from(&mut came);
            answer.is_ok() && came[0] == host + 100
        });
    }
    assert_eq!(lab.counter(a, "dropped_source"), 0);
    drop(ends);
}

#[test]
fn down__ends_it_and_a_second_up_of_one_name_fails() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.hosts.a();
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let mut up = lab.up(a, &["./ta.conf"]);
    until("up", || lab.shown(a).contains("\"interface\":\"ta\""));
    let second = lab.output(a, &["up", "./ta.conf"]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && said.contains("up already"),
        "{said}"
    );
    let down = lab.output(a, &["down", "ta"]);
    assert!(down.status.success(), "{down:?}");
    assert!(!has_interface(a, "ta"));
    assert!(up.0.wait().unwrap().success());
    let again = lab.output(a, &["down", "ta"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("not up"), "{said}");
}

#[test]
fn up__says_what_is_wrong() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("tun9.conf");
    fs::write(&file, "[Interface]\nAddress = 10.0.0.1/40\n").unwrap();
    let run = || Command::new(PROGRAM).arg("up").arg(&file).output().unwrap();
    let failed = run();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        !failed.status.success() && said.contains("line 2"),
        "{said}"
    );
    fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&run().stderr).into_owned();
    assert!(
        said.contains("tun9.conf") && said.contains("No such file"),
        "{said}"
    );
}

/// Packets longer than the outer MTU are cut by the transport, unseen inside.
#[test]
fn up__a_network_outside_whose_packets_are_shorter() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    lab.hosts.set_mtu(1300).unwrap();
    for family in [0, 1] {
        let (there, here) = (inside(1)[family], inside(2)[family]);
        datagrams(b, a, [there, here], &[1372, 8000]);
        datagrams(a, b, [here, there], &[1372, 8000]);
        stream(b, a, there);
    }
    drop(ends);
}

/// The host of the sender refuses packets longer than the MTU inside that must not be cut.
#[test]
fn up__a_packet_too_long_that_must_not_be_cut() {
    let Some(lab) = Lab::new() else { return };
    let b = lab.hosts.b();
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    let bound = b.enter_thread(|| UdpSocket::bind((inside(2)[1], 0)));
    let sender = bound.unwrap().unwrap();
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::Ipv6DontFrag, &true).unwrap();
    sender.connect((inside(1)[1], 9)).unwrap();
    assert!(sender.send(&[0; 1372]).is_ok());
    let refused = sender.send(&[0; 1373]).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EMSGSIZE));
    drop(ends);
}
