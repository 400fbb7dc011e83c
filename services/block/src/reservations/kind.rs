//! Defines the types of reservation, and which accesses conflict with each.

/// Type of a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// By its number in a CDB.
    pub(crate) fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::WriteExclusive,
            3 => Kind::ExclusiveAccess,
            5 => Kind::WriteExclusiveRegistrants,
            6 => Kind::ExclusiveAccessRegistrants,
            7 => Kind::WriteExclusiveAll,
            8 => Kind::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Others may not even read.
    pub(super) fn is_exclusive_access(self) -> bool {
        use Kind::{ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants};
        matches!(
            self,
            ExclusiveAccess | ExclusiveAccessRegistrants | ExclusiveAccessAll
        )
    }

    /// Whether each registrant has the holder's access.
    pub(super) fn is_for_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// Each registrant holds it.
    pub(super) fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }
}

/// The access that a command needs under a reservation of another initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is always allowed.
    Nothing,
    /// That others may read.
    Read,
    /// That others may write.
    Write,
}
