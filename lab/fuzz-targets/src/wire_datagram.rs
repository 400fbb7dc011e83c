//! Fuzzes the header of datagrams: no panic, a part lies inside its datagram, and is emitted as it was parsed.

use zerolane_wire::{DatagramPart, Flags, HEADER_LEN, Header, MAX_DATAGRAM, Train};

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let Ok(header) = Header::parse(input) else {
        return;
    };
    if !DatagramPart::is(&header) {
        return;
    }
    let len = (input.len() - HEADER_LEN) as u32;
    for len in [len, header.s_id, header.b_num] {
        let Ok(part) = DatagramPart::of(&header, len) else {
            continue;
        };
        assert!(part.length > 0 && part.length <= MAX_DATAGRAM);
        assert!(len > 0 && part.start + len <= part.length);
        if Train::of(&header).unwrap().is_some() {
            assert_eq!((part.start, len), (0, part.length));
        }
        let again = Header {
            flags: header.flags.without(Flags::TRAIN),
            ..part.header()
        };
        assert_eq!(DatagramPart::of(&again, len), Ok(part));
    }
}
