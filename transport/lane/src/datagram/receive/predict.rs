//! Turns the core's forecast into iovecs.

use super::train_buffer::Expected;
use super::{BATCH, CONTROL, Envelope, MAX_SEGMENTS, Receiver, SINGLES, SPILL};
use crate::datagram::message::{empty_message, iovec};
use crate::memory::Registry;
use crate::socket::MAX_MESSAGES;
use std::ops::Range;
use zerolane_core::{Connection, Forecast, Run};

impl Receiver {
    /// Builds iovecs from the forecast. Returns the number of messages.
    pub(super) fn predict(&mut self, core: &Connection, memory: &Registry, strict: bool) -> usize {
        self.buffers.iovs.clear();
        self.buffers.messages.clear();
        self.buffers.layouts[0].clear();
        if self.trains.is_lent() {
            let forecast = match self.is_collecting() {
                true => Forecast::default(),
                false => forecast(core),
            };
            self.trains.expected = self.expect(&forecast, memory);
            match self.trains.expected {
                Expected::Collected => self.predict_collected(),
                Expected::Landing => {}
                Expected::Headers => self.predict_super_packet(&forecast, memory),
            }
            self.point_messages(1);
            return 1;
        }
        let one_by_one = !self.gro || self.singles >= SINGLES;
        // A control operation among several messages would shift all that follow, which `strict` does not permit.
        let messages = if one_by_one && !strict {
            ((BATCH / core.expected_stu()) as usize).clamp(1, MAX_MESSAGES)
        } else {
            1
        };
        if core.expected_payload() == 0 {
            // The common case between small operations, whose completion waits for this step.
            self.leave_unpredicted(0..messages);
        } else if one_by_one {
            self.predict_datagrams(&forecast(core), messages, memory);
        } else {
            self.predict_super_packet(&forecast(core), memory);
        }
        self.point_messages(messages);
        messages
    }

    /// Appends all arrivals to the part of a train in the buffer.
    fn predict_collected(&mut self) {
        let place = self.trains.place();
        self.buffers
            .iovs
            .push(iovec(place.as_mut_ptr(), place.len()));
    }

    /// Predicts one pair for each of `messages`.
    fn predict_datagrams(&mut self, forecast: &Forecast, messages: usize, memory: &Registry) {
        let sealed = self.incoming.is_protected();
        let mut message = 0;
        'runs: for run in forecast.runs() {
            if self.incoming.opens_out_of_place(memory, run.span.region) {
                break;
            }
            let mut at = 0;
            while at < run.span.len && message < messages {
                let len = u64::from(run.stu).min(run.span.len - at);
                let span = run.span.part(at, len);
                let Some(place) = memory.prediction(span) else {
                    break 'runs;
                };
                let layout = &mut self.buffers.layouts[message];
                layout.runs.clear();
                layout.runs.push(Run { span, ..run });
                layout.pairs = 1;
                layout.slot = message;
                self.envelope.push_front(&mut self.buffers);
                self.buffers
                    .iovs
                    .push(self.buffers.slots[message].iovec(false));
                self.buffers.iovs.push(iovec(place, len as usize));
                if sealed {
                    self.buffers
                        .iovs
                        .push(self.buffers.slots[message + 1].iovec_of_trailer());
                }
                self.buffers
                    .iovs
                    .push(iovec(spill(&mut self.buffers.spill, message), SPILL));
                at += len;
                message += 1;
            }
        }
        self.leave_unpredicted(message..messages);
    }

    /// Leaves these messages without a prediction.
    #[inline]
    fn leave_unpredicted(&mut self, messages: Range<usize>) {
        for message in messages {
            self.buffers.layouts[message].clear();
            self.envelope.push_front(&mut self.buffers);
            self.buffers
                .iovs
                .push(iovec(spill(&mut self.buffers.spill, message), SPILL));
        }
    }

    /// Predicts all pairs in one message, up to the first short STU, after which the kernel merges nothing.
    fn predict_super_packet(&mut self, forecast: &Forecast, memory: &Registry) {
        let sealed = self.incoming.is_protected();
        let layout = &mut self.buffers.layouts[0];
        layout.slot = 0;
        'runs: for run in forecast.runs() {
            if self.incoming.opens_out_of_place(memory, run.span.region) {
                break;
            }
            let Some(start) = memory.prediction(run.span) else {
                break;
            };
            let mut at = 0;
            while at < run.span.len {
                if layout.pairs == MAX_SEGMENTS {
                    break 'runs;
                }
                let len = u64::from(run.stu).min(run.span.len - at);
                self.buffers
                    .iovs
                    .push(self.buffers.slots[layout.pairs].iovec(sealed && layout.pairs > 0));
                // SAFETY: at + len <= span.len, and all of span is writable at `start`.
                self.buffers
                    .iovs
                    .push(iovec(unsafe { start.add(at as usize) }, len as usize));
                layout.pairs += 1;
                at += len;
            }
            layout.runs.push(run);
            if !run.span.len.is_multiple_of(u64::from(run.stu)) {
                break;
            }
        }
        let pairs = self.buffers.layouts[0].pairs;
        if sealed && pairs > 0 {
            self.buffers
                .iovs
                .push(self.buffers.slots[pairs].iovec_of_trailer());
        }
        self.buffers
            .iovs
            .push(iovec(spill(&mut self.buffers.spill, 0), SPILL));
    }

    pub(super) fn point_messages(&mut self, count: usize) {
        let (sealed, front) = (self.incoming.is_protected(), self.envelope.pieces());
        let mut next = 0;
        for index in 0..count {
            let pairs = self.buffers.layouts[index].pairs;
            let iovs = match count {
                1 => self.buffers.iovs.len(),
                _ => front + 2 * pairs + 1 + usize::from(sealed && pairs > 0),
            };
            let mut message = empty_message();
            // A pointer into the whole vector, not to one element: the kernel and the reader of the message access
            // `iovs` pieces there.
            message.msg_iov = self.buffers.iovs.as_mut_ptr().wrapping_add(next);
            message.msg_iovlen = iovs;
            message.msg_control = self.buffers.controls[index].as_mut_ptr().cast();
            message.msg_controllen = CONTROL;
            if let Envelope::Frame(frames) = &mut self.envelope {
                frames.ask_name(index, &mut message);
            }
            self.buffers.messages.push(libc::mmsghdr {
                msg_hdr: message,
                msg_len: 0,
            });
            next += iovs;
        }
    }
}

/// The next STUs, as many as fit in a message.
pub(super) fn forecast(core: &Connection) -> Forecast {
    let mut forecast = Forecast::default();
    core.forecast(MAX_SEGMENTS as u32, &mut forecast);
    forecast
}

fn spill(spill: &mut [u8], message: usize) -> *mut u8 {
    spill[message * SPILL..][..SPILL].as_mut_ptr()
}
