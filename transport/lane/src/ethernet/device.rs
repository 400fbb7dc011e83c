//! Opens an interface as a device that its connections share, like a context in verbs.

use super::afxdp::{Queues, Shared};
use super::xdp::{Grants, Program, Route, Rules};
use super::{filter, socket};
use crate::address;
use crate::address::ethernet::{Hardware, Station};
use crate::ethernet::{DeviceOptions, XdpCounters};
use crate::unavailable::{NoBypass, NoEthernet};
use std::io;
use std::sync::Arc;
use zerolane_core::Config;

/// Most connections of a device.
const MAX_CONNECTIONS: u32 = 1024;

/// An interface for raw Ethernet with a program in its driver. The program drops frames that none of this process's
/// connections granted, before the kernel handles them. Other frames of these connections come and leave by AF_XDP:
/// past the kernel's network stack, in memory shared with it. Pass it to connections and listeners by
/// [`LaneOptions::device`](crate::options::LaneOptions::device).
///
/// The program and the memory are released with the device and the last of its connections, or when the process ends. A
/// child of fork does not have the device. Needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW.
#[derive(Debug)]
pub struct EthernetDevice {
    interface: u32,
    program: Option<Arc<Program>>,
    shared: Option<Arc<Shared>>,
    refused: Option<NoEthernet>,
    falls_back: bool,
}

impl EthernetDevice {
    /// Opens the interface of that name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NoEthernet`]: there is no such interface, or AF_XDP is refused. [`NoXdp`](crate::unavailable::NoXdp): the interface has a
    /// program already, or this process or kernel may not run one. With [`DeviceOptions::fall_back`] the refusals are
    /// not errors.
    pub fn open(interface: &str, options: DeviceOptions) -> io::Result<Arc<EthernetDevice>> {
        let (interface, _) = address::ethernet::link(interface)?;
        let (socket, _) = socket::open(interface, &filter::of_nobody())?;
        let mtu = socket::path_datagram(&socket, interface)?;
        let options = DeviceOptions {
            max_connections: options.max_connections.clamp(1, MAX_CONNECTIONS),
            ..options
        };
        let mut device = EthernetDevice {
            interface,
            program: None,
            shared: None,
            refused: None,
            falls_back: options.fall_back,
        };
        match device.set_up(mtu, &options) {
            Ok(()) => {}
            Err(why) if !options.fall_back => return Err(why.into()),
            Err(why) => {
                // Leave no part of it at the interface.
                device.program = None;
                device.refused = Some(why);
            }
        }
        Ok(Arc::new(device))
    }

    fn set_up(&mut self, mtu: usize, options: &DeviceOptions) -> Result<(), NoEthernet> {
        let rules = Rules {
            slots: options.max_connections,
            exclusive: options.exclusive,
        };
        let program = Program::attach(self.interface, rules).map_err(NoEthernet::Program)?;
        let program = self.program.insert(Arc::new(program));
        if let Some(queue) = options.queue {
            let queue = (self.interface, queue);
            let shared = Shared::open(queue, mtu, options, program.clone())?;
            self.shared = Some(Arc::new(shared));
        }
        Ok(())
    }

    /// Why AF_XDP or the program is not used, although it was requested.
    pub fn refused(&self) -> Option<&NoEthernet> {
        self.refused.as_ref()
    }

    /// Whether frames come and leave by AF_XDP.
    pub fn has_bypass(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether the driver itself reads and writes the memory; otherwise the kernel copies each frame once more.
    pub fn is_zero_copy(&self) -> bool {
        self.shared.as_ref().is_some_and(|it| it.is_zero_copy())
    }

    /// What the program passed and dropped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<XdpCounters> {
        match &self.program {
            Some(program) => program.counters(),
            None => Ok(XdpCounters::default()),
        }
    }

    /// The queues of a connection between these hardware addresses, this host's first; or none if packet sockets must
    /// do.
    ///
    /// # Errors
    /// [`NoEthernet`]: the device belongs to another interface, or is full.
    pub(crate) fn line(&self, interface: u32, ends: (Hardware, Hardware)) -> io::Result<Line> {
        self.check(interface)?;
        match self.shared.as_ref().map(|it| it.line(ends)) {
            Some(Err(why)) if self.falls_back => Ok(Line::None(Some(NoBypass::of(&why)))),
            Some(line) => Ok(Line::Queues(Box::new(line?))),
            None => Ok(Line::None(self.refused.as_ref().map(NoBypass::of))),
        }
    }

    /// Whether the program has a connection with that key, so that another must not draw it.
    pub(crate) fn is_taken(&self, key: u32) -> bool {
        self.program.as_ref().is_some_and(|it| it.is_taken(key))
    }

    /// Registers the connection with `key` between `local` and the host with the hardware address `peer`, whose line is
    /// in `slot`, with `seal` bytes after each datagram.
    ///
    /// # Errors
    /// [`NoEthernet`]: the device belongs to another interface, or has too many connections.
    pub(crate) fn direct(
        &self,
        key: u32,
        (local, peer): (Station, Hardware),
        slot: Option<u32>,
        seal: usize,
    ) -> io::Result<Option<Grants>> {
        self.check(local.interface)?;
        let route = Route {
            peer,
            local: local.hardware.ok_or(NoEthernet::NoAddress)?,
            seal,
            buffer_log2: Config::default().buffer_log2,
            data: slot,
            control: slot,
        };
        let program = self.program.as_ref();
        let grants = program.map(|it| it.direct(key, route)).transpose();
        grants.map_err(|_| NoEthernet::Full.into())
    }

    /// Passes requests of unauthenticated peers to `port`, as long as the result is held.
    ///
    /// # Errors
    /// The device belongs to another interface, there are too many listeners, or the kernel refuses.
    pub(crate) fn listen(&self, interface: u32, port: u16) -> io::Result<Option<Heard>> {
        self.check(interface)?;
        let Some(program) = self.program.clone() else {
            return Ok(None);
        };
        program.listen(port, true)?;
        Ok(Some(Heard { program, port }))
    }

    /// Checks that connections may have this many `paths`.
    ///
    /// # Errors
    /// [`NoEthernet::OnePath`]: there is a program, which does not know grants of other paths.
    pub(crate) fn permit(&self, paths: u8) -> io::Result<()> {
        match self.program.is_some() && paths > 1 {
            true => Err(NoEthernet::OnePath.into()),
            false => Ok(()),
        }
    }

    fn check(&self, interface: u32) -> io::Result<()> {
        match interface == self.interface {
            true => Ok(()),
            false => Err(NoEthernet::OtherDevice.into()),
        }
    }
}

/// A connection's part of its device.
pub(crate) enum Line {
    Queues(Box<Queues>),
    /// Packet sockets must do: why, if queues were requested.
    None(Option<NoBypass>),
}

/// A port to which the program passes requests of unauthenticated peers.
#[derive(Debug)]
pub(crate) struct Heard {
    program: Arc<Program>,
    port: u16,
}

impl Drop for Heard {
    fn drop(&mut self) {
        // If it fails, the port costs a frame now and then that nothing reads.
        let _ = self.program.listen(self.port, false);
    }
}
