//! The clients that may connect to a server, and what they may do there.

use super::file::{self, Secrecy};
use super::{Error, lines};
use crate::security::{PublicKey, Trust};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest name of a memory region, bytes: what its operation carries.
const MAX_REGION_NAME: usize = zerolane_wire::OPTIONS_LEN;
/// Longest name of a file and longest path, bytes: Linux has no longer ones (limits.h).
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4095;

/// What the owner of a key may do. A client that is confined to a path has no right to memory; one
/// that is confined to regions has none to files. A line may name both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Write files and memory, not only read.
    pub write: bool,
    /// Atomic operations on memory; the right to write includes it.
    pub fetch: bool,
    /// See only the files below this, a path below the served directory.
    pub below: Option<Vec<u8>>,
    /// See only the memory regions of these names.
    pub regions: Option<Vec<String>>,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights {
        write: true,
        fetch: true,
        below: None,
        regions: None,
    };

    /// The path below which files may be seen, empty for all of them; `None`: no files.
    pub fn files(&self) -> Option<&[u8]> {
        match (&self.below, &self.regions) {
            (Some(below), _) => Some(below),
            (None, None) => Some(b""),
            (None, Some(_)) => None,
        }
    }

    /// The rights of `offered` that its owner has to the memory region `name`.
    pub fn memory(&self, name: &str, offered: crate::Rights) -> crate::Rights {
        let seen = match (&self.regions, &self.below) {
            (Some(names), _) => names.iter().any(|it| it == name),
            (None, below) => below.is_none(),
        };
        crate::Rights {
            read: seen && offered.read,
            write: seen && self.write && offered.write,
            atomic: seen && (self.write || self.fetch) && offered.atomic,
        }
    }
}

/// Keys and their rights. One line for each:
///
/// ```text
/// zl:...  read                  # may read everything
/// zl:...  read-write            # and write
/// zl:...  read-write below=in   # sees only what is below `in`
/// zl:...  read regions=a,b      # sees only the memory regions `a` and `b`
/// zl:...  read fetch regions=n  # and may count there, but not put
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    keys: HashMap<PublicKey, Rights>,
}

impl AllowList {
    /// Reads a list.
    ///
    /// # Errors
    /// A line that is not a key with rights, or a key that is there twice. A broken list is refused as a
    /// whole.
    pub fn parse(text: &str) -> Result<AllowList, Error> {
        let mut list = AllowList::default();
        for (text, line) in lines(text)? {
            let syntax = |problem| Error::Syntax { line, problem };
            let mut words = text.split_whitespace();
            let Some(key) = words.next() else {
                continue;
            };
            let key = key.parse().map_err(|_| syntax("not a key"))?;
            let rights = rights(words).map_err(syntax)?;
            if list.keys.insert(key, rights).is_some() {
                return Err(syntax("this key has a line already"));
            }
        }
        Ok(list)
    }

    /// The same list, and the owner of `key` with `rights`, whatever a line says.
    #[must_use]
    pub fn with(mut self, key: PublicKey, rights: Rights) -> AllowList {
        self.keys.insert(key, rights);
        self
    }

    /// What the owner of `key` may do; `None`: not even connect.
    pub fn rights(&self, key: &PublicKey) -> Option<&Rights> {
        self.keys.get(key)
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it lets no client in.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn rights<'w>(words: impl Iterator<Item = &'w str>) -> Result<Rights, &'static str> {
    let (mut write, mut fetch, mut below, mut regions) = (None, None, None, None);
    for word in words {
        let once = match word.split_once('=') {
            None if word == "read" => write.replace(false).is_none(),
            None if word == "read-write" => write.replace(true).is_none(),
            None if word == "fetch" => fetch.replace(true).is_none(),
            Some(("below", path)) => below.replace(path_below(path)?).is_none(),
            Some(("regions", names)) => regions.replace(region_names(names)?).is_none(),
            _ => return Err("expected read, read-write, fetch, below=PATH or regions=NAME,NAME"),
        };
        if !once {
            return Err("a right is there twice");
        }
    }
    let write = write.ok_or("expected read or read-write")?;
    Ok(Rights {
        write,
        fetch: write || fetch.unwrap_or(false),
        below,
        regions,
    })
}

fn path_below(path: &str) -> Result<Vec<u8>, &'static str> {
    let stays = |part| match part {
        Component::Normal(name) => name.len() <= MAX_NAME,
        part => part == Component::CurDir,
    };
    let below = Path::new(path).components().all(stays) && !path.contains('\0');
    match below && path.len() <= MAX_PATH {
        true => Ok(path.as_bytes().to_vec()),
        false => Err("not a path below the directory"),
    }
}

fn region_names(names: &str) -> Result<Vec<String>, &'static str> {
    let name = |name: &str| match name.len() {
        1..=MAX_REGION_NAME => Ok(name.to_owned()),
        _ => Err("a name of a region has 1 to 32 bytes"),
    };
    names.split(',').map(name).collect()
}

/// A list in a file, read again when the file changes. It then holds for new connections; those that
/// are there go on. A file that cannot be used changes nothing.
#[derive(Debug)]
pub struct AllowFile {
    path: PathBuf,
    own: Option<PublicKey>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamp: Stamp,
    list: Arc<AllowList>,
    /// Why the file as it is now cannot be used; the list before it stays.
    broken: Option<String>,
    /// The list, or what is wrong with it, was not reported yet.
    is_news: bool,
}

impl Loaded {
    /// Takes what was read, or keeps what is there.
    fn take(&mut self, read: Result<(Stamp, AllowList), Error>) {
        match read {
            Ok((stamp, list)) => {
                *self = Loaded {
                    stamp,
                    list: Arc::new(list),
                    broken: None,
                    is_news: true,
                };
            }
            Err(error) => {
                let broken = Some(error.to_string());
                self.is_news |= self.broken != broken;
                self.broken = broken;
            }
        }
    }
}

impl AllowFile {
    /// Reads the list; without a file it is empty. The owner of `own` may do everything.
    ///
    /// # Errors
    /// The file cannot be read or is broken.
    pub fn load(path: &Path, own: Option<PublicKey>) -> Result<AllowFile, Error> {
        let (stamp, list) = read(path, own)?;
        Ok(AllowFile {
            path: path.to_owned(),
            own,
            loaded: Mutex::new(Loaded {
                stamp,
                list: Arc::new(list),
                broken: None,
                is_news: false,
            }),
        })
    }

    /// The list as it is now.
    pub fn list(&self) -> Arc<AllowList> {
        let mut loaded = self.loaded();
        if stamp(&self.path) != loaded.stamp {
            loaded.take(read(&self.path, self.own));
        }
        Arc::clone(&loaded.list)
    }

    /// What became of the file since it was loaded, or this was asked last: `None`, if it is as it was;
    /// how many keys the list has now; or why the file cannot be used, and the list stays as it was.
    pub fn news(&self) -> Option<Result<usize, String>> {
        let count = self.list().len();
        let mut loaded = self.loaded();
        let news = std::mem::take(&mut loaded.is_news);
        news.then(|| loaded.broken.clone().map_or(Ok(count), Err))
    }

    /// Reads the file now, even if it looks unchanged, to find out whether this process still can.
    pub fn reload(&self) {
        let read = read(&self.path, self.own);
        self.loaded().take(read);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// No holder of the lock leaves it half changed.
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trust for AllowFile {
    fn trusts(&self, peer: &PublicKey) -> bool {
        self.list().rights(peer).is_some()
    }
}

/// What tells one content of a file from another: its number, time of change and length. The time is
/// the one that a change of permissions or a move into place sets as well.
type Stamp = Option<(u64, i64, i64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.len()))
}

fn read(path: &Path, own: Option<PublicKey>) -> Result<(Stamp, AllowList), Error> {
    // Taken before the content: a change between the two is seen the next time.
    let stamp = stamp(path);
    let text = file::read(path, Secrecy::Public)?.unwrap_or_default();
    let list = AllowList::parse(&text)?;
    let list = match own {
        Some(key) => list.with(key, Rights::ALL),
        None => list,
    };
    Ok((stamp, list))
}
