//! Watches the machine from start to finish.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::account;
use crate::activity::{Counters, Whose};
use crate::copy_rate::{self, CopyRates};
use crate::cost;
use crate::explanation::{Explanation, Sampling};
use crate::hardware::Counting;
use crate::network::Network;
use crate::processes::{Kind, Processes, all, descendants};
use crate::profile::Profile;
use crate::reasons::Reasons;
use crate::refused::Refused;
use crate::sampler::{Samplers, Source};
use crate::system_calls::SystemCalls;
use crate::tick::Tick;
use crate::tracing::Tracepoints;

/// Samples are taken from their rings so often: these hold several times as much at the deepest stacks.
const SAMPLES_INTERVAL: Duration = Duration::from_millis(100);
/// Counters of the network are read so often, for what will be gone at the end.
const NETWORK_INTERVAL: Duration = Duration::from_millis(250);

/// The subject of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// What the calling process has started, and what it starts from now on. It must wait for those itself.
    Children,
    /// A process, those that it has started, and those that it starts.
    Process(u32),
    /// All that runs but the calling process.
    Machine,
}

/// How often the CPUs are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// As often as takes about a hundredth of goodput, by what a sample is measured to cost here, from 49 to 997 times a
    /// second. A sample is an interrupt, which is dear on a virtual machine.
    #[default]
    Sparing,
    /// So many times a second.
    Hz(u64),
    /// With each tick of the kernel, which comes to a busy CPU anyway: no further interrupt. Timers of programs and
    /// protocols that expire beside it are looked at as well. Where it cannot be traced, as [`Sparing`](Self::Sparing).
    Tick,
    /// Not at all: the counters alone.
    Never,
}

/// Options of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often the CPUs are sampled.
    pub rate: Rate,
    /// Whether to fill [`Explanation::folded`].
    pub folded: bool,
    /// Whether to count system calls. This slows each system call on the whole machine by a fraction of a microsecond.
    pub system_calls: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rate: Rate::default(),
            folded: false,
            system_calls: true,
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
    started: Instant,
    copy_rates: CopyRates,
    samplers: Result<Samplers, Option<Refused>>,
    processes: Processes,
    profile: Profile,
    sample_ns: Option<f64>,
    network: Network,
    calls: Option<SystemCalls>,
    reasons: Option<Reasons>,
    hardware: Result<Counting, String>,
    /// What could not be traced, and why.
    untraced: Vec<String>,
    /// CPU time of this process at the start.
    own: Duration,
    samples_read: Instant,
    network_read: Instant,
    before: Counters,
}

impl Explainer {
    /// Starts watching. If the kernel refuses samples to this process, the other counters still work, and
    /// [`Explanation::missing`] gives the reason.
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
        let copy_rates = copy_rate::measure();
        let network = Network::start();
        let tracepoints = Tracepoints::open();
        let mut untraced = Vec::new();
        let calls = options.system_calls.then(|| {
            tracing(&tracepoints, "system calls", &mut untraced, |it| {
                SystemCalls::start(whose(subject), it)
            })
        });
        let reasons = tracing(
            &tracepoints,
            "the kernel's reasons for drops",
            &mut untraced,
            Reasons::start,
        );
        let mut starting = Starting {
            tracepoints: tracepoints.as_ref(),
            sample_ns: None,
            untraced: &mut untraced,
        };
        let samplers = starting.samplers(options.rate);
        let sample_ns = starting.sample_ns;
        let source = samplers.as_ref().map(Samplers::source).ok();
        let ticks = source.is_some_and(|it| it.0 == Source::Tick);
        Explainer {
            subject,
            copy_rates,
            samplers,
            processes,
            profile: Profile::new(options.folded, scope).interrupted(ticks),
            sample_ns,
            network,
            calls: calls.flatten(),
            reasons,
            hardware: Counting::start(),
            untraced,
            own: own_time(),
            before: Counters::read(whose(subject)),
            started: Instant::now(),
            samples_read: Instant::now(),
            network_read: Instant::now(),
        }
    }

    /// Collects the samples and counts since the last call.
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
        self.reasons.iter_mut().for_each(Reasons::poll);
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

    /// Stops watching, and returns the explanation.
    #[must_use]
    pub fn finish(mut self) -> Explanation {
        let elapsed = self.started.elapsed();
        if let Ok(samplers) = &mut self.samplers {
            samplers.stop();
        }
        let hardware = self.hardware.as_mut().map_err(|why| why.clone());
        let hardware = hardware.and_then(Counting::finish);
        self.drain();
        let own = own_time().saturating_sub(self.own);
        let mut activity = Counters::read(whose(self.subject)).since(&self.before);
        let calls = self.calls.take().map(SystemCalls::finish);
        activity.system_calls = calls.and_then(Result::ok);
        let reasons = self.reasons.take();
        let reasons = reasons.map(|it| it.finish(|address| self.profile.kernel_name(address)));
        let pids = self.pids();
        let mut explanation = account::counted(elapsed, self.network.finish(&pids), activity);
        explanation.drop_reasons = reasons.unwrap_or_default();
        explanation.missing.append(&mut self.untraced);
        match hardware {
            Ok(counts) => explanation.hardware = Some(counts),
            Err(why) => explanation.missing.push(why),
        }
        match self.samplers {
            Ok(samplers) => {
                let (source, frequency_hz) = samplers.source();
                let counts = self.profile.finish(&mut self.processes);
                let sampling = Sampling {
                    source,
                    frequency_hz,
                    sample_ns: self.sample_ns,
                    cpus: samplers.cpus(),
                    samples: counts.samples,
                    lost: samplers.lost,
                    not_folded: counts.not_folded,
                };
                let machine = self.subject == Subject::Machine;
                account::add_samples(&mut explanation, counts, sampling, machine, self.copy_rates);
                account::add_perturbation(&mut explanation, samplers.taken, own);
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

/// Finds out how the samples are taken.
struct Starting<'a> {
    tracepoints: Result<&'a Tracepoints, &'a io::Error>,
    sample_ns: Option<f64>,
    untraced: &'a mut Vec<String>,
}

impl Starting<'_> {
    fn samplers(&mut self, rate: Rate) -> Result<Samplers, Option<Refused>> {
        match rate {
            Rate::Never | Rate::Hz(0) => Err(None),
            Rate::Hz(frequency_hz) => self.by_clock(Some(frequency_hz)),
            Rate::Sparing => self.by_clock(None),
            Rate::Tick => self.by_tick().or_else(|why| {
                self.untraced.push(format!("samples by the tick: {why}"));
                self.by_clock(None)
            }),
        }
    }

    fn by_clock(&mut self, frequency_hz: Option<u64>) -> Result<Samplers, Option<Refused>> {
        self.sample_ns = cost::of_interrupt().ok();
        let frequency_hz = frequency_hz.unwrap_or_else(|| cost::sparing_hz(self.sample_ns));
        Samplers::by_clock(frequency_hz).map_err(Some)
    }

    fn by_tick(&mut self) -> io::Result<Samplers> {
        let tracepoints = self.tracepoints.map_err(|why| why.kind())?;
        let samplers = Samplers::by_tick(Tick::find(tracepoints)?)?;
        self.sample_ns = cost::of_record(tracepoints).ok();
        Ok(samplers)
    }
}

/// What `start` begins to trace; if it does not, why is added to `untraced`.
fn tracing<T>(
    tracepoints: &io::Result<Tracepoints>,
    what: &str,
    untraced: &mut Vec<String>,
    start: impl FnOnce(&Tracepoints) -> io::Result<T>,
) -> Option<T> {
    let refused = |why: &io::Error| {
        let words = match why.kind() {
            io::ErrorKind::PermissionDenied => "this process may not trace; run as root".to_owned(),
            io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
                "this kernel has no such tracepoint".to_owned()
            }
            _ => why.to_string(),
        };
        format!("{what}: {words}")
    };
    let started = tracepoints.as_ref().map_err(refused).and_then(|it| {
        let started = start(it);
        started.map_err(|why| refused(&why))
    });
    started.map_err(|words| untraced.push(words)).ok()
}

/// CPU time that this process took so far.
fn own_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    usage.map_or(Duration::ZERO, |it| {
        let times = [it.user_time(), it.system_time()];
        let micros = times.map(|it| u64::try_from(it.num_microseconds()).unwrap_or(0));
        Duration::from_micros(micros.iter().sum())
    })
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
            rate: Rate::Never,
            ..Options::default()
        };
        let explainer = Explainer::start(Subject::Children, options);
        let kinds = [child.id(), std::process::id()].map(|it| explainer.processes.kind(it));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(kinds, [Kind::Subject, Kind::Own]);
    }
}
