//! Runs one command from start to end.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab;

use crate::plan::Planned;

/// Most that is kept of what a command prints. The largest result is some hundred KiB.
const KEPT_OUTPUT: u64 = 64 << 20;
/// Most that is kept of its messages: the last one is the error.
const KEPT_MESSAGES: u64 = 1 << 20;
/// A machine may be slower than expected by so much, and then some seconds; then the command hangs.
const PATIENCE: u32 = 8;
const PATIENCE_S: u32 = 60;
/// How long a command that is interrupted may clean up: it takes its namespaces away.
const CLEAN_UP: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// Runs it in a process group of its own, and returns the JSON that it printed. `tick` is called now and then.
///
/// # Errors
/// Why there is none, in a sentence. After an interrupt, too.
pub(super) fn run(
    program: &Path,
    planned: &Planned,
    interrupt: &Interrupt,
    mut tick: impl FnMut(),
) -> Result<Value, String> {
    let mut child = Command::new(program)
        .args(arguments(program, &planned.words))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let output = reader(child.stdout.take(), KEPT_OUTPUT);
    let messages = reader(child.stderr.take(), KEPT_MESSAGES);
    let limit = Duration::from_secs((planned.expected_s * PATIENCE + PATIENCE_S).into());
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) => {}
            Err(error) => break Err(format!("cannot wait for it: {error}")),
        }
        if interrupt.requested() {
            stop(&mut child);
            break Err("interrupted".into());
        }
        if started.elapsed() > limit {
            stop(&mut child);
            break Err(format!("timed out after {} s", limit.as_secs()));
        }
        tick();
        thread::sleep(LOOK);
    };
    // Whatever it left running holds the pipes open.
    let _ = killpg(group(&child), Signal::SIGKILL);
    let output = output.join().unwrap_or_default();
    let messages = messages.join().unwrap_or_default();
    let status = status?;
    read_result(status, &output, &messages)
}

/// The words, but what `explain` runs is this program, too, whatever PATH has.
fn arguments<'a>(program: &'a Path, words: &'a [String]) -> Vec<&'a OsStr> {
    let command = words.iter().position(|it| it == "--").map(|it| it + 1);
    let words = words.iter().enumerate();
    words
        .map(|(at, word)| match word.as_str() {
            "zerolane" if Some(at) == command => program.as_os_str(),
            other => other.as_ref(),
        })
        .collect()
}

fn read_result(status: ExitStatus, output: &[u8], messages: &[u8]) -> Result<Value, String> {
    if !status.success() {
        let messages = String::from_utf8_lossy(messages);
        let mut lines = messages.lines().map(str::trim);
        // Progress stands in the same line before a carriage return.
        let last_of = |line: &str| line.rsplit('\r').next().unwrap_or_default().to_owned();
        let error = lines
            .clone()
            .find(|line| line.starts_with("error:"))
            .or_else(|| lines.rfind(|line| !line.is_empty()));
        let error = error.map_or_else(|| "it printed nothing".into(), last_of);
        return Err(format!("{error} ({status})"));
    }
    serde_json::from_slice(output).map_err(|error| format!("printed invalid JSON: {error}"))
}

/// Asks the group to end, as Ctrl-C does; then kills it.
fn stop(child: &mut Child) {
    let _ = killpg(group(child), Signal::SIGINT);
    let asked = Instant::now();
    while asked.elapsed() < CLEAN_UP {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(LOOK);
    }
    let _ = killpg(group(child), Signal::SIGKILL);
    let _ = child.wait();
    // What it could not take away itself, if it was the last.
    lab::sweep();
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Reads to the end in a thread of its own, so that no pipe runs full, and keeps the first `most` bytes.
fn reader(from: Option<impl Read + Send + 'static>, most: u64) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(most).read_to_end(&mut kept);
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        kept
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Value, String> {
        let planned = Planned {
            name: "shell".into(),
            words: vec!["-c".into(), script.into()],
            expected_s: 1,
        };
        run(Path::new("/bin/sh"), &planned, &Interrupt::default(), || {})
    }

    #[test]
    fn run__returns_what_was_printed_or_why_not() {
        assert_eq!(shell("echo '{\"a\": 1}'").unwrap()["a"], 1);
        let error = shell("echo one >&2; echo 'zerolane: no namespaces' >&2; exit 3").unwrap_err();
        assert!(error.starts_with("zerolane: no namespaces ("), "{error}");
        let error =
            shell("echo \"error: no such option\" >&2; echo 'try --help' >&2; exit 2").unwrap_err();
        assert!(error.starts_with("error: no such option"), "{error}");
        let error = shell("echo '{\"a\":'").unwrap_err();
        assert!(error.starts_with("printed invalid JSON"), "{error}");
        assert!(shell("exit 1").unwrap_err().contains("it printed nothing"));
        assert!(shell("kill -9 $$").unwrap_err().contains("signal"));
    }

    #[test]
    fn arguments__what_is_explained_is_this_program() {
        let words = "explain -- zerolane bench bulk --only zerolane".split(' ');
        let words: Vec<_> = words.map(str::to_owned).collect();
        let found = arguments(Path::new("/here/program"), &words);
        assert_eq!(
            found.join(OsStr::new(" ")),
            "explain -- /here/program bench bulk --only zerolane"
        );
    }

    #[test]
    fn run__does_not_wait_for_what_is_left_behind() {
        let started = Instant::now();
        assert_eq!(shell("sleep 600 & echo 1").unwrap(), 1);
        assert!(started.elapsed() < Duration::from_secs(500));
    }

    #[test]
    fn run__missing_program_is_an_error() {
        let planned = Planned {
            name: "none".into(),
            words: Vec::new(),
            expected_s: 1,
        };
        let program = Path::new("/no/such/program");
        let error = run(program, &planned, &Interrupt::default(), || {}).unwrap_err();
        assert!(error.starts_with("cannot start"), "{error}");
    }
}
