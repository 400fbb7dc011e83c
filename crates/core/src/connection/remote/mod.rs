//! The peer's memory, as Initiator: puts, gets, atomic operations, messages.
//!
//! What fits one datagram is numbered and sent without announcement; a longer put is announced and
//! granted as a Transfer into the peer's region, a longer get is granted by its Gets. Order is kept
//! here: numbered operations wait for the puts before them that are Transfers, and such a put for
//! the numbered ones before it.

mod get;
mod operations;
mod outcome;
mod post;
mod repeat;
mod start;

use super::Connection;
use crate::RemotePlace;
use crate::transmit::split;
use zerolane_wire::Place;

/// Mx of an operation to the messages that is nothing but its number.
pub(super) const NOTHING: u16 = u16::MAX;

impl Connection {
    fn wire_place(&self, place: RemotePlace) -> Place {
        let log2 = self.peer.map_or(30, |peer| peer.buffer_log2);
        let (bufx, offset) = split(place.address, log2);
        Place {
            handle: place.handle,
            mx: place.mx,
            bufx,
            offset,
        }
    }
}
