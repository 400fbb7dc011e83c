//! Tests that each operation accepts its range, and refuses all other values.
#![allow(non_snake_case)]
use super::connection::MAGIC;
use super::*;

fn control(header: Header, options: Option<Options>) -> Result<Operation, ParseError> {
    let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
    bytes[..HEADER_LEN].copy_from_slice(&header.emit());
    let len = match options {
        None => HEADER_LEN,
        Some(options) => {
            bytes[HEADER_LEN..].copy_from_slice(&options);
            bytes.len()
        }
    };
    Packet::parse(&bytes[..len]).map(|packet| packet.operation)
}

fn magic() -> Option<Options> {
    let mut options = [0; OPTIONS_LEN];
    options[..MAGIC.len()].copy_from_slice(&MAGIC);
    Some(options)
}

/// A valid Request_Connection of version 1.
fn request() -> Header {
    Header {
        param: 0x0101,
        b_id: 1,
        bufx: 1,
        ..Header::new(Op::RequestConnection)
    }
}

fn accept() -> Header {
    Header {
        param: 1,
        flags: Flags::CAP_EXTENDED,
        b_id: 1,
        bufx: 1,
        ..Header::new(Op::ConnectionAnswer)
    }
}

#[test]
fn parse__data_is_not_control() {
    let error = control(Header::new(Op::Data), None).unwrap_err();
    assert_eq!(error.field, Field::Op);
}

#[test]
fn parse__options_too_long() {
    let mut bytes = [0; HEADER_LEN + OPTIONS_LEN + 1];
    bytes[..HEADER_LEN].copy_from_slice(&Header::new(Op::Nop).emit());
    let error = Packet::parse(&bytes).unwrap_err();
    assert_eq!(
        error,
        ParseError::new(Field::Options, Problem::TooLong(OPTIONS_LEN + 1))
    );
}

#[test]
fn parse__options_missing() {
    let error = control(request(), None).unwrap_err();
    assert_eq!(
        error,
        ParseError::new(Field::Options, Problem::Truncated(0))
    );
}

#[test]
fn parse__wrong_checksum() {
    let header = Header {
        checksum: 1,
        ..Header::new(Op::Nop)
    };
    let error = control(header, None).unwrap_err();
    assert_eq!(error, ParseError::new(Field::Checksum, Problem::Mismatch));
}

#[test]
fn request_connection__options_must_be_the_magic() {
    assert!(control(request(), magic()).is_ok());
    let error = control(request(), Some([0; OPTIONS_LEN])).unwrap_err();
    assert_eq!(error, ParseError::new(Field::Options, Problem::Mismatch));
}

#[test]
fn request_connection__limits() {
    let bad = [
        (
            Field::Param,
            Header {
                param: 0x0201,
                ..request()
            },
        ),
        (
            Field::BId,
            Header {
                b_id: 0,
                ..request()
            },
        ),
        (
            Field::Bufx,
            Header {
                bufx: 0,
                ..request()
            },
        ),
        (
            Field::Offset,
            Header {
                offset: 33,
                ..request()
            },
        ),
    ];
    for (field, header) in bad {
        assert_eq!(control(header, magic()).unwrap_err().field, field);
    }
}

#[test]
fn request_connection__no_profile_is_for_the_core_to_refuse() {
    // In words (NoCommonProfile), which a parse error could not.
    assert!(request().flags == Flags::NONE && control(request(), magic()).is_ok());
}

#[test]
fn connection_answer__exactly_one_profile() {
    let options = Some([0; OPTIONS_LEN]);
    assert!(control(accept(), options).is_ok());
    for flags in [Flags::NONE, Flags::CAP_CLASSIC.with(Flags::CAP_EXTENDED)] {
        let error = control(Header { flags, ..accept() }, options).unwrap_err();
        assert_eq!(error.field, Field::Flags);
    }
}

#[test]
fn connection_answer__version_beyond_a_byte() {
    let header = Header {
        param: 0x0100,
        ..accept()
    };
    let error = control(header, Some([0; OPTIONS_LEN])).unwrap_err();
    assert_eq!(error, out_of_range(Field::Param, 0x0100));
}

#[test]
fn reason__code_points_are_consecutive_from_zero() {
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
        assert_eq!(Reason::parse(index as u16), Ok(reason));
    }
    let beyond = Reason::ALL.len() as u16;
    assert_eq!(Reason::parse(beyond).unwrap_err().field, Field::Param);
}

#[test]
fn fetch_op_kind__code_points_are_consecutive_from_zero() {
    for (index, kind) in FetchOpKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
    }
}

#[test]
fn request_to_send__ids() {
    let header = Header::new(Op::RequestToSend);
    assert_eq!(control(header, None).unwrap_err().field, Field::SId);
    let read = Header {
        flags: Flags::READ,
        s_id: 1,
        ..header
    };
    assert_eq!(control(read, None).unwrap_err().field, Field::DId);
}

#[test]
fn clear_to_send__limits() {
    let header = Header {
        param: 32,
        d_id: 1,
        s_id: 1,
        ..Header::new(Op::ClearToSend)
    };
    assert!(control(header, None).is_ok());
    let bad = [
        (
            Field::Param,
            Header {
                param: 33,
                ..header
            },
        ),
        (Field::DId, Header { d_id: 0, ..header }),
        (Field::SId, Header { s_id: 0, ..header }),
    ];
    for (field, header) in bad {
        assert_eq!(control(header, None).unwrap_err().field, field);
    }
}

#[test]
fn clear_to_send__grant_beyond_any_transfer() {
    let header = Header {
        d_id: 1,
        s_id: 1,
        ..Header::new(Op::ClearToSend)
    };
    for (start, length, fits) in [
        (0, 0, false),
        (0, 1, true),
        (u64::MAX - 1, 1, true),
        (u64::MAX, 1, false),
    ] {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&u64::to_be_bytes(start));
        options[8..12].copy_from_slice(&u32::to_be_bytes(length));
        match control(header, Some(options)) {
            Ok(_) => assert!(fits, "{start} {length}"),
            Err(error) => assert!(!fits && error.field == Field::Options, "{start} {length}"),
        }
    }
}

#[test]
fn ranges__push_refuses_what_parse_would() {
    let mut ranges = Ranges::EMPTY;
    assert!(!ranges.push(Range { start: 5, len: 0 }));
    assert!(!ranges.push(Range {
        start: u32::MAX,
        len: 1
    }));
    assert_eq!(ranges, Ranges::EMPTY);
    for start in 0..MAX_RANGES as u32 {
        assert!(ranges.push(Range { start, len: 1 }));
    }
    assert!(!ranges.push(Range { start: 9, len: 1 }));
    assert_eq!(ranges.as_slice().len(), MAX_RANGES);
}

#[test]
fn ranges__parse_refuses_a_range_beyond_any_block() {
    let mut options = [0; OPTIONS_LEN];
    options[..8].fill(0xff);
    assert_eq!(Ranges::parse(&options).unwrap_err().field, Field::Options);
}

#[test]
fn rights__unassigned_bit() {
    assert_eq!(Rights::parse(8).unwrap_err().field, Field::Param);
}

#[test]
fn get__limits() {
    let header = Header {
        s_id: 1,
        ..Header::new(Op::Get)
    };
    let error = control(header, Some([0; OPTIONS_LEN])).unwrap_err();
    assert_eq!(error, out_of_range(Field::Options, 0));
    let error = control(Header::new(Op::Get), Some([1; OPTIONS_LEN])).unwrap_err();
    assert_eq!(error, out_of_range(Field::SId, 0));
}

#[test]
fn fetch_op__limits() {
    let header = Header {
        s_id: 1,
        ..Header::new(Op::FetchOp)
    };
    let half = Header {
        flags: Flags::HALF_WORD,
        ..header
    };
    let options = Some([0; OPTIONS_LEN]);
    assert!(control(header, options).is_ok());
    assert!(control(Header { offset: 4, ..half }, options).is_ok());
    // Operand and comparand of 33 bits.
    for at in [3, 11] {
        let mut long = [0; OPTIONS_LEN];
        long[at] = 1;
        assert!(control(header, Some(long)).is_ok());
        let refused = control(half, Some(long)).unwrap_err();
        assert_eq!(refused.field, Field::Options);
    }
    let bad = [
        (
            Field::Param,
            Header {
                param: 11,
                ..header
            },
        ),
        (
            Field::Offset,
            Header {
                offset: 4,
                ..header
            },
        ),
        (Field::Offset, Header { offset: 6, ..half }),
        (Field::SId, Header { s_id: 0, ..header }),
    ];
    for (field, header) in bad {
        assert_eq!(control(header, options).unwrap_err().field, field);
    }
}

#[test]
fn nop__probe_padding_is_not_options() {
    let nop = Nop {
        send_state: true,
        probe: 1472,
        sync: 9,
        ..Nop::default()
    };
    let packet = Packet {
        route: Route::default(),
        operation: Operation::Nop(nop),
    };
    let mut datagram = [0xaa; 1472];
    let (bytes, len) = packet.emit();
    datagram[..len].copy_from_slice(&bytes[..len]);
    for padded in [len, len + 1, len + OPTIONS_LEN, datagram.len()] {
        assert_eq!(Packet::parse(&datagram[..padded]), Ok(packet));
    }
}

#[test]
fn nop__probe_of_no_length() {
    let header = Header {
        flags: Flags::PROBE,
        ..Header::new(Op::Nop)
    };
    assert_eq!(control(header, None).unwrap_err().field, Field::Offset);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a value outside its range")]
fn emit__value_that_parse_refuses() {
    let operation = Operation::RequestAnswer(RequestAnswer {
        answer: Answer::Later(Reason::NotReady),
        d_id: 0,
        room: 0,
        numbered: false,
    });
    let route = Route::default();
    let _ = Packet { route, operation }.emit();
}

#[test]
fn common__extended_before_classic() {
    let (classic, extended) = (
        Profiles::only(Profile::Classic),
        Profiles::only(Profile::Extended),
    );
    assert_eq!(
        Profiles::BOTH.common(Profiles::BOTH),
        Some(Profile::Extended)
    );
    assert_eq!(Profiles::BOTH.common(classic), Some(Profile::Classic));
    assert_eq!(extended.common(classic), None);
}

#[test]
fn eager__none_unless_the_flag_says_so() {
    let mut options = magic();
    options.as_mut().expect("options")[8..16].copy_from_slice(&[0, 0, 0x40, 0, 0, 1, 0, 0]);
    let told = |flags, options| match control(Header { flags, ..request() }, options) {
        Ok(Operation::RequestConnection(it)) => Ok(it.capabilities.eager),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    assert_eq!(
        told(Flags::NONE, options),
        Ok(Eager::NONE),
        "as before there was any"
    );
    let (limit, credit) = (16 << 10, 64 << 10);
    assert_eq!(told(Flags::CAP_EAGER, options), Ok(Eager { limit, credit }));
    assert_eq!(
        told(Flags::CAP_EAGER, magic()),
        Err(out_of_range(Field::Options, 0)),
        "a limit of nothing"
    );
    options.as_mut().expect("options")[8..12].copy_from_slice(&(MAX_EAGER + 1).to_be_bytes());
    let beyond = u64::from(MAX_EAGER) + 1;
    assert_eq!(
        told(Flags::CAP_EAGER, options),
        Err(out_of_range(Field::Options, beyond))
    );
}

#[test]
fn eager__data_that_announces_nothing_sensible() {
    let announcement = announcement_for(Target::Receive);
    let header = announcement.eager(60);
    assert_eq!(RequestToSend::of_eager(&header, 40), Ok(announcement));
    for (bad, len, field) in [
        (header, 41, Field::Offset),
        (header, 0, Field::Offset),
        (header, u32::MAX, Field::Offset),
        (
            Header {
                offset: u32::MAX,
                ..header
            },
            1,
            Field::Offset,
        ),
        (Header { s_id: 0, ..header }, 40, Field::SId),
        (announcement_for(Target::Read(0)).eager(60), 40, Field::DId),
        (
            Header {
                flags: Flags::EAGER.with(Flags::MEMORY),
                ..header
            },
            40,
            Field::Flags,
        ),
        (
            Header {
                flags: Flags::EAGER.with(Flags::READ).with(Flags::MEMORY),
                ..header
            },
            40,
            Field::Flags,
        ),
        (
            Header {
                flags: Flags::EAGER.with(Flags::READ).with(Flags::MESSAGE),
                ..header
            },
            40,
            Field::Flags,
        ),
    ] {
        let refused = RequestToSend::of_eager(&bad, len).map_err(|error| error.field);
        assert_eq!(refused, Err(field), "{bad:?} {len}");
    }
}

#[test]
fn eager__data_that_is_its_message() {
    let announcement = announcement_for(Target::Message(9));
    let bare = announcement.eager(60);
    let header = Header {
        flags: bare.flags.with(Flags::MEMORY).with(Flags::AWAITED),
        b_id: 77,
        ..bare
    };
    assert_eq!(RequestToSend::of_eager(&header, 40), Ok(announcement));
}

fn announcement_for(target: Target) -> RequestToSend {
    RequestToSend {
        length: 100,
        s_id: 7,
        target,
        sequence: 3,
        send_state: true,
    }
}
