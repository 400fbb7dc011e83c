//! A serving process that cannot reach more than it serves, whatever goes wrong in it.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// The restrictions asked for are those of this version (Linux 6.12); what an older kernel does not
/// know is left out.
const VERSION: ABI = ABI::V6;

/// Which start of this system it is: read by servers, also confined ones.
pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far the kernel confines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// As asked for.
    Full,
    /// As far as this kernel can: it is older than Linux 6.12.
    Partial,
    /// Not at all: this kernel has no Landlock, or it is switched off.
    None,
}

/// Takes all rights that serving `directory` does not need from the calling thread and from all threads
/// that it starts from now on: see [`Server::confine`](crate::Server::confine).
pub(super) fn confine(
    directory: BorrowedFd<'_>,
    write: bool,
    readable: &[&Path],
) -> io::Result<Confinement> {
    enforce(rules(directory, write, readable))
}

/// Takes all rights that reading `sources` does not need, in the same way. Of one that is not there nothing is
/// allowed. Of a link, what it leads to is read.
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

/// Nothing is allowed.
fn nothing() -> Rules {
    Ok(Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?)
}

fn source_rules(sources: &[PathBuf]) -> Rules {
    let mut ruleset = nothing()?;
    // By it the other end knows whether this system was started anew.
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

/// What the service does in its directory: no devices, sockets or FIFOs are made, no programs run.
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
