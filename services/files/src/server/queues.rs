//! Sums up what is queued in all connections of a server.

use crate::observe::Queued;
use crate::port::PortCounters;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The ports of all connections of a server.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<Vec<Weak<PortCounters>>>);

impl Queues {
    /// Counters for a port; they are included until the port is gone.
    pub(super) fn enter(&self) -> Arc<PortCounters> {
        let counters = Arc::default();
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|it| it.strong_count() > 0);
        ports.push(Arc::downgrade(&counters));
        counters
    }

    /// The sums of what is queued now.
    pub(super) fn queued(&self) -> Queued {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Queued::default();
        for port in ports.iter().filter_map(Weak::upgrade) {
            let queued = port.queued();
            sum.network += queued.network;
            sum.files += queued.files;
        }
        sum
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::port::{Filled, port};
    use zerolane::Region;

    fn buffer() -> Region {
        Region::anonymous(4096).unwrap()
    }

    #[test]
    fn queued__what_is_submitted_and_has_arrived_until_it_is_done_with() {
        let queues = Queues::default();
        let queued = |network, files| assert_eq!(queues.queued(), Queued { network, files });
        let (mut one, end) = port(vec![buffer()], vec![], queues.enter(), || {});
        let (mut other, other_end) = port(vec![], vec![buffer()], queues.enter(), || {});
        queued(0, 0);

        let free = one.take_free().unwrap();
        one.submit(free, 100).unwrap();
        queued(100, 0);
        let buffer = other_end.released.try_recv().unwrap();
        other_end.events.arrived(Filled { buffer, len: 30 });
        queued(100, 30);
        other.poll().unwrap();
        queued(100, 30);
        assert_eq!(other.take_arrived().unwrap().len, 30);
        queued(100, 0);
        let submitted = end.outgoing.try_recv().unwrap();
        end.events.sent(submitted.buffer, 60);
        queued(40, 0);
        drop((one, end));
        queued(0, 0);
    }
}
