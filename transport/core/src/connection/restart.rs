//! An Initiator that goes another way.

use super::Connection;
use crate::path::Path;
use crate::recovery::Recovery;
use crate::session::Session;
use crate::{Config, Entropy, Instant, Life};

impl Connection {
    /// Begins to connect anew, by another lane: as a connection that is made with `config` and `entropy`, protected or not
    /// as this one is, but for what was posted, which stays, and for [`Config::connect_timeout`], which goes on. Of the
    /// first beginning no answer is taken. False, and nothing is changed, unless it is [`Life::Connecting`].
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
