//! Holds the sender and receiver of one path beyond the first.

use crate::address::Station;
use crate::datagram::path_thread::{Order, PathThread, Report};
use crate::datagram::receive::Receiver;
use crate::datagram::send::Sender;
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::Registry;
use socket2::Socket;
use std::net::SocketAddr;
use std::sync::Arc;

/// A path beyond the first. Without a socket it is not in use at present; its sender and receiver keep their state.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: usize,
    pub(super) socket: Option<Arc<Socket>>,
    pub(super) peer: SocketAddr,
    /// The peer's station, if the path is over raw Ethernet.
    pub(super) station: Option<Station>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The path's own thread, which receives and sends here, if there is one.
    pub(super) thread: Option<PathThread>,
    /// Whether to watch for room in the socket, which the thread does not report.
    pub(super) watches_room: bool,
}

impl Link {
    /// Takes the path out of use: its thread ends, and the thread's work is lost.
    pub(super) fn detach(&mut self, memory: &Registry) {
        self.thread = None;
        self.sender.begin_thread(None);
        self.receiver.begin_thread(None, memory);
        (self.socket, self.station) = (None, None);
    }

    /// Takes the reports of the path's thread. True if there were any.
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
                // Its bursts are never sent, and arrivals are not read: the path is broken.
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
