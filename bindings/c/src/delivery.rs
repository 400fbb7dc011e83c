//! Defines how a sender wants the arrival of a Transfer delivered.

use crate::status::Failure;
use zerolane::Delivery;

/// How the sender wants the arrival of a Transfer delivered; it counts for a receiver that chose
/// so (zl_honour_delivery). In all modes completions come in order, and a call that waits for one
/// particular request (zl_recv_into) returns at its end. Four events wake in all modes: a
/// failure, the end of the connection, a Transfer that matches no posted receive, and one of no
/// bytes.
#[repr(u32)]
pub enum zl_delivery {
    /// Delivered, and wakes a waiting receiver.
    ZL_DELIVERY_INTERRUPT = 0,
    /// Delivered to a receiver that polls: zl_poll, zl_queue_poll, or a wait with a timeout of
    /// 0. A waiting receiver gets it with the next completion that wakes.
    ZL_DELIVERY_POLLED = 1,
    /// No event and no wake-up. The completion is held back until the connection's next
    /// completion that is not silent, or until the receiver asks for it with zl_notify.
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

/// Converts C's number to a delivery mode.
pub(crate) fn delivery(number: u32) -> Result<Delivery, Failure> {
    let all = [Delivery::Interrupt, Delivery::Polled, Delivery::Silent];
    let meant = all
        .into_iter()
        .find(|&it| zl_delivery::from(it) as u32 == number);
    meant.ok_or_else(|| Failure::argument(format!("{number} is not a value of enum zl_delivery")))
}
