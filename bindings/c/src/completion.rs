//! Defines the completion of a request.

use crate::delivery::zl_delivery;
use crate::key::{ZL_KEY_LENGTH, zl_key};
use crate::status::{of_transfer, zl_status};
use zerolane::request::{Immediate, Output};
use zerolane::{Completion, Delivery};

/// The kind of a completed request.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum zl_kind {
    /// zl_post_send.
    ZL_KIND_SEND = 0,
    /// zl_post_recv.
    ZL_KIND_RECEIVE = 1,
    /// zl_post_put and its variants.
    ZL_KIND_PUT = 2,
    /// zl_post_get and its variants.
    ZL_KIND_GET = 3,
    /// zl_post_fetch_op.
    ZL_KIND_FETCH = 4,
    /// zl_post_message.
    ZL_KIND_MESSAGE = 5,
    /// zl_post_message_recv, or memory of a zl_pool.
    ZL_KIND_MESSAGE_RECEIVED = 6,
    /// A put of the peer's with an immediate number: no request of this end, id 0.
    ZL_KIND_IMMEDIATE = 7,
    /// zl_post_open_region.
    ZL_KIND_OPEN = 8,
    /// A kind that this version does not know.
    ZL_KIND_OTHER = 255,
}

/// Most bytes of a message's control.
pub const ZL_CONTROL_LENGTH: usize = 128;

/// A finished request. Its memory belongs to the program again.
#[repr(C)]
pub struct zl_completion {
    /// The request's number, from the function that posted it.
    pub id: u64,
    /// A value of enum zl_kind.
    pub kind: u32,
    /// The request's result.
    pub status: zl_status,
    /// A value of enum zl_delivery.
    pub delivery: u32,
    /// ZL_KIND_MESSAGE_RECEIVED: bytes of `control`.
    pub control_length: u32,
    /// The `context` of the request's zl_work.
    pub context: u64,
    /// From a queue: the connection's tag.
    pub tag: u64,
    /// Bytes moved. ZL_KIND_IMMEDIATE: bytes of the put; of a vectored one, those of its last
    /// piece.
    pub length: u64,
    /// ZL_KIND_FETCH: the word's previous value. ZL_KIND_IMMEDIATE: the number.
    pub value: u64,
    /// ZL_KIND_OPEN: the key. ZL_KIND_IMMEDIATE: the key of the memory here that the put wrote, as
    /// its export returned it; zl_key_to_u64 has the number of numbered memory in its highest 24
    /// bits. Zeros otherwise.
    pub region: zl_key,
    /// ZL_KIND_MESSAGE_RECEIVED: the message's control.
    pub control: [u8; ZL_CONTROL_LENGTH],
}

const NO_KEY: zl_key = zl_key {
    bytes: [0; ZL_KEY_LENGTH],
};

impl zl_completion {
    /// The value where there is no completion.
    pub(crate) const NONE: zl_completion = zl_completion {
        id: 0,
        kind: zl_kind::ZL_KIND_OTHER as u32,
        status: zl_status::ZL_OK,
        delivery: 0,
        control_length: 0,
        context: 0,
        tag: 0,
        length: 0,
        value: 0,
        region: NO_KEY,
        control: [0; ZL_CONTROL_LENGTH],
    };

    /// The completion of a put of the peer's.
    pub(crate) fn immediate(it: &Immediate) -> zl_completion {
        zl_completion {
            kind: zl_kind::ZL_KIND_IMMEDIATE as u32,
            length: it.length as u64,
            value: u64::from(it.number),
            region: zl_key::from(it.region),
            ..zl_completion::NONE
        }
    }

    pub(crate) fn new(tag: u64, completion: Completion) -> zl_completion {
        let (status, length) = match completion.result {
            Ok(length) => (zl_status::ZL_OK, length as u64),
            Err(error) => (of_transfer(error), 0),
        };
        let mut flat = zl_completion {
            id: completion.id.to_u64(),
            status,
            delivery: zl_delivery::from(Delivery::Interrupt) as u32,
            context: completion.context,
            tag,
            length,
            ..zl_completion::NONE
        };
        let kind = match completion.output {
            Output::Send { .. } | Output::Offer { .. } => zl_kind::ZL_KIND_SEND,
            Output::Receive { delivery, .. } | Output::Read { delivery, .. } => {
                flat.delivery = zl_delivery::from(delivery) as u32;
                zl_kind::ZL_KIND_RECEIVE
            }
            Output::Put { .. } => zl_kind::ZL_KIND_PUT,
            Output::Get { .. } => zl_kind::ZL_KIND_GET,
            Output::FetchOp { before } => {
                flat.value = before.unwrap_or(0);
                zl_kind::ZL_KIND_FETCH
            }
            Output::Message { .. } => zl_kind::ZL_KIND_MESSAGE,
            Output::MessageReceived { control, .. } => {
                flat.control[..control.len()].copy_from_slice(&control);
                flat.control_length = control.len() as u32;
                zl_kind::ZL_KIND_MESSAGE_RECEIVED
            }
            Output::Immediate(it) => {
                flat.value = u64::from(it.number);
                flat.region = zl_key::from(it.region);
                zl_kind::ZL_KIND_IMMEDIATE
            }
            Output::Open { key } => {
                flat.region = key.map_or(NO_KEY, zl_key::from);
                zl_kind::ZL_KIND_OPEN
            }
            _ => zl_kind::ZL_KIND_OTHER,
        };
        flat.kind = kind as u32;
        flat
    }
}
