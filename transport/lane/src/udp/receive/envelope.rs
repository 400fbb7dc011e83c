//! What is around a datagram where no UDP carries it, and what is done to a message before it is looked at as a
//! datagram.

use super::layout::Message;
use super::{Buffers, Receiver, SPILL};
use crate::Turn;
use crate::ethernet::{IncomingFrames, NoEthernet};
use crate::udp::send::iovec;
use socket2::Socket;
use zerolane_core::DropReason;
use zerolane_wire::encapsulation::{PADDED_CODE, PADDED_FRAME, padded};

/// Bytes of an IPv4 header without options.
pub(crate) const IPV4_HEADER: usize = 20;

/// What is around the datagrams of a socket, each of which comes on its own but by UDP.
#[derive(Debug)]
pub(crate) enum Envelope {
    /// Nothing that is shown: UDP's, of which the kernel may merge some.
    Udp,
    /// IPv4's header, without options, stands in front: of a raw socket.
    Ipv4,
    /// Nothing that is shown: IPv6's, of a raw socket.
    Ipv6,
    /// A frame's, and the datagram may be lengthened. Apart, for most connections have none.
    Frame(Box<IncomingFrames>),
}

impl Envelope {
    /// Whether the kernel may merge several datagrams.
    pub(super) fn merges(&self) -> bool {
        matches!(self, Envelope::Udp)
    }

    /// Whether datagrams come marked by the path (ECN).
    pub(super) fn has_marks(&self) -> bool {
        !matches!(self, Envelope::Frame(_))
    }

    /// The pieces of a message that stand in front of the datagram.
    pub(super) fn pieces(&self) -> usize {
        usize::from(matches!(self, Envelope::Ipv4))
    }

    /// Puts them in front of those of the next message.
    pub(super) fn push_front(&self, buffers: &mut Buffers) {
        if let Envelope::Ipv4 = self {
            // The filter has looked at it, and the kernel: all messages have the same place for it.
            let place = buffers.ip_header.as_mut_ptr();
            buffers.iovs.push(iovec(place, IPV4_HEADER));
        }
    }

    /// Why nothing will come any more, if that is so.
    pub(super) fn gone(&self, socket: &Socket) -> Option<NoEthernet> {
        match self {
            Envelope::Frame(frames) => frames.gone(socket),
            Envelope::Udp | Envelope::Ipv4 | Envelope::Ipv6 => None,
        }
    }
}

impl Receiver {
    /// The message without what is around its datagram. `None`: it is dropped, and counted.
    pub(super) fn unwrap(&mut self, message: Message, turn: &mut Turn<'_>) -> Option<Message> {
        match &self.envelope {
            Envelope::Udp | Envelope::Ipv6 => Some(message),
            Envelope::Ipv4 => self.behind_ip_header(message, turn),
            Envelope::Frame(_) => self.unframe(message, turn),
        }
    }

    /// The message behind the piece that took the header.
    fn behind_ip_header(&self, message: Message, turn: &mut Turn<'_>) -> Option<Message> {
        let Some(total) = message.total.checked_sub(IPV4_HEADER) else {
            turn.core.on_dropped(DropReason::Malformed);
            return None;
        };
        Some(Message {
            total,
            segment: total.max(1),
            ..message
        })
    }

    /// The message without what the frame added to it.
    fn unframe(&mut self, message: Message, turn: &mut Turn<'_>) -> Option<Message> {
        let Envelope::Frame(frames) = &self.envelope else {
            return Some(message);
        };
        if !frames.is_peers(message.index) {
            turn.account.dropped_foreign += 1;
            return None;
        }
        let layout = &self.buffers.layouts[message.index];
        let first = match layout.pairs {
            0 => &mut self.buffers.spill[message.index * SPILL],
            _ => &mut self.buffers.slots[layout.slot].header[0],
        };
        if *first >> 3 != PADDED_CODE {
            return Some(message);
        }
        let mut frame = [0; PADDED_FRAME];
        let whole = message.total == frame.len();
        // Else its place is gone with its page: as if lost.
        if whole && !self.linearize(message, turn.memory, &mut frame) {
            return None;
        }
        let Some((original, total)) = padded(&frame).ok().flatten().filter(|_| whole) else {
            turn.core.on_dropped(DropReason::Malformed);
            return None;
        };
        let layout = &self.buffers.layouts[message.index];
        match layout.pairs {
            0 => self.buffers.spill[message.index * SPILL] = original,
            _ => self.buffers.slots[layout.slot].header[0] = original,
        }
        Some(Message {
            total,
            segment: total,
            ..message
        })
    }
}
