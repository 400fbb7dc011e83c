//! Maps counters to the place of a drop.

use serde::Serialize;

use super::proc::column;
use super::tally::{Counter, Tally};

/// Packets that were dropped at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drop {
    /// The place, in a word for programs, such as `udp_receive_buffer`.
    pub place: &'static str,
    /// The network namespace, or `machine`.
    pub namespace: String,
    /// The interface, if the place belongs to one.
    pub interface: Option<String>,
    /// How many packets or datagrams.
    pub count: u64,
    /// A description of the place, and the usual remedy.
    pub words: String,
}

/// A place, the counters that are of it, and words.
type Place = (&'static str, &'static [&'static str], &'static str);

/// Counters of the protocols. Those that are sums of others here are left out (`UdpInErrors`, `ListenOverflows`).
const PROTOCOLS: &[Place] = &[
    (
        "udp_receive_buffer",
        &[
            "UdpRcvbufErrors",
            "Udp6RcvbufErrors",
            "UdpLiteRcvbufErrors",
            "UdpLite6RcvbufErrors",
        ],
        "UDP: the buffer of the receiving socket was full (SO_RCVBUF, net.core.rmem_max)",
    ),
    (
        "udp_memory",
        &["UdpMemErrors", "Udp6MemErrors"],
        "UDP: all sockets together had too much memory (net.ipv4.udp_mem)",
    ),
    (
        "udp_checksum",
        &[
            "UdpInCsumErrors",
            "Udp6InCsumErrors",
            "UdpLiteInCsumErrors",
            "UdpLite6InCsumErrors",
        ],
        "UDP: the checksum was wrong",
    ),
    (
        "udp_no_port",
        &[
            "UdpNoPorts",
            "Udp6NoPorts",
            "UdpLiteNoPorts",
            "UdpLite6NoPorts",
        ],
        "UDP: there was no socket at the port",
    ),
    (
        "udp_send_buffer",
        &["UdpSndbufErrors", "Udp6SndbufErrors"],
        "UDP: the sending socket's buffer was full, or a queue refused the datagram, which is counted there as well",
    ),
    (
        "tcp_checksum",
        &["TcpInCsumErrors"],
        "TCP: the checksum was wrong",
    ),
    (
        "tcp_listen",
        &["TcpExtListenDrops"],
        "TCP: connections refused, the listening socket's queue was full (listen, net.core.somaxconn)",
    ),
    (
        "tcp_socket_backlog",
        &["TcpExtTCPBacklogDrop"],
        "TCP: the socket was busy and its backlog full",
    ),
    (
        "tcp_receive_buffer",
        &[
            "TcpExtTCPRcvQDrop",
            "TcpExtTCPZeroWindowDrop",
            "TcpExtRcvPruned",
        ],
        "TCP: the receiving socket had no room (SO_RCVBUF, net.ipv4.tcp_rmem)",
    ),
    (
        "tcp_out_of_order_queue",
        &["TcpExtTCPOFODrop"],
        "TCP: no room for segments out of order (net.ipv4.tcp_rmem)",
    ),
    (
        "memory_reserve",
        &["TcpExtPFMemallocDrop"],
        "out of memory: only packets that help to free memory were accepted",
    ),
    (
        "ip_reassembly",
        &["IpReasmFails", "Ip6ReasmFails"],
        "IP: fragments that never became a datagram (a lost fragment, net.ipv4.ipfrag_high_thresh)",
    ),
    (
        "ip_fragmentation",
        &["IpFragFails", "Ip6FragFails"],
        "IP: too large for the path, and fragmentation forbidden (MTU)",
    ),
    (
        "ip_checksum",
        &["IpExtInCsumErrors"],
        "IP: the checksum of the header was wrong",
    ),
    (
        "ip_header",
        &[
            "IpInHdrErrors",
            "Ip6InHdrErrors",
            "IpExtInTruncatedPkts",
            "Ip6InTruncatedPkts",
            "Ip6InTooBigErrors",
        ],
        "IP: the header was wrong, or the packet shorter than it said",
    ),
    (
        "ip_address",
        &["IpInAddrErrors", "Ip6InAddrErrors"],
        "IP: the address is not this host's",
    ),
    (
        "ip_protocol",
        &["IpInUnknownProtos", "Ip6InUnknownProtos"],
        "IP: unknown protocol",
    ),
    (
        "ip_no_route",
        &[
            "IpOutNoRoutes",
            "Ip6OutNoRoutes",
            "IpExtInNoRoutes",
            "Ip6InNoRoutes",
        ],
        "IP: there was no route",
    ),
    (
        "ip_reverse_path",
        &["TcpExtIPReversePathFilter"],
        "IP: the sender's address is not reachable through that interface (rp_filter)",
    ),
    (
        "ip_receive",
        &["IpInDiscards", "Ip6InDiscards"],
        "IP: received and discarded, usually for lack of memory",
    ),
    (
        "ip_send",
        &["IpOutDiscards", "Ip6OutDiscards"],
        "IP: discarded before it was sent, for lack of memory or by a full queue, which counts it as well",
    ),
];

/// Columns of an interface.
const INTERFACES: &[(&str, usize, &str)] = &[
    (
        "interface_receive",
        column::RX_DROPPED,
        "the interface or its driver dropped received frames: no room, or no receiver",
    ),
    (
        "receive_ring",
        column::RX_FIFO,
        "the receive ring was full (ethtool -G)",
    ),
    (
        "frame",
        column::RX_FRAME,
        "damaged frames, or of a wrong length",
    ),
    (
        "interface_send",
        column::TX_DROPPED,
        "the interface or its driver dropped frames to send",
    ),
    (
        "send_ring",
        column::TX_FIFO,
        "the transmit ring was full (ethtool -G)",
    ),
    (
        "interface_send_error",
        column::TX_ERRORS,
        "the interface failed to send",
    ),
];

/// What was dropped where, by the counters of a namespace.
pub(super) fn drops(namespace: &str, tally: &Tally) -> Vec<Drop> {
    let drop = |place, interface: Option<&String>, count, words: &str| Drop {
        place,
        namespace: namespace.into(),
        interface: interface.cloned(),
        count,
        words: words.into(),
    };
    let mut drops = Vec::new();
    for (place, names, words) in PROTOCOLS {
        let count = names.iter().map(|it| tally.rise(&Counter::mib(it))).sum();
        drops.push(drop(place, None, count, words));
    }
    for (counter, rise) in tally.rises() {
        match counter {
            Counter::Interface(name, at) => {
                let places = INTERFACES.iter().filter(|it| it.1 == *at);
                drops.extend(places.map(|(place, _, words)| drop(place, Some(name), rise, words)));
                if *at == column::RX_ERRORS {
                    drops.push(drop(
                        "interface_receive_error",
                        Some(name),
                        other_errors(tally, name),
                        OTHER_ERRORS,
                    ));
                }
            }
            Counter::Queue(name, kind) => {
                let words = format!(
                    "the queueing discipline was full ({kind}): more was sent than the interface can transmit"
                );
                drops.push(drop("qdisc", Some(name), rise, &words));
            }
            Counter::Backlog(cpu) => {
                let words = format!("CPU {cpu}: {BACKLOG}");
                drops.push(drop("cpu_backlog", None, rise, &words));
            }
            Counter::Mib(_) | Counter::Socket(..) | Counter::Driver(..) => {}
        }
    }
    drops.retain(|it| it.count > 0);
    drops
}

const BACKLOG: &str = "its queue of received packets was full (net.core.netdev_max_backlog)";
const OTHER_ERRORS: &str = "the interface received invalid frames";

/// Drivers add what has a column of its own to the errors as well.
fn other_errors(tally: &Tally, name: &str) -> u64 {
    let rise = |at| tally.rise(&Counter::Interface(name.into(), at));
    let counted = rise(column::RX_FIFO) + rise(column::RX_FRAME);
    rise(column::RX_ERRORS).saturating_sub(counted)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn places(readings: &[(Counter, u64)]) -> Vec<(&'static str, u64)> {
        let mut tally = Tally::from_0();
        tally.update(readings.iter().cloned().collect());
        drops("n", &tally)
            .into_iter()
            .map(|it| (it.place, it.count))
            .collect()
    }

    #[test]
    fn drops__of_both_families_are_one_place() {
        let both = [
            (Counter::mib("UdpRcvbufErrors"), 3),
            (Counter::mib("Udp6RcvbufErrors"), 4),
            (Counter::mib("UdpLiteRcvbufErrors"), 5),
        ];
        assert_eq!(places(&both), [("udp_receive_buffer", 12)]);
        assert_eq!(places(&[(Counter::mib("UdpInDatagrams"), 9)]), []);
    }

    #[test]
    fn drops__errors_are_not_counted_twice() {
        let at = |column, count| (Counter::Interface("eth0".into(), column), count);
        let all = [
            at(column::RX_ERRORS, 10),
            at(column::RX_FIFO, 6),
            at(column::RX_FRAME, 4),
            at(column::RX_BYTES, 99),
        ];
        assert_eq!(places(&all), [("receive_ring", 6), ("frame", 4)]);
        assert_eq!(
            places(&[at(column::RX_ERRORS, 2)]),
            [("interface_receive_error", 2)]
        );
    }

    #[test]
    fn drops__queues_and_backlogs() {
        let queue = (Counter::Queue("eth0".into(), "tbf".into()), 5);
        assert_eq!(places(&[queue]), [("qdisc", 5)]);
        let backlogs = [(Counter::Backlog(0), 2), (Counter::Backlog(1), 3)];
        assert_eq!(places(&backlogs), [("cpu_backlog", 2), ("cpu_backlog", 3)]);
    }
}
