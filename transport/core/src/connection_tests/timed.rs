//! Measures Transfers in virtual time.

use super::sim::Sim;
use crate::ExportAs;
use crate::*;
use std::time::Duration;
use zerolane_wire::Rights;

/// Longer than any of them takes, in virtual time.
const AT_MOST: Duration = Duration::from_secs(36_000);

impl Sim {
    /// Sends from A to B. Returns the time until A knows that everything is in place, and checks the content.
    pub(super) fn timed_send(&mut self, length: u64) -> Duration {
        let (start, now) = (self.net.now(), self.now());
        let source = self.a.filled(7, length);
        let target = self.b.empty(length);
        self.b.c().post_receive(now, target).unwrap();
        let from = self.a.c().post_send(now, source, Delivery::Polled).unwrap();
        self.run_until(AT_MOST, |sim| sim.a.sent(from));
        assert!(self.b.holds(target, 7, length));
        self.net.now() - start
    }

    /// The same for a Get: B holds the bytes, A gets them.
    pub(super) fn timed_get(&mut self, length: u64) -> Duration {
        let (start, now) = (self.net.now(), self.now());
        let source = self.b.filled(7, length);
        let target = self.a.empty(length);
        let (handle, mx) = self
            .b
            .c()
            .export(source, Rights::READ, ExportAs::Handle)
            .unwrap();
        let place = RemotePlace {
            handle,
            mx,
            address: 0,
        };
        let flags = WorkFlags::default();
        let id = self.a.c().post_get(now, place, target, flags).unwrap();
        self.run_until(AT_MOST, |sim| sim.a.outcomes(id) > 0);
        assert!(self.a.holds(target, 7, length));
        self.net.now() - start
    }
}
