//! Confines a serving process to its directory, with Landlock.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Requests the restrictions of this version (Linux 6.12); an older kernel ignores those that it does not know.
const VERSION: ABI = ABI::V6;

/// The ID of this boot of the system: servers read it, confined ones too.
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far the kernel confines the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// As requested.
    Full,
    /// As far as this kernel can: it is older than Linux 6.12.
    Partial,
    /// Not at all: this kernel has no Landlock, or Landlock is disabled.
    None,
}

/// Drops all rights that serving `directory` does not need, from the calling thread and all threads that it starts from
/// now on: see [`Server::confine`](crate::Server::confine).
pub(super) fn confine(
    directory: BorrowedFd<'_>,
    write: bool,
    readable: &[&Path],
) -> io::Result<Confinement> {
    enforce(rules(directory, write, readable))
}

/// Drops all rights that reading `sources` does not need, in the same way. A source that does not exist gets no rights.
/// For a symbolic link the target may be read.
pub(super) fn confine_to_sources(sources: &[PathBuf]) -> io::Result<Confinement> {
    enforce(source_rules(sources))
}

type Rules = Result<RulesetCreated, Box<dyn std::error::Error + Send + Sync>>;

fn enforce(rules: Rules) -> io::Result<Confinement> {
    let ruleset = rules.map_err(io::Error::other)?;
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Confinement::Full,
        RulesetStatus::PartiallyEnforced => Confinement::Partial,
        RulesetStatus::NotEnforced => Confinement::None,
    })
}

/// Rules that allow nothing.
fn nothing() -> Rules {
    Ok(Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?)
}

fn source_rules(sources: &[PathBuf]) -> Rules {
    let mut ruleset = nothing()?;
    // The client detects a restart of this system by it.
    let boot = Path::new(BOOT_ID);
    for path in sources.iter().map(PathBuf::as_path).chain([boot]) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(source) = openat(CWD, path, flags, Mode::empty()) else {
            continue;
        };
        let read = match FileType::from_raw_mode(fstat(&source)?.st_mode) {
            FileType::Directory => served(false),
            FileType::RegularFile => AccessFs::ReadFile.into(),
            _ => continue,
        };
        ruleset = ruleset.add_rule(PathBeneath::new(source, read))?;
    }
    Ok(ruleset)
}

fn rules(directory: BorrowedFd<'_>, write: bool, readable: &[&Path]) -> Rules {
    let mut ruleset = nothing()?.add_rule(PathBeneath::new(directory, served(write)))?;
    for path in readable {
        if let Ok(path) = PathFd::new(path) {
            let read: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
            ruleset = ruleset.add_rule(PathBeneath::new(path, read))?;
        }
    }
    Ok(ruleset)
}

/// The accesses that the service needs in its directory: it makes no devices, sockets or FIFOs, and runs no programs.
fn served(write: bool) -> BitFlags<AccessFs> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    match write {
        false => read,
        true => {
            read | make_bitflags!(AccessFs::{
                WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | Refer
            })
        }
    }
}

#[cfg(test)]
#[path = "confine_tests.rs"]
mod tests;
