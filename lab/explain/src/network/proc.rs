//! Reads the files of `/proc/PID/net`.

use super::tally::{Counter, Readings};

/// Columns of an interface's line in `dev`.
pub(super) mod column {
    pub(in crate::network) const RX_BYTES: usize = 0;
    pub(in crate::network) const RX_PACKETS: usize = 1;
    pub(in crate::network) const RX_ERRORS: usize = 2;
    pub(in crate::network) const RX_DROPPED: usize = 3;
    pub(in crate::network) const RX_FIFO: usize = 4;
    pub(in crate::network) const RX_FRAME: usize = 5;
    pub(in crate::network) const TX_BYTES: usize = 8;
    pub(in crate::network) const TX_PACKETS: usize = 9;
    pub(in crate::network) const TX_ERRORS: usize = 10;
    pub(in crate::network) const TX_DROPPED: usize = 11;
    pub(in crate::network) const TX_FIFO: usize = 12;
}

/// `dev`: two lines of titles, then one for each interface.
pub(super) fn interfaces(text: &str) -> Readings {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let of_line = |(name, numbers): (&str, &str)| {
        let name = name.trim().to_owned();
        let numbers: Vec<u64> = numbers
            .split_whitespace()
            .map_while(|it| it.parse().ok())
            .collect();
        let columns = numbers.into_iter().enumerate();
        columns.map(move |(at, number)| (Counter::Interface(name.clone(), at), number))
    };
    lines.flat_map(of_line).collect()
}

/// `snmp` and `netstat`: a line of titles and a line of numbers, both behind the same name.
pub(super) fn mibs(text: &str) -> Readings {
    let lines: Vec<_> = text.lines().filter_map(|it| it.split_once(": ")).collect();
    let pairs = lines.as_chunks::<2>().0.iter();
    let of_pair = |[(name, titles), (_, numbers)]: &[(&str, &str); 2]| {
        let columns = titles.split_whitespace().zip(numbers.split_whitespace());
        let columns = columns.filter_map(|(title, number)| {
            // Some are signed; those are no counters.
            let number = number.parse().ok()?;
            Some((Counter::Mib(format!("{name}{title}")), number))
        });
        columns.collect::<Vec<_>>()
    };
    pairs.flat_map(of_pair).collect()
}

/// `snmp6`: a name and a number a line.
pub(super) fn mibs6(text: &str) -> Readings {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        Some((Counter::mib(name), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// `udp` and `udp6`: the drops of each socket.
pub(super) fn sockets(protocol: &'static str, text: &str) -> Readings {
    let of_line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (_, port) = words.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let inode = words.get(9)?.parse().ok()?;
        let drops = words.get(12)?.parse().ok()?;
        Some((Counter::Socket(protocol, port, inode), drops))
    };
    text.lines().filter_map(of_line).collect()
}

/// `softnet_stat`: the second number of each CPU's line. The thirteenth is the CPU; older kernels have none, and a line for
/// each CPU.
pub(super) fn backlog(text: &str) -> Readings {
    let of_line = |(at, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        let dropped = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let cpu = words.nth(10);
        let cpu = cpu.and_then(|it| usize::from_str_radix(it, 16).ok());
        Some((Counter::Backlog(cpu.unwrap_or(at)), dropped))
    };
    text.lines().enumerate().filter_map(of_line).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn interfaces__by_column() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n eth0:17 18\n";
        let read = interfaces(text);
        let at = |name: &str, column| read.get(&Counter::Interface(name.into(), column)).copied();
        assert_eq!(at("lo", column::RX_BYTES), Some(1));
        assert_eq!(at("lo", column::TX_DROPPED), Some(12));
        assert_eq!(at("eth0", column::RX_PACKETS), Some(18));
        assert_eq!(at("eth0", column::TX_BYTES), None);
    }

    #[test]
    fn mibs__titles_over_numbers() {
        let text = "Tcp: MaxConn InErrs\nTcp: -1 7\nUdp: RcvbufErrors\nUdp: 3\nlonely: 1\n";
        let read = mibs(text);
        assert_eq!(
            read,
            [
                (Counter::mib("TcpInErrs"), 7),
                (Counter::mib("UdpRcvbufErrors"), 3)
            ]
            .into()
        );
        assert_eq!(
            mibs6("Udp6InErrors   \t5\nnonsense\n"),
            [(Counter::mib("Udp6InErrors"), 5)].into()
        );
    }

    #[test]
    fn sockets__with_their_drops() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                    1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 9\n";
        assert_eq!(
            sockets("udp", text),
            [(Counter::Socket("udp", 53, 4711), 9)].into()
        );
    }

    #[test]
    fn backlog__of_each_cpu() {
        let text = "000199ee 0000000a 00000000\n0000bdb4 00000001 00000000\n";
        let expected = [(Counter::Backlog(0), 10), (Counter::Backlog(1), 1)];
        assert_eq!(backlog(text), expected.into());
        // CPU 0 is offline.
        let numbered = format!("1 2 {}0000001f 0 0\n", "0 ".repeat(10));
        assert_eq!(backlog(&numbered), [(Counter::Backlog(31), 2)].into());
        assert_eq!(backlog(""), [].into());
    }
}
