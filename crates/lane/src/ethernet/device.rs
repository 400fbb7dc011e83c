//! A device: what an interface has once for all of its connections, opened by the user as a context of verbs is.

use super::address::{Hardware, Station};
use super::xdp::{Grants, Program, Route, Rules};
use super::{EthernetAddress, NoEthernet, XdpCounters};
use crate::Options;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use zerolane_core::Config;

/// How a [device](EthernetDevice) is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Connections whose payload is judged by what they granted, 1 to 1024: each takes 8 KiB of the kernel's memory. What is
    /// beyond is judged by its key and its addresses alone; more than 1024 connections are refused.
    pub max_connections: u32,
    /// Frames of the Scheduled Transfer that are for nobody who has this device are dropped. Else they go on: to
    /// connections without this device, or of other programs.
    pub exclusive: bool,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            max_connections: 64,
            exclusive: true,
        }
    }
}

/// Most connections of a device.
const MAX_CONNECTIONS: u32 = 1024;

/// An interface for raw Ethernet with a program in its driver that drops what none of this process's connections granted, before
/// the kernel makes anything of it. To be given to them, and to listeners, by [`Options::device`].
///
/// The program goes with the device and the last of its connections, or when the process ends. Needs CAP_BPF,
/// CAP_NET_ADMIN and CAP_PERFMON.
#[derive(Debug)]
pub struct EthernetDevice {
    interface: u32,
    program: Arc<Program>,
}

impl EthernetDevice {
    /// Opens the interface of that name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NoEthernet`]: there is no such interface. [`NoXdp`](super::NoXdp): it has a program already, or this process or kernel may
    /// not run one.
    pub fn open(interface: &str, options: DeviceOptions) -> io::Result<Arc<EthernetDevice>> {
        let none = || NoEthernet::NoInterface(interface.into());
        let mut found = EthernetAddress::new(interface, None, 0).to_socket_addrs()?;
        let station = found.next().and_then(Station::of).ok_or_else(none)?;
        let rules = Rules {
            slots: options.max_connections.clamp(1, MAX_CONNECTIONS),
            exclusive: options.exclusive,
        };
        let program = Program::attach(station.interface, rules)?;
        Ok(Arc::new(EthernetDevice {
            interface: station.interface,
            program: Arc::new(program),
        }))
    }

    /// What the program let pass and dropped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<XdpCounters> {
        self.program.counters()
    }

    /// The part of the connection with `key` between `local` and the host with the hardware address `peer`.
    ///
    /// # Errors
    /// It is another interface's, there are too many, or the kernel's.
    pub(super) fn direct(
        &self,
        key: u32,
        local: Station,
        peer: Hardware,
        options: &Options,
    ) -> io::Result<Grants> {
        self.check(local.interface)?;
        let route = Route {
            peer,
            local: local.hardware.ok_or(NoEthernet::NoAddress)?,
            seal: options.security.seal_len(),
            buffer_log2: Config::default().buffer_log2,
            data: None,
            control: None,
        };
        self.program.direct(key, route)
    }

    /// A listener's part: what strangers ask by its port, as long as it is held.
    ///
    /// # Errors
    /// It is another interface's, there are too many, or the kernel's.
    pub(super) fn listen(&self, interface: u32, port: u16) -> io::Result<Heard> {
        self.check(interface)?;
        self.program.listen(port, true)?;
        Ok(Heard {
            program: self.program.clone(),
            port,
        })
    }

    fn check(&self, interface: u32) -> io::Result<()> {
        match interface == self.interface {
            true => Ok(()),
            false => Err(NoEthernet::OtherDevice.into()),
        }
    }
}

/// A port whose strangers the program lets pass.
#[derive(Debug)]
pub(crate) struct Heard {
    program: Arc<Program>,
    port: u16,
}

impl Drop for Heard {
    fn drop(&mut self) {
        // What nobody reads costs a frame.
        let _ = self.program.listen(self.port, false);
    }
}
