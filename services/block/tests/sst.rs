//! Tests that messages of SCSI over Scheduled Transfer round-trip, and that malformed ones are refused.
#![allow(non_snake_case)]

use proptest::prelude::*;
use zerolane_block::cdb::Command;
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::sst::{
    COMMAND_BYTES, CommandUnit, LOGIN_BYTES, Login, MANAGEMENT_BYTES, MAX_SLOTS, Malformed,
    ManagementUnit, Outcome, Roles, STATUS_BYTES, StatusUnit,
};
use zerolane_block::{Answer, Attribute, Function, Residual, Status};

fn login() -> impl Strategy<Value = Login> {
    let roles = (any::<bool>(), any::<bool>()).prop_filter("a role", |&(a, b)| a || b);
    (
        roles,
        0..=12u8,
        any::<u16>(),
        1..=MAX_SLOTS,
        any::<u32>(),
        any::<(u32, u64)>(),
    )
        .prop_map(
            |(
                (initiator, target),
                alignment,
                units,
                slots,
                transfer_bytes,
                (capsule_bytes, session),
            )| Login {
                roles: Roles { initiator, target },
                alignment,
                units,
                slots,
                transfer_bytes,
                capsule_bytes,
                session,
            },
        )
}

fn command() -> impl Strategy<Value = CommandUnit> {
    let attribute = prop_oneof![
        Just(Attribute::Simple),
        Just(Attribute::Ordered),
        Just(Attribute::HeadOfQueue)
    ];
    (
        0..MAX_SLOTS,
        attribute,
        any::<u64>(),
        any::<[u8; 8]>(),
        any::<[u8; 16]>(),
        any::<(u64, u64)>(),
    )
        .prop_map(
            |(slot, attribute, tag, lun, cdb, (data_in, data_out))| CommandUnit {
                slot,
                attribute,
                tag,
                lun,
                cdb,
                data_in,
                data_out,
            },
        )
}

fn management() -> impl Strategy<Value = ManagementUnit> {
    let function = prop_oneof![
        any::<u64>().prop_map(Function::AbortTask),
        any::<u64>().prop_map(Function::QueryTask),
        Just(Function::AbortTaskSet),
        Just(Function::ClearTaskSet),
        Just(Function::ResetUnit)
    ];
    (0..MAX_SLOTS, any::<u64>(), any::<[u8; 8]>(), function).prop_map(
        |(slot, tag, lun, function)| ManagementUnit {
            slot,
            tag,
            lun,
            function,
        },
    )
}

fn status() -> impl Strategy<Value = StatusUnit> {
    let sense =
        (0..16u8, any::<(u8, u8)>(), any::<Option<u64>>()).prop_map(|(key, code, information)| {
            Some(Sense {
                information,
                ..Sense::new(Key::of(key), Code::new(code.0, code.1))
            })
        });
    let ended = prop_oneof![
        Just((Status::Good, None)),
        Just((Status::TaskSetFull, None)),
        Just((Status::ReservationConflict, None)),
        sense.prop_map(|sense| (Status::CheckCondition, sense)),
    ];
    let residual = prop_oneof![
        Just(Residual::None),
        (1..u64::MAX).prop_map(Residual::Under),
        (1..u64::MAX).prop_map(Residual::Over)
    ];
    let response =
        (ended, residual, any::<u64>()).prop_map(|((status, sense), residual, data_in)| {
            Outcome::Response {
                status,
                sense,
                residual,
                data_in,
            }
        });
    let answer = prop_oneof![
        Just(Answer::Complete),
        Just(Answer::Succeeded),
        Just(Answer::WrongLun),
        Just(Answer::Rejected)
    ];
    let outcome = prop_oneof![3 => response, 1 => answer.prop_map(Outcome::Managed)];
    (any::<u64>(), outcome).prop_map(|(tag, outcome)| StatusUnit { tag, outcome })
}

proptest! {
    #[test]
    fn messages__what_is_encoded_is_parsed_to_the_same(
        login in login(),
        command in command(),
        management in management(),
        status in status(),
    ) {
        prop_assert_eq!(Login::parse(&login.encode()), Ok(login));
        prop_assert_eq!(CommandUnit::parse(&command.encode()), Ok(command));
        prop_assert_eq!(ManagementUnit::parse(&management.encode()), Ok(management));
        prop_assert_eq!(StatusUnit::parse(&status.encode()), Ok(status));
    }

    /// One bit that is turned makes another message or none, never the same.
    #[test]
    fn messages__no_bit_is_passed_over(
        login in login(),
        command in command(),
        management in management(),
        status in status(),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let turn = |bytes: &mut [u8]| {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        };
        let mut bytes = login.encode();
        turn(&mut bytes);
        prop_assert_ne!(Login::parse(&bytes), Ok(login));
        let mut bytes = command.encode();
        turn(&mut bytes);
        prop_assert_ne!(CommandUnit::parse(&bytes), Ok(command));
        let mut bytes = management.encode();
        turn(&mut bytes);
        prop_assert_ne!(ManagementUnit::parse(&bytes), Ok(management));
        let mut bytes = status.encode();
        turn(&mut bytes);
        prop_assert_ne!(StatusUnit::parse(&bytes), Ok(status));
    }

    #[test]
    fn messages__any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = Login::parse(&bytes);
        let _ = CommandUnit::parse(&bytes);
        let _ = ManagementUnit::parse(&bytes);
        let _ = StatusUnit::parse(&bytes);
    }
}

#[test]
fn messages__of_another_length_are_refused() {
    for length in (0..100).filter(|it| ![LOGIN_BYTES, COMMAND_BYTES, STATUS_BYTES].contains(it)) {
        let bytes = vec![1; length];
        let refused = Malformed::Length(length);
        assert_eq!(Login::parse(&bytes), Err(refused));
        assert_eq!(CommandUnit::parse(&bytes), Err(refused));
        assert_eq!(StatusUnit::parse(&bytes), Err(refused));
        if length != MANAGEMENT_BYTES {
            assert_eq!(ManagementUnit::parse(&bytes), Err(refused));
        }
    }
}

#[test]
fn messages__an_error_names_the_field() {
    let refused = |field, value: u64| Some(Malformed::Field { field, value });
    let cdb = Command::TestUnitReady.cdb().unwrap();
    let good = CommandUnit::new(3, 7, [0; 8], &cdb).encode();
    for (at, value, field) in [(0, 9, "kind"), (1, 3, "attribute"), (4, 1, "reserved")] {
        let mut bytes = good;
        bytes[at] = value;
        assert_eq!(
            CommandUnit::parse(&bytes).err(),
            refused(field, value.into())
        );
    }
    let mut bytes = good;
    bytes[2..4].copy_from_slice(&MAX_SLOTS.to_be_bytes());
    assert_eq!(
        CommandUnit::parse(&bytes).err(),
        refused("slot", MAX_SLOTS.into())
    );
    assert_eq!(
        StatusUnit::parse(&[0; STATUS_BYTES]).err(),
        refused("kind", 0),
        "never written"
    );
}
