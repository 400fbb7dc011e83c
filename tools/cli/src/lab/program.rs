//! Runs the programs in the hosts of a lab.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use netlab::lab::Lab;
use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::program;

/// A command for each host, starting with host 1. The lab ends when the command of host 1 ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Programs(Vec<Vec<OsString>>);

impl Programs {
    /// A command in host 1 alone.
    pub(crate) fn one(words: Vec<OsString>) -> Result<Programs> {
        let name = words.first().context("no command")?;
        // Checked before the setup, because `nsenter` reports a missing program only by its exit code.
        program::find(name)
            .with_context(|| format!("{}: command not found", name.display()))
            .context(Exit::CommandNotFound)?;
        Ok(Programs(vec![words]))
    }

    /// One command line for each host, run by `sh`. Ignores empty lines and lines that begin with `#`.
    pub(crate) fn script(path: &Path) -> Result<Programs> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))
            .context(Exit::Usage)?;
        let lines = lines(&text);
        if lines.is_empty() {
            bail!(anyhow::anyhow!("{} has no line to run", path.display()).context(Exit::Usage));
        }
        let run = |line: &str| ["sh", "-c", line].map(OsString::from).to_vec();
        Ok(Programs(lines.into_iter().map(run).collect()))
    }

    /// The number of hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.0.len()
    }

    /// Runs all until the first ends, then ends the others. Returns the exit of the first.
    pub(crate) fn run(&self, lab: &Lab, interrupt: &Interrupt) -> Result<Exit> {
        let mut children = Children(Vec::new());
        // The first command starts last, because it may need the others.
        for (host, words) in self.0.iter().enumerate().rev() {
            interrupt.check()?;
            children.0.push(start(lab, host, words)?);
        }
        let first = children.0.pop().context("no command")?;
        wait(first, interrupt).map(Exit::of_command)
    }
}

/// Child processes, which dropping this ends.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The child may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// Starts a command in the host with this index.
fn start(lab: &Lab, host: usize, words: &[OsString]) -> Result<Child> {
    let (name, rest) = words.split_first().context("no command")?;
    let mut command: Command = lab.host(host).command(name);
    command.args(rest).envs(environment(lab, host));
    if host > 0 {
        command.stdin(Stdio::null());
    }
    command
        .spawn()
        .with_context(|| format!("cannot start {}", name.display()))
}

/// The environment variables with the hosts' addresses.
fn environment(lab: &Lab, own: usize) -> Vec<(String, String)> {
    let name = |what: &str, number: usize| format!("ZEROLANE_LAB_{what}{number}");
    let mut variables = vec![
        (
            "ZEROLANE_LAB_HOSTS".to_owned(),
            lab.hosts().len().to_string(),
        ),
        ("ZEROLANE_LAB_HOST".to_owned(), (own + 1).to_string()),
    ];
    for (host, number) in lab.hosts().zip(1..) {
        variables.push((name("ADDR", number), host.ipv4().to_string()));
        variables.push((name("NETNS", number), host.name().to_owned()));
        variables.push((name("DEVICE", number), host.device().to_owned()));
        for (own, index) in host.interfaces().iter().zip(1..) {
            let name = |what: &str| format!("ZEROLANE_LAB_{what}_{number}_{index}");
            variables.push((name("ADDR"), own.ipv4().to_string()));
            variables.push((name("DEVICE"), own.device().to_owned()));
        }
        if let Some(ipv6) = host.ipv6() {
            variables.push((name("ADDR6_", number), ipv6.to_string()));
        }
    }
    variables
}

/// Waits for a child, which a request to stop kills.
fn wait(mut child: Child, interrupt: &Interrupt) -> Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed());
    interrupt.watch(pid);
    // Do not reap the child yet: its process ID must stay valid until `forget`.
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), ended) == Err(Errno::EINTR) {}
    interrupt.forget(pid);
    Ok(child.wait()?)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn lines__comments_and_empty_lines_are_no_hosts() {
        let text = "# the client\n\n ping $ZEROLANE_LAB_ADDR2 \n  # the server\nsleep 9\n";
        assert_eq!(lines(text), ["ping $ZEROLANE_LAB_ADDR2", "sleep 9"]);
    }

    #[test]
    fn one__a_missing_command_has_an_exit_code_of_its_own() {
        let error = Programs::one(vec!["no-such-program-here".into()]).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::CommandNotFound);
    }
}
