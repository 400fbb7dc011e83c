//! Tracks the processes seen, including ended ones: names, parents, and the files mapped as code.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Mappings kept of one process. The newest stay.
const MAPPINGS_PER_PROCESS: usize = 1024;
/// Ended processes kept until their samples are resolved.
const ENDED_LIMIT: usize = 4096;
/// How far a forked process looks for mappings in its ancestors.
const GENERATIONS: usize = 8;
/// The parent of all threads of the kernel.
const KTHREADD: u32 = 2;

/// Code of a file at an address of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address, and how many bytes.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Where in the file that is.
    pub(crate) offset: u64,
    /// The file's path, or what the kernel calls memory without one.
    pub(crate) path: Arc<str>,
}

#[derive(Debug, Default)]
struct Process {
    parent: u32,
    name: Arc<str>,
    /// Oldest first.
    mappings: Vec<Mapping>,
}

/// Whose time a sample was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The explained program, or a process that it started.
    Subject,
    /// A thread of the kernel.
    Kernel,
    /// This process.
    Own,
    /// Any other.
    Other,
}

/// All processes seen, by number.
#[derive(Debug)]
pub(crate) struct Processes {
    own: u32,
    /// Whether the processes that this one starts are the subject.
    children: bool,
    /// Whether the code of all processes is of interest, not of the subject alone.
    all: bool,
    subjects: HashSet<u32>,
    known: HashMap<u32, Process>,
    ended: Vec<u32>,
}

impl Processes {
    /// `children`: the processes that this one starts are the subject. `all`: the code of all is of interest.
    pub(crate) fn new(children: bool, all: bool) -> Processes {
        Processes {
            own: std::process::id(),
            children,
            all,
            subjects: HashSet::new(),
            known: HashMap::new(),
            ended: Vec::new(),
        }
    }

    /// `pid` and all that it has started are the subject, and so is what they start from now on.
    pub(crate) fn add_subject(&mut self, pid: u32) {
        for pid in descendants(pid) {
            self.subjects.insert(pid);
            self.look_up(pid);
        }
    }

    pub(crate) fn forked(&mut self, pid: u32, parent: u32) {
        if pid == parent {
            return;
        }
        if parent != self.own {
            self.look_up(parent);
        }
        let name = self.name(parent);
        let of_subject = self.subjects.contains(&parent);
        if of_subject || (self.children && parent == self.own) {
            self.subjects.insert(pid);
        } else {
            // The number may have been a subject's before.
            self.subjects.remove(&pid);
        }
        let mappings = Vec::new();
        self.known.insert(
            pid,
            Process {
                parent,
                name,
                mappings,
            },
        );
    }

    pub(crate) fn renamed(&mut self, pid: u32, name: &str) {
        self.known.entry(pid).or_default().name = name.into();
    }

    pub(crate) fn mapped(&mut self, pid: u32, mapping: Mapping) {
        if !self.all && !self.subjects.contains(&pid) {
            return;
        }
        self.look_up(pid);
        let mappings = &mut self.known.entry(pid).or_default().mappings;
        if mappings.len() >= MAPPINGS_PER_PROCESS {
            mappings.remove(0);
        }
        mappings.push(mapping);
    }

    pub(crate) fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
    }

    /// Whether ended processes should be forgotten soon.
    pub(crate) fn is_full(&self) -> bool {
        self.ended.len() >= ENDED_LIMIT
    }

    /// How many are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets the processes that have ended; their samples must have been resolved.
    pub(crate) fn forget_ended(&mut self) {
        for pid in self.ended.drain(..) {
            // Its number may be another process's by now.
            if !Path::new(&format!("/proc/{pid}")).exists() {
                self.known.remove(&pid);
                self.subjects.remove(&pid);
            }
        }
    }

    /// What `/proc` says of a process that was there before, once.
    pub(crate) fn look_up(&mut self, pid: u32) {
        if pid == 0 || self.known.contains_key(&pid) {
            return;
        }
        let process = Process {
            parent: parent_of(pid).unwrap_or(0),
            name: name_of(pid).unwrap_or_else(|| "unknown".into()),
            mappings: match self.all || self.subjects.contains(&pid) {
                true => mappings_of(pid),
                false => Vec::new(),
            },
        };
        self.known.insert(pid, process);
    }

    pub(crate) fn kind(&self, pid: u32) -> Kind {
        let parent = self.known.get(&pid).map(|it| it.parent);
        if self.subjects.contains(&pid) {
            Kind::Subject
        } else if pid == self.own {
            Kind::Own
        } else if pid == 0 || pid == KTHREADD || parent == Some(KTHREADD) {
            Kind::Kernel
        } else {
            Kind::Other
        }
    }

    pub(crate) fn name(&self, pid: u32) -> Arc<str> {
        match self.known.get(&pid) {
            Some(process) => process.name.clone(),
            None if pid == 0 => "idle".into(),
            None => "unknown".into(),
        }
    }

    /// The mapping at `address`: the newest, or one of the process that this one was forked from.
    pub(crate) fn mapping(&self, pid: u32, address: u64) -> Option<&Mapping> {
        let first = self.known.get(&pid);
        std::iter::successors(first, |it| self.known.get(&it.parent))
            .take(GENERATIONS)
            .find_map(|process| {
                let holds = |it: &&Mapping| address.wrapping_sub(it.start) < it.len;
                process.mappings.iter().rev().find(holds)
            })
    }
}

/// `pid` and every process below it.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", found[next]));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|it| it.parse::<u32>().ok()),
            );
        }
        next += 1;
    }
    found
}

/// Every process.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.collect()
}

fn name_of(pid: u32) -> Option<Arc<str>> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().into())
}

fn parent_of(pid: u32) -> Option<u32> {
    state_and_parent(pid)?.1.parse().ok()
}

/// Whether the process exists and has not ended. A zombie counts as ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| !["Z", "X"].contains(&&*state))
}

fn state_and_parent(pid: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace();
    Some((behind.next()?.into(), behind.next()?.into()))
}

fn mappings_of(pid: u32) -> Vec<Mapping> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let code = maps.lines().filter_map(parse_mapping);
    code.take(MAPPINGS_PER_PROCESS).collect()
}

/// A line of `/proc/PID/maps`, if it is of code.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if !words.next()?.contains('x') {
        return None;
    }
    let hexadecimal = |it: &str| u64::from_str_radix(it, 16).ok();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let offset = hexadecimal(words.next()?)?;
    // Device and inode are before the path, which may hold spaces.
    let path = line.splitn(6, ' ').nth(5).unwrap_or_default().trim_start();
    Some(Mapping {
        start,
        len: end.checked_sub(start)?,
        offset,
        path: if path.is_empty() { "//anon" } else { path }.into(),
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn mapping(start: u64, path: &str) -> Mapping {
        Mapping {
            start,
            len: 0x1000,
            offset: 0,
            path: path.into(),
        }
    }

    #[test]
    fn parse_mapping__of_code() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 131 /usr/lib/a b.so";
        let expected = Mapping {
            len: 0x1000,
            offset: 0x1000,
            ..mapping(0x7f00, "/usr/lib/a b.so")
        };
        assert_eq!(parse_mapping(line), Some(expected));
        assert_eq!(parse_mapping("7f00-8f00 rw-p 00001000 fe:00 131 /a"), None);
        let anonymous = parse_mapping("7f00-8f00 r-xp 00000000 00:00 0 ").unwrap();
        assert_eq!(&*anonymous.path, "//anon");
        assert_eq!(parse_mapping("nonsense"), None);
        assert_eq!(parse_mapping("9f00-8f00 r-xp 0 0 0"), None);
    }

    #[test]
    fn mapping__the_newest_and_then_the_parents() {
        let mut processes = Processes::new(false, true);
        // Numbers that no process has.
        let (parent, child) = (u32::MAX - 1, u32::MAX);
        processes.mapped(parent, mapping(0x1000, "old"));
        processes.mapped(parent, mapping(0x1000, "new"));
        processes.mapped(parent, mapping(0x5000, "parent's"));
        processes.forked(child, parent);
        processes.mapped(child, mapping(0x1800, "own"));
        let path = |pid, address| processes.mapping(pid, address).map(|it| &*it.path);
        assert_eq!(path(parent, 0x1fff), Some("new"));
        assert_eq!(path(child, 0x1fff), Some("own"));
        assert_eq!(path(child, 0x5000), Some("parent's"));
        assert_eq!(path(child, 0x6000), None);
    }

    #[test]
    fn kind__of_a_subject_and_those_it_forked() {
        let mut processes = Processes::new(true, false);
        let [a, b, c] = [u32::MAX - 2, u32::MAX - 1, u32::MAX];
        processes.forked(a, std::process::id());
        processes.forked(b, a);
        processes.forked(c, 1);
        assert_eq!(processes.kind(a), Kind::Subject);
        assert_eq!(processes.kind(b), Kind::Subject);
        assert_eq!(processes.kind(c), Kind::Other);
        assert_eq!(processes.kind(0), Kind::Kernel);
        assert_eq!(processes.kind(std::process::id()), Kind::Own);
        processes.ended(a);
        processes.forget_ended();
        assert_eq!(processes.kind(a), Kind::Other);
    }

    #[test]
    fn is_alive__until_it_has_ended() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn mappings__are_bounded() {
        let mut processes = Processes::new(false, true);
        for at in 0..2 * MAPPINGS_PER_PROCESS as u64 {
            processes.mapped(u32::MAX, mapping(at << 12, "a"));
        }
        assert_eq!(
            processes.known[&u32::MAX].mappings.len(),
            MAPPINGS_PER_PROCESS
        );
    }
}
