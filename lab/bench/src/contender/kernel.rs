//! Reads the kernel's TCP counters in this process's namespace.
//!
//! Only the benchmark runs there, so the differences are its own.

use std::fs;

use crate::measured::Measured;

/// Payload of a full segment: an MTU of 1500 less the headers with time stamps.
/// The kernel counts segments; those that are sent again are full but for the
/// last of a flow.
const SEGMENT_BYTES: u64 = 1448;

/// Segments since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    resent: u64,
    /// Reported by the receiver to have come twice (DSACK, RFC 2883).
    repeats: u64,
}

impl Counts {
    /// As they are now; zero where the kernel does not show them.
    pub(super) fn now() -> Counts {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Counts::of(
            &read("/proc/self/net/snmp"),
            &read("/proc/self/net/netstat"),
        )
    }

    fn of(snmp: &str, netstat: &str) -> Counts {
        let repeats = |name| value(netstat, "TcpExt:", name).unwrap_or_default();
        Counts {
            resent: value(snmp, "Tcp:", "RetransSegs").unwrap_or_default(),
            repeats: repeats("TCPDSACKRecv") + repeats("TCPDSACKOfoRecv"),
        }
    }

    /// What was sent since `earlier`.
    pub(super) fn since(self, earlier: Counts) -> Measured {
        Measured {
            resent_bytes: (self.resent - earlier.resent) * SEGMENT_BYTES,
            reported_repeats_bytes: (self.repeats - earlier.repeats) * SEGMENT_BYTES,
            ..Measured::default()
        }
    }
}

/// A number of a table of which a line has the names and the next the values,
/// each behind the same prefix.
fn value(table: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with(prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(it, _)| *it == name)?.1.parse().ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn of__finds_the_columns() {
        let snmp = "Ip: A\nIp: 9\nTcp: X RetransSegs Y\nTcp: 1 22 3\nUdp: RetransSegs\nUdp: 5\n";
        let netstat = "TcpExt: TCPDSACKRecv TCPDSACKOfoRecv\nTcpExt: 4 2\nIpExt: Z\nIpExt: 1\n";
        let counts = Counts::of(snmp, netstat);
        assert_eq!(
            counts,
            Counts {
                resent: 22,
                repeats: 6
            }
        );
        assert_eq!(Counts::of("", ""), Counts::default());
    }

    #[test]
    fn now__this_kernel_shows_them() {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        assert!(value(&read("/proc/self/net/snmp"), "Tcp:", "RetransSegs").is_some());
        assert!(value(&read("/proc/self/net/netstat"), "TcpExt:", "TCPDSACKRecv").is_some());
    }
}
