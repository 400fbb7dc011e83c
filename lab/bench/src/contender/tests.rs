//! Tests that every contender carries every byte, and detects wrong ones.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use zerolane_cli::exit::Exit;
use zerolane_cli::lane::LaneName;

use super::contract::{Memory, Part};
use super::*;
use crate::job::operations::tests::operations;
use crate::job::operations::{Operations, Target, Wait};
use crate::job::settings::TcpTuning;
use crate::job::source_sink::{self, Overheads, Sink, Source, SourceSink, Speculation};
use crate::job::test::Test;
use crate::job::tests::every_work;
use crate::job::{FileCopy, Flows, Job, Laps, Work};
use crate::measured::Measured;
use crate::measured::times::Quantiles;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The contenders that carry buffers and files.
const CARRIERS: [Name; 6] = [
    Name::Tcp,
    Name::Unix,
    Name::Tls,
    Name::Quinn,
    Name::Zerolane,
    Name::ZerolanePlain,
];

/// The contenders that carry buffers.
fn carriers_of_laps() -> impl Iterator<Item = Name> {
    let lenders = [Name::TcpSplice, Name::TcpSendfile];
    CARRIERS.into_iter().chain(lenders)
}

const LAPS: Laps = Laps {
    // No whole number of TLS records, and more than is received at once.
    buffer: (1 << 20) + 8,
    laps: 3,
    seed: 5,
};

const COUNT: u64 = 12;

fn job(contender: Name, work: Work) -> Job {
    Job {
        contender,
        // Pieces that end within words at the receiver.
        tcp: TcpTuning {
            send_bytes: 40_000,
            recv_bytes: 10_008,
            ..TcpTuning::default()
        },
        token: 77,
        ..Job::of(work)
    }
}

/// Runs `act` as an end with `files`.
fn as_end<T>(job: &Job, files: Option<&Path>, act: impl FnOnce(&mut Part<'_>) -> T) -> T {
    act(&mut Part {
        job,
        cores: &[0],
        memory: &mut Memory::default(),
        files,
        soaker: None,
        tell: &|_, _| {},
    })
}

fn initiate(to: SocketAddr, job: &Job, files: Option<&Path>) -> Result<Vec<Measured>> {
    as_end(job, files, |part| of(job.contender).initiate(to, part))
}

type Both = (Vec<Result<Vec<Measured>>>, Result<Vec<Measured>>);

/// All ends: each initiator has a job, and the responder one.
fn ends(initiators: &[&Job], responder: &Job, files: Option<[&Path; 2]>) -> Both {
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let responds = scope.spawn(move || -> Result<Vec<Measured>> {
            let listener = of(responder.contender).listen(LOCAL, responder)?;
            tell.send(SocketAddr::new(LOCAL, listener.port()?))?;
            let files = files.map(|it| it[1]);
            as_end(responder, files, |part| listener.respond(part))
        });
        let to = told.recv().unwrap();
        let from = files.map(|it| it[0]);
        let initiates = initiators.iter().map(|&job| {
            let initiates = scope.spawn(move || initiate(to, job, from));
            // A peer with the wrong job comes first.
            while job.token != responder.token && !initiates.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            initiates
        });
        let initiates: Vec<_> = initiates.collect();
        let sent = initiates.into_iter().map(|it| it.join().unwrap());
        (sent.collect(), responds.join().unwrap())
    })
}

/// Both ends do the same.
fn both(job: &Job) -> [Measured; 2] {
    match ends(&[job], job, None) {
        (mut sent, Ok(mut received)) if sent[0].is_ok() => {
            [sent.remove(0).unwrap().remove(0), received.remove(0)]
        }
        // One end's error often is only that the other one went.
        failed => panic!("{job:?}: {failed:?}"),
    }
}

#[test]
fn of__every_name_has_a_contender() {
    for name in <Name as clap::ValueEnum>::value_variants() {
        let _ = of(*name);
    }
    assert_eq!(
        CONTENDERS.len(),
        <Name as clap::ValueEnum>::value_variants().len()
    );
}

#[test]
fn able__each_says_what_it_cannot_do() {
    let [laps, flows, file, source_sink, operations] = every_work();
    for (name, able) in [
        (Name::Udp, [false, false, false, true, true]),
        (Name::Tcp, [true; 5]),
        (Name::Unix, [false; 5]),
        (Name::TcpSplice, [true, false, false, false, false]),
        (Name::TcpSendfile, [true, false, false, false, false]),
        (Name::Tls, [true, false, true, false, false]),
        (Name::Quinn, [true, false, true, false, false]),
        (Name::Zerolane, [true; 5]),
        (Name::ZerolanePlain, [true; 5]),
        (Name::Classic, [true; 5]),
    ] {
        let jobs = [&laps, &flows, &file, &source_sink, &operations];
        let is = jobs.map(|job| of(name).able(job).is_ok());
        assert_eq!(is, able, "{name:?}");
    }
    for job in every_work() {
        let job = Job {
            lane: LaneName::Shm,
            ..job
        };
        assert!(of(Name::Unix).able(&job).is_ok(), "{job:?}");
    }
    let congestion = Some("no-such-one");
    let why = Tcp { congestion }.able(&flows).unwrap_err();
    assert!(why.contains("does not have"), "{why}");
    for program in [Name::Ucx, Name::Libfabric] {
        assert!(of(program).able(&laps).is_err());
        assert!(of(program).listen(LOCAL, &operations).is_err());
    }
}

#[test]
fn laps__every_byte_of_the_last_one_is_right() {
    for name in carriers_of_laps() {
        let [tx, rx] = both(&job(name, Work::Laps(LAPS)));
        assert_eq!(
            (tx.bytes, rx.bytes),
            (LAPS.bytes(), LAPS.bytes()),
            "{name:?}"
        );
        assert!(
            tx.seconds > 0.0 && rx.seconds > 0.0 && tx.syscalls > 0,
            "{name:?}"
        );
    }
    let [_, rx] = both(&job(Name::Tcp, Work::Laps(LAPS)));
    assert!(rx.syscalls >= LAPS.bytes() / 10_008);
}

#[test]
fn laps__wrong_bytes_are_corrupt() {
    let other = Laps { seed: 6, ..LAPS };
    for name in carriers_of_laps() {
        let (right, wrong) = (job(name, Work::Laps(LAPS)), job(name, Work::Laps(other)));
        let error = ends(&[&wrong], &right, None).1.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{name:?}: {error:#}");
    }
}

/// Uses buffers of which many laps fit into the sockets: lent memory must not change in flight.
#[test]
fn laps__of_little_memory_that_is_lent_are_right() {
    let laps = Laps {
        buffer: 64 << 10,
        laps: 200,
        seed: 9,
    };
    for name in [Name::TcpSplice, Name::TcpSendfile] {
        let job = Job {
            tcp: TcpTuning::default(),
            ..job(name, Work::Laps(laps))
        };
        let [_, rx] = both(&job);
        assert_eq!(rx.bytes, laps.bytes(), "{name:?}");
    }
}

#[test]
fn laps__zerolane_tells_what_sealed_them() {
    let cipher = |name, security| {
        let job = Job {
            security,
            ..job(name, Work::Laps(LAPS))
        };
        both(&job).map(|end| end.cipher)
    };
    let aes = Some("aes-128-gcm".to_owned());
    let sealed = cipher(Name::Zerolane, Protection::Aes128Gcm);
    assert_eq!(sealed, [aes.clone(), aes]);
    assert_eq!(cipher(Name::Zerolane, Protection::Plain), [None, None]);
    // Whatever the others are told.
    let plain = cipher(Name::ZerolanePlain, Protection::Encrypted);
    assert_eq!(plain, [None, None]);
}

#[test]
fn laps__another_token_is_not_the_sender() {
    for name in [Name::Tcp, Name::Unix, Name::Zerolane] {
        let right = job(name, Work::Laps(LAPS));
        let other = Job {
            token: 78,
            ..right.clone()
        };
        let (sent, received) = ends(&[&other, &right], &right, None);
        assert!(sent[0].is_err() && sent[1].is_ok(), "{name:?}: {sent:?}");
        assert_eq!(received.unwrap()[0].bytes, LAPS.bytes());
    }
}

#[test]
fn file__is_the_same_there() {
    const BYTES: usize = 3_000_001;
    let content: Vec<u8> = (0..BYTES).map(|at| (at * at / 7) as u8).collect();
    for name in CARRIERS {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("a"), &content).unwrap();
        let job = job(
            name,
            Work::File(FileCopy {
                name: "a".into(),
                bytes: BYTES as u64,
            }),
        );
        let files = Some([from.path(), to.path()]);
        let (sent, received) = ends(&[&job], &job, files);
        let sent = sent.into_iter().next().unwrap().unwrap();
        let (tx, rx) = (&sent[0], received.unwrap());
        assert_eq!(
            (tx.bytes, rx[0].bytes),
            (BYTES as u64, BYTES as u64),
            "{name:?}"
        );
        assert!(
            fs::read(to.path().join("a")).unwrap() == content,
            "{name:?}"
        );
        // What is there already is not written over.
        assert!(ends(&[&job], &job, files).1.is_err(), "{name:?}");
    }
}

#[test]
fn file__an_end_without_files_refuses() {
    for mut job in every_work() {
        if matches!(job.work, Work::File(_)) {
            job.contender = Name::Tcp;
            let error = ends(&[&job], &job, None).1.unwrap_err();
            assert!(
                error.to_string().contains("has no directory for files"),
                "{error:#}"
            );
        }
    }
}

const FLOWS: Flows = Flows {
    buffer: 1 << 20,
    initiators: 2,
    parallel: 2,
    reverse: false,
    millis: 105,
    sample_millis: 10,
    live: false,
    seed: 3,
};

/// The results of flows whose times and samples are `times` times those of [`FLOWS`].
fn received(name: Name, reverse: bool, times: u64) -> Vec<Measured> {
    let flows = Flows {
        reverse,
        millis: FLOWS.millis * times,
        sample_millis: FLOWS.sample_millis * times,
        ..FLOWS
    };
    let job = job(name, Work::Flows(flows));
    let (initiators, responder) = ends(&[&job, &job], &job, None);
    let initiators: Result<Vec<_>> = initiators.into_iter().collect();
    let (initiators, responder) = (initiators.unwrap().concat(), responder.unwrap());
    let (sent, received) = match reverse {
        false => (initiators, responder),
        true => (responder, initiators),
    };
    assert_eq!((sent.len(), received.len()), (4, 4), "{name:?}");
    assert!(sent.iter().all(|it| it.samples.is_empty()), "{name:?}");
    for flow in &received {
        assert!(
            flow.seconds >= flows.time().as_secs_f64(),
            "{name:?}: {flow:?}"
        );
        assert_eq!(flow.samples.len(), 11, "{name:?}: {flow:?}");
        let sum: u64 = flow.samples.iter().sum();
        assert_eq!(sum, flow.bytes, "{name:?}: {flow:?}");
    }
    received
}

#[test]
fn flows__each_is_counted_over_its_time() {
    for (name, reverse) in [
        (Name::Tcp, false),
        (Name::Tcp, true),
        (Name::Unix, true),
        (Name::Classic, false),
        (Name::Extended, false),
        (Name::Extended, true),
    ] {
        // On a busy machine nothing may come in a short time.
        let mut times = [1, 10, 100]
            .into_iter()
            .map(|times| received(name, reverse, times));
        let all_flow = |flows: Vec<Measured>| flows.iter().all(|flow| flow.bytes > 0);
        assert!(times.any(all_flow), "{name:?}");
    }
}

#[test]
fn flows__wrong_bytes_are_corrupt() {
    let flows = Flows {
        initiators: 1,
        parallel: 1,
        millis: 10_000,
        sample_millis: 1000,
        ..FLOWS
    };
    for (name, reverse) in [
        (Name::Tcp, false),
        (Name::Zerolane, false),
        (Name::Tcp, true),
        (Name::Zerolane, true),
    ] {
        let flows = Flows { reverse, ..flows };
        let right = job(name, Work::Flows(flows));
        let wrong = job(name, Work::Flows(Flows { seed: 4, ..flows }));
        let (initiators, responder) = ends(&[&wrong], &right, None);
        let received = match reverse {
            false => responder,
            true => initiators.into_iter().next().unwrap(),
        };
        let error = received.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{name:?}: {error:#}");
    }
}

/// Runs every possible contender from every source to every sink.
fn from_sources_to_sinks(work: SourceSink) -> Vec<Job> {
    let (mut jobs, sources, sinks) = (Vec::new(), Source::value_variants(), Sink::value_variants());
    for name in [
        Name::Udp,
        Name::Tcp,
        Name::TcpSplice,
        Name::TcpSendfile,
        Name::Classic,
        Name::Extended,
    ] {
        for &source in sources {
            for &sink in sinks {
                let work = Work::SourceSink(SourceSink {
                    source,
                    sink,
                    ..work
                });
                let job = Job {
                    contender: name,
                    ..Job::of(work)
                };
                jobs.extend(of(name).able(&job).is_ok().then_some(job));
            }
        }
    }
    jobs
}

/// A job of several laps in pieces that do not fill whole datagrams.
const SOURCE_SINK: SourceSink = SourceSink {
    piece: 200 * 64,
    ..source_sink::tests::JOB
};

#[test]
fn source_sink__every_byte_comes_or_is_told_as_lost() {
    let jobs = from_sources_to_sinks(SOURCE_SINK);
    // UDP 3 by 3, TCP 3 by 5, 5 of each that lends, each profile 3 by 5.
    assert_eq!(jobs.len(), 9 + 15 + 5 + 5 + 15 + 15);
    for job in jobs {
        let [tx, rx] = both(&job);
        let bytes = SOURCE_SINK.laps().bytes();
        assert_eq!(
            (tx.bytes, rx.bytes + rx.lost_bytes),
            (bytes, bytes),
            "{job:?}"
        );
        assert!(job.contender == Name::Udp || rx.lost_bytes == 0, "{job:?}");
        assert!(
            rx.bytes > 0 && tx.syscalls > 0 && rx.syscalls > 0,
            "{job:?}"
        );
        assert!(tx.seconds > 0.0 && rx.seconds > 0.0, "{job:?}");
    }
}

#[test]
fn source_sink__with_every_overhead_of_the_ladder() {
    for no_gso in [false, true] {
        for no_gro in [false, true] {
            for (checksum, no_trains) in [(false, true), (true, false), (true, true)] {
                let overheads = Overheads {
                    no_gso,
                    no_gro,
                    checksum,
                    no_trains,
                    ..Overheads::default()
                };
                let work = SourceSink {
                    overheads,
                    sink: Sink::Copy,
                    ..SOURCE_SINK
                };
                let [_, rx] = both(&job(Name::Extended, Work::SourceSink(work)));
                assert_eq!(rx.bytes, work.laps().bytes(), "{overheads:?}");
            }
        }
    }
}

/// Of one MiB each, which has several bursts: what is predicted is placed, the rest is moved, and all of it is right.
#[test]
fn source_sink__with_every_prediction() {
    for no_trains in [false, true] {
        for speculation in [Speculation::Right, Speculation::None, Speculation::Wrong] {
            let work = SourceSink {
                piece: 1 << 20,
                laps: 4,
                overheads: Overheads {
                    no_trains,
                    speculation,
                    // Loopback carries a burst in one datagram otherwise, which has no neighbour.
                    stu: Some(1024),
                    ..Overheads::default()
                },
                ..source_sink::tests::JOB
            };
            let [_, rx] = both(&job(Name::Extended, Work::SourceSink(work)));
            let bytes = work.laps().bytes();
            assert_eq!(rx.bytes, bytes, "{speculation:?}");
            match (speculation, no_trains) {
                (Speculation::None, _) => assert_eq!(rx.moved_bytes, bytes, "{rx:?}"),
                // Until the ends know that trains can come, datagrams have headers.
                (Speculation::Wrong, false) => {}
                (Speculation::Wrong, true) => assert!(rx.moved_bytes > bytes / 2, "{rx:?}"),
                // A busy machine has some sent again, or in parts.
                _ => assert!(rx.moved_bytes < bytes / 2, "{speculation:?}: {rx:?}"),
            }
        }
    }
}

#[test]
fn source_sink__with_datagrams_in_between() {
    let work = SourceSink {
        laps: 20,
        overheads: Overheads {
            between: 500,
            ..Overheads::default()
        },
        ..SOURCE_SINK
    };
    let [_, rx] = both(&job(Name::Extended, Work::SourceSink(work)));
    assert_eq!(rx.bytes, work.laps().bytes());
    // Those that have not left after a time are dropped.
    assert!((1..=500).contains(&rx.between), "{rx:?}");
}

#[test]
fn source_sink__wrong_bytes_are_corrupt() {
    let other = SourceSink {
        seed: 6,
        ..SOURCE_SINK
    };
    let (right, wrong) = (
        from_sources_to_sinks(SOURCE_SINK),
        from_sources_to_sinks(other),
    );
    for (right, wrong) in right.iter().zip(&wrong) {
        let error = ends(&[wrong], right, None).1.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{right:?}: {error:#}");
    }
}

/// Runs the operations of a test at each size, in every way of waiting, by every contender that supports them.
fn operations_of(test: Test, sizes: &[usize]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for name in [Name::Udp, Name::Tcp, Name::Unix, Name::Zerolane] {
        for wait in [Wait::Poll, Wait::Event] {
            jobs.extend(sizes.iter().map(|&size| {
                let operations = Operations {
                    test,
                    wait,
                    size,
                    iters: COUNT,
                    // More than one batch, and more than the stream has.
                    depth: if size > 64 { 7 } else { 3000 },
                    ..operations()
                };
                job(name, Work::Operations(operations))
            }));
        }
    }
    jobs
}

/// The time of the one round is that of the pause, at least; half of it is one way.
#[test]
fn latency__a_responder_pauses_before_its_first_answer() {
    for mut job in operations_of(Test::SendLat, &[8, 5000]) {
        if let Work::Operations(it) = &mut job.work {
            (it.iters, it.warm_up, it.pause_millis) = (1, 0, 60);
        }
        let [tx, _] = both(&job);
        assert!(tx.latency.unwrap().max >= Some(29_000.0), "{job:?}");
    }
}

/// Of these seeds the first message of an end is 0, as fresh memory is: it must not be taken for a put. The time of the
/// one round is that of the pause, at least.
#[test]
fn latency__what_lay_in_memory_before_is_no_put() {
    for seed in [0, u64::MAX] {
        let operations = Operations {
            size: 1,
            iters: 1,
            warm_up: 0,
            pause_millis: 60,
            seed,
            ..operations()
        };
        let job = job(Name::Zerolane, Work::Operations(operations));
        let [tx, _] = both(&job);
        assert!(tx.latency.unwrap().max >= Some(29_000.0), "{job:?}");
    }
}

#[test]
fn latency__every_test_by_every_contender_is_timed_and_verified() {
    for test in [Test::PutLat, Test::GetLat, Test::SendLat, Test::FetchLat] {
        let sizes: &[usize] = match test {
            Test::FetchLat => &[8],
            _ => &[1, 8, 1472, 1473, 5000, 65_536],
        };
        for job in operations_of(test, sizes) {
            let [tx, rx] = both(&job);
            let Quantiles {
                min, median, max, ..
            } = tx.latency.unwrap();
            assert!(min > Some(0.0) && max >= median, "{job:?}");
            assert_eq!(rx, Measured::default());
        }
    }
}

/// The target's program looks, or sleeps; the last put is there in the end.
#[test]
fn put__to_a_target_that_does_not_answer_is_timed_and_verified() {
    for target in [Target::Active, Target::Background] {
        for (wait, size) in [(Wait::Poll, 8), (Wait::Event, 8), (Wait::Poll, 5000)] {
            let operations = Operations {
                target,
                wait,
                size,
                iters: COUNT,
                ..operations()
            };
            let job = job(Name::Zerolane, Work::Operations(operations));
            let [tx, rx] = both(&job);
            let Quantiles { min, median, .. } = tx.latency.unwrap();
            assert!(min > Some(0.0) && median >= min, "{job:?}");
            assert_eq!(rx, Measured::default());
        }
    }
}

#[test]
fn stream__every_byte_is_in_place_or_told_as_lost() {
    for test in [Test::PutBw, Test::GetBw, Test::PutRate, Test::SendBw] {
        for job in operations_of(test, &[1, 64, 1500, 70_000]) {
            let Work::Operations(operations) = job.work else {
                panic!("{job:?}");
            };
            let [tx, rx] = both(&job);
            let it = if tx.seconds > 0.0 { tx } else { rx };
            assert_eq!(it.bytes + it.lost_bytes, operations.bytes(), "{job:?}");
            assert!(it.seconds > 0.0 && it.bytes > 0, "{job:?}");
            assert!(job.contender == Name::Udp || it.lost_bytes == 0);
        }
    }
}

#[test]
fn operations__wrong_bytes_are_corrupt() {
    // Over TCP, where the initiator sees at once that the responder is gone.
    for (test, wait, size) in [
        (Test::PutLat, Wait::Poll, 8),
        (Test::PutLat, Wait::Event, 8),
        (Test::PutBw, Wait::Poll, 100),
    ] {
        let of_seed = |seed| {
            let operations = Operations {
                test,
                wait,
                size,
                seed,
                ..operations()
            };
            job(Name::Tcp, Work::Operations(operations))
        };
        let error = ends(&[&of_seed(1)], &of_seed(99), None).1.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt, "{error:#}");
        assert!(error.to_string().contains("is not number 0"), "{error:#}");
    }
}
