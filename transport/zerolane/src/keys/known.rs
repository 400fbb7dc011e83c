//! Remembers servers' keys and trusts them on first use, as ssh does.

use super::file::{self, Secrecy};
use super::{Error, content, lines};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerolane_lane::{PublicKey, Trust};

/// The file of known servers. Each line has name and port, then the key.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    path: PathBuf,
    hosts: Vec<(String, PublicKey)>,
}

impl KnownHosts {
    /// Reads the file; without one, no server is known.
    ///
    /// # Errors
    /// It cannot be read, or a line is not a host and a key.
    pub fn load(path: &Path) -> Result<KnownHosts, Error> {
        let text = file::read(path, Secrecy::Public)?.unwrap_or_default();
        Ok(KnownHosts {
            path: path.to_owned(),
            hosts: parse(&text)?,
        })
    }

    /// The key that `host` (name and port) presented at the first connection.
    pub fn key_of(&self, host: &str) -> Option<PublicKey> {
        let known = self.hosts.iter().find(|(name, _)| name == host);
        known.map(|&(_, key)| key)
    }

    /// What to trust when connecting to `host`: the key that it presented before, or, at a first connection, any key,
    /// which is then remembered at once. A server that presents `own`, the key of this end, belongs to the same user
    /// and is not remembered.
    pub fn trust(&self, host: &str, own: Option<PublicKey>) -> HostTrust {
        HostTrust {
            known: self.key_of(host),
            own,
            remember: Some((self.clone(), host.to_owned())),
            key_check: Mutex::new(None),
        }
    }

    /// Remembers the key of a host after the first connection.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(&self, host: &str, key: PublicKey) -> Result<(), Error> {
        file::update(&self.path, |text| {
            // Reads the file again, because another process may have added a host meanwhile.
            if parse(text)?.iter().any(|(name, _)| name == host) {
                return Ok((None, ()));
            }
            let gap = match text.is_empty() || text.ends_with('\n') {
                true => "",
                false => "\n",
            };
            Ok((Some(format!("{text}{gap}{host} {key}\n")), ()))
        })
    }

    /// All known servers, as name and port, and their keys.
    pub fn hosts(&self) -> &[(String, PublicKey)] {
        &self.hosts
    }

    /// Forgets a server. `host` is name and port as in [`hosts`](Self::hosts), or a name alone for all of its ports.
    /// Returns the entries removed; the next connection is a first one again.
    ///
    /// # Errors
    /// The file is broken, or cannot be written.
    pub fn forget(path: &Path, host: &str) -> Result<Vec<(String, PublicKey)>, Error> {
        file::update(path, |text| {
            let (gone, _): (Vec<_>, Vec<_>) = parse(text)?
                .into_iter()
                .partition(|(it, _)| names(host, it));
            let is_gone = |line: &&str| {
                let first = content(line).split_whitespace().next();
                first.is_some_and(|it| names(host, it))
            };
            let rest = text.lines().filter(|line| !is_gone(line));
            let rest: String = rest.flat_map(|line| [line, "\n"]).collect();
            Ok(((!gone.is_empty()).then_some(rest), gone))
        })
    }
}

/// Whether `host` matches `known`, a name and a port. It may omit the port, and the brackets of an IPv6 address.
fn names(host: &str, known: &str) -> bool {
    let bare = |name: &str| name.trim_matches(['[', ']']).to_owned();
    let name = known.rsplit_once(':').map_or(known, |(name, _)| name);
    host == known || bare(host) == bare(name)
}

fn parse(text: &str) -> Result<Vec<(String, PublicKey)>, Error> {
    lines(text)?
        .filter(|(line, _)| !line.is_empty())
        .map(|(text, line)| {
            let syntax = |problem| Error::Syntax { line, problem };
            let mut words = text.split_whitespace();
            let (Some(host), Some(key), None) = (words.next(), words.next(), words.next()) else {
                return Err(syntax("expected a host and its key"));
            };
            let key = key.parse().map_err(|_| syntax("not a key"))?;
            Ok((host.to_owned(), key))
        })
        .collect()
}

/// The result of checking the key that a host presented against the key known for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKeyCheck {
    /// The host was unknown.
    First {
        /// The key that it presented.
        key: PublicKey,
        /// Whether the key was saved. If not, the host is unknown again at the next connection.
        saved: bool,
    },
    /// The host was unknown, and presented this end's own key.
    Own,
    /// The host presented the same key as before.
    Known(PublicKey),
    /// The host presented another key. It may be an attacker.
    Changed {
        /// The key that it presented before.
        known: PublicKey,
        /// The key that it presented now.
        presented: PublicKey,
    },
}

/// A program's trust in one host, over all of its connections: the host must keep the first key that it presented.
#[derive(Debug)]
pub struct HostTrust {
    known: Option<PublicKey>,
    own: Option<PublicKey>,
    remember: Option<(KnownHosts, String)>,
    key_check: Mutex<Option<HostKeyCheck>>,
}

impl HostTrust {
    /// Trusts only the owner of `key`.
    pub fn only(key: PublicKey) -> HostTrust {
        HostTrust {
            known: Some(key),
            own: None,
            remember: None,
            key_check: Mutex::new(None),
        }
    }

    /// Trusts any key of the host, and does not remember it.
    pub fn anyone() -> HostTrust {
        HostTrust {
            known: None,
            own: None,
            remember: None,
            key_check: Mutex::new(None),
        }
    }

    /// The result of the last check; `None` if the host proved no key.
    pub fn key_check(&self) -> Option<HostKeyCheck> {
        *self.lock()
    }

    /// No holder of the lock leaves the state half changed or waits for a file.
    fn lock(&self) -> MutexGuard<'_, Option<HostKeyCheck>> {
        self.key_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostTrust {
    /// The key of the host that follows from an earlier check.
    fn known_key(&self, key_check: Option<HostKeyCheck>) -> Option<PublicKey> {
        match key_check? {
            HostKeyCheck::First { key, .. } | HostKeyCheck::Known(key) => Some(key),
            HostKeyCheck::Changed { known, .. } => Some(known),
            HostKeyCheck::Own => self.own,
        }
    }

    /// Checks the key `presented` now, after the check `before`.
    fn check(&self, presented: PublicKey, before: Option<HostKeyCheck>) -> HostKeyCheck {
        match self.known.or_else(|| self.known_key(before)) {
            None if self.own == Some(presented) => HostKeyCheck::Own,
            None => HostKeyCheck::First {
                key: presented,
                saved: false,
            },
            // A first connection stays first until it was reported.
            Some(known) if known == presented => match before {
                Some(first @ (HostKeyCheck::First { .. } | HostKeyCheck::Own)) => first,
                _ => HostKeyCheck::Known(presented),
            },
            Some(known) => HostKeyCheck::Changed { known, presented },
        }
    }

    /// Saves the key of a first connection. It may take long: another process locks the file, or the disk is slow.
    fn keep(&self, key: PublicKey) {
        let remembered = |(hosts, host): &(KnownHosts, String)| hosts.remember(host, key).is_ok();
        if self.remember.as_ref().is_some_and(remembered)
            && let Some(HostKeyCheck::First { saved, .. }) = &mut *self.lock()
        {
            *saved = true;
        }
    }
}

impl Trust for HostTrust {
    fn trusts(&self, peer: &PublicKey) -> bool {
        let mut key_check = self.lock();
        let is_first = key_check.is_none();
        let now = self.check(*peer, *key_check);
        *key_check = Some(now);
        drop(key_check);
        if is_first && matches!(now, HostKeyCheck::First { .. }) {
            self.keep(*peer);
        }
        !matches!(now, HostKeyCheck::Changed { .. })
    }
}
