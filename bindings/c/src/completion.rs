//! The end of a request.

use crate::status::{of_transfer, zl_status};
use zerolane::{Completion, Delivery};

/// How the sender asked for the arrival to be delivered.
#[repr(u32)]
pub enum zl_delivery {
    /// Not reported in particular.
    ZL_DELIVERY_SILENT = 0,
    /// Reported to who polls.
    ZL_DELIVERY_POLLED = 1,
    /// Reported, and wakes who waits.
    ZL_DELIVERY_INTERRUPT = 2,
}

/// A request that is done: its memory is the program's again.
#[repr(C)]
pub struct zl_completion {
    /// Which, as the function that posted it said.
    pub id: u32,
    /// How it ended.
    pub status: zl_status,
    /// Bytes moved.
    pub length: u64,
    /// A value of enum zl_delivery.
    pub delivery: u32,
    /// 0.
    pub reserved: u32,
}

impl From<Completion> for zl_completion {
    fn from(completion: Completion) -> zl_completion {
        let (status, length) = match completion.result {
            Ok(length) => (zl_status::ZL_OK, length as u64),
            Err(error) => (of_transfer(error), 0),
        };
        let delivery = match completion.delivery {
            Delivery::Silent => zl_delivery::ZL_DELIVERY_SILENT,
            Delivery::Polled => zl_delivery::ZL_DELIVERY_POLLED,
            Delivery::Interrupt => zl_delivery::ZL_DELIVERY_INTERRUPT,
        };
        zl_completion {
            id: completion.id,
            status,
            length,
            delivery: delivery as u32,
            reserved: 0,
        }
    }
}
