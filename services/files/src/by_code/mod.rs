//! Sends files between two people on the same network who share only a code.
//!
//! ```text
//! receiver                               sender
//!   question for the channel  --------->  by broadcast, repeated
//!                             <---------  answer: a port
//!   key exchange by the secret <------->  one guess for each attempt
//!   AskOffer                  --------->
//!                             <---------  Offer: what there is
//! another connection, by the keys that the exchange bound to the code:
//!   Get | Decline             --------->  as any copy
//! ```
//! The first connection uses up the code. The second one, and those that continue it after an outage, are authenticated
//! by both keys.

mod code;
mod discovery;
mod found_sender;
mod invitation;
mod links;
mod places;

pub use code::{TransferCode, TransferCodeError};
pub use found_sender::{FoundSender, SearchScope};
pub use invitation::Invitation;

use crate::error::Error;
use crate::limits::{ENTRY_OVERHEAD_BYTES, NAME_BYTES, OFFER_NAMES_BYTES, REPLY_SECONDS};
use crate::message::OfferedEntry;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use zerolane::Options;
use zerolane::security::{PublicKey, random};

/// A sender's offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The named sources, as many as fit one message; for a directory that stands for its contents, these.
    pub entries: Vec<OfferedEntry>,
    /// How many more entries there are.
    pub more: u64,
}

impl Offer {
    /// The listed names.
    fn names(&self) -> HashSet<Vec<u8>> {
        self.entries.iter().map(|it| it.name.clone()).collect()
    }

    /// Whether it lists as many names as fit. A sender cannot hide an entry by leaving its name out.
    fn says_what_it_can(&self) -> bool {
        let said: usize = self
            .names()
            .iter()
            .map(|name| name.len() + ENTRY_OVERHEAD_BYTES)
            .sum();
        self.more == 0 || said + NAME_BYTES + ENTRY_OVERHEAD_BYTES > OFFER_NAMES_BYTES
    }
}

/// Options to connect to the owner of this key alone, with the own key.
fn trusting(mut transport: Options, key: PublicKey) -> Options {
    transport.security.pre_shared = None;
    transport.security.trust = Arc::new(HashSet::from([key]));
    transport
}

fn draw() -> Result<[u8; 32], Error> {
    random().map_err(|_| Error::NoRandom)
}

const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);
/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "by_code_tests.rs"]
mod tests;
