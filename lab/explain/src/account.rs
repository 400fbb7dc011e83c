//! Computes the explanation from the counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::activity::Activity;
use crate::copy_rate::CopyRates;
use crate::cost::LOSS_PER_INTERRUPT_TIME;
use crate::explanation::{
    CauseTime, Copies, CpuCauses, CpuTime, Explanation, Sampling, Unexplained,
};
use crate::network::Counted;
use crate::processes::Kind;
use crate::profile::{Counts, Owner};
use crate::rules::Cause;
use crate::sampler::Source;

/// Fewer bytes carried say nothing about copies.
const COPIES_MIN_BYTES: u64 = 1 << 20;
/// Functions that are listed as unexplained.
const UNEXPLAINED_SHOWN: usize = 20;
/// More samples without a name than this share mean that the names are hidden.
const NAMELESS_LIMIT: f64 = 0.01;

/// What the counters said.
pub(crate) fn counted(elapsed: Duration, counted: Counted, activity: Activity) -> Explanation {
    let mut explanation = Explanation {
        seconds: elapsed.as_secs_f64(),
        bytes: counted.bytes,
        interfaces: counted.interfaces,
        drops: counted.drops,
        lossy_sockets: counted.sockets,
        driver_statistics: counted.drivers,
        activity,
        missing: counted.missing.into_iter().collect(),
        ..Explanation::default()
    };
    explanation.relate_to_bytes();
    explanation
}

/// Adds what the samples said. `machine`: all processes are the subject. `copy_rates`: bytes a second.
pub(crate) fn add_samples(
    explanation: &mut Explanation,
    mut counts: Counts,
    sampling: Sampling,
    machine: bool,
    copy_rates: CopyRates,
) {
    explanation.sampling = Some(sampling);
    if counts.samples == 0 {
        return;
    }
    let interval = 1.0 / sampling.frequency_hz as f64;
    let seconds = |samples: u64| samples as f64 * interval;
    let all = explanation.seconds * sampling.cpus as f64;
    explanation.cpu = Some(cpu_time(&counts, machine, interval, all));

    let mut by_cause = BTreeMap::<Cause, u64>::new();
    let (mut total, mut explained) = (0, 0);
    for ((owner, cause), samples) in &counts.by_cause {
        if !in_scope(*owner, machine) {
            continue;
        }
        total += samples;
        if let Some(cause) = cause {
            explained += samples;
            *by_cause.entry(*cause).or_default() += samples;
        }
    }
    let share = |samples: u64| samples as f64 / total as f64;
    explanation.explained_fraction = (total > 0).then(|| share(explained));
    let bytes = explanation.bytes;
    explanation.causes = causes(by_cause, total, interval, bytes);
    let of_cpus = std::mem::take(&mut counts.by_cpu).into_iter();
    explanation.by_cpu = of_cpus
        .map(|(cpu, of_cpu)| {
            let copies = of_cpu.copies.all();
            let enough = bytes >= COPIES_MIN_BYTES;
            CpuCauses {
                cpu,
                causes: causes(of_cpu.by_cause, of_cpu.samples, interval, bytes),
                copies_per_byte: enough.then(|| seconds(copies) * copy_rates.usual / bytes as f64),
                copies_per_byte_range: enough
                    .then(|| copies_range(copies, interval, copy_rates, bytes)),
            }
        })
        .collect();
    note_nameless(explanation, &counts, total);
    let unexplained = counts
        .unexplained
        .into_iter()
        .map(|(symbol, samples)| Unexplained {
            symbol,
            seconds: seconds(samples),
            share: share(samples),
        });
    explanation.unexplained = unexplained.collect();
    explanation.unexplained.sort_by(|a, b| {
        b.seconds
            .total_cmp(&a.seconds)
            .then(a.symbol.cmp(&b.symbol))
    });
    explanation.unexplained.truncate(UNEXPLAINED_SHOWN);
    let copies = Copies {
        kernel_seconds: seconds(counts.copies.kernel),
        user_seconds: seconds(counts.copies.user),
        bytes_per_second: copy_rates.usual,
        slowest_bytes_per_second: copy_rates.slowest,
        fastest_bytes_per_second: copy_rates.fastest,
    };
    explanation.copies = Some(copies);
    let copied = (copies.kernel_seconds + copies.user_seconds) * copy_rates.usual;
    let enough = explanation.bytes >= COPIES_MIN_BYTES;
    explanation.copies_per_byte = enough.then(|| copied / explanation.bytes as f64);
    explanation.copies_per_byte_range =
        enough.then(|| copies_range(counts.copies.all(), interval, copy_rates, explanation.bytes));
    explanation.folded = counts.folded;
}

/// The time of each cause, the largest first. `total`: all samples, those without a cause included.
fn causes(by_cause: BTreeMap<Cause, u64>, total: u64, interval: f64, bytes: u64) -> Vec<CauseTime> {
    let kib = bytes as f64 / 1024.0;
    let times = by_cause.into_iter().map(|(cause, samples)| {
        let seconds = samples as f64 * interval;
        CauseTime {
            cause,
            seconds,
            share: samples as f64 / total.max(1) as f64,
            ns_per_kib: (kib >= 1.0).then(|| seconds * 1e9 / kib),
        }
    });
    let mut times: Vec<_> = times.collect();
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    times
}

/// The fewest and the most copies of each byte: all of them as slow or as fast as this machine copies, and twice the
/// standard deviation of the number of samples.
fn copies_range(samples: u64, interval: f64, rates: CopyRates, bytes: u64) -> [f64; 2] {
    let deviation = 2.0 * (samples as f64).sqrt();
    let copies = |samples: f64, rate: f64| samples.max(0.0) * interval * rate / bytes as f64;
    [
        copies(samples as f64 - deviation, rates.slowest),
        copies(samples as f64 + deviation, rates.fastest),
    ]
}

fn in_scope(owner: Owner, machine: bool) -> bool {
    match owner {
        Owner::Process(Kind::Subject | Kind::Kernel) => true,
        Owner::Process(Kind::Other) => machine,
        Owner::Process(Kind::Own) | Owner::Idle => false,
    }
}

/// `interval`: seconds that a sample stands for; `all`: seconds that there were.
fn cpu_time(counts: &Counts, machine: bool, interval: f64, all: f64) -> CpuTime {
    let mut time = CpuTime::default();
    for ((owner, _), samples) in &counts.by_cause {
        let sum = match owner {
            Owner::Process(Kind::Subject) => &mut time.program,
            Owner::Process(Kind::Kernel) => &mut time.kernel,
            Owner::Process(Kind::Other) if machine => &mut time.program,
            Owner::Process(Kind::Other) => &mut time.others,
            Owner::Process(Kind::Own) => &mut time.explaining,
            Owner::Idle => continue,
        };
        *sum += *samples as f64 * interval;
    }
    // A CPU that is halted misses samples, so its time is what the others leave.
    let busy = time.program + time.kernel + time.others + time.explaining;
    time.idle = (all - busy).max(0.0);
    time
}

/// Adds what watching took: the samples `taken`, `own`, the CPU time of this process, and what was itself seen.
pub(crate) fn add_perturbation(explanation: &mut Explanation, taken: u64, own: Duration) {
    let (Some(sampling), Some(cpu)) = (explanation.sampling, explanation.cpu) else {
        return;
    };
    let busy = cpu.program + cpu.kernel + cpu.others + cpu.explaining;
    let mut traced = explanation.causes.iter();
    let traced = traced.find(|it| it.cause == Cause::Tracing);
    explanation.perturbation_fraction = sampling.sample_ns.filter(|_| busy > 0.0).map(|cost| {
        // Those of an idle CPU take nothing from anything, and are counted all the same.
        let sampled = taken as f64 * cost / 1e9 * loss_per_time(sampling.source);
        let traced = traced.map_or(0.0, |it| it.seconds);
        ((sampled + own.as_secs_f64() + traced) / busy).min(1.0)
    });
}

/// What a program loses by a sample, by the time that the sample itself takes.
fn loss_per_time(source: Source) -> f64 {
    match source {
        Source::Clock => LOSS_PER_INTERRUPT_TIME,
        // The interrupt would have come without it.
        Source::Tick => 1.0,
    }
}

/// Says so where the kernel hides the names of its functions.
fn note_nameless(explanation: &mut Explanation, counts: &Counts, total: u64) {
    let nameless = counts
        .unexplained
        .get("[unknown]_[k]")
        .copied()
        .unwrap_or(0);
    if nameless as f64 > total as f64 * NAMELESS_LIMIT {
        let words = "names of kernel functions: /proc/kallsyms hides them; run as root, or set kernel.kptr_restrict to 0 \
                     and have CAP_SYSLOG";
        explanation.missing.push(words.into());
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const SAMPLING: Sampling = Sampling {
        source: Source::Tick,
        frequency_hz: 50,
        sample_ns: Some(1e6),
        cpus: 2,
        samples: 100,
        lost: 0,
        not_folded: 0,
    };

    const RATES: CopyRates = CopyRates {
        slowest: 5e9,
        usual: 1e10,
        fastest: 4e10,
    };

    fn counts() -> Counts {
        let of = |kind, cause, samples| ((Owner::Process(kind), cause), samples);
        Counts {
            samples: 100,
            by_cause: [
                of(Kind::Subject, Some(Cause::PayloadCopy), 30),
                of(Kind::Subject, None, 5),
                of(Kind::Kernel, Some(Cause::Softirq), 15),
                of(Kind::Other, Some(Cause::Program), 10),
                of(Kind::Own, Some(Cause::Program), 2),
                ((Owner::Idle, Some(Cause::Idle)), 38),
            ]
            .into(),
            unexplained: [("strange_[k]".to_owned(), 5)].into(),
            copies: crate::profile::Copies {
                kernel: 30,
                user: 0,
            },
            by_cpu: [(0, 10), (3, 20)]
                .map(|(cpu, kernel)| {
                    let of_cpu = crate::profile::OfCpu {
                        by_cause: [(Cause::PayloadCopy, kernel), (Cause::Softirq, 5)].into(),
                        samples: kernel + 10,
                        copies: crate::profile::Copies { kernel, user: 0 },
                    };
                    (cpu, of_cpu)
                })
                .into(),
            ..Counts::default()
        }
    }

    fn explained(machine: bool) -> Explanation {
        let mut explanation = Explanation {
            seconds: 1.0,
            bytes: 1 << 30,
            ..Explanation::default()
        };
        add_samples(&mut explanation, counts(), SAMPLING, machine, RATES);
        explanation
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn add_samples__of_a_program_and_the_kernel_that_works_for_it() {
        let explanation = explained(false);
        assert!(close(explanation.explained_fraction.unwrap(), 0.9));
        let causes: Vec<_> = explanation
            .causes
            .iter()
            .map(|it| (it.cause, it.seconds))
            .collect();
        assert!(
            matches!(causes[..], [(Cause::PayloadCopy, _), (Cause::Softirq, _)]),
            "{causes:?}"
        );
        // 30 samples of a fiftieth of a second.
        assert!(close(causes[0].1, 0.6));
        assert!(close(explanation.unexplained[0].seconds, 0.1));
        let cpu = explanation.cpu.unwrap();
        let sum = cpu.program + cpu.kernel + cpu.others + cpu.explaining + cpu.idle;
        assert!(
            close(sum, 2.0)
                && close(cpu.program, 0.7)
                && close(cpu.others, 0.2)
                && close(cpu.idle, 0.76)
        );
        // 0.6 s at 10 GB/s are 6 GB.
        let copies = explanation.copies_per_byte.unwrap();
        assert!(close(copies, 6e9 / f64::from(1 << 30)), "{copies}");
        let [fewest, most] = explanation.copies_per_byte_range.unwrap();
        assert!(fewest < copies && copies < most, "{fewest} {copies} {most}");
        // Each CPU has its part of them: a third and two thirds.
        let [first, second] = &explanation.by_cpu[..] else {
            panic!("{:?}", explanation.by_cpu);
        };
        assert_eq!((first.cpu, second.cpu), (0, 3));
        let of_cpu = |it: &CpuCauses| it.copies_per_byte.unwrap();
        assert!(close(of_cpu(first), copies / 3.0) && close(of_cpu(second), copies * 2.0 / 3.0));
        assert!(close(first.causes[0].share, 0.5), "{:?}", first.causes);
        assert!(close(second.causes[1].seconds, 0.1), "{:?}", second.causes);
    }

    #[test]
    fn copies_range__of_rates_and_of_chance() {
        // 100 samples of 10 ms, with a deviation of 10: 0.8 s at 5 GB/s to 1.2 s at 40 GB/s.
        let [fewest, most] = copies_range(100, 0.01, RATES, 1_000_000_000);
        assert!(close(fewest, 4.0) && close(most, 48.0), "{fewest} {most}");
        let [fewest, most] = copies_range(1, 0.01, RATES, 1_000_000_000);
        assert!(close(fewest, 0.0) && close(most, 1.2), "{fewest} {most}");
    }

    #[test]
    fn add_perturbation__is_samples_and_this_process() {
        let mut explanation = explained(false);
        add_perturbation(&mut explanation, 100, Duration::from_millis(24));
        // 100 samples of 1 ms and 24 ms, of 62 samples that stand for 20 ms each.
        let fraction = explanation.perturbation_fraction.unwrap();
        assert!(close(fraction, 0.124 / 1.24), "{fraction}");
        explanation.sampling.as_mut().unwrap().source = Source::Clock;
        add_perturbation(&mut explanation, 100, Duration::from_millis(24));
        let by_clock = explanation.perturbation_fraction.unwrap();
        assert!(close(by_clock, 0.324 / 1.24), "{by_clock}");
        explanation.sampling = Some(SAMPLING);
        explanation.causes[0].cause = Cause::Tracing;
        add_perturbation(&mut explanation, 100, Duration::from_millis(24));
        let traced = explanation.perturbation_fraction.unwrap();
        assert!(close(traced, 0.724 / 1.24), "{traced}");
        explanation.sampling.as_mut().unwrap().sample_ns = None;
        add_perturbation(&mut explanation, 100, Duration::ZERO);
        assert_eq!(explanation.perturbation_fraction, None);
    }

    #[test]
    fn add_samples__of_the_machine() {
        let explanation = explained(true);
        assert!(close(explanation.explained_fraction.unwrap(), 55.0 / 60.0));
        assert!(close(explanation.cpu.unwrap().others, 0.0));
    }

    #[test]
    fn add_samples__few_bytes_say_nothing_of_copies() {
        let mut explanation = Explanation {
            seconds: 1.0,
            bytes: 1000,
            ..Explanation::default()
        };
        add_samples(&mut explanation, counts(), SAMPLING, false, RATES);
        assert_eq!(explanation.copies_per_byte, None);
        assert_eq!(explanation.copies_per_byte_range, None);
        let mut nothing = Explanation::default();
        add_samples(&mut nothing, Counts::default(), SAMPLING, false, RATES);
        assert_eq!(nothing.explained_fraction, None);
    }
}
