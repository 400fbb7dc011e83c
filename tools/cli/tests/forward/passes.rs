//! Tests what a forward passes on.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::content::content;
use crate::lab::{Lab, PATIENCE, connect, echo, read_all, reset, target, write_all};
use crate::programs;

const MIB: usize = 1 << 20;

#[test]
fn forward__passes_bytes_both_ways_until_both_ends() {
    let (lab, echo) = (Lab::new(), echo());
    let (_server, peer) = lab.serve(&["--connect", &echo]);
    let (_near, on) = lab.forward("0", &echo, &peer);
    for bytes in [0, 1, 5000, 100_000, 8 * MIB] {
        let sent = content(1, bytes);
        let stream = connect(&on);
        let writer = write_all(&stream, sent.clone());
        let back = read_all(&stream).unwrap();
        writer.join().unwrap().unwrap();
        assert!(back == sent, "{} of {bytes} bytes", back.len());
    }
}

#[test]
fn forward__half_close_leaves_the_other_direction_open() {
    let lab = Lab::new();
    // Answers only after the end of the question.
    let counts = target(|stream| {
        let question = read_all(&stream).unwrap();
        thread::sleep(Duration::from_millis(50));
        write!(&stream, "{} bytes", question.len()).unwrap();
    });
    // Ends its direction first.
    let says = target(|mut stream| {
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&stream).unwrap(), b"and goodbye");
    });
    let (_server, peer) = lab.serve(&["--connect", &counts, "--connect", &says]);
    let (_near, on) = lab.forward("0", &counts, &peer);
    let mut stream = connect(&on);
    stream.write_all(&content(1, MIB)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&stream).unwrap(), b"1048576 bytes");
    let (_other, on) = lab.forward("0", &says, &peer);
    let mut stream = connect(&on);
    assert_eq!(read_all(&stream).unwrap(), b"hello");
    stream.write_all(b"and goodbye").unwrap();
}

#[test]
fn forward__a_reset_is_a_reset_at_the_other_end() {
    let lab = Lab::new();
    let (tell, hear) = channel();
    let resets = target(|mut stream| {
        stream.write_all(b"x").unwrap();
        let mut one = [0];
        let _ = stream.read(&mut one);
        reset(stream);
    });
    let notes = target(move |mut stream| {
        stream.write_all(b"x").unwrap();
        let end = stream.read(&mut [0; 10]).map_err(|it| it.kind());
        tell.send(end).unwrap();
    });
    let (_server, peer) = lab.serve(&["--connect", &resets, "--connect", &notes]);
    let (_near, on) = lab.forward("0", &resets, &peer);
    let mut stream = connect(&on);
    stream.read_exact(&mut [0]).unwrap();
    stream.write_all(b"y").unwrap();
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    let (_other, on) = lab.forward("0", &notes, &peer);
    let mut stream = connect(&on);
    stream.read_exact(&mut [0]).unwrap();
    reset(stream);
    assert_eq!(
        hear.recv_timeout(PATIENCE).unwrap(),
        Err(ErrorKind::ConnectionReset)
    );
}

#[test]
fn forward__from_a_unix_socket() {
    let (lab, echo) = (Lab::new(), echo());
    let (_server, peer) = lab.serve(&["--connect", &echo]);
    let path = lab.path("door");
    let (mut near, _) = lab.forward(path.to_str().unwrap(), &echo, &peer);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"by a file").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).unwrap();
    assert_eq!(back, "by a file");
    near.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(near.ends(), Some(130));
    assert!(!path.exists(), "the file is removed");
    // A socket that a killed program left is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (_near, _) = lab.forward(path.to_str().unwrap(), &echo, &peer);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn forward__reverse_listens_at_the_other_end() {
    let (lab, echo) = (Lab::new(), echo());
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let (_server, peer) = lab.serve(&["--accept", &free]);
    let mut near = lab.start(lab.zerolane("home", &["forward", "-R", &free, &echo, "--to", &peer]));
    near.says("Forwarding the other end's ");
    let stream = connect(&free);
    let sent = content(1, 300_000);
    let writer = write_all(&stream, sent.clone());
    assert!(read_all(&stream).unwrap() == sent);
    writer.join().unwrap().unwrap();
    // It listens as long as the near end asks.
    drop(near);
    let until = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(&free).is_ok() {
        assert!(Instant::now() < until, "it listens on");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn forward__several_from_a_file() {
    let (lab, echo) = (Lab::new(), echo());
    let (_server, peer) = lab.serve(&["--connect", "127.0.0.1:*"]);
    let file = lab.path("forwards");
    let (one, other) = (lab.path("one"), lab.path("other"));
    let lines = format!(
        "# two\n{} {echo}\n{} {echo} # the other\n",
        one.display(),
        other.display()
    );
    std::fs::write(&file, lines).unwrap();
    let mut near = lab.start(lab.zerolane(
        "home",
        &["forward", "--file", file.to_str().unwrap(), "--to", &peer],
    ));
    near.says(other.to_str().unwrap());
    for path in [one, other] {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"12").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
    }
}

#[test]
fn forward__socks5_goes_where_clients_say() {
    if !programs::are_there(&["curl"]) {
        return;
    }
    let lab = Lab::new();
    let page = content(1, 3 * MIB);
    let sent = page.clone();
    let web = target(move |mut stream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        write!(
            stream,
            "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
            sent.len()
        )
        .unwrap();
        stream.write_all(&sent).unwrap();
    });
    let port = web.rsplit(':').next().unwrap();
    let (_server, peer) = lab.serve(&["--connect", &format!("localhost:{port}")]);
    let (mut near, on) = lab.forward("0", "socks", &peer);
    let curl = |option: &str, host: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--max-time",
            "60",
            option,
            &on,
            &format!("http://{host}:{port}/"),
        ]);
        curl.env_remove("http_proxy")
            .env("no_proxy", "")
            .output()
            .unwrap()
    };
    let got = curl("--socks5-hostname", "localhost");
    assert!(
        got.status.success() && got.stdout == page,
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );
    // Another name of the same place is another place.
    let refused = curl("--socks5-hostname", "127.0.0.1");
    assert_eq!(
        refused.status.code(),
        Some(97),
        "{}",
        String::from_utf8_lossy(&refused.stderr)
    );
    near.says("this key may not connect to 127.0.0.1:");
}

#[test]
fn forward__one_of_many_that_is_not_read_holds_up_no_other() {
    // This process has both ends of each, and at most 1024 descriptors.
    const STREAMS: usize = 280;
    let lab = Lab::new();
    // Sends without end to whoever asks for it, and an echo to all others.
    let both = target(|mut stream| {
        let mut first = [0];
        if stream.read_exact(&mut first).is_err() {
            return;
        }
        if first == *b"!" {
            let block = vec![7; 1 << 16];
            while stream.write_all(&block).is_ok() {}
            return;
        }
        let mut copy = stream.try_clone().unwrap();
        let _ = copy.write_all(&first);
        let _ = std::io::copy(&mut stream, &mut copy);
    });
    let (server, peer) = lab.serve(&["--connect", &both]);
    let (near, on) = lab.forward("0", &both, &peer);
    let mut unread = connect(&on);
    unread.write_all(b"!").unwrap();
    thread::sleep(Duration::from_millis(500));
    let streams: Vec<_> = (0..STREAMS).map(|_| connect(&on)).collect();
    for round in 0..3u8 {
        for mut stream in &streams {
            stream.write_all(&[round; 2000]).unwrap();
        }
        for mut stream in &streams {
            let mut back = [9; 2000];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, [round; 2000]);
        }
    }
    for it in [&server, &near] {
        assert!(it.memory() < 300 << 20, "{} bytes", it.memory());
    }
    drop(unread);
}
