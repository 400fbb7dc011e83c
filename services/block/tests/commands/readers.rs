//! Tests that read-only initiators cannot disturb others.

use zerolane_block::cdb::{Command, ReserveOut};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::{Answer, Attribute, Function, NexusId, Request, Status, Step};

use crate::support::{BLOCK, Rig, check, extent, lun, read, reader, write};

const WRITE_EXCLUSIVE: u8 = 1;
const PROTECTED: Sense = Sense::new(Key::DataProtect, Code::WRITE_PROTECTED);

fn reserve(rig: &mut Rig, by: NexusId, action: ReserveOut, keys: (u64, u64)) -> Status {
    let command = Command::PersistentReserveOut {
        action,
        scope: 0,
        kind: WRITE_EXCLUSIVE,
        parameter_bytes: 24,
    };
    let list = [keys.0.to_be_bytes(), keys.1.to_be_bytes(), [0; 8]].concat();
    let (response, _) = rig.by(by, &command, &list, 0);
    if response.status == Status::CheckCondition {
        assert_eq!(check(&response), PROTECTED, "{action:?}");
    }
    response.status
}

fn submit(rig: &mut Rig, by: NexusId, tag: u64, attribute: Attribute, command: &Command) {
    let cdb = command.cdb().unwrap();
    let request = Request {
        tag,
        lun: lun(0).encode(),
        attribute,
        cdb: cdb.as_bytes(),
        data_in: command.bytes_in(BLOCK as u32),
        data_out: command.bytes_out(BLOCK as u32),
        in_capsule: false,
    };
    rig.target.submit(by, &request).unwrap();
}

#[test]
fn readers__change_no_reservations() {
    let mut rig = Rig::new();
    let reader = reader(&mut rig);
    let writer = rig.nexus;
    // Without a registration they may do nothing anyway, so registering itself must be refused.
    for action in [ReserveOut::Register, ReserveOut::RegisterAndIgnore] {
        let status = reserve(&mut rig, reader, action, (0, 9));
        assert_eq!(status, Status::CheckCondition, "{action:?}");
    }
    let good = |rig: &mut Rig, action, keys| {
        assert_eq!(reserve(rig, writer, action, keys), Status::Good);
    };
    good(&mut rig, ReserveOut::Register, (0, 7));
    good(&mut rig, ReserveOut::Reserve, (7, 0));
    for action in [
        ReserveOut::Register,
        ReserveOut::Reserve,
        ReserveOut::Release,
        ReserveOut::Clear,
        ReserveOut::Preempt,
        ReserveOut::PreemptAndAbort,
        ReserveOut::RegisterAndIgnore,
    ] {
        let status = reserve(&mut rig, reader, action, (0, 7));
        assert_eq!(status, Status::CheckCondition, "{action:?}");
    }
    rig.write(0, &[1; BLOCK]);
    let other = rig.join("other");
    let (response, _) = rig.by(other, &write(extent(0, 1)), &[2; BLOCK], 0);
    assert_eq!(response.status, Status::ReservationConflict, "it is held");
}

/// A key that was taken the right to write: its registration is its no more to use.
#[test]
fn readers__that_registered_when_they_might_write_preempt_none() {
    let mut rig = Rig::new();
    let name = rig.join("reader");
    assert_eq!(
        reserve(&mut rig, name, ReserveOut::Register, (0, 9)),
        Status::Good
    );
    rig.target.detach(name);
    let (writer, reader) = (rig.nexus, reader(&mut rig));
    for (action, keys) in [
        (ReserveOut::Register, (0, 7)),
        (ReserveOut::Reserve, (7, 0)),
    ] {
        assert_eq!(reserve(&mut rig, writer, action, keys), Status::Good);
    }
    let status = reserve(&mut rig, reader, ReserveOut::Preempt, (9, 7));
    assert_eq!(status, Status::CheckCondition);
    rig.write(0, &[1; BLOCK]);
}

#[test]
fn readers__do_not_stop_the_unit() {
    let mut rig = Rig::new();
    let reader = reader(&mut rig);
    for no_flush in [false, true] {
        let stop = Command::StartStop {
            immediate: false,
            start: false,
            no_flush,
        };
        let (response, _) = rig.by(reader, &stop, &[], 0);
        assert_eq!(check(&response), PROTECTED);
        rig.write(0, &[1; BLOCK]);
    }
}

#[test]
fn readers__abort_their_own_commands_alone() {
    let mut rig = Rig::new();
    let (writer, reader) = (rig.nexus, reader(&mut rig));
    submit(
        &mut rig,
        writer,
        100,
        Attribute::Simple,
        &write(extent(0, 1)),
    );
    submit(
        &mut rig,
        reader,
        100,
        Attribute::Simple,
        &read(extent(0, 1)),
    );
    let mut tasks = Vec::new();
    while let Some(step) = rig.target.next_step() {
        match step {
            Step::Work { task, .. } => tasks.push(task),
            other => panic!("{other:?}"),
        }
    }
    let manage = |rig: &mut Rig, function| {
        let lun = lun(0).encode();
        rig.target.manage(reader, 7, lun, function).unwrap();
    };
    for function in [Function::ClearTaskSet, Function::ResetUnit] {
        manage(&mut rig, function);
        let answer = rig.target.next_step();
        let Some(Step::Managed { answer, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(answer, Answer::Rejected, "{function:?}");
    }
    manage(&mut rig, Function::AbortTaskSet);
    assert!(rig.target.next_step().is_none(), "its own is worked on");
    rig.target.done(tasks[1], Ok(Vec::new()));
    let answer = rig.target.next_step();
    let is_complete =
        |it: &Step| matches!(it, Step::Managed { answer, .. } if *answer == Answer::Complete);
    assert!(answer.as_ref().is_some_and(is_complete), "{answer:?}");
    rig.target.done(tasks[0], Ok(Vec::new()));
    let response = rig.target.next_step();
    let is_good = |it: &Step| matches!(it, Step::Respond { nexus, response, .. } if *nexus == writer && response.status == Status::Good);
    assert!(response.as_ref().is_some_and(is_good), "{response:?}");
    // No reset was told.
    rig.write(0, &[1; BLOCK]);
}

/// A command of theirs may wait for their data: no other initiator's waits for it.
#[test]
fn readers__keep_no_command_of_others_waiting() {
    for attribute in [Attribute::Ordered, Attribute::HeadOfQueue] {
        let mut rig = Rig::new();
        let (writer, reader) = (rig.nexus, reader(&mut rig));
        submit(&mut rig, reader, 1, attribute, &read(extent(0, 1)));
        submit(&mut rig, reader, 2, Attribute::Simple, &read(extent(0, 1)));
        submit(
            &mut rig,
            writer,
            100,
            Attribute::Simple,
            &write(extent(0, 1)),
        );
        submit(
            &mut rig,
            writer,
            101,
            Attribute::Ordered,
            &write(extent(0, 1)),
        );
        let mut started = Vec::new();
        while let Some(Step::Work { tag, .. }) = rig.target.next_step() {
            started.push(tag);
        }
        // 101 waits for 100, and 2 for 1: their own are in order.
        assert_eq!(started, [1, 100], "{attribute:?}");
    }
}
