//! What was counted.

use pyo3::prelude::*;
use zerolane::counters::LaneKind;

/// What a connection did since it began: every byte placed or copied again, and the datagrams.
#[pyclass(frozen, get_all, module = "zerolane")]
pub(crate) struct Account {
    /// Payload bytes that came to where they belong without a copy in user space.
    bytes_placed: u64,
    /// Payload bytes copied again in user space.
    bytes_moved: u64,
    /// Payload bytes handed to the kernel.
    bytes_sent: u64,
    /// Of these, the bytes that the kernel sent from where they lay, without a copy of its own.
    bytes_given: u64,
    /// Datagrams handed to the kernel.
    datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    datagrams_received: u64,
    /// Datagrams the kernel dropped because the receive buffer was full.
    dropped_socket_buffer: u64,
    /// Receive buffer the kernel granted, bytes.
    receive_buffer: usize,
    /// What carries the connection: "udp", "shared_memory" or "ethernet".
    lane: &'static str,
    /// Why no shared memory carries it, in words, where that was asked for.
    no_shared_memory: Option<String>,
    /// Whether frames of raw Ethernet come and leave by AF_XDP.
    bypass: bool,
    /// Why they do not, in words, where `Options(device=...)` was to have them do so.
    no_bypass: Option<String>,
    /// Why a path that was to be added was not, in words: the last such.
    no_path: Option<String>,
    /// Puts, gets and atomic operations of this end done in the peer's memory as mapped here, without the peer's CPU
    /// (`ExportedRegion.memfd`).
    direct_operations: u64,
}

impl From<zerolane::counters::Account> for Account {
    fn from(account: zerolane::counters::Account) -> Account {
        Account {
            bytes_placed: account.bytes_placed,
            bytes_moved: account.bytes_moved(),
            bytes_sent: account.bytes_sent,
            bytes_given: account.bytes_given,
            datagrams_sent: account.datagrams_sent,
            datagrams_received: account.datagrams_received,
            dropped_socket_buffer: account.dropped_socket_buffer,
            receive_buffer: account.receive_buffer,
            lane: match account.lane {
                LaneKind::Udp => "udp",
                LaneKind::SharedMemory => "shared_memory",
                LaneKind::Ethernet => "ethernet",
                LaneKind::Ip118 => "ip118",
            },
            no_shared_memory: account.no_shared_memory.map(|why| why.to_string()),
            bypass: account.bypass,
            no_bypass: account.no_bypass.map(|why| why.to_string()),
            no_path: account.no_path.map(|why| why.to_string()),
            direct_operations: account.direct_operations,
        }
    }
}

#[pymethods]
impl Account {
    fn __repr__(&self) -> String {
        format!(
            "Account(bytes_placed={}, bytes_moved={}, bytes_sent={})",
            self.bytes_placed, self.bytes_moved, self.bytes_sent
        )
    }
}
