//! Which clients are let in, and stay.

use crate::limits::REFUSED_KEYS;
use crate::observe::{Peer, ServerObserver};
use crate::stop::Stop;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zerolane::keys::{Access, AllowFile, Rights};
use zerolane::security::{PublicKey, Trust};

/// Trusts the keys of a list, and remembers the others until they are reported.
#[derive(Debug)]
pub(super) struct Door {
    list: Arc<AllowFile>,
    refused: Mutex<Refused>,
}

#[derive(Debug, Default)]
struct Refused {
    keys: Vec<PublicKey>,
    more: u64,
}

impl Door {
    pub(super) fn new(list: Arc<AllowFile>) -> Door {
        Door {
            list,
            refused: Mutex::default(),
        }
    }

    /// Tells of those that were refused since the last time.
    pub(super) fn report(&self, observer: &dyn ServerObserver) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Refused { keys, more } = std::mem::take(&mut *refused);
        drop(refused);
        if !keys.is_empty() {
            observer.not_let_in(&keys, more);
        }
    }
}

impl Trust for Door {
    fn trusts(&self, peer: &PublicKey) -> bool {
        let trusted = self.list.trusts(peer);
        if !trusted {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            match refused.keys.len() < REFUSED_KEYS {
                true => refused.keys.push(*peer),
                false => refused.more += 1,
            }
        }
        trusted
    }
}

/// The connections that are there, and the rights by which they were let in.
#[derive(Debug, Default)]
pub(super) struct Guests(Vec<Guest>);

#[derive(Debug)]
struct Guest {
    key: Option<PublicKey>,
    rights: Rights,
    stop: Stop,
    /// Gone with the connection.
    here: Weak<Peer>,
}

impl Guests {
    pub(super) fn enter(&mut self, peer: &Arc<Peer>, rights: Rights, stop: Stop) {
        // As many stay as there are connections.
        self.0.retain(|guest| guest.here.strong_count() > 0);
        self.0.push(Guest {
            key: peer.key,
            rights,
            stop,
            here: Arc::downgrade(peer),
        });
    }

    /// Ends the connections of those that have not all the rights any more by which they were let in.
    pub(super) fn check(&self, access: &Access) {
        for guest in &self.0 {
            let now = access.rights(guest.key);
            if !now.is_some_and(|now| still_has(&now, &guest.rights)) {
                guest.stop.request();
            }
        }
    }
}

/// Whether a client that has `now` may do to files what one with `before` might, and sees them at the same place.
fn still_has(now: &Rights, before: &Rights) -> bool {
    now.files() == before.files() && (now.write || !before.write)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use zerolane::keys::AllowList;
    use zerolane::security::Identity;

    #[test]
    fn still_has__what_was_given_and_more() {
        let rights = |words: &str| {
            let key = Identity::from_secret([1; 32]).public();
            let list = AllowList::parse(&format!("{key} {words}")).unwrap();
            list.keys()[0].rights.clone()
        };
        for (before, now, expected) in [
            ("read", "read", true),
            ("read", "read-write", true),
            ("read-write", "read", false),
            ("read below=a", "read-write below=a", true),
            ("read", "read below=a", false),
            ("read below=a", "read", false),
            ("read", "read regions=a", false),
        ] {
            let has = still_has(&rights(now), &rights(before));
            assert_eq!(has, expected, "{before}, now {now}");
        }
    }

    #[test]
    fn Door__remembers_a_bounded_number_of_those_refused() {
        #[derive(Default)]
        struct Told(Mutex<Vec<(usize, u64)>>);
        impl ServerObserver for Told {
            fn not_let_in(&self, keys: &[PublicKey], more: u64) {
                self.0.lock().unwrap().push((keys.len(), more));
            }
        }
        let home = tempfile::tempdir().unwrap();
        let own = Identity::from_secret([1; 32]).public();
        let list = AllowFile::load(&home.path().join("list"), Some(own)).unwrap();
        let door = Door::new(Arc::new(list));
        assert!(door.trusts(&own));
        let stranger = Identity::from_secret([2; 32]).public();
        for _ in 0..REFUSED_KEYS + 3 {
            assert!(!door.trusts(&stranger));
        }
        let told = Told::default();
        door.report(&told);
        door.report(&told);
        assert_eq!(*told.0.lock().unwrap(), [(REFUSED_KEYS, 3)]);
    }
}
