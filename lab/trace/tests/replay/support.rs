//! Makes captures in code: packets of hosts with short names, and the formats of files.

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder};
use zerolane_trace::{Cause, Options, Report, Tally, Trace};

/// Bytes of TCP payload in a full frame, by a stack with timestamps.
pub(crate) const MSS: u32 = 1448;

/// The options of such a stack: two of padding and the timestamps.
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

/// A recorded packet: when it came in nanoseconds, its first bytes, its length.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) time: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: u32,
}

/// Frames, 1 us apart unless told otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capture {
    pub(crate) frames: Vec<Frame>,
    time: u64,
}

/// A flow: last bytes of both addresses, and ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: (u8, u16),
    pub(crate) to: (u8, u16),
}

/// From host `from` to host `to`.
pub(crate) const fn ends(from: u8, to: u8) -> Ends {
    Ends {
        from: (from, 4000 + from as u16),
        to: (to, 80),
    }
}

pub(crate) fn mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, host]
}

pub(crate) fn ip(host: u8) -> [u8; 4] {
    [10, 0, 0, host]
}

impl Capture {
    /// When the next packet comes, nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        1_700_000_000_000_000_000 + self.time
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u32;
        let time = self.now();
        self.frames.push(Frame { time, bytes, len });
        self.time += 1_000;
    }

    /// Nothing comes for so many microseconds.
    pub(crate) fn pause(&mut self, us: u64) {
        self.time += us * 1_000;
    }

    /// A segment of TCP with timestamps.
    pub(crate) fn tcp(&mut self, ends: Ends, number: u32, len: u32) {
        self.segment(ends, number, len, &TIMESTAMPS, false);
    }

    pub(crate) fn syn(&mut self, ends: Ends, number: u32) {
        self.segment(ends, number, 0, &TIMESTAMPS, true);
    }

    /// One with the options that are given.
    pub(crate) fn segment(&mut self, ends: Ends, number: u32, len: u32, options: &[u8], syn: bool) {
        let builder = PacketBuilder::ethernet2(mac(ends.from.0), mac(ends.to.0))
            .ipv4(ip(ends.from.0), ip(ends.to.0), 64)
            .tcp(ends.from.1, ends.to.1, number, 65_535)
            .options_raw(options)
            .unwrap()
            .ack(1);
        let builder = if syn { builder.syn() } else { builder };
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &vec![0; len as usize]).unwrap();
        self.push(bytes);
    }

    pub(crate) fn udp(&mut self, ends: Ends, len: usize) {
        let builder = PacketBuilder::ethernet2(mac(ends.from.0), mac(ends.to.0))
            .ipv4(ip(ends.from.0), ip(ends.to.0), 64)
            .udp(ends.from.1, ends.to.1);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &vec![0; len]).unwrap();
        self.push(bytes);
    }

    /// The fragments of a datagram of UDP with `len` bytes of payload, on Ethernet.
    pub(crate) fn fragments(ends: Ends, id: u16, len: u32) -> Vec<Vec<u8>> {
        const ROOM: usize = 1480;
        let mut datagram = Vec::new();
        datagram.extend(ends.from.1.to_be_bytes());
        datagram.extend(ends.to.1.to_be_bytes());
        datagram.extend((len as u16 + 8).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.resize(8 + len as usize, 0);
        let count = datagram.len().div_ceil(ROOM);
        let pieces = datagram.chunks(ROOM).enumerate();
        pieces
            .map(|(index, piece)| {
                let addresses = (ip(ends.from.0), ip(ends.to.0));
                let protocol = IpNumber::UDP;
                let header =
                    Ipv4Header::new(piece.len() as u16, 64, protocol, addresses.0, addresses.1);
                let mut header = header.unwrap();
                header.identification = id;
                header.dont_fragment = false;
                header.more_fragments = index + 1 < count;
                header.fragment_offset = IpFragOffset::try_new((index * ROOM / 8) as u16).unwrap();
                let mut bytes = [&mac(ends.to.0)[..], &mac(ends.from.0), &[8, 0]].concat();
                header.write(&mut bytes).unwrap();
                bytes.extend(piece);
                bytes
            })
            .collect()
    }

    /// Of each frame only the first `len` bytes are recorded.
    pub(crate) fn snapped(mut self, len: usize) -> Capture {
        for frame in &mut self.frames {
            frame.bytes.truncate(len);
        }
        self
    }

    /// As a pcap file, in microseconds, of Ethernet.
    pub(crate) fn pcap(&self) -> Vec<u8> {
        self.pcap_as(false, false, 1)
    }

    /// As a pcap file: of big or little endian, in nano- or microseconds.
    pub(crate) fn pcap_as(&self, big: bool, nano: bool, link: u32) -> Vec<u8> {
        let word = |it: u32| match big {
            true => it.to_be_bytes(),
            false => it.to_le_bytes(),
        };
        let half = |it: u16| match big {
            true => it.to_be_bytes(),
            false => it.to_le_bytes(),
        };
        let mut file = word(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
        file.extend([half(2), half(4)].concat());
        for it in [0, 0, 262_144, link] {
            file.extend(word(it));
        }
        for frame in &self.frames {
            let unit = if nano { 1 } else { 1_000 };
            let seconds = (frame.time / 1_000_000_000) as u32;
            let rest = (frame.time % 1_000_000_000 / unit) as u32;
            for it in [seconds, rest, frame.bytes.len() as u32, frame.len] {
                file.extend(word(it));
            }
            file.extend(&frame.bytes);
        }
        file
    }

    /// As a pcapng file, little endian, with interfaces of these links and if_tsresol; packets come by them in turn.
    pub(crate) fn pcapng(&self, interfaces: &[(u16, u8)]) -> Vec<u8> {
        self.pcapng_as(interfaces, false, false)
    }

    /// The same with its packets in blocks of the type before the enhanced one, in either byte order.
    pub(crate) fn pcapng_of_packet_blocks(&self, interfaces: &[(u16, u8)], big: bool) -> Vec<u8> {
        self.pcapng_as(interfaces, big, true)
    }

    fn pcapng_as(&self, interfaces: &[(u16, u8)], big: bool, old: bool) -> Vec<u8> {
        let word = |it: u32| match big {
            true => it.to_be_bytes(),
            false => it.to_le_bytes(),
        };
        let half = |it: u16| match big {
            true => it.to_be_bytes(),
            false => it.to_le_bytes(),
        };
        let mut file = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let len = word(body.len() as u32 + 12);
            file.extend([&word(kind)[..], &len, body, &len].concat());
        };
        let version = [half(1), half(0)].concat();
        let header = [&word(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat();
        block(0x0a0d_0d0a, &header);
        for &(link, resolution) in interfaces {
            let described = [half(link), [0, 0]].concat();
            let option = [&half(9)[..], &half(1), &[resolution, 0, 0, 0]].concat();
            let body = [&described[..], &word(1 << 18), &option, &[0; 4]].concat();
            block(1, &body);
        }
        for (index, frame) in self.frames.iter().enumerate() {
            let interface = index % interfaces.len();
            let units = in_units(frame.time, interfaces[interface].1);
            let mut body = match old {
                // And how many packets were lost before it.
                true => [half(interface as u16), half(7)].concat(),
                false => word(interface as u32).to_vec(),
            };
            for it in [
                (units >> 32) as u32,
                units as u32,
                frame.bytes.len() as u32,
                frame.len,
            ] {
                body.extend(word(it));
            }
            body.extend(&frame.bytes);
            body.resize(body.len().next_multiple_of(4), 0);
            block(if old { 2 } else { 6 }, &body);
        }
        file
    }
}

/// Nanoseconds in the units that if_tsresol names.
fn in_units(time: u64, resolution: u8) -> u64 {
    let units = match resolution & 0x80 {
        0 => 10_u128.pow(resolution.into()),
        _ => 1 << (resolution & 0x7f),
    };
    (u128::from(time) * units / 1_000_000_000) as u64
}

/// Traces one file.
pub(crate) fn traced(file: &[u8]) -> Report {
    traced_with(file, &Options::default())
}

pub(crate) fn traced_with(file: &[u8], options: &Options) -> Report {
    let mut trace = Trace::new(options);
    trace.read("made", file).expect("a capture");
    trace.finish()
}

/// What is expected of a tally: predictions, hits, and misses with their causes.
pub(crate) fn assert_tally(
    name: &str,
    tally: &Tally,
    potential: u64,
    hits: u64,
    misses: &[(Cause, u64)],
) {
    assert_eq!(
        (tally.potential, tally.hits),
        (potential, hits),
        "{name}: {tally:?}"
    );
    for cause in Cause::ALL {
        let expected = misses.iter().find(|it| it.0 == cause).map_or(0, |it| it.1);
        assert_eq!(tally.misses(cause), expected, "{name}: {cause:?}");
    }
}
