//! How a command fails.

use super::Sense;

/// The status of a command that was not done.
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
