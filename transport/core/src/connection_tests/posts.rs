//! Posts requests with short names, for tests.

use crate::*;
use zerolane_wire::Rights;

type Posted = Result<TransferId, PostError>;

/// Posts requests of each kind.
impl Connection {
    pub(crate) fn post_send(&mut self, now: Instant, span: Span, delivery: Delivery) -> Posted {
        self.post(now, WorkRequest::Send { delivery }, span)
    }

    pub(crate) fn post_receive(&mut self, now: Instant, span: Span) -> Posted {
        self.post(now, WorkRequest::Receive, span)
    }

    pub(crate) fn post_offer(&mut self, now: Instant, span: Span, delivery: Delivery) -> Posted {
        self.post(now, WorkRequest::Offer { delivery }, span)
    }

    pub(crate) fn post_read(&mut self, now: Instant, span: Span) -> Posted {
        self.post(now, WorkRequest::Read, span)
    }

    pub(crate) fn post_put(
        &mut self,
        now: Instant,
        place: RemotePlace,
        span: Span,
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Posted {
        let request = WorkRequest::Put {
            place,
            immediate,
            flags,
        };
        self.post(now, request, span)
    }

    pub(crate) fn post_get(
        &mut self,
        now: Instant,
        place: RemotePlace,
        span: Span,
        flags: WorkFlags,
    ) -> Posted {
        self.post(now, WorkRequest::Get { place, flags }, span)
    }

    pub(crate) fn post_fetch_op(
        &mut self,
        now: Instant,
        place: RemotePlace,
        atomic: Atomic,
        flags: WorkFlags,
    ) -> Posted {
        let request = WorkRequest::FetchOp {
            place,
            atomic,
            flags,
        };
        self.post(now, request, Span::EMPTY)
    }

    pub(crate) fn post_message(
        &mut self,
        now: Instant,
        control: &[u8],
        payload: Option<Span>,
        flags: WorkFlags,
    ) -> Posted {
        let request = WorkRequest::Message { control, flags };
        self.post(now, request, payload.unwrap_or(Span::EMPTY))
    }

    pub(crate) fn post_message_receive(&mut self, control: Span, payload: Option<Span>) -> Posted {
        let request = WorkRequest::ReceiveMessage { control };
        self.post(self.cx.now, request, payload.unwrap_or(Span::EMPTY))
    }

    /// Continues as if `number` operations had been executed in both directions before.
    pub(crate) fn age_operations(&mut self, number: u32) {
        self.initiator.age(number);
        self.responder.age(number);
    }

    pub(crate) fn request_region(
        &mut self,
        now: Instant,
        name: RegionName,
        rights: Rights,
    ) -> Posted {
        self.post(now, WorkRequest::OpenRegion { name, rights }, Span::EMPTY)
    }
}
