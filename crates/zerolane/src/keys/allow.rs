//! Who may connect to a server, and what they may do there.

use super::file::{self, Secrecy};
use super::{Error, MAX_LINES, content};
use crate::file::RelativePath;
use crate::{PublicKey, Trust};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// What the owner of a key may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Write, not only read.
    pub write: bool,
    /// See only what is below this, a path below the served directory; empty: all of it.
    pub below: Vec<u8>,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights {
        write: true,
        below: Vec::new(),
    };
}

/// Keys and their rights. One line for each:
///
/// ```text
/// zl:...  read                  # may read everything
/// zl:...  read-write            # and write
/// zl:...  read-write below=in   # sees only what is below `in`
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    keys: HashMap<PublicKey, Rights>,
}

impl AllowList {
    /// Reads a list.
    ///
    /// # Errors
    /// A line that is no key with rights, or a key that is there twice. Nothing of a broken list
    /// counts.
    pub fn parse(text: &str) -> Result<AllowList, Error> {
        let mut list = AllowList::default();
        for (text, line) in text.lines().map(content).zip(1..).take(MAX_LINES) {
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

    /// Whether it lets nobody in.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn rights<'w>(words: impl Iterator<Item = &'w str>) -> Result<Rights, &'static str> {
    let (mut write, mut below) = (None, None);
    for word in words {
        let once = match word.split_once('=') {
            None if word == "read" => write.replace(false).is_none(),
            None if word == "read-write" => write.replace(true).is_none(),
            Some(("below", path)) => {
                RelativePath::parse(path.as_bytes())
                    .map_err(|_| "not a path below the directory")?;
                below.replace(path.as_bytes().to_vec()).is_none()
            }
            _ => return Err("expected read, read-write or below=PATH"),
        };
        if !once {
            return Err("a right is there twice");
        }
    }
    Ok(Rights {
        write: write.ok_or("expected read or read-write")?,
        below: below.unwrap_or_default(),
    })
}

/// A list in a file, read again when the file changes: for the connections that come then, those
/// that are there go on.
#[derive(Debug)]
pub struct AllowFile {
    path: PathBuf,
    own: Option<PublicKey>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamp: Option<(SystemTime, u64)>,
    list: Arc<AllowList>,
    /// Why the file as it is now cannot be used; the list before it stays.
    broken: Option<String>,
}

impl Loaded {
    /// Takes what was read, or keeps what is there.
    fn replace(&mut self, read: Result<(Stamp, AllowList), Error>) -> Result<(), Error> {
        match read {
            Ok((stamp, list)) => {
                *self = Loaded {
                    stamp,
                    list: Arc::new(list),
                    broken: None,
                };
                Ok(())
            }
            Err(error) => {
                self.broken = Some(error.to_string());
                Err(error)
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
            }),
        })
    }

    /// The list as it is now.
    pub fn list(&self) -> Arc<AllowList> {
        let mut loaded = self
            .loaded
            .lock()
            .unwrap_or_else(|error| error.into_inner());
        if stamp(&self.path) != loaded.stamp {
            // What is wrong is kept in `broken`.
            let _ = loaded.replace(read(&self.path, self.own));
        }
        Arc::clone(&loaded.list)
    }

    /// Reads the file now, whether it seems to have changed or not.
    ///
    /// # Errors
    /// It cannot be read or is broken: the list before it stays in force.
    pub fn reload(&self) -> Result<(), Error> {
        let read = read(&self.path, self.own);
        let mut loaded = self
            .loaded
            .lock()
            .unwrap_or_else(|error| error.into_inner());
        loaded.replace(read)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the file as it was last seen cannot be used, if so: the list before it is in force.
    pub fn broken(&self) -> Option<String> {
        let loaded = self
            .loaded
            .lock()
            .unwrap_or_else(|error| error.into_inner());
        loaded.broken.clone()
    }
}

impl Trust for AllowFile {
    fn trusts(&self, peer: &PublicKey) -> bool {
        self.list().rights(peer).is_some()
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

type Stamp = Option<(SystemTime, u64)>;

fn read(path: &Path, own: Option<PublicKey>) -> Result<(Stamp, AllowList), Error> {
    // Before the content: what changes between the two is seen the next time.
    let stamp = stamp(path);
    let text = file::read(path, Secrecy::Public)?.unwrap_or_default();
    let list = AllowList::parse(&text)?;
    let list = match own {
        Some(key) => list.with(key, Rights::ALL),
        None => list,
    };
    Ok((stamp, list))
}
