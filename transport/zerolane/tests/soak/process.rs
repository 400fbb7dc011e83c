//! Starts and bounds a process of the soak, and reads its reports.

use crate::link::Path;
use crate::protocol::MARK;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use zerolane::counters::{Account, DropReason, MoveCause};
use zerolane::{Options, Security};

/// Tells a process its role, in its environment.
const ROLE: &str = "ZEROLANE_SOAK_ROLE";

/// The test that a process runs.
const ENTRY: &str = "role__of_a_process_of_the_soak";

/// Address space of a process, bytes. A target needs a third of it.
const MEMORY: u64 = 1 << 30;

/// How long a process may take beyond its working time.
pub const LINGER: Duration = Duration::from_secs(120);

/// A process's role.
#[derive(Clone)]
pub struct Role {
    pub name: String,
    settings: HashMap<String, String>,
}

impl Role {
    /// The role of this process; `None` if it is not one of the soak's.
    pub fn of_this_process() -> Option<Role> {
        let text = std::env::var(ROLE).ok()?;
        let mut words = text.split_whitespace();
        let name = words.next()?.to_owned();
        let settings = words.filter_map(|word| word.split_once('='));
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Role {
            name,
            settings: settings.collect(),
        })
    }

    pub fn get<T: std::str::FromStr>(&self, key: &str) -> T {
        let value = self.settings.get(key).and_then(|it| it.parse().ok());
        value.unwrap_or_else(|| panic!("no {key} in {:?}", self.settings))
    }

    pub fn seed(&self) -> u64 {
        self.get("seed")
    }

    pub fn path(&self) -> Path {
        Path::of_seed(self.seed())
    }

    pub fn time(&self) -> Duration {
        Duration::from_millis(self.get("millis"))
    }

    pub fn options(&self) -> Options {
        Options::default().with(|it| {
            it.security = match self.get("encrypted") {
                true => Security::default(),
                false => Security::plain(),
            }
        })
    }

    /// Must be called first: this process ends with its parent, after its time, at the first panic, and when it exceeds
    /// its memory.
    pub fn bound(&self) {
        set_pdeathsig(Signal::SIGKILL).expect("to end with the parent");
        setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY).expect("a limit of memory");
        let name = self.name.clone();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("the {name} fails:");
            usual(panic);
            std::process::exit(1);
        }));
        let (name, life) = (self.name.clone(), self.time() + LINGER);
        std::thread::spawn(move || {
            std::thread::sleep(life);
            panic!("the {name} did not end by itself within {life:?}");
        });
    }
}

/// The command for a role; `start` makes a command that runs in the right place.
pub fn command(start: impl FnOnce(std::path::PathBuf) -> Command, role: &str) -> Command {
    let mut command = start(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", ENTRY, "--nocapture", "--test-threads", "1"])
        .env(ROLE, role)
        // An arena for each thread would take more address space than all memory in use.
        .env("MALLOC_ARENA_MAX", "2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Writes a line to the parent.
pub fn say(line: &str) {
    println!("\n{MARK}{line}");
}

/// Peak memory of this process, resident and address space: KiB.
pub fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let of = |name| value(name).unwrap_or_default();
    format!("hwm={} vm={}", of("VmHWM:"), of("VmPeak:"))
}

/// Handles standard input line by line; ends the process when it is closed.
pub fn hear(mut each: impl FnMut(&str) + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            each(&line.expect("standard input"));
        }
    })
}

/// The difference of two accounts, as a line.
pub fn since(then: &Account, now: &Account) -> String {
    let mut line = String::new();
    let (before, after) = (&then.protocol, &now.protocol);
    let mut count = |name: &str, then: u64, now: u64| {
        if now != then {
            let _ = write!(line, "{name}+{} ", now - then);
        }
    };
    count("tx_datagrams", then.datagrams_sent, now.datagrams_sent);
    count(
        "rx_datagrams",
        then.datagrams_received,
        now.datagrams_received,
    );
    count("tx_bytes", before.bytes_sent, after.bytes_sent);
    count("tx_again", before.bytes_resent, after.bytes_resent);
    count("rx_bytes", before.bytes_received, after.bytes_received);
    count("rx_stus", before.stus_received, after.stus_received);
    count("tx_control", before.control_sent, after.control_sent);
    count(
        "rx_control",
        before.control_received,
        after.control_received,
    );
    count("grants", before.grants_sent, after.grants_sent);
    count(
        "grants_deferred",
        before.grants_deferred,
        after.grants_deferred,
    );
    count("reports", before.reports_sent, after.reports_sent);
    count("reordered", before.reordered, after.reordered);
    count(
        "spurious_requests",
        before.spurious_requests,
        after.spurious_requests,
    );
    count("timeouts", before.timeouts, after.timeouts);
    count(
        "records_dropped",
        before.records_dropped,
        after.records_dropped,
    );
    count("migrations", before.migrations, after.migrations);
    count(
        "socket_drops",
        then.dropped_socket_buffer,
        now.dropped_socket_buffer,
    );
    count("send_drops", then.dropped_on_send, now.dropped_on_send);
    count("wakeups", then.wakeups, now.wakeups);
    count("sleeps", then.sleeps, now.sleeps);
    for reason in DropReason::ALL {
        count(
            &format!("{reason:?}"),
            before.dropped(reason),
            after.dropped(reason),
        );
    }
    for cause in MoveCause::ALL {
        count(
            &format!("moved:{cause:?}"),
            then.moved(cause),
            now.moved(cause),
        );
    }
    let path = &now.path;
    let _ = write!(
        line,
        "| rtt {:?}~{:?} min {:?} reordering {:?} ahead {} {} cwnd {} pace {:?} in_flight {}",
        path.rtt,
        path.rtt_deviation,
        path.min_rtt,
        path.reordering,
        path.granted_ahead,
        path.controller,
        path.congestion_window,
        path.pace,
        path.in_flight,
    );
    line
}
