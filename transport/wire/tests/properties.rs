//! Tests that the whole wire format keeps its properties, for arbitrary values and arbitrary bytes.
#![allow(non_snake_case)]

mod strategies;

use proptest::collection::vec;
use proptest::prelude::*;
use zerolane_wire::checksum::Sum;
use zerolane_wire::discovery::{DISCOVERY_LEN, Discovery, is_neighbour_name};
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{
    Field, Flags, FrameFields, FrameHead, Frames, HEADER_LEN, Header, MAX_FRAME_HEAD_LEN,
    MAX_FRAMES, OPTIONS_LEN, Op, Packet, ParseError, Problem,
};

/// The fields that an error may name when one bit of a valid datagram is flipped; `bit` counts from the first byte's
/// highest. Empty: the flip results in another valid value.
fn suspects(bit: usize) -> &'static [Field] {
    use Field::*;
    match bit / 8 {
        // Another operation, or another form of the same: its fields have other meanings.
        0 | 1 => &[Op, Flags, Param, BId, Bufx, Offset, DId, SId, Options],
        2 | 3 => &[Param],
        12 | 13 => &[Checksum],
        14 | 15 => &[BId],
        16..20 => &[Bufx],
        20..24 => &[Offset],
        32..36 => &[DId],
        36..40 => &[SId],
        40.. => &[Options],
        _ => &[],
    }
}

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bit / 8] ^= 0x80 >> (bit % 8);
    flipped
}

/// Checks the properties of every accepted datagram, even a hostile one: emitting it again changes only ignored fields,
/// and sets those to zero.
fn check_accepted(received: &[u8], packet: &Packet) -> Result<Vec<u8>, TestCaseError> {
    let (emitted, len) = packet.emit();
    let emitted = &emitted[..len];
    prop_assert_eq!(Packet::parse(emitted), Ok(*packet));
    prop_assert!(len <= received.len());
    for (at, (sent, got)) in emitted.iter().zip(received).enumerate() {
        prop_assert_eq!(sent & !got, 0, "byte {} was made up", at);
    }
    Ok(emitted.to_vec())
}

fn with_options(header: &Header, options: &[u8]) -> Vec<u8> {
    [&header.emit()[..], options].concat()
}

/// Numbered operations that leave together: consecutive, on one connection, each with its payload.
fn operations() -> impl Strategy<Value = Vec<(Header, Vec<u8>)>> {
    let flags = (any::<bool>(), any::<bool>()).prop_map(|(interrupt, continues)| {
        Flags::SILENT
            .with_if(Flags::INTERRUPT, interrupt)
            .with_if(Flags::CONTINUES, continues)
    });
    // Few places and identifiers, so that some equal those of the previous operation.
    let own = (
        flags,
        0..3u32,
        any::<u32>(),
        0..3u32,
        0..3u32,
        vec(any::<u8>(), 0..40),
    );
    (strategies::header(), vec(own, 1..20)).prop_map(|(shared, all)| {
        let numbered = (0..).zip(all);
        numbered
            .map(|(n, (flags, place, offset, b_num, skipped, payload))| {
                let header = Header {
                    op: Op::Data,
                    flags,
                    checksum: 0,
                    b_id: place as u16,
                    bufx: place,
                    offset,
                    sync: shared.sync.wrapping_add(n),
                    b_num,
                    d_id: 1 << 31 | place,
                    s_id: shared.s_id.wrapping_add(n).wrapping_add(skipped / 2),
                    ..shared
                };
                (header, payload)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn frames__are_the_operations_that_they_were_made_of(all in operations(), padding in 0..60usize) {
        let mut content = vec![];
        let mut before = None;
        for (header, payload) in &all {
            let it = FrameFields::of(header);
            let head = FrameHead::new(before, it, payload.len() as u16);
            let mut place = [0xee; MAX_FRAME_HEAD_LEN];
            let len = head.emit_into(&mut place);
            prop_assert_eq!(len, head.size());
            content.extend_from_slice(&place[..len]);
            content.extend_from_slice(payload);
            before = Some(it);
        }
        content.resize(content.len() + padding, 0);
        let shared = Frames::header(&all[0].0);
        let frames = Frames::parse(&Header::parse(&shared.emit()).unwrap(), &content).unwrap();
        let read: Vec<_> = frames.map(|(header, payload)| (header, payload.to_vec())).collect();
        prop_assert_eq!(read, all);
    }

    #[test]
    fn frames__of_any_bytes_are_as_many_as_were_counted_and_lie_in_them(
        header in strategies::header().prop_map(|it| Header { d_id: it.d_id | 1 << 31, ..it }),
        content in vec(prop_oneof![Just(0x80), Just(0), any::<u8>()], 0..300),
    ) {
        match Frames::parse(&header, &content) {
            Ok(frames) => {
                let (count, mut bytes) = (frames.len(), 0);
                prop_assert!((1..=MAX_FRAMES).contains(&count));
                let read = frames.inspect(|(_, payload)| bytes += payload.len()).count();
                prop_assert_eq!(read, count);
                prop_assert!(bytes < content.len());
            }
            Err(error) => prop_assert!(matches!(error.field, Field::Frame | Field::DId)),
        }
    }
}

proptest! {
    #[test]
    fn header__parse_inverts_emit(header in strategies::header()) {
        prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn header__emit_inverts_parse(bytes in vec(any::<u8>(), HEADER_LEN)) {
        match Header::parse(&bytes) {
            Ok(header) => prop_assert_eq!(&header.emit()[..], &bytes[..]),
            Err(error) => {
                prop_assert_eq!(error.field, Field::Op);
                let code = bytes[0] >> 3;
                prop_assert_eq!(error.problem, Problem::Unassigned(code.into()));
                prop_assert!(!Op::ALL.iter().any(|&op| op as u8 == code));
            }
        }
    }

    #[test]
    fn discovery__emit_inverts_parse(
        mut bytes in vec(any::<u8>(), DISCOVERY_LEN),
        len in 0..=63u8,
        kind in 0..=3u8,
        letter in any::<u8>(),
        zeros in any::<bool>(),
    ) {
        bytes[0] = 29 << 3;
        (bytes[1], bytes[2]) = (kind, len);
        let name = 24..24 + usize::from(len);
        if zeros {
            bytes[3] = 0;
            bytes[6..16].fill(0);
            bytes[name.end..].fill(0);
            bytes[name.clone()].fill(letter);
        }
        match Discovery::parse(&bytes) {
            Ok(read) => {
                prop_assert_eq!(&read.emit()[..], &bytes[..]);
                prop_assert!(is_neighbour_name(read.name) || read.name.is_empty());
            }
            Err(_) => {
                let good = letter.is_ascii_alphanumeric() && len > 0 && matches!(kind, 1 | 2);
                prop_assert!(!(zeros && good));
            }
        }
    }

    #[test]
    fn discovery__any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(read) = Discovery::parse(&bytes) {
            prop_assert_eq!(&read.emit()[..], &bytes[..]);
        }
    }

    #[test]
    fn packet__parse_inverts_emit(packet in strategies::packet()) {
        let (bytes, len) = packet.emit();
        prop_assert!(len == HEADER_LEN || len == HEADER_LEN + OPTIONS_LEN);
        prop_assert_eq!(Packet::parse(&bytes[..len]), Ok(packet));
    }

    #[test]
    fn packet__every_truncation_is_named(packet in strategies::packet()) {
        let (bytes, full) = packet.emit();
        for len in 0..full {
            let truncated = |field, len| ParseError { field, problem: Problem::Truncated(len) };
            let parsed = Packet::parse(&bytes[..len]);
            if len < HEADER_LEN {
                prop_assert_eq!(parsed, Err(truncated(Field::Header, len)));
            } else if len > HEADER_LEN {
                prop_assert_eq!(parsed, Err(truncated(Field::Options, len - HEADER_LEN)));
            } else if matches!(
                packet.operation.op(),
                Op::ClearToSend | Op::Nop | Op::RequestDisconnect
            ) {
                // The operations whose options are optional.
                check_accepted(&bytes[..len], &parsed.unwrap())?;
            } else {
                prop_assert_eq!(parsed, Err(truncated(Field::Options, 0)));
            }
        }
    }

    #[test]
    fn packet__every_bit_flip_is_named_or_valid(packet in strategies::packet()) {
        let (bytes, len) = packet.emit();
        let bytes = &bytes[..len];
        for bit in 0..8 * len {
            let flipped = flip(bytes, bit);
            match Packet::parse(&flipped) {
                Err(error) => prop_assert!(
                    suspects(bit).contains(&error.field),
                    "bit {} blamed on {}", bit, error
                ),
                Ok(other) => {
                    let again = check_accepted(&flipped, &other)?;
                    // Within the fields of one operation, a bit is either significant or ignored.
                    let reinterprets = !(16..8 * HEADER_LEN).contains(&bit);
                    prop_assert!(reinterprets || again == flipped || other == packet);
                }
            }
        }
    }

    #[test]
    fn packet__a_checksum_finds_every_bit_flip(packet in strategies::packet()) {
        let (bytes, len) = packet.emit();
        let options = &bytes[HEADER_LEN..len];
        let sealed = Header::parse(&bytes[..len]).unwrap().sealed(Sum::of(options));
        let bytes = with_options(&sealed, options);
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        for bit in 0..8 * len {
            let flipped = flip(&bytes, bit);
            let omitted = Header::parse(&flipped).is_ok_and(|header| header.checksum == 0);
            prop_assert!(omitted || Packet::parse(&flipped).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn packet__arbitrary_bytes(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            check_accepted(&bytes, &packet)?;
        }
    }

    #[test]
    fn packet__arbitrary_fields(
        header in strategies::header(),
        options in vec(prop_oneof![Just(0u8), any::<u8>()], OPTIONS_LEN),
        with in any::<bool>(),
    ) {
        let header = Header { checksum: 0, ..header };
        let bytes = with_options(&header, if with { &options } else { &[] });
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(packet.operation.op(), header.op);
            check_accepted(&bytes, &packet)?;
        }
    }

    #[test]
    fn sum__joined_at_any_split(bytes in vec(any::<u8>(), 0..80), cut in 0..80usize) {
        let whole = Sum::of(&bytes);
        for split in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(split);
            prop_assert_eq!(Sum::of(head).join(Sum::of(tail)), whole);
            let (middle, end) = tail.split_at(cut.min(tail.len()));
            let tail = Sum::of(middle).join(Sum::of(end));
            prop_assert_eq!(Sum::of(head).join(tail), whole);
        }
    }

    #[test]
    fn sum__is_rfc_1071(bytes in vec(any::<u8>(), 0..400)) {
        // The definition: 16-bit words, the last padded with zero, carries added back in.
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let expected = if sum == 0xffff { 0xffff } else { !sum as u16 };
        prop_assert_eq!(Sum::of(&bytes).finish(), expected);
    }

    #[test]
    fn sum__matches_nothing_with_a_bit_flipped(bytes in vec(any::<u8>(), 1..100)) {
        let field = Sum::of(&bytes).finish();
        prop_assert!(Sum::of(&bytes).matches(field));
        for bit in 0..8 * bytes.len() {
            prop_assert!(!Sum::of(&flip(&bytes, bit)).matches(field), "bit {}", bit);
        }
        for bit in (0..16).map(|bit| field ^ 1 << bit).filter(|&field| field != 0) {
            prop_assert!(!Sum::of(&bytes).matches(bit));
        }
    }

    #[test]
    fn max_stu__fits_the_path(mtu in prop_oneof![0..200usize, 0..70_000usize]) {
        use Encapsulation::*;
        for carrier in [UdpV4, UdpV6, IpV4, IpV6, Ethernet, Memory] {
            let stu = carrier.max_stu(mtu);
            let whole = carrier.overhead() + HEADER_LEN + stu;
            prop_assert!(stu == 0 || whole <= mtu);
            // The largest possible size: one byte more exceeds the MTU or the encapsulation's own limit.
            prop_assert!(whole >= mtu || stu == carrier.max_stu(usize::MAX));
            prop_assert!(carrier.max_stu(mtu + 1) >= stu);
        }
    }
}
