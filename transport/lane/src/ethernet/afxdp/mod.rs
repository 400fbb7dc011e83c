//! Exchanges frames with one queue of an interface by AF_XDP, in memory shared with the kernel.
//!
//! ```text
//!   UMEM  [ receive chunks of all | transmit frames of line 0 | of line 1 | ... ]
//!
//!   kernel -- receive ring of a line --> its connection -- fill ring, one for all ------> kernel
//!   its connection -- transmit ring of its line --> kernel -- completion ring, one for all --> back to that line
//! ```
//!
//! Each connection has a *line*: a socket of its own with a receive and a transmit ring. So the program in the driver
//! finds it by the connection's key, and the kernel wakes the thread that waits for it. Sockets of one queue share
//! their memory and, in the kernel's design, the two other rings; a lock protects those. A line has as many receive
//! chunks as its ring has entries, so that a connection that does not read its ring takes nothing from another, and
//! transmit frames of its own.
//!
//! Lines are never closed before the device: the next connection reuses one. Otherwise the chunks that the kernel had
//! put in the ring would be lost.

mod line;
mod ring;
pub(crate) mod system;
mod umem;

pub(crate) use line::{Incoming, Queues};

use super::device_options::DeviceOptions;
use super::xdp::Program;
use crate::address::ethernet::Hardware;
use crate::memory::Mapping;
use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering};
use crate::unavailable::NoEthernet;
use line::Line;
use ring::Ring;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use umem::{Layout, Umem};

/// Socket options that libc does not name.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// How long a system call may poll the driver, in microseconds.
const BUSY_POLL: i32 = 20;

/// State shared by all lines of a device.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Holds the memory, and is closed after the lines. Nothing is sent or received by it.
    base: OwnedFd,
    umem: Umem,
    offsets: Offsets,
    zero_copy: bool,
    busy_poll: Option<u16>,
    /// The index of the interface, and of the queue.
    queue: (u32, u32),
    /// Chunks of each transmit frame that the kernel holds.
    sent: Box<[AtomicU8]>,
    pool: Mutex<Pool>,
    program: Arc<Program>,
}

/// Offsets of each ring's words.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    receive: libc::xdp_ring_offset,
    transmit: libc::xdp_ring_offset,
}

/// State that the lines' lock protects.
#[derive(Debug)]
struct Pool {
    fill: Ring<u64>,
    completion: Ring<u64>,
    /// Returned transmit frames, for each line.
    free: Vec<Vec<u32>>,
    /// Lines that connections left.
    idle: Vec<Line>,
    /// Slots of lines that were not made yet.
    slots: Vec<u32>,
}

impl Shared {
    /// Opens `queue`, given as the index of an interface and of its queue, with frames for datagrams of up to `mtu`
    /// bytes; `program` directs frames to its lines.
    ///
    /// # Errors
    /// [`NoEthernet::Refused`]: the part that the system refused.
    pub(super) fn open(
        queue: (u32, u32),
        mtu: usize,
        options: &DeviceOptions,
        program: Arc<Program>,
    ) -> Result<Shared, NoEthernet> {
        let split = Layout::of(mtu, options.max_connections);
        let base = match Base::open(queue, split, libc::XDP_ZEROCOPY) {
            Ok(base) => base,
            // It would fail in any mode.
            Err(
                why @ NoEthernet::Refused {
                    errno: libc::EBUSY, ..
                },
            ) => return Err(why),
            Err(why) if options.zero_copy => {
                return Err(match why {
                    NoEthernet::Refused {
                        errno: libc::EOPNOTSUPP,
                        ..
                    } => NoEthernet::Copies,
                    why => why,
                });
            }
            Err(_) => {
                // A kernel without overlapping chunks gets separate ones.
                let joined = split.joined();
                let joined = joined.and_then(|it| Base::open(queue, it, libc::XDP_COPY).ok());
                joined.map_or_else(|| Base::open(queue, split, libc::XDP_COPY), Ok)?
            }
        };
        let Base {
            socket: base,
            umem,
            offsets,
            fill,
            completion,
            zero_copy,
        } = base;
        let layout = umem.layout;
        let frames = (layout.lines * layout.frames) as usize;
        Ok(Shared {
            base,
            umem,
            offsets: Offsets {
                receive: offsets.rx,
                transmit: offsets.tx,
            },
            zero_copy,
            busy_poll: options.busy_poll,
            queue,
            sent: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            pool: Mutex::new(Pool {
                fill,
                completion,
                free: vec![Vec::new(); layout.lines as usize],
                idle: Vec::new(),
                slots: (0..layout.lines).rev().collect(),
            }),
            program,
        })
    }

    fn layout(&self) -> &Layout {
        &self.umem.layout
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Ignores poison: no holder of the lock panics, and each step leaves the state whole.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the driver itself reads and writes the memory.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// A line for a connection between these hardware addresses, this host's first.
    ///
    /// # Errors
    /// [`NoEthernet::Full`], or the part that the system refused.
    pub(super) fn line(
        self: &Arc<Shared>,
        ends: (Hardware, Hardware),
    ) -> Result<Queues, NoEthernet> {
        let line = self.pool().idle.pop();
        let line = match line {
            Some(line) => line,
            None => self.make_line()?,
        };
        Ok(Queues::new(Arc::clone(self), line, ends))
    }

    fn make_line(&self) -> Result<Line, NoEthernet> {
        let slot = self.pool().slots.pop().ok_or(NoEthernet::Full)?;
        self.new_line(slot).map_err(|error| {
            // The program directs nothing to a line before it is complete, so the kernel holds none of its frames.
            self.pool().slots.push(slot);
            NoEthernet::refused("a socket", &error)
        })
    }

    fn new_line(&self, slot: u32) -> io::Result<Line> {
        let layout = self.layout();
        let socket = system::socket()?;
        let fd = socket.as_fd();
        system::set(fd, libc::XDP_RX_RING, &layout.receive_ring())?;
        system::set(fd, libc::XDP_TX_RING, &layout.transmit_ring())?;
        let rx = ring(fd, self.offsets.receive, layout.receive_ring(), RECEIVE)?;
        let tx = ring(fd, self.offsets.transmit, layout.transmit_ring(), TRANSMIT)?;
        if let Some(budget) = self.busy_poll {
            system::set_at(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
            system::set_at(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &BUSY_POLL)?;
            let budget = i32::from(budget);
            system::set_at(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget)?;
        }
        let shares = Some(self.base.as_fd());
        system::bind(fd, self.queue, libc::XDP_SHARED_UMEM, shares)?;
        self.program.place(slot, fd)?;
        Ok(Line::new(slot, socket, rx, tx, layout.frames_of(slot)))
    }

    /// Lets the kernel write to `chunks` again.
    fn give_back(&self, chunks: &[u64]) {
        if chunks.is_empty() {
            return;
        }
        let mut pool = self.pool();
        // The ring has room for all chunks.
        for chunk in chunks {
            pool.fill.write(*chunk);
        }
        pool.fill.publish();
    }

    /// Appends the returned transmit frames of line `slot` to `free`.
    fn take_free(&self, slot: u32, free: &mut Vec<u32>) {
        let layout = self.layout();
        let mut pool = self.pool();
        let Pool {
            completion,
            free: all,
            ..
        } = &mut *pool;
        while let Some(address) = completion.take() {
            let Some(frame) = layout.frame_at(address) else {
                continue;
            };
            let sent = &self.sent[frame as usize];
            if sent.fetch_sub(1, Ordering::Relaxed) == 1 {
                all[(frame / layout.frames) as usize].push(frame);
            }
        }
        completion.release();
        free.append(&mut all[slot as usize]);
    }
}

/// The socket that holds the memory, bound to the queue.
struct Base {
    socket: OwnedFd,
    umem: Umem,
    offsets: libc::xdp_mmap_offsets,
    fill: Ring<u64>,
    completion: Ring<u64>,
    zero_copy: bool,
}

impl Base {
    /// Binds to `queue`, with memory of this `layout`. `mode`: XDP_ZEROCOPY, in which the driver itself uses the
    /// memory, or XDP_COPY.
    ///
    /// # Errors
    /// [`NoEthernet::Refused`]: the part that the system refused.
    fn open(queue: (u32, u32), layout: Layout, mode: u16) -> Result<Base, NoEthernet> {
        let refused = |what: &'static str| move |error| NoEthernet::refused(what, &error);
        let socket = system::socket().map_err(refused("a socket"))?;
        let umem = Umem::new(layout).map_err(refused("memory"))?;
        umem.register(socket.as_fd())
            .map_err(refused("memory shared with the kernel"))?;
        let rings = || {
            let socket = socket.as_fd();
            system::set(socket, libc::XDP_UMEM_FILL_RING, &layout.fill_ring())?;
            let completion = layout.completion_ring();
            system::set(socket, libc::XDP_UMEM_COMPLETION_RING, &completion)?;
            // A bound socket needs a ring of its own. The program does not know this socket.
            system::set(socket, libc::XDP_RX_RING, &1u32)?;
            let offsets = offsets(socket)?;
            let fill = ring(socket, offsets.fr, layout.fill_ring(), FILL)?;
            let completion = ring(socket, offsets.cr, completion, COMPLETION)?;
            io::Result::Ok((offsets, fill, completion))
        };
        let (offsets, mut fill, completion) = rings().map_err(refused("rings"))?;
        for chunk in layout.receive_chunks() {
            fill.write(chunk);
        }
        fill.publish();
        let pieces = match layout.chunks > 1 {
            true => libc::XDP_USE_SG,
            false => 0,
        };
        let flags = libc::XDP_USE_NEED_WAKEUP | pieces | mode;
        bind_once_it_is_free(socket.as_fd(), queue, flags)
            .map_err(refused("the interface's queue"))?;
        Ok(Base {
            socket,
            umem,
            offsets,
            fill,
            completion,
            zero_copy: mode == libc::XDP_ZEROCOPY,
        })
    }
}

/// How long a queue that was just closed may stay taken.
const TAKEN_BACK: Duration = Duration::from_secs(2);

/// Binds `socket` to a queue. The kernel releases a queue some time after its socket is closed, and not before children
/// that other threads forked have closed their copies.
///
/// # Errors
/// The kernel's. EBUSY: another socket has it.
fn bind_once_it_is_free(socket: BorrowedFd<'_>, queue: (u32, u32), flags: u16) -> io::Result<()> {
    let end = Instant::now() + TAKEN_BACK;
    loop {
        match system::bind(socket, queue, flags, None) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}

/// Offsets of the rings in a socket's mappings.
const RECEIVE: u64 = libc::XDP_PGOFF_RX_RING.cast_unsigned();
const TRANSMIT: u64 = libc::XDP_PGOFF_TX_RING.cast_unsigned();
const FILL: u64 = libc::XDP_UMEM_PGOFF_FILL_RING;
const COMPLETION: u64 = libc::XDP_UMEM_PGOFF_COMPLETION_RING;

fn ring<T: Copy>(
    socket: BorrowedFd<'_>,
    offsets: libc::xdp_ring_offset,
    len: u32,
    which: u64,
) -> io::Result<Ring<T>> {
    let bytes = Ring::<T>::bytes(&offsets, len);
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    let memory = Mapping::new(bytes, flags, Some((socket, which)))?;
    Ok(Ring::new(memory, offsets, len))
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let none = libc::xdp_ring_offset {
        producer: 0,
        consumer: 0,
        desc: 0,
        flags: 0,
    };
    let zero = libc::xdp_mmap_offsets {
        rx: none,
        tx: none,
        fr: none,
        cr: none,
    };
    system::get(socket, libc::XDP_MMAP_OFFSETS, zero)
}
