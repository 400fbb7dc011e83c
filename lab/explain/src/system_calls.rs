//! Counts a program's system calls, by the kernel's tracepoint.

use std::fs;
use std::io;

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};

use crate::activity::Whose;
use crate::processes::descendants;
use crate::sampler::online_cpus;
use crate::tracing::Tracepoints;

/// Threads of a running process that are counted, each by a file of its own. A process with more is not counted.
const THREADS_LIMIT: usize = 512;

/// Counts from its start.
pub(crate) struct SystemCalls {
    counted: Vec<Counter>,
    /// Of this thread, which are among those.
    own: Option<Counter>,
}

impl SystemCalls {
    /// Begins. The calling thread must be the one that starts the subject, if that is [`Whose::Children`].
    pub(crate) fn start(whose: Whose, tracepoints: &Tracepoints) -> io::Result<SystemCalls> {
        let event = tracepoints.find("raw_syscalls/sys_enter")?.event();
        let counted = match whose {
            Whose::Children => vec![builder(event).inherit(true).build()?],
            Whose::Process(pid) => {
                let threads = threads(pid);
                if threads.len() > THREADS_LIMIT {
                    return Err(io::Error::other(format!(
                        "it has more than {THREADS_LIMIT} threads"
                    )));
                }
                let open = |it| builder(event).observe_pid(it).inherit(true).build();
                threads.into_iter().map(open).collect::<io::Result<_>>()?
            }
            Whose::Machine => {
                let cpus = online_cpus()?.into_iter();
                let open = |cpu| builder(event).any_pid().one_cpu(cpu).build();
                cpus.map(open).collect::<io::Result<_>>()?
            }
        };
        let own = match whose {
            Whose::Process(_) => None,
            Whose::Children | Whose::Machine => Some(builder(event).build()?),
        };
        let mut calls = SystemCalls { counted, own };
        for counter in calls.own.iter_mut().chain(&mut calls.counted) {
            counter.enable()?;
        }
        Ok(calls)
    }

    /// How many there were.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let mut sum = 0;
        for counter in &mut self.counted {
            sum += counter.read()?;
        }
        let own = self.own.as_mut().map_or(Ok(0), Counter::read)?;
        Ok(sum.saturating_sub(own))
    }
}

fn builder(event: Tracepoint) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.include_kernel().include_hv();
    builder
}

fn threads(pid: u32) -> Vec<i32> {
    let of_process = |pid: u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        let threads = threads.into_iter().flatten().flatten();
        threads.filter_map(|it| it.file_name().to_str()?.parse().ok())
    };
    descendants(pid).into_iter().flat_map(of_process).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// `dd` reads and writes each byte by itself.
    const BYTES: u64 = 5000;

    fn copier() -> Command {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "of=/dev/null", "bs=1"]);
        command.arg(format!("count={BYTES}")).stderr(Stdio::null());
        command
    }

    fn calls(whose: Whose) -> Option<SystemCalls> {
        let tracepoints = Tracepoints::open();
        let calls = tracepoints.and_then(|it| SystemCalls::start(whose, &it));
        calls
            .inspect_err(|why| eprintln!("skipped: {whose:?}: {why}"))
            .ok()
    }

    #[test]
    fn finish__of_a_program_that_was_started() {
        let Some(calls) = calls(Whose::Children) else {
            return;
        };
        assert!(copier().status().unwrap().success());
        for _ in 0..10 * BYTES {
            // This program's are not its children's.
            std::hint::black_box(nix::unistd::getppid());
        }
        let counted = calls.finish().unwrap();
        // What starting and ending takes is not known, but it is little.
        assert!(
            (2 * BYTES..3 * BYTES).contains(&counted),
            "{counted} of {BYTES} reads and writes"
        );
    }

    #[test]
    fn finish__of_a_running_process_and_those_it_starts() {
        let script =
            format!("read go; dd if=/dev/zero of=/dev/null bs=1 count={BYTES} 2>/dev/null; exit 0");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let calls = calls(Whose::Process(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        if let Some(calls) = calls {
            let counted = calls.finish().unwrap();
            assert!((2 * BYTES..3 * BYTES).contains(&counted), "{counted}");
        }
    }
}
