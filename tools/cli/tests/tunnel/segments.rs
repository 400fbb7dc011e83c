//! Tests UDP that the kernel leaves uncut (USO): sent with `UDP_SEGMENT`, received with `UDP_GRO`.

use std::collections::HashSet;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlab::netns::{Namespace, TokenBucket};
use nix::cmsg_space;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};

use crate::content::content;
use crate::lab::{Lab, Outside, inside, stream, until};

/// Payload of a datagram, bytes; the last of a send is shorter.
const SEGMENT: usize = 1200;
const LAST: usize = 700;
/// Datagrams of a send, and sends.
const TOGETHER: u64 = 40;
const SENDS: u64 = 10;

fn datagram(number: u64) -> Vec<u8> {
    let len = match (number + 1) % TOGETHER {
        0 => LAST,
        _ => SEGMENT,
    };
    [&number.to_le_bytes()[..], &content(number, len - 8)].concat()
}

/// Takes what came by one call: the numbers of its datagrams, whose content is right.
fn take(receiver: &UdpSocket) -> Vec<u64> {
    let mut bytes = vec![0; 1 << 16];
    let mut space = cmsg_space!(i32);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let Ok(message) = recvmsg::<()>(receiver.as_raw_fd(), &mut into, Some(&mut space), flags)
    else {
        return vec![];
    };
    let len = message.bytes;
    let segment = message.cmsgs().unwrap().find_map(|it| match it {
        ControlMessageOwned::UdpGroSegments(segment) => Some(segment as usize),
        _ => None,
    });
    let datagrams = bytes[..len].chunks(segment.unwrap_or(len).max(1));
    let number = |it: &[u8]| {
        let number = u64::from_le_bytes(*it.first_chunk().unwrap());
        assert!(it == datagram(number), "other bytes in {number}");
        number
    };
    datagrams.map(number).collect()
}

/// Sends all from `from` to `to` until they have come. Returns how many calls took more than one, and how many sends
/// there were.
fn send_all(from: &Namespace, to: &Namespace, addresses: [SocketAddr; 2]) -> (u64, u64) {
    let open = |host: &Namespace, at| host.enter_thread(|| UdpSocket::bind(at).unwrap()).unwrap();
    let (receiver, sender) = (open(to, addresses[0]), open(from, addresses[1]));
    setsockopt(&receiver, UdpGroSegment, &true).unwrap();
    setsockopt(&sender, UdpGsoSegment, &(SEGMENT as i32)).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let (mut whole, mut sends) = (0, 0);
    for send in 0..SENDS {
        let numbers = send * TOGETHER..(send + 1) * TOGETHER;
        let bytes: Vec<u8> = numbers.clone().flat_map(datagram).collect();
        let mut missing: HashSet<u64> = numbers.collect();
        until("received", || {
            sender.send(&bytes).unwrap();
            sends += 1;
            loop {
                let came = take(&receiver);
                whole += u64::from(came.len() > 1);
                missing.retain(|it| !came.contains(it));
                if came.is_empty() || missing.is_empty() {
                    return missing.is_empty();
                }
            }
        });
    }
    (whole, sends)
}

#[test]
fn up__udp_crosses_uncut_and_is_cut_for_an_end_without_offload() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    for (of_a, of_b) in [
        (&[][..], &[][..]),
        (&["--no-offload"][..], &[]),
        (&[], &["--no-offload"]),
    ] {
        lab.configure(Outside::V4, "10.9.0.2, fd99::2");
        let ends = [
            lab.up(a, &[&["./ta.conf"], of_a].concat()),
            lab.up(b, &[&["./tb.conf"], of_b].concat()),
        ];
        lab.wait_connected();
        let offload = |host, words: &[&str]| {
            let whole = lab.shown(host).contains("\"offload\":\"tcp_and_udp\"");
            assert!(words.is_empty() || !whole);
            whole
        };
        let whole = [offload(a, of_a), offload(b, of_b)];
        if of_a.is_empty() && of_b.is_empty() && whole != [true; 2] {
            eprintln!("skipped: this kernel cuts UDP (before Linux 6.2)");
            return;
        }
        for family in [0, 1] {
            let addresses = [inside(1)[family], inside(2)[family]].map(|it| SocketAddr::new(it, 0));
            let before = lab.counter(b, "sent");
            let (taken_whole, sends) = send_all(b, a, addresses);
            let sent = lab.counter(b, "sent") - before;
            let datagrams = sends * TOGETHER;
            match whole {
                // Neighbours are asked for, too.
                [_, true] => assert!(sent < datagrams / 4, "{sent} for {datagrams}"),
                [_, false] => assert!(sent >= SENDS * TOGETHER, "{sent} for {datagrams}"),
            }
            match whole {
                [true, true] => assert!(taken_whole >= SENDS, "{taken_whole} of {sends}"),
                _ => assert_eq!(taken_whole, 0, "nobody merges them"),
            }
        }
        for host in [a, b] {
            assert_eq!(lab.counter(host, "dropped_malformed"), 0);
            assert_eq!(lab.counter(host, "dropped_by_host"), 0);
        }
        drop(ends);
    }
}

/// A slow path gets shorter datagrams, for which the sender's end cuts what its kernel left uncut. The pieces are uncut
/// again where they have several segments.
#[test]
fn up__udp_is_cut_for_a_slow_path() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    if !lab.shown(b).contains("\"offload\":\"tcp_and_udp\"") {
        eprintln!("skipped: this kernel cuts UDP (before Linux 6.2)");
        return;
    }
    let slow = TokenBucket {
        rate_bytes_per_s: 12_500_000,
        burst_bytes: 64 << 10,
        limit_bytes: 256 << 10,
    };
    let links = b.rtnetlink().unwrap();
    links.set_token_bucket(b.device(), slow).unwrap();
    for family in [0, 1] {
        let addresses = [inside(1)[family], inside(2)[family]].map(|it| SocketAddr::new(it, 0));
        // Until the connection knows how fast the path is.
        until("cut", || {
            stream(b, a, addresses[0].ip());
            let before = lab.counter(b, "sent");
            let (whole, sends) = send_all(b, a, addresses);
            let sent = lab.counter(b, "sent") - before;
            whole > 0 && sent > 3 * sends
        });
    }
    for host in [a, b] {
        assert_eq!(lab.counter(host, "dropped_malformed"), 0);
        assert_eq!(lab.counter(host, "dropped_by_host"), 0);
    }
    drop(ends);
}
