//! Assembles trains: one piece of payload in many datagrams, and one header behind all of it.
//!
//! Only the last datagram holds more than payload: the end of the payload, padding, the header, and the seal. So the
//! payload is one piece at either end, and none of it is trusted before all of it was checked.

use crate::header::{Field, Flags, HEADER_LEN, Header, Op, ParseError, Problem};
use core::ops::Range;

/// Most payload bytes in a train: what the datagrams of one send call hold together.
pub const MAX_TRAIN: u32 = 65_507;

/// Bytes of the digest behind the header of a train, on a connection that seals nothing.
pub const DIGEST_LEN: usize = 8;

/// The layout in front of a train's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Train {
    /// Payload, bytes, 1 to [`MAX_TRAIN`].
    pub len: u32,
    /// Padding between payload and header, 0 or 1 byte. It makes the last datagram shorter than the others, so that a
    /// kernel that merges them stops there.
    pub padding: u16,
}

impl Train {
    /// The header behind the train, from `data`, the header that its first byte would have as Data.
    #[must_use]
    pub const fn header(self, data: Header) -> Header {
        Header {
            flags: data.flags.with(Flags::TRAIN),
            param: self.padding,
            s_id: self.len,
            ..data
        }
    }

    /// The header that a train's payload would have as Data.
    #[must_use]
    pub const fn data(header: &Header) -> Header {
        Header {
            flags: header.flags.without(Flags::TRAIN).without(Flags::ANNOUNCES),
            param: 0,
            b_num: match header.flags.contains(Flags::ANNOUNCES) {
                true => 0,
                false => header.b_num,
            },
            s_id: 0,
            ..*header
        }
    }

    /// `data`, a header of Block 0, for a train that announces the Transfer that its source calls `s_id`.
    #[must_use]
    pub const fn announcing(data: Header, s_id: u32) -> Header {
        Header {
            flags: data.flags.with(Flags::ANNOUNCES),
            b_num: s_id,
            ..data
        }
    }

    /// The source's identifier of the Transfer that the train with this `header` announces, if it announces one.
    #[must_use]
    pub const fn announced(header: &Header) -> Option<u32> {
        match header.flags.contains(Flags::ANNOUNCES) {
            true => Some(header.b_num),
            false => None,
        }
    }

    /// The train that ends with `header`; `None` if it is no train's header.
    ///
    /// # Errors
    /// Names the field: too long or empty, too much padding, or combined with another kind of Data.
    pub fn of(header: &Header) -> Result<Option<Train>, ParseError> {
        if header.op != Op::Data || !header.flags.contains(Flags::TRAIN) {
            return Ok(None);
        }
        let others = [
            Flags::EAGER,
            Flags::MEMORY,
            Flags::MESSAGE,
            Flags::CONTINUES,
        ];
        let refused = |field, value| ParseError::new(field, Problem::OutOfRange(value));
        let announces_frames = header.flags.contains(Flags::FRAMES.with(Flags::ANNOUNCES));
        if announces_frames || others.iter().any(|&flag| header.flags.contains(flag)) {
            return Err(refused(Field::Flags, u64::from(header.flags.bits())));
        }
        if header.s_id == 0 || header.s_id > MAX_TRAIN {
            return Err(refused(Field::SId, u64::from(header.s_id)));
        }
        if Train::announced(header) == Some(0) {
            return Err(refused(Field::BNum, 0));
        }
        if header.param > 1 {
            return Err(refused(Field::Param, u64::from(header.param)));
        }
        Ok(Some(Train {
            len: header.s_id,
            padding: header.param,
        }))
    }
}

/// Classification of a received piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// Part of an unfinished train.
    Part,
    /// The end of an apparently complete train. Nothing was checked: parts may be missing, or replaced by other data.
    Train {
        /// The header behind it.
        header: Header,
        /// The payload's range in the buffer.
        payload: Range<usize>,
        /// Bytes of each of its datagrams, except the last.
        datagram: u32,
    },
    /// The end of a train with missing parts.
    Incomplete,
    /// Cannot be part of a train.
    Stray,
}

/// Assembles trains in one buffer from received pieces, merged or not, cut between any two datagrams. A train is the
/// bytes in front of its header, so a train that lost its end does not spoil the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assembler {
    filled: usize,
    datagram: usize,
}

impl Assembler {
    /// Size of a buffer with room for the rest of a train that lost its end, for the next train, and for another piece,
    /// so that the first does not spoil the second.
    pub const BUFFER: usize = 3 << 16;

    /// Bytes at the start of the buffer that belong to an unfinished train: the next piece goes behind them.
    pub const fn filled(&self) -> usize {
        self.filled
    }

    /// Takes the piece of `len` bytes behind the filled part of `buffer`: datagrams of `datagram` bytes, of which the
    /// last may be shorter. `seal` bytes follow a train's header; `is_ours` recognizes a header of this connection. The
    /// next piece may overwrite a piece that was not accepted as a part. A buffer without room for another
    /// [`MAX_TRAIN`] is emptied.
    pub fn take(
        &mut self,
        buffer: &[u8],
        (len, datagram): (usize, usize),
        seal: usize,
        is_ours: impl Fn(&Header) -> bool,
    ) -> Assembled {
        let end = self.filled + len;
        let Some(bytes) = buffer.get(..end) else {
            return Assembled::Stray;
        };
        let behind = HEADER_LEN + seal;
        let header = end
            .checked_sub(behind)
            .map(|at| Header::parse(&bytes[at..]));
        if let Some(Ok(header)) = header
            && let Ok(Some(train)) = Train::of(&header)
            && is_ours(&header)
        {
            let datagram = datagram.max(self.datagram) as u32;
            *self = Assembler::default();
            let around = behind + usize::from(train.padding);
            let start = end.checked_sub(around + train.len as usize);
            return start.map_or(Assembled::Incomplete, |start| Assembled::Train {
                header,
                payload: start..start + train.len as usize,
                datagram,
            });
        }
        // The buffer may hold the end of an earlier train that lost its header; that does no harm. A shorter last
        // datagram that ends no train is foreign, whatever it was merged with.
        let whole = len - len.checked_rem(datagram).unwrap_or(len);
        if whole == 0 || datagram < self.datagram {
            return Assembled::Stray;
        }
        let end = self.filled + whole;
        (self.filled, self.datagram) = (end, datagram);
        if buffer.len() - end < MAX_TRAIN as usize {
            *self = Assembler::default();
            return Assembled::Incomplete;
        }
        Assembled::Part
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const DATA: Header = Header {
        b_id: 7,
        bufx: 1,
        offset: 4096,
        sync: 9,
        d_id: 3,
        ..Header::new(Op::Data)
    };

    #[test]
    fn header__says_what_is_in_front_of_it() {
        for (len, padding) in [(1, 0), (64_703, 1), (MAX_TRAIN, 0)] {
            let train = Train { len, padding };
            let header = train.header(DATA);
            let parsed = Header::parse(&header.emit()).expect("a header");
            assert_eq!(Train::of(&parsed), Ok(Some(train)));
            assert_eq!(Train::data(&parsed), DATA);
        }
    }

    #[test]
    fn of__is_none_for_what_is_no_train() {
        assert_eq!(Train::of(&DATA), Ok(None));
        let grant = Header {
            flags: Flags::TRAIN,
            ..Header::new(Op::ClearToSend)
        };
        assert_eq!(Train::of(&grant), Ok(None));
    }

    #[test]
    fn of__names_the_field_that_is_wrong() {
        let train = Train { len: 9, padding: 0 }.header(DATA);
        let field = |header: Header| Train::of(&header).map_err(|error| error.field);
        assert_eq!(field(Header { s_id: 0, ..train }), Err(Field::SId));
        let s_id = MAX_TRAIN + 1;
        assert_eq!(field(Header { s_id, ..train }), Err(Field::SId));
        assert_eq!(field(Header { param: 2, ..train }), Err(Field::Param));
        for other in [
            Flags::EAGER,
            Flags::FRAMES.with(Flags::ANNOUNCES),
            Flags::MEMORY,
            Flags::MESSAGE,
            Flags::CONTINUES,
        ] {
            let flags = train.flags.with(other);
            assert_eq!(field(Header { flags, ..train }), Err(Field::Flags));
        }
    }

    #[test]
    fn announcing__is_told_apart_and_names_the_source() {
        let train = Train { len: 9, padding: 1 };
        let parsed = Header::parse(&train.header(Train::announcing(DATA, 77)).emit());
        let parsed = parsed.expect("a header");
        assert_eq!(Train::of(&parsed), Ok(Some(train)));
        assert_eq!(Train::announced(&parsed), Some(77));
        assert_eq!(Train::data(&parsed), DATA);
        assert_eq!(Train::announced(&train.header(DATA)), None);
        let nobody = train.header(Train::announcing(DATA, 0));
        assert_eq!(Train::of(&nobody).map_err(|it| it.field), Err(Field::BNum));
    }

    const SEAL: usize = 8;
    const DATAGRAM: usize = 100;

    /// The datagrams of a train of `len` bytes, all of them `fill`.
    fn datagrams(len: u32, fill: u8) -> Vec<Vec<u8>> {
        let padding = u16::from((len as usize + HEADER_LEN + SEAL).is_multiple_of(DATAGRAM));
        let mut bytes = vec![fill; len as usize];
        bytes.resize(len as usize + usize::from(padding), 0);
        bytes.extend(Train { len, padding }.header(DATA).emit());
        bytes.extend([0; SEAL]);
        bytes.chunks(DATAGRAM).map(<[u8]>::to_vec).collect()
    }

    /// Passes `pieces` of datagrams, merged as given, to an assembler. Returns its verdict on each.
    fn assemble(pieces: &[&[Vec<u8>]]) -> Vec<Result<Vec<u8>, Assembled>> {
        let mut assembler = Assembler::default();
        let mut buffer = vec![0; Assembler::BUFFER];
        let mut take = |piece: &[Vec<u8>]| {
            let bytes = piece.concat();
            let at = assembler.filled();
            buffer[at..at + bytes.len()].copy_from_slice(&bytes);
            let piece = (bytes.len(), piece[0].len());
            match assembler.take(&buffer, piece, SEAL, |header| header.d_id == DATA.d_id) {
                Assembled::Train { payload, .. } => Ok(buffer[payload].to_vec()),
                other => Err(other),
            }
        };
        pieces.iter().map(|piece| take(piece)).collect()
    }

    #[test]
    fn assembler__puts_together_what_is_cut_anywhere() {
        // With and without padding; a header that lies in two datagrams.
        for len in [652, 651, 600, 680, 1] {
            let train = datagrams(len, 7);
            let expected = Ok(vec![7; len as usize]);
            assert_eq!(assemble(&[&train]), core::slice::from_ref(&expected));
            let alone: Vec<&[Vec<u8>]> = train.chunks(1).collect();
            assert_eq!(assemble(&alone).last(), Some(&expected), "{len}");
            for at in 1..train.len() {
                let parts = assemble(&[&train[..at], &train[at..]]);
                assert_eq!(parts, [Err(Assembled::Part), expected.clone()]);
            }
        }
    }

    #[test]
    fn assembler__one_that_lost_its_end_spoils_no_other() {
        let (one, two) = (datagrams(652, 1), datagrams(444, 2));
        let merged = [&one[..one.len() - 1], &two].concat();
        assert_eq!(assemble(&[&merged]), [Ok(vec![2; 444])]);
    }

    #[test]
    fn assembler__tells_what_is_missing() {
        let train = datagrams(600, 1);
        assert_eq!(assemble(&[&train[1..]]), [Err(Assembled::Incomplete)]);
        let last = &train[train.len() - 1..];
        let again = [&train[..], last];
        assert_eq!(assemble(&again)[1], Err(Assembled::Incomplete));
    }

    #[test]
    fn assembler__what_is_foreign_is_no_part() {
        let train = datagrams(652, 1);
        let foreign = [vec![9; 60]];
        let pieces = assemble(&[&train[..3], &foreign, &train[3..]]);
        let part = Err(Assembled::Part);
        assert_eq!(pieces, [part, Err(Assembled::Stray), Ok(vec![1; 652])]);
    }

    #[test]
    fn assembler__what_is_foreign_takes_no_part_with_it() {
        let train = datagrams(652, 1);
        let merged = [&train[..3], &[vec![9; 60]]].concat();
        let pieces = assemble(&[&merged, &train[3..]]);
        assert_eq!(pieces, [Err(Assembled::Part), Ok(vec![1; 652])]);
    }

    #[test]
    fn assembler__one_that_lost_its_end_spoils_no_other_that_comes_unmerged() {
        let (one, two) = (datagrams(MAX_TRAIN - 48, 1), datagrams(MAX_TRAIN - 48, 2));
        let all = [&one[..one.len() - 1], &two].concat();
        let pieces: Vec<&[Vec<u8>]> = all.chunks(1).collect();
        let last = assemble(&pieces).pop();
        assert_eq!(last, Some(Ok(vec![2; MAX_TRAIN as usize - 48])));
    }

    #[test]
    fn assembler__what_is_left_of_one_is_in_no_other_s_way() {
        // Its last datagram is one byte of the header's seal.
        let (one, two) = (datagrams(652, 1), datagrams(652, 2));
        let rest = &one[one.len() - 1..];
        let pieces = assemble(&[rest, &two[..3], &two[3..]]);
        let part = Err(Assembled::Part);
        assert_eq!(pieces, [part.clone(), part, Ok(vec![2; 652])]);
    }

    #[test]
    fn assembler__of_another_connection_ends_nothing() {
        let mut assembler = Assembler::default();
        let bytes = datagrams(52, 1).concat();
        let piece = (bytes.len(), DATAGRAM);
        let mut buffer = vec![0; Assembler::BUFFER];
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let taken = assembler.take(&buffer, piece, SEAL, |_| false);
        assert_ne!(taken, Assembled::Incomplete);
        assert!(!matches!(taken, Assembled::Train { .. }));
    }

    #[test]
    fn assembler__holds_no_more_than_its_buffer() {
        let mut assembler = Assembler::default();
        let buffer = vec![1; Assembler::BUFFER];
        let mut emptied = 0;
        for _ in 0..1_000 {
            let before = assembler.filled();
            let taken = assembler.take(&buffer, (10 * DATAGRAM, DATAGRAM), SEAL, |_| true);
            assert!(assembler.filled() + MAX_TRAIN as usize <= buffer.len());
            emptied += u32::from(before > 0 && assembler.filled() == 0);
            assert!(matches!(taken, Assembled::Part | Assembled::Incomplete));
        }
        assert!(emptied > 5);
    }
}
