//! Makes two hosts in namespaces with the ends of a tunnel, and sends through it.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use netlab::netns::{self, Namespace, Topology};

use crate::content::content;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zerolane");

/// Bounds how long a failure takes to show.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// Bytes of a stream: many uncut packets.
pub(crate) const STREAM: usize = 8 << 20;

/// Ends the process even if the test fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hosts, A and B, each with a configuration.
pub(crate) struct Lab {
    pub(crate) hosts: Topology,
    pub(crate) base: tempfile::TempDir,
    pub(crate) keys: [String; 2],
}

/// Where B calls A.
#[derive(Clone, Copy)]
pub(crate) enum Outside {
    V4,
    V6,
}

impl Lab {
    /// `None`, after printing the reason, where namespaces are not allowed.
    pub(crate) fn new() -> Option<Lab> {
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
    pub(crate) fn configure(&self, outside: Outside, allowed_of_b: &str) {
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

    /// Writes the configuration of a third end, which is at the host of B, has this address and calls A; A knows it.
    pub(crate) fn configure_third(&self, address: &str) {
        let at = |name: &str| self.base.path().join(name).display().to_string();
        let mut keygen = Command::new(PROGRAM);
        let made = keygen.arg("keygen").arg(at("c")).output().unwrap();
        let key = String::from_utf8(made.stdout).unwrap();
        let endpoint = SocketAddr::new(self.hosts.a().ipv4().into(), 9186);
        let of_c = format!(
            "[Interface]\nIdentity = {}\nAddress = {address}\nTable = off\n\
             [Peer]\nPublicKey = {}\nEndpoint = {endpoint}\nAllowedIPs = 10.9.0.1\n",
            at("c"),
            self.keys[0]
        );
        fs::write(at("tc.conf"), of_c).unwrap();
        let of_a = fs::read_to_string(at("ta.conf")).unwrap();
        let peer = format!(
            "[Peer]\nPublicKey = {}\nAllowedIPs = 10.9.0.3\n",
            key.trim()
        );
        fs::write(at("ta.conf"), of_a + &peer).unwrap();
    }

    /// Adds a line to the interfaces of both configurations.
    pub(crate) fn configure_interfaces(&self, line: &str) {
        for name in ["ta.conf", "tb.conf"] {
            let file = self.base.path().join(name);
            let text = fs::read_to_string(&file).unwrap();
            let text = text.replace("[Interface]\n", &format!("[Interface]\n{line}\n"));
            fs::write(&file, text).unwrap();
        }
    }

    pub(crate) fn command(&self, host: &Namespace, words: &[&str]) -> Command {
        let mut command = host.command(PROGRAM);
        command
            .current_dir(self.base.path())
            .env("ZEROLANE_HOME", self.base.path().join("home"))
            .env("ZEROLANE_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .args(words);
        command
    }

    pub(crate) fn output(&self, host: &Namespace, words: &[&str]) -> Output {
        self.command(host, words).output().unwrap()
    }

    pub(crate) fn up(&self, host: &Namespace, words: &[&str]) -> Running {
        let command = &mut self.command(host, &[&["up"], words].concat());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Both ends, connected.
    pub(crate) fn both(&self, words: &[&str]) -> [Running; 2] {
        let a = self.up(self.hosts.a(), &[&["./ta.conf"], words].concat());
        let b = self.up(self.hosts.b(), &[&["./tb.conf"], words].concat());
        self.wait_connected();
        [a, b]
    }

    pub(crate) fn shown(&self, host: &Namespace) -> String {
        String::from_utf8(self.output(host, &["show", "--json"]).stdout).unwrap()
    }

    pub(crate) fn wait_connected(&self) {
        for host in [self.hosts.a(), self.hosts.b()] {
            until("connected", || {
                let shown = self.shown(host);
                shown.contains("\"connected_s\":") && !shown.contains("\"connected_s\":null")
            });
        }
    }

    /// Peers of a host that are connected.
    pub(crate) fn connected(&self, host: &Namespace) -> usize {
        let shown = self.shown(host);
        let count = |text| shown.matches(text).count();
        count("\"connected_s\":") - count("\"connected_s\":null")
    }

    /// A number in what `show` tells of the only peer.
    pub(crate) fn counter(&self, host: &Namespace, name: &str) -> u64 {
        let shown = self.shown(host);
        let (_, rest) = shown
            .split_once(&format!("\"{name}\":"))
            .expect("a counter");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "not {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn inside(host: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([10, 9, 0, host]),
        Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into()).into(),
    ]
}

/// Sends content both ways at once over one TCP connection from `from` to `to`, which has `address`.
pub(crate) fn stream(from: &Namespace, to: &Namespace, address: IpAddr) {
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
pub(crate) fn datagrams(
    from: &Namespace,
    to: &Namespace,
    addresses: [IpAddr; 2],
    lengths: &[usize],
) {
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

pub(crate) fn has_interface(host: &Namespace, name: &str) -> bool {
    host.enter_thread(|| {
        let all = nix::net::if_::if_nameindex().unwrap();
        all.iter().any(|it| it.name().to_bytes() == name.as_bytes())
    })
    .unwrap()
}

/// The line of a process's state that begins with `name`.
pub(crate) fn state(process: &Running, name: &str) -> String {
    let all = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Whether a program is there; says so if not.
pub(crate) fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--help").output().is_ok();
    if !there {
        eprintln!("skipped: there is no program {program}");
    }
    there
}
