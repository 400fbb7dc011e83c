//! Control messages (cmsg) that the kernel adds to what it received.

use super::Receiver;
use crate::Account;

/// The ECN field of an IP header; all ones: congestion experienced.
pub(super) const ECN_MASK: u8 = 0b11;

/// What the kernel says of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ancillary {
    /// The segment size, if it merged.
    pub(super) segment: Option<usize>,
    /// The ECN field of its datagrams: what differs in it is not merged.
    pub(super) ecn: u8,
}

impl Receiver {
    /// What the kernel says of a message; counts what it dropped.
    pub(super) fn read_ancillary(&mut self, index: usize, account: &mut Account) -> Ancillary {
        let message = &self.buffers.messages[index].msg_hdr;
        let mut ancillary = Ancillary::default();
        // SAFETY: the kernel wrote msg_controllen bytes of well-formed control messages into our
        // buffer; the macros walk them within that length.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(message);
            while !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let segment = data.cast::<i32>().read_unaligned();
                        ancillary.segment = usize::try_from(segment).ok();
                    }
                    // An int in the one, a byte in the other; the field is the lowest bits of either.
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        ancillary.ecn = data.cast::<i32>().read_unaligned() as u8 & ECN_MASK;
                    }
                    (libc::IPPROTO_IP, libc::IP_TOS) => ancillary.ecn = data.read() & ECN_MASK,
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        let overflow = data.cast::<u32>().read_unaligned();
                        account.dropped_socket_buffer +=
                            u64::from(overflow.wrapping_sub(self.overflow));
                        self.overflow = overflow;
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        ancillary
    }
}
