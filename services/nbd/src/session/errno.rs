//! Converts errors to NBD's error numbers.

/// An error number of NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(u32);

impl Errno {
    /// EPERM.
    pub const PERMISSION: Errno = Errno(1);
    /// EIO.
    pub const IO: Errno = Errno(5);
    /// ENOMEM.
    pub const MEMORY: Errno = Errno(12);
    /// EINVAL.
    pub const INVALID: Errno = Errno(22);
    /// ENOSPC.
    pub const SPACE: Errno = Errno(28);

    /// Converts Linux's error number; EIO if NBD has no equivalent.
    pub fn of(number: i32) -> Errno {
        let known = [
            Errno::PERMISSION,
            Errno::MEMORY,
            Errno::INVALID,
            Errno::SPACE,
        ];
        let mut known = known.into_iter();
        let found = known.find(|it| i64::from(it.0) == i64::from(number));
        found.unwrap_or(Errno::IO)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }
}
