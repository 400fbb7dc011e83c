//! Combines the completions of a request's pieces into one.

use std::collections::VecDeque;
use zerolane_lane::{Completion, Memory, TransferError, TransferId};

/// A request with pieces that are not complete.
#[derive(Debug)]
struct Group {
    /// The pieces, by identifier, and the memory of those that completed.
    pieces: Vec<(TransferId, Option<Memory>)>,
    left: usize,
    /// Whether success is reported.
    signalled: bool,
    bytes: u64,
    error: Option<TransferError>,
}

/// All requests of several pieces on a connection.
#[derive(Debug, Default)]
pub(crate) struct Vectored {
    groups: VecDeque<Group>,
}

impl Vectored {
    /// Makes `ids` one request, named by the last of them.
    pub(crate) fn begin(&mut self, ids: Vec<TransferId>, signalled: bool) {
        self.groups.push_back(Group {
            left: ids.len(),
            signalled,
            pieces: ids.into_iter().map(|id| (id, None)).collect(),
            bytes: 0,
            error: None,
        });
    }

    /// Takes a piece's completion; returns the request's completion after the last piece.
    pub(crate) fn absorb(&mut self, mut completion: Completion) -> Option<Completion> {
        let piece = |group: &Group| group.pieces.iter().position(|it| it.0 == completion.id);
        let found = self.groups.iter().enumerate();
        let Some((index, at)) = found
            .filter_map(|(index, group)| Some((index, piece(group)?)))
            .next()
        else {
            return Some(completion);
        };
        let group = &mut self.groups[index];
        group.left -= 1;
        match &completion.result {
            Ok(bytes) => group.bytes += bytes,
            Err(error) => group.error = group.error.or(Some(*error)),
        }
        group.pieces[at].1 = completion.memory.take();
        if group.left > 0 {
            return None;
        }
        let group = self.groups.remove(index)?;
        if !group.signalled && group.error.is_none() {
            return None;
        }
        completion.id = group.pieces.last().map_or(completion.id, |it| it.0);
        completion.result = group.error.map_or(Ok(group.bytes), Err);
        // Several pieces of which one failed have no common prefix.
        completion.value = 0;
        let memory = group.pieces.into_iter().filter_map(|it| it.1).collect();
        completion.memory = Some(Memory::Gathered(memory));
        Some(completion)
    }
}
