//! Defines the options of a request.

use crate::completion::zl_kind;
use crate::delivery::delivery;
use crate::status::Failure;
use zerolane::Delivery;
use zerolane::memory::Memory;
use zerolane::request::{Message, Transfer};

/// The request completes only if it fails.
pub const ZL_WORK_UNSIGNALLED: u32 = 1;
/// The request starts when all earlier requests of the connection are complete. For requests on
/// the peer's memory and messages.
pub const ZL_WORK_FENCE: u32 = 2;
/// The peer gets a completion of kind ZL_KIND_IMMEDIATE with the number `immediate`. For puts.
pub const ZL_WORK_IMMEDIATE: u32 = 4;

/// Options of a request. Where a pointer to it may be null, null means 0 in all fields. An
/// option that has no meaning for the request is ZL_ERROR_ARGUMENT.
#[repr(C)]
pub struct zl_work {
    /// ZL_WORK_... flags, joined by |.
    pub flags: u32,
    /// With ZL_WORK_IMMEDIATE: the number.
    pub immediate: u32,
    /// A value of enum zl_delivery, for sends of Transfers; otherwise 0.
    pub delivery: u32,
    /// Must be 0.
    pub reserved: u32,
    /// A number of your own, such as a pointer or an index. The completion returns it.
    pub context: u64,
}

/// The kind of a request, and the options that have a meaning for it.
pub(crate) struct Kind {
    pub(crate) kind: zl_kind,
    flags: u32,
    has_delivery: bool,
}

impl Kind {
    const fn new(kind: zl_kind, flags: u32) -> Kind {
        Kind {
            kind,
            flags,
            has_delivery: false,
        }
    }
}

pub(crate) const SEND: Kind = Kind {
    has_delivery: true,
    ..Kind::new(zl_kind::ZL_KIND_SEND, ZL_WORK_UNSIGNALLED)
};
pub(crate) const RECEIVE: Kind = Kind::new(zl_kind::ZL_KIND_RECEIVE, ZL_WORK_UNSIGNALLED);
pub(crate) const MESSAGE: Kind = Kind::new(
    zl_kind::ZL_KIND_MESSAGE,
    ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE,
);
pub(crate) const MESSAGE_RECEIVE: Kind = Kind::new(zl_kind::ZL_KIND_MESSAGE_RECEIVED, 0);
pub(crate) const PUT: Kind = Kind::new(
    zl_kind::ZL_KIND_PUT,
    ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE | ZL_WORK_IMMEDIATE,
);
pub(crate) const GET: Kind = Kind::new(zl_kind::ZL_KIND_GET, ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE);
pub(crate) const FETCH: Kind =
    Kind::new(zl_kind::ZL_KIND_FETCH, ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE);
pub(crate) const OPEN: Kind = Kind::new(zl_kind::ZL_KIND_OPEN, 0);

/// The options of a request.
pub(crate) struct How {
    pub(crate) signalled: bool,
    pub(crate) fence: bool,
    pub(crate) immediate: Option<u32>,
    pub(crate) context: u64,
    delivery: Delivery,
}

impl How {
    pub(crate) fn transfer(&self, memory: impl Into<Memory>) -> Transfer {
        let transfer = Transfer::new(memory).context(self.context);
        transfer.signalled(self.signalled).delivery(self.delivery)
    }

    pub(crate) fn message(&self, control: &[u8], payload: Option<Memory>) -> Message<'static> {
        let message = Message::new(control.to_vec()).context(self.context);
        let message = message.signalled(self.signalled).fence(self.fence);
        match payload {
            Some(payload) => message.payload(payload),
            None => message,
        }
    }
}

/// Converts C's options of a request; the defaults if null.
///
/// # Errors
/// `work` has an option that has no meaning for the request.
///
/// # Safety
/// `work` is null, or points to a zl_work.
pub(crate) unsafe fn work(work: *const zl_work, kind: &Kind) -> Result<How, Failure> {
    // SAFETY: the caller's promise.
    let Some(work) = (unsafe { work.as_ref() }) else {
        return Ok(How {
            signalled: true,
            fence: false,
            immediate: None,
            context: 0,
            delivery: Delivery::Interrupt,
        });
    };
    let known = ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE | ZL_WORK_IMMEDIATE;
    if work.flags & !known != 0 {
        let unknown = format!("unknown flags {:#x}", work.flags);
        return Err(Failure::argument(unknown));
    }
    if work.flags & !kind.flags != 0 {
        let flags = work.flags & !kind.flags;
        let useless = format!("flags {flags:#x} of zl_work have no meaning for this request");
        return Err(Failure::argument(useless));
    }
    let delivery = delivery(work.delivery)?;
    if !kind.has_delivery && delivery != Delivery::Interrupt {
        return Err(Failure::argument(
            "only a send of a Transfer has a delivery",
        ));
    }
    if work.reserved != 0 {
        return Err(Failure::argument("reserved of zl_work must be 0"));
    }
    Ok(How {
        signalled: work.flags & ZL_WORK_UNSIGNALLED == 0,
        fence: work.flags & ZL_WORK_FENCE != 0,
        immediate: (work.flags & ZL_WORK_IMMEDIATE != 0).then_some(work.immediate),
        context: work.context,
        delivery,
    })
}
