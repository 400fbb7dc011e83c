//! Records the times of single operations, in a histogram with three significant digits.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest time that is told from longer ones: the peer counts as gone before.
const LONGEST: Duration = Duration::from_secs(60);

/// Collects times without allocating.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u32>);

/// What is told of the times of one run, microseconds; `None` where a program does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quantiles {
    pub(crate) min: Option<f64>,
    pub(crate) median: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Times {
    pub(crate) fn new() -> Result<Times> {
        // A u64 holds a minute in nanoseconds.
        Ok(Times(Histogram::new_with_bounds(
            1,
            LONGEST.as_nanos() as u64,
            3,
        )?))
    }

    /// Counts one more.
    pub(crate) fn record(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The quantiles, each divided by `parts`.
    pub(crate) fn quantiles(&self, parts: u32) -> Result<Quantiles> {
        (!self.0.is_empty())
            .then_some(())
            .context("no operation was timed")?;
        let us = |ns: f64| ns / 1e3 / f64::from(parts);
        let at = |quantile| us(self.0.value_at_quantile(quantile) as f64);
        Ok(Quantiles {
            min: Some(us(self.0.min() as f64)),
            median: Some(at(0.5)),
            mean: Some(us(self.0.mean())),
            p99: Some(at(0.99)),
            p999: Some(at(0.999)),
            max: Some(us(self.0.max() as f64)),
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn quantiles__of_known_times() {
        let mut times = Times::new().unwrap();
        assert!(times.quantiles(1).is_err());
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        let quantiles = times.quantiles(2).unwrap();
        let close = |is: Option<f64>, be: f64| {
            let is = is.unwrap();
            assert!((is - be).abs() <= be * 2e-3, "{is} {be}");
        };
        close(quantiles.min, 0.5);
        close(quantiles.median, 250.0);
        close(quantiles.mean, 250.25);
        close(quantiles.p99, 495.0);
        close(quantiles.p999, 499.5);
        close(quantiles.max, 500.0);
    }

    #[test]
    fn record__longer_than_can_be_told_counts_as_longest() {
        let mut times = Times::new().unwrap();
        times.record(Duration::from_secs(1_000_000_000));
        let max = times.quantiles(1).unwrap().max.unwrap();
        assert!(max >= LONGEST.as_micros() as f64 * 0.99);
    }
}
