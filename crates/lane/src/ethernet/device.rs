//! A device: what AF_XDP needs once for each interface, opened by the user as a context of verbs is.

use super::address::Station;
use super::afxdp::{Ends, Queues, Shared};
use super::{EthernetAddress, NoEthernet, filter, socket};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;

/// How a [device](EthernetDevice) is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The receive queue of the interface whose frames come this way. What the interface puts in another one comes by packet
    /// sockets, as without a device. Most interfaces have all frames without IP in queue 0.
    pub queue: u32,
    /// Connections that may have a place in its memory at a time, at least 1 and at most 1024. For each, an MTU of 1500 takes 4.5 MiB
    /// of memory that is not swapped, and one of 9000 takes 11 MiB.
    pub max_connections: usize,
    /// Go on by packet sockets, as without a device, where AF_XDP is refused, or all places are taken. Else that is an error.
    pub fall_back: bool,
    /// Poll the driver from the thread that looks for what came, for at most so many frames a call
    /// (SO_PREFER_BUSY_POLL): for interfaces whose interrupts are slower than that. Costs a system call each time that nothing is there.
    pub busy_poll: Option<u16>,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            queue: 0,
            max_connections: 8,
            fall_back: false,
            busy_poll: None,
        }
    }
}

/// An interface whose frames of raw Ethernet come and leave by AF_XDP: past the kernel's network stack, in memory that is shared
/// with it. To be given to the connections of it by [`Options::device`](crate::Options::device).
///
/// It has a program in the interface's driver, which finds a connection's frames by their key and leaves all others as they are,
/// and the memory. Both go when the device and all of its connections are dropped. A child of fork has no part in it.
#[derive(Debug)]
pub struct EthernetDevice {
    interface: u32,
    /// `None` if AF_XDP is refused, and why.
    shared: Result<Arc<Shared>, NoEthernet>,
    falls_back: bool,
}

impl EthernetDevice {
    /// Opens the interface of that name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NoEthernet`]: there is no such interface, or AF_XDP is refused and [`DeviceOptions::fall_back`] is not set.
    pub fn open(interface: &str, options: &DeviceOptions) -> io::Result<Arc<EthernetDevice>> {
        let none = || NoEthernet::NoInterface(interface.into());
        let mut found = EthernetAddress::new(interface, None, 0).to_socket_addrs()?;
        let station = found.next().and_then(Station::of).ok_or_else(none)?;
        let (socket, _) = socket::open(station.interface, &filter::of_nobody())?;
        let mtu = socket::path_datagram(&socket, station.interface)?;
        let shared = Shared::open(station.interface, mtu, options).map(Arc::new);
        match shared {
            Err(why) if !options.fall_back => Err(why.into()),
            shared => Ok(Arc::new(EthernetDevice {
                interface: station.interface,
                shared,
                falls_back: options.fall_back,
            })),
        }
    }

    /// Why AF_XDP is not used, if it is not.
    pub fn refused(&self) -> Option<&NoEthernet> {
        self.shared.as_ref().err()
    }

    /// Whether the driver itself reads and writes the memory; else the kernel copies each frame once more.
    pub fn is_zero_copy(&self) -> bool {
        self.shared.as_ref().is_ok_and(|it| it.is_zero_copy())
    }

    /// The part of the connection with `key`, whose ends are these; `None`: packet sockets are to do.
    ///
    /// # Errors
    /// [`NoEthernet`]: it is another interface's, or there is no place.
    pub(super) fn line(
        &self,
        interface: u32,
        key: u32,
        ends: &Ends,
    ) -> Result<Option<Queues>, NoEthernet> {
        if interface != self.interface {
            return Err(NoEthernet::OtherDevice);
        }
        let line = match &self.shared {
            Ok(shared) => shared.line(key, ends),
            Err(why) => Err(why.clone()),
        };
        match line {
            Err(_) if self.falls_back => Ok(None),
            line => line.map(Some),
        }
    }
}
