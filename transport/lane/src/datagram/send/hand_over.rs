//! Hands bursts to the path's thread: the thread does the work for each byte, the driver decides.

use super::{Output, Protection, Sender};
use crate::datagram::path_thread::{Channel, Order, SendOrder};
use crate::error::LaneError;
use crate::lane::Turn;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane_core::DataBurst;
use zerolane_wire::DatagramPart;

/// Most bursts that the thread has at a time: it sends them while the driver serves other paths.
const MOST: usize = 8;

/// The bursts that the path's thread must send.
#[derive(Debug)]
pub(super) struct Outbox {
    channel: Arc<Channel>,
    /// Number of bursts.
    pending: usize,
}

impl Sender {
    /// Sends bursts by this thread of the path from now on, or by none.
    pub(crate) fn begin_thread(&mut self, channel: Option<Arc<Channel>>) {
        self.output = channel.map_or(Output::Socket, |channel| {
            Output::Thread(Outbox {
                channel,
                pending: 0,
            })
        });
    }

    /// Whether the thread will announce room.
    pub(crate) fn waits_for_thread(&self) -> bool {
        matches!(&self.output, Output::Thread(it) if it.pending > 0)
    }

    /// Hands a burst to the path's thread, or reports that there is no room. `None`: the driver must send it.
    ///
    /// The thread takes sealed bursts whose payload lies in one piece that only the lane accesses: the user gets the
    /// memory back only after the access ended. Exported memory stays mapped for one turn only, and a mapped
    /// file may be gone. The memory of a datagram is free when the turn ends, which would call its access off.
    pub(super) fn hand_over(
        &mut self,
        burst: &DataBurst,
        turn: &mut Turn<'_>,
    ) -> Option<io::Result<()>> {
        let Output::Thread(outbox) = &mut self.output else {
            return None;
        };
        let no_room = || Some(Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        if outbox.pending >= MOST {
            return no_room();
        }
        let order = match &mut self.protection {
            Protection::Sealed(Some(sealer))
                if (self.gso || burst.segments == 1) && !turn.core.uses_checksums() =>
            {
                let lasts = turn.memory.is_exclusive(burst.span.region)
                    && !DatagramPart::is(&burst.header(0));
                let payload = turn.memory.source(burst.span).filter(|_| lasts);
                let datagrams = if burst.train.is_some() {
                    1
                } else {
                    burst.segments
                };
                payload
                    .and_then(|payload| Some((payload, sealer.reserve(datagrams)?)))
                    .map(|(payload, numbers)| SendOrder {
                        access: turn.memory.delegations.read(burst.span),
                        burst: *burst,
                        numbers,
                        payload,
                    })
            }
            _ => None,
        };
        let Some(order) = order else {
            // Bursts of a path leave in order: the peer counts overtaken ones as lost.
            return if outbox.pending > 0 { no_room() } else { None };
        };
        outbox.pending += 1;
        outbox.channel.order(Order::Send(order));
        self.lendable = false;
        self.count(burst, turn);
        Some(Ok(()))
    }

    /// Records that the thread sent its first burst, or could not.
    ///
    /// # Errors
    /// The path is broken.
    pub(crate) fn on_sent(
        &mut self,
        outcome: io::Result<()>,
        (socket, peer): (&Socket, SocketAddr),
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        if let Output::Thread(outbox) = &mut self.output {
            outbox.pending = outbox.pending.saturating_sub(1);
        }
        let Err(error) = &outcome else { return Ok(()) };
        let datagram = crate::socket::path_datagram_now(socket);
        if self.gso && super::gathered::is_lost_offload(error, turn.core.stu() as usize, datagram) {
            // The segments of this burst are lost, and are sent again without GSO.
            self.gso = false;
            turn.account.dropped_on_send += 1;
            return Ok(());
        }
        self.classify(outcome, socket, peer, turn).map(drop)
    }
}
