//! Files from one person to another on the same network, who know a code and nothing else of each other.
//!
//! ```text
//! receiver                               sender
//!   question for the channel  --------->  by broadcast, again and again
//!                             <---------  answer: a port
//!   key exchange by the secret <------->  one guess for each who takes part
//!   Meet                      --------->
//!                             <---------  Offer: what there is
//! another connection, by the keys that the exchange has bound to the code:
//!   Get | Decline             --------->  as any copy
//! ```
//! The code is used up by the first connection. The second one, and those that take it up again after an outage, are
//! let in by the receiver's key, and know the sender by its own.

mod code;
mod discovery;
mod invitation;
mod links;
mod meeting;
mod places;

pub use code::{MeetingCode, MeetingCodeError};
pub use invitation::Invitation;
pub use meeting::{Meeting, Whereabouts};

use crate::error::Error;
use crate::limits::{ENTRY_OVERHEAD_BYTES, NAME_BYTES, OFFER_NAMES_BYTES, REPLY_SECONDS};
use crate::message::OfferedEntry;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use zerolane::Options;
use zerolane::security::{PublicKey, random};

/// What a sender offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Files in all.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was named to be sent, as much of it as one message holds; of a directory that stands for what is in it, that.
    pub entries: Vec<OfferedEntry>,
    /// How many more there are.
    pub more: u64,
}

impl Offer {
    /// The names that it says.
    fn names(&self) -> HashSet<Vec<u8>> {
        self.entries.iter().map(|it| it.name.clone()).collect()
    }

    /// Whether it says as many names as it has room for: nothing comes under a name that was kept back.
    fn says_what_it_can(&self) -> bool {
        let said: usize = self
            .names()
            .iter()
            .map(|name| name.len() + ENTRY_OVERHEAD_BYTES)
            .sum();
        self.more == 0 || said + NAME_BYTES + ENTRY_OVERHEAD_BYTES > OFFER_NAMES_BYTES
    }
}

/// Speaks to the owner of this key alone, and shows its own.
fn trusting(mut transport: Options, key: PublicKey) -> Options {
    transport.security.pre_shared = None;
    transport.security.trust = Arc::new(HashSet::from([key]));
    transport
}

fn draw() -> Result<[u8; 32], Error> {
    random().map_err(|_| Error::NoRandom)
}

const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);
/// How often a wait checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "meet_tests.rs"]
mod tests;
