//! Reads the control messages (cmsg) that the kernel adds to a received message.

use crate::lane::Turn;
use crate::socket;
use socket2::Socket;
use std::time::{Duration, SystemTime};

/// The ECN field of an IP header; all ones: congestion experienced.
pub(super) const ECN_MASK: u8 = 0b11;
/// Bytes of control messages per message: UDP_GRO, SO_RXQ_OVFL, the ECN field, and SCM_TIMESTAMPNS.
pub(super) const CONTROL: usize = 128;

/// What the kernel reports about a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ancillary {
    /// The segment size, if the kernel merged datagrams.
    pub(super) segment: Option<usize>,
    /// The ECN field of its datagrams: the kernel does not merge datagrams whose fields differ.
    pub(super) ecn: u8,
    /// How long the first datagram has waited, if the kernel reports when it arrived.
    pub(super) waited: Option<Duration>,
    /// Datagrams that the kernel dropped since the last report.
    pub(super) dropped: u32,
}

/// The time from `arrived` until `taken` by the system's clock: zero if the clock was set back meanwhile.
fn waited(arrived: libc::timespec, taken: SystemTime) -> Duration {
    let seconds = u64::try_from(arrived.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(arrived.tv_nsec).unwrap_or(0);
    let since_epoch = taken.duration_since(SystemTime::UNIX_EPOCH);
    let arrived = Duration::from_secs(seconds) + Duration::from_nanos(nanos);
    since_epoch.unwrap_or_default().saturating_sub(arrived)
}

/// The reports of a socket.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Datagrams that the kernel had dropped by the last report.
    overflow: u32,
    /// The kernel reports when datagrams arrived.
    pub(super) timed: bool,
    /// When the batch was taken, by the clock of those reports.
    taken: Option<SystemTime>,
}

impl Reports {
    /// Asks the kernel to report arrival times, once the core wants them.
    pub(super) fn ask_for_times(&mut self, socket: &Socket, turn: &Turn<'_>) {
        // The reports are by the system's clock.
        #[cfg(test)]
        if turn.clock.is_of_thread() {
            return;
        }
        if !self.timed && turn.core.is_bulk_in_flight() {
            self.timed = true;
            socket::show_arrival_times(socket);
        }
    }

    /// Records that a batch was taken now.
    pub(super) fn note_taken(&mut self) {
        self.taken = self.timed.then(SystemTime::now);
    }

    /// Reads what the kernel reports about a message.
    pub(super) fn read(&mut self, message: &libc::msghdr) -> Ancillary {
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
                    // IPv6 reports an int and IPv4 a byte; the field is in the lowest bits of either.
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        ancillary.ecn = data.cast::<i32>().read_unaligned() as u8 & ECN_MASK;
                    }
                    (libc::IPPROTO_IP, libc::IP_TOS) => ancillary.ecn = data.read() & ECN_MASK,
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        let overflow = data.cast::<u32>().read_unaligned();
                        ancillary.dropped = overflow.wrapping_sub(self.overflow);
                        self.overflow = overflow;
                    }
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let arrived = data.cast::<libc::timespec>().read_unaligned();
                        ancillary.waited = self.taken.map(|taken| waited(arrived, taken));
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        ancillary
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn waited__is_never_negative_and_takes_any_stamp() {
        let at = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let taken = SystemTime::UNIX_EPOCH + Duration::new(1_000, 500);
        assert_eq!(waited(at(999, 1_500), taken), Duration::new(0, 999_999_000));
        assert_eq!(waited(at(1_001, 0), taken), Duration::ZERO, "set back");
        let _ = waited(at(i64::MAX, i64::MAX), taken);
        let _ = waited(at(i64::MIN, i64::MIN), taken);
    }
}
