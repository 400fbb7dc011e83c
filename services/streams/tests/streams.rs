//! Tests streams over real connections: as threads and tasks use them, and against peers that break the rules.

#![allow(non_snake_case)]

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use zerolane::options::LaneChoice;
use zerolane::worker::PendingSet;
use zerolane::{Connection, Endpoint, Options};
use zerolane_streams::limits::{MAX_STREAMS, MESSAGE_BYTES};
use zerolane_streams::{Ready, Role, Stream, StreamError, Streams, wait};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

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
    one.reset("enough").unwrap();
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
    assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
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

/// Reads the bytes available; `None` if there are none.
fn read_now(stream: &Stream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = wait(Some(Duration::ZERO), |cx| {
        stream.poll_read_with(cx, usize::MAX, |it| bytes.extend_from_slice(it))
    });
    read.map(|it| assert_eq!(it.unwrap(), bytes.len()))?;
    Some(bytes)
}

/// One thread serves them all by one descriptor, beside one that nobody reads.
#[test]
fn watch__one_set_tells_of_a_thousand_streams() {
    let ends = pair(LaneChoice::SharedMemory);
    let [stuck, _unread] = stream(&ends);
    let set = PendingSet::new().unwrap();
    let fills = [7; 100_000];
    while wait(Some(Duration::from_millis(200)), |cx| {
        stuck.poll_write_from(cx, &[IoSlice::new(&fills)])
    })
    .is_some_and(|it| it.unwrap() > 0)
    {}
    stuck.watch(Ready::Write, &set, u64::MAX).unwrap();
    let [client, server] = &ends;
    let sent: Vec<Vec<u8>> = (0..1000)
        .map(|it| content(it, 1 + it as usize * 7))
        .collect();
    let mut got: HashMap<u64, Vec<u8>> = HashMap::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let opened: Vec<_> = sent
                .iter()
                .map(|it| {
                    let mut stream = client.open(b"").unwrap();
                    stream.write_all(it).unwrap();
                    stream
                })
                .collect();
            drop(opened);
        });
        let mut streams = HashMap::new();
        let mut over = 0;
        server.watch(&set, 0).unwrap();
        while over < sent.len() {
            let token = set.wait(Some(LONG)).unwrap().expect("a token comes");
            assert_ne!(token, u64::MAX, "nobody reads that one");
            if token == 0 {
                let now = |cx: &mut std::task::Context<'_>| server.poll_accept(cx);
                while let Some(accepted) = wait(Some(Duration::ZERO), now) {
                    let stream = accepted.unwrap().expect("still connected");
                    // The first one is the stream that nobody reads.
                    let number = stream.id() / 2;
                    stream.watch(Ready::Read, &set, number).unwrap();
                    streams.insert(number, stream);
                }
                server.watch(&set, 0).unwrap();
                continue;
            }
            let stream = &streams[&token];
            match read_now(stream) {
                Some(bytes) if bytes.is_empty() => {
                    over += 1;
                    continue;
                }
                Some(bytes) => got.entry(token).or_default().extend(bytes),
                None => {}
            }
            stream.watch(Ready::Read, &set, token).unwrap();
        }
    });
    for (number, sent) in sent.iter().enumerate() {
        assert!(got[&(number as u64 + 1)] == *sent, "stream {number}");
    }
    // Reset here, and so ready to fail.
    stuck.reset("stuck").unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), Some(u64::MAX));
}

#[test]
fn watch__a_stream_that_is_accepted_and_its_room() {
    let ends = pair(LaneChoice::Udp);
    let set = PendingSet::new().unwrap();
    let one = ends[0].open(b"").unwrap();
    one.watch(Ready::Accepted, &set, 1).unwrap();
    one.watch(Ready::Write, &set, 2).unwrap();
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), Some(2));
    let other = ends[1].accept().unwrap().unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), Some(1));
    one.watch(Ready::Accepted, &set, 3).unwrap();
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), Some(3));
    // The token that comes later is the last.
    other.watch(Ready::Read, &set, 4).unwrap();
    other.watch(Ready::Read, &set, 5).unwrap();
    (&one).write_all(b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), Some(5));
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), None);
    // The end is something to accept.
    let [client, server] = ends;
    server.watch(&set, 6).unwrap();
    drop((one, client));
    assert_eq!(set.wait(Some(LONG)).unwrap(), Some(6));
    assert!(server.accept().unwrap().is_none());
}

#[test]
fn close__in_another_thread_ends_reads_and_writes() {
    let ends = pair(LaneChoice::Udp);
    let [one, other] = stream(&ends);
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        let reads = scope.spawn(|| (&one).read(&mut [0; 8]).unwrap_err());
        let another = scope.spawn(|| (&one).read(&mut [0; 8]).unwrap_err());
        let writes = scope.spawn(|| {
            loop {
                match (&one).write(&[1; 100_000]) {
                    Ok(len) => written.fetch_add(len, Ordering::Relaxed),
                    Err(error) => return error,
                };
            }
        });
        thread::sleep(Duration::from_millis(200));
        one.close().unwrap();
        one.close().unwrap();
        for error in [reads.join(), another.join(), writes.join()] {
            let error = error.unwrap();
            assert!(
                matches!(StreamError::of(&error), Some(StreamError::Closed)),
                "{error}"
            );
            assert_eq!(error.kind(), ErrorKind::NotConnected);
        }
    });
    // What was written before comes whole, and then the end.
    let mut got = Vec::new();
    (&other).read_to_end(&mut got).unwrap();
    assert!(got == vec![1; written.into_inner()]);
    assert!(
        one.watch(Ready::Read, &PendingSet::new().unwrap(), 1)
            .is_err()
    );
}

#[test]
fn wait__that_is_over_loses_nothing() {
    let ends = pair(LaneChoice::Udp);
    let [one, other] = stream(&ends);
    let mut buffer = [0; 100];
    let short = Some(Duration::from_millis(30));
    for round in 0..5u8 {
        assert!(wait(short, |cx| other.poll_read_into(cx, &mut buffer)).is_none());
        (&one).write_all(&[round; 7]).unwrap();
        let read = wait(Some(LONG), |cx| other.poll_read_into(cx, &mut buffer));
        assert_eq!(read.expect("in time").unwrap(), 7);
        assert_eq!(buffer[..7], [round; 7]);
    }
    let server = &ends[1];
    assert!(wait(short, |cx| server.poll_accept(cx)).is_none());
}

#[test]
fn Streams__closed_and_aborted() {
    let ends = pair(LaneChoice::Udp);
    let [one, other] = stream(&ends);
    (&one).write_all(b"whole").unwrap();
    ends[0].close().unwrap();
    ends[0].close().unwrap();
    assert_eq!(
        ends[0].open(b"").unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    assert!(ends[0].accept().unwrap().is_none());
    let mut got = [0; 5];
    (&other).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"whole");
    let error = (&other).read(&mut got).unwrap_err();
    assert!(
        matches!(StreamError::of(&error), Some(StreamError::Disconnected)),
        "{error}"
    );

    // What nobody reads is at the peer all the same.
    let ends = pair(LaneChoice::Udp);
    let [one, other] = stream(&ends);
    let mut written = 0;
    while let Some(len) = wait(Some(Duration::from_millis(200)), |cx| {
        one.poll_write_from(cx, &[IoSlice::new(&[7; 100_000])])
    }) {
        written += len.unwrap();
    }
    ends[0].close().unwrap();
    let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
    let error = loop {
        match (&other).read(&mut buffer) {
            Ok(len) => got += len,
            Err(error) => break error,
        }
    };
    assert_eq!((got, error.kind()), (written, ErrorKind::ConnectionReset));

    let ends = pair(LaneChoice::Udp);
    let [one, other] = stream(&ends);
    ends[0].abort();
    ends[0].close().unwrap();
    let error = (&one).write(b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    let error = (&other).read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn extremes__of_every_call() {
    let ends = pair(LaneChoice::Udp);
    let [client, server] = &ends;
    let set = PendingSet::new().unwrap();
    for priority in [0, 7, 8, u8::MAX] {
        let opened = client.open_with_priority(b"", priority).unwrap();
        opened.close().unwrap();
        drop(server.accept().unwrap().unwrap());
    }
    for purpose in [&[0; 1025][..], &[255; 1 << 20]] {
        assert_eq!(
            client.open(purpose).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    let one = client.open(&[255; 1024]).unwrap();
    let other = server.accept().unwrap().unwrap();
    assert_eq!(other.purpose(), [255; 1024]);
    assert_eq!((&one).read(&mut []).unwrap(), 0);
    assert_eq!((&one).write(&[]).unwrap(), 0);
    assert_eq!((&one).write_vectored(&[]).unwrap(), 0);
    (&one).write_all(b"bytes").unwrap();
    other.watch(Ready::Read, &set, u64::MAX).unwrap();
    assert_eq!(set.wait(Some(LONG)).unwrap(), Some(u64::MAX));
    assert_eq!(
        wait(Some(Duration::MAX), |cx| other.poll_read_with(
            cx,
            0,
            |_| ()
        ))
        .unwrap()
        .unwrap(),
        0
    );
    assert_eq!(read_now(&other).as_deref(), Some(&b"bytes"[..]));
    one.reset(&"\u{e9}".repeat(100_000)).unwrap();
    let error = (&other).read(&mut [0]).unwrap_err();
    assert_eq!(error.to_string(), "\u{e9}".repeat(256));
    assert_eq!(wait(Some(Duration::MAX), |_| Poll::Ready(7)), Some(7));
    drop((one, other));
    // As many as there may be, and one more.
    let opened: Vec<Stream> = std::iter::from_fn(|| client.open(b"").ok())
        .take(2 * MAX_STREAMS)
        .collect();
    assert!(
        opened.len() <= MAX_STREAMS && opened.len() > MAX_STREAMS - 10,
        "{}",
        opened.len()
    );
    assert_eq!(
        client.open(b"").unwrap_err().kind(),
        ErrorKind::QuotaExceeded
    );
    opened[1].reset("").unwrap();
    (&opened[0]).write_all(b"still").unwrap();
}

/// The kinds of sockets: SOCK_SEQPACKET, SOCK_DGRAM and SOCK_STREAM, all over connections (docs/papers.md, row P1.8).
#[test]
fn sockets__of_each_kind() {
    let [mut one, mut other] = connections(LaneChoice::Udp);
    // SOCK_SEQPACKET: a send is a receive, whole, in order.
    let messages = [content(1, 70_000), Vec::new(), content(2, 5)];
    let receives = thread::spawn(move || {
        let mut got = Vec::new();
        for _ in 0..3 {
            let mut buffer = vec![0; 100_000];
            let len = other.recv_into(&mut buffer).unwrap();
            buffer.truncate(len);
            got.push(buffer);
        }
        (other, got)
    });
    for message in &messages {
        one.send(message).unwrap();
    }
    let (mut other, got) = receives.join().unwrap();
    assert!(got == messages);
    // SOCK_DGRAM: whole, or not at all.
    let datagram = content(3, one.max_datagram());
    let came = (0..2000).find_map(|_| {
        one.send_datagram(datagram.clone()).unwrap();
        other
            .recv_datagram(Some(Duration::from_millis(10)))
            .unwrap()
            .got()
    });
    assert!(came.expect("one of many comes") == datagram);
    // SOCK_STREAM: no boundaries, and as many as are wanted.
    let ends = [
        Streams::new(one, Role::Connector).unwrap(),
        Streams::new(other, Role::Acceptor).unwrap(),
    ];
    let [mut one, mut other] = stream(&ends);
    one.write_all(b"with").unwrap();
    one.write_all(b"out").unwrap();
    let mut both = [0; 7];
    other.read_exact(&mut both).unwrap();
    assert_eq!(&both, b"without");
}
