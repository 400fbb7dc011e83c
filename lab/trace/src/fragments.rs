//! Assigns IP fragments to the flow and position of their first fragment.

use crate::limits::MAX_FRAGMENTED;
use crate::packet::FlowKey;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// What all fragments of a datagram have in their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DatagramKey {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) id: u32,
}

impl DatagramKey {
    pub(crate) fn of(flow: &FlowKey, id: u32) -> DatagramKey {
        DatagramKey {
            source: flow.source,
            destination: flow.destination,
            protocol: flow.protocol,
            id,
        }
    }
}

/// What only the first fragment shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) flow: FlowKey,
    /// Where in the stream its payload begins.
    pub(crate) position: u64,
    /// Bytes of its transport's header.
    pub(crate) transport: u32,
}

/// The latest datagrams, up to [`MAX_FRAGMENTED`].
#[derive(Debug, Default)]
pub(crate) struct Fragmented {
    datagrams: HashMap<DatagramKey, Datagram>,
    /// In the order that they began.
    order: VecDeque<DatagramKey>,
}

impl Fragmented {
    pub(crate) fn get(&self, key: &DatagramKey) -> Option<Datagram> {
        self.datagrams.get(key).copied()
    }

    /// A datagram begins. One of the same key is over.
    pub(crate) fn begin(&mut self, key: DatagramKey, datagram: Datagram) {
        if self.datagrams.insert(key, datagram).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_FRAGMENTED
            && let Some(oldest) = self.order.pop_front()
        {
            self.datagrams.remove(&oldest);
        }
    }
}
