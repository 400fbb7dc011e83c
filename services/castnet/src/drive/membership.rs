//! Authenticates the members of a cast to each other by the group's secret, and sets up connections between them.

use std::sync::Arc;

use zerolane::security::{Identity, PreShared, PublicKey, Trust};
use zerolane::{Options as Transport, Security};
use zerolane_cast::NodeId;

use crate::error::Error;

/// The credentials of a member of a cast.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) identity: Arc<Identity>,
    pub(crate) secret: [u8; 32],
    /// The other options of connections to peers.
    pub(crate) transport: Transport,
    /// By which peers are reached that have link-local addresses; 0: none.
    pub(crate) interface: u32,
}

/// Trusts the holder of the key that a node's number comes from.
#[derive(Debug)]
pub(super) struct Only(pub(super) NodeId);

impl Trust for Only {
    fn trusts(&self, peer: &PublicKey) -> bool {
        NodeId::of_key(&peer.0) == self.0
    }
}

impl Membership {
    /// Makes a membership with a fresh key, for this cast alone.
    pub(crate) fn new(secret: [u8; 32], transport: Transport) -> Result<Membership, Error> {
        let key = random()?;
        Ok(Membership {
            identity: Arc::new(Identity::from_secret(key)),
            secret,
            transport,
            interface: 0,
        })
    }

    pub(crate) fn id(&self) -> NodeId {
        NodeId::of_key(&self.identity.public().0)
    }

    /// Options of connections to peers that `trust` trusts.
    pub(crate) fn options(&self, trust: Arc<dyn Trust>) -> Transport {
        self.transport.clone().with(|it| {
            it.security = Security {
                identity: Some(Arc::clone(&self.identity)),
                pre_shared: Some(PreShared::from(self.secret)),
                trust,
                ..Security::default()
            }
        })
    }
}

/// Random bytes that cannot be guessed.
pub(crate) fn random() -> Result<[u8; 32], Error> {
    zerolane::security::random().map_err(Error::io("no random numbers"))
}
