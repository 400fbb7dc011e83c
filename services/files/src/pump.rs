//! Drives the connection: posts what the file side submits and releases, tells it what was sent and
//! has arrived.

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
use zerolane::{Completion, Connection, Region, TransferId};

/// How many buffers of how many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// At first, and while the round trip is short.
    pub(crate) count: usize,
    /// If the round trip is long.
    pub(crate) most: usize,
    pub(crate) bytes: usize,
}

/// Data goes out (at a sender) or comes in (at a receiver) in these.
pub(crate) const DATA: Ring = Ring {
    count: DATA_BUFFERS,
    most: MAX_DATA_BUFFERS,
    bytes: BUFFER_BYTES,
};
/// Feedback goes the other way in these.
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

    /// One more, if `round_trip` is longer than the present ones cover and there is memory for it.
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

/// Looks after a connection while it is driven.
pub(crate) trait Watch {
    /// Told every now and then while nothing completes: how many datagrams came so far.
    ///
    /// # Errors
    /// What the connection is to be ended with.
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

/// The same, with somebody who looks after the connection.
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

/// The same, counted by `counters`, while what was said before is still on its way.
pub(crate) fn run_counted<T: Send>(
    connection: &mut Connection,
    said: Vec<TransferId>,
    rings: (Ring, Ring),
    (stop, counters): (&Stop, Arc<PortCounters>),
    work: impl FnOnce(Port) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    drive(connection, said, rings, (stop, &mut (), counters), work)
}

fn drive<T: Send>(
    connection: &mut Connection,
    said: Vec<TransferId>,
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
            // The worker only sees that the connection has ended; the pump knows why.
            (Err(error), Err(Error::PeerGone)) => Err(error),
            // Also if the connection failed after the work was done: a peer that has everything may close
            // first.
            (_, worked) => worked,
        }
    })
}

/// The buffers that there are by now.
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
    /// Receives posted, in the order in which the peer sends.
    receiving: InOrder<Filled>,
    /// When something was last sent, or came, or there was nothing to send. A peer that says something is at work.
    moved: Instant,
}

/// A send in flight.
struct Sending {
    id: TransferId,
    /// The rest of its buffer; `None`: it is no buffer of the file side's.
    rest: Option<Region>,
}

fn said_before(id: TransferId) -> Sending {
    Sending { id, rest: None }
}

impl<'a> Pump<'a> {
    fn new(
        connection: &'a mut Connection,
        said: Vec<TransferId>,
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

    /// Drives the connection until the file side has gone and everything it submitted was sent.
    fn run(mut self) -> Result<(), Error> {
        let driven = self.drive();
        // A copy that failed or was stopped is not sent to its end: the connection can be closed at once,
        // and the peer need not find out by its timeout.
        for sending in &self.sending {
            self.connection.cancel(sending.id);
        }
        driven
    }

    fn drive(&mut self) -> Result<(), Error> {
        let longest = Duration::from_millis(PUMP_WAIT_MILLISECONDS);
        // On a long path nothing completes before much could have been on its way.
        self.grow()?;
        loop {
            self.post_released()?;
            let working = self.post_submitted()?;
            if !working && self.sending.is_empty() {
                return Ok(());
            }
            match self.connection.wait(Some(longest))? {
                Some(completion) => {
                    self.complete(completion)?;
                    self.grow()?;
                }
                None => self.check()?,
            }
        }
    }

    /// Puts more buffers into circulation if the path is longer than it seemed.
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

    /// Posts what was submitted; returns whether more may come.
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

    /// Checks whether to go on when nothing completed.
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
        let mut buffer = completion.into_region();
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

    /// Hands on what arrived, in the order in which it was sent.
    fn arrived(&mut self, id: TransferId, filled: Filled) {
        self.receiving.completed(id, filled);
        while let Some(filled) = self.receiving.pop() {
            self.end.events.arrived(filled);
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
pub(crate) mod tests;
