//! Tests that task sets honour attributes, aborts and limits.

use zerolane_block::cdb::{Command, Form};
use zerolane_block::limits::MAX_TASKS;
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::{
    Answer, Attribute, Function, NexusId, Refused, Request, Status, Step, Target, TaskId, Work,
};

use crate::support::{BLOCK, Rig, extent, lun, read, write};

const TAG: u64 = 1000;

fn submit(target: &mut Target, nexus: NexusId, tag: u64, attribute: Attribute, command: &Command) {
    let cdb = command.cdb().unwrap();
    let request = Request {
        tag,
        lun: lun(0).encode(),
        attribute,
        cdb: cdb.as_bytes(),
        data_in: 4096,
        data_out: command.bytes_out(512).max(32),
        in_capsule: false,
    };
    target.submit(nexus, &request).unwrap();
}

/// A command that reads the first block.
fn submit_read(target: &mut Target, nexus: NexusId, tag: u64, attribute: Attribute) {
    submit(target, nexus, tag, attribute, &read(extent(0, 1)));
}

/// The work that begins now, by tag.
fn started(target: &mut Target) -> Vec<(u64, TaskId, Work)> {
    let mut started = Vec::new();
    while let Some(step) = target.next_step() {
        match step {
            Step::Work {
                task, tag, work, ..
            } => started.push((tag, task, work)),
            other => panic!("{other:?}"),
        }
    }
    started
}

fn tags(started: &[(u64, TaskId, Work)]) -> Vec<u64> {
    started.iter().map(|it| it.0).collect()
}

/// Ends a task, and takes its response.
fn end(target: &mut Target, task: TaskId) -> (u64, Status) {
    target.done(task, Ok(Vec::new()));
    match target.next_step() {
        Some(Step::Respond { tag, response, .. }) => (tag, response.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn attributes__simple_run_together_ordered_alone_and_the_head_at_once() {
    use Attribute::{HeadOfQueue, Ordered, Simple};
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    let command = read(extent(0, 1));
    for (tag, attribute) in [
        (1, Simple),
        (2, Simple),
        (3, Ordered),
        (4, Simple),
        (5, HeadOfQueue),
    ] {
        submit(&mut target, nexus, tag, attribute, &command);
    }
    let first = started(&mut target);
    assert_eq!(tags(&first), [1, 2, 5]);
    end(&mut target, first[0].1);
    assert!(started(&mut target).is_empty(), "3 waits for 2");
    end(&mut target, first[1].1);
    // What is at the head came later: 3 does not wait for it.
    let second = started(&mut target);
    assert_eq!(tags(&second), [3]);
    end(&mut target, second[0].1);
    assert_eq!(tags(&started(&mut target)), [4]);
}

#[test]
fn compare_and_write__does_not_run_beside_writes_of_its_blocks() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    let compare = |lba| Command::CompareAndWrite {
        extent: extent(lba, 2),
        dpo: false,
        fua: false,
    };
    let simple = Attribute::Simple;
    submit(&mut target, nexus, 1, simple, &write(extent(1, 1)));
    submit(&mut target, nexus, 2, simple, &compare(0));
    submit(&mut target, nexus, 3, simple, &write(extent(2, 1)));
    submit(&mut target, nexus, 4, simple, &write(extent(0, 1)));
    submit(&mut target, nexus, 5, simple, &read(extent(0, 1)));
    submit(&mut target, nexus, 6, simple, &compare(8));
    let first = started(&mut target);
    assert_eq!(tags(&first), [1, 3, 5, 6]);
    end(&mut target, first[0].1);
    let second = started(&mut target);
    assert_eq!(tags(&second), [2]);
    end(&mut target, second[0].1);
    assert_eq!(tags(&started(&mut target)), [4]);
}

#[test]
fn abort_task__answers_when_the_work_is_over_and_no_response_comes() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    submit_read(&mut target, nexus, 1, Attribute::Simple);
    let task = started(&mut target)[0].1;
    target
        .manage(nexus, TAG, lun(0).encode(), Function::AbortTask(1))
        .unwrap();
    assert!(target.next_step().is_none(), "memory is still written");
    target.done(task, Ok(Vec::new()));
    let answer = target.next_step();
    assert!(matches!(
        answer,
        Some(Step::Managed {
            tag: TAG,
            answer: Answer::Complete,
            ..
        })
    ));
    assert!(target.next_step().is_none());
    // One that is not there is aborted, too.
    target
        .manage(nexus, TAG, lun(0).encode(), Function::AbortTask(1))
        .unwrap();
    assert!(matches!(
        target.next_step(),
        Some(Step::Managed {
            answer: Answer::Complete,
            ..
        })
    ));
}

#[test]
fn abort_task__work_that_was_not_taken_is_not_done() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    submit(
        &mut target,
        nexus,
        1,
        Attribute::Simple,
        &write(extent(0, 1)),
    );
    target
        .manage(nexus, TAG, lun(0).encode(), Function::AbortTask(1))
        .unwrap();
    assert!(matches!(target.next_step(), Some(Step::Managed { .. })));
    assert!(target.next_step().is_none());
}

#[test]
fn clear_task_set__tells_the_others_and_abort_task_set_spares_them() {
    let mut rig = Rig::new();
    let other = rig.join("other");
    let Rig {
        mut target, nexus, ..
    } = rig;
    let both = |target: &mut Target| {
        submit(target, nexus, 1, Attribute::Simple, &read(extent(0, 1)));
        submit(target, other, 1, Attribute::Simple, &read(extent(0, 1)));
        started(target)
            .into_iter()
            .map(|it| it.1)
            .collect::<Vec<_>>()
    };
    let tasks = both(&mut target);
    target
        .manage(nexus, TAG, lun(0).encode(), Function::AbortTaskSet)
        .unwrap();
    assert_eq!(end(&mut target, tasks[1]), (1, Status::Good));
    target.done(tasks[0], Ok(Vec::new()));
    assert!(matches!(target.next_step(), Some(Step::Managed { .. })));
    let tasks = both(&mut target);
    target
        .manage(nexus, TAG, lun(0).encode(), Function::ClearTaskSet)
        .unwrap();
    for task in tasks {
        assert!(target.next_step().is_none());
        target.done(task, Ok(Vec::new()));
    }
    assert!(matches!(target.next_step(), Some(Step::Managed { .. })));
    submit(
        &mut target,
        other,
        2,
        Attribute::Simple,
        &Command::TestUnitReady,
    );
    let Some(Step::Respond { response, .. }) = target.next_step() else {
        panic!()
    };
    assert_eq!(
        response.sense,
        Some(Sense::new(Key::UnitAttention, Code::COMMANDS_CLEARED))
    );
}

#[test]
fn aborts__let_others_begin() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    submit_read(&mut target, nexus, 1, Attribute::Ordered);
    submit_read(&mut target, nexus, 2, Attribute::Ordered);
    submit_read(&mut target, nexus, 3, Attribute::Simple);
    assert_eq!(tags(&started(&mut target)), [1]);
    target
        .manage(nexus, TAG, lun(0).encode(), Function::AbortTask(2))
        .unwrap();
    assert!(matches!(target.next_step(), Some(Step::Managed { .. })));
    assert!(started(&mut target).is_empty(), "1 works");
    target
        .manage(nexus, TAG, lun(0).encode(), Function::QueryTask(3))
        .unwrap();
    assert!(matches!(
        target.next_step(),
        Some(Step::Managed {
            answer: Answer::Succeeded,
            ..
        })
    ));
    target
        .manage(nexus, TAG, lun(9).encode(), Function::QueryTask(3))
        .unwrap();
    assert!(matches!(
        target.next_step(),
        Some(Step::Managed {
            answer: Answer::WrongLun,
            ..
        })
    ));
}

#[test]
fn tasks__are_limited_and_tags_are_unique() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    for tag in 0..MAX_TASKS as u64 {
        submit_read(&mut target, nexus, tag, Attribute::Simple);
    }
    submit_read(&mut target, nexus, TAG, Attribute::Simple);
    let mut works = Vec::new();
    let mut responses = Vec::new();
    while let Some(step) = target.next_step() {
        match step {
            Step::Work { task, .. } => works.push(task),
            Step::Respond { response, .. } => responses.push(response.status),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (works.len(), &responses[..]),
        (MAX_TASKS, &[Status::TaskSetFull][..])
    );
    end(&mut target, works[0]);
    submit_read(&mut target, nexus, 1, Attribute::Simple);
    let Some(Step::Respond { response, .. }) = target.next_step() else {
        panic!()
    };
    assert_eq!(response.sense.unwrap().code, Code::OVERLAPPED_COMMANDS);
}

/// A chain of commands of which each ends at once when its turn comes: no deeper a stack for more of them.
#[test]
fn tasks__many_that_wait_end_one_behind_the_other() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    submit_read(&mut target, nexus, 0, Attribute::Simple);
    let task = started(&mut target)[0].1;
    for tag in 1..MAX_TASKS as u64 {
        submit(
            &mut target,
            nexus,
            tag,
            Attribute::Ordered,
            &Command::TestUnitReady,
        );
    }
    assert!(target.next_step().is_none());
    target.done(task, Ok(Vec::new()));
    for expected in 0..MAX_TASKS as u64 {
        let Some(Step::Respond { tag, .. }) = target.next_step() else {
            panic!("{expected}")
        };
        assert_eq!(tag, expected);
    }
}

#[test]
fn detach__ends_what_an_initiator_had_and_begins_what_waited() {
    let mut rig = Rig::new();
    let other = rig.join("other");
    let Rig {
        mut target, nexus, ..
    } = rig;
    submit_read(&mut target, nexus, 1, Attribute::Ordered);
    submit(
        &mut target,
        other,
        1,
        Attribute::Ordered,
        &read(extent(0, 1)),
    );
    submit_read(&mut target, nexus, 2, Attribute::Ordered);
    let task = started(&mut target)[0].1;
    target.detach(nexus);
    assert!(started(&mut target).is_empty(), "its work is not over");
    target.done(task, Ok(Vec::new()));
    assert_eq!(tags(&started(&mut target)), [1]);
    let cdb = Command::TestUnitReady.cdb().unwrap();
    let request = Request {
        tag: 1,
        lun: [0; 8],
        attribute: Attribute::Simple,
        cdb: cdb.as_bytes(),
        data_in: 0,
        data_out: 0,
        in_capsule: false,
    };
    assert_eq!(target.submit(nexus, &request), Err(Refused::NoNexus));
    assert_eq!(
        target.manage(nexus, 1, [0; 8], Function::ResetUnit),
        Err(Refused::NoNexus)
    );
}

#[test]
fn work__refuses_what_is_not_its_payload() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    submit(
        &mut target,
        nexus,
        1,
        Attribute::Simple,
        &read(extent(0, 2)),
    );
    submit(
        &mut target,
        nexus,
        2,
        Attribute::Simple,
        &write(extent(0, 2)),
    );
    let works = started(&mut target);
    let (read, write) = (&works[0].2, &works[1].2);
    let failure = Err(Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE).into());
    assert_eq!(read.read(0, &mut [0; 2 * BLOCK + 1]), failure);
    assert_eq!(read.read(u64::MAX, &mut [0; 2]), failure);
    assert_eq!(write.write(1, &[0; 2 * BLOCK]), failure);
    assert_eq!(read.write(0, &[0; 1]), failure);
    assert_eq!(write.read(0, &mut [0; 1]), failure);
}

#[test]
fn remove_unit__ends_what_waits_and_lets_work_end() {
    let Rig {
        mut target, nexus, ..
    } = Rig::new();
    let same = Command::WriteSame {
        form: Form::Ten,
        extent: extent(0, 1),
        unmap: false,
        no_data: false,
    };
    submit_read(&mut target, nexus, 1, Attribute::Simple);
    submit(&mut target, nexus, 2, Attribute::Ordered, &same);
    let task = started(&mut target)[0].1;
    assert!(target.remove_unit(lun(0)));
    let Some(Step::Respond {
        tag: 2, response, ..
    }) = target.next_step()
    else {
        panic!()
    };
    assert_eq!(response.sense.unwrap().code, Code::UNIT_NOT_SUPPORTED);
    assert_eq!(end(&mut target, task), (1, Status::Good));
}
