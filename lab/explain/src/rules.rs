//! Classifies functions and stacks by [`Cause`], with the table `causes.txt`.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::stack::Frame;

/// The table of this crate.
const TABLE: &str = include_str!("causes.txt");

/// A cause of CPU time. `causes.txt` maps functions to causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Payload copied between kernel and program, or within a program.
    PayloadCopy,
    /// Checksums and digests.
    Checksum,
    /// Encryption and decryption.
    Encryption,
    /// Sockets: looking them up, their buffers, their calls.
    Socket,
    /// UDP, TCP, IP and routing.
    Protocol,
    /// Interfaces and what is in front of them: drivers, veth, loopback, queueing disciplines.
    Driver,
    /// Interrupts, softirqs, and packets handed from interface to protocol (NAPI, GRO, backlog).
    Softirq,
    /// Getting into the kernel and out again.
    SystemCall,
    /// Choosing what runs, waking and sleeping, timers.
    Scheduling,
    /// Memory given, taken, mapped and cleared.
    Memory,
    /// Waiting without sleeping.
    Spinning,
    /// Files, pipes and the page cache.
    Files,
    /// Making and ending processes.
    Processes,
    /// Being watched: tracepoints and samples, of this program or another.
    Tracing,
    /// The program itself.
    Program,
    /// Nothing to do.
    Idle,
}

impl Cause {
    /// All, in the order of reports.
    pub const ALL: [Cause; 16] = [
        Cause::PayloadCopy,
        Cause::Checksum,
        Cause::Encryption,
        Cause::Socket,
        Cause::Protocol,
        Cause::Driver,
        Cause::Softirq,
        Cause::SystemCall,
        Cause::Scheduling,
        Cause::Memory,
        Cause::Spinning,
        Cause::Files,
        Cause::Processes,
        Cause::Tracing,
        Cause::Program,
        Cause::Idle,
    ];

    /// Its name in `causes.txt` and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// Its name for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Cause::PayloadCopy => ("payload_copy", "payload copy"),
            Cause::Checksum => ("checksum", "checksum"),
            Cause::Encryption => ("encryption", "encryption"),
            Cause::Socket => ("socket", "socket layer"),
            Cause::Protocol => ("protocol", "UDP, TCP, IP"),
            Cause::Driver => ("driver", "driver, veth, qdisc"),
            Cause::Softirq => ("softirq", "interrupt, softirq, GRO"),
            Cause::SystemCall => ("system_call", "system-call entry"),
            Cause::Scheduling => ("scheduling", "scheduling, wake-ups"),
            Cause::Memory => ("memory", "memory management"),
            Cause::Spinning => ("spinning", "spinning"),
            Cause::Files => ("files", "files, page cache"),
            Cause::Processes => ("processes", "process creation"),
            Cause::Tracing => ("tracing", "explain itself"),
            Cause::Program => ("program", "the program's own code"),
            Cause::Idle => ("idle", "idle"),
        }
    }

    fn named(name: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|it| it.name() == name)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Where a rule looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Where {
    /// At functions of the kernel.
    Kernel,
    /// At a function of the kernel that was running itself, and called no other.
    KernelLeaf,
    /// At functions of programs and libraries.
    User,
    /// At the file that a program's or library's function is in.
    Module,
}

/// The table in a form for lookups.
#[derive(Debug, Default)]
pub struct Rules {
    exact: HashMap<(Where, &'static str), Cause>,
    /// In the order of the table; the first that fits decides.
    patterns: Vec<(Where, &'static str, Cause)>,
}

/// A line of the table that says nothing, or what another said already.
#[derive(Debug)]
struct BadLine(#[expect(dead_code, reason = "shown by the panic that it ends in")] &'static str);

impl Rules {
    /// The rules of this crate.
    ///
    /// # Panics
    /// If the table of this crate is wrong, which a test excludes.
    #[must_use]
    pub fn new() -> Rules {
        Rules::read(TABLE).expect("the table is tested")
    }

    fn read(table: &'static str) -> Result<Rules, BadLine> {
        let mut rules = Rules::default();
        for line in table.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(cause) = words.next() else { continue };
            let cause = Cause::named(cause).ok_or(BadLine(line))?;
            let place = match words.next() {
                Some("kernel") => Where::Kernel,
                Some("kernel-leaf") => Where::KernelLeaf,
                Some("user") => Where::User,
                Some("module") => Where::Module,
                _ => return Err(BadLine(line)),
            };
            for pattern in words {
                if pattern.contains('*') {
                    rules.patterns.push((place, pattern, cause));
                } else if rules.exact.insert((place, pattern), cause).is_some() {
                    return Err(BadLine(line));
                }
            }
        }
        Ok(rules)
    }

    /// The cause of a stack: from the leaf outward, the first frame with a rule decides. The program's frames do not
    /// explain kernel frames above them. `None`: no rule.
    #[must_use]
    pub fn classify(&self, leaf_first: &[Frame]) -> Option<Cause> {
        let named: Vec<_> = leaf_first.iter().map(|it| self.name(it.clone())).collect();
        classify(&named)
    }

    /// The frame with what the rules say of it.
    pub(crate) fn name(&self, frame: Frame) -> Named {
        Named {
            as_leaf: self.of_frame(&frame, true),
            as_caller: self.of_frame(&frame, false),
            frame,
        }
    }

    fn of_frame(&self, frame: &Frame, leaf: bool) -> Option<Cause> {
        match frame {
            Frame::Kernel(None) => None,
            Frame::Kernel(Some(symbol)) => {
                let symbol = without_suffixes(symbol);
                let own = leaf.then(|| self.find(Where::KernelLeaf, symbol)).flatten();
                own.or_else(|| self.find(Where::Kernel, symbol))
            }
            Frame::User { module, symbol } => {
                let by_symbol = symbol.as_deref().and_then(|it| self.find(Where::User, it));
                // Whose library runs says what for; whose library was running before does not.
                by_symbol.or_else(|| leaf.then(|| self.find(Where::Module, module)).flatten())
            }
        }
    }

    fn find(&self, place: Where, name: &str) -> Option<Cause> {
        // The key of a longer life is found by one of a shorter.
        let exact = self.exact.get(&(place, name)).copied();
        exact.or_else(|| {
            let fitting =
                |(at, pattern, _): &&(Where, &str, Cause)| *at == place && fits(pattern, name);
            self.patterns.iter().find(fitting).map(|it| it.2)
        })
    }
}

/// A frame with what the rules say of it, which is looked up once.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) frame: Frame,
    as_leaf: Option<Cause>,
    as_caller: Option<Cause>,
}

/// As [`Rules::classify`].
pub(crate) fn classify<N: Borrow<Named>>(leaf_first: &[N]) -> Option<Cause> {
    let mut frames = leaf_first.iter().map(Borrow::borrow);
    let leaf = frames.next()?;
    let kernel = leaf.frame.is_kernel();
    let callers = frames.take_while(|it| it.frame.is_kernel() == kernel);
    let found = leaf
        .as_leaf
        .or_else(|| callers.into_iter().find_map(|it| it.as_caller));
    found.or((!kernel).then_some(Cause::Program))
}

/// Without what compilers append to parts of functions (`.isra.0`, `.part.0`, `.constprop.0`, `.cold`).
fn without_suffixes(symbol: &str) -> &str {
    symbol.split_once('.').map_or(symbol, |(name, _)| name)
}

/// Whether `name` is `pattern`, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    (0..=name.len())
        .filter(|&at| name.is_char_boundary(at))
        .any(|at| fits(rest, &name[at..]))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
