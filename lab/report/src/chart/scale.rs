//! Computes the axis of values: its range, its grid lines and their labels.

use crate::figure::{Chart, Kind, digits};

/// A range of values mapped to 0..1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

/// Lines of a linear axis, at most.
const LINES: f64 = 6.0;

impl Scale {
    /// One on which everything in the chart can be shown; from zero if it is linear.
    pub(super) fn of(chart: &Chart) -> Scale {
        let points = || {
            chart
                .series
                .iter()
                .flat_map(|it| it.points.iter().flatten())
        };
        let most = match chart.kind {
            Kind::Stack => (0..chart.categories.len())
                .map(|at| sum(chart, at))
                .fold(0.0, f64::max),
            _ => points().map(|it| it.max).fold(0.0, f64::max),
        };
        let most = if most > 0.0 { most } else { 1.0 };
        if chart.axis.logarithmic {
            let positive = points().map(|it| it.min).filter(|&it| it > 0.0);
            let least = positive.fold(most, f64::min);
            // No more than eight decades: a figure near nothing would squeeze all others.
            let low = least.log10().floor().max(most.log10().ceil() - 8.0);
            let high = most.log10().ceil().max(low + 1.0);
            return Scale {
                low,
                high,
                logarithmic: true,
            };
        }
        let step = step(most);
        Scale {
            low: 0.0,
            high: (most * 1.02 / step).ceil() * step,
            logarithmic: false,
        }
    }

    /// Where a value is: 0 at the beginning of the axis, 1 at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.low,
            false => value,
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Lines and what stands at them.
    pub(super) fn lines(&self) -> Vec<(f64, String)> {
        if self.logarithmic {
            let decades = self.low as i32..=self.high as i32;
            return decades
                .map(|it| (self.at(10_f64.powi(it)), plain(10_f64.powi(it))))
                .collect();
        }
        let step = step(self.high / 1.02);
        let count = (self.high / step).round() as u32;
        (0..=count)
            .map(|it| f64::from(it) * step)
            .map(|value| (self.at(value), plain(value)))
            .collect()
    }
}

/// What the parts at a category add up to.
pub(super) fn sum(chart: &Chart, at: usize) -> f64 {
    let parts = chart.series.iter().filter_map(|it| *it.points.get(at)?);
    parts.map(|it| it.median).sum()
}

/// 1, 2 or 5 times a power of ten, of which a few reach `most`.
fn step(most: f64) -> f64 {
    let raw = most / LINES;
    let power = 10_f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|it| it * power);
    let found = steps.into_iter().find(|&it| it >= raw);
    found.unwrap_or(10.0 * power)
}

/// A round number without digits that say nothing.
fn plain(value: f64) -> String {
    let rounded = format!("{value:.6}");
    let short = rounded.trim_end_matches('0').trim_end_matches('.');
    if short.len() > 7 || short == "0" && value != 0.0 {
        digits(value)
    } else {
        short.into()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Spread};

    fn scale(axis: Axis, values: &[f64]) -> Scale {
        let mut chart = Chart::new("c", "c", Kind::Lines, "x", axis);
        for (at, &value) in values.iter().enumerate() {
            chart.put("s", &at.to_string(), Spread::single(value));
        }
        Scale::of(&chart)
    }

    #[test]
    fn lines__are_round_and_reach_beyond_all_values() {
        let scale = scale(Axis::linear("goodput", "Gb/s"), &[3.0, 21.7]);
        let lines = scale.lines();
        let words: Vec<_> = lines.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(words, ["0", "5", "10", "15", "20", "25"]);
        assert!(scale.at(21.7) < 1.0 && scale.at(0.0) == 0.0);
    }

    #[test]
    fn lines__of_a_logarithmic_axis_are_decades() {
        let scale = scale(Axis::logarithmic("time", "us"), &[0.03, 7.0]);
        let words: Vec<_> = scale.lines().into_iter().map(|it| it.1).collect();
        assert_eq!(words, ["0.01", "0.1", "1", "10"]);
        assert_eq!(scale.at(0.0), 0.0);
    }

    #[test]
    fn of__nothing_or_zero_is_a_scale() {
        for axis in [Axis::linear("a", "b"), Axis::logarithmic("a", "b")] {
            let scale = scale(axis, &[0.0]);
            assert!(
                scale.at(0.0).is_finite() && scale.lines().len() > 1,
                "{scale:?}"
            );
        }
    }
}
