//! Ends connections of clients that lost their rights.

use crate::observe::Peer;
use crate::stop::Stop;
use std::sync::{Arc, Weak};
use zerolane::keys::{Access, Rights};
use zerolane::security::PublicKey;

/// The open connections, and the rights by which they were admitted.
#[derive(Debug, Default)]
pub(super) struct Guests(Vec<Guest>);

#[derive(Debug)]
struct Guest {
    key: Option<PublicKey>,
    rights: Rights,
    stop: Stop,
    /// Dropped with the connection.
    here: Weak<Peer>,
}

impl Guests {
    pub(super) fn enter(&mut self, peer: &Arc<Peer>, rights: Rights, stop: Stop) {
        // Keeps as many entries as there are connections.
        self.0.retain(|guest| guest.here.strong_count() > 0);
        self.0.push(Guest {
            key: peer.key,
            rights,
            stop,
            here: Arc::downgrade(peer),
        });
    }

    /// Ends the connections of clients that have lost any right by which they were admitted.
    pub(super) fn check(&self, access: &Access) {
        for guest in &self.0 {
            let now = access.rights(guest.key);
            if !now.is_some_and(|now| still_has(&now, &guest.rights)) {
                guest.stop.request();
            }
        }
    }
}

/// Whether `now` includes all rights to files in `before`, at the same place.
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
}
