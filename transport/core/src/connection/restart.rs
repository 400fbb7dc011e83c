//! Restarts an Initiator over another lane while it is still connecting.

use super::Connection;
use crate::config::{Config, Entropy};
use crate::path::Path;
use crate::recovery::Recovery;
use crate::session::{Life, Session};
use crate::time::Instant;

impl Connection {
    /// Restarts connecting over another lane, as a connection made with `config` and `entropy`, with the same
    /// protection. Posted requests stay, and the original [`Config::connect_timeout`] goes on. Answers to the first
    /// attempt are ignored. False, without any effect, unless the connection is in [`Life::Connecting`].
    pub fn restart(&mut self, now: Instant, config: Config, entropy: Entropy) -> bool {
        if self.life() != Life::Connecting {
            return false;
        }
        self.cx.enter(now);
        let Connection {
            cx,
            session,
            receiving,
            ..
        } = self;
        cx.clear_control();
        cx.route.s_port = entropy.port;
        cx.route.d_port = config.service_port;
        cx.path = Path::new(config.encapsulation, config.path_datagram);
        cx.recovery = Recovery::adaptive();
        cx.config = config;
        receiving.set_window(cx);
        *session = Session::new(now, Life::Connecting, entropy, session.protection());
        session.request_connection(cx);
        true
    }
}
