//! Tests streams over real connections: as threads and tasks use them, and against peers that break the rules.

#![allow(non_snake_case)]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::thread;
use std::time::Duration;

use zerolane::options::LaneChoice;
use zerolane::{Connection, Endpoint, Options};
use zerolane_streams::limits::MESSAGE_BYTES;
use zerolane_streams::{Role, Stream, Streams};

/// Bytes without repetition.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| dice.u8(..)).take(len).collect()
}

fn over(lane: LaneChoice) -> Options {
    Options::default().with(|it| {
        it.lane.choice = lane;
        it.times.keep_alive = true;
        it.times.idle = Duration::from_secs(5);
    })
}

fn connections(lane: LaneChoice) -> [Connection; 2] {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", over(lane)).unwrap();
    let address = endpoint.local_addr();
    let client = thread::spawn(move || Connection::connect(address, &over(lane)).unwrap());
    let server = endpoint
        .accept(Some(Duration::from_secs(20)))
        .unwrap()
        .unwrap();
    [client.join().unwrap(), server]
}

/// Both ends: the connector, and the acceptor.
fn pair(lane: LaneChoice) -> [Streams; 2] {
    let [client, server] = connections(lane);
    [
        Streams::new(client, Role::Connector).unwrap(),
        Streams::new(server, Role::Acceptor).unwrap(),
    ]
}

/// A stream and its other end.
fn stream(ends: &[Streams; 2]) -> [Stream; 2] {
    let one = ends[0].open(b"test").unwrap();
    let other = ends[1].accept().unwrap().unwrap();
    assert_eq!(other.purpose(), b"test");
    one.accepted().unwrap();
    [one, other]
}

/// Answers every stream with its own bytes, until the peer disconnects.
fn echo(streams: Streams) {
    thread::scope(|scope| {
        while let Some(mut stream) = streams.accept().unwrap() {
            scope.spawn(move || {
                let mut reader = &stream;
                let mut buffer = vec![0; 100_000];
                loop {
                    match reader.read(&mut buffer) {
                        Ok(0) | Err(_) => return,
                        Ok(len) if stream.write_all(&buffer[..len]).is_ok() => reader = &stream,
                        Ok(_) => return,
                    }
                }
            });
        }
    });
}

/// Sends `sent` on a stream of its own, and expects it back.
fn goes_and_comes(client: &Streams, sent: &[u8]) {
    let stream = client.open(b"").unwrap();
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(sent).unwrap();
            stream.finish().unwrap();
        });
        (&stream).read_to_end(&mut back).unwrap();
    });
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
}

#[test]
fn Stream__many_at_once_over_every_kind_of_lane() {
    for lane in [LaneChoice::Udp, LaneChoice::SharedMemory] {
        let [client, server] = pair(lane);
        let answers = thread::spawn(move || echo(server));
        thread::scope(|scope| {
            for number in 0..40 {
                let client = &client;
                scope.spawn(move || goes_and_comes(client, &content(number, 1 << (number % 22))));
            }
        });
        drop(client);
        answers.join().unwrap();
    }
}

#[test]
fn Stream__vectored_reads_and_writes_keep_the_order() {
    let ends = pair(LaneChoice::SharedMemory);
    let [mut one, mut other] = stream(&ends);
    let parts = [&b"one "[..], b"", b"and ", b"another"].map(IoSlice::new);
    assert_eq!(one.write_vectored(&parts).unwrap(), 15);
    one.finish().unwrap();
    let (mut first, mut second) = ([0; 6], [0; 20]);
    let mut read = 0;
    while read == 0 {
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        read = other.read_vectored(&mut parts).unwrap();
    }
    assert_eq!(read, 15, "they came in one message");
    assert_eq!((&first, &second[..9]), (b"one an", &b"d another"[..]));
    assert_eq!(other.read(&mut second).unwrap(), 0);
}

#[test]
fn Stream__dropped_delivers_what_was_written() {
    let ends = pair(LaneChoice::Udp);
    let [mut one, mut other] = stream(&ends);
    let sent = content(1, 3_000_000);
    let [client, server] = ends;
    let writes = thread::spawn({
        let sent = sent.clone();
        move || {
            one.write_all(&sent).unwrap();
            drop(one);
            drop(client);
        }
    });
    let mut back = Vec::new();
    other.read_to_end(&mut back).unwrap();
    assert!(back == sent);
    writes.join().unwrap();
    assert!(
        server.accept().unwrap().is_none(),
        "the peer has disconnected"
    );
}

#[test]
fn Stream__reset_and_refused_have_words() {
    let ends = pair(LaneChoice::SharedMemory);
    let [one, mut other] = stream(&ends);
    one.reset("enough");
    let error = other.read(&mut [0]).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::ConnectionReset, "enough".into())
    );
    assert_eq!(
        other.write(b"x").unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    // Dropped unread.
    let [mut one, other] = stream(&ends);
    one.write_all(b"unread").unwrap();
    thread::sleep(Duration::from_millis(300));
    drop(other);
    let error = one.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // Finished.
    let [mut one, _other] = stream(&ends);
    one.finish().unwrap();
    assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let long = ends[0].open(&[0; 2000]).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::InvalidInput);
}

#[test]
fn Stream__a_peer_that_is_gone_is_an_error_and_no_end() {
    let ends = pair(LaneChoice::SharedMemory);
    let [mut one, mut other] = stream(&ends);
    one.write_all(b"half").unwrap();
    other.read_exact(&mut [0; 4]).unwrap();
    let [client, _server] = ends;
    drop(client);
    let error = other.read(&mut [0]).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::ConnectionReset,
        "the stream had no end"
    );
    assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn Streams__a_peer_that_breaks_the_rules_is_cut_off_in_words() {
    let garbage = content(2, 5000);
    let too_long = vec![1; MESSAGE_BYTES + 1];
    for (message, words) in [
        (&[9, 9, 9][..], "malformed"),
        (&garbage, "malformed"),
        (b"GET / HTTP/1.1", "malformed"),
        (&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0], "did not greet"),
        (&too_long, ""),
    ] {
        let [mut hostile, server] = connections(LaneChoice::Udp);
        let server = Streams::new(server, Role::Acceptor).unwrap();
        let sends = {
            let message = message.to_vec();
            thread::spawn(move || {
                let _ = hostile.send(&message);
                // Answers as long as the other end speaks.
                while hostile
                    .wait(Some(Duration::from_secs(10)))
                    .is_ok_and(|it| it.got().is_some())
                {}
            })
        };
        let error = server.accept().unwrap_err();
        assert!(error.to_string().contains(words), "{words:?}: {error}");
        drop(server);
        sends.join().unwrap();
    }
}

#[test]
fn Stream__is_read_and_written_by_tasks() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let [client, server] = pair(LaneChoice::SharedMemory);
    let answers = thread::spawn(move || echo(server));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = client.open(b"").unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent = content(3, 2_000_000);
        let write = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let read = async {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).await.unwrap();
            back
        };
        let ((), back) = tokio::join!(write, read);
        assert!(back == sent);
    });
    drop(client);
    answers.join().unwrap();
}
