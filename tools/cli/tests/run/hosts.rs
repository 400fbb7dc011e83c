//! Tests programs that exist, between two hosts: as client, as server, and both.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use netlab::netns::{self, Topology};

use crate::content::content;
use crate::lab::{Lab, PATIENCE, Running, has_library, program, text, under};
use crate::{programs, trap};

const MIB: usize = 1 << 20;

/// The host of the clients, and that of the servers.
#[derive(Clone, Copy)]
enum Host {
    Near,
    There,
}

/// Two hosts and a directory that both see.
pub(crate) struct Hosts {
    lab: Lab,
    hosts: Topology,
    running: Vec<Running>,
}

impl Hosts {
    /// `None`, after printing the reason, where something is missing.
    pub(crate) fn new(names: &[&str]) -> Option<Hosts> {
        if !has_library() || !programs::are_there(names) {
            return None;
        }
        if !netns::is_permitted() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let lab = Lab::new();
        fs::write(lab.path("page"), page()).unwrap();
        Some(Hosts {
            lab,
            hosts: Topology::pair("run", 1500).unwrap(),
            running: Vec::new(),
        })
    }

    /// Starts a server on the second host, and waits until it listens.
    pub(crate) fn serve(&mut self, by_zerolane: bool, port: u16, words: &[&str]) {
        self.serve_at(Host::There, by_zerolane, port, words);
    }

    /// The same on the first host.
    pub(crate) fn serve_near(&mut self, by_zerolane: bool, port: u16, words: &[&str]) {
        self.serve_at(Host::Near, by_zerolane, port, words);
    }

    fn serve_at(&mut self, host: Host, by_zerolane: bool, port: u16, words: &[&str]) {
        let at = match host {
            Host::Near => self.hosts.a(),
            Host::There => self.hosts.b(),
        };
        let command = match by_zerolane {
            true => under(at.command("timeout"), &[], words),
            false => {
                let mut command = at.command(words[0]);
                command.args(&words[1..]);
                command
            }
        };
        self.running.push(self.lab.start(command));
        let until = Instant::now() + PATIENCE;
        while !at.is_listening(port).unwrap() {
            let last = self.running.last().unwrap().said();
            assert!(Instant::now() < until, "nothing listens on {port}: {last}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a client on the first host, with its connections carried or not.
    pub(crate) fn client(&self, by_zerolane: bool, words: &[&str]) -> Output {
        let command = match by_zerolane {
            true => under(self.hosts.a().command("timeout"), &[], words),
            false => {
                let mut command = self.hosts.a().command("timeout");
                command.arg("300").args(words).env("no_proxy", "*");
                command
            }
        };
        self.lab.output(command)
    }

    /// Runs a client whose connections must be carried.
    pub(crate) fn carried(&self, words: &[&str]) -> String {
        let output = self.client(true, words);
        let said = text(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        assert!(said.contains("Zerolane over UDP"), "{words:?}: {said}");
        assert!(!said.contains(": TCP: "), "{words:?}: {said}");
        said
    }

    pub(crate) fn there(&self) -> String {
        self.hosts.b().ipv4().to_string()
    }

    pub(crate) fn near(&self) -> String {
        self.hosts.a().ipv4().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    /// Lets servers without rights read and write the directory.
    pub(crate) fn open_to_all(&self) {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(self.lab.path(""), all).unwrap();
    }

    /// What the last server has said.
    pub(crate) fn said(&self) -> String {
        self.running.last().map_or(String::new(), Running::said)
    }

    /// The file is the page, whole.
    pub(crate) fn has(&self, name: &str) {
        let found = fs::read(self.lab.path(name)).unwrap_or_default();
        assert!(found == page(), "{name} has {} bytes", found.len());
        fs::remove_file(self.lab.path(name)).unwrap();
    }

    /// The same, of a file that a server still writes.
    pub(crate) fn has_soon(&self, name: &str) {
        let until = Instant::now() + PATIENCE;
        let whole = page().len() as u64;
        while fs::metadata(self.lab.path(name)).map_or(0, |it| it.len()) < whole
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.has(name);
    }

    /// Waits until a server that ends with its connection has ended.
    fn ends(&mut self) {
        let mut server = self.running.pop().unwrap();
        assert_eq!(server.ends(), Some(0), "{}", server.said());
        assert!(
            server.said().contains("Zerolane over UDP"),
            "{}",
            server.said()
        );
    }
}

fn page() -> Vec<u8> {
    content(47, 5 * MIB + 1)
}

#[test]
fn run__python_serves_curl_with_zerolane_and_without() {
    let Some(mut hosts) = Hosts::new(&["python3", "curl"]) else {
        return;
    };
    let near = hosts.hosts.a().ipv4().to_string();
    for (server, port) in [(true, "8000"), (false, "8001")] {
        let words = ["python3", "-m", "http.server", port, "--bind", "0.0.0.0"];
        hosts.serve(server, port.parse().unwrap(), &words);
        let url = format!("http://{}:{port}/page", hosts.there());
        for client in [true, false] {
            let output = hosts.client(client, &["curl", "-sS", "-o", "got", &url]);
            let said = text(&output);
            assert!(output.status.success(), "{said}");
            hosts.has("got");
            let carried = said.contains("Zerolane over UDP");
            assert_eq!(carried, server && client, "{said}");
        }
        let said = hosts.running.last().unwrap().said();
        // The server's log has the client's address.
        assert_eq!(said.matches(&format!("{near} - - ")).count(), 2, "{said}");
    }
}

#[test]
fn run__a_trap_at_either_end_or_both() {
    let Some(mut hosts) = Hosts::new(&["python3", "curl"]) else {
        return;
    };
    if !trap::is_permitted() {
        return;
    }
    let trapped = |words: &[&'static str]| {
        let zerolane = [
            program(),
            "run",
            "-v",
            "--answer-within",
            "10s",
            "--trap",
            "--",
        ];
        [&zerolane, words].concat()
    };
    let near = hosts.near();
    for (server, port) in [(true, "8002"), (false, "8003")] {
        let words = ["python3", "-m", "http.server", port, "--bind", "0.0.0.0"];
        match server {
            true => hosts.serve(false, 8002, &trapped(&words)),
            false => hosts.serve(true, 8003, &words),
        }
        let url = format!("http://{}:{port}/page", hosts.there());
        let curl = trapped(&["curl", "-sS", "-o", "got"]);
        let said = text(&hosts.client(false, &[&curl[..], &[&url]].concat()));
        assert!(said.contains("Zerolane over UDP"), "{said}");
        hosts.has("got");
        hosts.carried(&["curl", "-sS", "-o", "got", &url]);
        hosts.has("got");
        let said = hosts.said();
        assert_eq!(said.matches("Zerolane over UDP").count(), 2, "{said}");
        assert_eq!(said.matches(&format!("{near} - - ")).count(), 2, "{said}");
    }
}

#[test]
fn run__socat_and_nc() {
    let Some(mut hosts) = Hosts::new(&["socat"]) else {
        return;
    };
    let listen = ["socat", "-u", "TCP-LISTEN:7001,reuseaddr", "CREATE:got"];
    hosts.serve(true, 7001, &listen);
    let to = format!("TCP:{}:7001", hosts.there());
    hosts.carried(&["socat", "-u", "OPEN:page", &to]);
    hosts.ends();
    hosts.has("got");
    if !programs::are_there(&["nc"]) {
        return;
    }
    hosts.serve(true, 7002, &["sh", "-c", "exec nc -l -N 0.0.0.0 7002 >got"]);
    let send = format!("exec nc -N {} 7002 <page", hosts.there());
    hosts.carried(&["sh", "-c", &send]);
    hosts.ends();
    hosts.has("got");
}

#[test]
fn run__rsync_to_and_from_a_daemon() {
    let Some(mut hosts) = Hosts::new(&["rsync"]) else {
        return;
    };
    let base = hosts.lab.path("");
    let config = format!(
        "use chroot = no\nuid = 0\ngid = 0\nport = 8730\n[all]\npath = {}\nread only = no\n",
        base.display()
    );
    fs::write(hosts.lab.path("rsyncd.conf"), config).unwrap();
    // A daemon that forks for each connection.
    hosts.serve(
        true,
        8730,
        &["rsync", "--daemon", "--no-detach", "--config=rsyncd.conf"],
    );
    let from = format!("rsync://{}:8730/all/", hosts.there());
    hosts.carried(&["rsync", "-W", &format!("{from}page"), "got"]);
    hosts.has("got");
    hosts.carried(&["rsync", "-W", "page", &format!("{from}got")]);
    hosts.has("got");
}

#[test]
fn run__redis_and_its_benchmark() {
    let Some(mut hosts) = Hosts::new(&["redis-server", "redis-cli", "redis-benchmark"]) else {
        return;
    };
    let words = [
        "redis-server",
        "--port",
        "6379",
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--save",
        "",
    ];
    hosts.serve(true, 6379, &words);
    let there = hosts.there();
    hosts.carried(&["redis-cli", "-h", &there, "set", "word", "hello"]);
    let said = hosts.carried(&["redis-cli", "-h", &there, "get", "word"]);
    assert!(said.contains("hello"), "{said}");
    let plain = hosts.client(false, &["redis-cli", "-h", &there, "get", "word"]);
    assert!(text(&plain).contains("hello"));
    let many = [
        "redis-benchmark",
        "-h",
        &there,
        "-q",
        "-n",
        "5000",
        "-c",
        "20",
        "-t",
        "set,get",
    ];
    let said = hosts.carried(&many);
    assert!(said.contains("GET: "), "{said}");
}

#[test]
fn run__iperf3_in_both_directions() {
    let Some(mut hosts) = Hosts::new(&["iperf3"]) else {
        return;
    };
    let there = hosts.there();
    let tcp = [
        &["-n", "20M"][..],
        &["-n", "20M", "-R"],
        &["-n", "20M", "-P", "3"],
        &["-n", "20M", "-Z"],
    ];
    // The program's own UDP port is the port of questions.
    let udp = &["-u", "-n", "1M", "-b", "100M"][..];
    for options in tcp.into_iter().chain([udp]) {
        // A server for each: between two tests, iperf3 closes its listener and resets who waits there.
        hosts.serve(true, 5201, &["iperf3", "-s", "-1"]);
        let words = [&["iperf3", "-c", &there], options].concat();
        let output = hosts.client(true, &words);
        let said = text(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        assert!(said.contains("Zerolane over UDP"), "{words:?}: {said}");
        hosts.ends();
    }
}

#[test]
fn run__nginx_and_ab() {
    let Some(mut hosts) = Hosts::new(&["curl"]) else {
        return;
    };
    let found = ["/usr/sbin/nginx", "/usr/bin/ab"]
        .iter()
        .find(|it| !std::path::Path::new(it).exists());
    if let Some(missing) = found {
        eprintln!("skipped: {missing} is not installed");
        return;
    }
    let base = hosts.lab.path("");
    let base = base.to_str().unwrap();
    let config = format!(
        "daemon off; worker_processes 2; pid {base}pid; error_log {base}errors; user root;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {base}b; proxy_temp_path {base}p;\n\
         server {{ listen 8080; root {base}; }} }}\n"
    );
    fs::write(hosts.lab.path("nginx.conf"), config).unwrap();
    let config = format!("{base}nginx.conf");
    let errors = format!("{base}errors");
    hosts.serve(
        true,
        8080,
        &["/usr/sbin/nginx", "-c", &config, "-e", &errors],
    );
    let url = format!("http://{}:8080/page", hosts.there());
    hosts.carried(&["curl", "-sS", "-o", "got", &url]);
    hosts.has("got");
    fs::write(hosts.lab.path("small"), &page()[..10_000]).unwrap();
    let url = format!("http://{}:8080/small", hosts.there());
    for keep in [&[][..], &["-k"]] {
        let words = [&["ab", "-n", "300", "-c", "10"], keep, &[&url]].concat();
        let said = hosts.carried(&words);
        let failed = said.lines().find(|it| it.starts_with("Failed requests:"));
        let failed = failed.and_then(|it| it.split_whitespace().nth(2));
        assert_eq!(failed, Some("0"), "{said}");
    }
}

#[test]
fn run__a_lost_link_ends_connections_as_a_network_failure_would() {
    let Some(mut hosts) = Hosts::new(&["python3"]) else {
        return;
    };
    let serve = "import socket\n\
         l = socket.create_server(('0.0.0.0', 7003)); c, _ = l.accept()\n\
         try:\n    while c.recv(65536): pass\n    print('ended')\n\
         except OSError as e: print('met', type(e).__name__)";
    hosts.serve(true, 7003, &["python3", "-c", serve]);
    let client = format!(
        "import socket\n\
         c = socket.create_connection(('{}', 7003), 60)\n\
         try:\n    while True: c.sendall(bytes(65536))\n\
         except OSError as e: print('met', type(e).__name__, flush=True)",
        hosts.there()
    );
    let near = under(
        hosts.hosts.a().command("timeout"),
        &[],
        &["python3", "-c", &client],
    );
    let mut near = hosts.lab.start(near);
    near.says("Zerolane over UDP");
    hosts.hosts.set_link_up(netsim::Side::A, false).unwrap();
    near.says("met ");
    let server = hosts.running.last_mut().unwrap();
    server.says("met ");
    assert!(!server.said().contains("ended"), "{}", server.said());
}
