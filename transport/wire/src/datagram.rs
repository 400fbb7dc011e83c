//! Parses and emits the header of datagrams: payload that needs no grant, is never sent again, and may be lost.
//!
//! A datagram that is longer than an STU travels as a train where the receiver takes trains, and otherwise in parts,
//! each with a header.

use crate::header::{Field, Flags, Header, Op, ParseError, Problem};
use crate::train::Train;

/// Longest datagram, bytes: one train carries it over any usual path.
pub const MAX_DATAGRAM: u32 = 60 << 10;

/// Datagrams have 31-bit numbers: the highest bit of D_id is set in all Data that needs no grant.
const NUMBERS: u32 = u32::MAX >> 1;

/// B_id of datagrams, which are neither messages nor for a region.
const DATAGRAMS: u16 = 65_533;

/// A part of a datagram, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramPart {
    /// Number of the datagram, modulo 2^31.
    pub number: u32,
    /// Bytes of the datagram, 1 to [`MAX_DATAGRAM`].
    pub length: u32,
    /// First byte of the part, below `length`.
    pub start: u32,
}

impl DatagramPart {
    /// The number of the datagram after `number`.
    #[must_use]
    pub const fn next(number: u32) -> u32 {
        number.wrapping_add(1) & NUMBERS
    }

    /// How many datagrams were sent from `other` to `number`, negative if `number` is the earlier one.
    #[must_use]
    pub const fn distance(number: u32, other: u32) -> i32 {
        (number << 1).wrapping_sub(other << 1) as i32 >> 1
    }

    /// The header of the part, without route and number of the burst.
    #[must_use]
    pub const fn header(self) -> Header {
        Header {
            flags: Flags::DATAGRAM,
            b_id: DATAGRAMS,
            offset: self.start,
            b_num: self.length,
            d_id: self.number | !NUMBERS,
            ..Header::new(Op::Data)
        }
    }

    /// Whether `header` is that of a datagram, in parts or as a train.
    #[must_use]
    pub const fn is(header: &Header) -> bool {
        let others = Flags::EAGER.bits() | Flags::FRAMES.bits();
        header.flags.contains(Flags::DATAGRAM)
            && header.flags.bits() & others == 0
            && matches!(header.op, Op::Data)
    }

    /// The part with this `header` and `len` bytes of payload, for which [`DatagramPart::is`] holds.
    ///
    /// # Errors
    /// Names the field: no payload, a datagram that is too long, a part that reaches beyond it, a train that is not all
    /// of it, or flags of other Data.
    pub fn of(header: &Header, len: u32) -> Result<DatagramPart, ParseError> {
        let refused =
            |field, value: u32| Err(ParseError::new(field, Problem::OutOfRange(value.into())));
        let known = Flags::DATAGRAM.with(Flags::SEND_STATE).with(Flags::TRAIN);
        if header.flags.without(known) != Flags::NONE {
            return refused(Field::Flags, header.flags.bits().into());
        }
        let part = DatagramPart {
            number: header.d_id & NUMBERS,
            length: header.b_num,
            start: header.offset,
        };
        if part.length == 0 || part.length > MAX_DATAGRAM {
            return refused(Field::BNum, part.length);
        }
        if header.d_id <= NUMBERS {
            return refused(Field::DId, header.d_id);
        }
        if header.b_id != DATAGRAMS {
            return refused(Field::BId, header.b_id.into());
        }
        let whole = match Train::of(header)? {
            Some(_) => len == part.length && part.start == 0,
            None => true,
        };
        let ends = part.start.checked_add(len);
        if !whole || len == 0 || ends.is_none_or(|end| end > part.length) {
            return refused(Field::Offset, part.start);
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const PART: DatagramPart = DatagramPart {
        number: 7,
        length: 3000,
        start: 1400,
    };

    #[test]
    fn header__is_parsed_as_it_was_written() {
        let parsed = Header::parse(&PART.header().emit()).expect("a header");
        assert!(DatagramPart::is(&parsed));
        assert_eq!(DatagramPart::of(&parsed, 1400), Ok(PART));
        assert_eq!(DatagramPart::of(&parsed, 1600), Ok(PART), "to the end");
        let whole = DatagramPart { start: 0, ..PART };
        let train = Train {
            len: 3000,
            padding: 1,
        };
        let train = train.header(whole.header());
        assert!(DatagramPart::is(&train));
        assert_eq!(DatagramPart::of(&train, 3000), Ok(whole));
    }

    #[test]
    fn of__names_the_field_that_is_wrong() {
        let of = |header: Header, len| DatagramPart::of(&header, len).map_err(|it| it.field);
        let it = PART.header();
        assert_eq!(of(it, 1601), Err(Field::Offset), "beyond its end");
        assert_eq!(of(it, 0), Err(Field::Offset));
        let far = Header {
            offset: u32::MAX,
            ..it
        };
        assert_eq!(of(far, 1400), Err(Field::Offset));
        for b_num in [0, MAX_DATAGRAM + 1] {
            assert_eq!(of(Header { b_num, ..it }, 1), Err(Field::BNum));
        }
        let d_id = it.d_id & NUMBERS;
        assert_eq!(of(Header { d_id, ..it }, 1), Err(Field::DId));
        assert_eq!(of(Header { b_id: 0, ..it }, 1), Err(Field::BId));
        for other in [
            Flags::SILENT,
            Flags::MEMORY,
            Flags::MESSAGE,
            Flags::ANNOUNCES,
        ] {
            let flags = it.flags.with(other);
            assert_eq!(of(Header { flags, ..it }, 1), Err(Field::Flags));
        }
        let train = Train {
            len: 1600,
            padding: 0,
        };
        assert_eq!(of(train.header(it), 1600), Err(Field::Offset), "a part");
    }

    #[test]
    fn is__nothing_else() {
        for flags in [Flags::NONE, Flags::EAGER.with(Flags::READ), Flags::FRAMES] {
            assert!(!DatagramPart::is(&Header {
                flags,
                ..Header::new(Op::Data)
            }));
        }
    }

    #[test]
    fn distance__goes_around_the_end() {
        assert_eq!(DatagramPart::next(NUMBERS), 0);
        assert_eq!(DatagramPart::distance(3, NUMBERS), 4);
        assert_eq!(DatagramPart::distance(NUMBERS, 3), -4);
        assert_eq!(DatagramPart::distance(9, 9), 0);
    }
}
