//! Runs one round: a link, a target, initiators, and their reports.

use crate::INITIATORS;
use crate::dice::Dice;
use crate::link::Path;
use crate::process::{LINGER, command};
use crate::protocol::{MARK, SHARED_WORDS};
use netlab::lab::{Lab, LabConfig};
use netlab::netns;
use netlab::udp::Relay;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The outcome of rounds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    rounds: u64,
    operations: u64,
    bytes: u64,
    /// Longest time without a completion at an initiator, ms.
    gap: u64,
    /// Longest time in which no payload moved either, ms.
    still: u64,
    /// How often nothing completed for two seconds.
    stalls: u64,
    /// Highest memory of any process, KiB.
    memory: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.rounds += other.rounds;
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.gap = self.gap.max(other.gap);
        self.still = self.still.max(other.still);
        self.stalls += other.stalls;
        self.memory = self.memory.max(other.memory);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} operations, {} MiB; {} times nothing completed for 2 s, longest {} ms, without payload {} ms; {} MiB of memory at most",
            self.rounds,
            self.operations,
            self.bytes >> 20,
            self.stalls,
            self.gap,
            self.still,
            self.memory >> 10
        )
    }
}

/// A process that does not outlive its handle.
struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts it; its lines arrive at `said` with its `index`, and `None` at the end of its output.
    fn start(
        index: usize,
        role: &str,
        start: impl FnOnce(std::path::PathBuf) -> Command,
        said: Sender<(usize, Option<String>)>,
    ) -> Process {
        let mut child = command(start, role).spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let input = child.stdin.take();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(MARK) {
                    let _ = said.send((index, Some(line.to_owned())));
                }
            }
            let _ = said.send((index, None));
        });
        let name = role.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Process { name, child, input }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place of the processes, and the network between them.
enum Place {
    Network(Lab),
    Loopback(Option<Relay>),
}

impl Place {
    fn new(path: Path, seed: u64) -> Place {
        if !netns::is_permitted() {
            println!("skipped: network namespaces need root, so the processes are on loopback");
            return Place::Loopback(None);
        }
        let lab = Lab::start(LabConfig {
            prefix: "soak".into(),
            hosts: INITIATORS + 1,
            link: path.config(),
            seed,
            ..LabConfig::default()
        });
        Place::Network(lab.expect("permitted"))
    }

    fn start(&self, host: usize, program: std::path::PathBuf) -> Command {
        match self {
            Place::Network(lab) => lab.host(host).command(program),
            Place::Loopback(_) => Command::new(program),
        }
    }

    fn ip(&self) -> Ipv4Addr {
        match self {
            Place::Network(lab) => lab.host(0).ipv4(),
            Place::Loopback(_) => Ipv4Addr::LOCALHOST,
        }
    }

    /// The address by which initiators reach the target that listens at `address`.
    fn reach(&mut self, address: SocketAddr, path: Path, seed: u64) -> SocketAddr {
        match self {
            Place::Network(_) => address,
            Place::Loopback(relay) => {
                let mut link = path.config();
                link.mtu = Some(1500);
                let started = Relay::start(address, link, link, seed).expect("a relay");
                relay.insert(started).addr()
            }
        }
    }
}

/// A target and its initiators.
struct Round {
    seed: u64,
    place: Place,
    processes: Vec<Process>,
    said: Receiver<(usize, Option<String>)>,
    summary: Summary,
    /// Peak memory of each process.
    memory: Vec<String>,
    /// Sums that the target holds, and sums that the initiators added, word by word.
    held: Vec<u64>,
    added: Vec<u64>,
}

const TARGET: usize = 0;

/// Runs the round of `seed`, with a working time of `time`.
///
/// # Errors
/// The failure, as a message.
pub fn run(seed: u64, time: Duration) -> Result<Summary, String> {
    let path = Path::of_seed(seed);
    let encrypted = Dice::new(seed).chance(50);
    let mode = if encrypted { "encrypted" } else { "plain" };
    let settings = format!(
        "seed={seed} millis={} encrypted={encrypted}",
        time.as_millis()
    );
    let mut place = Place::new(path, seed);
    let (say, said) = channel();
    let role = format!("target address={}:0 {settings}", place.ip());
    let target = Process::start(TARGET, &role, |it| place.start(0, it), say.clone());
    let port = match said.recv_timeout(LINGER) {
        Ok((_, Some(line))) => line.strip_prefix("port ").and_then(|it| it.parse().ok()),
        _ => None,
    };
    let port = port.ok_or("the target did not start")?;
    let to = place.reach((place.ip(), port).into(), path, seed);
    let mut processes = vec![target];
    for index in 0..INITIATORS {
        let role = format!("initiator index={index} to={to} {settings}");
        let host = index + 1;
        let start = |program| place.start(host, program);
        processes.push(Process::start(host, &role, start, say.clone()));
    }
    drop(say);
    let mut round = Round {
        seed,
        place,
        memory: vec![String::new(); processes.len()],
        processes,
        said,
        summary: Summary {
            rounds: 1,
            ..Summary::default()
        },
        held: vec![],
        added: vec![0; SHARED_WORDS as usize],
    };
    let place = match round.place {
        Place::Network(_) => "namespaces",
        Place::Loopback(_) => "loopback",
    };
    let began = Instant::now();
    round.listen(began + time + 2 * LINGER)?;
    let summary = &round.summary;
    println!(
        "ZEROLANE_SEED={seed} {mode} {place} {path}: {} operations, {} MiB in {:.1?}; {} times nothing completed for 2 s, longest {} ms, without payload {} ms; memory, of address space, MiB: {}",
        summary.operations,
        summary.bytes >> 20,
        began.elapsed(),
        summary.stalls,
        summary.gap,
        summary.still,
        round.memory.join(", ")
    );
    if round.held != round.added {
        return Err(format!(
            "words hold {:?}, but {:?} was added",
            round.held, round.added
        ));
    }
    Ok(round.summary)
}

impl Round {
    /// Waits until all processes have ended.
    fn listen(&mut self, until: Instant) -> Result<(), String> {
        let (mut running, mut working) = (self.processes.len(), INITIATORS);
        while running > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let heard = self.said.recv_timeout(left);
            let (index, line) = heard.map_err(|_| "the processes do not end".to_owned())?;
            let Some(line) = line else {
                self.ended(index)?;
                running -= 1;
                working -= usize::from(index != TARGET);
                if working == 0 {
                    // It ends when its input is closed.
                    self.processes[TARGET].input = None;
                }
                continue;
            };
            self.hear(index, &line);
        }
        Ok(())
    }

    fn ended(&mut self, index: usize) -> Result<(), String> {
        let process = &mut self.processes[index];
        let status = process.child.wait().map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the {} ended with {status}", process.name)),
        }
    }

    fn hear(&mut self, index: usize, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers = || rest.split(' ').map(|it| it.parse().unwrap_or_default());
        match word {
            "sums" if index == TARGET => self.held = numbers().collect(),
            "sums" => {
                let added = self.added.iter_mut().zip(numbers());
                added.for_each(|(sum, n): (&mut u64, u64)| *sum = sum.wrapping_add(n));
            }
            "done" => self.count(index, rest),
            _ => {
                println!("ZEROLANE_SEED={}: {line}", self.seed);
                if word == "stall" {
                    self.summary.stalls += u64::from(rest.contains("ends"));
                    self.ask_target(index);
                }
            }
        }
    }

    /// Makes the target report the counters of an initiator's connection.
    fn ask_target(&mut self, host: usize) {
        if let Some(input) = &mut self.processes[TARGET].input {
            // It may have ended, which is noticed elsewhere.
            let _ = writeln!(input, "{}", host - 1);
        }
    }

    fn count(&mut self, index: usize, line: &str) {
        let value = |name: &str| -> u64 {
            let found = line
                .split(' ')
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.and_then(|it| it.parse().ok()).unwrap_or_default()
        };
        self.summary.operations += value("ops");
        self.summary.bytes += value("bytes");
        self.summary.gap = self.summary.gap.max(value("gap"));
        self.summary.still = self.summary.still.max(value("still"));
        self.summary.memory = self.summary.memory.max(value("hwm"));
        self.memory[index] = format!("{} of {}", value("hwm") >> 10, value("vm") >> 10);
    }
}
