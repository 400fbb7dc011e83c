//! The end of a request.

use crate::status::{Failure, of_transfer, zl_status};
use zerolane::request::WorkKind;
use zerolane::{Completion, Delivery};

/// How the sender asks for the arrival of a Transfer to be delivered. Completions come in order in all
/// modes, and a call that waits for one request in particular (zl_receive) returns at its end in all
/// modes. These wake in all modes: failures, the end of the connection, a Transfer that finds no
/// receive posted, and one of no bytes.
#[repr(u32)]
pub enum zl_delivery {
    /// No event and no wake-up of its own. The completion is held back, and delivered with the next of
    /// the connection that is not silent, or when the receiver asks for it with zl_notify.
    ZL_DELIVERY_SILENT = 0,
    /// Delivered to a receiver that polls: zl_poll, zl_queue_poll, and waiting with a timeout of 0. It
    /// does not wake a receiver that waits: that one gets it with the next completion that wakes.
    ZL_DELIVERY_POLLED = 1,
    /// Delivered, and wakes a receiver that waits.
    ZL_DELIVERY_INTERRUPT = 2,
}

/// What is complete.
#[repr(u32)]
pub enum zl_kind {
    /// zl_post_send.
    ZL_KIND_SEND = 0,
    /// zl_post_receive.
    ZL_KIND_RECEIVE = 1,
    /// zl_post_put and its variants.
    ZL_KIND_PUT = 2,
    /// zl_post_get and its variants.
    ZL_KIND_GET = 3,
    /// zl_post_fetch.
    ZL_KIND_FETCH = 4,
    /// zl_post_message.
    ZL_KIND_MESSAGE = 5,
    /// zl_post_message_receive.
    ZL_KIND_MESSAGE_RECEIVED = 6,
    /// Nothing posted here, id 0: a put of the peer's with an immediate number.
    ZL_KIND_IMMEDIATE = 7,
    /// A kind that this version does not know.
    ZL_KIND_OTHER = 255,
}

/// Most bytes of a message's control.
pub const ZL_CONTROL_LENGTH: usize = 128;

/// A request that is done: its memory is the program's again.
#[repr(C)]
pub struct zl_completion {
    /// The number that the function which posted it gave.
    pub id: u32,
    /// A value of enum zl_kind.
    pub kind: u32,
    /// How it ended.
    pub status: zl_status,
    /// A value of enum zl_delivery.
    pub delivery: u32,
    /// From a queue: the connection's tag.
    pub tag: u64,
    /// Bytes moved.
    pub length: u64,
    /// ZL_KIND_FETCH: what the word was before. ZL_KIND_IMMEDIATE: the number.
    pub value: u64,
    /// ZL_KIND_MESSAGE_RECEIVED: bytes of `control`.
    pub control_length: u32,
    /// 0.
    pub reserved: u32,
    /// ZL_KIND_MESSAGE_RECEIVED: what was sent with the payload.
    pub control: [u8; ZL_CONTROL_LENGTH],
}

impl zl_completion {
    pub(crate) fn new(tag: u64, completion: Completion) -> zl_completion {
        let (status, length) = match completion.result {
            Ok(length) => (zl_status::ZL_OK, length as u64),
            Err(error) => (of_transfer(error), 0),
        };
        let mut control = [0; ZL_CONTROL_LENGTH];
        control[..completion.control.len()].copy_from_slice(&completion.control);
        zl_completion {
            id: completion.id,
            kind: kind(completion.kind) as u32,
            status,
            delivery: delivery(completion.delivery) as u32,
            tag,
            length,
            value: completion.value,
            control_length: completion.control.len() as u32,
            reserved: 0,
            control,
        }
    }
}

/// The delivery that C's number means.
pub(crate) fn read_delivery(number: u32) -> Result<Delivery, Failure> {
    match number {
        0 => Ok(Delivery::Silent),
        1 => Ok(Delivery::Polled),
        2 => Ok(Delivery::Interrupt),
        other => Err(Failure::argument(format!(
            "{other} is no value of enum zl_delivery"
        ))),
    }
}

fn delivery(delivery: Delivery) -> zl_delivery {
    match delivery {
        Delivery::Silent => zl_delivery::ZL_DELIVERY_SILENT,
        Delivery::Polled => zl_delivery::ZL_DELIVERY_POLLED,
        Delivery::Interrupt => zl_delivery::ZL_DELIVERY_INTERRUPT,
    }
}

fn kind(kind: WorkKind) -> zl_kind {
    match kind {
        WorkKind::Send | WorkKind::Offer => zl_kind::ZL_KIND_SEND,
        WorkKind::Receive | WorkKind::Read => zl_kind::ZL_KIND_RECEIVE,
        WorkKind::Put => zl_kind::ZL_KIND_PUT,
        WorkKind::Get => zl_kind::ZL_KIND_GET,
        WorkKind::FetchOp => zl_kind::ZL_KIND_FETCH,
        WorkKind::Message => zl_kind::ZL_KIND_MESSAGE,
        WorkKind::MessageReceived => zl_kind::ZL_KIND_MESSAGE_RECEIVED,
        WorkKind::Immediate => zl_kind::ZL_KIND_IMMEDIATE,
        _ => zl_kind::ZL_KIND_OTHER,
    }
}
