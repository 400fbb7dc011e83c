//! Lets the program of a listener decide about a request, and shows the peer's private data.

use super::Driver;
use crate::lane::Lane;
use zerolane_wire::PrivateData;

impl<L: Lane> Driver<L> {
    /// The private data of the peer: of an accepted connection's request, or of the answer.
    pub fn peer_data(&self) -> Option<&PrivateData> {
        self.core.peer_data()
    }

    /// Whether the peer waits for [`Driver::accept`] or [`Driver::refuse`]: see
    /// [`ListenOptions::asks`](crate::options::ListenOptions::asks).
    pub fn is_asked(&self) -> bool {
        self.core.is_asked()
    }

    /// Accepts the peer's request. The answer leaves with the next turn.
    pub fn accept(&mut self, data: Option<PrivateData>) {
        self.core.accept(self.clock.now(), data);
    }

    /// Refuses the peer's request. The answer leaves with the next turn; later ones repeat it for a peer that asks
    /// again, until the connection is closed.
    pub fn refuse(&mut self) {
        self.core.refuse(self.clock.now());
    }
}
