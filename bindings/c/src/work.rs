//! How requests are to be done.

use crate::status::Failure;
use zerolane::{Delivery, Work};

/// It completes only if it fails.
pub const ZL_WORK_UNSIGNALLED: u32 = 1;
/// It begins when all earlier requests of the connection are complete. For requests on the peer's memory,
/// and messages.
pub const ZL_WORK_FENCE: u32 = 2;
/// The peer is told, with `immediate`: it gets a completion of kind ZL_KIND_IMMEDIATE. For puts.
pub const ZL_WORK_IMMEDIATE: u32 = 4;

/// How a request is to be done. Where a pointer to it may be null, null means 0 in all fields.
#[repr(C)]
pub struct zl_work {
    /// An or of ZL_WORK_...
    pub flags: u32,
    /// With ZL_WORK_IMMEDIATE: the number.
    pub immediate: u32,
    /// A value of enum zl_delivery. For sends of Transfers; without effect on others.
    pub delivery: u32,
    /// 0.
    pub reserved: u32,
    /// A number of the program's own, which comes back in the completion: a pointer, an index.
    pub context: u64,
}

/// How the sender asks for the arrival of a Transfer to be delivered. Completions come in order in all
/// modes, and a call that waits for one request in particular (zl_recv_into) returns at its end in all
/// modes. These wake in all modes: failures, the end of the connection, a Transfer that finds no
/// receive posted, and one of no bytes.
#[repr(u32)]
pub enum zl_delivery {
    /// Delivered, and wakes a receiver that waits.
    ZL_DELIVERY_INTERRUPT = 0,
    /// Delivered to a receiver that polls: zl_poll, zl_queue_poll, and waiting with a timeout of 0. It
    /// does not wake a receiver that waits: that one gets it with the next completion that wakes.
    ZL_DELIVERY_POLLED = 1,
    /// No event and no wake-up of its own. The completion is held back, and delivered with the next of
    /// the connection that is not silent, or when the receiver asks for it with zl_notify.
    ZL_DELIVERY_SILENT = 2,
}

impl From<Delivery> for zl_delivery {
    fn from(delivery: Delivery) -> zl_delivery {
        match delivery {
            Delivery::Silent => zl_delivery::ZL_DELIVERY_SILENT,
            Delivery::Polled => zl_delivery::ZL_DELIVERY_POLLED,
            Delivery::Interrupt => zl_delivery::ZL_DELIVERY_INTERRUPT,
        }
    }
}

/// The delivery that C's number means.
fn delivery(number: u32) -> Result<Delivery, Failure> {
    let all = [Delivery::Interrupt, Delivery::Polled, Delivery::Silent];
    let meant = all
        .into_iter()
        .find(|&it| zl_delivery::from(it) as u32 == number);
    meant.ok_or_else(|| Failure::argument(format!("{number} is no value of enum zl_delivery")))
}

/// The work that C asks for.
///
/// # Safety
/// `work` is null, or points to one.
pub(crate) unsafe fn work(work: *const zl_work) -> Result<Work, Failure> {
    // SAFETY: the caller's promise.
    let Some(work) = (unsafe { work.as_ref() }) else {
        return Ok(Work::default());
    };
    if work.flags & !(ZL_WORK_UNSIGNALLED | ZL_WORK_FENCE | ZL_WORK_IMMEDIATE) != 0 {
        return Err(Failure::argument(format!(
            "there are no flags {:#x}",
            work.flags
        )));
    }
    if work.reserved != 0 {
        return Err(Failure::argument("reserved of zl_work is not 0"));
    }
    Ok(Work {
        signalled: work.flags & ZL_WORK_UNSIGNALLED == 0,
        fence: work.flags & ZL_WORK_FENCE != 0,
        immediate: (work.flags & ZL_WORK_IMMEDIATE != 0).then_some(work.immediate),
        delivery: delivery(work.delivery)?,
        context: work.context,
        ..Work::default()
    })
}
