//! Asks the scheduler how much may be granted, when other connections receive at this end too.

use super::Receiving;
use super::inbound::Geometry;
use crate::admission::{Admission, Demand, FastAnswer};
use crate::context::{Context, Debt};
use crate::timers::Timer;
use alloc::boxed::Box;

impl Receiving {
    /// Shares this end's link with the other members of a scheduler.
    pub(crate) fn set_admission(&mut self, member: Box<dyn Admission>) {
        self.admission = Some(member);
    }

    /// Requests fast mode for what this connection receives.
    pub(crate) fn request_fast(&mut self, cx: &mut Context) -> FastAnswer {
        cx.owe(Debt::Grant);
        match &mut self.admission {
            Some(member) => member.request_fast(cx.now),
            None => FastAnswer::Granted,
        }
    }

    /// Sets the connection's share of this end's link, relative to others.
    pub(crate) fn set_weight(&mut self, weight: u32) {
        if let Some(member) = &mut self.admission {
            member.set_weight(weight);
        }
    }

    /// How to cut the Blocks granted now, as far as other connections leave room; `None` if none may be granted. The
    /// one place where admission bounds grants.
    pub(super) fn admitted(&mut self, cx: &mut Context) -> Option<Geometry> {
        let geometry = self.geometry(cx);
        let Some(member) = &mut self.admission else {
            return Some(geometry);
        };
        let demand = Demand {
            wanted: self.inbox.ungranted(),
            outstanding: self.inbox.grants.outstanding(),
            arrived: cx.counters.bytes_received,
            missing: self.overtaken,
            moved: self.moved,
            delay: self.inbox.grants.take_delay(),
            stu: geometry.stu,
        };
        let allowance = member.review(cx.now, &demand);
        match allowance.review_at {
            Some(at) => cx.timers.set(Timer::Admission, at),
            None => cx.timers.stop(Timer::Admission),
        }
        let bytes = u32::try_from(allowance.bytes).unwrap_or(u32::MAX);
        if demand.wanted > 0 && demand.outstanding + u64::from(geometry.stu) > allowance.bytes {
            cx.counters.grants_deferred += 1;
        }
        (bytes > 0).then_some(Geometry {
            window: geometry.window.min(bytes),
            ..geometry
        })
    }
}
