//! Records disks that lost writes, and numbers each life of a disk so that initiators notice a possible loss.
//!
//! Written data stays in the kernel when this process dies, so the next process keeps the same number. A failed flush is
//! different: the kernel has lost writes and reports that once. In this process all later flushes fail, but the next process
//! would see success. The target therefore records the failure in a file before it tells any initiator. A process that finds
//! the record takes a new number.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerolane::security::random;
use zerolane_block::Lun;
use zerolane_block::store::Store;

use super::ServerEvent;

/// A number that stays the same until the machine restarts: until then the kernel keeps written data.
fn of_boot() -> Option<u64> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let digest = blake3::derive_key("zerolane 2026-11 lineage of disks", &boot);
    digest.first_chunk().map(|&it| u64::from_le_bytes(it))
}

/// A number that no other process has.
pub(super) fn of_process() -> io::Result<u64> {
    let random = random()?;
    Ok(random.first_chunk().map_or(0, |&it| u64::from_le_bytes(it)))
}

/// A disk that has lost nothing.
struct Sound {
    /// `None`: it was taken away.
    lun: Option<Lun>,
    /// By which keys are granted.
    name: String,
    store: Arc<dyn Store>,
}

impl Sound {
    /// Nothing can fail from now on, because no other part of the target uses the store.
    fn is_over(&mut self) -> bool {
        self.lun.is_none() && Arc::get_mut(&mut self.store).is_some()
    }
}

/// Watches the disks of a target.
pub(super) struct Losses {
    record: Option<PathBuf>,
    sound: Vec<Sound>,
    /// Names of disks whose losses are not recorded yet: a full file system may have room later.
    unwritten: Vec<String>,
    /// Whether the record is not up to date.
    is_behind: bool,
}

impl Losses {
    pub(super) fn new(record: Option<PathBuf>) -> Losses {
        Losses {
            record,
            sound: Vec::new(),
            unwritten: Vec::new(),
            is_behind: false,
        }
    }

    pub(super) fn watch(&mut self, lun: Lun, name: &str, store: Arc<dyn Store>) {
        self.sound.push(Sound {
            lun: Some(lun),
            name: name.to_owned(),
            store,
        });
    }

    /// Releases a removed disk. A flush may be in progress, so it is watched until its last job is over.
    pub(super) fn release(&mut self, lun: Lun) {
        let own = self.sound.iter_mut().filter(|it| it.lun == Some(lun));
        own.for_each(|it| it.lun = None);
    }

    /// The current number of a target whose disks outlive its process.
    pub(super) fn lineage(&self) -> io::Result<u64> {
        if self.is_behind {
            return of_process();
        }
        let Some(boot) = of_boot() else {
            return of_process();
        };
        let Some(record) = &self.record else {
            return Ok(boot);
        };
        match fs::read(record) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(boot),
            // Its contents for this boot are unknown.
            Err(_) => of_process(),
            Ok(bytes) => match parse(&bytes) {
                Some((of, lineage)) if of == boot => Ok(lineage),
                Some(_) => Ok(boot),
                None => of_process(),
            },
        }
    }

    /// Records the losses since the last call, and those that could not be recorded then, and returns them.
    pub(super) fn look(&mut self) -> Vec<ServerEvent> {
        let mut failed = Vec::new();
        self.sound.retain_mut(|it| {
            // Check this first, because the last job that uses the store may have a failure.
            let is_over = it.is_over();
            let has_failed = it.store.has_failed();
            if has_failed {
                failed.push(it.name.clone());
            }
            !is_over && !has_failed
        });
        if failed.is_empty() && self.unwritten.is_empty() {
            return Vec::new();
        }
        let recorded = match &self.record {
            None => Err("no file for it".to_owned()),
            Some(record) => write_down(record).map_err(|error| error.to_string()),
        };
        self.is_behind = recorded.is_err();
        let told = match recorded {
            Ok(()) => {
                self.unwritten.extend(failed);
                std::mem::take(&mut self.unwritten)
            }
            Err(_) => {
                if self.record.is_some() {
                    self.unwritten.extend_from_slice(&failed);
                }
                failed
            }
        };
        let news = told.into_iter().map(|unit| ServerEvent::Lost {
            unit,
            recorded: recorded.clone(),
        });
        news.collect()
    }
}

/// Makes the next process take another number. The file means nothing after a restart of the machine, so it needs no
/// flush.
fn write_down(record: &Path) -> io::Result<()> {
    let boot = of_boot().ok_or(ErrorKind::NotFound)?;
    if let Some(directory) = record.parent() {
        fs::create_dir_all(directory)?;
    }
    let written = record.with_extension(std::process::id().to_string());
    fs::write(&written, format!("{boot:016x} {:016x}\n", of_process()?))?;
    fs::rename(written, record)
}

/// The boot that a record is of, and the number from then on.
fn parse(bytes: &[u8]) -> Option<(u64, u64)> {
    let text = str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (boot, lineage) = text.split_once(' ')?;
    let number = |text: &str| {
        let is_whole = text.len() == 16;
        is_whole
            .then(|| u64::from_str_radix(text, 16).ok())
            .flatten()
    };
    Some((number(boot)?, number(lineage)?))
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
