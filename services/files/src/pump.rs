//! Drives the connection: posts submitted and released buffers, reports completed ones.

use crate::error::Error;
use crate::limits::{
    BUFFER_BYTES, CONTROL_BUFFERS, CONTROL_BYTES, DATA_BUFFERS, MAX_DATA_BUFFERS,
    MICROSECONDS_PER_BUFFER, PUMP_WAIT_MILLISECONDS, STALL_SECONDS,
};
use crate::port::{Buffer, Filled, Port, PortCounters, PumpEnd, port};
use crate::stop::Stop;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};
use zerolane::request::InOrder;
use zerolane::{Completion, Connection, Region, RequestId};

/// The number and size of buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Count at first, and while the round trip is short.
    pub(crate) count: usize,
    /// Most buffers if the round trip is long.
    pub(crate) most: usize,
    pub(crate) bytes: usize,
}

/// Buffers for data, which a sender sends and a receiver receives.
pub(crate) const DATA: Ring = Ring {
    count: DATA_BUFFERS,
    most: MAX_DATA_BUFFERS,
    bytes: BUFFER_BYTES,
};
/// Buffers for feedback, in the other direction.
pub(crate) const CONTROL: Ring = Ring {
    count: CONTROL_BUFFERS,
    most: CONTROL_BUFFERS,
    bytes: CONTROL_BYTES,
};

impl Ring {
    fn allocate(self) -> Result<Vec<Buffer>, Error> {
        let buffers = (0..self.count).map(|_| self.buffer());
        buffers.collect::<Option<_>>().ok_or(Error::NoMemory)
    }

    fn buffer(self) -> Option<Buffer> {
        Region::anonymous(self.bytes).ok()
    }

    /// Allocates another buffer, if `round_trip` needs more than the present ones and there is memory.
    fn grow(&mut self, round_trip: Duration) -> Option<Buffer> {
        let more = round_trip.as_micros() / MICROSECONDS_PER_BUFFER;
        let wanted = usize::try_from(more).map_or(self.most, |more| more + DATA_BUFFERS);
        if self.count >= wanted.min(self.most) {
            return None;
        }
        let buffer = self.buffer()?;
        self.count += 1;
        Some(buffer)
    }
}

/// Watches a connection while it is driven.
pub(crate) trait Watch {
    /// Called regularly while nothing completes, with the number of datagrams received so far.
    ///
    /// # Errors
    /// The reason to end the connection.
    fn look(&mut self, datagrams_received: u64) -> Result<(), Error>;
}

/// Watches nothing.
impl Watch for () {
    fn look(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }
}

/// Runs `work`, which reads or writes files, on a thread of its own while this one drives the
/// connection for it.
pub(crate) fn run<T: Send>(
    connection: &mut Connection,
    outgoing: Ring,
    incoming: Ring,
    stop: &Stop,
    work: impl FnOnce(Port) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    run_watched(connection, (outgoing, incoming), stop, &mut (), work)
}

/// Like [`run`], with a watcher of the connection.
pub(crate) fn run_watched<T: Send>(
    connection: &mut Connection,
    rings: (Ring, Ring),
    stop: &Stop,
    watch: &mut dyn Watch,
    work: impl FnOnce(Port) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let context = (stop, watch, Arc::default());
    drive(connection, Vec::new(), rings, context, work)
}

/// Like [`run`], counted by `counters`, and with earlier sends still in flight.
pub(crate) fn run_counted<T: Send>(
    connection: &mut Connection,
    said: Vec<RequestId>,
    rings: (Ring, Ring),
    (stop, counters): (&Stop, Arc<PortCounters>),
    work: impl FnOnce(Port) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    drive(connection, said, rings, (stop, &mut (), counters), work)
}

fn drive<T: Send>(
    connection: &mut Connection,
    said: Vec<RequestId>,
    (outgoing, incoming): (Ring, Ring),
    (stop, watch, counters): (&Stop, &mut dyn Watch, Arc<PortCounters>),
    work: impl FnOnce(Port) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let waker = connection.waker();
    let (outgoing_buffers, incoming_buffers) = (outgoing.allocate()?, incoming.allocate()?);
    let wake = move || waker.wake();
    let ended = Arc::clone(&counters);
    let (port, end) = port(outgoing_buffers, incoming_buffers, counters, wake);
    let port = port.heeding(stop);
    let rings = Rings { outgoing, incoming };
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("files".into())
            .spawn_scoped(scope, move || work(port))
            .map_err(|_| Error::NoThread)?;
        let pumped = Pump::new(connection, said, end, rings, (stop, watch)).run();
        ended.end();
        let worked = worker.join().unwrap_or(Err(Error::Internal));
        match (pumped, worked) {
            // The worker only sees that the connection has ended; the pump knows the reason.
            (Err(error), Err(Error::PeerGone)) => Err(error),
            // This includes a connection that failed after the work was done: a peer that has everything may close
            // first.
            (_, worked) => worked,
        }
    })
}

/// The buffers allocated so far.
struct Rings {
    outgoing: Ring,
    incoming: Ring,
}

struct Pump<'a> {
    connection: &'a mut Connection,
    end: PumpEnd,
    rings: Rings,
    stop: &'a Stop,
    watch: &'a mut dyn Watch,
    sending: VecDeque<Sending>,
    /// Posted receives, in the order of the peer's sends.
    receiving: InOrder<Filled>,
    /// When a Transfer was last sent or received, or nothing was being sent. A peer that sends is at work.
    moved: Instant,
}

/// A send in flight.
struct Sending {
    id: RequestId,
    /// The rest of its buffer; `None` if the buffer is not the file side's.
    rest: Option<Region>,
}

fn said_before(id: RequestId) -> Sending {
    Sending { id, rest: None }
}

impl<'a> Pump<'a> {
    fn new(
        connection: &'a mut Connection,
        said: Vec<RequestId>,
        end: PumpEnd,
        rings: Rings,
        (stop, watch): (&'a Stop, &'a mut dyn Watch),
    ) -> Pump<'a> {
        Pump {
            connection,
            end,
            rings,
            stop,
            watch,
            sending: said.into_iter().map(said_before).collect(),
            receiving: InOrder::default(),
            moved: Instant::now(),
        }
    }

    /// Drives the connection until the file side has ended and all submitted buffers were sent.
    fn run(mut self) -> Result<(), Error> {
        let driven = self.drive();
        // A copy that failed or was stopped cancels its sends, so that the connection can be closed at once, and the
        // peer need not wait for its timeout.
        for sending in &self.sending {
            self.connection.cancel(sending.id);
        }
        driven
    }

    fn drive(&mut self) -> Result<(), Error> {
        let longest = Duration::from_millis(PUMP_WAIT_MILLISECONDS);
        // On a long path much can be in flight before the first completion.
        self.grow()?;
        loop {
            self.post_released()?;
            let working = self.post_submitted()?;
            if !working && self.sending.is_empty() {
                return Ok(());
            }
            match self.connection.wait(Some(longest))?.got() {
                Some(completion) => {
                    self.complete(completion)?;
                    self.grow()?;
                }
                None => self.check()?,
            }
        }
    }

    /// Adds buffers if the path is longer than assumed.
    fn grow(&mut self) -> Result<(), Error> {
        let Some(round_trip) = self.connection.account().path.min_rtt else {
            return Ok(());
        };
        while let Some(buffer) = self.rings.outgoing.grow(round_trip) {
            self.end.events.add(buffer);
        }
        while let Some(buffer) = self.rings.incoming.grow(round_trip) {
            self.receive_into(buffer)?;
        }
        Ok(())
    }

    fn post_released(&mut self) -> Result<(), Error> {
        while let Ok(buffer) = self.end.released.try_recv() {
            self.receive_into(buffer)?;
        }
        Ok(())
    }

    fn receive_into(&mut self, buffer: Buffer) -> Result<(), Error> {
        let id = self.connection.post_recv(buffer);
        let id = id.map_err(zerolane::Error::from)?;
        self.receiving.posted(id);
        Ok(())
    }

    /// Posts submitted buffers; returns whether more may come.
    fn post_submitted(&mut self) -> Result<bool, Error> {
        loop {
            match self.end.outgoing.try_recv() {
                Ok(filled) => self.send(filled)?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn send(&mut self, filled: Filled) -> Result<(), Error> {
        let Filled { mut buffer, len } = filled;
        let rest = buffer.split_off(len);
        let id = self.connection.post_send(buffer);
        let id = id.map_err(zerolane::Error::from)?;
        if self.sending.is_empty() {
            self.moved = Instant::now();
        }
        let rest = Some(rest);
        self.sending.push_back(Sending { id, rest });
        Ok(())
    }

    /// Checks whether to continue although nothing completed.
    fn check(&mut self) -> Result<(), Error> {
        self.stop.check()?;
        self.watch
            .look(self.connection.account().datagrams_received)?;
        let stalled = self.moved.elapsed() > Duration::from_secs(STALL_SECONDS);
        match stalled && !self.sending.is_empty() {
            true => Err(Error::Stalled),
            false => Ok(()),
        }
    }

    fn complete(&mut self, completion: Completion) -> Result<(), Error> {
        let id = completion.id;
        let len = match &completion.result {
            Ok(len) => *len,
            Err(error) => return Err(zerolane::Error::Transfer(*error).into()),
        };
        let mut buffer = completion.into_region()?;
        if let Some(at) = self.sending.iter().position(|sending| sending.id == id) {
            self.moved = Instant::now();
            if let Some(Sending {
                rest: Some(rest), ..
            }) = self.sending.remove(at)
            {
                buffer.unsplit(rest).map_err(|_| Error::Internal)?;
                self.end.events.sent(buffer, len);
            }
        } else {
            self.moved = Instant::now();
            self.arrived(id, Filled { buffer, len });
        }
        Ok(())
    }

    /// Passes on received Transfers, in the order in which they were sent.
    fn arrived(&mut self, id: RequestId, filled: Filled) {
        self.receiving.completed(id, filled);
        while let Some(filled) = self.receiving.pop() {
            self.end.events.arrived(filled);
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
pub(crate) mod tests;
