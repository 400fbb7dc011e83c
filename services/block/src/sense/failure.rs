//! Defines how a command can fail: RESERVATION CONFLICT or CHECK CONDITION.

use super::Sense;

/// The status of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Failure {
        Failure::Check(sense)
    }
}
