//! Combines the completions of a request's pieces into one, and posts pieces as there is room for them.

mod unposted;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use unposted::Unposted;
pub(crate) use unposted::{Left, Piece};
use zerolane_lane::{
    AnyLane, CloseReason, Completion, Delivery, Driver, IdHasher, Memory, MessageControl,
    PostError, Report, TransferError, TransferId, WorkKind, limits,
};
use zerolane_wire::Reason;

/// A request with pieces that are not complete.
#[derive(Debug)]
struct Group {
    kind: WorkKind,
    report: Report,
    /// Pieces that are posted and not complete.
    outstanding: usize,
    /// The memory of pieces that were posted, in that order; `None` while a piece is in progress.
    memory: Vec<Option<Memory>>,
    bytes: u64,
    error: Option<TransferError>,
}

type ById<T> = HashMap<TransferId, T, BuildHasherDefault<IdHasher>>;

/// All requests of several pieces on a connection. Each is named by its first piece.
#[derive(Debug, Default)]
pub(crate) struct Vectored {
    groups: ById<Group>,
    /// The request of each outstanding piece, and the piece's place in it.
    pieces: ById<(TransferId, usize)>,
    /// A request with pieces for which there was no room.
    unposted: Option<(TransferId, Unposted)>,
}

impl Vectored {
    /// Begins a request whose first piece was posted as `first`; `unposted` are the others.
    fn begin(&mut self, first: TransferId, unposted: Unposted) {
        let group = Group {
            kind: unposted.kind(),
            report: unposted.report(),
            outstanding: 0,
            memory: Vec::with_capacity(1 + unposted.len()),
            bytes: 0,
            error: None,
        };
        self.groups.insert(first, group);
        self.add(first, first);
        self.unposted = (unposted.len() > 0).then_some((first, unposted));
    }

    /// Records a piece of `request` that was posted.
    fn add(&mut self, request: TransferId, piece: TransferId) {
        if let Some(group) = self.groups.get_mut(&request) {
            self.pieces.insert(piece, (request, group.memory.len()));
            group.outstanding += 1;
            group.memory.push(None);
        }
    }

    /// # Errors
    /// [`PostError::Full`]: an operation would overtake pieces that were posted before and wait for room.
    pub(crate) fn check_order(&self) -> Result<(), PostError> {
        match self.unposted {
            Some(_) => Err(PostError::Full),
            None => Ok(()),
        }
    }

    /// The request whose pieces wait for room.
    pub(crate) fn unposted(&self) -> Option<TransferId> {
        self.unposted.as_ref().map(|it| it.0)
    }

    /// Pieces that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.unposted.as_ref().map_or(0, |it| it.1.len())
    }

    /// Whether pieces of a put wait for room.
    pub(crate) fn has_puts(&self) -> bool {
        let unposted = self.unposted.as_ref();
        unposted.is_some_and(|it| matches!(it.1, Unposted::Put(_)))
    }

    /// Whether `id` is a request of several pieces that is not complete.
    pub(crate) fn has(&self, id: TransferId) -> bool {
        self.groups.contains_key(&id)
    }

    /// Takes a piece's completion; returns the request's completion after the last piece.
    pub(crate) fn absorb(&mut self, mut completion: Completion) -> Option<Completion> {
        let Some((request, place)) = self.pieces.remove(&completion.id) else {
            return Some(completion);
        };
        let group = self.groups.get_mut(&request)?;
        group.outstanding -= 1;
        group.memory[place] = completion.memory.take();
        match completion.result {
            Ok(bytes) => {
                group.bytes += bytes;
                self.end(request)
            }
            Err(error) => self.fail(request, error),
        }
    }

    /// Ends `request` with `error` when its outstanding pieces are complete. The others are not posted.
    fn fail(&mut self, request: TransferId, error: TransferError) -> Option<Completion> {
        let group = self.groups.get_mut(&request)?;
        group.error = group.error.or(Some(error));
        let unposted = self.unposted.take_if(|it| it.0 == request);
        if let Some((_, unposted)) = unposted {
            group
                .memory
                .extend(unposted.into_memory().into_iter().map(Some));
        }
        self.end(request)
    }

    /// The completion of `request`, if all its pieces are complete and it is to be reported.
    fn end(&mut self, request: TransferId) -> Option<Completion> {
        let waits = self.unposted.as_ref().is_some_and(|it| it.0 == request);
        if waits || self.groups.get(&request)?.outstanding > 0 {
            return None;
        }
        let group = self.groups.remove(&request)?;
        let memory = group.memory.into_iter().flatten().collect();
        let completion = Completion {
            id: request,
            kind: group.kind,
            context: group.report.context,
            result: group.error.map_or(Ok(group.bytes), Err),
            memory: Some(Memory::Gathered(memory)),
            delivery: Delivery::Interrupt,
            // Several pieces of which one failed have no common prefix.
            value: 0,
            control: MessageControl::default(),
            region: None,
            pooled: false,
        };
        (group.report.signalled || group.error.is_some()).then_some(completion)
    }

    /// The outstanding pieces of `request`, the last first.
    pub(crate) fn outstanding(&self, request: TransferId) -> Vec<TransferId> {
        let pieces = self.pieces.iter().filter(|(_, it)| it.0 == request);
        let mut pieces: Vec<_> = pieces.map(|(&id, it)| (it.1, id)).collect();
        pieces.sort_unstable_by(|a, b| b.cmp(a));
        pieces.into_iter().map(|it| it.1).collect()
    }

    /// Posts as many pieces as there is room for, as one request, or returns all of them.
    pub(crate) fn post<M: Piece>(
        &mut self,
        driver: &mut Driver<AnyLane>,
        mut left: Left<M>,
    ) -> Result<TransferId, (PostError, Vec<(u64, M)>)> {
        if let Err(reason) = self.check_order().and_then(|()| left.check()) {
            return Err((reason, left.pieces.collect()));
        }
        match left.post_next(driver) {
            Some(Ok(id)) => {
                self.begin(id, M::unposted(left));
                self.post_unposted(driver);
                Ok(id)
            }
            Some(Err((reason, refused))) => {
                let all = std::iter::once(refused).chain(left.pieces);
                Err((reason, all.collect()))
            }
            None => Err((PostError::NoPieces, Vec::new())),
        }
    }

    /// Takes the completions of pieces that are over. Returns that of their request after the last one.
    pub(crate) fn take(
        &mut self,
        driver: &mut Driver<AnyLane>,
        over: &[TransferId],
    ) -> Option<Completion> {
        let mut whole = None;
        for &piece in over {
            if let Some(completion) = driver.take_completion(piece) {
                whole = whole.or(self.absorb(completion));
            }
        }
        self.post_unposted(driver);
        whole
    }

    /// Posts pieces that wait, while there is room. Their completions make more: a request has no more pieces
    /// outstanding than fit, also on a lane that carries them out at once.
    pub(crate) fn post_unposted(&mut self, driver: &mut Driver<AnyLane>) {
        let Some((request, mut unposted)) = self.unposted.take() else {
            return;
        };
        let outstanding = self.groups.get(&request).map(|it| it.outstanding);
        let mut room = limits::MAX_POSTED.saturating_sub(outstanding.unwrap_or(0));
        while room > 0 && driver.room_for_operations() > 0 {
            room -= 1;
            match unposted.post_next(driver) {
                Some(Ok(piece)) => self.add(request, piece),
                Some(Err((reason, memory))) => {
                    if let Some(group) = self.groups.get_mut(&request) {
                        group.memory.push(Some(memory));
                    }
                    self.unposted = Some((request, unposted));
                    return self.refuse(driver, request, reason);
                }
                None => return,
            }
        }
        self.unposted = (unposted.len() > 0).then_some((request, unposted));
    }

    /// Ends a request of which one piece was refused.
    fn refuse(&mut self, driver: &mut Driver<AnyLane>, request: TransferId, reason: PostError) {
        let error = match reason {
            PostError::OutOfBounds | PostError::TooLong => {
                TransferError::Refused(Reason::OutOfBounds)
            }
            _ => TransferError::Closed(driver.closed().unwrap_or(CloseReason::Local)),
        };
        if let Some(whole) = self.fail(request, error) {
            driver.add_completion(whole);
        }
    }

    /// Cancels a request of several pieces. False if all are over.
    pub(crate) fn cancel(&mut self, driver: &mut Driver<AnyLane>, request: TransferId) -> bool {
        if driver.check_process().is_err() {
            return false;
        }
        let waits = self.unposted.as_ref().is_some_and(|it| it.0 == request);
        let mut cancelled = waits;
        for piece in self.outstanding(request) {
            cancelled |= driver.cancel(piece);
        }
        if waits && let Some(whole) = self.fail(request, TransferError::Cancelled) {
            driver.add_completion(whole);
        }
        cancelled
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::key::RegionKey;
    use zerolane_lane::{Region, RegionNumber, WorkFlags};

    fn completion(id: TransferId, result: Result<u64, TransferError>) -> Completion {
        Completion {
            id,
            kind: WorkKind::Get,
            context: 0,
            result,
            memory: Some(Region::from_vec(vec![id as u8]).into()),
            pooled: false,
            delivery: Delivery::Interrupt,
            value: 0,
            control: MessageControl::default(),
            region: None,
        }
    }

    /// A request whose pieces are `posted`, and `unposted` more, whose memory counts up from 100.
    fn request(vectored: &mut Vectored, posted: &[TransferId], signalled: bool, unposted: u8) {
        let report = Report {
            signalled,
            ..Report::default()
        };
        let left = (0..unposted).map(|n| (0, Region::from_vec(vec![100 + n])));
        let left = Left {
            key: RegionKey::numbered(RegionNumber::new(1).expect("small"), 0),
            pieces: left.collect::<Vec<_>>().into_iter(),
            immediate: None,
            flags: WorkFlags::default(),
            report,
        };
        vectored.begin(posted[0], Unposted::Get(left));
        posted[1..]
            .iter()
            .for_each(|&it| vectored.add(posted[0], it));
    }

    /// The first byte of each piece.
    fn pieces(completion: Completion) -> Vec<u8> {
        let Some(Memory::Gathered(pieces)) = completion.memory else {
            panic!("{completion:?}");
        };
        let first = |it: Memory| it.into_region().map(|it| it[0]);
        pieces.into_iter().filter_map(first).collect()
    }

    #[test]
    fn absorb__finds_pieces_in_any_order_also_where_identifiers_wrap() {
        const LAST: TransferId = u32::MAX >> 1;
        let mut vectored = Vectored::default();
        // Other requests took the identifiers between.
        request(&mut vectored, &[LAST - 4, LAST - 3, LAST, 1, 7], true, 0);
        request(&mut vectored, &[9, 12], true, 0);
        let mut absorb = |id| vectored.absorb(completion(id, Ok(10)));
        for other in [LAST - 5, LAST - 1, 2, 8, 10, 13] {
            let same = absorb(other).expect("it is no piece");
            assert_eq!(same.id, other);
        }
        for id in [1, LAST - 4, 12, 7, LAST] {
            assert!(absorb(id).is_none(), "{id}");
        }
        let whole = absorb(LAST - 3).expect("the last of five");
        assert_eq!((whole.id, whole.result), (LAST - 4, Ok(50)));
        assert_eq!(pieces(whole), [251, 252, 255, 1, 7], "as they were posted");
        let whole = absorb(9).expect("the last of two");
        assert_eq!((whole.id, whole.result), (9, Ok(20)));
    }

    #[test]
    fn absorb__unsignalled_reports_a_failure_alone() {
        let mut vectored = Vectored::default();
        request(&mut vectored, &[1, 2], false, 0);
        request(&mut vectored, &[3, 4], false, 0);
        for id in [1, 2, 3] {
            assert!(vectored.absorb(completion(id, Ok(10))).is_none(), "{id}");
        }
        let failed = completion(4, Err(TransferError::Cancelled));
        let failed = vectored.absorb(failed).expect("it failed");
        assert_eq!(
            (failed.id, failed.result),
            (3, Err(TransferError::Cancelled))
        );
    }

    #[test]
    fn absorb__of_a_failure_gives_back_what_was_not_posted() {
        let mut vectored = Vectored::default();
        request(&mut vectored, &[1, 2], false, 3);
        assert!(vectored.check_order().is_err());
        assert!(vectored.absorb(completion(2, Ok(10))).is_none());
        let failed = completion(1, Err(TransferError::Cancelled));
        let failed = vectored.absorb(failed).expect("it failed");
        assert_eq!(failed.result, Err(TransferError::Cancelled));
        assert_eq!(pieces(failed), [1, 2, 100, 101, 102]);
        assert!(vectored.check_order().is_ok() && vectored.waiting() == 0);
    }

    #[test]
    fn absorb__of_all_that_is_posted_waits_for_the_rest() {
        let mut vectored = Vectored::default();
        request(&mut vectored, &[1, 2], true, 1);
        for id in [1, 2] {
            assert!(vectored.absorb(completion(id, Ok(10))).is_none(), "{id}");
        }
        assert!(vectored.has(1) && vectored.waiting() == 1);
    }
}
