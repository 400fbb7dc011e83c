//! What may be granted while other connections receive at this end too.

use super::Connection;
use crate::admission::Demand;
use crate::inbound::Geometry;
use crate::timers::Timer;
use crate::{Admission, FastAnswer, Instant, Life};
use alloc::boxed::Box;
use zerolane_wire::Profile;

impl Connection {
    /// Shares this end's link with the other members of a scheduler: it bounds what is granted, on
    /// top of the connection's own window. Without effect on a connection that is over, and on the
    /// classic profile, which grants one Block at a time.
    pub fn set_admission(&mut self, member: impl Admission + 'static) {
        let over = !matches!(
            self.life,
            Life::Connecting | Life::Answered | Life::Established
        );
        let classic = self.peer.is_some() && self.profile == Profile::Classic;
        self.admission = (!over && !classic).then(|| -> Box<dyn Admission> { Box::new(member) });
    }

    /// Asks that what this connection receives be fast: at full speed, other senders to this end at
    /// a trickle (Fast_Req of PAPERS P2.4). Without other members, or without a scheduler, it is so
    /// anyway.
    pub fn request_fast(&mut self, now: Instant) -> FastAnswer {
        let answer = match &mut self.admission {
            Some(member) => member.request_fast(now),
            None => FastAnswer::Granted,
        };
        self.grant(now);
        answer
    }

    /// Sets the part of this end's link that the connection gets when others receive too, relative to
    /// theirs: 1 unless set, 0 counts as 1.
    pub fn set_weight(&mut self, weight: u32) {
        if let Some(member) = &mut self.admission {
            member.set_weight(weight);
        }
    }

    /// How Blocks are to be granted now, as far as other connections leave room; `None` if not at
    /// all. The one place where admission bounds grants.
    pub(super) fn admitted(&mut self, now: Instant) -> Option<Geometry> {
        let geometry = self.geometry();
        if self.admission.is_none() {
            return Some(geometry);
        }
        let demand = Demand {
            wanted: self.inbox.ungranted(),
            outstanding: self.inbox.grants.outstanding(),
            arrived: self.counters.bytes_received,
            missing: self.overtaken,
            moved: self.moved,
            delay: self.inbox.grants.take_delay(),
            stu: geometry.stu,
        };
        let allowance = self.admission.as_mut()?.review(now, &demand);
        match allowance.review_at {
            Some(at) => self.timers.set(Timer::Admission, at),
            None => self.timers.stop(Timer::Admission),
        }
        let bytes = u32::try_from(allowance.bytes).unwrap_or(u32::MAX);
        if demand.wanted > 0 && demand.outstanding + u64::from(geometry.stu) > allowance.bytes {
            self.counters.grants_held += 1;
        }
        (bytes > 0).then_some(Geometry {
            window: geometry.window.min(bytes),
            ..geometry
        })
    }
}
