//! Keeps a server's list of clients in a file, and reloads it when the file changes.

use super::file::{self, Secrecy};
use super::{AllowList, AllowedKey, Error, Rights, content};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane_lane::{PublicKey, Trust};

/// A list in a file, read again when the file changes. Changes apply to new connections; the server decides about
/// existing ones. An unusable file changes nothing.
#[derive(Debug)]
pub struct AllowFile {
    path: PathBuf,
    own: Option<PublicKey>,
    loaded: Mutex<Loaded>,
    /// The next call must read the file again and report it, changed or not.
    stale: AtomicBool,
}

#[derive(Debug)]
struct Loaded {
    /// The stamp of the content read last, usable or not, so that the file is not read again for each peer.
    stamp: Stamp,
    list: Arc<AllowList>,
    /// Why the content read last is unusable; the list before it stays in force.
    broken: Option<String>,
    /// The list, or its error, was not reported yet.
    changed: bool,
}

impl Loaded {
    /// Replaces the list, or keeps it if the new one is broken.
    fn take(&mut self, (stamp, list): (Stamp, Result<AllowList, Error>)) {
        match list {
            Ok(list) => {
                *self = Loaded {
                    stamp,
                    list: Arc::new(list),
                    broken: None,
                    changed: true,
                };
            }
            Err(error) => {
                if !is_of_the_system(&error) {
                    self.stamp = stamp;
                }
                let broken = Some(error.to_string());
                self.changed |= self.broken != broken;
                self.broken = broken;
            }
        }
    }
}

/// Whether reading the same content may succeed later, with more descriptors or memory.
fn is_of_the_system(error: &Error) -> bool {
    matches!(error, Error::Io { error, .. } if error.raw_os_error().is_some())
}

impl AllowFile {
    /// Reads the list; without a file it is empty. The owner of `own` has all rights.
    ///
    /// # Errors
    /// The file cannot be read or is broken.
    pub fn load(path: &Path, own: Option<PublicKey>) -> Result<AllowFile, Error> {
        let (stamp, list) = read(path, own);
        Ok(AllowFile {
            path: path.to_owned(),
            own,
            loaded: Mutex::new(Loaded {
                stamp,
                list: Arc::new(list?),
                broken: None,
                changed: false,
            }),
            stale: AtomicBool::new(false),
        })
    }

    /// The current list.
    pub fn list(&self) -> Arc<AllowList> {
        let mut loaded = self.loaded();
        let wanted = self.stale.swap(false, Ordering::Relaxed);
        if wanted || stamp(&self.path) != loaded.stamp {
            loaded.take(read(&self.path, self.own));
            loaded.changed |= wanted;
        }
        Arc::clone(&loaded.list)
    }

    /// What changed since the file was loaded, or since the last call: `None` if nothing did; the number of keys now on
    /// the list; or why the file is unusable, so that the list stays as it was.
    pub fn take_change(&self) -> Option<Result<usize, String>> {
        let count = self.list().len();
        let mut loaded = self.loaded();
        let changed = std::mem::take(&mut loaded.changed);
        changed.then(|| loaded.broken.clone().map_or(Ok(count), Err))
    }

    /// Makes the next use of the list read the file again, even if it looks unchanged, and makes
    /// [`take_change`](Self::take_change) report it in any case. Only sets a flag.
    pub fn reload(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets a key's line in the list at `path`, which is created if it does not exist. Other lines and comments stay.
    /// Returns the key's previous line, which may be the same.
    ///
    /// # Errors
    /// The list is broken, or cannot be written; or a line cannot express the rights, such as a path with spaces.
    pub fn add(path: &Path, new: &AllowedKey) -> Result<Option<AllowedKey>, Error> {
        let line = line(new).ok_or(Error::Unsayable)?;
        file::update(path, |text| {
            let list = AllowList::parse(text)?;
            let before = list.keys().iter().find(|it| it.key == new.key);
            if before == Some(new) {
                return Ok((None, before.cloned()));
            }
            let mut lines: Vec<&str> = text.lines().collect();
            match lines.iter().position(|it| is_of(it, &new.key)) {
                Some(at) => lines[at] = &line,
                None => lines.push(&line),
            }
            Ok((Some(joined(&lines)), before.cloned()))
        })
    }

    /// Removes the line of `key` from the list at `path`, and returns it; `None` if there is none.
    ///
    /// # Errors
    /// The list is broken, or cannot be written.
    pub fn revoke(path: &Path, key: &PublicKey) -> Result<Option<AllowedKey>, Error> {
        file::update(path, |text| {
            let list = AllowList::parse(text)?;
            let found = list.keys().iter().find(|it| it.key == *key).cloned();
            let rest: Vec<&str> = text.lines().filter(|it| !is_of(it, key)).collect();
            Ok((found.is_some().then(|| joined(&rest)), found))
        })
    }

    /// No holder of the lock leaves the state half changed.
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trust for AllowFile {
    fn trusts(&self, peer: &PublicKey) -> bool {
        self.list().rights(peer).is_some()
    }
}

/// Identifies a version of a file: inode number, time of change (ctime) and length. Changing permissions or renaming a
/// file into place also sets ctime.
type Stamp = Option<(u64, i64, i64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.len()))
}

fn read(path: &Path, own: Option<PublicKey>) -> (Stamp, Result<AllowList, Error>) {
    // Taken before reading the content, so that a change in between is noticed the next time.
    (stamp(path), read_list(path, own))
}

fn read_list(path: &Path, own: Option<PublicKey>) -> Result<AllowList, Error> {
    let text = file::read(path, Secrecy::Public)?.unwrap_or_default();
    let list = AllowList::parse(&text)?;
    Ok(match own {
        Some(key) => list.with(key, Rights::ALL),
        None => list,
    })
}

/// The line for `new`; `None` if a line cannot express it.
fn line(new: &AllowedKey) -> Option<String> {
    let AllowedKey { key, rights, name } = new;
    let line = match name {
        Some(name) => format!("{key} {rights} # {name}"),
        None => format!("{key} {rights}"),
    };
    let said = AllowList::parse(&line).ok()?;
    (said.keys() == std::slice::from_ref(new)).then_some(line)
}

/// Whether a line is that of `key`.
fn is_of(line: &str, key: &PublicKey) -> bool {
    let first = content(line).split_whitespace().next();
    first.is_some_and(|word| word.parse() == Ok(*key))
}

fn joined(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}
