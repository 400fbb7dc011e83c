//! Watches the machine from start to finish.

use std::time::{Duration, Instant};

use crate::account;
use crate::activity::{Counters, Whose};
use crate::copy_rate;
use crate::explanation::{Explanation, Sampling};
use crate::network::Network;
use crate::processes::{Kind, Processes, all, descendants};
use crate::profile::Profile;
use crate::refused::Refused;
use crate::sampler::Samplers;

/// Samples a second: not a divisor or multiple of what timers tick at, so that it does not fall in step with them.
const FREQUENCY_HZ: u64 = 997;
/// Samples are taken from their rings so often: these hold several times as much at the deepest stacks.
const SAMPLES_INTERVAL: Duration = Duration::from_millis(100);
/// Counters of the network are read so often, for what will be gone at the end.
const NETWORK_INTERVAL: Duration = Duration::from_millis(250);

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// What the calling process has started, and what it starts from now on. It must wait for those itself.
    Children,
    /// A process, those that it has started, and those that it starts.
    Process(u32),
    /// All that runs but the calling process.
    Machine,
}

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Samples a second of each CPU; 0: none, only counters.
    pub frequency_hz: u64,
    /// Whether [`Explanation::folded`] is wanted.
    pub folded: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            frequency_hz: FREQUENCY_HZ,
            folded: false,
        }
    }
}

/// Watches until it is finished. Call [`poll`](Self::poll) at least ten times a second in between, from the thread
/// that started it.
///
/// ```
/// use zerolane_explain::{Explainer, Options, Subject};
///
/// let mut explainer = Explainer::start(Subject::Children, Options::default());
/// let mut child = std::process::Command::new("true").spawn()?;
/// while child.try_wait()?.is_none() {
///     explainer.poll();
///     std::thread::sleep(std::time::Duration::from_millis(10));
/// }
/// let explanation = explainer.finish();
/// if let Some(fraction) = explanation.explained_fraction {
///     assert!((0.0..=1.0).contains(&fraction));
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Explainer {
    subject: Subject,
    options: Options,
    started: Instant,
    copy_rate: f64,
    samplers: Result<Samplers, Option<Refused>>,
    processes: Processes,
    profile: Profile,
    network: Network,
    samples_read: Instant,
    network_read: Instant,
    before: Counters,
}

impl Explainer {
    /// Begins. Where the kernel takes no samples for this process, the rest is done, and
    /// [`Explanation::missing`] says why.
    #[must_use]
    pub fn start(subject: Subject, options: Options) -> Explainer {
        let mut processes =
            Processes::new(subject == Subject::Children, subject == Subject::Machine);
        match subject {
            Subject::Children => below_own()
                .into_iter()
                .for_each(|it| processes.add_subject(it)),
            Subject::Process(pid) => processes.add_subject(pid),
            Subject::Machine => {}
        }
        let scope: fn(Kind) -> bool = match subject {
            Subject::Machine => |kind| kind != Kind::Own,
            _ => |kind| matches!(kind, Kind::Subject | Kind::Kernel),
        };
        let copy_rate = copy_rate::measure();
        let network = Network::start();
        let samplers = match options.frequency_hz {
            0 => Err(None),
            frequency_hz => Samplers::start(frequency_hz).map_err(Some),
        };
        Explainer {
            subject,
            options,
            copy_rate,
            samplers,
            processes,
            profile: Profile::new(options.folded, scope),
            network,
            before: Counters::read(whose(subject)),
            started: Instant::now(),
            samples_read: Instant::now(),
            network_read: Instant::now(),
        }
    }

    /// Takes what was sampled and counted since the last call.
    pub fn poll(&mut self) {
        if self.samples_read.elapsed() >= SAMPLES_INTERVAL {
            self.drain();
            self.samples_read = Instant::now();
        }
        if self.network_read.elapsed() >= NETWORK_INTERVAL {
            self.network.poll(&self.pids());
            self.network_read = Instant::now();
        }
    }

    fn drain(&mut self) {
        let Ok(samplers) = &mut self.samplers else {
            return;
        };
        for sample in samplers.drain(&mut self.processes) {
            self.profile.add(sample, &mut self.processes);
        }
    }

    /// The processes that are the subject and alive; of the machine, all.
    fn pids(&self) -> Vec<u32> {
        match self.subject {
            Subject::Children => below_own(),
            Subject::Process(pid) => descendants(pid),
            Subject::Machine => all(),
        }
    }

    /// Ends, and says what was found.
    #[must_use]
    pub fn finish(mut self) -> Explanation {
        let elapsed = self.started.elapsed();
        if let Ok(samplers) = &mut self.samplers {
            samplers.stop();
        }
        self.drain();
        let activity = Counters::read(whose(self.subject)).since(&self.before);
        let pids = self.pids();
        let mut explanation = account::counted(elapsed, self.network.finish(&pids), activity);
        match self.samplers {
            Ok(samplers) => {
                let counts = self.profile.finish(&mut self.processes);
                let sampling = Sampling {
                    frequency_hz: self.options.frequency_hz,
                    cpus: samplers.cpus(),
                    samples: counts.samples,
                    lost: samplers.lost,
                    not_folded: counts.not_folded,
                };
                let machine = self.subject == Subject::Machine;
                account::add_samples(&mut explanation, counts, sampling, machine, self.copy_rate);
            }
            Err(Some(refused)) => explanation.missing.insert(0, refused.in_full()),
            Err(None) => {}
        }
        explanation
    }
}

/// What this process has started, and so on.
fn below_own() -> Vec<u32> {
    let own = std::process::id();
    let all = descendants(own).into_iter();
    all.filter(|it| *it != own).collect()
}

fn whose(subject: Subject) -> Whose {
    match subject {
        Subject::Children => Whose::Children,
        Subject::Process(pid) => Whose::Process(pid),
        Subject::Machine => Whose::Machine,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn start__children_that_run_already_are_the_subject() {
        // It ends when nothing more comes to it.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let options = Options {
            frequency_hz: 0,
            ..Options::default()
        };
        let explainer = Explainer::start(Subject::Children, options);
        let kinds = [child.id(), std::process::id()].map(|it| explainer.processes.kind(it));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(kinds, [Kind::Subject, Kind::Own]);
    }
}
