//! Returns a connection's counters.

use pyo3::prelude::*;
use zerolane::counters::LaneKind;

/// Counters of a connection since it began: payload bytes placed or copied again, and datagrams.
#[pyclass(frozen, get_all, weakref, module = "zerolane")]
pub(crate) struct Account {
    /// Payload bytes that reached their place without a copy in user space.
    bytes_placed: u64,
    /// Payload bytes copied once more in user space.
    bytes_moved: u64,
    /// Payload bytes handed to the kernel.
    bytes_sent: u64,
    /// Of `bytes_sent`, bytes that the kernel sent without its own copy.
    bytes_sent_zerocopy: u64,
    /// Datagrams handed to the kernel.
    datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    datagrams_received: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    dropped_socket_buffer: u64,
    /// Receive buffer that the kernel granted, in bytes.
    receive_buffer: usize,
    /// The connection's lane: "udp", "shared_memory", "ethernet" or "ip118".
    lane: &'static str,
    /// Why the connection does not use shared memory although requested; None otherwise.
    no_shared_memory: Option<String>,
    /// Whether raw Ethernet frames come and leave by AF_XDP.
    bypass: bool,
    /// Why they do not, if `Options(device=...)` requested it; None otherwise.
    no_bypass: Option<String>,
    /// Why the last path that failed could not be added; None otherwise.
    no_path: Option<String>,
    /// Puts, gets and atomic operations that this end did in its mapping of the peer's memory, without the peer's CPU
    /// (`ExportedRegion.memfd`).
    direct_operations: u64,
    /// All counters of the connection, many more than here, as one line of JSON for `json.loads`: integers, times in
    /// nanoseconds ("rtt_ns"), null for what is not known.
    json: String,
}

impl From<zerolane::counters::Account> for Account {
    fn from(account: zerolane::counters::Account) -> Account {
        Account {
            bytes_placed: account.bytes_placed,
            bytes_moved: account.bytes_moved(),
            bytes_sent: account.bytes_sent,
            bytes_sent_zerocopy: account.bytes_sent_zerocopy,
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
            json: account.json(),
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
