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

    /// The key that `host` (name and port) showed at the first meeting.
    pub fn key_of(&self, host: &str) -> Option<PublicKey> {
        let known = self.hosts.iter().find(|(name, _)| name == host);
        known.map(|&(_, key)| key)
    }

    /// What to trust when connecting to `host`: the key that it showed before, or, at a first meeting, any key, which
    /// is then remembered at once. A server that shows `own`, the key of this end, belongs to the same user and is not
    /// remembered.
    pub fn trust(&self, host: &str, own: Option<PublicKey>) -> HostTrust {
        HostTrust {
            known: self.key_of(host),
            own,
            remember: Some((self.clone(), host.to_owned())),
            meeting: Mutex::new(None),
        }
    }

    /// Remembers the key of a host after the first meeting.
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
    /// Returns the entries removed; the next meeting is a first one again.
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

/// The outcome of connecting to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The host was unknown.
    First {
        /// The key it showed.
        key: PublicKey,
        /// Whether the key was remembered. If not, the next meeting is a first one again.
        kept: bool,
    },
    /// The host was unknown, and showed this end's own key.
    Own,
    /// The host showed the same key as before.
    Again(PublicKey),
    /// The host showed another key. It may be an attacker.
    Changed {
        /// The key it showed before.
        known: PublicKey,
        /// The key it showed now.
        shown: PublicKey,
    },
}

/// A program's trust in one host, over all of its connections: it holds the host to the first key it showed.
#[derive(Debug)]
pub struct HostTrust {
    known: Option<PublicKey>,
    own: Option<PublicKey>,
    remember: Option<(KnownHosts, String)>,
    meeting: Mutex<Option<Meeting>>,
}

impl HostTrust {
    /// Trusts only the owner of `key`.
    pub fn only(key: PublicKey) -> HostTrust {
        HostTrust {
            known: Some(key),
            own: None,
            remember: None,
            meeting: Mutex::new(None),
        }
    }

    /// Trusts the host whatever its key is, and does not remember it.
    pub fn anyone() -> HostTrust {
        HostTrust {
            known: None,
            own: None,
            remember: None,
            meeting: Mutex::new(None),
        }
    }

    /// The outcome; `None` if the host proved no key.
    pub fn meeting(&self) -> Option<Meeting> {
        *self.lock()
    }

    /// No holder of the lock leaves the state half changed or waits for a file.
    fn lock(&self) -> MutexGuard<'_, Option<Meeting>> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostTrust {
    /// The key that the host showed at a meeting.
    fn met(&self, meeting: Option<Meeting>) -> Option<PublicKey> {
        match meeting? {
            Meeting::First { key, .. } | Meeting::Again(key) => Some(key),
            Meeting::Changed { known, .. } => Some(known),
            Meeting::Own => self.own,
        }
    }

    /// The outcome of the host showing key `shown` now.
    fn meet(&self, shown: PublicKey, before: Option<Meeting>) -> Meeting {
        match self.known.or_else(|| self.met(before)) {
            None if self.own == Some(shown) => Meeting::Own,
            None => Meeting::First {
                key: shown,
                kept: false,
            },
            // A first meeting stays first until it was reported.
            Some(known) if known == shown => match before {
                Some(first @ (Meeting::First { .. } | Meeting::Own)) => first,
                _ => Meeting::Again(shown),
            },
            Some(known) => Meeting::Changed { known, shown },
        }
    }

    /// Remembers the key of a first meeting. It may take long: another process locks the file, or the disk is slow.
    fn keep(&self, key: PublicKey) {
        let remembered = |(hosts, host): &(KnownHosts, String)| hosts.remember(host, key).is_ok();
        if self.remember.as_ref().is_some_and(remembered)
            && let Some(Meeting::First { kept, .. }) = &mut *self.lock()
        {
            *kept = true;
        }
    }
}

impl Trust for HostTrust {
    fn trusts(&self, peer: &PublicKey) -> bool {
        let mut meeting = self.lock();
        let is_news = meeting.is_none();
        let now = self.meet(*peer, *meeting);
        *meeting = Some(now);
        drop(meeting);
        if is_news && matches!(now, Meeting::First { .. }) {
            self.keep(*peer);
        }
        !matches!(now, Meeting::Changed { .. })
    }
}
