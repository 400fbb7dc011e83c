//! Counts costly events in the kernel: context switches, wake-ups, interrupts, softirqs.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

use crate::processes::descendants;

/// The names of the softirqs, in the order of `/proc/stat`.
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// Events while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// Context switches of the whole machine.
    pub context_switches: u64,
    /// Interrupts of the whole machine.
    pub interrupts: u64,
    /// Softirqs of the whole machine, by kind; those that rose.
    pub softirqs: BTreeMap<&'static str, u64>,
    /// System calls of the program, or of the whole machine. `None`: they could not be counted.
    pub system_calls: Option<u64>,
    /// How often the program slept, which is how often it was woken. `None` for the whole machine.
    pub wake_ups: Option<u64>,
    /// How often another program preempted this one. `None` for the whole machine.
    pub preemptions: Option<u64>,
}

/// Whose wake-ups are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// The processes that this one starts and waits for, and theirs.
    Children,
    /// A running process and those below it.
    Process(u32),
    /// Of all: not counted.
    Machine,
}

/// The counters at one time.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    machine: Machine,
    switches: Option<Switches>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Machine {
    context_switches: u64,
    interrupts: u64,
    softirqs: [u64; SOFTIRQS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Counters {
    pub(crate) fn read(whose: Whose) -> Counters {
        Counters {
            machine: parse_stat(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            switches: match whose {
                Whose::Children => of_children(),
                Whose::Process(pid) => Some(of_process(pid)),
                Whose::Machine => None,
            },
        }
    }

    /// What happened since `before`.
    pub(crate) fn since(&self, before: &Counters) -> Activity {
        let (now, then) = (&self.machine, &before.machine);
        let softirqs = (0..SOFTIRQS.len())
            .map(|at| {
                (
                    SOFTIRQS[at],
                    now.softirqs[at].saturating_sub(then.softirqs[at]),
                )
            })
            .filter(|it| it.1 > 0);
        let switches = self.switches.zip(before.switches);
        let rise =
            |of: fn(Switches) -> u64| switches.map(|(now, then)| of(now).saturating_sub(of(then)));
        Activity {
            context_switches: now.context_switches.saturating_sub(then.context_switches),
            interrupts: now.interrupts.saturating_sub(then.interrupts),
            softirqs: softirqs.collect(),
            system_calls: None,
            wake_ups: rise(|it| it.voluntary),
            preemptions: rise(|it| it.involuntary),
        }
    }
}

fn parse_stat(text: &str) -> Machine {
    let mut machine = Machine::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut numbers = words.map_while(|it| it.parse::<u64>().ok());
        match name {
            "ctxt" => machine.context_switches = numbers.next().unwrap_or(0),
            "intr" => machine.interrupts = numbers.next().unwrap_or(0),
            // The first is the sum.
            "softirq" => {
                let each = machine.softirqs.iter_mut().zip(numbers.skip(1));
                each.for_each(|(softirq, number)| *softirq = number);
            }
            _ => {}
        }
    }
    machine
}

fn of_children() -> Option<Switches> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let number = |it| u64::try_from(it).unwrap_or(0);
    Some(Switches {
        voluntary: number(usage.voluntary_context_switches()),
        involuntary: number(usage.involuntary_context_switches()),
    })
}

fn of_process(pid: u32) -> Switches {
    let mut sum = Switches::default();
    for pid in descendants(pid) {
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let number = |name: &str| {
                let found = status.lines().find_map(|line| line.strip_prefix(name));
                found
                    .and_then(|it| it.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            sum.voluntary += number("voluntary_ctxt_switches:");
            sum.involuntary += number("nonvoluntary_ctxt_switches:");
        }
    }
    sum
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn since__is_the_difference() {
        let before = "cpu 1 2\nintr 10 1 2\nctxt 100\nsoftirq 9 1 2 3 3 0 0 0 0 0 0\n";
        let after = "cpu 1 2\nintr 15 1 2\nctxt 107\nsoftirq 9 1 2 3 9 0 0 0 0 0 1\n";
        let counters = |text| Counters {
            machine: parse_stat(text),
            switches: None,
        };
        let activity = counters(after).since(&counters(before));
        assert_eq!((activity.context_switches, activity.interrupts), (7, 5));
        assert_eq!(activity.softirqs, [("NET_RX", 6), ("RCU", 1)].into());
        assert_eq!(activity.wake_ups, None);
    }

    /// Of a process that ends with the test and has one thread: those of this one end at any time, and take their
    /// counters with them.
    #[test]
    fn read__of_a_process() {
        let mut process = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat");
        let whose = Whose::Process(process.id());
        let mut answers = process.stdout.take().expect("piped");
        let mut requests = process.stdin.take().expect("piped");
        let mut ask = || {
            requests.write_all(b"x").expect("written");
            answers.read_exact(&mut [0]).expect("answered");
        };
        ask();
        let before = Counters::read(whose);
        // It may find a request before it slept.
        let woken = (0..10_000).any(|_| {
            ask();
            Counters::read(whose)
                .since(&before)
                .wake_ups
                .is_some_and(|it| it > 0)
        });
        drop(requests);
        process.wait().expect("ended");
        assert!(woken);
    }
}
