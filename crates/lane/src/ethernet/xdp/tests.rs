//! The program at a host's end of a veth pair, and frames that anybody on the segment can send.
#![allow(non_snake_case)]

use super::*;
use crate::ethernet::Station;
use crate::ethernet::tests::{hosts, inside, own_address};
use netlab::netns::Namespace;

const RULES: Rules = Rules {
    slots: 4,
    exclusive: true,
};

/// At the interface of `host`.
fn attach(host: &Namespace, rules: Rules) -> Result<Program, NoXdp> {
    let station = Station::of(own_address(host, 0)).expect("one");
    inside(host, || Program::attach(station.interface, rules))
}

/// What `ip link` says of the interface of `host`.
fn shown(host: &Namespace) -> String {
    let output = host
        .command("ip")
        .args(["link", "show", "dev", host.device()])
        .output();
    String::from_utf8_lossy(&output.expect("ip").stdout).into_owned()
}

#[test]
fn attach__refuses_a_second_and_detaches_with_the_first() {
    let Some(hosts) = hosts(9000) else {
        return;
    };
    let first = attach(hosts.b(), RULES).expect("attached");
    // Run by the driver: generic mode has another name.
    assert!(
        shown(hosts.b()).contains("prog/xdp id"),
        "{}",
        shown(hosts.b())
    );
    let second = attach(hosts.b(), RULES).expect_err("taken");
    assert_eq!(second, NoXdp::Taken);
    assert!(second.to_string().contains("already"), "{second}");
    drop(first);
    assert!(!shown(hosts.b()).contains("xdp"), "{}", shown(hosts.b()));
    attach(hosts.b(), RULES).expect("free again");
}
