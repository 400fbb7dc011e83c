//! Sending by the path's thread: what takes time for each byte is its, what is decided is ours.

use super::{Protection, Sender};
use crate::udp::path_thread::{Channel, Order, SendOrder};
use crate::{LaneError, Turn};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane_core::DataBurst;

/// Bursts that the thread has at a time: what it sends while the driver has a turn for other paths.
const MOST: usize = 8;

/// What the path's thread has to send.
#[derive(Debug)]
pub(super) struct Outbox {
    channel: Arc<Channel>,
    /// Bursts.
    away: usize,
}

impl Sender {
    /// Bursts are sent by this thread of the path from here on, or by none.
    pub(crate) fn begin_thread(&mut self, channel: Option<Arc<Channel>>) {
        self.outbox = channel.map(|channel| Outbox { channel, away: 0 });
    }

    /// Whether the thread will say when there is room.
    pub(crate) fn waits_for_thread(&self) -> bool {
        self.outbox.as_ref().is_some_and(|it| it.away > 0)
    }

    /// Has the path's thread send a burst, or says that there is no room. `None`: it is ours to send.
    ///
    /// The thread takes what is sealed, lies in one piece, and is touched by nothing but the lane: its user has the memory back
    /// only after it was called off. Exported memory stays mapped for a turn alone, and a mapped file may be gone.
    pub(super) fn hand_over(
        &mut self,
        burst: &DataBurst,
        turn: &mut Turn<'_>,
    ) -> Option<io::Result<()>> {
        let outbox = self.outbox.as_mut()?;
        let no_room = || Some(Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        if outbox.away >= MOST {
            return no_room();
        }
        let order = match &mut self.protection {
            Protection::Sealed(stage)
                if (self.gso || burst.segments == 1) && !turn.core.uses_checksums() =>
            {
                let exclusive = turn.memory.is_exclusive(burst.span.region);
                let payload = turn.memory.source(burst.span).filter(|_| exclusive);
                let datagrams = if burst.train.is_some() {
                    1
                } else {
                    burst.segments
                };
                payload
                    .and_then(|payload| Some((payload, stage.sealer_mut().reserve(datagrams)?)))
                    .map(|(payload, numbers)| SendOrder {
                        errand: turn.memory.hand_out(burst.span),
                        burst: *burst,
                        numbers,
                        payload,
                    })
            }
            _ => None,
        };
        let Some(order) = order else {
            // Bursts of a path leave in order: the peer takes what was overtaken for lost.
            return if outbox.away > 0 { no_room() } else { None };
        };
        outbox.away += 1;
        outbox.channel.order(Order::Send(order));
        self.lendable = false;
        self.count(burst, turn);
        Some(Ok(()))
    }

    /// The thread sent the first burst that it had, or could not.
    ///
    /// # Errors
    /// The path is broken.
    pub(crate) fn on_sent(
        &mut self,
        outcome: io::Result<()>,
        (socket, peer): (&Socket, SocketAddr),
        turn: &mut Turn<'_>,
    ) -> Result<(), LaneError> {
        if let Some(outbox) = &mut self.outbox {
            outbox.away = outbox.away.saturating_sub(1);
        }
        let Err(error) = &outcome else { return Ok(()) };
        let datagram = crate::udp::socket::path_datagram_now(socket);
        if self.gso && super::gathered::is_lost_offload(error, turn.core.stu() as usize, datagram) {
            // What it had is lost, and sent again without.
            self.gso = false;
            turn.account.dropped_on_send += 1;
            return Ok(());
        }
        self.classify(outcome, socket, peer, turn).map(drop)
    }
}
