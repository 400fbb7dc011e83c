//! Parses the list of clients that may connect to a server, and their rights.

use super::place::Place;
use super::{Error, comment, lines};
use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path};
use zerolane_lane::PublicKey;

/// Longest name of a memory region, bytes: the most that its operation carries.
const MAX_REGION_NAME: usize = zerolane_wire::OPTIONS_LEN;
/// Longest name of a file and longest path, bytes, as in Linux (limits.h).
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4095;

/// The rights of a key's owner. A client confined to a path has no right to memory; one confined to regions has none to
/// files; one with places to forward to has neither, unless a path or regions are named too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Write files and memory, not only read them.
    pub write: bool,
    /// Atomic operations on memory; the right to write includes it.
    pub fetch: bool,
    /// Only files below this path, relative to the served directory.
    pub below: Option<Vec<u8>>,
    /// Only the memory regions with these names.
    pub regions: Option<Vec<String>>,
    /// Where a forwarder connects for the owner; nowhere unless named.
    pub connect: Vec<Place>,
    /// Where a forwarder listens for the owner; nowhere unless named.
    pub listen: Vec<Place>,
}

impl Rights {
    /// All rights to files and memory.
    pub const ALL: Rights = Rights {
        write: true,
        fetch: true,
        below: None,
        regions: None,
        connect: Vec::new(),
        listen: Vec::new(),
    };

    /// The path below which files are visible, empty for all of them; `None`: no files.
    pub fn files(&self) -> Option<&[u8]> {
        match (&self.below, &self.regions) {
            (Some(below), _) => Some(below),
            (None, None) if !self.forwards() => Some(b""),
            (None, _) => None,
        }
    }

    /// These rights without those to files and memory.
    fn to_forward_only(&self) -> Rights {
        Rights {
            write: false,
            fetch: false,
            below: None,
            regions: None,
            ..self.clone()
        }
    }

    /// Whether the line names places to forward to.
    fn forwards(&self) -> bool {
        !self.connect.is_empty() || !self.listen.is_empty()
    }

    /// The subset of `offered` that the owner has to the memory region `name`.
    pub fn memory(&self, name: &str, offered: zerolane_wire::Rights) -> zerolane_wire::Rights {
        let seen = match (&self.regions, &self.below) {
            (Some(names), _) => names.iter().any(|it| it == name),
            (None, below) => below.is_none() && !self.forwards(),
        };
        zerolane_wire::Rights {
            read: seen && offered.read,
            write: seen && self.write && offered.write,
            atomic: seen && (self.write || self.fetch) && offered.atomic,
        }
    }
}

/// Writes the rights as a line does. A line cannot express everything, such as a path with spaces:
/// [`AllowFile::add`](super::AllowFile::add) refuses such rights.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let only_forwards = self.forwards() && *self == self.to_forward_only();
        let mut words: Vec<String> = match (only_forwards, self.write) {
            (true, _) => Vec::new(),
            (false, true) => vec!["read-write".into()],
            (false, false) => vec!["read".into()],
        };
        if self.fetch && !self.write {
            words.push("fetch".into());
        }
        if let Some(below) = &self.below {
            words.push(format!("below={}", String::from_utf8_lossy(below)));
        }
        if let Some(regions) = &self.regions {
            words.push(format!("regions={}", regions.join(",")));
        }
        for (word, places) in [("connect", &self.connect), ("listen", &self.listen)] {
            if !places.is_empty() {
                let places: Vec<_> = places.iter().map(Place::to_string).collect();
                words.push(format!("{word}={}", places.join(",")));
            }
        }
        f.write_str(&words.join(" "))
    }
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedKey {
    /// The client's key.
    pub key: PublicKey,
    /// The rights of its owner.
    pub rights: Rights,
    /// The owner's name, from the comment at the end of the line; `None` without one.
    pub name: Option<String>,
}

/// Keys and their rights. One line for each, with the owner's name behind `#`:
///
/// ```text
/// zl:...  read                  # may read everything
/// zl:...  read-write            # and write
/// zl:...  read-write below=in   # sees only what is below `in`
/// zl:...  read regions=a,b      # sees only the memory regions `a` and `b`
/// zl:...  read fetch regions=n  # and may count there, but not put
/// zl:...  connect=db:5432       # only has a forwarder connect there
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    /// In the order of the lines.
    lines: Vec<AllowedKey>,
    /// The index of each key in `lines`.
    places: HashMap<PublicKey, usize>,
}

impl AllowList {
    /// Parses a list.
    ///
    /// # Errors
    /// A line is not a key with rights, or a key occurs twice. A broken list is refused as a whole.
    pub fn parse(text: &str) -> Result<AllowList, Error> {
        let mut list = AllowList::default();
        for ((text, line), whole) in lines(text)?.zip(text.lines()) {
            let syntax = |problem| Error::Syntax { line, problem };
            let mut words = text.split_whitespace();
            let Some(key) = words.next() else {
                continue;
            };
            let key = key.parse().map_err(|_| syntax("not a key"))?;
            let rights = rights(words).map_err(syntax)?;
            let name = comment(whole).map(str::to_owned);
            if list.rights(&key).is_some() {
                return Err(syntax("this key already has a line"));
            }
            list.put(AllowedKey { key, rights, name });
        }
        Ok(list)
    }

    /// The list with `rights` for the owner of `key`, replacing a line for that key.
    #[must_use]
    pub fn with(mut self, key: PublicKey, rights: Rights) -> AllowList {
        let name = self.name(&key).map(str::to_owned);
        self.put(AllowedKey { key, rights, name });
        self
    }

    fn put(&mut self, line: AllowedKey) {
        let next = self.lines.len();
        let place = *self.places.entry(line.key).or_insert(next);
        match self.lines.get_mut(place) {
            Some(there) => *there = line,
            None => self.lines.push(line),
        }
    }

    /// All keys, in the order of the lines.
    pub fn keys(&self) -> &[AllowedKey] {
        &self.lines
    }

    fn line_of(&self, key: &PublicKey) -> Option<&AllowedKey> {
        self.places.get(key).map(|&place| &self.lines[place])
    }

    /// The rights of the owner of `key`; `None`: it may not connect.
    pub fn rights(&self, key: &PublicKey) -> Option<&Rights> {
        self.line_of(key).map(|line| &line.rights)
    }

    /// The name of the owner of `key`.
    pub fn name(&self, key: &PublicKey) -> Option<&str> {
        self.line_of(key)?.name.as_deref()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether the list has no keys.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

fn rights<'w>(words: impl Iterator<Item = &'w str>) -> Result<Rights, &'static str> {
    let (mut write, mut fetch, mut below, mut regions) = (None, None, None, None);
    let (mut connect, mut listen) = (None, None);
    for word in words {
        let once = match word.split_once('=') {
            None if word == "read" => write.replace(false).is_none(),
            None if word == "read-write" => write.replace(true).is_none(),
            None if word == "fetch" => fetch.replace(true).is_none(),
            Some(("below", path)) => below.replace(path_below(path)?).is_none(),
            Some(("regions", names)) => regions.replace(region_names(names)?).is_none(),
            Some(("connect", list)) => connect.replace(places(list)?).is_none(),
            Some(("listen", list)) => listen.replace(places(list)?).is_none(),
            _ => {
                return Err(
                    "expected read, read-write, fetch, below=PATH, regions=NAME,NAME, connect=HOST:PORT or listen=HOST:PORT",
                );
            }
        };
        if !once {
            return Err("a right is listed twice");
        }
    }
    let forwards = connect.is_some() || listen.is_some();
    let write = write.or(forwards.then_some(false));
    let write = write.ok_or("expected read or read-write")?;
    Ok(Rights {
        write,
        fetch: write || fetch.unwrap_or(false),
        below,
        regions,
        connect: connect.unwrap_or_default(),
        listen: listen.unwrap_or_default(),
    })
}

fn places(list: &str) -> Result<Vec<Place>, &'static str> {
    list.split(',').map(str::parse).collect()
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
        1..=MAX_REGION_NAME if !name.contains('\0') => Ok(name.to_owned()),
        _ => Err("a name of a region has 1 to 32 bytes, and no NUL"),
    };
    names.split(',').map(name).collect()
}
