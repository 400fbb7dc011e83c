//! Runs a program in the driver: the receive validation of the thesis in firmware (4, 6.1.3), and the match CAM of the
//! paper on speculative defragmentation (section 7).
//!
//! `xdp/validate.c` is its source, and the kernel loads `xdp/validate.o`. The program knows the keys and grants of
//! connections and the ports of listeners, and drops all other frames before the kernel handles them. Frames that pass
//! go to the AF_XDP socket of their connection, or continue as if there were no program. The connection checks
//! everything again, so a mistake here costs frames and nothing else.

mod areas;
mod grants;
mod layout;
mod link;

pub(crate) use grants::Grants;
pub use layout::XdpCounters;

use crate::address::ethernet::Hardware;
use crate::unavailable::NoXdp;
use areas::Areas;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfLoader};
use layout::{Known, NONE};
use link::{Attachment, Mode};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The object that `.ci/xdp` compiles from `xdp/validate.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../xdp/validate.o");

/// Insert only if the key is new (uapi/linux/bpf.h).
const BPF_NOEXIST: u64 = 1;

/// The settings of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Most connections whose Data it can check, and most sockets.
    pub(crate) slots: u32,
    /// Whether it drops frames of the Scheduled Transfer that belong to nothing it knows; otherwise it passes them on.
    pub(crate) exclusive: bool,
}

/// The ends of a connection that the program checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The hardware addresses.
    pub(crate) peer: Hardware,
    pub(crate) local: Hardware,
    /// Bytes of the seal after each datagram.
    pub(crate) seal: usize,
    /// log2 of the buffer size in this end's address space.
    pub(crate) buffer_log2: u8,
    /// Slots of the sockets for Data and for all other operations; `None`: passed on.
    pub(crate) data: Option<u32>,
    pub(crate) control: Option<u32>,
}

/// A program attached to an interface, until this is dropped or the process ends.
pub(crate) struct Program {
    attachment: Attachment,
    tables: Mutex<Tables>,
    areas: Areas,
}

/// State that changes with connections, listeners and sockets.
struct Tables {
    connections: HashMap<MapData, u32, Known>,
    listeners: HashMap<MapData, u16, u32>,
    sockets: XskMap<MapData>,
    counters: PerCpuArray<MapData, u64>,
    /// Areas without a connection.
    free: Vec<u32>,
}

impl Program {
    /// Attaches to the interface with that index in the network namespace of the calling thread: in its driver if
    /// possible, otherwise in the kernel, which has then made a packet of each frame.
    ///
    /// # Errors
    /// [`NoXdp`].
    pub(crate) fn attach(interface: u32, rules: Rules) -> Result<Program, NoXdp> {
        let mut loaded = EbpfLoader::new()
            .map_max_entries("areas", rules.slots)
            .map_max_entries("sockets", rules.slots)
            .load(OBJECT)
            .map_err(|it| NoXdp::of(&it))?;
        let attachment = run(&mut loaded, interface)?;
        let mut settings: Array<_, u32> = take(&mut loaded, "settings")?;
        settings
            .set(0, u32::from(rules.exclusive), 0)
            .map_err(|it| NoXdp::of(&it))?;
        let Some(Map::Array(areas)) = loaded.take_map("areas") else {
            return Err(missing("areas"));
        };
        let tables = Tables {
            connections: take(&mut loaded, "connections")?,
            listeners: take(&mut loaded, "listeners")?,
            sockets: take(&mut loaded, "sockets")?,
            counters: take(&mut loaded, "counters")?,
            free: (0..rules.slots).rev().collect(),
        };
        Ok(Program {
            attachment,
            tables: Mutex::new(tables),
            areas: Areas::map(areas.fd().as_fd(), rules.slots).map_err(|it| NoXdp::of(&it))?,
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directs frames for `slot` to this AF_XDP socket, which must belong to the queue of the frames.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn place(&self, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let placed = self.tables().sockets.set(slot, socket.as_raw_fd(), 0);
        placed.map_err(io::Error::other)
    }

    /// Checks frames of the connection with this `key` against `route`, and against the grants that the result is told
    /// of, as long as it is held.
    ///
    /// # Errors
    /// There are too many connections, there is no memory for another, or a connection has that key.
    pub(crate) fn direct(self: &Arc<Program>, key: u32, route: Route) -> io::Result<Grants> {
        let mut tables = self.tables();
        let area = tables.free.pop();
        if let Some(area) = area {
            // Without the former connection's grants, from the first frame on.
            self.areas.clear(area);
            self.areas.set_judged(area, true, route.buffer_log2);
        }
        let known = Known {
            peer: route.peer,
            local: route.local,
            seal: u32::try_from(route.seal).unwrap_or(u32::MAX),
            area: area.unwrap_or(NONE),
            sockets: [route.data, route.control].map(|it| it.unwrap_or(NONE)),
        };
        let inserted = tables.connections.insert(key.to_be(), known, BPF_NOEXIST);
        if let Err(error) = inserted {
            tables.free.extend(area);
            return Err(io::Error::other(error));
        }
        Ok(Grants::new(self.clone(), key, area, route.buffer_log2))
    }

    /// Whether a connection has that key.
    pub(crate) fn is_taken(&self, key: u32) -> bool {
        self.tables().connections.get(&key.to_be(), 0).is_ok()
    }

    /// Removes the connection with this `key`.
    fn forget(&self, key: u32, area: Option<u32>) {
        let mut tables = self.tables();
        let _ = tables.connections.remove(&key.to_be());
        tables.free.extend(area);
    }

    /// Passes requests of unauthenticated peers to `port` from now on, or stops doing so.
    ///
    /// # Errors
    /// There are too many listeners, or the kernel refuses.
    pub(crate) fn listen(&self, port: u16, listens: bool) -> io::Result<()> {
        let listeners = &mut self.tables().listeners;
        let changed = match listens {
            true => listeners.insert(port.to_be(), 1, 0),
            false => listeners.remove(&port.to_be()),
        };
        changed.map_err(io::Error::other)
    }

    /// Its counters, summed over all processors.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn counters(&self) -> io::Result<XdpCounters> {
        let counters = &self.tables().counters;
        let mut sums = [0; XdpCounters::COUNT as usize];
        for (index, sum) in (0..).zip(&mut sums) {
            let values = counters.get(&index, 0).map_err(io::Error::other)?;
            *sum = values.iter().sum();
        }
        Ok(XdpCounters::new(sums))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("attachment", &self.attachment)
            .field("areas", &self.areas)
            .finish_non_exhaustive()
    }
}

/// Makes the interface run the loaded program.
fn run(loaded: &mut Ebpf, interface: u32) -> Result<Attachment, NoXdp> {
    let program = loaded.program_mut("validate");
    let program = program.ok_or_else(|| missing("validate"))?;
    let program: &mut Xdp = program
        .try_into()
        .map_err(|it: ProgramError| NoXdp::of(&it))?;
    program.load().map_err(|it| NoXdp::of(&it))?;
    let program = program.fd().map_err(|it| NoXdp::of(&it))?;
    let attach = |mode| Attachment::new(program, interface, mode).map_err(|it| NoXdp::of(&it));
    match attach(Mode::Driver) {
        Err(NoXdp::Refused(_)) => attach(Mode::Generic),
        done => done,
    }
}

fn missing(what: &str) -> NoXdp {
    NoXdp::Refused(format!("the object has no {what}"))
}

fn take<M: TryFrom<Map, Error = MapError>>(loaded: &mut Ebpf, name: &str) -> Result<M, NoXdp> {
    let map = loaded.take_map(name).ok_or_else(|| missing(name))?;
    M::try_from(map).map_err(|it| NoXdp::of(&it))
}

#[cfg(test)]
mod tests;
