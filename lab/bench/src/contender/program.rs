//! Runs third-party programs, if they are installed: `ucx_perftest` and `fi_pingpong`.
//!
//! Both use their TCP transports, between the same hosts and on the same cores.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use zerolane_cli::program;

use super::contract::{Contender, Listener, Part};
use crate::job::name::Name;
use crate::job::operations::{Operations, Wait};
use crate::job::test::{Metric, Test};
use crate::job::{Job, Work};
use crate::measured::Measured;
use crate::measured::times::Quantiles;

/// Most operations of one run: some of UCX's take a millisecond over TCP.
const LATENCY_ITERS_MAX: u64 = 2_000;
const STREAM_ITERS_MAX: u64 = 50_000;
/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Ucx,
    Libfabric,
}

impl Contender for Program {
    fn able(&self, job: &Job) -> Result<(), String> {
        match &job.work {
            Work::Operations(operations) => self.runnable(operations),
            _ => Err(format!("{} has no such test", self.program())),
        }
    }

    fn listen(&self, _: IpAddr, _: &Job) -> Result<Box<dyn Listener>> {
        bail!("{} is not an end of this benchmark", self.program())
    }

    fn initiate(&self, _: SocketAddr, _: &mut Part<'_>) -> Result<Vec<Measured>> {
        bail!("{} is not an end of this benchmark", self.program())
    }
}

impl Program {
    /// The contender of this name if it is a program, whose two ends run unchanged.
    pub(crate) fn of(name: Name) -> Option<Program> {
        match name {
            Name::Ucx => Some(Program::Ucx),
            Name::Libfabric => Some(Program::Libfabric),
            _ => None,
        }
    }

    /// What it is called.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Program::Ucx => "ucx_perftest",
            Program::Libfabric => "fi_pingpong",
        }
    }

    /// Debian's package of it.
    fn package(self) -> &'static str {
        match self {
            Program::Ucx => "ucx-utils",
            Program::Libfabric => "libfabric-bin",
        }
    }

    /// Whether it is here and has a like of this test; if not, why.
    fn runnable(self, job: &Operations) -> Result<(), String> {
        let program = self.program();
        let has = match self {
            Program::Ucx => true,
            Program::Libfabric => job.test == Test::SendLat && job.wait == Wait::Poll,
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
    pub(crate) fn arguments(self, job: &Operations) -> Vec<String> {
        let iters = job.iters.min(match job.test.metric() {
            Metric::Latency => LATENCY_ITERS_MAX,
            Metric::Stream => STREAM_ITERS_MAX,
        });
        let warm_up = job.warm_up.clamp(1, iters);
        let words = match self {
            Program::Ucx => {
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
            Program::Libfabric => format!("-p tcp -e msg -S {} -I {iters}", job.size),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// The arguments that name the server, or its own port.
    pub(crate) fn server(self, port: u16, address: Option<String>) -> Vec<String> {
        let flag = match (self, &address) {
            (Program::Libfabric, None) => "-B",
            (Program::Libfabric, Some(_)) => "-P",
            (Program::Ucx, _) => "-p",
        };
        let mut words = vec![flag.to_owned(), port.to_string()];
        words.extend(address);
        words
    }

    /// What the initiator printed, as a measurement.
    pub(crate) fn measured(self, job: &Operations, said: &str) -> Result<Measured> {
        match self {
            Program::Ucx => ucx_measured(job, said),
            Program::Libfabric => libfabric_measured(said),
        }
        .with_context(|| format!("{} printed {said:?}", self.program()))
    }
}

/// UCX's name of a test, and how many operations it may have in flight if not the job's depth.
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

/// What a program tells of its times, microseconds.
fn times(median: Option<f64>, mean: f64) -> Measured {
    Measured::latency(Quantiles {
        median,
        mean: Some(mean),
        ..Quantiles::default()
    })
}

/// The last line of CSV: iterations; latency: median, average, overall, us; bandwidth: average,
/// overall, 2^20 bytes/s; messages/s: average, overall.
fn ucx_measured(job: &Operations, said: &str) -> Result<Measured> {
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
        Metric::Latency => times(Some(median), mean),
        Metric::Stream => Measured::stream((per_second * job.size as f64) as u64, 1.0),
    })
}

/// The last line: bytes, sent, acknowledged, total, time, MB/s, us for one way, transfers.
fn libfabric_measured(said: &str) -> Result<Measured> {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let us = last.context("nothing")?.split_whitespace().nth(6);
    let us = us
        .context("too few fields")?
        .parse()
        .context("not a number")?;
    Ok(times(None, us))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::operations::tests::operations;

    #[test]
    fn ucx_measured__reads_its_csv() {
        let said = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    3000,13.010,40.539,41.539,0.19,0.19,24668,24669\n";
        let latency = ucx_measured(&operations(), said).unwrap();
        assert_eq!(latency, times(Some(13.010), 41.539));
        let job = Operations {
            test: Test::PutBw,
            size: 64,
            ..operations()
        };
        let stream = ucx_measured(&job, said).unwrap();
        assert_eq!(stream, Measured::stream(24669 * 64, 1.0));
        assert!(ucx_measured(&job, "").is_err());
        assert!(ucx_measured(&job, "1,2,3\n").is_err());
    }

    #[test]
    fn libfabric_measured__reads_its_table() {
        let said = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       1k      =1k      15k         0.02s      0.79      10.07       0.10\n";
        assert_eq!(libfabric_measured(said).unwrap(), times(None, 10.07));
        assert!(libfabric_measured("8 1k\n").is_err());
    }
}
