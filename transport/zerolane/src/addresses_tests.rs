//! Tests that addresses are taken in any form, and that mistakes are named.
#![allow(non_snake_case)]
use super::*;

#[test]
fn resolved__is_the_same_in_every_form() {
    let (ip, port) = (Ipv4Addr::LOCALHOST, 9);
    let one = vec![SocketAddr::from((ip, port))];
    let is_one = |found: Result<Vec<SocketAddr>>| assert_eq!(found.expect("found"), one);
    let lane = LaneChoice::Best;
    is_one(resolved("127.0.0.1:9", lane));
    let text = String::from("127.0.0.1:9");
    is_one(resolved(&text, lane));
    is_one(resolved(text, lane));
    is_one(resolved(("127.0.0.1", port), lane));
    is_one(resolved((String::from("127.0.0.1"), port), lane));
    is_one(resolved((ip, port), lane));
    is_one(resolved((IpAddr::V4(ip), port), lane));
    is_one(resolved(SocketAddrV4::new(ip, port), lane));
    is_one(resolved(one[0], lane));
    is_one(resolved(&one[..], lane));
    is_one(resolved(one.clone(), lane));
    let six = resolved((Ipv6Addr::LOCALHOST, port), lane).expect("found");
    assert_eq!(six, resolved("[::1]:9", lane).expect("found"));
    assert!(matches!(resolved(Vec::new(), lane), Err(Error::NoAddress)));
}

#[test]
fn resolved__takes_interfaces_by_name() {
    let by_name = resolved("[fe80::1%lo]:9", LaneChoice::Udp).expect("there");
    let by_host = resolved(("fe80::1%lo", 9), LaneChoice::Udp).expect("there");
    assert_eq!(by_name, by_host);
    let [SocketAddr::V6(it)] = by_name[..] else {
        panic!("{by_name:?}");
    };
    assert!(it.scope_id() != 0 && it.port() == 9);
    let lo = format!("[fe80::1%{}]:9", it.scope_id());
    assert_eq!(resolved(lo, LaneChoice::Udp).expect("there"), by_name);
    let gone = resolved("[fe80::1%no-such-one]:9", LaneChoice::Udp);
    let gone = gone.expect_err("no interface").to_string();
    assert!(gone.contains("no interface no-such-one"), "{gone}");
}
