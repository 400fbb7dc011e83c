//! Decides whether a client may connect, by a list of keys.

use super::{AllowFile, Rights};
use std::sync::Arc;
use zerolane_lane::PublicKey;

/// Who may connect to a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Every client that reaches the address, with all rights.
    #[default]
    Anyone,
    /// The owners of the keys on the list, with the rights listed there. Plain connections are refused, because they
    /// prove no key.
    Listed(Arc<AllowFile>),
}

impl Access {
    /// The rights of the owner of `key` (`None` in plain mode); `None`: it may not connect.
    pub fn rights(&self, key: Option<PublicKey>) -> Option<Rights> {
        match self {
            Access::Anyone => Some(Rights::ALL),
            Access::Listed(list) => list.list().rights(&key?).cloned(),
        }
    }

    /// The name of the owner of `key` on the list.
    pub fn name(&self, key: Option<PublicKey>) -> Option<String> {
        match self {
            Access::Anyone => None,
            Access::Listed(list) => list.list().name(&key?).map(str::to_owned),
        }
    }

    /// [`AllowFile::take_change`] of the list, if there is one.
    pub fn take_change(&self) -> Option<Result<usize, String>> {
        match self {
            Access::Anyone => None,
            Access::Listed(list) => list.take_change(),
        }
    }
}
