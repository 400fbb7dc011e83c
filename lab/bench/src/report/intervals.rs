//! Reports simultaneous flows, by interval and as a whole.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use serde::Serialize;

use crate::harness::runs::Run;
use crate::job::Flows;

/// What came in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Span {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    /// Payload at the receiver.
    pub(crate) bytes: u64,
    pub(crate) bits_per_s: f64,
}

/// What came of all flows in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) flows: Vec<Span>,
    pub(crate) sum: Span,
}

impl Span {
    fn of([start_s, end_s]: [f64; 2], bytes: u64) -> Span {
        Span {
            start_s,
            end_s,
            bytes,
            bits_per_s: bytes as f64 * 8.0 / (end_s - start_s).max(1e-9),
        }
    }

    /// A line of `name`.
    fn line(&self, name: &str) -> String {
        let Span {
            start_s,
            end_s,
            bytes,
            bits_per_s,
        } = self;
        let bytes = ByteSize(*bytes).display().si().to_string();
        let (rate, unit) = match bits_per_s {
            1e9.. => (bits_per_s / 1e9, "Gb/s"),
            1e6.. => (bits_per_s / 1e6, "Mb/s"),
            _ => (bits_per_s / 1e3, "kb/s"),
        };
        format!("[{name:>3}] {start_s:7.2}-{end_s:<7.2} s {bytes:>10} {rate:8.2} {unit}")
    }
}

impl Interval {
    /// The bytes of each flow in the interval of this number.
    fn of(flows: &Flows, index: u64, bytes: &[u64]) -> Interval {
        let time = flows.sample(index);
        Interval {
            flows: bytes.iter().map(|&bytes| Span::of(time, bytes)).collect(),
            sum: Span::of(time, bytes.iter().sum()),
        }
    }

    /// All intervals, from what the receivers measured, which has to add up.
    pub(crate) fn all(flows: &Flows, runs: &[Run]) -> Result<Vec<Interval>> {
        for run in runs {
            let sum = run
                .rx
                .samples
                .iter()
                .try_fold(0, |sum: u64, &it| sum.checked_add(it));
            ensure!(
                run.rx.samples.len() as u64 == flows.samples() && sum == Some(run.rx.bytes),
                "the receiver's intervals do not add up to what it received"
            );
        }
        let of = |index| {
            let bytes: Vec<u64> = runs
                .iter()
                .map(|run| run.rx.samples[index as usize])
                .collect();
            Interval::of(flows, index, &bytes)
        };
        Ok((0..flows.samples()).map(of).collect())
    }

    /// The whole time as one.
    pub(crate) fn whole(runs: &[Run]) -> Interval {
        let spans = runs.iter();
        let spans = spans.map(|run| Span::of([0.0, run.rx.seconds], run.rx.bytes));
        let longest = runs.iter().map(|run| run.rx.seconds).fold(0.0, f64::max);
        Interval {
            flows: spans.collect(),
            sum: Span::of([0.0, longest], runs.iter().map(|run| run.rx.bytes).sum()),
        }
    }

    /// A line for each flow, and one for all if there are several.
    pub(crate) fn text(&self) -> String {
        let flows = self.flows.iter().zip(1..);
        let mut lines: Vec<String> = flows
            .map(|(flow, number): (&Span, u32)| flow.line(&number.to_string()))
            .collect();
        if lines.len() > 1 {
            lines.push(self.sum.line("SUM"));
        }
        lines.join("\n")
    }
}

/// Intervals that are put together from what the receivers tell, flow by flow, while they receive.
#[derive(Debug)]
pub(crate) struct Assembly {
    flows: Flows,
    /// Of each flow, what was told and not shown.
    told: Vec<VecDeque<u64>>,
    next: u64,
}

impl Assembly {
    /// Of so many flows.
    pub(crate) fn new(flows: Flows, count: usize) -> Assembly {
        Assembly {
            flows,
            told: vec![VecDeque::new(); count],
            next: 0,
        }
    }

    /// A flow had so many bytes in its next interval; the interval that is complete by that. What no honest receiver
    /// tells is an error.
    pub(crate) fn tell(&mut self, flow: usize, bytes: u64) -> Result<Option<Interval>> {
        let told = self.told.get_mut(flow);
        let told = told
            .with_context(|| format!("the receiver reports flow {flow}, which does not exist"))?;
        ensure!(
            self.next + (told.len() as u64) < self.flows.samples(),
            "the receiver reports more intervals than there are"
        );
        told.push_back(bytes);
        if self.told.iter().any(VecDeque::is_empty) {
            return Ok(None);
        }
        let bytes = self.told.iter_mut().filter_map(VecDeque::pop_front);
        let bytes: Vec<u64> = bytes.collect();
        let interval = Interval::of(&self.flows, self.next, &bytes);
        self.next += 1;
        Ok(Some(interval))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::name::Name;
    use crate::measured::Measured;

    const FLOWS: Flows = Flows {
        buffer: 1 << 20,
        initiators: 1,
        parallel: 2,
        reverse: false,
        millis: 1500,
        sample_millis: 1000,
        live: true,
        seed: 0,
    };

    fn run(samples: [u64; 2], bytes: u64) -> Run {
        Run {
            contender: Name::Zerolane,
            tx: Measured::default(),
            rx: Measured {
                samples: samples.into(),
                ..Measured::stream(bytes, 1.5)
            },
        }
    }

    #[test]
    fn all__has_the_sum_of_the_flows_and_the_rate_of_a_shorter_last_one() {
        let runs = [run([1000, 250], 1250), run([2000, 750], 2750)];
        let intervals = Interval::all(&FLOWS, &runs).unwrap();
        let sums: Vec<u64> = intervals.iter().map(|it| it.sum.bytes).collect();
        assert_eq!(sums, [3000, 1000]);
        assert_eq!(intervals[1].sum, Span::of([1.0, 1.5], 1000));
        assert_eq!(intervals[1].sum.bits_per_s, 16_000.0);
        assert_eq!(Interval::whole(&runs).sum, Span::of([0.0, 1.5], 4000));
    }

    #[test]
    fn all__refuses_what_does_not_add_up() {
        let long = Measured {
            samples: vec![1, 2, 3],
            ..Measured::stream(6, 1.5)
        };
        let long = Run {
            rx: long,
            ..run([0, 0], 0)
        };
        for lie in [run([1, 2], 4), run([u64::MAX, 2], 1), long] {
            assert!(Interval::all(&FLOWS, &[run([1, 2], 3), lie]).is_err());
        }
    }

    #[test]
    fn tell__an_interval_is_complete_when_all_flows_told_it() {
        let mut assembly = Assembly::new(FLOWS, 2);
        assert_eq!(assembly.tell(1, 5).unwrap(), None);
        assert_eq!(assembly.tell(1, 7).unwrap(), None);
        let first = assembly.tell(0, 4).unwrap();
        assert_eq!(first, Some(Interval::of(&FLOWS, 0, &[4, 5])));
        let second = assembly.tell(0, 6).unwrap();
        assert_eq!(second, Some(Interval::of(&FLOWS, 1, &[6, 7])));
    }

    #[test]
    fn tell__refuses_more_than_there_is() {
        let mut assembly = Assembly::new(FLOWS, 2);
        assert!(assembly.tell(2, 1).is_err());
        for _ in 0..FLOWS.samples() {
            assembly.tell(0, 1).unwrap();
        }
        assert!(assembly.tell(0, 1).is_err());
    }

    #[test]
    fn text__one_flow_needs_no_sum() {
        let one = Interval::of(&FLOWS, 0, &[125_000_000]).text();
        assert_eq!(one, "[  1]    0.00-1.00    s   125.0 MB     1.00 Gb/s");
        let two = Interval::of(&FLOWS, 1, &[125, 125]).text();
        assert_eq!(two.lines().count(), 3);
        assert!(
            two.contains("\n[SUM]    1.00-1.50    s      250 B     4.00 kb/s"),
            "{two}"
        );
    }
}
