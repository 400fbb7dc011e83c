//! Tests that the target parses every CDB that an initiator builds, and that sense data round-trips.
#![allow(non_snake_case)]

use proptest::prelude::*;
use zerolane_block::cdb::{
    Command, Extent, Form, MAX_CDB_BYTES, OpcodeQuery, PageControl, ReserveIn, ReserveOut, opcode,
};
use zerolane_block::sense::{Code, Field, Format, Key, MAX_SENSE_BYTES, Sense};

fn extent(form: Form) -> BoxedStrategy<Extent> {
    let (lba, blocks) = match form {
        Form::Six => ((1 << 21) - 1, 1..=256u64),
        Form::Ten => (u32::MAX.into(), 0..=u16::MAX.into()),
        Form::Twelve => (u32::MAX.into(), 0..=u32::MAX.into()),
        Form::Sixteen => (u64::MAX, 0..=u32::MAX.into()),
    };
    (0..=lba, blocks)
        .prop_map(|(lba, blocks)| Extent { lba, blocks })
        .boxed()
}

fn transfer() -> impl Strategy<Value = (Form, Extent, bool, bool)> {
    let form = prop_oneof![
        Just(Form::Six),
        Just(Form::Ten),
        Just(Form::Twelve),
        Just(Form::Sixteen)
    ];
    form.prop_flat_map(|form| {
        let flag = || {
            if form == Form::Six {
                Just(false).boxed()
            } else {
                any::<bool>().boxed()
            }
        };
        (Just(form), extent(form), flag(), flag())
    })
}

fn ten_or_sixteen() -> impl Strategy<Value = (Form, Extent)> {
    prop_oneof![Just(Form::Ten), Just(Form::Sixteen)]
        .prop_flat_map(|form| (Just(form), extent(form)))
}

fn mode_sense() -> impl Strategy<Value = Command> {
    let control = prop_oneof![
        Just(PageControl::Current),
        Just(PageControl::Changeable),
        Just(PageControl::Default),
        Just(PageControl::Saved)
    ];
    (
        any::<(bool, bool, bool)>(),
        control,
        0..0x40u8,
        any::<u8>(),
        any::<u16>(),
    )
        .prop_map(
            |((ten, no_descriptors, long_lba), control, page, subpage, allocation)| {
                Command::ModeSense {
                    form: if ten { Form::Ten } else { Form::Six },
                    no_descriptors,
                    long_lba: long_lba && ten,
                    control,
                    page,
                    subpage,
                    allocation: if ten { allocation } else { allocation & 0xff },
                }
            },
        )
}

fn query() -> impl Strategy<Value = OpcodeQuery> {
    prop_oneof![
        Just(OpcodeQuery::All),
        any::<u8>().prop_map(OpcodeQuery::Plain),
        any::<(u8, u16)>().prop_map(|(code, action)| OpcodeQuery::Action(code, action)),
        any::<(u8, u16)>().prop_map(|(code, action)| OpcodeQuery::Either(code, action)),
    ]
}

fn reserve() -> impl Strategy<Value = Command> {
    let ins = prop_oneof![
        Just(ReserveIn::Keys),
        Just(ReserveIn::Reservation),
        Just(ReserveIn::Capabilities),
        Just(ReserveIn::FullStatus)
    ];
    let outs = prop_oneof![
        Just(ReserveOut::Register),
        Just(ReserveOut::Reserve),
        Just(ReserveOut::Release),
        Just(ReserveOut::Clear),
        Just(ReserveOut::Preempt),
        Just(ReserveOut::PreemptAndAbort),
        Just(ReserveOut::RegisterAndIgnore)
    ];
    prop_oneof![
        (ins, any::<u16>())
            .prop_map(|(action, allocation)| Command::PersistentReserveIn { action, allocation }),
        (outs, 0..16u8, 0..16u8, any::<u32>()).prop_map(
            |(action, scope, kind, parameter_bytes)| {
                Command::PersistentReserveOut {
                    action,
                    scope,
                    kind,
                    parameter_bytes,
                }
            }
        ),
    ]
}

fn media() -> impl Strategy<Value = Command> {
    let any_bool = any::<bool>;
    prop_oneof![
        transfer().prop_map(|(form, extent, dpo, fua)| Command::Read {
            form,
            extent,
            dpo,
            fua
        }),
        transfer().prop_map(|(form, extent, dpo, fua)| Command::Write {
            form,
            extent,
            dpo,
            fua
        }),
        transfer()
            .prop_filter("VERIFY has no six bytes", |it| it.0 != Form::Six)
            .prop_map(|(form, extent, dpo, compare)| Command::Verify {
                form,
                extent,
                dpo,
                compare
            }),
        (ten_or_sixteen(), any_bool()).prop_map(|((form, extent), immediate)| {
            Command::SynchronizeCache {
                form,
                extent,
                immediate,
            }
        }),
        (ten_or_sixteen(), any_bool()).prop_map(|((form, extent), immediate)| Command::Prefetch {
            form,
            extent,
            immediate
        }),
        (ten_or_sixteen(), any_bool(), any_bool()).prop_map(|((form, extent), unmap, no_data)| {
            let no_data = no_data && form == Form::Sixteen;
            Command::WriteSame {
                form,
                extent,
                unmap,
                no_data,
            }
        }),
        any::<u16>().prop_map(|parameter_bytes| Command::Unmap { parameter_bytes }),
        (any::<u64>(), 0..256u64, any_bool(), any_bool()).prop_map(|(lba, blocks, dpo, fua)| {
            Command::CompareAndWrite {
                extent: Extent { lba, blocks },
                dpo,
                fua,
            }
        }),
        any::<(u64, u32)>().prop_map(|(lba, allocation)| Command::GetLbaStatus { lba, allocation }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => media(),
        1 => mode_sense(),
        1 => reserve(),
        1 => Just(Command::TestUnitReady),
        1 => Just(Command::ReadCapacity10),
        1 => any::<u32>().prop_map(|allocation| Command::ReadCapacity16 { allocation }),
        1 => any::<(bool, u8)>().prop_map(|(descriptor, allocation)| {
            Command::RequestSense { descriptor, allocation }
        }),
        1 => any::<(Option<u8>, u16)>()
            .prop_map(|(page, allocation)| Command::Inquiry { page, allocation }),
        1 => any::<(u8, u32)>()
            .prop_map(|(select, allocation)| Command::ReportLuns { select, allocation }),
        1 => (any::<bool>(), query(), any::<u32>()).prop_map(|(timeouts, query, allocation)| {
            Command::ReportOpcodes { timeouts, query, allocation }
        }),
        1 => any::<(bool, bool, bool)>().prop_map(|(immediate, start, no_flush)| {
            Command::StartStop { immediate, start, no_flush }
        }),
    ]
}

proptest! {
    #[test]
    fn cdb__what_is_built_is_parsed_to_the_same(command in command()) {
        let cdb = command.cdb().expect("it fits");
        prop_assert_eq!(opcode::cdb_bytes(cdb.as_bytes()[0]), Some(cdb.as_bytes().len()));
        prop_assert_eq!(Command::parse(cdb.as_bytes()), Ok(command));
        prop_assert_eq!(Command::parse(&cdb.padded()), Ok(command));
    }

    /// The usage map says every bit that is set.
    #[test]
    fn cdb__has_no_bits_that_the_usage_map_has_not(command in command()) {
        let cdb = command.cdb().expect("it fits");
        let bytes = cdb.as_bytes();
        let row = opcode::TABLE.iter().find(|row| {
            row.opcode == bytes[0] && row.action.is_none_or(|it| it == bytes[1] & 0x1f)
        });
        let usage = row.expect("it is supported").usage;
        for (index, (&byte, &mask)) in bytes.iter().zip(usage).enumerate().skip(1) {
            let mask = if bytes[0] == opcode::PERSISTENT_RESERVE_OUT && index == 2 { 0xff } else { mask };
            prop_assert_eq!(byte & !mask, 0, "byte {} of {:?}", index, command);
        }
    }

    #[test]
    fn parse__any_bytes_are_a_command_or_illegal(bytes in prop::collection::vec(any::<u8>(), 0..=MAX_CDB_BYTES)) {
        match Command::parse(&bytes) {
            Ok(command) => {
                let built = command.cdb().expect("what was parsed fits");
                prop_assert_eq!(Command::parse(built.as_bytes()), Ok(command));
            }
            Err(sense) => {
                prop_assert_eq!(sense.key, Key::IllegalRequest);
                prop_assert!([Code::INVALID_OPCODE, Code::INVALID_FIELD_IN_CDB].contains(&sense.code));
                prop_assert!(sense.field.is_none_or(|it| usize::from(it.byte) <= bytes.len()));
            }
        }
    }

    #[test]
    fn sense__what_is_encoded_is_parsed_to_the_same(
        key in 0..16u8,
        asc in any::<(u8, u8)>(),
        information in any::<Option<u64>>(),
        field in any::<Option<(bool, u16, Option<u8>)>>(),
    ) {
        let key = Key::of(key);
        let field = field.filter(|_| key == Key::IllegalRequest);
        let field = field.map(|(in_cdb, byte, bit)| Field { in_cdb, byte, bit: bit.map(|it| it & 7) });
        let sense = Sense { key, code: Code::new(asc.0, asc.1), information, field };
        let bytes = sense.encode(Format::Descriptor);
        prop_assert!(bytes.len() <= MAX_SENSE_BYTES);
        prop_assert_eq!(Sense::parse(&bytes), Ok(sense));
        let short = information.filter(|&it| it <= u32::MAX.into());
        let fixed = Sense { information: short, ..sense };
        prop_assert_eq!(Sense::parse(&sense.encode(Format::Fixed)), Ok(fixed));
    }

    #[test]
    fn sense__any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Sense::parse(&bytes);
        for code in [0x70, 0x72, 0xf0] {
            let _ = Sense::parse(&[&[code], &bytes[..]].concat());
        }
    }
}

#[test]
fn cdb__what_does_not_fit_is_not_built() {
    let at = |lba, blocks| Extent { lba, blocks };
    for (form, extent) in [
        (Form::Six, at(1 << 21, 1)),
        (Form::Six, at(0, 0)),
        (Form::Six, at(0, 257)),
        (Form::Ten, at(1 << 32, 1)),
        (Form::Ten, at(0, 1 << 16)),
        (Form::Twelve, at(1 << 32, 1)),
        (Form::Twelve, at(0, 1 << 32)),
        (Form::Sixteen, at(0, 1 << 32)),
    ] {
        let command = Command::Read {
            form,
            extent,
            dpo: false,
            fua: false,
        };
        assert_eq!(command.cdb(), None, "{command:?}");
    }
    let extent = at(0, 1);
    for form in [Form::Six, Form::Twelve] {
        assert_eq!(
            Command::SynchronizeCache {
                form,
                extent,
                immediate: false
            }
            .cdb(),
            None
        );
    }
    let command = Command::WriteSame {
        form: Form::Ten,
        extent,
        unmap: false,
        no_data: true,
    };
    assert_eq!(command.cdb(), None);
}

/// The bytes of the standard's layout, written down by hand.
#[test]
fn cdb__has_the_standards_layout() {
    let hex = |command: Command| -> String {
        let cdb = command.cdb().unwrap();
        cdb.as_bytes()
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect()
    };
    let at = Extent {
        lba: 0x0102_0304,
        blocks: 0x0506,
    };
    let read = |form, extent| Command::Read {
        form,
        extent,
        dpo: true,
        fua: true,
    };
    assert_eq!(hex(read(Form::Ten, at)), "28180102030400050600");
    assert_eq!(hex(read(Form::Twelve, at)), "a81801020304000005060000");
    assert_eq!(
        hex(read(Form::Sixteen, at)),
        "88180000000001020304000005060000"
    );
    let at = Extent {
        lba: 0x1f_0203,
        blocks: 256,
    };
    let write = Command::Write {
        form: Form::Six,
        extent: at,
        dpo: false,
        fua: false,
    };
    assert_eq!(hex(write), "0a1f02030000");
    let at = Extent {
        lba: 0x0102_0304_0506_0708,
        blocks: 9,
    };
    let command = Command::CompareAndWrite {
        extent: at,
        dpo: false,
        fua: true,
    };
    assert_eq!(hex(command), "89080102030405060708000000090000");
    let command = Command::GetLbaStatus {
        lba: at.lba,
        allocation: 24,
    };
    assert_eq!(hex(command), "9e120102030405060708000000180000");
    let command = Command::WriteSame {
        form: Form::Sixteen,
        extent: at,
        unmap: true,
        no_data: true,
    };
    assert_eq!(hex(command), "93090102030405060708000000090000");
    assert_eq!(
        hex(Command::Unmap {
            parameter_bytes: 24
        }),
        "42000000000000001800"
    );
    assert_eq!(
        hex(Command::Inquiry {
            page: Some(0x83),
            allocation: 255
        }),
        "12018300ff00"
    );
}

#[test]
fn sense__has_the_standards_layout() {
    let sense = Sense::cdb_bit(2, 5);
    let fixed = sense.encode(Format::Fixed);
    assert_eq!(
        fixed,
        [
            0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcd, 0, 2
        ]
    );
    let with_lba = Sense::new(Key::MediumError, Code::READ_ERROR).with_information(0x0102_0304);
    assert_eq!(
        with_lba.encode(Format::Fixed)[..7],
        [0xf0, 0, 3, 1, 2, 3, 4]
    );
    let bytes = with_lba.encode(Format::Descriptor);
    assert_eq!(
        bytes,
        [
            0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 1, 2, 3, 4
        ]
    );
}
