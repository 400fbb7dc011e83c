//! Removes the envelope of a datagram that does not come by UDP, before the message is read as a datagram.

use super::batch::Batch;
use super::layout::Message;
use crate::ethernet::IncomingFrames;
use crate::ip118::IPV4_HEADER;
use crate::lane::Turn;
use crate::unavailable::NoEthernet;
use socket2::Socket;
use zerolane_core::DropReason;
use zerolane_wire::encapsulation::{PADDED_CODE, PADDED_FRAME, padded};

/// The envelope of a socket's datagrams. Only UDP's may hold several datagrams.
#[derive(Debug, Default)]
pub(crate) enum Envelope {
    /// UDP: the kernel removes the header, and may merge datagrams.
    #[default]
    Udp,
    /// An IPv4 header without options in front: of a raw socket.
    Ipv4,
    /// IPv6 by a raw socket: the kernel removes the header.
    Ipv6,
    /// An Ethernet frame, which may pad the datagram. Boxed, because most connections have none.
    Frame(Box<IncomingFrames>),
}

impl Envelope {
    /// Whether the kernel may merge several datagrams.
    pub(super) fn merges(&self) -> bool {
        matches!(self, Envelope::Udp)
    }

    /// Whether routers can mark the datagrams (ECN).
    pub(super) fn has_marks(&self) -> bool {
        !matches!(self, Envelope::Frame(_))
    }

    /// Number of pieces of a message in front of the datagram.
    pub(super) fn pieces(&self) -> usize {
        usize::from(matches!(self, Envelope::Ipv4))
    }

    /// Adds those pieces to the next message.
    pub(super) fn push_front(&self, batch: &mut Batch) {
        if let Envelope::Ipv4 = self {
            batch.push_ip_header();
        }
    }

    /// Makes the kernel report the sender of each message, if it is checked.
    pub(super) fn ask_names(&mut self, batch: &mut Batch) {
        if let Envelope::Frame(frames) = self {
            for (index, message) in batch.messages.iter_mut().enumerate() {
                frames.ask_name(index, &mut message.msg_hdr);
            }
        }
    }

    /// Why no more datagrams can come, if that is so.
    pub(super) fn gone(&self, socket: &Socket) -> Option<NoEthernet> {
        match self {
            Envelope::Frame(frames) => frames.gone(socket),
            Envelope::Udp | Envelope::Ipv4 | Envelope::Ipv6 => None,
        }
    }

    /// The message without its envelope. `None`: it is dropped, and counted.
    pub(super) fn unwrap(
        &self,
        message: Message,
        batch: &mut Batch,
        turn: &mut Turn<'_>,
    ) -> Option<Message> {
        match self {
            Envelope::Udp | Envelope::Ipv6 => Some(message),
            Envelope::Ipv4 => behind_ip_header(message, turn),
            Envelope::Frame(frames) => unframe(frames, message, batch, turn),
        }
    }
}

/// The message after the piece that took the IP header.
fn behind_ip_header(message: Message, turn: &mut Turn<'_>) -> Option<Message> {
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

/// The message without the padding that the frame added.
fn unframe(
    frames: &IncomingFrames,
    message: Message,
    batch: &mut Batch,
    turn: &mut Turn<'_>,
) -> Option<Message> {
    if !frames.is_peers(message.index) {
        turn.account.dropped_foreign += 1;
        return None;
    }
    if *batch.first_byte(message) >> 3 != PADDED_CODE {
        return Some(message);
    }
    let mut frame = [0; PADDED_FRAME];
    let whole = message.total == frame.len();
    // Otherwise the page of its place is gone: treated as lost.
    if whole && !batch.linearize(message, turn.memory, &mut frame) {
        return None;
    }
    let Some((original, total)) = padded(&frame).ok().flatten().filter(|_| whole) else {
        turn.core.on_dropped(DropReason::Malformed);
        return None;
    };
    *batch.first_byte(message) = original;
    Some(Message {
        total,
        segment: total,
        ..message
    })
}
