//! Client and server over loopback, with real files.

#![allow(non_snake_case)]

use super::*;
use crate::digest::{Algorithm, Digester};
use crate::limits::UNIT_BYTES;
use crate::message::{Reply, Request, encode_opening};
use crate::opening::hear;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use zerolane::{Connection, Options, Region};

const RECURSIVE: CopyOptions = CopyOptions {
    recursive: true,
    resume: false,
    durable: false,
    replace_read_only: false,
    count_first: true,
};

/// A server of `share` in a temporary directory that also has `local`; stopped when dropped.
struct Lab {
    base: tempfile::TempDir,
    address: SocketAddr,
    stop: Stop,
    server: Option<JoinHandle<Result<(), Error>>>,
}

impl Lab {
    fn new(read_only: bool) -> Lab {
        let base = tempfile::tempdir().unwrap();
        for name in ["share", "local"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let options = ServeOptions {
            read_only,
            ..ServeOptions::default()
        };
        let mut server = Server::bind(
            &base.path().join("share"),
            (Ipv4Addr::LOCALHOST, 0),
            options,
        )
        .unwrap();
        let (address, stop) = (server.local_addr(), Stop::default());
        let heeded = stop.clone();
        let server = Some(thread::spawn(move || server.run(&heeded, &())));
        Lab {
            base,
            address,
            stop,
            server,
        }
    }

    fn client(&self) -> Client {
        Client::new(Host {
            name: self.address.ip().to_string(),
            port: self.address.port(),
        })
    }

    fn share(&self, name: &str) -> PathBuf {
        self.base.path().join("share").join(name)
    }

    fn local(&self, name: &str) -> PathBuf {
        self.base.path().join("local").join(name)
    }

    fn put(&self, source: &str, destination: &str) -> Result<Totals, Error> {
        self.client().put(
            &[self.local(source)],
            destination.as_bytes(),
            &RECURSIVE,
            &(),
        )
    }

    fn get(&self, source: &str, destination: &Path) -> Result<Totals, Error> {
        self.client()
            .get(&[source.as_bytes().to_vec()], destination, &RECURSIVE, &())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(server) = self.server.take() {
            let ended = server.join().expect("the server does not panic");
            if !thread::panicking() {
                ended.expect("the server ends cleanly");
            }
        }
    }
}

fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn refusal(result: Result<Totals, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn put_and_get__tree() {
    let lab = Lab::new(false);
    fs::create_dir_all(lab.local("tree/sub")).unwrap();
    fs::write(lab.local("tree/large"), content(9 * UNIT_BYTES + 3)).unwrap();
    for i in 0..500 {
        fs::write(lab.local(&format!("tree/sub/{i}")), format!("file {i}")).unwrap();
    }
    let put = lab.put("tree", "").unwrap();
    assert_eq!((put.files, put.directories, put.failed), (501, 2, 0));
    let back = lab.local("back");
    let got = lab.get("tree", &back).unwrap();
    assert_eq!(got, put);
    assert_eq!(
        fs::read(back.join("large")).unwrap(),
        content(9 * UNIT_BYTES + 3)
    );
    for i in 0..500 {
        assert_eq!(
            fs::read(back.join(format!("sub/{i}"))).unwrap(),
            format!("file {i}").as_bytes()
        );
    }
}

#[test]
fn get__whole_share_into_a_new_directory() {
    let lab = Lab::new(true);
    fs::write(lab.share("a"), b"a").unwrap();
    fs::create_dir(lab.share("d")).unwrap();
    let into = lab.local("new");
    assert_eq!(lab.get("", &into).unwrap().files, 1);
    assert_eq!(fs::read(into.join("a")).unwrap(), b"a");
    assert!(into.join("d").is_dir());
}

#[test]
fn put__read_only_server() {
    let lab = Lab::new(true);
    fs::write(lab.local("a"), b"a").unwrap();
    assert_eq!(refusal(lab.put("a", "")), Refusal::ReadOnly);
    assert_eq!(fs::read_dir(lab.share("")).unwrap().count(), 0);
}

#[test]
fn put__outside_is_refused() {
    let lab = Lab::new(false);
    fs::write(lab.local("a"), b"a").unwrap();
    std::os::unix::fs::symlink("../local", lab.share("out")).unwrap();
    for path in [
        "..",
        "../evil",
        "/tmp/evil",
        "x/../../evil",
        "out",
        "out/evil",
    ] {
        match refusal(lab.put("a", path)) {
            Refusal::Path { cause, .. } => assert_eq!(cause, Cause::OutsideRoot, "{path}"),
            other => panic!("{path}: {other}"),
        }
    }
    assert!(!lab.base.path().join("evil").exists() && !lab.local("evil").exists());
}

#[test]
fn get__outside_fails_that_source_only() {
    let lab = Lab::new(false);
    fs::write(lab.local("secret"), b"s").unwrap();
    fs::write(lab.share("good"), b"g").unwrap();
    std::os::unix::fs::symlink("../local", lab.share("out")).unwrap();
    let into = lab.local("into");
    fs::create_dir(&into).unwrap();
    let sources: Vec<Vec<u8>> = [
        "../local/secret",
        "/etc/passwd",
        "out/secret",
        "none",
        "good",
    ]
    .map(|s| s.into())
    .into();
    let totals = lab.client().get(&sources, &into, &RECURSIVE, &()).unwrap();
    assert_eq!((totals.files, totals.failed), (1, 4));
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn list__directory_file_and_nothing() {
    let lab = Lab::new(true);
    fs::create_dir(lab.share("d")).unwrap();
    for i in 0..3000 {
        fs::write(
            lab.share(&format!("d/a-file-with-quite-a-long-name-{i:06}")),
            b"12345",
        )
        .unwrap();
    }
    let mut names = Vec::new();
    lab.client()
        .list(b"d", |entry| names.push((entry.name, entry.size)))
        .unwrap();
    names.sort();
    assert_eq!(names.len(), 3000);
    assert_eq!(
        names[7],
        (b"a-file-with-quite-a-long-name-000007".to_vec(), 5)
    );

    let mut one = Vec::new();
    lab.client()
        .list(b"d/a-file-with-quite-a-long-name-000007", |entry| {
            one.push(entry.kind)
        })
        .unwrap();
    assert_eq!(one, [EntryKind::File]);

    match lab.client().list(b"none", |_| {}) {
        Err(Error::Refused(Refusal::Path {
            cause: Cause::NotFound,
            ..
        })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn connect__nothing_there() {
    let address = {
        // A port that was just free.
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap()
    };
    let client = Client::new(Host {
        name: "127.0.0.1".into(),
        port: address.port(),
    });
    assert!(matches!(
        client.list(b"", |_| {}),
        Err(Error::Connect { .. })
    ));
}

/// Sends `bytes` as the first message; the reply.
fn open_with(lab: &Lab, bytes: &[u8]) -> Result<Reply, Error> {
    let mut connection = Connection::connect(lab.address, &Options::default()).unwrap();
    connection
        .post_send(Region::from_vec(bytes.to_vec()))
        .unwrap();
    while connection
        .wait(Some(Duration::from_secs(5)))
        .unwrap()
        .is_none()
    {}
    hear(&mut connection, &lab.stop, Duration::from_secs(5))
}

#[test]
fn serve__malformed_requests_are_answered_and_survived() {
    let lab = Lab::new(false);
    let mut another_version = encode_opening(&Request::List { path: Vec::new() }).unwrap();
    another_version[4] = 99;
    let mut cut = encode_opening(&Request::List {
        path: vec![b'x'; 100],
    })
    .unwrap();
    cut.truncate(20);
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"x",
        &another_version,
        &cut,
        &[0xff; 500],
    ] {
        let reply = open_with(&lab, bytes);
        assert!(
            matches!(reply, Ok(Reply::Refused(Refusal::Malformed))),
            "{reply:?}"
        );
    }
    lab.client().list(b"", |_| {}).unwrap();
}

#[test]
fn serve__client_that_asks_and_goes_away() {
    let lab = Lab::new(false);
    for algorithm in [Digester::fixed().algorithm(), Algorithm::Blake3] {
        let request = Request::Put {
            destination: b"x".to_vec(),
            sources: 1,
            contents: false,
            options: RECURSIVE,
            digester: Digester::fixed().settle(algorithm).unwrap(),
        };
        let reply = open_with(&lab, &encode_opening(&request).unwrap());
        assert_eq!(reply.unwrap(), Reply::Accepted(algorithm));
    }
    fs::write(lab.local("a"), b"a").unwrap();
    assert_eq!(lab.put("a", "").unwrap().files, 1);
}
