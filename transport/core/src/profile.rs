//! Names what the two profiles do differently. The rest of the crate asks by these names.

use crate::limits::MAX_FETCHES;
use zerolane_wire::Profile;

/// What an end does in a profile: `docs/reference/protocol.md`, "Two profiles".
pub(crate) trait Conduct: Copy {
    /// Whether the profile is the extended one. For this file alone.
    fn is_extended(self) -> bool;

    /// STUs and Blocks have any length, and a grant names the bytes that it covers. Otherwise lengths are powers of two,
    /// and follow from the Block's number.
    fn has_any_lengths(self) -> bool {
        self.is_extended()
    }

    /// Several Blocks are granted at a time, and a scheduler may share the link. Otherwise each waits for the one before.
    fn grants_ahead(self) -> bool {
        self.is_extended()
    }

    /// The receiver asks for the ranges that it misses. Otherwise it grants the whole Block again.
    fn repairs_ranges(self) -> bool {
        self.is_extended()
    }

    /// States report what arrived on the whole connection, if a burst asks for it.
    fn reports_progress(self) -> bool {
        self.is_extended()
    }

    /// The last STU of a Block asks for its confirmation.
    fn confirms_blocks(self) -> bool {
        !self.is_extended()
    }

    /// Bursts of payload have numbers.
    fn numbers_bursts(self) -> bool {
        self.is_extended()
    }

    /// Long payload may travel as trains.
    fn carries_trains(self) -> bool {
        self.is_extended()
    }

    /// The answer to a Get consists of numbered bursts.
    fn numbers_gets(self) -> bool {
        self.is_extended()
    }

    /// A put of several operations is one put: it may continue in the next operation. Otherwise each is a put of its own.
    fn joins_puts(self) -> bool {
        self.is_extended()
    }

    /// Each operation on remote memory asks for its confirmation, and the Initiator confirms the value of a FetchOp.
    fn confirms_operations(self) -> bool {
        !self.is_extended()
    }

    /// Most FetchOps in progress. The thesis's Responder executes one at a time.
    fn max_fetches(self) -> usize {
        match self.is_extended() {
            true => MAX_FETCHES,
            false => 1,
        }
    }
}

impl Conduct for Profile {
    fn is_extended(self) -> bool {
        self == Profile::Extended
    }
}
