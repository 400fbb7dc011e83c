//! Combines the completions of a request's pieces into one.

use std::collections::VecDeque;
use zerolane_lane::{Completion, Memory, TransferError, TransferId};

/// A request with pieces that are not complete.
#[derive(Debug)]
struct Group {
    /// The pieces in the order of posting, in which identifiers count up and wrap at 2^31, and the memory of those that
    /// completed.
    pieces: Vec<(TransferId, Option<Memory>)>,
    left: usize,
    /// Whether success is reported.
    signalled: bool,
    bytes: u64,
    error: Option<TransferError>,
}

impl Group {
    /// The place of piece `id` among the pieces.
    fn place(&self, id: TransferId) -> Option<usize> {
        let first = self.pieces.first()?.0;
        let since = |id: TransferId| id.wrapping_sub(first) & (u32::MAX >> 1);
        let found = self
            .pieces
            .binary_search_by_key(&since(id), |it| since(it.0));
        found.ok()
    }
}

/// All requests of several pieces on a connection.
#[derive(Debug, Default)]
pub(crate) struct Vectored {
    groups: VecDeque<Group>,
}

impl Vectored {
    /// Makes `ids` one request, named by the last of them.
    pub(crate) fn begin(&mut self, ids: Vec<TransferId>, signalled: bool) {
        if ids.is_empty() {
            return;
        }
        self.groups.push_back(Group {
            left: ids.len(),
            signalled,
            pieces: ids.into_iter().map(|id| (id, None)).collect(),
            bytes: 0,
            error: None,
        });
    }

    /// The pieces of the request that is named `id`, if it has several.
    pub(crate) fn pieces(&self, id: TransferId) -> Option<Vec<TransferId>> {
        let mut groups = self.groups.iter();
        let group = groups.find(|it| it.pieces.last().is_some_and(|last| last.0 == id))?;
        Some(group.pieces.iter().map(|it| it.0).collect())
    }

    /// Takes a piece's completion; returns the request's completion after the last piece.
    pub(crate) fn absorb(&mut self, mut completion: Completion) -> Option<Completion> {
        let mut groups = self.groups.iter().enumerate();
        let found = groups.find_map(|(index, group)| Some((index, group.place(completion.id)?)));
        let Some((index, at)) = found else {
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

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use zerolane_lane::{Delivery, MessageControl, WorkKind};

    fn completion(id: TransferId, result: Result<u64, TransferError>) -> Completion {
        Completion {
            id,
            kind: WorkKind::Put,
            context: 0,
            result,
            memory: None,
            delivery: Delivery::Interrupt,
            value: 0,
            control: MessageControl::default(),
            region: None,
        }
    }

    #[test]
    fn absorb__finds_pieces_in_any_order_also_where_identifiers_wrap() {
        const LAST: TransferId = u32::MAX >> 1;
        let mut vectored = Vectored::default();
        // Other requests took the identifiers between.
        vectored.begin(vec![LAST - 4, LAST - 3, LAST, 1, 7], true);
        vectored.begin(vec![9, 12], true);
        let mut absorb = |id| vectored.absorb(completion(id, Ok(10)));
        for other in [LAST - 5, LAST - 1, 2, 8, 10, 13] {
            let same = absorb(other).expect("it is no piece");
            assert_eq!(same.id, other);
        }
        for id in [1, LAST - 4, 12, 7, LAST] {
            assert!(absorb(id).is_none(), "{id}");
        }
        let whole = absorb(LAST - 3).expect("the last of five");
        assert_eq!((whole.id, whole.result), (7, Ok(50)));
        let whole = absorb(9).expect("the last of two");
        assert_eq!((whole.id, whole.result), (12, Ok(20)));
    }

    #[test]
    fn absorb__unsignalled_reports_a_failure_alone() {
        let mut vectored = Vectored::default();
        vectored.begin(vec![1, 2], false);
        vectored.begin(vec![3, 4], false);
        for id in [1, 2, 3] {
            assert!(vectored.absorb(completion(id, Ok(10))).is_none(), "{id}");
        }
        let failed = completion(4, Err(TransferError::Cancelled));
        let failed = vectored.absorb(failed).expect("it failed");
        assert_eq!(
            (failed.id, failed.result),
            (4, Err(TransferError::Cancelled))
        );
    }
}
