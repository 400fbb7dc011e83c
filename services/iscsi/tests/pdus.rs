//! Tests that PDUs round-trip, and that malformed ones are refused.

#![allow(non_snake_case)]

use proptest::prelude::*;
use zerolane_block::Residual;
use zerolane_iscsi::limits::MAX_SEGMENT_BYTES;
use zerolane_iscsi::pdu::{
    Answer, AnswerBody, Decoder, Digests, FrameError, Request, RequestBody, Sequence,
};
use zerolane_iscsi::text::{number, pairs, put};

fn digests() -> impl Strategy<Value = Digests> {
    any::<(bool, bool)>().prop_map(|(header, data)| Digests { header, data })
}

fn request_body() -> impl Strategy<Value = RequestBody> {
    prop_oneof![
        any::<([u8; 8], u32)>()
            .prop_map(|(lun, transfer_tag)| RequestBody::NopOut { lun, transfer_tag }),
        any::<(bool, bool, bool, [u8; 8], u32, [u8; 16])>().prop_map(
            |(last, read, write, lun, expected, cdb)| RequestBody::Command {
                last,
                read,
                write,
                attribute: (expected % 8) as u8,
                lun,
                expected,
                cdb,
                extended: false,
            }
        ),
        any::<([u8; 8], u32, u32)>().prop_map(|(lun, referenced, referenced_number)| {
            RequestBody::Management {
                function: (referenced % 128) as u8,
                lun,
                referenced,
                referenced_number,
            }
        }),
        any::<(bool, bool, u8, u8, [u8; 6], u16, u16)>().prop_map(
            |(transit, continued, stages, version, isid, tsih, connection)| RequestBody::Login {
                transit,
                continued,
                current: stages & 3,
                next: stages >> 2 & 3,
                version_max: version,
                version_min: version / 2,
                isid,
                tsih,
                connection,
            }
        ),
        any::<(bool, bool, u32)>().prop_map(|(last, continued, transfer_tag)| {
            RequestBody::Text {
                last,
                continued,
                transfer_tag,
            }
        }),
        any::<(bool, u32, u32, u32)>().prop_map(|(last, transfer_tag, data_number, offset)| {
            RequestBody::DataOut {
                last,
                transfer_tag,
                data_number,
                offset,
            }
        }),
        any::<(u8, u16)>().prop_map(|(reason, connection)| RequestBody::Logout {
            reason: reason % 128,
            connection,
        }),
    ]
}

fn residual() -> impl Strategy<Value = Residual> {
    prop_oneof![
        Just(Residual::None),
        any::<u32>().prop_map(|it| Residual::Under(it.into())),
        any::<u32>().prop_map(|it| Residual::Over(it.into())),
    ]
}

fn answer_body() -> impl Strategy<Value = AnswerBody> {
    prop_oneof![
        any::<[u8; 8]>().prop_map(|lun| AnswerBody::NopIn { lun }),
        (any::<u8>(), residual(), any::<u32>()).prop_map(|(status, residual, data_number)| {
            AnswerBody::Response {
                status,
                residual,
                data_number,
            }
        }),
        any::<u8>().prop_map(|response| AnswerBody::Management { response }),
        any::<(bool, u8, [u8; 6], u16, u16)>().prop_map(|(transit, stages, isid, tsih, status)| {
            AnswerBody::Login {
                transit,
                continued: false,
                current: stages & 3,
                next: if transit { stages >> 2 & 3 } else { 0 },
                isid,
                tsih,
                status,
            }
        }),
        any::<(bool, bool, u32)>().prop_map(|(last, continued, transfer_tag)| AnswerBody::Text {
            last,
            continued,
            transfer_tag,
        }),
        (
            any::<bool>(),
            proptest::option::of((any::<u8>(), residual())),
            any::<(u32, u32)>()
        )
            .prop_map(|(last, status, (data_number, offset))| AnswerBody::DataIn {
                last,
                status,
                data_number,
                offset,
            }),
        any::<u8>().prop_map(|response| AnswerBody::Logout { response }),
        any::<([u8; 8], u32, u32, u32, u32)>().prop_map(
            |(lun, transfer_tag, number, offset, length)| AnswerBody::R2t {
                lun,
                transfer_tag,
                number,
                offset,
                length,
            }
        ),
        any::<u8>().prop_map(|reason| AnswerBody::Reject { reason }),
    ]
}

proptest! {
    #[test]
    fn pdus__requests_are_parsed_to_the_same(
        (immediate, tag, number) in any::<(bool, u32, u32)>(),
        body in request_body(),
        data in proptest::collection::vec(any::<u8>(), 0..600),
        digests in digests(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let has_number = !matches!(body, RequestBody::DataOut { .. });
        let command_number = if has_number { number } else { 0 };
        let request = Request { immediate, tag, command_number, body, data };
        let mut bytes = Vec::new();
        request.encode(&mut bytes, digests);
        let mut decoder = Decoder::default();
        let cut = cut.index(bytes.len());
        decoder.push(&bytes[..cut]);
        prop_assert_eq!(decoder.next(digests), Ok(None));
        decoder.push(&bytes[cut..]);
        let pdu = decoder.next(digests).unwrap().unwrap();
        prop_assert_eq!(Request::parse(pdu), Ok(request));
        prop_assert_eq!(decoder.next(digests), Ok(None));
    }

    #[test]
    fn pdus__answers_are_parsed_to_the_same(
        (tag, status, expected, most) in any::<(u32, u32, u32, u32)>(),
        body in answer_body(),
        data in proptest::collection::vec(any::<u8>(), 0..600),
        digests in digests(),
    ) {
        let sequence = Sequence { status, expected, most };
        let answer = Answer { tag, sequence, body, data: &data };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes, digests);
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let pdu = decoder.next(digests).unwrap().unwrap();
        prop_assert_eq!(Answer::parse(&pdu), Some(answer));
    }

    #[test]
    fn pdus__a_changed_bit_is_seen_by_the_digests(
        data in proptest::collection::vec(any::<u8>(), 1..600),
        at in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let digests = Digests { header: true, data: true };
        let body = RequestBody::NopOut { lun: [0; 8], transfer_tag: 1 };
        let request = Request { immediate: true, tag: 1, command_number: 1, body, data };
        let mut bytes = Vec::new();
        request.encode(&mut bytes, digests);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        // A length that was changed may mean that more is waited for.
        let is_length = (4..8).contains(&at);
        let seen = decoder.next(digests);
        prop_assert!(seen.is_err() || is_length && seen == Ok(None), "{:?}", seen);
    }

    #[test]
    fn pdus__any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        while let Ok(Some(pdu)) = decoder.next(Digests::default()) {
            let _ = Answer::parse(&pdu);
            let _ = Request::parse(pdu);
        }
        let _ = pairs(&bytes);
    }
}

#[test]
fn pdus__a_digest_is_the_standards() {
    // RFC 7143, appendix A.4: 32 bytes of zeros have the digest aa 36 91 8a.
    let digests = Digests {
        header: false,
        data: true,
    };
    let request = Request {
        immediate: true,
        tag: 1,
        command_number: 1,
        body: RequestBody::Logout {
            reason: 0,
            connection: 0,
        },
        data: vec![0; 32],
    };
    let mut bytes = Vec::new();
    request.encode(&mut bytes, digests);
    assert_eq!(bytes[80..], [0xaa, 0x36, 0x91, 0x8a]);
}

#[test]
fn pdus__a_long_segment_is_refused_before_it_has_come() {
    let mut header = [0; 48];
    let length = MAX_SEGMENT_BYTES as u32 + 1;
    header[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
    let mut decoder = Decoder::default();
    decoder.push(&header);
    let refused = decoder.next(Digests::default());
    assert_eq!(refused, Err(FrameError::Length(MAX_SEGMENT_BYTES + 1)));
}

#[test]
fn text__pairs_and_numbers() {
    let mut text = Vec::new();
    put(&mut text, "A", "1,2");
    put(&mut text, "B", "");
    assert_eq!(pairs(&text), Ok(vec![("A", "1,2"), ("B", "")]));
    for bad in [&b"A"[..], b"=1\0", b"A=\xff\0"] {
        assert!(pairs(bad).is_err(), "{bad:?}");
    }
    for (value, meant) in [
        ("10", Some(10)),
        ("0x1F", Some(31)),
        ("+1", None),
        ("0x+1", None),
        ("4294967296", None),
        ("", None),
    ] {
        assert_eq!(number(value), meant, "{value}");
    }
}
