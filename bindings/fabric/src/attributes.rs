//! Describes what the provider offers, and checks what a program asks for against it.

use crate::libfabric::*;
use std::ffi::CStr;
use zerolane::RegionKey;

pub(crate) const NAME: &CStr = c"zerolane";

/// The newest API of libfabric whose rules the provider knows.
pub(crate) const API: u32 = version(2, 9);
/// libfabric orders providers by this number.
pub(crate) const VERSION: u32 = version(1, 0);

pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The format of messages on the wire: ours, which no other provider speaks.
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x7a6c;
const PROTOCOL_VERSION: u32 = 1;

/// Longest payload that a call copies so that its buffer is free at once. ofi_rxm offers so much less its header, and
/// no more than this.
pub(crate) const INJECT: usize = 16_384;
/// Most pieces of memory of one operation.
pub(crate) const PIECES: usize = 8;
/// Most words of one atomic operation.
pub(crate) const WORDS: usize = 16;
/// Operations that an endpoint takes in each direction.
const QUEUE: usize = 4096;
/// Bytes of data that the peer's completion has; a put carries no more.
pub(crate) const DATA: usize = 4;
/// Longest message or transfer.
pub(crate) const LONGEST: usize = isize::MAX as usize;
const MANY: usize = 65_536;

const SEND_CAPS: u64 = FI_MSG as u64 | FI_RMA as u64 | FI_ATOMIC as u64 | FI_FENCE as u64;
const TX_CAPS: u64 = SEND_CAPS | FI_SEND as u64 | FI_READ as u64 | FI_WRITE as u64;
const RX_CAPS: u64 = FI_MSG as u64
    | FI_RMA as u64
    | FI_ATOMIC as u64
    | FI_RECV as u64
    | FI_REMOTE_READ as u64
    | FI_REMOTE_WRITE as u64;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;

const OP_FLAGS: u64 = FI_INJECT as u64
    | FI_COMPLETION as u64
    | FI_INJECT_COMPLETE as u64
    | FI_TRANSMIT_COMPLETE as u64
    | FI_DELIVERY_COMPLETE as u64
    | FI_MATCH_COMPLETE as u64
    | FI_FENCE as u64
    | FI_MORE as u64;

/// Messages arrive in the order in which they were sent, and atomic operations are done in theirs. Long puts and gets
/// overtake.
const ORDER: u64 = FI_ORDER_SAS as u64
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// What the provider needs of a program whose memory peers access: the keys that it makes, and memory that exists.
const MR_MODE: i32 = FI_MR_PROV_KEY as i32 | FI_MR_ALLOCATED as i32;

/// The hints of `fi_getinfo`; null parts say nothing.
pub(crate) struct Hints<'a> {
    pub(crate) info: &'a fi_info,
    pub(crate) tx: Option<&'a fi_tx_attr>,
    pub(crate) rx: Option<&'a fi_rx_attr>,
    pub(crate) ep: Option<&'a fi_ep_attr>,
    pub(crate) domain: Option<&'a fi_domain_attr>,
    pub(crate) fabric: Option<&'a fi_fabric_attr>,
}

impl<'a> Hints<'a> {
    /// # Safety
    /// `info` is null, or a whole `fi_info` that lives for `'a`.
    pub(crate) unsafe fn of(info: *const fi_info) -> Option<Hints<'a>> {
        // SAFETY: the caller's promise.
        unsafe {
            let info = info.as_ref()?;
            Some(Hints {
                info,
                tx: info.tx_attr.as_ref(),
                rx: info.rx_attr.as_ref(),
                ep: info.ep_attr.as_ref(),
                domain: info.domain_attr.as_ref(),
                fabric: info.fabric_attr.as_ref(),
            })
        }
    }

    /// Why the provider is not what the program asks for.
    pub(crate) fn mismatch(&self, api: u32) -> Option<&'static str> {
        let of_endpoint = self.ep.and_then(ep_mismatch);
        let of_domain = self
            .domain
            .and_then(|it| domain_mismatch(it, self.caps(), api));
        of_endpoint
            .or(of_domain)
            .or_else(|| self.fabric.and_then(fabric_mismatch))
            .or_else(|| self.tx.and_then(tx_mismatch))
            .or_else(|| self.rx.and_then(rx_mismatch))
            .or_else(|| {
                (self.info.caps & !CAPS != 0).then_some("a capability that it does not have")
            })
    }

    fn caps(&self) -> u64 {
        self.info.caps
    }
}

fn ep_mismatch(ep: &fi_ep_attr) -> Option<&'static str> {
    let protocol = [FI_PROTO_UNSPEC, PROTOCOL].contains(&ep.protocol);
    let contexts = |count: usize| count <= 1;
    match () {
        () if ![FI_EP_UNSPEC, FI_EP_MSG].contains(&ep.type_) => {
            Some("endpoints other than FI_EP_MSG: layer ofi_rxm over it")
        }
        () if !protocol => Some("another protocol"),
        () if ep.protocol_version > PROTOCOL_VERSION => Some("a newer protocol"),
        () if ep.max_msg_size > LONGEST => Some("longer messages"),
        () if ep.msg_prefix_size > 0 => Some("a prefix"),
        () if ep
            .max_order_raw_size
            .max(ep.max_order_war_size)
            .max(ep.max_order_waw_size)
            > 0 =>
        {
            Some("an order of puts and gets")
        }
        () if !contexts(ep.tx_ctx_cnt) => Some("several transmit contexts"),
        () if !contexts(ep.rx_ctx_cnt) && ep.rx_ctx_cnt != SHARED => {
            Some("several receive contexts")
        }
        () if ep.auth_key_size > 0 => Some("an authorisation key"),
        () => None,
    }
}

/// `FI_SHARED_CONTEXT`.
pub(crate) const SHARED: usize = usize::MAX;

fn domain_mismatch(domain: &fi_domain_attr, caps: u64, api: u32) -> Option<&'static str> {
    let remote = u64::from(FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE);
    // Older programs say FI_MR_BASIC, or ask for it by a mode.
    let missing = MR_MODE & !domain.mr_mode != 0 || api < version(1, 5);
    match () {
        () if caps & remote != 0 && missing => {
            Some("memory registration without FI_MR_PROV_KEY and FI_MR_ALLOCATED")
        }
        () if domain.mr_key_size > KEY => Some("longer keys"),
        () if domain.cq_data_size > DATA => Some("more than 4 bytes of completion data"),
        () if domain.caps & !DOMAIN_CAPS != 0 => Some("a domain capability"),
        () if domain.auth_key_size > 0 => Some("an authorisation key"),
        () => None,
    }
}

const KEY: usize = 8;

fn fabric_mismatch(fabric: &fi_fabric_attr) -> Option<&'static str> {
    let text = |name: *const std::ffi::c_char| match name.is_null() {
        true => None,
        // SAFETY: libfabric passes null or a text.
        false => Some(unsafe { CStr::from_ptr(name) }.to_bytes()),
    };
    let ours = NAME.to_bytes();
    // A name with layers: "zerolane;ofi_rxm".
    let named = text(fabric.prov_name);
    match () {
        () if named.is_some_and(|it| !it.split(|it| *it == b';').any(|it| it == ours)) => {
            Some("another provider")
        }
        () if text(fabric.name).is_some_and(|it| it != ours) => Some("another fabric"),
        () => None,
    }
}

fn tx_mismatch(tx: &fi_tx_attr) -> Option<&'static str> {
    match () {
        () if tx.caps & !(TX_CAPS | DOMAIN_CAPS) != 0 => Some("a transmit capability"),
        () if tx.op_flags & !OP_FLAGS != 0 => Some("a flag of transmit operations"),
        () if tx.msg_order & !ORDER != 0 => Some("an order of messages"),
        () if tx.inject_size > INJECT => Some("a longer inject"),
        () if tx.size > QUEUE => Some("a longer transmit queue"),
        () if tx.iov_limit > PIECES => Some("more pieces"),
        () if tx.rma_iov_limit > 1 => Some("several remote pieces"),
        () => None,
    }
}

fn rx_mismatch(rx: &fi_rx_attr) -> Option<&'static str> {
    match () {
        () if rx.caps & !(RX_CAPS | DOMAIN_CAPS) != 0 => Some("a receive capability"),
        () if rx.op_flags & !u64::from(FI_COMPLETION) != 0 => {
            Some("a flag of receive operations, such as FI_MULTI_RECV")
        }
        () if rx.msg_order & !ORDER != 0 => Some("an order of messages"),
        () if rx.total_buffered_recv > 0 => Some("buffered receives"),
        () if rx.size > QUEUE => Some("a longer receive queue"),
        () if rx.iov_limit > PIECES => Some("more pieces"),
        () => None,
    }
}

/// The attributes that an info has, for what `hints` ask.
pub(crate) struct Offer {
    pub(crate) caps: u64,
    pub(crate) tx: fi_tx_attr,
    pub(crate) rx: fi_rx_attr,
    pub(crate) ep: fi_ep_attr,
    pub(crate) domain: fi_domain_attr,
}

impl Offer {
    pub(crate) fn new(hints: Option<&Hints<'_>>) -> Offer {
        let asked = hints.map_or(0, Hints::caps);
        let caps = granted(asked);
        let tx = hints.and_then(|it| it.tx);
        let rx = hints.and_then(|it| it.rx);
        let ep = hints.and_then(|it| it.ep);
        let domain = hints.and_then(|it| it.domain);
        let order = |asked: Option<u64>| match asked {
            Some(order) if order != 0 => order,
            _ => ORDER,
        };
        Offer {
            caps,
            tx: fi_tx_attr {
                caps: caps & TX_CAPS,
                mode: 0,
                op_flags: tx.map_or(0, |it| it.op_flags),
                msg_order: order(tx.map(|it| it.msg_order)),
                comp_order: FI_ORDER_NONE.into(),
                inject_size: INJECT,
                size: or(tx.map(|it| it.size), QUEUE / 4),
                iov_limit: PIECES,
                rma_iov_limit: 1,
                tclass: FI_TC_UNSPEC,
            },
            rx: fi_rx_attr {
                caps: caps & RX_CAPS,
                mode: 0,
                op_flags: rx.map_or(0, |it| it.op_flags),
                msg_order: order(rx.map(|it| it.msg_order)),
                comp_order: FI_ORDER_NONE.into(),
                total_buffered_recv: 0,
                size: or(rx.map(|it| it.size), QUEUE / 4),
                iov_limit: PIECES,
            },
            ep: fi_ep_attr {
                type_: FI_EP_MSG,
                protocol: PROTOCOL,
                protocol_version: PROTOCOL_VERSION,
                max_msg_size: LONGEST,
                msg_prefix_size: 0,
                max_order_raw_size: 0,
                max_order_war_size: 0,
                max_order_waw_size: 0,
                mem_tag_format: 0,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: match ep.map(|it| it.rx_ctx_cnt) {
                    Some(SHARED) => SHARED,
                    _ => 1,
                },
                auth_key_size: 0,
                auth_key: std::ptr::null_mut(),
            },
            domain: fi_domain_attr {
                domain: std::ptr::null_mut(),
                name: std::ptr::null_mut(),
                threading: FI_THREAD_SAFE,
                control_progress: FI_PROGRESS_AUTO,
                data_progress: FI_PROGRESS_AUTO,
                resource_mgmt: FI_RM_ENABLED,
                av_type: domain.map_or(FI_AV_UNSPEC, |it| it.av_type),
                mr_mode: MR_MODE,
                mr_key_size: KEY,
                cq_data_size: DATA,
                cq_cnt: MANY,
                ep_cnt: MANY,
                tx_ctx_cnt: MANY,
                rx_ctx_cnt: MANY,
                max_ep_tx_ctx: 1,
                max_ep_rx_ctx: 1,
                max_ep_stx_ctx: 0,
                max_ep_srx_ctx: MANY,
                cntr_cnt: MANY,
                mr_iov_limit: 1,
                caps: DOMAIN_CAPS,
                mode: 0,
                auth_key: std::ptr::null_mut(),
                auth_key_size: 0,
                max_err_data: 0,
                mr_cnt: MANY,
                tclass: FI_TC_UNSPEC,
            },
        }
    }
}

fn or(asked: Option<usize>, otherwise: usize) -> usize {
    match asked {
        Some(size) if size > 0 => size,
        _ => otherwise,
    }
}

/// The capabilities for those asked for: all if none were named; the directions of those named without one.
fn granted(asked: u64) -> u64 {
    if asked == 0 {
        return CAPS;
    }
    let bits = |flags: u32| u64::from(flags);
    let mut caps = asked | DOMAIN_CAPS;
    let messages = bits(FI_SEND | FI_RECV);
    let memory = bits(FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
    if caps & bits(FI_MSG) != 0 && caps & messages == 0 {
        caps |= messages;
    }
    if caps & bits(FI_RMA | FI_ATOMIC) != 0 && caps & memory == 0 {
        caps |= memory;
    }
    caps
}

/// A key is a number and the offset of the memory in the aligned region that has it.
const _: () = assert!(RegionKey::OFFSET_BITS == 40 && KEY == 8);
