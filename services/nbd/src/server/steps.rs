//! Splits a client's request into requests to the disk, which take whole blocks only.

use std::collections::VecDeque;

use crate::session::{Kind, Request};

/// The steps at the disk, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read whole blocks for the client.
    Read {
        at: u64,
        bytes: usize,
    },
    /// The payload, as it is.
    Write {
        at: u64,
        durable: bool,
    },
    /// Whole blocks, to be changed.
    Fetch {
        at: u64,
        bytes: usize,
    },
    /// They are written back, changed from `skip` on: `bytes` of the payload, or of zeros if there is none.
    Store {
        at: u64,
        skip: usize,
        bytes: usize,
        durable: bool,
    },
    Zero {
        at: u64,
        bytes: u64,
        unmap: bool,
    },
    Flush,
    Status {
        at: u64,
    },
}

/// The steps of `request`, whose range is on the disk, with blocks of `block` bytes. A trim on a disk that is not
/// `thin` has none, because the disk would write zeros.
pub(super) fn steps(request: &Request, block: u64, thin: bool) -> VecDeque<Step> {
    let (from, to) = (request.at, request.at + u64::from(request.bytes));
    let (first, last) = (from - from % block, to.next_multiple_of(block));
    let is_whole = first == from && last == to;
    // As many as a request and two blocks.
    let span = (last - first) as usize;
    let mut steps = VecDeque::new();
    match request.kind {
        Kind::Flush => steps.push_back(Step::Flush),
        Kind::Unknown => {}
        _ if from == to => {}
        Kind::Read => steps.push_back(Step::Read {
            at: first,
            bytes: span,
        }),
        Kind::Write { durable } if is_whole => steps.push_back(Step::Write { at: from, durable }),
        Kind::Write { durable } => {
            let bytes = (to - from) as usize;
            patch(&mut steps, block, (from, bytes), durable);
        }
        Kind::Trim { .. } if !thin => {}
        // The rest of a block is needed.
        Kind::Trim { durable } => {
            let whole = (from.next_multiple_of(block), to - to % block);
            zero(&mut steps, whole, true);
            flush_if(&mut steps, durable);
        }
        Kind::Zero { unmap, durable } => {
            let whole = (from.next_multiple_of(block), to - to % block);
            if whole.0 > whole.1 {
                // Within a block.
                patch(&mut steps, block, (from, (to - from) as usize), durable);
                return steps;
            }
            let ends = [(from, whole.0), (whole.1, to)];
            for (at, end) in ends.into_iter().filter(|(at, end)| at < end) {
                patch(&mut steps, block, (at, (end - at) as usize), durable);
            }
            if whole.0 < whole.1 {
                zero(&mut steps, whole, unmap);
                flush_if(&mut steps, durable);
            }
        }
        Kind::Status { .. } => steps.push_back(Step::Status { at: first }),
    }
    steps
}

fn patch(steps: &mut VecDeque<Step>, block: u64, (from, bytes): (u64, usize), durable: bool) {
    let at = from - from % block;
    let end = (from + bytes as u64).next_multiple_of(block);
    steps.push_back(Step::Fetch {
        at,
        bytes: (end - at) as usize,
    });
    steps.push_back(Step::Store {
        at,
        skip: (from - at) as usize,
        bytes,
        durable,
    });
}

fn zero(steps: &mut VecDeque<Step>, (from, to): (u64, u64), unmap: bool) {
    if from < to {
        let bytes = to - from;
        steps.push_back(Step::Zero {
            at: from,
            bytes,
            unmap,
        });
    }
}

fn flush_if(steps: &mut VecDeque<Step>, durable: bool) {
    if durable && !steps.is_empty() {
        steps.push_back(Step::Flush);
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
