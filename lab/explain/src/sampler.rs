//! Samples every CPU with the process that runs on it (`perf_event_open`).

use std::fs;
use std::io;

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use perf_event_data::{Record, Sample};
use serde::Serialize;

use crate::processes::{Mapping, Processes};
use crate::refused::{Refused, check_frequency};
use crate::tick::Tick;

/// Bytes of the ring that the kernel writes each CPU's records into: what an ordinary user may lock of memory
/// (`perf_event_mlock_kb`), and half a second of the deepest stacks at 997 Hz.
pub(crate) const RING_BYTES: usize = 512 << 10;
/// Above it the entries of a call chain say in which room the next ones are.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
/// What follows are addresses of a program.
const CONTEXT_USER: u64 = -512_i64 as u64;
/// What follows are addresses of the kernel.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;

/// The event that triggers samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel's own periodic interrupt, which comes to a busy CPU anyway.
    Tick,
    /// A timer for it alone, an interrupt each time.
    Clock,
}

/// Where a CPU was at one instant. The leaf is first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Addresses {
    pub(crate) cpu: usize,
    /// 0 where the CPU was idle.
    pub(crate) pid: u32,
    pub(crate) kernel: Box<[u64]>,
    pub(crate) user: Box<[u64]>,
}

impl Addresses {
    fn of(sample: &Sample<'_>, cpu: usize) -> Addresses {
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        let mut room = None;
        for &address in sample.callchain().unwrap_or_default() {
            match address {
                CONTEXT_KERNEL => room = Some(&mut kernel),
                CONTEXT_USER => room = Some(&mut user),
                CONTEXT_MAX.. => room = None,
                _ => room.iter_mut().for_each(|it| it.push(address)),
            }
        }
        Addresses {
            cpu,
            pid: sample.pid().unwrap_or(0),
            kernel: kernel.into(),
            user: user.into(),
        }
    }
}

/// Samples every CPU until it is dropped.
pub(crate) struct Samplers {
    /// Of each CPU, by its number.
    rings: Vec<(usize, Sampler)>,
    /// `None`: they are the clock's.
    tick: Option<Tick>,
    frequency_hz: u64,
    /// Records that the kernel could not write, for lack of room.
    pub(crate) lost: u64,
    /// Samples that it took, those of other timers than the tick included.
    pub(crate) taken: u64,
}

impl Samplers {
    /// Begins, with an interrupt for each sample.
    pub(crate) fn by_clock(frequency_hz: u64) -> Result<Samplers, Refused> {
        check_frequency(frequency_hz)?;
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder.sample_frequency(frequency_hz);
        Samplers::start(builder, None, frequency_hz).map_err(Refused::of)
    }

    /// Begins, with each tick of the kernel.
    pub(crate) fn by_tick(tick: Tick) -> io::Result<Samplers> {
        let mut builder = Builder::new(tick.event());
        builder.sample_period(1).sample(SampleFlag::RAW);
        let frequency_hz = tick.frequency_hz();
        Samplers::start(builder, Some(tick), frequency_hz)
    }

    fn start(
        mut builder: Builder<'_>,
        tick: Option<Tick>,
        frequency_hz: u64,
    ) -> io::Result<Samplers> {
        sample_with_stacks(&mut builder);
        builder.any_pid().mmap(true).comm(true).task(true);
        let mut open = |cpu| -> io::Result<(usize, Sampler)> {
            let ring = builder.one_cpu(cpu).build()?.sampled(RING_BYTES)?;
            Ok((cpu, ring))
        };
        let mut rings: Vec<_> = online_cpus()?
            .into_iter()
            .map(&mut open)
            .collect::<io::Result<_>>()?;
        for (_, ring) in &mut rings {
            ring.as_counter_mut().enable()?;
        }
        Ok(Samplers {
            rings,
            tick,
            frequency_hz,
            lost: 0,
            taken: 0,
        })
    }

    /// What they are taken by, and how many a second of each busy CPU.
    pub(crate) fn source(&self) -> (Source, u64) {
        let source = match self.tick {
            Some(_) => Source::Tick,
            None => Source::Clock,
        };
        (source, self.frequency_hz)
    }

    /// How many CPUs there are.
    pub(crate) fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Stops sampling. [`drain`](Self::drain) still returns earlier samples.
    pub(crate) fn stop(&mut self) {
        for (_, ring) in &mut self.rings {
            // It fails on none that was enabled.
            let _ = ring.as_counter_mut().disable();
        }
    }

    /// Tells `processes` what became of them since the last call; returns the samples since then.
    pub(crate) fn drain(&mut self, processes: &mut Processes) -> Vec<Addresses> {
        let mut batch = Batch::default();
        for (cpu, ring) in &mut self.rings {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(record) => batch.take(record, *cpu, self.tick.as_ref()),
                    Err(_) => batch.lost += 1,
                }
            }
        }
        self.lost += batch.lost;
        self.taken += batch.taken;
        batch.tell(processes)
    }
}

/// What came from all CPUs, each of which kept its own order.
#[derive(Default)]
struct Batch {
    samples: Vec<Addresses>,
    /// Time, process, parent.
    forks: Vec<(u64, u32, u32)>,
    mappings: Vec<(u32, Mapping)>,
    names: Vec<(u32, String)>,
    ends: Vec<u32>,
    lost: u64,
    taken: u64,
}

impl Batch {
    fn take(&mut self, record: Record<'_>, cpu: usize, tick: Option<&Tick>) {
        self.taken += u64::from(matches!(record, Record::Sample(_)));
        match record {
            // Other timers expire beside the tick.
            Record::Sample(sample) if tick.is_some_and(|it| !it.is_of(&sample)) => {}
            Record::Sample(sample) => self.samples.push(Addresses::of(&sample, cpu)),
            Record::Fork(it) => self.forks.push((it.time, it.pid, it.ppid)),
            Record::Comm(it) if it.pid == it.tid => {
                self.names
                    .push((it.pid, String::from_utf8_lossy(&it.comm).into()));
            }
            Record::Mmap(it) => {
                let path = String::from_utf8_lossy(&it.filename);
                let path = path.trim_end_matches('\0').into();
                let (start, len, offset) = (it.addr, it.len, it.pgoff);
                self.mappings.push((
                    it.pid,
                    Mapping {
                        start,
                        len,
                        offset,
                        path,
                    },
                ));
            }
            Record::Exit(it) if it.pid == it.tid => self.ends.push(it.pid),
            Record::Lost(it) => self.lost += it.lost,
            Record::LostSamples(it) => self.lost += it.lost,
            _ => {}
        }
    }

    /// Parents before their children, and all before the samples, which may be of any of them.
    fn tell(mut self, processes: &mut Processes) -> Vec<Addresses> {
        self.forks.sort_unstable();
        for (_, pid, parent) in self.forks {
            processes.forked(pid, parent);
        }
        for (pid, name) in self.names {
            processes.renamed(pid, name.trim_end_matches('\0'));
        }
        for (pid, mapping) in self.mappings {
            processes.mapped(pid, mapping);
        }
        for sample in &self.samples {
            processes.look_up(sample.pid);
        }
        self.ends.into_iter().for_each(|pid| processes.ended(pid));
        self.samples
    }
}

/// What every sample has. Nothing is woken by them: rings are read from time to time.
pub(crate) fn sample_with_stacks(builder: &mut Builder<'_>) {
    builder
        .include_kernel()
        .include_hv()
        .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
        .wakeup_watermark(RING_BYTES);
}

/// The numbers in `/sys/devices/system/cpu/online`, such as `0-3,6`.
pub(crate) fn online_cpus() -> io::Result<Vec<usize>> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_list(list.trim()).ok_or_else(|| io::Error::other(format!("CPUs online: {list:?}")))
}

fn parse_list(list: &str) -> Option<Vec<usize>> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    let ranges: Option<Vec<_>> = ranges.collect();
    Some(ranges?.into_iter().flatten().collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse_list__of_cpus() {
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_list(""), None);
        assert_eq!(parse_list("a-b"), None);
    }
}
