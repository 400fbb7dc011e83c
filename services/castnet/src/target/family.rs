//! Starts a command, and ends it together with all processes that it started.
//!
//! Without a terminal, the command runs in a process group of its own. With one, it stays in the foreground group, because a
//! terminal stops a background process that reads from it. Descendants are therefore also found by their parents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::limits::COMMAND_PATIENCE;

/// How often it is looked which are left.
const LOOK: Duration = Duration::from_millis(20);

/// A command that runs.
pub(super) struct Family {
    pub(super) first: Child,
    is_group: bool,
    /// The known processes, with their start times, because the kernel reuses process numbers.
    known: BTreeMap<i32, u64>,
}

/// A process, as the system shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    number: i32,
    parent: i32,
    group: i32,
    /// When it began, in ticks of the system.
    started: u64,
}

impl Family {
    /// Starts a command.
    pub(super) fn start(command: &mut Command) -> io::Result<Family> {
        let is_group = File::open("/dev/tty").is_err();
        if is_group {
            command.process_group(0);
        }
        Ok(Family {
            first: command.spawn()?,
            is_group,
            known: BTreeMap::new(),
        })
    }

    /// Ends all processes: by SIGTERM, which each may catch to clean up, then by SIGKILL. Processes that have changed
    /// to another user cannot be ended, and are left.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        // A stopped process handles no other signal.
        self.signal(Signal::CONT);
        // The first process stays a zombie, so that its number is not reused.
        self.wait_for_all();
        let until = Instant::now() + COMMAND_PATIENCE;
        // One may have started another meanwhile.
        while self.signal(Signal::KILL) && Instant::now() < until {
            thread::sleep(LOOK);
        }
        // Also where the system shows no processes.
        let _ = self.first.kill();
        self.first.wait()
    }

    fn wait_for_all(&mut self) {
        let until = Instant::now() + COMMAND_PATIENCE;
        while !self.living().is_empty() && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }

    /// Sends a signal to all; whether there was any.
    fn signal(&mut self, signal: Signal) -> bool {
        let living = self.living();
        if self.is_group {
            // This includes processes that start at this moment.
            let _ = kill_process_group(Pid::from_child(&self.first), signal);
        }
        for number in living.iter().filter_map(|it| Pid::from_raw(*it)) {
            // It may be gone already.
            let _ = kill_process(number, signal);
        }
        !living.is_empty()
    }

    /// The processes that have not ended.
    fn living(&mut self) -> Vec<i32> {
        let first = self.first.id().cast_signed();
        let all = processes();
        self.known.retain(|number, started| {
            all.iter()
                .any(|it| (it.number, it.started) == (*number, *started))
        });
        let mut more = true;
        while more {
            more = false;
            for it in &all {
                let is_of_it = it.number == first
                    || (self.is_group && it.group == first)
                    || self.known.contains_key(&it.parent);
                more |= is_of_it && self.known.insert(it.number, it.started).is_none();
            }
        }
        self.known.keys().copied().collect()
    }
}

/// All processes that have not ended.
fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let shown = |number| fs::read_to_string(format!("/proc/{number}/stat")).ok();
    numbers.filter_map(|it| parse(it, &shown(it)?)).collect()
}

/// Parses `/proc/PID/stat` (proc(5)); `None` for a process that has ended. The program's name may contain any
/// character.
fn parse(number: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number_at = |index: usize| fields.get(index)?.parse().ok();
    match fields.first()? {
        &"Z" | &"X" => None,
        _ => Some(Process {
            number,
            parent: number_at(1)?,
            group: number_at(2)?,
            started: fields.get(19)?.parse().ok()?,
        }),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__whatever_its_program_is_called() {
        let stat = |name: &str, state| {
            let more = "6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 777 23";
            format!("5 ({name}) {state} 3 4 {more}")
        };
        let there = Process {
            number: 5,
            parent: 3,
            group: 4,
            started: 777,
        };
        for name in ["sh", "a) Z 1 2", ""] {
            assert_eq!(parse(5, &stat(name, "S")), Some(there), "{name:?}");
            assert_eq!(parse(5, &stat(name, "Z")), None, "{name:?}");
        }
        assert_eq!(parse(5, "5 (sh"), None);
        let own = std::process::id().cast_signed();
        assert!(processes().iter().any(|it| it.number == own));
    }
}
