//! One run at one end: from a job to the carrier and the part this end plays in it.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::content::Content;
use super::job::{Carrier, Job, Seen};
use super::pipe::Pipe;
use super::test::Metric;
use super::{rounds, tcp, udp, zl};
use crate::protocol::TcpTuning;

/// Listens, tells the port, and answers what comes.
pub(crate) fn respond(
    bind: IpAddr,
    job: &Job,
    tell: impl FnOnce(u16) -> Result<()>,
) -> Result<Seen> {
    match job.carrier {
        Carrier::Udp => {
            let listener = udp::Listener::bind(bind)?;
            tell(listener.port()?)?;
            over_pipe(&mut listener.accept(job)?, job, Part::Responder)
        }
        Carrier::Tcp => {
            let listener = crate::tcp::Listener::bind(bind, &TcpTuning::default())?;
            tell(listener.port()?)?;
            over_pipe(&mut tcp::accept(listener, job)?, job, Part::Responder)
        }
        Carrier::Zerolane => {
            let listener = zl::listen(bind, job)?;
            tell(listener.port())?;
            zl::respond(listener, job)
        }
    }
}

/// Connects and does the operations of the job.
pub(crate) fn initiate(to: SocketAddr, job: &Job) -> Result<Seen> {
    match job.carrier {
        Carrier::Udp => over_pipe(&mut udp::connect(to, job)?, job, Part::Initiator),
        Carrier::Tcp => over_pipe(&mut tcp::connect(to, job)?, job, Part::Initiator),
        Carrier::Zerolane => zl::initiate(to, job),
    }
}

/// Which end of a run this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Initiator,
    Responder,
}

fn over_pipe(pipe: &mut impl Pipe, job: &Job, part: Part) -> Result<Seen> {
    match (job.test.metric(), part) {
        (Metric::Latency, Part::Initiator) => rounds::initiate(pipe, job),
        (Metric::Latency, Part::Responder) => rounds::respond(pipe, job),
        (Metric::Stream, _) => stream(pipe, job, job.test.is_inward() == (part == Part::Initiator)),
    }
}

fn stream(pipe: &mut impl Pipe, job: &Job, receives: bool) -> Result<Seen> {
    let content = Content::new(job.seed, job.size);
    let stream = match receives {
        true => Some(pipe.receive_stream(job, &content)?),
        false => {
            pipe.send_stream(job, &content)?;
            None
        }
    };
    Ok(Seen {
        latency: None,
        stream,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::thread;

    use super::super::job::tests::job;
    use super::super::job::{Job, Wait};
    use super::super::test::Test;
    use super::*;
    use zerolane_cli::exit::Exit;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Both ends; what the initiator and the responder saw.
    fn both(initiator: &Job, responder: &Job) -> [Result<Seen>; 2] {
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let responder = scope.spawn(|| respond(LOCAL, responder, |port| Ok(tell.send(port)?)));
            let port = told.recv().unwrap();
            let seen = initiate(SocketAddr::new(LOCAL, port), initiator);
            [seen, responder.join().unwrap()]
        })
    }

    fn jobs(test: Test, sizes: &[usize]) -> Vec<Job> {
        let mut jobs = Vec::new();
        for carrier in [Carrier::Udp, Carrier::Tcp, Carrier::Zerolane] {
            for wait in [Wait::Poll, Wait::Event] {
                jobs.extend(sizes.iter().map(|&size| Job {
                    test,
                    carrier,
                    wait,
                    size,
                    iters: 40,
                    // More than one batch, and more than the stream has.
                    depth: if size > 64 { 7 } else { 3000 },
                    ..job()
                }));
            }
        }
        jobs
    }

    #[test]
    fn latency__every_test_over_every_carrier_is_timed_and_verified() {
        for test in [Test::PutLat, Test::GetLat, Test::SendLat] {
            for job in jobs(test, &[1, 8, 1472, 1473, 5000]) {
                let [initiator, responder] = both(&job, &job);
                let latency = initiator.unwrap().latency.unwrap();
                assert!(
                    latency.min > 0.0 && latency.max >= latency.median,
                    "{job:?}"
                );
                assert_eq!(responder.unwrap(), Seen::default());
            }
        }
        for job in jobs(Test::FetchLat, &[8]) {
            assert!(both(&job, &job)[0].as_ref().unwrap().latency.is_some());
        }
    }

    #[test]
    fn stream__every_byte_is_in_place_or_told_as_lost() {
        for test in [Test::PutBw, Test::GetBw, Test::PutRate, Test::SendBw] {
            for job in jobs(test, &[1, 64, 1500, 70_000]) {
                let seen = match both(&job, &job) {
                    [Ok(initiator), Ok(responder)] => initiator.stream.or(responder.stream),
                    // One end's error often is only that the other one went.
                    failed => panic!("{job:?}: {failed:?}"),
                };
                let streamed = seen.unwrap();
                assert_eq!(streamed.bytes + streamed.lost, job.bytes(), "{job:?}");
                assert!(streamed.seconds > 0.0 && streamed.bytes > 0, "{job:?}");
                assert!(job.carrier == Carrier::Udp || streamed.lost == 0);
            }
        }
    }

    #[test]
    fn latency__wrong_bytes_are_corrupt() {
        // Over TCP, where the initiator sees at once that the responder is gone.
        for wait in [Wait::Poll, Wait::Event] {
            let carrier = Carrier::Tcp;
            let job = Job {
                carrier,
                wait,
                ..job()
            };
            let other = Job {
                seed: 99,
                ..job.clone()
            };
            let responder = both(&job, &other)[1].as_ref().unwrap_err().to_string();
            assert!(responder.contains("is not number 0"), "{responder}");
        }
    }

    #[test]
    fn stream__wrong_bytes_are_corrupt() {
        let job = Job {
            carrier: Carrier::Tcp,
            test: Test::PutBw,
            size: 100,
            ..job()
        };
        let other = Job {
            seed: 99,
            ..job.clone()
        };
        let [_, responder] = both(&job, &other);
        assert_eq!(Exit::of(&responder.unwrap_err()), Exit::Corrupt);
    }
}
