//! Tests that PERSISTENT RESERVE IN and OUT keep registrations and reservations.

use zerolane_block::cdb::{Command, Form, PageControl, ReserveIn, ReserveOut};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::{Attribute, Function, NexusId, Request, Response, Status, Step};

use crate::support::{BLOCK, Rig, check, extent, illegal, lun, read, write};

const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];
const A: u64 = 0xaaaa;
const B: u64 = 0xbbbb;

fn list(own: u64, action: u64, flags: u8) -> Vec<u8> {
    let mut list = [own.to_be_bytes(), action.to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    list
}

fn out(
    rig: &mut Rig,
    by: NexusId,
    action: ReserveOut,
    kind: u8,
    (own, key): (u64, u64),
) -> Response {
    let command = Command::PersistentReserveOut {
        action,
        scope: 0,
        kind,
        parameter_bytes: 24,
    };
    rig.by(by, &command, &list(own, key, 0), 0).0
}

fn good(rig: &mut Rig, by: NexusId, action: ReserveOut, kind: u8, keys: (u64, u64)) {
    let response = out(rig, by, action, kind, keys);
    assert_eq!(
        response.status,
        Status::Good,
        "{action:?} {kind}: {response:?}"
    );
}

fn conflict(rig: &mut Rig, by: NexusId, action: ReserveOut, kind: u8, keys: (u64, u64)) {
    let response = out(rig, by, action, kind, keys);
    assert_eq!(response.status, Status::ReservationConflict, "{action:?}");
}

fn report(rig: &mut Rig, action: ReserveIn) -> Vec<u8> {
    rig.good(
        &Command::PersistentReserveIn {
            action,
            allocation: 4096,
        },
        &[],
        4096,
    )
}

fn generation(rig: &mut Rig) -> u32 {
    let data = report(rig, ReserveIn::Keys);
    u32::from_be_bytes(data[..4].try_into().unwrap())
}

/// Registered keys, in any order.
fn keys(rig: &mut Rig) -> Vec<u64> {
    let data = report(rig, ReserveIn::Keys);
    let mut keys: Vec<_> = data[8..]
        .chunks(8)
        .map(|it| u64::from_be_bytes(it.try_into().unwrap()))
        .collect();
    keys.sort();
    keys
}

/// Key and type of the reservation.
fn held(rig: &mut Rig) -> Option<(u64, u8)> {
    let data = report(rig, ReserveIn::Reservation);
    let key = data.get(8..16)?;
    Some((u64::from_be_bytes(key.try_into().unwrap()), data[21]))
}

/// Three initiators, of which the first two are registered.
fn three() -> (Rig, NexusId, NexusId, NexusId) {
    let mut rig = Rig::new();
    let (a, b, c) = (rig.nexus, rig.join("b"), rig.join("c"));
    good(&mut rig, a, ReserveOut::Register, 0, (0, A));
    good(&mut rig, b, ReserveOut::Register, 0, (0, B));
    (rig, a, b, c)
}

/// The attention that waits for `by`.
fn attention(rig: &mut Rig, by: NexusId) -> Option<Code> {
    let (response, _) = rig.by(by, &Command::TestUnitReady, &[], 0);
    response.sense.map(|it| it.code)
}

#[test]
fn register__keys_come_change_and_go() {
    let (mut rig, a, b, c) = three();
    assert_eq!((keys(&mut rig), generation(&mut rig)), (vec![A, B], 2));
    conflict(&mut rig, a, ReserveOut::Register, 0, (B, 7));
    conflict(&mut rig, c, ReserveOut::Register, 0, (A, 7));
    good(&mut rig, c, ReserveOut::RegisterAndIgnore, 0, (99, 7));
    good(&mut rig, a, ReserveOut::Register, 0, (A, 5));
    assert_eq!((keys(&mut rig), generation(&mut rig)), (vec![5, 7, B], 4));
    good(&mut rig, b, ReserveOut::Register, 0, (B, 0));
    good(&mut rig, b, ReserveOut::Register, 0, (0, 0));
    assert_eq!((keys(&mut rig), generation(&mut rig)), (vec![5, 7], 5));
}

#[test]
fn reserve__each_type_lets_through_what_it_should() {
    for kind in KINDS {
        let (mut rig, a, b, c) = three();
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        let is_access = matches!(kind, 3 | 6 | 8);
        let for_registrants = kind >= 5;
        for (by, may_write, may_read) in [
            (a, true, true),
            (b, for_registrants, for_registrants || !is_access),
            (c, false, !is_access),
        ] {
            let expected = |may| {
                if may {
                    Status::Good
                } else {
                    Status::ReservationConflict
                }
            };
            let status =
                |rig: &mut Rig, command: &Command| rig.by(by, command, &[0; BLOCK], BLOCK).0.status;
            assert_eq!(
                status(&mut rig, &write(extent(0, 1))),
                expected(may_write),
                "{kind}"
            );
            assert_eq!(
                status(&mut rig, &read(extent(0, 1))),
                expected(may_read),
                "{kind}"
            );
            let mode = Command::ModeSense {
                form: Form::Six,
                no_descriptors: false,
                long_lba: false,
                control: PageControl::Current,
                page: 8,
                subpage: 0,
                allocation: 64,
            };
            assert_eq!(status(&mut rig, &mode), expected(may_read));
            let stop = |start| Command::StartStop {
                immediate: false,
                start,
                no_flush: true,
            };
            assert_eq!(status(&mut rig, &stop(true)), Status::Good);
            if !may_write {
                assert_eq!(status(&mut rig, &stop(false)), Status::ReservationConflict);
            }
            for always in [Command::TestUnitReady, Command::ReadCapacity10] {
                assert_eq!(status(&mut rig, &always), Status::Good);
            }
        }
        let key = if kind >= 7 { 0 } else { A };
        assert_eq!(held(&mut rig), Some((key, kind)));
    }
}

#[test]
fn reserve__again_is_good_for_the_holder_and_a_conflict_for_others() {
    for kind in KINDS {
        let (mut rig, a, b, c) = three();
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        let other = KINDS.into_iter().find(|&it| it != kind).unwrap();
        conflict(&mut rig, a, ReserveOut::Reserve, other, (A, 0));
        conflict(&mut rig, c, ReserveOut::Reserve, kind, (0, 0));
        if kind < 7 {
            conflict(&mut rig, b, ReserveOut::Reserve, kind, (B, 0));
        } else {
            good(&mut rig, b, ReserveOut::Reserve, kind, (B, 0));
        }
        conflict(&mut rig, a, ReserveOut::Reserve, kind, (B, 0));
    }
}

#[test]
fn release__ends_it_and_tells_registrants() {
    for kind in KINDS {
        let (mut rig, a, b, _) = three();
        good(&mut rig, a, ReserveOut::Release, kind, (A, 0));
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        if kind < 7 {
            good(&mut rig, b, ReserveOut::Release, kind, (B, 0));
            assert!(held(&mut rig).is_some(), "only its holder ends it");
        }
        let other = KINDS.into_iter().find(|&it| it != kind).unwrap();
        let response = out(&mut rig, a, ReserveOut::Release, other, (A, 0));
        assert_eq!(check(&response), illegal(Code::INVALID_RELEASE));
        good(&mut rig, a, ReserveOut::Release, kind, (A, 0));
        assert_eq!(held(&mut rig), None);
        let told = (kind >= 5).then_some(Code::RESERVATIONS_RELEASED);
        assert_eq!(attention(&mut rig, b), told);
        assert_eq!(attention(&mut rig, a), None);
    }
}

#[test]
fn register__of_a_holder_that_leaves_releases() {
    for kind in KINDS {
        let (mut rig, a, b, _) = three();
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        good(&mut rig, a, ReserveOut::Register, 0, (A, 0));
        if kind < 7 {
            assert_eq!(held(&mut rig), None);
            let told = (kind >= 5).then_some(Code::RESERVATIONS_RELEASED);
            assert_eq!(attention(&mut rig, b), told);
            continue;
        }
        assert_eq!(held(&mut rig), Some((0, kind)), "b holds it");
        let refused = rig.by(a, &write(extent(0, 1)), &[0; BLOCK], 0).0.status;
        assert_eq!(refused, Status::ReservationConflict);
        good(&mut rig, b, ReserveOut::Register, 0, (B, 0));
        assert_eq!(held(&mut rig), None);
    }
}

#[test]
fn clear__takes_all_away_and_tells() {
    let (mut rig, a, b, c) = three();
    good(&mut rig, a, ReserveOut::Reserve, 1, (A, 0));
    conflict(&mut rig, c, ReserveOut::Clear, 0, (0, 0));
    good(&mut rig, b, ReserveOut::Clear, 0, (B, 0));
    assert_eq!(attention(&mut rig, a), Some(Code::RESERVATIONS_PREEMPTED));
    assert_eq!(attention(&mut rig, c), None, "it was not registered");
    assert_eq!((keys(&mut rig), held(&mut rig)), (vec![], None));
}

#[test]
fn preempt__takes_the_reservation_over() {
    for kind in [1, 3, 5, 6] {
        let (mut rig, a, b, _) = three();
        good(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        good(&mut rig, b, ReserveOut::Preempt, 3, (B, A));
        assert_eq!(attention(&mut rig, a), Some(Code::REGISTRATIONS_PREEMPTED));
        assert_eq!(keys(&mut rig), [B]);
        let data = rig
            .by(
                b,
                &Command::PersistentReserveIn {
                    action: ReserveIn::Reservation,
                    allocation: 64,
                },
                &[],
                64,
            )
            .1;
        assert_eq!((&data[8..16], data[21]), (&B.to_be_bytes()[..], 3));
    }
}

#[test]
fn preempt__of_one_that_holds_nothing_takes_its_registration() {
    let (mut rig, a, b, _) = three();
    good(&mut rig, a, ReserveOut::Reserve, 1, (A, 0));
    good(&mut rig, a, ReserveOut::Preempt, 1, (A, B));
    assert_eq!((keys(&mut rig), held(&mut rig)), (vec![A], Some((A, 1))));
    assert_eq!(attention(&mut rig, b), Some(Code::REGISTRATIONS_PREEMPTED));
    conflict(&mut rig, a, ReserveOut::Preempt, 1, (A, B));
    let response = out(&mut rig, a, ReserveOut::Preempt, 1, (A, 0));
    assert_eq!(check(&response), Sense::parameter_byte(8));
}

#[test]
fn preempt__by_zero_takes_all_where_all_hold_it() {
    let (mut rig, a, b, _) = three();
    good(&mut rig, a, ReserveOut::Reserve, 7, (A, 0));
    good(&mut rig, b, ReserveOut::Preempt, 8, (B, 0));
    assert_eq!(attention(&mut rig, a), Some(Code::REGISTRATIONS_PREEMPTED));
    assert_eq!(keys(&mut rig), [B]);
    assert_eq!(attention(&mut rig, b), None);
}

#[test]
fn preempt_and_abort__ends_when_the_work_of_the_preempted_is_over() {
    let (mut rig, a, b, _) = three();
    let cdb = write(extent(0, 1)).cdb().unwrap();
    let request = |cdb, tag| Request {
        tag,
        lun: lun(0).encode(),
        attribute: Attribute::Simple,
        cdb,
        data_in: 0,
        data_out: BLOCK as u64,
        in_capsule: false,
    };
    rig.target.submit(a, &request(cdb.as_bytes(), 1)).unwrap();
    let Some(Step::Work { task: work, .. }) = rig.target.next_step() else {
        panic!()
    };
    let command = Command::PersistentReserveOut {
        action: ReserveOut::PreemptAndAbort,
        scope: 0,
        kind: 1,
        parameter_bytes: 24,
    };
    let cdb = command.cdb().unwrap();
    rig.target.submit(b, &request(cdb.as_bytes(), 2)).unwrap();
    let Some(Step::Fetch {
        task, bytes: 24, ..
    }) = rig.target.next_step()
    else {
        panic!()
    };
    rig.target.fetched(task, &list(B, A, 0));
    assert!(rig.target.next_step().is_none(), "a writes still");
    rig.target.done(work, Ok(Vec::new()));
    let Some(Step::Respond {
        nexus,
        tag: 2,
        response,
    }) = rig.target.next_step()
    else {
        panic!()
    };
    assert_eq!((nexus, response.status), (b, Status::Good));
    assert!(
        rig.target.next_step().is_none(),
        "a's write has no response"
    );
    assert_eq!(keys_of(&mut rig, b), [B]);
}

fn keys_of(rig: &mut Rig, by: NexusId) -> Vec<u64> {
    let command = Command::PersistentReserveIn {
        action: ReserveIn::Keys,
        allocation: 64,
    };
    let data = rig.by(by, &command, &[], 64).0.data;
    data[8..]
        .chunks(8)
        .map(|it| u64::from_be_bytes(it.try_into().unwrap()))
        .collect()
}

#[test]
fn registrations__stay_when_an_initiator_comes_back_and_through_a_reset() {
    let (mut rig, a, b, _) = three();
    good(&mut rig, b, ReserveOut::Reserve, 1, (B, 0));
    rig.target.detach(b);
    assert_eq!(keys(&mut rig), [A, B]);
    assert_eq!(
        rig.by(a, &write(extent(0, 1)), &[0; BLOCK], 0).0.status,
        Status::ReservationConflict
    );
    let b = rig.join("b");
    assert_eq!(
        rig.by(b, &write(extent(0, 1)), &[0; BLOCK], 0).0.status,
        Status::Good
    );
    rig.target
        .manage(a, 1, lun(0).encode(), Function::ResetUnit)
        .unwrap();
    attention(&mut rig, a);
    assert_eq!(held(&mut rig), Some((B, 1)));
}

#[test]
fn parameters__of_wrong_length_or_with_unsupported_flags_are_refused() {
    let (mut rig, a, ..) = three();
    for parameter_bytes in [0, 8, 23, 25, 1 << 20] {
        let command = Command::PersistentReserveOut {
            action: ReserveOut::Register,
            scope: 0,
            kind: 0,
            parameter_bytes,
        };
        let (response, _) = rig.by(a, &command, &[0; 64], 0);
        assert_eq!(check(&response), illegal(Code::PARAMETER_LIST_LENGTH));
    }
    let command = Command::PersistentReserveOut {
        action: ReserveOut::Register,
        scope: 0,
        kind: 0,
        parameter_bytes: 24,
    };
    for bit in [0, 2, 3] {
        let (response, _) = rig.by(a, &command, &list(A, 5, 1 << bit), 0);
        assert_eq!(
            check(&response),
            Sense::parameter_bit(20, bit),
            "APTPL, ALL_TG_PT, SPEC_I_PT"
        );
    }
    assert_eq!(keys(&mut rig), [A, B]);
}

#[test]
fn reserve__refuses_unknown_types_and_scopes() {
    let (mut rig, a, ..) = three();
    for kind in (0..16).filter(|it| !KINDS.contains(it)) {
        let response = out(&mut rig, a, ReserveOut::Reserve, kind, (A, 0));
        assert_eq!(check(&response), Sense::cdb_bit(2, 3));
    }
    let action = ReserveOut::Reserve;
    let command = Command::PersistentReserveOut {
        action,
        scope: 1,
        kind: 1,
        parameter_bytes: 24,
    };
    let (response, _) = rig.by(a, &command, &list(A, 0, 0), 0);
    assert_eq!(check(&response), Sense::cdb_bit(2, 7));
}

#[test]
fn registrations__are_limited() {
    use zerolane_block::limits::MAX_REGISTRATIONS;
    let mut rig = Rig::new();
    for index in 0..=MAX_REGISTRATIONS {
        let nexus = rig.join(&format!("initiator {index}"));
        let response = out(&mut rig, nexus, ReserveOut::Register, 0, (0, 1));
        if index == MAX_REGISTRATIONS {
            let full = Sense::new(Key::IllegalRequest, Code::NO_REGISTRATION_RESOURCES);
            assert_eq!(check(&response), full);
        }
        rig.target.detach(nexus);
    }
}

#[test]
fn reports__capabilities_and_full_status() {
    let (mut rig, a, ..) = three();
    assert_eq!(
        report(&mut rig, ReserveIn::Capabilities),
        [0, 8, 0, 0x80, 0xea, 1, 0, 0]
    );
    good(&mut rig, a, ReserveOut::Reserve, 5, (A, 0));
    let data = report(&mut rig, ReserveIn::FullStatus);
    let length = u32::from_be_bytes(data[4..8].try_into().unwrap()) as usize;
    assert_eq!(data.len(), 8 + length);
    let mut at = 8;
    let mut seen = Vec::new();
    while at < data.len() {
        let key = u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
        let name = u32::from_be_bytes(data[at + 20..at + 24].try_into().unwrap()) as usize;
        assert_eq!(name % 4, 0);
        assert_eq!(data[at + 18..at + 20], [0, 1], "port 1");
        seen.push((key, data[at + 12], data[at + 13]));
        at += 24 + name;
    }
    seen.sort();
    assert_eq!(seen, [(A, 1, 5), (B, 0, 0)]);
    for allocation in [0, 1, 8, 20] {
        let command = Command::PersistentReserveIn {
            action: ReserveIn::FullStatus,
            allocation,
        };
        assert_eq!(rig.run(&command, &[], 64).0.data, data[..allocation.into()]);
    }
}
