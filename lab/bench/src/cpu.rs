//! Pins threads to cores, and measures CPU seconds and memory speed.
//!
//! # Which clock is honest
//!
//! Three are read around the timed part of a run:
//!
//! - `process_s`: getrusage of the end's process. The kernel scales it to the scheduler's nanosecond clock, so it is exact.
//!   Without CONFIG_IRQ_TIME_ACCOUNTING it includes softirq work of the network stack that ran on top of the process.
//! - `softirqd_s`: run time of the core's ksoftirqd thread, which takes over when softirq work piles up; getrusage does not
//!   include it.
//! - `core_busy_s`: all work of the core, from /proc/stat. It misses nothing, but also counts any other program on that
//!   core, and is a sample where the kernel counts by ticks.
//!
//! Where a [`Soaker`] runs, a fourth is added:
//!
//! - `unsoaked_s`: the core's time that the soaker does not get. Like `core_busy_s`, but with the scheduler's clock instead
//!   of ticks.
//!
//! The reported CPU seconds are `process_s + softirqd_s`: the cost of this end, whatever else runs on the machine.
//! `core_busy_s` stands beside it, so a reader can see that nothing was left out.

use std::fs;
use std::hint::{black_box, spin_loop};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, gettid, sysconf};
use serde::{Deserialize, Serialize};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_schedule_policy_param,
};

/// Binds this thread, and every thread it starts from now on, to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .with_context(|| {
            let there = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
            format!(
                "cannot run on core {core}: this machine has {}, from 0; choose one with --tx-core, --rx-core or --core",
                there.unwrap_or_default()
            )
        })
}

/// Lets this thread, and every thread it starts from now on, run on all of `cores`.
pub(crate) fn spread(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    let added = cores.iter().try_for_each(|&core| set.set(core));
    added
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .with_context(|| format!("cannot run on cores {cores:?}"))
}

/// `core`, then the others that this thread may run on, in a circle.
pub(crate) fn circle(core: usize) -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let others = (core + 1..CpuSet::count()).chain(0..core);
    let allowed = others.filter(|&it| set.is_set(it).unwrap_or(false));
    Ok(std::iter::once(core).chain(allowed).collect())
}

/// How many cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The core that an end is pinned to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core<'a> {
    pub(crate) number: usize,
    pub(crate) soaker: Option<&'a Soaker>,
}

/// A thread that runs when nothing else wants its core (SCHED_IDLE): what it gets is what the core has left. The
/// thesis's yantt measures so, for accounting by ticks may miss what interrupts do.
#[derive(Debug)]
pub(crate) struct Soaker {
    thread: Pid,
    ended: Arc<AtomicBool>,
}

impl Soaker {
    /// Starts one on the core that this thread is pinned to.
    ///
    /// # Errors
    /// The kernel lets no thread have that priority.
    pub(crate) fn start() -> Result<Soaker> {
        let ended = Arc::new(AtomicBool::new(false));
        let (told, (tell, thread)) = (Arc::clone(&ended), channel());
        let soak = move || {
            let _ = tell.send(gettid());
            while !told.load(Ordering::Relaxed) {
                for _ in 0..LOOKS {
                    spin_loop();
                }
            }
        };
        let soaking = thread::Builder::new().name("soaker".into()).spawn(soak)?;
        let thread = thread.recv().context("the soaker has ended")?;
        let soaker = Soaker { thread, ended };
        // From here: a thread of this priority may wait long until it is its turn.
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        let native = soaking.as_pthread_t();
        // After the policy, the crate sets the niceness of the calling thread to 0: in a thread of its own that harms
        // nothing, and it fails if the program runs at a lower priority (`nice`).
        let setting = move || set_thread_priority_and_policy(native, ThreadPriority::Min, idle);
        let set = thread::scope(|scope| scope.spawn(setting).join());
        match (set, thread_schedule_policy_param(native)) {
            (_, Ok((policy, _))) if policy == idle => Ok(soaker),
            (Ok(Err(error)), _) | (_, Err(error)) => Err(anyhow!(
                "cannot start a thread of the lowest priority: {error}"
            )),
            _ => Err(anyhow!("cannot start a thread of the lowest priority")),
        }
    }

    /// How long it has run; `None` where the kernel does not say.
    fn run_time(&self) -> Option<Duration> {
        run_time(self.thread)
    }
}

/// It ends when it is its turn; nothing waits for that.
impl Drop for Soaker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Turns of a soaker between two checks for a stop request.
const LOOKS: u32 = 1 << 12;

/// CPU seconds spent between [`Meter::start`] and [`Meter::stop`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuTime {
    /// User and system time of the process.
    pub(crate) process_s: f64,
    /// Time of the core's ksoftirqd; 0 where it cannot be seen.
    pub(crate) softirqd_s: f64,
    /// Time for which the core was not idle, whichever program used it; `None` if unknown.
    pub(crate) core_busy_s: Option<f64>,
    /// Time that a soaker on the core did not get; `None` without one. Then `core_busy_s` counts the soaker, too.
    pub(crate) unsoaked_s: Option<f64>,
}

impl CpuTime {
    /// The CPU seconds that this end's work cost.
    pub(crate) fn total_s(&self) -> f64 {
        self.process_s + self.softirqd_s
    }
}

/// A stopwatch for wall time and CPU time.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    core: Core<'a>,
    softirqd: Option<Pid>,
    soaked: Option<Duration>,
    wall: Instant,
    process: Duration,
    softirqd_time: Duration,
    busy: Option<Duration>,
}

impl<'a> Meter<'a> {
    /// Looks up what is needed for `core`, then starts.
    pub(crate) fn start(core: Core<'a>) -> Meter<'a> {
        let softirqd = softirqd_of(core.number);
        Meter {
            core,
            softirqd,
            busy: core_busy(core.number),
            soaked: core.soaker.and_then(Soaker::run_time),
            softirqd_time: softirqd.and_then(run_time).unwrap_or_default(),
            process: process_time(),
            wall: Instant::now(),
        }
    }

    /// Wall seconds and CPU seconds since the start.
    pub(crate) fn stop(self) -> (f64, CpuTime) {
        let seconds = self.wall.elapsed().as_secs_f64();
        let soaked = self.core.soaker.and_then(Soaker::run_time);
        let soaked = soaked.zip(self.soaked).map(|(now, then)| now - then);
        let process = process_time() - self.process;
        let softirqd_now = self.softirqd.and_then(run_time).unwrap_or_default();
        let busy = core_busy(self.core.number)
            .zip(self.busy)
            .map(|(now, then)| now.saturating_sub(then));
        let cpu = CpuTime {
            // The soaker is a thread of this process.
            process_s: process
                .saturating_sub(soaked.unwrap_or_default())
                .as_secs_f64(),
            unsoaked_s: soaked.map(|it| (seconds - it.as_secs_f64()).max(0.0)),
            softirqd_s: softirqd_now
                .saturating_sub(self.softirqd_time)
                .as_secs_f64(),
            core_busy_s: busy.map(|busy| busy.as_secs_f64()),
        };
        (seconds, cpu)
    }
}

fn process_time() -> Duration {
    // getrusage(RUSAGE_SELF) fails only for a bad pointer.
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of the own process");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}

/// The core's ksoftirqd thread, `None` where /proc does not show it.
fn softirqd_of(core: usize) -> Option<Pid> {
    let name = format!("ksoftirqd/{core}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| Pid::from_raw(pid))
    })
}

/// A thread's time on a core, from /proc/PID/schedstat.
fn run_time(pid: Pid) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn core_busy(core: usize) -> Option<Duration> {
    let ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?, core)?;
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// user + nice + system + irq + softirq of `core` in the text of /proc/stat.
fn busy_ticks(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let line = stat
        .lines()
        .find(|line| line.split(' ').next() == Some(&name))?;
    let ticks: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    match ticks[..] {
        [user, nice, system, _idle, _iowait, irq, softirq, ..] => {
            Some(user + nice + system + irq + softirq)
        }
        _ => None,
    }
}

/// Copies `from` over `to` for about 0.3 s; Gb/s of the median copy. This is
/// the speed that no contender which copies once can pass.
pub(crate) fn memcpy_gbps(from: &[u8], to: &mut [u8]) -> f64 {
    const BUDGET: Duration = Duration::from_millis(300);
    let started = Instant::now();
    let mut seconds = Vec::new();
    while seconds.len() < 3 || started.elapsed() < BUDGET {
        let copy = Instant::now();
        black_box(&mut *to).copy_from_slice(black_box(from));
        seconds.push(copy.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    from.len() as f64 * 8e-9 / seconds[seconds.len() / 2].max(1e-9)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\n\
        cpu0 1 2 4 1000 2000 8 16 4000 0 0\n\
        cpu1 100 0 0 0 0 0 0 0 0 0\n\
        cpu10 7 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n";

    #[test]
    fn busy_ticks__leaves_out_idle_iowait_and_stolen_time() {
        assert_eq!(busy_ticks(STAT, 0), Some(31));
    }

    #[test]
    fn busy_ticks__takes_the_core_asked_for() {
        assert_eq!(busy_ticks(STAT, 1), Some(100));
        assert_eq!(busy_ticks(STAT, 10), Some(7));
        assert_eq!(busy_ticks(STAT, 2), None);
        assert_eq!(busy_ticks("cpu0 1 2\n", 0), None);
    }

    #[test]
    fn Meter__sees_work_of_this_process() {
        let meter = Meter::start(Core {
            number: 0,
            soaker: None,
        });
        let started = Instant::now();
        while process_time() - meter.process < Duration::from_millis(20) {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "no CPU time passes"
            );
        }
        let (seconds, cpu) = meter.stop();
        assert!(cpu.process_s >= 0.02 && seconds > 0.0, "{seconds} {cpu:?}");
    }

    /// The rest is the kernel's.
    #[test]
    fn Soaker__has_the_least_priority_and_its_time_is_taken_away() {
        const SCHED_IDLE: &str = "5";
        let soaker = Soaker::start().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", soaker.thread)).unwrap();
        // Behind the name in brackets, from the third field on: policy is the 41st.
        let mut fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        assert_eq!(fields.nth(41 - 3), Some(SCHED_IDLE), "{stat}");
        let core = Core {
            number: 0,
            soaker: Some(&soaker),
        };
        // First, and last at the end: what the soaker gets between two readings is in both sums, not in none.
        let before = soaker.run_time().unwrap();
        let meter = Meter::start(core);
        thread::sleep(Duration::from_millis(20));
        let (seconds, cpu) = meter.stop();
        let soaked = (soaker.run_time().unwrap() - before).as_secs_f64();
        let unsoaked = cpu.unsoaked_s.unwrap();
        assert!((0.0..=seconds).contains(&unsoaked), "{cpu:?} of {seconds}");
        assert!(
            unsoaked + soaked >= seconds * 0.99,
            "{cpu:?}: {soaked} of {seconds}"
        );
    }

    #[test]
    fn pin__to_a_core_that_there_is_not_says_what_to_choose() {
        let error = format!("{:#}", pin(999).unwrap_err());
        assert!(error.contains("on core 999"), "{error}");
        assert!(error.contains("--rx-core"), "{error}");
        assert!(!error.contains("has 0,"), "{error}");
    }

    #[test]
    fn memcpy_gbps__copies() {
        let from = vec![7; 8192];
        let mut to = vec![0; 8192];
        assert!(memcpy_gbps(&from, &mut to) > 0.0);
        assert_eq!(from, to);
    }
}
