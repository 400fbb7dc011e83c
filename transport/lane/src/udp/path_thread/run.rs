//! What a path's thread does, over and over.

use super::send::Stage;
use super::{Arrived, BUFFERS, Channel, OpenOrder, Order, Report, SendOrder};
use crate::poll;
use crate::udp::send::is_full;
use socket2::Socket;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest sleep where nothing tells of what is waited for: the system had no descriptor left to be woken by, or there is no
/// buffer to receive into while the socket has no room.
const UNWOKEN_SLEEP: Duration = Duration::from_millis(1);

/// The thread's own.
pub(super) struct Run<'a> {
    channel: &'a Channel,
    socket: &'a Socket,
    spin: Duration,
    /// Buffers to receive into.
    #[allow(clippy::vec_box, reason = "they come and go as they are, boxed")]
    free: Vec<Box<Arrived>>,
    /// Bursts to send, in order.
    bursts: VecDeque<SendOrder>,
    /// The one that is sealed.
    stage: Stage,
    /// Lent to the queue of orders.
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
        // Before the orders are taken, so that one that comes behind them is no order slept through.
        while self.channel.waker.goes_on(&self.channel.stop) {
            let mut moved = self.obey();
            moved |= self.send();
            moved |= self.receive();
            if moved {
                idle_since = None;
                continue;
            }
            if idle_since.get_or_insert_with(Instant::now).elapsed() < self.spin {
                // The core may be the driver's as well.
                std::thread::yield_now();
                continue;
            }
            self.sleep();
            idle_since = None;
        }
    }

    /// Takes what was ordered. True if there was anything.
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
            errand,
            from,
            header,
            payload,
            opening,
            place,
        } = order;
        let source = &from.bytes()[payload];
        let opened = errand.begin().then(|| {
            // SAFETY: the errand is under way, so that as many bytes are mapped at the place and may be written: they were
            // granted and not reported, nothing but the lane touches them, and of the lane no other thread. The source is
            // a buffer of ours.
            unsafe { opening.open_into(&header, source, place) }
        });
        drop(errand);
        self.free.push(from);
        self.channel.report(Report::Opened(opened));
    }

    /// Seals and sends one burst. True if one left, or will not.
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

    /// Sleeps until something arrives that there is a buffer for, there is room for what waits for it, or something is ordered.
    fn sleep(&self) {
        let full = !self.stage.is_empty();
        let waker = &self.channel.waker;
        // One that cannot sleep looks again.
        let _ = waker.sleep(|wake| {
            // What arrives waits for a buffer, which is ordered to be free.
            let awaits_order = wake.is_some() && self.free.is_empty();
            let socket = (!awaits_order).then(|| self.socket.as_fd());
            let looks_again = wake.is_none() || awaits_order && full;
            let timeout = looks_again.then_some(UNWOKEN_SLEEP);
            poll::wait(socket, full, [wake, None], timeout)
        });
    }
}
