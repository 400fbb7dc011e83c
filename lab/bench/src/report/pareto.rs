//! Attributes the one-way time of a ping-pong to modules (P4.5), from samples of both ends.
//!
//! Both ends together have twice the time of a message, and at any instant one of them waits. This module subtracts the
//! waiting end's time, and the rest is the message's path. Waiting time is, for a polling end, the time in samples of ends
//! that poll in vain, and, for a sleeping end, the idle time of its core. If less than one end's time of idle cores is left,
//! both were idle: one was being woken.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use zerolane_explain::Explanation;
use zerolane_explain::rules::{Cause, Rules};
use zerolane_explain::stack::{Frame, unfold};

/// Both ends sleep: an interrupt is on its way to a core, or the core gets going.
const WAKING: &str = "no core is busy: one wakes up";
/// The module of samples without a rule.
const UNEXPLAINED: &str = "unexplained";
/// Crates of this project have names like this.
const OWN_PREFIX: &str = "zerolane_";

/// Samples of the ends and of kernel work for them, by module, without those of idle cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    samples: BTreeMap<String, u64>,
    /// Seconds of one CPU that a sample stands for.
    interval_s: f64,
}

/// A module's part of the one-way time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Part {
    pub(crate) module: String,
    pub(crate) us: f64,
    /// Of the one-way time, 0 to 1.
    pub(crate) share: f64,
    /// Of this and those before it.
    pub(crate) cumulative: f64,
    /// Samples in the module at both ends, including those of waiting.
    pub(crate) samples: u64,
}

impl Profile {
    /// `None` if there are no samples.
    pub(crate) fn of(explanation: &Explanation) -> Option<Profile> {
        let sampling = explanation.sampling?;
        Some(Profile {
            samples: by_module(&explanation.folded),
            interval_s: 1.0 / sampling.frequency_hz as f64,
        })
    }

    fn sum(&self) -> u64 {
        self.samples.values().sum()
    }

    /// CPU time of both ends, microseconds for each of `ways` messages.
    fn us_per_way(&self, samples: u64, ways: u64) -> f64 {
        samples as f64 * self.interval_s * 1e6 / ways as f64
    }

    /// The parts of a one-way time of `us` between polling ends. `waiting` is the profile of ends that poll in vain.
    /// Empty without samples.
    pub(crate) fn polled(&self, waiting: &Profile, us: f64) -> Vec<Part> {
        let share = |of: &Profile, module: &str| {
            let samples = of.samples.get(module).copied().unwrap_or_default();
            samples as f64 / of.sum().max(1) as f64
        };
        let parts = self.samples.keys().map(|module| {
            let time = 2.0 * share(self, module) - share(waiting, module);
            // Noise: there is no less than nothing.
            (module.clone(), time.max(0.0))
        });
        self.parts(parts.collect(), us)
    }

    /// The parts of a way of `us` between ends that sleep. While these samples were taken, `ways` messages took
    /// `sampled_us` each.
    pub(crate) fn asleep(&self, ways: u64, sampled_us: f64, us: f64) -> Vec<Part> {
        let time = |samples: u64| self.us_per_way(samples, ways.max(1));
        let waking = (sampled_us - time(self.sum())).max(0.0);
        let modules = self.samples.iter();
        let parts = modules.map(|(module, &samples)| (module.clone(), time(samples)));
        self.parts(parts.chain([(WAKING.to_owned(), waking)]).collect(), us)
    }

    /// The largest first, and all of them `us`.
    fn parts(&self, mut times: Vec<(String, f64)>, us: f64) -> Vec<Part> {
        let sum: f64 = times.iter().map(|it| it.1).sum();
        times.retain(|it| it.1 > 0.0);
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut cumulative = 0.0;
        let part = |(module, time): (String, f64)| {
            let share = time / sum;
            cumulative += share;
            Part {
                us: share * us,
                share,
                cumulative,
                samples: self.samples.get(&module).copied().unwrap_or_default(),
                module,
            }
        };
        times.into_iter().map(part).collect()
    }
}

fn by_module(folded: &HashMap<String, u64>) -> BTreeMap<String, u64> {
    let rules = Rules::new();
    let mut modules = BTreeMap::new();
    for (stack, samples) in folded {
        let frames = unfold(stack);
        let module = match rules.classify(&frames) {
            Some(Cause::Idle) => continue,
            Some(Cause::Program) => own(&frames),
            Some(cause) => cause.words().to_owned(),
            None => UNEXPLAINED.to_owned(),
        };
        *modules.entry(module).or_default() += samples;
    }
    modules
}

/// Which part of the program a stack was in: the crate of this project that is nearest to the leaf, or the library that
/// the leaf is in, such as that of the kernel's clocks.
fn own(leaf_first: &[Frame]) -> String {
    let of_user = leaf_first.iter().filter_map(|it| match it {
        Frame::User { module, symbol } => Some((module, symbol.as_deref())),
        Frame::Kernel(_) => None,
    });
    let mut of_user = of_user.peekable();
    match of_user.peek() {
        Some((module, _)) if !module.starts_with("zerolane") => format!("library: {module}"),
        _ => {
            let name = of_user.find_map(|(_, symbol)| crate_of(symbol?));
            format!("own code: {}", name.unwrap_or("other"))
        }
    }
}

/// `<zerolane_lane::driver::Driver as T>::poll` is of `zerolane_lane`, and `zerolane::Connection::poll` of `zerolane`.
fn crate_of(symbol: &str) -> Option<&str> {
    let start = symbol.find(|it: char| it.is_ascii_lowercase())?;
    let path = &symbol[start..];
    let end = path.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_'))?;
    let name = &path[..end];
    let own = name.starts_with(OWN_PREFIX) || name == "zerolane";
    (own && path[end..].starts_with("::")).then_some(name)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn profile(samples: &[(&str, u64)]) -> Profile {
        let samples = samples.iter();
        Profile {
            samples: samples.map(|&(name, count)| (name.into(), count)).collect(),
            interval_s: 1e-3,
        }
    }

    fn times(parts: &[Part]) -> Vec<(&str, f64)> {
        parts.iter().map(|it| (&*it.module, it.us)).collect()
    }

    #[test]
    fn polled__the_time_of_the_end_that_waits_is_taken_away() {
        // Half of all is waiting, in which the system calls are half.
        let both = profile(&[("copy", 30), ("calls", 45), ("idle look", 25)]);
        let waiting = profile(&[("calls", 500), ("idle look", 500)]);
        let parts = both.polled(&waiting, 10.0);
        let [copy, calls] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((&*copy.module, &*calls.module), ("copy", "calls"));
        assert!((copy.us - 6.0).abs() < 1e-9 && (calls.us - 4.0).abs() < 1e-9);
        assert_eq!((copy.samples, calls.samples), (30, 45));
        assert!((calls.cumulative - 1.0).abs() < 1e-9 && copy.cumulative == copy.share);
        assert!(profile(&[]).polled(&waiting, 10.0).is_empty());
    }

    #[test]
    fn asleep__what_is_left_is_the_time_of_no_core() {
        // 30 ms of CPU for 1000 messages, of 40 us each then, and of 80 in the table.
        let both = profile(&[("copy", 10), ("wake", 20)]);
        let parts = both.asleep(1000, 40.0, 80.0);
        let all = [("wake", 40.0), ("copy", 20.0), (WAKING, 20.0)];
        for (is, be) in times(&parts).into_iter().zip(all) {
            assert!((is.1 - be.1).abs() < 1e-9 && parts.len() == 3, "{parts:?}");
        }
        // Ends that worked at the same time: the parts are no more than the whole.
        let parts = both.asleep(1000, 20.0, 20.0);
        let sum: f64 = parts.iter().map(|it| it.us).sum();
        assert!((sum - 20.0).abs() < 1e-9 && parts.len() == 2, "{parts:?}");
    }

    #[test]
    fn by_module__own_code_is_told_by_its_crate() {
        let stacks = [
            (
                "idle;cpu_startup_entry_[k];do_idle_[k];default_idle_[k]",
                90,
            ),
            (
                "a;zerolane`main;zerolane`<zerolane_lane::driver::Driver>::turn",
                1,
            ),
            (
                "a;zerolane`zerolane::connection::Connection::poll;zerolane`std::vec::push",
                2,
            ),
            (
                "a;zerolane`zerolane_bench::contender::rounds::ask;__x64_sys_recvfrom_[k];_copy_to_iter_[k]",
                4,
            ),
            ("a;zerolane`zerolanes::x", 8),
            ("a;zerolane`zerolane_core::x;libc.so.6`qsort_r", 16),
        ];
        let folded = stacks.map(|(stack, samples)| (stack.to_owned(), samples));
        let modules = by_module(&HashMap::from(folded));
        let is = modules.iter().map(|(name, samples)| (&**name, *samples));
        let be = [
            ("library: libc.so.6", 16),
            ("own code: other", 8),
            ("own code: zerolane", 2),
            ("own code: zerolane_lane", 1),
            ("payload copy", 4),
        ];
        assert_eq!(is.collect::<Vec<_>>(), be);
    }
}
