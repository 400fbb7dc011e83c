//! Carries the program's private data, and lets the program of a Responder decide about a request.

use super::Connection;
use crate::time::Instant;
use zerolane_wire::PrivateData;

impl Connection {
    /// Adds the private data that came with the Request_Connection.
    #[must_use]
    pub fn with_peer_data(mut self, data: Option<PrivateData>) -> Connection {
        self.session.set_peer_data(data);
        self
    }

    /// The private data of the peer's Request_Connection or Connection_Answer.
    pub fn peer_data(&self) -> Option<&PrivateData> {
        self.session.peer_data()
    }

    /// Whether the request waits for [`Connection::accept`] or [`Connection::refuse`]: see
    /// [`Config::asks`](crate::Config::asks).
    pub fn is_asked(&self) -> bool {
        self.session.is_asked()
    }

    /// Accepts the request, with `data` instead of [`Config::private_data`](crate::Config::private_data) if it is some.
    /// The answer has it if the request had private data. No effect unless [`Connection::is_asked`].
    pub fn accept(&mut self, now: Instant, data: Option<PrivateData>) {
        self.cx.enter(now);
        if self.session.is_asked() {
            self.cx.config.private_data = data.or(self.cx.config.private_data);
            self.session.accept(&mut self.cx);
        }
    }

    /// Refuses the request, and ends the connection once the Initiator has had time to ask again. No effect unless
    /// [`Connection::is_asked`].
    pub fn refuse(&mut self, now: Instant) {
        self.cx.enter(now);
        if self.session.is_asked() {
            self.session.refuse(&mut self.cx);
        }
    }
}
