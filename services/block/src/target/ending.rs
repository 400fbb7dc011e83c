//! Ends commands: with status, data and residual counts.

use super::protocol::{Residual, Response, Status};
use super::task::Task;
use crate::sense::{Code, Failure, Format};
use crate::unit::End;

pub(super) fn format(descriptor: bool) -> Format {
    if descriptor {
        Format::Descriptor
    } else {
        Format::Fixed
    }
}

/// GOOD, with parameter data cut to the allocation length.
pub(super) fn cut(mut data: Vec<u8>, allocation: usize) -> End {
    data.truncate(allocation);
    End::Good(data)
}

/// The end of a failed command.
pub(super) fn failed(failure: Failure) -> End {
    match failure {
        Failure::Check(sense) => End::Check(sense),
        Failure::Conflict => End::Conflict,
    }
}

fn wanted_in(end: &End) -> u64 {
    match end {
        End::Good(data) => data.len() as u64,
        _ => 0,
    }
}

/// The response of `task` with this end.
pub(super) fn response(task: &Task, end: End) -> Response {
    let (mut wanted, mut taken) = (wanted_in(&end), 0);
    // A command that failed for lack of something reports what it lacked.
    let is_short = matches!(&end, End::Check(sense) if sense.code == Code::INVALID_FIELD_IN_IU);
    if let (true, Ok(command)) = (matches!(end, End::Good(_)) || is_short, &task.command) {
        let block = task.block_bytes;
        wanted = wanted.max(command.bytes_in(block));
        taken = command.bytes_out(block);
    }
    made(end, task.data_in, task.data_out, wanted, taken)
}

/// The response of a command that never became a task.
pub(super) fn unstarted(end: End, data_in: u64, data_out: u64) -> Response {
    let wanted = wanted_in(&end);
    made(end, data_in, data_out, wanted, 0)
}

/// A response to a command that wanted to move so many bytes in, and took so many.
fn made(end: End, data_in: u64, data_out: u64, wanted: u64, taken: u64) -> Response {
    let residual = if data_in > 0 || wanted > 0 {
        Residual::of(data_in, wanted)
    } else {
        Residual::of(data_out, taken)
    };
    let (status, sense, mut data) = match end {
        End::Good(data) => (Status::Good, None, data),
        End::Check(sense) => (Status::CheckCondition, Some(sense), Vec::new()),
        End::Conflict => (Status::ReservationConflict, None, Vec::new()),
    };
    data.truncate(usize::try_from(data_in).unwrap_or(usize::MAX));
    Response {
        status,
        sense,
        data,
        residual,
    }
}
