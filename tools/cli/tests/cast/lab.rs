//! Tests casts between hosts, which are namespaces on an emulated switch.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use netlab::lab::{Lab, LabConfig};
use netlab::netns;
use netsim::link::{LinkConfig, Loss};

use crate::content::content;
use crate::running::{Casting, Place, Waiting, addresses};

/// Hosts on ports of one rate. The first is the source.
pub(crate) struct Network {
    lab: Lab,
    pub(crate) place: Place,
}

pub(crate) fn link(mbps: u64) -> LinkConfig {
    LinkConfig {
        rate_bits_per_s: Some(mbps * 1_000_000),
        ..LinkConfig::default()
    }
}

impl Network {
    /// `None` without root.
    pub(crate) fn new(hosts: usize, mbps: u64) -> Option<Network> {
        Network::over(hosts, link(mbps))
    }

    /// As [`Network::new`], with this link to each host.
    fn over(hosts: usize, link: LinkConfig) -> Option<Network> {
        if !netns::is_permitted() {
            println!("skipped: network namespaces need root");
            return None;
        }
        let config = LabConfig {
            prefix: "cst".into(),
            hosts: hosts + 1,
            interface_bits_per_s: link.rate_bits_per_s,
            link,
            ..LabConfig::default()
        };
        Some(Network {
            lab: Lab::start(config).unwrap(),
            place: Place::new(),
        })
    }

    fn command(&self, host: usize) -> Command {
        let command = self.lab.host(host).command(env!("CARGO_BIN_EXE_zerolane"));
        self.place.prepare(command)
    }

    /// Starts a receiver on the host of this index.
    pub(crate) fn wait(&self, index: usize, target: &Path) -> Waiting {
        self.wait_as(index, target, &[])
    }

    /// As [`Network::wait`], with these options.
    fn wait_as(&self, index: usize, target: &Path, options: &[&str]) -> Waiting {
        let listen = format!("{}:9184", self.lab.host(index + 1).ipv4());
        Waiting::start(self.command(index + 1), &listen, options, target)
    }

    pub(crate) fn wait_all(&self, hosts: usize) -> Vec<Waiting> {
        (0..hosts)
            .map(|it| self.wait(it, &self.place.target(it)))
            .collect()
    }

    pub(crate) fn cast(&self, source: &Path, hosts: usize, options: &[&str]) -> Casting {
        let names: Vec<String> = (0..hosts)
            .map(|it| self.lab.host(it + 1).ipv4().to_string())
            .collect();
        Casting::start(self.command(0), options, source, &names)
    }

    pub(crate) fn slow_down(&self, index: usize, mbps: u64) {
        self.lab.set_link(index + 1, link(mbps));
    }

    pub(crate) fn set_up(&self, index: usize, up: bool) {
        self.lab.set_up(index + 1, up);
    }

    /// Bytes that each host's interface has received and sent, the source first.
    pub(crate) fn carried(&self) -> Vec<[u64; 2]> {
        let of = |host: &netns::Namespace| {
            let at = host.counters().unwrap()[0];
            [at.received, at.sent]
        };
        self.lab.hosts().map(of).collect()
    }
}

#[test]
fn chain__of_four_hosts_one_dies_one_is_slow_and_one_comes_late() {
    let Some(network) = Network::new(4, 100) else {
        return;
    };
    let bytes = content(1, 14_000_000);
    let source = network.place.file("source", &bytes);
    let mut hosts = network.wait_all(3);
    network.slow_down(2, 8);
    // On a busy machine the test notices seconds late, and the host that dies must not have finished by then.
    let casting = network.cast(&source, 4, &["--wait", "1", "--limit", "3MB/s"]);
    network
        .place
        .wait_until("some has come", || network.place.partly(1) > 1_000_000);
    hosts.remove(1).kill();
    hosts.push(network.wait(3, &network.place.target(3)));
    let (code, summary) = casting.end();
    assert_eq!(code, Some(5), "{summary}");
    assert_eq!(
        summary["failed"].as_array().map(Vec::len),
        Some(1),
        "{summary}"
    );
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!([0, 2, 3].iter().all(|it| network.place.has(*it, &bytes)));
}

/// A host without CPU time counts as slow, too: the limit asks little of the others.
#[test]
fn slow__a_host_is_left_out_or_waited_for_as_the_option_says() {
    let Some(network) = Network::new(4, 100) else {
        return;
    };
    const SLOW: usize = 2;
    for (policy, megabytes, mbps, exit) in [("drop", 24, 3, 5), ("wait", 6, 10, 0)] {
        network.slow_down(SLOW, mbps);
        let name = |it: usize| network.place.path(&format!("{policy}-{it}"));
        let bytes = content(6, megabytes * 1_000_000);
        let source = network.place.file(policy, &bytes);
        let hosts: Vec<_> = (0..4).map(|it| network.wait(it, &name(it))).collect();
        let (code, summary) = network
            .cast(&source, 4, &["--slow", policy, "--limit", "4MB/s"])
            .end();
        assert_eq!(code, Some(exit), "{summary}");
        let dropped = exit == 5;
        let failed = summary["failed"].as_array().unwrap();
        assert_eq!(failed.len(), usize::from(dropped), "{summary}");
        for it in failed {
            let slow = network.lab.host(SLOW + 1).ipv4().to_string();
            assert_eq!(it["host"], *slow, "{summary}");
            let why = it["reason"].as_str().unwrap_or_default();
            assert!(why.contains("slow"), "{summary}");
        }
        for (index, host) in hosts.into_iter().enumerate() {
            let (code, _, why) = host.end();
            let has_it = !(dropped && index == SLOW);
            assert_eq!(code == Some(0), has_it, "{policy}, host {index}: {why}");
            let there = std::fs::read(name(index));
            assert_eq!(there.is_ok_and(|it| it == bytes), has_it, "host {index}");
        }
    }
}

/// A lost message arrives after later ones and after those of other hosts. No peer may count that as a fault.
#[test]
fn loss__of_what_is_said_at_the_begin_costs_no_host() {
    const HOSTS: usize = 8;
    let lossy = LinkConfig {
        loss: Loss::Random(0.05),
        ..link(1000)
    };
    let Some(network) = Network::over(HOSTS, lossy) else {
        return;
    };
    for round in 0..10 {
        let bytes = content(round, 600_000);
        let source = network.place.file(&format!("source-{round}"), &bytes);
        let target = |it| network.place.target(100 * round as usize + it);
        let hosts: Vec<_> = (0..HOSTS).map(|it| network.wait(it, &target(it))).collect();
        let (code, summary) = network.cast(&source, HOSTS, &[]).end();
        assert_eq!(code, Some(0), "{summary}");
        for (index, host) in hosts.into_iter().enumerate() {
            let (code, _, why) = host.end();
            let blames = why.contains("cut off");
            assert!(code == Some(0) && !blames, "host {index}: {code:?} {why}");
            assert!(
                std::fs::read(target(index)).unwrap() == bytes,
                "host {index}"
            );
        }
    }
}

/// Addresses of one link: hosts also reach each other by them, although a host cannot tell another which interface to
/// use.
#[test]
fn link_local__hosts_reach_the_source_and_each_other() {
    let Some(network) = Network::new(3, 100) else {
        return;
    };
    if network.lab.host(0).ipv6().is_none() {
        println!("skipped: no IPv6");
        return;
    }
    let own = |host: usize| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa0 + host as u16);
    for (index, host) in network.lab.hosts().enumerate() {
        let links = host.rtnetlink().unwrap();
        let assigned = links.assign_address(host.device(), own(index).into(), 64);
        assigned.unwrap();
    }
    let bytes = content(11, 6_000_000);
    let source = network.place.file("source", &bytes);
    let wait = |index: usize| {
        let device = network.lab.host(index + 1).device();
        let listen = match index {
            1 => format!("[{}%{device}]:9184", own(index + 1)),
            _ => "[::]:9184".to_owned(),
        };
        let target = network.place.target(index);
        Waiting::start(network.command(index + 1), &listen, &[], &target)
    };
    let hosts: Vec<_> = (0..3).map(wait).collect();
    let device = network.lab.host(0).device();
    let names: Vec<_> = (1..=3).map(|it| format!("{}%{device}", own(it))).collect();
    let casting = Casting::start(network.command(0), &[], &source, &names);
    let (code, summary) = casting.end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| network.place.has(it, &bytes)));
    // In a chain, two hosts received from another host.
    let [_, sent] = network.carried()[0];
    assert!(sent < 2 * bytes.len() as u64, "{sent} {summary}");
}

#[test]
fn network__that_is_split_and_heals() {
    let Some(network) = Network::new(3, 100) else {
        return;
    };
    let bytes = content(2, 24_000_000);
    let source = network.place.file("source", &bytes);
    let hosts = network.wait_all(3);
    let casting = network.cast(&source, 3, &[]);
    network
        .place
        .wait_until("a quarter has come", || network.place.partly(0) > 6_000_000);
    network.set_up(0, false);
    std::thread::sleep(std::time::Duration::from_secs(4));
    network.set_up(0, true);
    let (_, summary) = casting.end();
    let ended: Vec<_> = hosts.into_iter().map(Waiting::end).collect();
    // The others do not wait for a host that is away longer than they need. If that host finishes, its content is
    // right.
    assert!(
        ended[1].0 == Some(0) && ended[2].0 == Some(0),
        "{summary} {ended:?}"
    );
    assert!(network.place.has(1, &bytes) && network.place.has(2, &bytes));
    assert!(
        ended[0].0 != Some(0) || network.place.has(0, &bytes),
        "{summary}"
    );
}

/// The cast lasts longer than the split, so the host that was away receives everything after it.
#[test]
#[ignore = "it takes a minute: .ci/run runs it"]
fn network__that_is_split_for_half_a_minute_and_heals() {
    let Some(network) = Network::new(3, 100) else {
        return;
    };
    let bytes = content(5, 24_000_000);
    let source = network.place.file("source", &bytes);
    // Longer than the split: a host that receives nothing for this long gives up.
    let wait = |it| network.wait_as(it, &network.place.target(it), &["--timeout", "60"]);
    let hosts: Vec<_> = (0..3).map(wait).collect();
    let casting = network.cast(&source, 3, &["--limit", "500kB/s"]);
    network
        .place
        .wait_until("something has come", || network.place.partly(1) > 2_000_000);
    network.set_up(1, false);
    std::thread::sleep(std::time::Duration::from_secs(30));
    network.set_up(1, true);
    let (code, summary) = casting.end();
    assert_eq!(code, Some(0), "{summary}");
    hosts.into_iter().for_each(|it| drop(it.summary()));
    assert!((0..3).all(|it| network.place.has(it, &bytes)));
}

/// A block device over a file.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Loop {
        let mut losetup = Command::new("losetup");
        let output = losetup.args(["--find", "--show"]).arg(file).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn device__to_a_longer_device_and_a_file_and_not_to_a_shorter_one() {
    if !netns::is_permitted() {
        println!("skipped: block devices need root");
        return;
    }
    let place = Place::new();
    let mut bytes = content(4, 4 << 20);
    // Chunks of zeros, which are not sent, where the devices have other bytes.
    bytes[1 << 20..2 << 20].fill(0);
    let source = Loop::over(&place.file("source", &bytes));
    let longer = place.file("longer", &vec![7; 5 << 20]);
    let shorter = place.file("shorter", &vec![7; 3 << 20]);
    let devices = [Loop::over(&longer), Loop::over(&shorter)];
    let wait = |options: &[&str], target: &Path| {
        Waiting::start(place.command(), "127.0.0.1:0", options, target)
    };
    // Without --force a receiver refuses to wait at a device.
    let refused = place
        .command()
        .args(["receive", "--listen", "127.0.0.1:0", "--to", &devices[0].0])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let mut hosts = vec![
        wait(&["--force"], Path::new(&devices[0].0)),
        wait(&[], &place.target(1)),
        wait(&["--force"], Path::new(&devices[1].0)),
    ];
    let casting = Casting::start(
        place.command(),
        &[],
        Path::new(&source.0),
        &addresses(&hosts),
    );
    let (code, summary) = casting.end();
    assert_eq!(code, Some(5), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("has 3145728 bytes"), "{summary}");
    // The host waits for another cast.
    hosts.pop().unwrap().kill();
    let ended: Vec<_> = hosts.into_iter().map(|it| it.end().0).collect();
    assert_eq!(ended, [Some(0), Some(0)]);
    assert!(place.has(1, &bytes));
    drop(devices);
    let longer = std::fs::read(longer).unwrap();
    assert!(longer[..4 << 20] == bytes && longer[4 << 20..].iter().all(|it| *it == 7));
    assert!(std::fs::read(shorter).unwrap().iter().all(|it| *it == 7));
}

/// A small file system in memory.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn disk__that_is_full_is_named_and_the_others_get_it() {
    let Some(network) = Network::new(3, 100) else {
        return;
    };
    let bytes = content(3, 12_000_000);
    let source = network.place.file("source", &bytes);
    let small = Small(network.place.path("small"));
    std::fs::create_dir(&small.0).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&small.0);
    assert!(mount.status().unwrap().success());
    let hosts = vec![
        network.wait(0, &network.place.target(0)),
        network.wait(1, &small.0),
        network.wait(2, &network.place.target(2)),
    ];
    let (code, summary) = network.cast(&source, 3, &[]).end();
    assert_eq!(code, Some(5), "{summary}");
    let why = summary["failed"][0]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("No space left on device"), "{summary}");
    let ended: Vec<_> = hosts.into_iter().map(|it| it.end().0).collect();
    assert_eq!(ended, [Some(0), Some(1), Some(0)]);
    assert!(network.place.has(0, &bytes) && network.place.has(2, &bytes));
}
