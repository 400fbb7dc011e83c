//! One path beyond the first: what it sends and receives with.

use crate::ethernet::Station;
use crate::udp::{Order, PathThread, Receiver, Report, Sender};
use crate::{LaneError, Registry, Turn};
use socket2::Socket;
use std::net::SocketAddr;
use std::sync::Arc;

/// A path beyond the first. Without a socket it is none at present, and what sealed and opened stays.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: usize,
    pub(super) socket: Option<Arc<Socket>>,
    pub(super) peer: SocketAddr,
    /// The same, if it is over raw Ethernet.
    pub(super) station: Option<Station>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The one that receives and sends here, if the path has one of its own.
    pub(super) thread: Option<PathThread>,
    /// Room in the socket is waited for, which its thread does not tell of.
    pub(super) watches_room: bool,
}

impl Link {
    /// The path is none any more: its thread ends, and what it had is lost.
    pub(super) fn detach(&mut self, memory: &Registry) {
        self.thread = None;
        self.sender.begin_thread(None);
        self.receiver.begin_thread(None, memory);
        (self.socket, self.station) = (None, None);
    }

    /// Takes what the path's thread reports. True if there was anything.
    pub(super) fn take_reports(
        &mut self,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        let (Some(thread), Some(socket)) = (&self.thread, &self.socket) else {
            return Ok(false);
        };
        let reports = thread.channel().reports();
        if reports.is_empty() {
            return Ok(false);
        }
        turn.refresh();
        let mut outcome = Ok(());
        for report in reports {
            let done = match report {
                Report::Sent(sent) => self.sender.on_sent(sent, (socket, self.peer), turn),
                Report::Opened(opened) => {
                    self.receiver.on_opened(opened);
                    Ok(())
                }
                Report::Arrived(message) => {
                    self.receiver.on_arrived(message);
                    Ok(())
                }
                // Its bursts are never sent, and what arrives is not read: the path is broken.
                Report::Ended => Err(LaneError::Io(std::io::ErrorKind::BrokenPipe.into())),
                Report::Refused(buffer, error) => {
                    thread.channel().order(Order::Free(buffer));
                    self.receiver.refused(error, socket, turn).map(drop)
                }
            };
            outcome = outcome.and(done);
        }
        let delivered = self.receiver.deliver_arrived(socket, turn, strict);
        outcome.and(delivered).map(|()| true)
    }
}
