//! Runs a path's thread: takes orders, opens, sends, receives and sleeps.

use super::send::Stage;
use super::{Arrived, BUFFERS, Channel, OpenOrder, Order, Report, SendOrder};
use crate::datagram::message::is_full;
use crate::wait::poll;
use socket2::Socket;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest sleep if no event ends it: the system had no descriptor left for the waker, or there is no buffer to receive
/// into while the socket has no room.
const UNWOKEN_SLEEP: Duration = Duration::from_millis(1);

/// State of the thread alone.
pub(super) struct Run<'a> {
    channel: &'a Channel,
    socket: &'a Socket,
    spin: Duration,
    /// Free buffers to receive into.
    #[allow(clippy::vec_box, reason = "they come and go as they are, boxed")]
    free: Vec<Box<Arrived>>,
    /// Bursts to send, in order.
    bursts: VecDeque<SendOrder>,
    /// The burst that is sealed and not yet sent.
    stage: Stage,
    /// Exchanged with the queue of orders.
    orders: VecDeque<Order>,
}

impl<'a> Run<'a> {
    pub(super) fn new(channel: &'a Channel, socket: &'a Socket, spin: Duration) -> Run<'a> {
        Run {
            channel,
            socket,
            spin,
            free: (0..BUFFERS).map(|_| Arrived::empty()).collect(),
            bursts: VecDeque::new(),
            stage: Stage::new(),
            orders: VecDeque::new(),
        }
    }

    pub(super) fn until_stopped(&mut self) {
        let mut idle_since = None;
        // Before the orders are taken, so that the thread does not sleep through a wake that follows them.
        while self.channel.waker.goes_on(&self.channel.stop) {
            let mut moved = self.obey();
            moved |= self.send();
            moved |= self.receive();
            if moved {
                idle_since = None;
                continue;
            }
            if idle_since.get_or_insert_with(Instant::now).elapsed() < self.spin {
                // The driver may run on the same core.
                std::thread::yield_now();
                continue;
            }
            self.sleep();
            idle_since = None;
        }
    }

    /// Takes the orders. True if there were any.
    fn obey(&mut self) -> bool {
        let mut orders = self.channel.orders.take(std::mem::take(&mut self.orders));
        let any = !orders.is_empty();
        for order in orders.drain(..) {
            match order {
                Order::Send(it) => self.bursts.push_back(it),
                Order::Open(it) => self.open(it),
                Order::Free(it) => self.free.push(it),
                #[cfg(test)]
                Order::Panic => panic!("as ordered"),
            }
        }
        self.orders = orders;
        any
    }

    fn open(&mut self, order: OpenOrder) {
        let OpenOrder {
            access,
            from,
            header,
            payload,
            opening,
            place,
        } = order;
        let source = &from.bytes()[payload];
        let opened = access.begin().then(|| {
            // SAFETY: the access is in progress, so as many bytes are mapped at the place and may be written: they were
            // granted and not reported. Only the lane accesses them, and within the lane only this thread. The source
            // is a buffer of ours.
            unsafe { opening.open_into(&header, source, place) }
        });
        drop(access);
        self.free.push(from);
        self.channel.report(Report::Opened(opened));
    }

    /// Seals and sends one burst. True if one left, or never will.
    fn send(&mut self) -> bool {
        if self.stage.is_empty() {
            let Some(next) = self.bursts.pop_front() else {
                return false;
            };
            self.stage.seal(next);
            if self.stage.is_empty() {
                self.channel.report(Report::Sent(Ok(())));
                return true;
            }
        }
        let sent = self.stage.send(self.socket);
        if sent.as_ref().is_err_and(is_full) {
            return false;
        }
        self.channel.report(Report::Sent(sent));
        true
    }

    /// Receives one message. True if there was one.
    fn receive(&mut self) -> bool {
        let Some(mut buffer) = self.free.pop() else {
            return false;
        };
        let report = match buffer.receive(self.socket) {
            Ok(true) => Report::Arrived(buffer),
            Ok(false) => {
                self.free.push(buffer);
                return false;
            }
            Err(error) => Report::Refused(buffer, error),
        };
        self.channel.report(report);
        true
    }

    /// Sleeps until a message arrives for which there is a buffer, the socket has room for a waiting burst, or an order
    /// comes.
    fn sleep(&self) {
        let full = !self.stage.is_empty();
        let waker = &self.channel.waker;
        // If it cannot sleep, it checks again.
        let _ = waker.sleep(|wake| {
            // Arrivals wait until an order frees a buffer.
            let awaits_order = wake.is_some() && self.free.is_empty();
            let socket = (!awaits_order).then(|| self.socket.as_fd());
            let looks_again = wake.is_none() || awaits_order && full;
            let timeout = looks_again.then_some(UNWOKEN_SLEEP);
            poll::wait(socket, full, [wake, None], timeout)
        });
    }
}
