//! Shows progress on standard error: a bar with the time left, or, without a terminal, a line for each run.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use zerolane_cli::console;

use crate::plan::Planned;
use crate::results::{Outcome, Run};

/// The progress of a plan, by the time that its runs are expected to take.
#[derive(Debug)]
pub(super) struct Shown {
    bar: ProgressBar,
    /// Expected seconds of each run.
    expected: Vec<u32>,
    at: usize,
    started: Instant,
    before: usize,
}

impl Shown {
    pub(super) fn new(plan: &[&Planned], before: usize) -> Shown {
        let expected: Vec<_> = plan.iter().map(|it| it.expected_s).collect();
        let bar = ProgressBar::new(expected.iter().copied().map(u64::from).sum());
        let template = "{bar:30} {percent:>3} %  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if before > 0 {
            console::note(format_args!("runs done already: {before}"));
        }
        Shown {
            bar,
            expected,
            at: 0,
            started: Instant::now(),
            before,
        }
    }

    pub(super) fn begin(&mut self, at: usize, planned: &Planned) {
        self.at = at;
        self.started = Instant::now();
        let number = self.before + at + 1;
        let all = self.before + self.expected.len();
        let left = HumanDuration(self.left());
        if self.bar.is_hidden() {
            console::note(format_args!(
                "{number}/{all} {}, about {left} left",
                planned.name
            ));
        }
        self.bar
            .set_prefix(format!("{number}/{all} {}", planned.name));
        self.tick();
    }

    pub(super) fn tick(&self) {
        let done: u32 = self.expected[..self.at].iter().sum();
        let this = self.started.elapsed().as_secs().min(self.this().into());
        self.bar.set_position(u64::from(done) + this);
        let left = HumanDuration(self.left());
        self.bar
            .set_message(format!("{}, about {left} left", self.bar.prefix()));
    }

    fn this(&self) -> u32 {
        self.expected.get(self.at).copied().unwrap_or_default()
    }

    /// What the runs that are not over should take.
    fn left(&self) -> Duration {
        let all: u32 = self
            .expected
            .get(self.at..)
            .unwrap_or_default()
            .iter()
            .sum();
        let this = self
            .started
            .elapsed()
            .min(Duration::from_secs(self.this().into()));
        Duration::from_secs(all.into()).saturating_sub(this)
    }

    pub(super) fn finish(&self, run: &Run) {
        if let Outcome::Error(why) = &run.outcome {
            self.bar
                .suspend(|| console::note(format_args!("{}: {why}", run.name)));
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
