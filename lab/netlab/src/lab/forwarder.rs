//! Runs the lab's thread: one loop over all ports.

use super::clock::Clock;
use super::frame::{self, Frame};
use super::port::{BATCH_FRAMES, Port, Received, Room};
use super::switch::Departure;
use super::{MAX_IN_FLIGHT_BYTES, State};
use crate::worker::Shared;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::unistd::{Pid, gettid};
use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The shortest sleep: what falls due within it is put out together, as by a
/// network card that waits some tens of microseconds before it interrupts.
/// With 20 us it took a tenth of a core more.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);

/// Frames taken from all ports before due frames are put out.
const ROUND_FRAMES: usize = 8 * BATCH_FRAMES;

/// Frames put out at once: frames that follow each other leave in one piece.
const OUT_FRAMES: usize = 128;

/// Buffers kept for frames to come.
const SPARE_BUFFERS: usize = 8192;

#[derive(Debug)]
pub(super) struct Forwarder {
    ports: Vec<Port>,
    shared: Arc<Shared<State>>,
    clock: Clock,
    room: Room,
    /// Buffers without a frame.
    spare: Vec<Vec<u8>>,
    longest_frame_bytes: usize,
    core: Option<usize>,
    /// Between two looks at ports while frames are in flight.
    moderation: Option<Duration>,
}

/// A frame, the port it is from and when it was sent.
struct Sent {
    at: Duration,
    from: usize,
    frame: Frame,
}

impl Forwarder {
    /// Runs on `core`, or on any core that the system chooses; puts frames out together as `moderation` says.
    pub(super) fn new(
        ports: Vec<Port>,
        shared: Arc<Shared<State>>,
        (core, moderation): (Option<usize>, Option<Duration>),
    ) -> Self {
        let longest = ports.iter().map(Port::frame_bytes).max();
        Self {
            longest_frame_bytes: longest.unwrap_or_default(),
            ports,
            shared,
            clock: Clock::start(),
            room: Room::new(),
            spare: Vec::new(),
            core,
            moderation,
        }
    }

    /// Carries frames until told to stop, or until a socket fails.
    pub(super) fn run(mut self) -> io::Result<()> {
        // Sleeps end when they should, not up to 50 us later.
        prctl::set_timerslack(1)?;
        if let Some(core) = self.core {
            stay_on(core)?;
        }
        put_first();
        let mut frames = Vec::new();
        while !self.shared.is_stopping() {
            let started = self.clock.now();
            self.take(&mut frames)?;
            self.enter(&mut frames);
            self.put_out(started);
            self.sleep()?;
        }
        Ok(())
    }

    /// Takes what the hosts sent, in the order in which they sent it.
    fn take(&mut self, frames: &mut Vec<Sent>) -> io::Result<()> {
        let mut received = Vec::new();
        for from in self.readable()? {
            let port = &self.ports[from];
            while received.len() < ROUND_FRAMES {
                let taken = port.receive(&mut self.room, &mut self.spare, &mut received)?;
                if let Some(missed) = taken.missed {
                    self.shared.state().missed[from] = missed;
                }
                if taken.unknown > 0 {
                    self.shared.state().unsent += taken.unknown;
                }
                if taken.pieces < BATCH_FRAMES {
                    break;
                }
            }
            let moment = self.clock.moment();
            frames.extend(received.drain(..).map(|Received { frame, stamp }| Sent {
                at: moment.time_of(stamp),
                from,
                frame,
            }));
        }
        frames.sort_by_key(|frame| frame.at);
        Ok(())
    }

    /// The ports at which frames wait. Most of many have none, and asking for each costs more than
    /// asking for all together.
    fn readable(&self) -> io::Result<Vec<usize>> {
        let ports = self.ports.iter();
        let mut fds: Vec<PollFd<'_>> = ports
            .map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let readable = (0..fds.len()).filter(|&port| fds[port].any().unwrap_or(true));
        Ok(readable.collect())
    }

    fn enter(&mut self, frames: &mut Vec<Sent>) {
        if frames.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        let most = MAX_IN_FLIGHT_BYTES / self.longest_frame_bytes.max(1);
        for Sent { at, from, frame } in frames.drain(..) {
            if state.switch.in_flight() >= most {
                state.overflowed += 1;
                continue;
            }
            let to = frame::destination(&frame.bytes, state.switch.ports());
            let size = frame::size_bytes(&frame.bytes);
            state.switch.send(at, from, to, size, frame);
        }
    }

    /// Puts out what was due at `now`, batch by batch.
    fn put_out(&mut self, now: Duration) {
        let mut batch = Vec::with_capacity(OUT_FRAMES);
        loop {
            self.pop_due(now, &mut batch);
            if batch.is_empty() {
                return;
            }
            let unsent = self.send(&batch);
            self.account(&batch, unsent);
            let free = SPARE_BUFFERS.saturating_sub(self.spare.len());
            let buffers = batch.drain(..).map(|left| left.arrival.packet.bytes);
            self.spare.extend(buffers.take(free));
            batch.clear();
        }
    }

    /// The next frames due by port, marked where the link says so.
    fn pop_due(&self, now: Duration, batch: &mut Vec<Departure<Frame>>) {
        let mut state = self.shared.state();
        while batch.len() < OUT_FRAMES {
            let Some(mut departure) = state.switch.pop_due(now) else {
                break;
            };
            if departure.arrival.marked {
                frame::mark(&mut departure.arrival.packet.bytes);
            }
            batch.push(departure);
        }
        // Stable: what goes to one port keeps its order.
        batch.sort_by_key(|departure| departure.port);
    }

    /// Sends a batch that is in order of ports; returns how many frames the
    /// kernel did not take.
    fn send(&self, batch: &[Departure<Frame>]) -> u64 {
        batch
            .chunk_by(|one, next| one.port == next.port)
            .map(|chunk| {
                let frames: Vec<&Frame> = chunk
                    .iter()
                    .map(|departure| &departure.arrival.packet)
                    .collect();
                self.ports[chunk[0].port].send(&frames)
            })
            .sum()
    }

    fn account(&self, batch: &[Departure<Frame>], unsent: u64) {
        let now = self.clock.now();
        let mut state = self.shared.state();
        state.unsent += unsent;
        for departure in batch {
            let late = now.saturating_sub(departure.arrival.due);
            state.delays.record(late);
        }
    }

    /// Sleeps until there is something to do.
    ///
    /// With nothing in flight, the next frame ends the sleep. Otherwise frames
    /// that come meanwhile need no look before the shortest delay has passed:
    /// they are not due earlier, and they carry their stamps.
    fn sleep(&self) -> io::Result<()> {
        let (next, delay) = {
            let state = self.shared.state();
            (state.switch.next_event(), state.switch.shortest_delay())
        };
        let Some(next) = next else {
            return self.wait(None, &self.ports);
        };
        let shortest = self.moderation.unwrap_or(SHORTEST_SLEEP);
        let until_next = next.saturating_sub(self.clock.now()).max(shortest);
        if delay > shortest {
            self.wait(Some(until_next.min(delay)), &[])
        } else if self.moderation.is_some() {
            // What comes meanwhile is late by no more than that.
            self.wait(Some(shortest), &[])
        } else {
            self.wait(Some(until_next), &self.ports)
        }
    }

    /// Waits for a frame at one of `ports`, a wake-up, or until the time is up.
    fn wait(&self, timeout: Option<Duration>, ports: &[Port]) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.shared.wake_fd())
            .chain(ports.iter().map(Port::as_fd))
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].any().unwrap_or(false) {
            self.shared.woken();
        }
        Ok(())
    }
}

/// Keeps this thread on a core.
fn stay_on(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    const THIS_THREAD: Pid = Pid::from_raw(0);
    Ok(sched_setaffinity(THIS_THREAD, &cores)?)
}

/// Lets this thread run as soon as it has something to do, before all others
/// on the core: a wait for the core would look like delay of the network. It
/// sleeps in every round, so it does not starve the others. Without the right to
/// do so, the reported lateness shows it.
fn put_first() {
    let thread = gettid().to_string();
    let _ = Command::new("chrt")
        .args(["--fifo", "--pid", "1", &thread])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
