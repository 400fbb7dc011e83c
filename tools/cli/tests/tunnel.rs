//! Tests `zerolane up`, `down` and `show` between two hosts in namespaces: with sockets of the kernel inside.

#![allow(non_snake_case)]

mod content;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use content::content;
use netlab::netns::{self, Namespace, Topology};
use zerolane::tun::{TunDevice, TunOffload};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");

/// Bounds how long a failure takes to show.
const PATIENCE: Duration = Duration::from_secs(40);
/// Bytes of a stream: many packets that nobody cut.
const STREAM: usize = 8 << 20;

/// Ends the process even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hosts, A and B, each with a configuration.
struct Lab {
    hosts: Topology,
    base: tempfile::TempDir,
    keys: [String; 2],
}

/// Where B calls A.
#[derive(Clone, Copy)]
enum Outside {
    V4,
    V6,
}

impl Lab {
    /// `None`, after printing the reason, where namespaces are not allowed.
    fn new() -> Option<Lab> {
        if !netns::is_permitted() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("skipped: there is no /dev/net/tun");
            return None;
        }
        let base = tempfile::tempdir().unwrap();
        let keys = ["a", "b"].map(|name| {
            let file = base.path().join(name);
            let made = Command::new(PROGRAM)
                .arg("keygen")
                .arg(file)
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
            String::from_utf8(made.stdout).unwrap().trim().to_owned()
        });
        Some(Lab {
            hosts: Topology::pair("tun", 1500).unwrap(),
            base,
            keys,
        })
    }

    /// Writes the configurations; B may use `allowed_of_b`.
    fn configure(&self, outside: Outside, allowed_of_b: &str) {
        let [a, b] = &self.keys;
        let at = |name: &str| self.base.path().join(name).display().to_string();
        let endpoint = match outside {
            Outside::V4 => IpAddr::from(self.hosts.a().ipv4()),
            Outside::V6 => self.hosts.a().ipv6().expect("it has one").into(),
        };
        let endpoint = SocketAddr::new(endpoint, 9186);
        let of_a = format!(
            "[Interface]\nIdentity = {}\nAddress = 10.9.0.1/24, fd99::1/64\nListenPort = 9186\n\
             [Peer]\nPublicKey = {b}\nAllowedIPs = {allowed_of_b}\n",
            at("a")
        );
        let of_b = format!(
            "[Interface]\nIdentity = {}\nAddress = 10.9.0.2/24, fd99::2/64\n\
             [Peer]\nPublicKey = {a}\nEndpoint = {endpoint}\nAllowedIPs = 10.9.0.1, fd99::1\n",
            at("b")
        );
        fs::write(at("ta.conf"), of_a).unwrap();
        fs::write(at("tb.conf"), of_b).unwrap();
    }

    fn command(&self, host: &Namespace, words: &[&str]) -> Command {
        let mut command = host.command(PROGRAM);
        command
            .current_dir(self.base.path())
            .env("ZEROLANE_HOME", self.base.path().join("home"))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .args(words);
        command
    }

    fn output(&self, host: &Namespace, words: &[&str]) -> Output {
        self.command(host, words).output().unwrap()
    }

    fn up(&self, host: &Namespace, words: &[&str]) -> Running {
        let command = &mut self.command(host, &[&["up"], words].concat());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Both ends, connected.
    fn both(&self, words: &[&str]) -> [Running; 2] {
        let a = self.up(self.hosts.a(), &[&["./ta.conf"], words].concat());
        let b = self.up(self.hosts.b(), &[&["./tb.conf"], words].concat());
        self.wait_connected();
        [a, b]
    }

    fn shown(&self, host: &Namespace) -> String {
        String::from_utf8(self.output(host, &["show", "--json"]).stdout).unwrap()
    }

    fn wait_connected(&self) {
        for host in [self.hosts.a(), self.hosts.b()] {
            until("connected", || {
                let shown = self.shown(host);
                shown.contains("\"connected_s\":") && !shown.contains("\"connected_s\":null")
            });
        }
    }

    /// A number in what `show` tells of the only peer.
    fn counter(&self, host: &Namespace, name: &str) -> u64 {
        let shown = self.shown(host);
        let (_, rest) = shown
            .split_once(&format!("\"{name}\":"))
            .expect("a counter");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "not {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn inside(host: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([10, 9, 0, host]),
        Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into()).into(),
    ]
}

/// Sends content both ways at once over one TCP connection from `from` to `to`, which has `address`.
fn stream(from: &Namespace, to: &Namespace, address: IpAddr) {
    let listener = to
        .enter_thread(|| TcpListener::bind((address, 0)).unwrap())
        .unwrap();
    let at = listener.local_addr().unwrap();
    let exchange = |mut stream: TcpStream, sends: u64, expects: u64| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&content(sends, STREAM)).unwrap());
            let mut came = vec![0; STREAM];
            stream.read_exact(&mut came).unwrap();
            assert!(came == content(expects, STREAM), "other bytes");
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(listener.accept().unwrap().0, 1, 2));
        let called = from.enter_thread(|| TcpStream::connect_timeout(&at, PATIENCE).unwrap());
        exchange(called.unwrap(), 2, 1);
    });
}

/// Sends datagrams of these lengths from `from` to `to` until each has come.
fn datagrams(from: &Namespace, to: &Namespace, addresses: [IpAddr; 2], lengths: &[usize]) {
    let [there, here] = addresses;
    let receiver = to
        .enter_thread(|| UdpSocket::bind((there, 0)).unwrap())
        .unwrap();
    let sender = from
        .enter_thread(|| UdpSocket::bind((here, 0)).unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    for &len in lengths {
        let sent = content(len as u64, len);
        until("received", || {
            sender
                .send_to(&sent, receiver.local_addr().unwrap())
                .unwrap();
            let mut came = vec![0; 1 << 16];
            receiver
                .recv_from(&mut came)
                .is_ok_and(|(len, _)| came[..len] == sent)
        });
    }
}

fn has_interface(host: &Namespace, name: &str) -> bool {
    host.enter_thread(|| {
        let all = nix::net::if_::if_nameindex().unwrap();
        all.iter().any(|it| it.name().to_bytes() == name.as_bytes())
    })
    .unwrap()
}

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
    let at = |name: &str| lab.base.path().join(name).display().to_string();
    let made = Command::new(PROGRAM)
        .arg("keygen")
        .arg(at("c"))
        .output()
        .unwrap();
    let c = String::from_utf8(made.stdout).unwrap();
    let endpoint = SocketAddr::new(a.ipv4().into(), 9186);
    let of_c = format!(
        "[Interface]\nIdentity = {}\nAddress = 10.9.0.3/24\nTable = off\n\
         [Peer]\nPublicKey = {}\nEndpoint = {endpoint}\nAllowedIPs = 10.9.0.1\n",
        at("c"),
        lab.keys[0]
    );
    fs::write(at("tc.conf"), of_c).unwrap();
    let of_a = fs::read_to_string(at("ta.conf")).unwrap();
    let of_a = format!(
        "{of_a}[Peer]\nPublicKey = {}\nAllowedIPs = 10.9.0.3\n",
        c.trim()
    );
    fs::write(at("ta.conf"), of_a).unwrap();
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

/// An address of A that only B's default route leads to.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Where a datagram from B to the far address comes from; `None`: it does not come.
fn source_at_far(lab: &Lab) -> Option<IpAddr> {
    let bound = lab.hosts.a().enter_thread(|| UdpSocket::bind((FAR, 0)));
    let receiver = bound.unwrap().unwrap();
    let wait = Some(Duration::from_millis(500));
    receiver.set_read_timeout(wait).unwrap();
    let bound = lab.hosts.b().enter_thread(|| UdpSocket::bind("0.0.0.0:0"));
    let to = receiver.local_addr().unwrap();
    bound.unwrap().unwrap().send_to(b"who", to).ok()?;
    let came = receiver.recv_from(&mut [0; 8]);
    came.ok().map(|(_, source)| source.ip())
}

/// Rules of tunnels that the kernel has at a host, IPv4 and IPv6.
fn rules(host: &Namespace) -> usize {
    ["-4", "-6"]
        .map(|family| {
            let listed = host.command("ip").args([family, "rule"]).output().unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            text.lines().filter(|it| it.contains("proto 157")).count()
        })
        .iter()
        .sum()
}

/// The peer is itself behind B's default route, so the datagrams of the tunnel must not go into it.
#[test]
fn up__a_default_route_through_a_peer() {
    let Some(lab) = Lab::new() else { return };
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: there is no program ip");
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let links = a.rtnetlink().unwrap();
    links.assign_address(a.device(), FAR.into(), 32).unwrap();
    let links = b.rtnetlink().unwrap();
    links.add_route(Ipv4Addr::UNSPECIFIED, 0, a.ipv4()).unwrap();
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let file = lab.base.path().join("tb.conf");
    let near = format!("Endpoint = {}:9186", a.ipv4());
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace(&near, &format!("Endpoint = {FAR}:9186"));
    let text = text.replace("10.9.0.1, fd99::1", "0.0.0.0/0, ::/0");
    fs::write(&file, text).unwrap();
    let [of_a, of_b] = lab.both(&[]);
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    stream(b, a, FAR.into());
    stream(b, a, inside(1)[1]);
    assert_eq!(
        rules(b),
        5,
        "main, outside and inside; nothing is outside in IPv6"
    );
    // Killed: the rules stay, without effect, until the next tunnel.
    drop(of_b);
    let outside = Some(IpAddr::from(b.ipv4()));
    until("outside", || source_at_far(&lab) == outside);
    assert_eq!(rules(b), 5);
    let mut of_b = lab.up(b, &["./tb.conf"]);
    lab.wait_connected();
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    assert_eq!(rules(b), 5, "no stale ones");
    // A restart of the far end is found again.
    drop(of_a);
    let of_a = lab.up(a, &["./ta.conf"]);
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    assert!(lab.output(b, &["down", "tb"]).status.success());
    assert!(of_b.0.wait().unwrap().success());
    assert_eq!(rules(b), 0);
    assert_eq!(source_at_far(&lab), outside);
    drop(of_a);
}

/// The line of a process's state that begins with `name`.
fn state(process: &Running, name: &str) -> String {
    let all = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// As root, and as a user that has CAP_NET_ADMIN, and may open the device as root does where it is not open to all.
#[test]
fn up__keeps_no_capability_but_one() {
    let Some(lab) = Lab::new() else { return };
    const NET_ADMIN: u64 = 1 << 12;
    const NOBODY: u32 = 65_534;
    if Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: there is no program setpriv");
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    for file in ["", "b", "tb.conf"] {
        std::os::unix::fs::chown(lab.base.path().join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let of_a = lab.up(a, &["./ta.conf"]);
    let mut command = b.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg("--inh-caps=+net_admin,+dac_override")
        .args(["--ambient-caps=+net_admin,+dac_override", PROGRAM])
        .args(["up", "./tb.conf"])
        .current_dir(lab.base.path())
        .env("ZEROLANE_HOME", lab.base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::null());
    let of_b = Running(command.spawn().unwrap());
    lab.wait_connected();
    datagrams(b, a, [inside(1)[0], inside(2)[0]], &[100, 8000]);
    for process in [&of_a, &of_b] {
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(state(process, set), format!("{NET_ADMIN:016x}"), "{set}");
        }
        for set in ["CapInh:", "CapAmb:"] {
            assert_eq!(state(process, set), format!("{:016x}", 0), "{set}");
        }
        assert_eq!(state(process, "NoNewPrivs:"), "1");
    }
    assert!(state(&of_b, "Uid:").starts_with("65534"));
    drop((of_a, of_b));
}

/// A user without any right runs an interface that another program made.
#[test]
fn up__an_interface_handed_over() {
    let Some(lab) = Lab::new() else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: there is no program setpriv");
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    for file in ["", "b", "tb.conf"] {
        std::os::unix::fs::chown(lab.base.path().join(file), Some(65_534), Some(65_534)).unwrap();
    }
    let made = b.enter_thread(|| TunDevice::open("given", TunOffload::TcpAndUdp));
    let made = made.unwrap().unwrap();
    let links = b.rtnetlink().unwrap();
    for (address, len) in inside(2).into_iter().zip([24, 64]) {
        links.assign_address("given", address, len).unwrap();
    }
    links.set_mtu("given", 1420).unwrap();
    links.set_up("given", true).unwrap();
    // A duplicate that the child inherits.
    let inherited = nix::unistd::dup(&made).unwrap();
    let number = inherited.as_raw_fd().to_string();
    let of_a = lab.up(a, &["./ta.conf"]);
    let mut command = b.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM])
        .args(["up", "./tb.conf", "--tun-fd", &number])
        .current_dir(lab.base.path())
        .env("ZEROLANE_HOME", lab.base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::null());
    let of_b = Running(command.spawn().unwrap());
    drop(inherited);
    lab.wait_connected();
    assert!(lab.shown(b).contains("\"interface\":\"given\""));
    stream(b, a, inside(1)[0]);
    datagrams(a, b, [inside(2)[1], inside(1)[1]], &[100, 8000]);
    assert_eq!(state(&of_b, "CapPrm:"), format!("{:016x}", 0));
    drop((of_a, of_b));
    let refused = lab.output(b, &["up", "./tb.conf", "--tun-fd", "0"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("--tun-fd 0") && said.contains("no TUN"),
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

/// The ends of a login from B to A by a script in place of ssh, until the test ends one of them.
#[test]
fn up__over_ssh_brings_up_both_ends_and_takes_both_down() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let script = lab.base.path().join("rsh");
    let programs = std::path::Path::new(PROGRAM).parent().unwrap();
    let text = format!(
        "while [ \"$1\" = -l ]; do shift 2; done\nshift\n\
         export SSH_CONNECTION='{} 1 {} 22' PATH='{}':\"$PATH\"\n\
         exec nsenter --net=/run/netns/{} sh -c \"exec $*\"\n",
        b.ipv4(),
        a.ipv4(),
        programs.display(),
        a.name()
    );
    fs::write(&script, text).unwrap();
    let host = format!("me@{}", a.ipv4());
    let rsh = format!("sh {}", script.display());
    let words = [
        &*host,
        "--rsh",
        &rsh,
        "--inside",
        "10.9.0.0/30,fd99::/126",
        "--name",
        "pair",
    ];
    for interrupted in [true, false] {
        let mut up = lab.up(b, &words);
        until("there", || {
            has_interface(a, "pair") && has_interface(b, "pair")
        });
        lab.wait_connected();
        for family in [0, 1] {
            stream(b, a, inside(2)[family]);
            stream(a, b, inside(1)[family]);
        }
        if interrupted {
            let id = nix::unistd::Pid::from_raw(up.0.id() as i32);
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        } else {
            assert!(lab.output(a, &["down", "pair"]).status.success());
        }
        let mut ended = None;
        until("ended", || {
            ended = up.0.try_wait().unwrap();
            ended.is_some()
        });
        let code = ended.and_then(|it| it.code());
        assert_eq!(code == Some(130), interrupted, "{code:?}");
        assert_ne!(code, Some(0));
        until("gone", || {
            !has_interface(a, "pair") && !has_interface(b, "pair")
        });
    }
}

/// A login over a real sshd, and another through the tunnel that it brought up.
#[test]
fn up__over_a_real_sshd_and_ssh_inside() {
    const SSHD: &str = "/usr/sbin/sshd";
    let Some(lab) = Lab::new() else { return };
    if !std::path::Path::new(SSHD).exists() {
        eprintln!("skipped: there is no program {SSHD}");
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let at = |name: &str| lab.base.path().join(name).display().to_string();
    // Like the service of the package.
    fs::create_dir_all("/run/sshd").unwrap();
    for key in ["host", "client"] {
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]);
        assert!(make.status().unwrap().success());
    }
    let programs = std::path::Path::new(PROGRAM).parent().unwrap();
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nSetEnv PATH={}:/usr/bin:/bin\nListenAddress 0.0.0.0:2222\n\
         PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
        at("host"),
        at("client.pub"),
        programs.display()
    );
    fs::write(at("sshd"), config).unwrap();
    let mut server = a.command(SSHD);
    server.args(["-De", "-f", &at("sshd")]).stdin(Stdio::null());
    let server = Running(server.stderr(Stdio::null()).spawn().unwrap());
    let options = [
        "-oStrictHostKeyChecking=no",
        "-oUserKnownHostsFile=/dev/null",
        "-oBatchMode=yes",
        "-oConnectTimeout=20",
        // It outlives the kill of the program that started it, and may outlive the network.
        "-oServerAliveInterval=1",
        "-F/dev/null",
        &format!("-i{}", at("client")),
    ];
    let login = |host: &str, command: &str| {
        let mut login = b.command("ssh");
        login
            .args(options)
            .args(["-p2222", &format!("root@{host}"), command]);
        login.stdin(Stdio::null()).output().unwrap()
    };
    let outside = a.ipv4().to_string();
    until("sshd listens", || login(&outside, "true").status.success());
    let host = format!("root@{outside}:2222");
    let rsh = format!("ssh {}", options.join(" "));
    let up = lab.up(
        b,
        &[
            &host,
            "--rsh",
            &rsh,
            "--inside",
            "10.9.0.0/30",
            "--name",
            "real",
        ],
    );
    until("there", || {
        has_interface(a, "real") && has_interface(b, "real")
    });
    lab.wait_connected();
    fs::write(at("file"), content(7, STREAM)).unwrap();
    until("copied", || {
        let copied = login("10.9.0.2", &format!("cat {}", at("file")));
        copied.stdout == content(7, STREAM)
    });
    drop(up);
    // Without its login, the other end goes too.
    until("gone", || {
        !has_interface(a, "real") && !has_interface(b, "real")
    });
    drop(server);
}

/// Whether a program is there; says so if not.
fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--help").output().is_ok();
    if !there {
        eprintln!("skipped: there is no program {program}");
    }
    there
}

#[test]
fn up__rsync_inside() {
    let Some(lab) = Lab::new() else { return };
    if !is_there("rsync") {
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    let at = |name: &str| lab.base.path().join(name);
    fs::create_dir(at("from")).unwrap();
    for n in 0..50 {
        let len = 1000 + 40_000 * n as usize;
        fs::write(at("from").join(n.to_string()), content(n, len)).unwrap();
    }
    let module = format!(
        "use chroot = no\nuid = 0\ngid = 0\n[it]\npath = {}\n",
        at("from").display()
    );
    fs::write(at("rsyncd.conf"), module).unwrap();
    let mut daemon = a.command("rsync");
    daemon
        .args([
            "--daemon",
            "--no-detach",
            "--address=10.9.0.1",
            "--port=8730",
        ])
        .arg(format!("--config={}", at("rsyncd.conf").display()))
        .stdin(Stdio::null());
    let daemon = Running(daemon.spawn().unwrap());
    until("copied", || {
        let mut copy = b.command("rsync");
        let copy = copy.args(["-a", "--timeout=20", "rsync://10.9.0.1:8730/it/"]);
        copy.arg(at("to")).status().unwrap().success()
    });
    for n in 0..50 {
        let len = 1000 + 40_000 * n as usize;
        assert!(fs::read(at("to").join(n.to_string())).unwrap() == content(n, len));
    }
    drop((daemon, ends));
}

#[test]
fn up__curl_and_nginx_inside() {
    let Some(lab) = Lab::new() else { return };
    if !is_there("curl") || !is_there("nginx") {
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    let base = lab.base.path().display();
    fs::write(lab.base.path().join("page"), content(5, STREAM)).unwrap();
    let configuration = format!(
        "daemon off; user root; pid {base}/pid; error_log stderr; events {{}}\n\
         http {{ access_log off; client_body_temp_path {base}/t1; proxy_temp_path {base}/t2;\n\
         fastcgi_temp_path {base}/t3; uwsgi_temp_path {base}/t4; scgi_temp_path {base}/t5;\n\
         server {{ listen 10.9.0.1:8080; listen [fd99::1]:8080; root {base}; }} }}\n"
    );
    let file = lab.base.path().join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    let mut server = a.command("nginx");
    server.arg("-c").arg(&file).stdin(Stdio::null());
    let mut server = Running(server.spawn().unwrap());
    for host in ["10.9.0.1", "[fd99::1]"] {
        let page = format!("http://{host}:8080/page");
        until("fetched", || {
            let mut fetch = b.command("curl");
            let fetched = fetch.args(["-gsS", "--max-time", "30", &page]).output();
            fetched.unwrap().stdout == content(5, STREAM)
        });
    }
    // It ends its workers only if it is asked.
    let id = nix::unistd::Pid::from_raw(server.0.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    server.0.wait().unwrap();
    drop(ends);
}
