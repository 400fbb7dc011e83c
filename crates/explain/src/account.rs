//! From what was counted to what is said of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::activity::Activity;
use crate::explanation::{CauseTime, Copies, CpuTime, Explanation, Sampling, Unexplained};
use crate::network::Counted;
use crate::processes::Kind;
use crate::profile::{Counts, Owner};
use crate::rules::Cause;

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
        activity,
        missing: counted.missing.into_iter().collect(),
        ..Explanation::default()
    };
    explanation.relate_to_bytes();
    explanation
}

/// Adds what the samples said. `machine`: all processes are the subject. `copy_rate`: bytes a second.
pub(crate) fn add_samples(
    explanation: &mut Explanation,
    counts: Counts,
    sampling: Sampling,
    machine: bool,
    copy_rate: f64,
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
    let kib = explanation.bytes as f64 / 1024.0;
    explanation.explained_fraction = (total > 0).then(|| share(explained));
    explanation.causes = by_cause
        .into_iter()
        .map(|(cause, samples)| CauseTime {
            cause,
            seconds: seconds(samples),
            share: share(samples),
            ns_per_kib: (kib >= 1.0).then(|| seconds(samples) * 1e9 / kib),
        })
        .collect();
    explanation
        .causes
        .sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
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
        bytes_per_second: copy_rate,
    };
    explanation.copies = Some(copies);
    let copied = (copies.kernel_seconds + copies.user_seconds) * copy_rate;
    let enough = explanation.bytes >= COPIES_MIN_BYTES;
    explanation.copies_per_byte = enough.then(|| copied / explanation.bytes as f64);
    explanation.folded = counts.folded;
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

/// Adds what watching took: its samples, and `own`, the CPU time of this process.
pub(crate) fn add_perturbation(explanation: &mut Explanation, own: Duration) {
    let (Some(sampling), Some(cpu)) = (explanation.sampling, explanation.cpu) else {
        return;
    };
    let busy = cpu.program + cpu.kernel + cpu.others + cpu.explaining;
    explanation.perturbation_fraction = sampling.sample_ns.filter(|_| busy > 0.0).map(|cost| {
        // Those of an idle CPU take nothing from anything, and are counted all the same.
        let sampled = sampling.samples as f64 * cost / 1e9;
        ((sampled + own.as_secs_f64()) / busy).min(1.0)
    });
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
    use crate::sampler::Source;

    const SAMPLING: Sampling = Sampling {
        source: Source::Clock,
        frequency_hz: 50,
        sample_ns: Some(1e6),
        cpus: 2,
        samples: 100,
        lost: 0,
        not_folded: 0,
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
            ..Counts::default()
        }
    }

    fn explained(machine: bool) -> Explanation {
        let mut explanation = Explanation {
            seconds: 1.0,
            bytes: 1 << 30,
            ..Explanation::default()
        };
        add_samples(&mut explanation, counts(), SAMPLING, machine, 1e10);
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
    }

    #[test]
    fn add_perturbation__is_samples_and_this_process() {
        let mut explanation = explained(false);
        add_perturbation(&mut explanation, Duration::from_millis(24));
        // 100 samples of 1 ms and 24 ms, of 62 samples that stand for 20 ms each.
        let fraction = explanation.perturbation_fraction.unwrap();
        assert!(close(fraction, 0.124 / 1.24), "{fraction}");
        explanation.sampling.as_mut().unwrap().sample_ns = None;
        add_perturbation(&mut explanation, Duration::ZERO);
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
        add_samples(&mut explanation, counts(), SAMPLING, false, 1e10);
        assert_eq!(explanation.copies_per_byte, None);
        let mut nothing = Explanation::default();
        add_samples(&mut nothing, Counts::default(), SAMPLING, false, 1e10);
        assert_eq!(nothing.explained_fraction, None);
    }
}
