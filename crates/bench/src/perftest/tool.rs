//! Other people's programs, where they are installed: `ucx_perftest` and `fi_pingpong`, both over
//! their TCP transports, between the same hosts and on the same cores.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::command::{INITIATOR, RESPONDER};
use super::job::{Job, Wait};
use super::report::Outcome;
use super::test::{Metric, Test};
use crate::link::{Host, Link};
use crate::peer::Process;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::program;

/// Longest run of a program.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at whether it is over, or whether its server can be reached.
const LOOK: Duration = Duration::from_millis(20);
/// Time that a server gets to start listening.
const START: Duration = Duration::from_millis(300);
/// Most operations of one run: some of UCX's take a millisecond over TCP.
const LATENCY_ITERS_MAX: u64 = 2_000;
const STREAM_ITERS_MAX: u64 = 50_000;
/// Tries to reach it.
const TRIES: usize = 5;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Ucx,
    Libfabric,
}

/// Where programs run.
pub(crate) struct Stage<'a> {
    pub(crate) link: &'a Link,
    /// Of the initiator and of the responder.
    pub(crate) cores: [usize; 2],
    pub(crate) interrupt: &'a Interrupt,
}

impl Tool {
    fn program(self) -> &'static str {
        match self {
            Tool::Ucx => "ucx_perftest",
            Tool::Libfabric => "fi_pingpong",
        }
    }

    /// Debian's package of it.
    fn package(self) -> &'static str {
        match self {
            Tool::Ucx => "ucx-utils",
            Tool::Libfabric => "libfabric-bin",
        }
    }

    /// Whether it is here and has a like of this test; if not, why.
    pub(crate) fn runnable(self, test: Test, wait: Wait) -> Result<(), String> {
        let program = self.program();
        let has = match self {
            Tool::Ucx => true,
            Tool::Libfabric => test == Test::SendLat && wait == Wait::Poll,
        };
        if !has {
            return Err(format!("{program} has no such test"));
        }
        if program::find(program).is_none() {
            let package = self.package();
            return Err(format!("{program} is not installed (Debian: {package})"));
        }
        Ok(())
    }

    /// What both ends are told.
    fn arguments(self, job: &Job) -> Vec<String> {
        let iters = job.iters.min(match job.test.metric() {
            Metric::Latency => LATENCY_ITERS_MAX,
            Metric::Stream => STREAM_ITERS_MAX,
        });
        let warm_up = job.warm_up.clamp(1, iters);
        let words = match self {
            Tool::Ucx => {
                let (test, outstanding) = ucx_test(job.test);
                let outstanding = outstanding.unwrap_or(job.depth);
                let wait = match job.wait {
                    Wait::Poll => "poll",
                    Wait::Event => "sleep",
                };
                format!(
                    "-f -v -t {test} -s {} -n {iters} -w {warm_up} -O {outstanding} -E {wait}",
                    job.size,
                )
            }
            Tool::Libfabric => format!("-p tcp -e msg -S {} -I {iters}", job.size),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// The arguments that name the server, or its own port.
    fn server(self, port: u16, address: Option<String>) -> Vec<String> {
        let flag = match (self, &address) {
            (Tool::Libfabric, None) => "-B",
            (Tool::Libfabric, Some(_)) => "-P",
            (Tool::Ucx, _) => "-p",
        };
        let mut words = vec![flag.to_owned(), port.to_string()];
        words.extend(address);
        words
    }

    /// What the initiator printed, as figures.
    fn outcome(self, job: &Job, said: &str) -> Result<Outcome> {
        match self {
            Tool::Ucx => ucx_outcome(job, said),
            Tool::Libfabric => libfabric_outcome(said),
        }
        .with_context(|| format!("{} said {said:?}", self.program()))
    }
}

/// UCX's name of a test, and how many operations it may have under way if not the job's depth.
fn ucx_test(test: Test) -> (&'static str, Option<usize>) {
    match test {
        Test::PutLat => ("ucp_put_lat", Some(1)),
        Test::GetLat => ("ucp_get", Some(1)),
        Test::FetchLat => ("ucp_fadd", Some(1)),
        Test::SendLat => ("tag_lat", Some(1)),
        Test::PutBw | Test::PutRate => ("ucp_put_bw", None),
        Test::GetBw => ("ucp_get", None),
        Test::SendBw => ("tag_bw", None),
    }
}

/// The last line of CSV: iterations; latency: median, average, overall, us; bandwidth: average,
/// overall, 2^20 bytes/s; messages/s: average, overall.
fn ucx_outcome(job: &Job, said: &str) -> Result<Outcome> {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let fields: Vec<f64> = last
        .context("nothing")?
        .split(',')
        .map(|field| field.trim().parse().context("not a number"))
        .collect::<Result<_>>()?;
    let &[_, median, _, mean, _, _, _, per_second] = &fields[..] else {
        bail!("{} fields", fields.len())
    };
    Ok(match job.test.metric() {
        Metric::Latency => Outcome::medians(median, mean),
        Metric::Stream => Outcome::stream(per_second * job.size as f64, job.size),
    })
}

/// The last line: bytes, sent, acknowledged, total, time, MB/s, us for one way, transfers.
fn libfabric_outcome(said: &str) -> Result<Outcome> {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let us = last.context("nothing")?.split_whitespace().nth(6);
    let us = us
        .context("too few fields")?
        .parse()
        .context("not a number")?;
    Ok(Outcome::mean(us))
}

impl Stage<'_> {
    /// One run of a program, both ends of it.
    pub(crate) fn run(&self, tool: Tool, job: &Job) -> Result<Outcome> {
        let program = tool.program();
        // Free here is free in a namespace of our own as well.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut server = self.command(tool, job, RESPONDER);
        server.args(tool.server(port, None)).stdout(Stdio::null());
        let server = Process::spawn(&mut server, self.interrupt)
            .with_context(|| format!("starting {program}"))?;
        let address = self.link.address(RESPONDER).to_string();
        let mut tried = 0;
        let said = loop {
            sleep(START);
            tried += 1;
            let mut client = self.command(tool, job, INITIATOR);
            client.args(tool.server(port, Some(address.clone())));
            match self.output(client) {
                Ok(said) => break said,
                Err(error) if tried == TRIES => {
                    return Err(error.context(format!("running {program}")));
                }
                Err(_) => self.interrupt.check()?,
            }
        };
        drop(server);
        tool.outcome(job, &said)
    }

    fn command(&self, tool: Tool, job: &Job, host: Host) -> Command {
        let core = self.cores[usize::from(host == RESPONDER)];
        let mut command = self.link.program(host, "taskset");
        command
            .args(["-c", &core.to_string(), tool.program()])
            .args(tool.arguments(job))
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", self.link.device(host))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// What a program prints before it ends well.
    fn output(&self, mut command: Command) -> Result<String> {
        let mut process = Process::spawn(command.stdout(Stdio::piped()), self.interrupt)?;
        let deadline = Instant::now() + PATIENCE;
        // A page of output at most: it fits the pipe.
        let status = loop {
            match process.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => bail!("no end after {PATIENCE:?}"),
                None => sleep(LOOK),
            }
        };
        ensure!(status.success(), "ended with {status}");
        let mut said = String::new();
        let output = process.child.stdout.as_mut().context("no output")?;
        output.read_to_string(&mut said)?;
        Ok(said)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::job::tests::job;
    use super::*;

    #[test]
    fn ucx_outcome__reads_its_csv() {
        let said = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    3000,13.010,40.539,41.539,0.19,0.19,24668,24669\n";
        let latency = ucx_outcome(&job(), said).unwrap();
        assert_eq!(latency, Outcome::medians(13.010, 41.539));
        let job = Job {
            test: Test::PutBw,
            size: 64,
            ..job()
        };
        let stream = ucx_outcome(&job, said).unwrap();
        assert_eq!(stream, Outcome::stream(24669.0 * 64.0, 64));
        assert!(ucx_outcome(&job, "").is_err());
        assert!(ucx_outcome(&job, "1,2,3\n").is_err());
    }

    #[test]
    fn libfabric_outcome__reads_its_table() {
        let said = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       1k      =1k      15k         0.02s      0.79      10.07       0.10\n";
        assert_eq!(libfabric_outcome(said).unwrap(), Outcome::mean(10.07));
        assert!(libfabric_outcome("8 1k\n").is_err());
    }
}
