//! Runs one-sided operations: as Initiator on the peer's memory, and as Responder on this end's.
//!
//! An operation that fits one datagram is numbered and sent unannounced. A longer put is announced and granted as a
//! Transfer into the peer's region; a longer get is granted by its Gets. Numbered operations keep their order; longer
//! puts overlap with them and with each other. Operations that must observe all earlier puts are ordered here:
//! immediates by the Responder; messages and gets by the Initiator, which waits.

mod initiator;
mod responder;

pub(crate) use self::initiator::Initiator;
pub(crate) use self::responder::Responder;
