//! Whether a list decides which clients are let in.

use super::{AllowFile, Rights};
use crate::security::PublicKey;
use std::sync::Arc;

/// Who may connect to a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Every client that reaches the address, with all rights.
    #[default]
    Anyone,
    /// The owners of the keys on the list, with their rights there. Not with plain connections,
    /// which prove no key.
    Listed(Arc<AllowFile>),
}

impl Access {
    /// What the owner of `key` may do (`None` in plain mode); `None`: not even connect.
    pub fn rights(&self, key: Option<PublicKey>) -> Option<Rights> {
        match self {
            Access::Anyone => Some(Rights::ALL),
            Access::Listed(list) => list.list().rights(&key?).cloned(),
        }
    }

    /// What the owner of `key` is called on the list.
    pub fn name(&self, key: Option<PublicKey>) -> Option<String> {
        match self {
            Access::Anyone => None,
            Access::Listed(list) => list.list().name(&key?).map(str::to_owned),
        }
    }

    /// [`AllowFile::news`] of the list, if there is one.
    pub fn news(&self) -> Option<Result<usize, String>> {
        match self {
            Access::Anyone => None,
            Access::Listed(list) => list.news(),
        }
    }
}
