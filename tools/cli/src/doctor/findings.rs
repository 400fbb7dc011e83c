//! Judges each value that `doctor` read, and chooses the command that fixes it.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use zerolane::failure::CloseReason;
use zerolane::keys;
use zerolane::security::Cipher;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Ok,
    /// It works, but slower than it could.
    Slow,
    Wrong,
}

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: String,
    pub(super) state: State,
    found: String,
    /// A command that fixes it, or advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &str, found: impl Into<String>) -> Finding {
        Finding {
            check: check.into(),
            state: State::Ok,
            found: found.into(),
            fix: None,
        }
    }

    fn bad(check: &str, state: State, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            state,
            fix: Some(fix.into()),
            ..Finding::ok(check, found)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ok => "ok",
            State::Slow => "slow",
            State::Wrong => "WRONG",
        };
        write!(f, "{state:5}  {}: {}", self.check, self.found)?;
        self.fix
            .iter()
            .try_for_each(|fix| write!(f, "\n       {fix}"))
    }
}

/// Compares the receive buffer of a socket with what it asked for and with the limit of unprivileged processes, in
/// bytes. The kernel grants twice what a socket asks for, for its own overhead.
pub(super) fn receive_buffer(granted: usize, wanted: usize, limit: Option<usize>) -> Finding {
    let check = "receive buffer";
    let words = format!("{} KiB of {} KiB", granted / 2048, wanted / 1024);
    match limit {
        _ if granted / 2 < wanted => Finding::bad(
            check,
            State::Slow,
            words,
            format!("sysctl -w net.core.rmem_max={wanted}   # and in /etc/sysctl.d"),
        ),
        Some(limit) if limit < wanted => Finding::ok(
            check,
            format!(
                "{words}; {} KiB for processes without CAP_NET_ADMIN",
                limit / 1024
            ),
        ),
        _ => Finding::ok(check, words),
    }
}

pub(super) fn offload(name: &str, used: bool, since: &str) -> Finding {
    match used {
        true => Finding::ok(name, "the kernel has it"),
        false => Finding::bad(
            name,
            State::Slow,
            "the kernel, or a sandbox around this process, does not have it",
            format!("Linux {since} or later; not in a sandbox that emulates sockets"),
        ),
    }
}

pub(super) fn cipher(cipher: Option<Cipher>) -> Finding {
    let name = cipher.map_or("none", Cipher::name);
    match cipher {
        Some(Cipher::ChaCha20Poly1305) => Finding::bad(
            "cipher",
            State::Slow,
            format!("{name}: this processor has no instructions for AES, or hides them"),
            "a virtual machine shows them with the host's CPU model (-cpu host)",
        ),
        _ => Finding::ok("cipher", name),
    }
}

pub(super) fn no_loopback(error: &zerolane::Error) -> Finding {
    Finding::bad(
        "UDP on this machine",
        State::Wrong,
        format!("a connection over 127.0.0.1 fails: {error}"),
        "ip link set lo up; then look at the firewall's rules for lo (nft list ruleset)",
    )
}

/// Checks the clock, from which file times and log times come.
pub(super) fn clock(now: SystemTime, made: Option<SystemTime>) -> Finding {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    match made {
        Some(made) if now + DAY < made => Finding::bad(
            "clock",
            State::Wrong,
            "it is before this program was made",
            "timedatectl set-ntp true",
        ),
        _ => Finding::ok("clock", format!("{:.0}", jiff::Timestamp::now())),
    }
}

/// Checks the clock source, which is read for every datagram.
pub(super) fn clock_source(name: &str) -> Finding {
    match name {
        "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" => Finding::bad(
            "clock source",
            State::Slow,
            format!("{name}: each reading is a system call"),
            "dmesg | grep -i clocksource   # says why the kernel gave up tsc",
        ),
        _ => Finding::ok("clock source", name),
    }
}

pub(super) fn no_home() -> Finding {
    Finding::bad(
        "own key",
        State::Wrong,
        "there is no place for keys: neither HOME nor ZEROLANE_HOME is set",
        "export ZEROLANE_HOME=/var/lib/zerolane",
    )
}

/// Reports the content of a key file; `found` is `None` if there is no file.
pub(super) fn key_file(
    check: &str,
    path: &Path,
    found: Result<Option<String>, keys::Error>,
) -> Finding {
    let path = path.display();
    let (words, fix) = match found {
        Ok(Some(found)) => return Finding::ok(check, format!("{found}, in {path}")),
        Ok(None) => return Finding::ok(check, format!("none yet, in {path}")),
        Err(keys::Error::Exposed { what, .. }) => (
            format!("others may {what} {path}, so it is not used"),
            format!("chmod 600 {path}   # and chown it, if it is another user's"),
        ),
        Err(keys::Error::Syntax { line, problem }) => (
            format!("{path} is broken: line {line}: {problem}"),
            format!("${{EDITOR:-vi}} +{line} {path}"),
        ),
        Err(error) => (error.to_string(), format!("ls -l {path}")),
    };
    Finding::bad(check, State::Wrong, words, fix)
}

/// What a connection's probes found of the path MTU.
#[derive(Clone, Copy)]
pub(super) enum Probed {
    /// Packets of this length pass.
    Passes(u32),
    /// Not even packets of the least length that Zerolane needs pass.
    TooNarrow,
}

/// Reports the path MTU to `host`: `mtu` from the kernel, and what a connection's probes `found`, if one was made.
pub(super) fn mtu(host: IpAddr, mtu: u32, found: Option<Probed>) -> Finding {
    // The least that every path carries for IPv4, and that Zerolane needs.
    let least = if host.is_ipv4() { 576 } else { 1280 };
    let check = format!("MTU to {host}");
    match found {
        Some(Probed::TooNarrow) => Finding::bad(
            &check,
            State::Wrong,
            format!(
                "short packets pass, those of {least} bytes are dropped: every path must carry them"
            ),
            format!("raise the MTU of the tunnel or VPN on the path to {least} or more"),
        ),
        _ if mtu < least => Finding::bad(
            &check,
            State::Wrong,
            format!("{mtu}: datagrams have {least} bytes at least"),
            format!("ip route get {host}   # and then: ip link set DEVICE mtu {least}"),
        ),
        Some(Probed::Passes(found)) if found < mtu => Finding::bad(
            &check,
            State::Slow,
            format!(
                "packets of {found} bytes pass; those of {mtu}, which this machine sends, are dropped without an ICMP message"
            ),
            format!(
                "let ICMP \"fragmentation needed\" through, or: ip route add {host} mtu {found} via GATEWAY"
            ),
        ),
        Some(Probed::Passes(found)) => Finding::ok(&check, format!("{found}, as was tried")),
        None => Finding::ok(&check, format!("{mtu}, as far as this machine knows")),
    }
}

pub(super) fn no_address(host: &str, error: &dyn fmt::Display) -> Finding {
    Finding::bad(
        &format!("address of {host}"),
        State::Wrong,
        error.to_string(),
        format!("getent hosts {host}"),
    )
}

/// Reports the outcome of a connection attempt with a fresh key.
pub(super) fn answer(host: &str, tried: Result<(), &zerolane::Error>) -> Finding {
    let check = format!("UDP to {host}");
    let error = match tried {
        Ok(()) => return Finding::ok(&check, "answered, and lets any client in"),
        Err(error) => error,
    };
    let (words, fix) = match error {
        zerolane::Error::Closed(CloseReason::Rejected { .. } | CloseReason::ExchangeRefused(_)) => {
            return Finding::ok(&check, format!("answered ({error})"));
        }
        zerolane::Error::Closed(CloseReason::Unreachable) => (
            format!(
                "the host, or a router on the way, reports that nothing is reachable there: {error}"
            ),
            "start `zerolane serve --listen` there, and compare the port",
        ),
        zerolane::Error::ConnectTimeout(_)
        | zerolane::Error::Closed(CloseReason::ConnectTimeout) => (
            "no answer at all: it is down, nothing listens, or a firewall drops UDP".to_owned(),
            "there: `ss -lun` shows whether it listens, `nft list ruleset` what is dropped; let UDP to that port pass",
        ),
        error => (
            error.to_string(),
            "ip route get ADDRESS   # is there a way?",
        ),
    };
    Finding::bad(&check, State::Wrong, words, fix)
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
