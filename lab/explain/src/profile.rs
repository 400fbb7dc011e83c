//! Sums samples by process and cause.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::processes::{Kind, Processes};
use crate::rules::{self, Cause, Named};
use crate::sampler::Addresses;
use crate::stack::{self, Frame};
use crate::symbols::Symbols;
use crate::tick;

/// Distinct stacks of addresses kept before they are resolved: 16 MiB of the usual depth.
const PENDING_LIMIT: usize = 1 << 14;
/// Distinct stacks of names kept for flame graphs. Samples of further ones are counted by cause alone.
const FOLDED_LIMIT: usize = 1 << 16;
/// Distinct functions that no rule explains. Further ones are one line.
const UNEXPLAINED_LIMIT: usize = 1 << 12;
/// The line of those.
const FURTHER: &str = "(further functions)";

/// Whose time a sample was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A process.
    Process(Kind),
    /// No process was running, and there was no work.
    Idle,
}

/// Where copies were made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) kernel: u64,
    pub(crate) user: u64,
}

impl Copies {
    /// Adds samples of copies, in kernel or out of it.
    fn add(&mut self, kernel: bool, count: u64) {
        match kernel {
            true => self.kernel += count,
            false => self.user += count,
        }
    }

    pub(crate) fn all(self) -> u64 {
        self.kernel + self.user
    }
}

/// Samples of one CPU that are explained.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfCpu {
    /// The subject's and the kernel's, by cause.
    pub(crate) by_cause: BTreeMap<Cause, u64>,
    /// All of these, and those without a cause.
    pub(crate) samples: u64,
    pub(crate) copies: Copies,
}

/// Samples in numbers, by owner and cause.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) samples: u64,
    pub(crate) by_cause: BTreeMap<(Owner, Option<Cause>), u64>,
    /// Of each CPU, by its number.
    pub(crate) by_cpu: BTreeMap<usize, OfCpu>,
    /// Functions of stacks without a rule, for processes under explanation.
    pub(crate) unexplained: HashMap<String, u64>,
    pub(crate) copies: Copies,
    /// Folded stacks, if they were asked for.
    pub(crate) folded: HashMap<String, u64>,
    /// Samples whose stack is not among them, for lack of room.
    pub(crate) not_folded: u64,
}

/// Turns addresses into [`Counts`].
pub(crate) struct Profile {
    symbols: Symbols,
    pending: HashMap<Addresses, u64>,
    fold: bool,
    /// The processes whose samples are explained.
    scope: fn(Kind) -> bool,
    /// Whether the samples were taken within an interrupt.
    interrupted: bool,
    counts: Counts,
}

impl Profile {
    pub(crate) fn new(fold: bool, scope: fn(Kind) -> bool) -> Profile {
        Profile {
            symbols: Symbols::new(),
            pending: HashMap::new(),
            fold,
            scope,
            interrupted: false,
            counts: Counts::default(),
        }
    }

    /// The samples are of the interrupt that took them: what it interrupted is below its first function.
    pub(crate) fn interrupted(mut self, interrupted: bool) -> Profile {
        self.interrupted = interrupted;
        self
    }

    /// The name of the kernel's function at `address`.
    pub(crate) fn kernel_name(&mut self, address: u64) -> Option<String> {
        match &self.symbols.kernel_frame(address).frame {
            Frame::Kernel(name) => name.as_deref().map(str::to_owned),
            Frame::User { .. } => None,
        }
    }

    /// Adds a sample. It is resolved later, unless there are many. Of samples that are not to be explained only
    /// their owner counts.
    pub(crate) fn add(&mut self, sample: Addresses, processes: &mut Processes) {
        if processes.is_full() {
            self.resolve(processes);
        }
        let kind = processes.kind(sample.pid);
        if !(self.scope)(kind) {
            let owner = (Owner::Process(kind), None);
            *self.counts.by_cause.entry(owner).or_default() += 1;
            self.counts.samples += 1;
            return;
        }
        *self.pending.entry(sample).or_default() += 1;
        if self.pending.len() >= PENDING_LIMIT {
            self.resolve(processes);
        }
    }

    /// All that was added.
    pub(crate) fn finish(mut self, processes: &mut Processes) -> Counts {
        self.resolve(processes);
        self.counts
    }

    fn resolve(&mut self, processes: &mut Processes) {
        for (sample, count) in std::mem::take(&mut self.pending) {
            let frames = self.frames(&sample, processes);
            self.count(&sample, &frames, count, processes);
        }
        processes.forget_ended();
    }

    fn frames(&mut self, sample: &Addresses, processes: &Processes) -> Vec<Rc<Named>> {
        let mut frames = Vec::with_capacity(sample.kernel.len() + sample.user.len());
        let mut cut = !self.interrupted;
        for address in &sample.kernel {
            let frame = self.symbols.kernel_frame(calling(*address, frames.len()));
            if !cut && tick::is_entry(&frame.frame) {
                cut = true;
                frames.clear();
            } else {
                frames.push(frame);
            }
        }
        let kernel = frames.len();
        for (depth, address) in sample.user.iter().enumerate() {
            // Below kernel frames the first is where the system call returns to.
            let address = calling(*address, depth + kernel);
            let mapping = processes.mapping(sample.pid, address);
            // Programs without frame pointers leave anything where the next frame should be.
            if mapping.is_none() && depth > 0 {
                break;
            }
            frames.push(self.symbols.user_frame(mapping, address));
        }
        frames
    }

    fn count(
        &mut self,
        sample: &Addresses,
        frames: &[Rc<Named>],
        count: u64,
        processes: &Processes,
    ) {
        let pid = sample.pid;
        let cause = rules::classify(frames);
        let owner = match cause {
            Some(Cause::Idle) => Owner::Idle,
            _ => Owner::Process(processes.kind(pid)),
        };
        let counts = &mut self.counts;
        counts.samples += count;
        *counts.by_cause.entry((owner, cause)).or_default() += count;
        let mut of_cpu = match owner {
            Owner::Idle => None,
            Owner::Process(_) => Some(counts.by_cpu.entry(sample.cpu).or_default()),
        };
        if let Some(of_cpu) = &mut of_cpu {
            of_cpu.samples += count;
            if let Some(cause) = cause {
                *of_cpu.by_cause.entry(cause).or_default() += count;
            }
        }
        if cause == Some(Cause::PayloadCopy) {
            let kernel = frames.first().is_some_and(|it| it.frame.is_kernel());
            counts.copies.add(kernel, count);
            of_cpu
                .iter_mut()
                .for_each(|it| it.copies.add(kernel, count));
        }
        if cause.is_none() {
            let leaf = frames
                .first()
                .map_or_else(|| "(no stack)".into(), |it| it.frame.to_string());
            add_bounded(
                &mut counts.unexplained,
                UNEXPLAINED_LIMIT,
                leaf,
                FURTHER,
                count,
            );
        }
        if self.fold {
            let frames = frames.iter().map(|it| &it.frame);
            let stack = stack::fold(&processes.name(pid), frames);
            let full = counts.folded.len() >= FOLDED_LIMIT;
            match counts.folded.get_mut(&stack) {
                Some(sum) => *sum += count,
                None if full => counts.not_folded += count,
                None => drop(counts.folded.insert(stack, count)),
            }
        }
    }
}

/// Adds to `name`, or to `rest` if there are `limit` names already.
fn add_bounded(
    sums: &mut HashMap<String, u64>,
    limit: usize,
    name: String,
    rest: &str,
    count: u64,
) {
    let known = sums.len() < limit || sums.contains_key(&name);
    let name = if known { name } else { rest.into() };
    *sums.entry(name).or_default() += count;
}

/// The address of the call that a return address came from, which may be in another function than what
/// follows it. The leaf is no return address.
fn calling(address: u64, depth: usize) -> u64 {
    if depth == 0 {
        address
    } else {
        address.wrapping_sub(1)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn sample(pid: u32, address: u64) -> Addresses {
        Addresses {
            cpu: (address >> 12) as usize % 2,
            pid,
            kernel: [].into(),
            user: [address].into(),
        }
    }

    #[test]
    fn add__many_stacks_lose_no_sample_and_take_no_more_room() {
        let mut processes = Processes::new(false, true);
        let mut profile = Profile::new(true, |_| true);
        let samples = 3 * PENDING_LIMIT as u64;
        for address in 0..samples {
            profile.add(sample(u32::MAX, address << 12), &mut processes);
            assert!(profile.pending.len() <= PENDING_LIMIT);
        }
        let counts = profile.finish(&mut processes);
        assert_eq!(counts.samples, samples);
        // Nothing is known of them: one stack of one unknown function.
        assert_eq!(counts.folded.len(), 1);
        assert_eq!(counts.folded.values().sum::<u64>(), samples);
        let of_cpus = counts.by_cpu.values().map(|it| it.samples);
        assert_eq!(of_cpus.collect::<Vec<_>>(), [samples / 2; 2]);
    }

    #[test]
    fn add__ended_processes_are_forgotten_whosever_they_were() {
        let mut processes = Processes::new(false, false);
        let mut profile = Profile::new(false, |kind| kind == Kind::Subject);
        // Above all numbers that processes have.
        for pid in (1 << 30)..(1 << 30) + 50_000 {
            processes.forked(pid, 1);
            processes.ended(pid);
            profile.add(sample(1, 0), &mut processes);
        }
        assert!(processes.len() < 10_000, "{}", processes.len());
        assert_eq!(profile.finish(&mut processes).samples, 50_000);
    }

    #[test]
    fn add_bounded__the_rest_is_one_line() {
        let mut sums = HashMap::new();
        for name in ["a", "b", "c", "a", "d"] {
            add_bounded(&mut sums, 2, name.into(), FURTHER, 1);
        }
        assert_eq!((sums["a"], sums["b"], sums[FURTHER]), (2, 1, 2));
    }
}
